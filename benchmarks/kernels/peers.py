"""The catalogue's kernels against their peers, side by side in one run on one GPU.

Every configuration of every kernel is timed (a kernel's space, unpruned but for spills), and every form of
every peer. The best few of each kernel and of each peer go with bare kernels that only move the same bytes
into interleaved rounds. The first half of those rounds chooses configuration and form, the second half is
reported. Times are medians with a cold L2 (160 MB are set to zero before every repeat), on 2^26 elements,
batch 2^26 / N. The JSON is written after every size, with the time of every form that was tried.

    python benchmarks/kernels/peers.py --out benchmarks/results/peers-h200.json \
        [--families scan fft] [--sizes 64 512]

``--start-from RESULTS.json`` takes the kernels' candidates from an earlier run instead of their whole spaces:
what it chose at this N, at half and at twice this N, and for the other kernels of the family, or what differs
from that in one tunable.
"""

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import answers
from bare import bare
from cold_timing import copy_bandwidth, median
from cub_peers import SIZES as SCANS
from peer import Peer
from peer_contest import ROUNDS, Contest, Tried, line, peer_line
from peer_families import ELEMENTS, FAMILIES
from peer_libraries import Libraries
from provenance import provenance
from sweep import Bench, opened

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Workload

FINALISTS = 5
FINAL_FORMS = 3
NEIGHBOURS = 2  # configurations that differ from one that was chosen before in one tunable at most


def main() -> None:
    """Measure, print the tables, add to the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--sizes", nargs="*", type=int, help="only these N")
    parser.add_argument(
        "--repeats", type=int, default=5, help="of each configuration before the final rounds"
    )
    parser.add_argument("--start-from", type=Path, help="candidates from these results, not whole spaces")
    parser.add_argument("--only-peers", action="store_true", help="leave the catalogue's kernels out")
    parser.add_argument("--cccl", type=Path, help="headers of CCCL, where those of nvcc are not to be used")
    parser.add_argument("--cub-build", type=Path, help="folder of compiled forms of CUB, kept for other runs")
    options = parser.parse_args()
    bench = opened()
    scans = [n for n in SCANS if "scan" in options.families and n in (options.sizes or SCANS)]
    libraries = Libraries(bench.cp, scans, options.cccl, options.cub_build)
    document = _document(options.out)
    copy_gb_s = copy_bandwidth(bench.cp, bench.timer)
    print(f"copy: {copy_gb_s:.0f} GB/s; {libraries.versions()}; not found: {libraries.missing}", flush=True)
    facts = {"copy_gb_s": copy_gb_s, "libraries": libraries.versions(), "missing": libraries.missing}
    document["runs"].append({**provenance(), **facts})
    start = json.loads(options.start_from.read_text())["rows"] if options.start_from else None
    conditions = Conditions(options.repeats, copy_gb_s, start, options.only_peers)
    for name in options.families:
        family = FAMILIES[name]
        for n in [n for n in family.sizes if not options.sizes or n in options.sizes]:
            result = contest(bench, libraries, name, n, conditions)
            rows = result.rows()
            _replace(document, "rows", name, n, rows)
            _replace(document, "peers", name, n, result.peer_rows())
            options.out.write_text(json.dumps(document, indent=1) + "\n")
            for text in [*map(line, rows), *map(peer_line, result.peer_rows())]:
                print(text, flush=True)
            del result, rows  # and the arrays of the peers' forms
            bench.cp.get_default_memory_pool().free_all_blocks()


def _document(path: Path) -> dict[str, Any]:
    """What earlier runs left, or a new document."""
    if path.exists():
        document: dict[str, Any] = json.loads(path.read_text())
        return document
    protocol = {
        "elements": ELEMENTS,
        "rounds": ROUNDS,
        "reported": "median of the second half of the rounds; the first half chose the configuration or form",
        "tried": f"every form of a peer, by a few repeats; its best {FINAL_FORMS} went into the rounds",
        "flush": "160 MB set to zero before every repeat",
        "margin": f"tridiagonal systems: |b| >= |a| + |c| + {answers.MARGIN}",
    }
    return {"protocol": protocol, "runs": [], "rows": [], "peers": []}


def _replace(document: dict[str, Any], table: str, family: str, n: int, rows: list[dict[str, Any]]) -> None:
    run = len(document["runs"]) - 1
    kept = [row for row in document[table] if (row["family"], row["n"]) != (family, n)]
    document[table] = [*kept, *({**row, "run": run} for row in rows)]


def contest(bench: Bench, libraries: Libraries, name: str, n: int, conditions: "Conditions") -> Contest:
    """Our kernels' best configurations, the peers' best forms and the bare kernel at one size."""
    cp, family = bench.cp, FAMILIES[name]
    data = answers.make(cp, family.problem, n, ELEMENTS)
    ours = {}
    for kernel_name in () if conditions.only_peers else family.kernels:
        kernel = bench.catalog.kernel(kernel_name)
        workload = kernel.workload({"N": n}, batch=ELEMENTS // n)
        candidates = _candidates(bench.catalog, kernel, workload, conditions.start)
        ours[kernel_name] = bench.sweep(kernel, workload, data, conditions.repeats, candidates)
        wrong = [r for r in ours[kernel_name] if r.trouble.startswith("wrong")]
        if wrong:
            print(f"{kernel_name} N={n}: {len(wrong)} wrong answers, e.g. {wrong[0].configuration}")
    moves = _fastest(bench, bare(cp, family.problem, data.inputs, data.output))
    tried = _tried(bench, libraries, data, conditions.repeats)
    finals = _finalists(tried, answers.allowed_error(family.problem, n))
    finalists = {k: [r for r in results if not r.trouble][:FINALISTS] for k, results in ours.items()}
    runs = {f"{k} {r.configuration}": r.run for k, best in finalists.items() for r in best}
    runs |= {peer.key: peer.run for peer in finals} | moves
    prepare = {peer.key: peer.prepare for peer in finals if peer.prepare is not None}
    times = bench.timer.interleaved(runs, ROUNDS, prepare, seed=n)
    spaces = {k: len(results) for k, results in ours.items()}
    return Contest(name, n, conditions.copy_gb_s, spaces, finalists, tried, list(moves), times)


def _candidates(
    catalog: Catalog, kernel: KernelFile, workload: Workload, start: list[dict[str, Any]] | None
) -> list[Configuration] | None:
    """Of the rows of an earlier run, what the kernel's space holds at this size; all of it without them."""
    if start is None:
        return None
    n, family = int(dict(workload.sizes)["N"]), next(f for f in FAMILIES.values() if kernel.name in f.kernels)
    rows = [row for row in start if row["kernel"] in family.kernels and n // 2 <= row["n"] <= 2 * n]
    space = list(kernel.space(workload))
    found: dict[Configuration, None] = {}
    for row in sorted(rows, key=lambda row: (row["n"] != n, row["kernel"] != kernel.name)):
        before = catalog.kernel(row["kernel"])
        chosen = set(before.configuration(before.workload({"N": row["n"]}), row["configuration"]).items())
        differences = {c: len(set(dict(c).items()) ^ chosen) // 2 for c in space}
        near = sorted((c for c in space if differences[c] <= 1), key=differences.__getitem__)
        found |= dict.fromkeys(near[:NEIGHBOURS])
    return list(found)


def _tried(bench: Bench, libraries: Libraries, data: answers.Data, repeats: int) -> list[Tried]:
    """Every form of every peer, each checked and timed."""

    def one(peer: Peer) -> Tried:
        try:
            error = _error(bench.cp, peer, data)
            ms = median([bench.timer.once(peer.run, peer.prepare) for _ in range(repeats)])
        except RuntimeError as trouble:
            return Tried(peer, math.inf, math.inf, str(trouble))
        return Tried(peer, ms, error)

    return [one(peer) for peer in libraries.peers(data)]


def _finalists(tried: list[Tried], allowed: float) -> list[Peer]:
    """The fastest right forms of each peer; of one that has none, the fastest wrong ones."""
    best: list[Peer] = []
    for name in dict.fromkeys(t.peer.name for t in tried):
        forms = [t for t in tried if t.peer.name == name and not t.trouble]
        right = [t for t in forms if t.error <= allowed]
        best += [t.peer for t in sorted(right or forms, key=lambda t: t.ms)[:FINAL_FORMS]]
    return best


def _error(cp: Any, peer: Peer, data: answers.Data) -> float:
    data.poison(cp)
    if peer.prepare is not None:
        peer.prepare()
    peer.run()
    return data.error(cp, peer.answer())


def _fastest(bench: Bench, moves: dict[str, Any], count: int = 3) -> dict[str, Any]:
    times = bench.timer.interleaved(moves, 5)
    best = sorted(moves, key=lambda m: median(times[m]))[:count]
    return {m: moves[m] for m in best}


@dataclass(frozen=True)
class Conditions:
    """What all contests of a run share: repeats before the rounds, GB/s of a copy, rows of an earlier run."""

    repeats: int
    copy_gb_s: float
    start: list[dict[str, Any]] | None
    only_peers: bool


if __name__ == "__main__":
    main()
