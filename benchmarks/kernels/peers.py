"""The catalogue's kernels against their peers, side by side in one run on one GPU.

Every configuration of every kernel is timed (a kernel's space, unpruned but for spills), and every form of
every peer. The best few of each kernel and of each peer go with bare kernels that only move the same bytes
into interleaved rounds. The first half of those rounds chooses configuration and form, the second half is
reported. Times are medians with a cold L2 (160 MB are set to zero before every repeat), on 2^26 elements,
batch 2^26 / N. The JSON is written after every size, with the time of every form that was tried.

    python benchmarks/kernels/peers.py --out benchmarks/results/peers-h200.json \
        [--families scan fft] [--sizes 64 512]

``--show FILE`` prints the fastest kernel of every N of such a result, and measures nothing. ``--docs PAGE``
replaces what stands between the lines ``<!-- brief peers -->`` and ``<!-- end of brief peers -->``.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth, median, spread
from headlines import write_table
from peer_libraries import SIZES as SCANS
from peer_libraries import CubPeers, CufftPeers, CusparsePeers, Peer
from provenance import command_line, provenance, save
from sweep import MARGIN, Bench, Data, Result, allowed_error, bare, make, opened

# --- families, bytes, rates and targets -----------------------------------------------------------


ELEMENTS = 2**26
BYTES = {"scan": 8, "tridiagonal": 20, "fft": 16}
RATES = {"scan": "MData/s", "tridiagonal": "MRows/s", "fft": "GFlop/s"}


@dataclass(frozen=True)
class Family:
    """Kernels of one table; ``problem`` is what they solve."""

    problem: str
    kernels: tuple[str, ...]
    sizes: tuple[int, ...]


FAMILIES = {
    "scan": Family("scan", ("scan-lf", "scan-ks"), tuple(2**k for k in range(6, 14))),
    "tridiagonal": Family(
        "tridiagonal",
        ("tridiag-cr", "tridiag-pcr", "tridiag-lf", "tridiag-wm"),
        tuple(2**k for k in range(6, 13)),
    ),
    "fft": Family("fft", ("fft",), tuple(2**k for k in range(6, 14))),
    "fft-large": Family("fft", ("fft-large",), tuple(2**k for k in range(14, 24))),
}


def rate(problem: str, n: int, ms: float) -> float:
    """Of a time for all elements, in the unit of ``RATES``."""
    if problem == "fft":
        return 5 * math.log2(n) * ELEMENTS / ms / 1e6
    return ELEMENTS / ms / 1e3


def target(family: str, row: dict[str, Any]) -> dict[str, Any]:
    """The target in words, and whether it is met."""
    n, of_bare, ratio = row["n"], row["of_bare"], row["ratio"]
    if family == "scan":
        return {
            "target": ">= 97.5 % of bare and >= 1.00 x the best peer",
            "met": of_bare >= 0.975 and ratio >= 1.0,
        }
    if family == "tridiagonal":
        return {"target": ">= 95 % of bare (best of the four 98 %)", "met": of_bare >= 0.95}
    small, large = (1.0 if n == 64 else 1.01), (1.25 if n <= 2**19 or n == 2**22 else 1.2)
    least = large if family == "fft-large" else small
    return {"target": f">= {least:.2f} x cuFFT", "met": ratio >= least}


# --- one family at one size -----------------------------------------------------------------------


ROUNDS = 22


@dataclass(frozen=True)
class Tried:
    """A peer's form, its time by a few repeats and its error; infinite where it would not run."""

    peer: Peer
    ms: float
    error: float
    trouble: str = ""


@dataclass(frozen=True)
class Contest:
    """Times of one family at one size.

    Attributes:
        family: key of ``FAMILIES``.
        n: length of a row.
        copy_gb_s: roofline of the run.
        spaces: configurations timed, by kernel.
        finalists: our best configurations, by kernel.
        tried: the peers' forms.
        moves: names of the bare kernels.
        times: milliseconds of the rounds, by name.
    """

    family: str
    n: int
    copy_gb_s: float
    spaces: dict[str, int]
    finalists: dict[str, list[Result]]
    tried: list[Tried]
    moves: list[str]
    times: dict[str, list[float]]

    @property
    def problem(self) -> str:
        """What is solved."""
        return FAMILIES[self.family].problem

    def chosen(self, names: Sequence[str]) -> str:
        """The fastest by the first half of the rounds, which nothing else is reported of."""
        return min(names, key=lambda name: median(self.times[name][: ROUNDS // 2]))

    def reported(self, name: str) -> list[float]:
        """Times of the second half of the rounds."""
        return self.times[name][ROUNDS // 2 :]

    def peer_rows(self) -> list[dict[str, Any]]:
        """One row for each peer, of its fastest form, and for the bare kernel."""
        errors = {t.peer.key: t.error for t in self.tried}
        rows = []
        for name in dict.fromkeys(t.peer.name for t in self.tried):
            forms = [t for t in self.tried if t.peer.name == name]
            final = [t.peer.key for t in forms if t.peer.key in self.times]
            if final:
                chosen = self.chosen(final)
                form = next(t.peer.form for t in forms if t.peer.key == chosen)
                rows.append(self._peer_row(name, form, chosen, errors[chosen]))
                rows[-1]["tried"] = [
                    {"form": t.peer.form, "ms": t.ms, "error": t.error}
                    if not t.trouble
                    else {"form": t.peer.form, "trouble": t.trouble}
                    for t in forms
                ]
        return [*rows, self._peer_row("bare", "", self.chosen(self.moves), 0.0)]

    def _peer_row(self, name: str, form: str, key: str, error: float) -> dict[str, Any]:
        return {
            "family": self.family,
            "n": self.n,
            "peer": name,
            "form": form or key,
            "ms": median(self.reported(key)),
            "spread_ms": spread(self.reported(key)),
            "error": error,
            "correct": error <= allowed_error(self.problem, self.n),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row for each of our kernels."""
        peers = self.peer_rows()
        bare_ms = next(p["ms"] for p in peers if p["peer"] == "bare")
        best = min((p for p in peers if p["correct"] and p["peer"] != "bare"), key=lambda p: p["ms"])
        return [self._row(kernel, bare_ms, best) for kernel, best_few in self.finalists.items() if best_few]

    def _row(self, kernel: str, bare_ms: float, best: dict[str, Any]) -> dict[str, Any]:
        by_name = {f"{kernel} {r.configuration}": r for r in self.finalists[kernel]}
        chosen = self.chosen(list(by_name))
        result, ms = by_name[chosen], median(self.reported(chosen))
        row = {
            "family": self.family,
            "kernel": kernel,
            "n": self.n,
            "configuration": dict(result.configuration),
            "configurations_timed": self.spaces[kernel],
            "ms": ms,
            "spread_ms": spread(self.reported(chosen)),
            "rate": rate(self.problem, self.n, ms),
            "rate_name": RATES[self.problem],
            "roofline": BYTES[self.problem] * ELEMENTS / (ms * 1e6 * self.copy_gb_s),
            "bare_ms": bare_ms,
            "of_bare": bare_ms / ms,
            "error": result.error,
            "correct": result.error <= allowed_error(self.problem, self.n),
            "best_peer": best["peer"],
            "best_peer_form": best["form"],
            "best_peer_ms": best["ms"],
            "ratio": best["ms"] / ms,
        }
        return {**row, **target(self.family, row)}


def line(row: dict[str, Any]) -> str:
    """One of our rows, for the terminal."""
    configuration = " ".join(f"{name}={value}" for name, value in row["configuration"].items())
    return (
        f"{row['kernel']:12} N={row['n']:<8} {row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        f" {100 * row['of_bare']:6.1f} % of bare  {row['ratio']:5.3f} x {row['best_peer']}"
        f" ({row['best_peer_ms']:.4f} ms)  error {row['error']:.1e}"
        f"  {'met' if row['met'] else 'MISSED'} ({row['target']})  {configuration}"
        f"  [of {row['configurations_timed']}]"
    )


def peer_line(row: dict[str, Any]) -> str:
    """One of the peers' rows, for the terminal."""
    return (
        f"    {row['peer']:28} N={row['n']:<8} {row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        f"  error {row['error']:.1e}  {row['form']}  [of {len(row.get('tried', ()))}]"
    )


# --- CUB, cuSPARSE, cuFFT, torch and CuPy ---------------------------------------------------------


class Libraries:
    """The libraries found on this machine; ``missing`` says which were not, and which forms were refused."""

    def __init__(self, cp: Any, scans: Sequence[int], cub_build: Path | None) -> None:
        self.cp = cp
        self.missing: dict[str, str] = {}
        self.torch: Any = None
        try:
            import torch  # noqa: PLC0415 - a peer, not a dependency

            self.torch = torch
        except ImportError as error:
            self.missing["torch"] = str(error)
        self.cub: CubPeers | None = None
        try:
            folder = cub_build or Path(tempfile.mkdtemp(prefix="cub-peers-"))
            self.cub = CubPeers(cp, scans, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            self.missing["CUB"] = f"{error}: nvcc is needed"
        self.cusparse, self.cufft = CusparsePeers(cp), CufftPeers(cp)

    def versions(self) -> dict[str, str]:
        """Of the libraries."""
        found = {"cuFFT": str(self.cufft.version), "cuSPARSE": str(self.cusparse.version)}
        if self.cub is not None:
            found["CUB"] = str(self.cub.version)
        if self.torch is not None:
            found["torch"] = str(self.torch.__version__)
        return found

    def peers(self, data: Data) -> list[Peer]:
        """Every form of everything that solves the problem."""
        if data.family == "scan":
            return self._scan(data)
        if data.family == "fft":
            return self._fft(data)
        peers = self.cusparse.peers(data)
        self.missing |= self.cusparse.failed
        return peers

    def _scan(self, data: Data) -> list[Peer]:
        cp, (x,), y = self.cp, data.inputs, data.output
        peers = [Peer("cupy.cumsum", "", lambda: _ignore(cp.cumsum(x, axis=1, out=y)), lambda: y)]
        if self.torch is not None:
            torch, tx, ty = self.torch, self.torch.from_dlpack(x), self.torch.from_dlpack(y)
            peers.append(Peer("torch.cumsum", "", lambda: _ignore(torch.cumsum(tx, 1, out=ty)), lambda: y))
        return peers + (self.cub.peers(data) if self.cub is not None else [])

    def _fft(self, data: Data) -> list[Peer]:
        peers = self.cufft.peers(data)
        self.missing |= self.cufft.failed
        if self.torch is not None:
            torch, cp, tx, ty = self.torch, self.cp, *map(self.torch.from_dlpack, (*data.inputs, data.output))
            peers.append(
                Peer("torch.fft", "out=", lambda: _ignore(torch.fft.fft(tx, out=ty)), lambda: data.output)
            )
            held: list[Any] = []

            def fresh() -> None:
                held[:] = [torch.fft.fft(tx)]

            peers.append(Peer("torch.fft", "new array", fresh, lambda: cp.from_dlpack(held[0])))
        return peers


def _ignore(_: object) -> None:
    """The result lies in the output already."""


# --- table and plot -------------------------------------------------------------------------------


TITLES = {
    "scan": "Inclusive scan, float32",
    "tridiagonal": "Tridiagonal systems, float32",
    "fft": "Complex FFT, complex64, one kernel",
    "fft-large": "Complex FFT, complex64, large",
}


def show(results: Path, docs: Path | None) -> None:
    """Print the table of a result; write the page where asked to."""
    document = json.loads(results.read_text())
    text = brief(document)
    print(text)
    if docs is not None:
        write_table(docs, "brief peers", text)


def brief(document: dict[str, Any]) -> str:
    """The fastest kernel of every N of every family, and its ratio to the best correct peer."""
    lines = ["| family | N | kernel | ms | of bare | best correct peer | × peer |", "| --- " * 7 + "|"]
    for family, title in TITLES.items():
        rows = [row for row in document["rows"] if row["family"] == family]
        for n in sorted({row["n"] for row in rows}):
            row = min((row for row in rows if row["n"] == n), key=lambda row: row["ms"])
            lines.append(
                f"| {title} | {n} | {row['kernel']} | {row['ms']:.4f} ± {row['spread_ms']:.4f}"
                f" | {100 * row['of_bare']:.1f} % | {row['best_peer']}, {row['best_peer_ms']:.4f} ms"
                f" | {row['ratio']:.3f} |"
            )
    return "\n".join(lines)


FINALISTS = 5
REPEATS = 5  # of each configuration and form before the final rounds
FINAL_FORMS = 3


def main() -> None:
    """Measure, print the tables, add to the JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--sizes", nargs="*", type=int, help="only these N")
    parser.add_argument("--cub-build", type=Path, help="folder of compiled forms of CUB, kept for other runs")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the table of a result")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="of --show: a page to write it into")
    options = parser.parse_args()
    if options.show is not None:
        show(options.show, options.docs)
        return
    if options.out is None:
        parser.error("the following arguments are required: --out")
    bench = opened()
    scans = [n for n in SCANS if "scan" in options.families and n in (options.sizes or SCANS)]
    libraries = Libraries(bench.cp, scans, options.cub_build)
    document = _document(options.out)
    copy_gb_s = copy_bandwidth(bench.cp, bench.timer)
    print(f"copy: {copy_gb_s:.0f} GB/s; {libraries.versions()}; not found: {libraries.missing}", flush=True)
    facts = {"copy_gb_s": copy_gb_s, "libraries": libraries.versions(), "missing": libraries.missing}
    document["runs"].append({**provenance(), **facts})
    for name in options.families:
        family = FAMILIES[name]
        for n in [n for n in family.sizes if not options.sizes or n in options.sizes]:
            result = contest(bench, libraries, name, n, copy_gb_s)
            rows = result.rows()
            _replace(document, "rows", name, n, rows)
            _replace(document, "peers", name, n, result.peer_rows())
            save(options.out, document)
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
        "margin": f"tridiagonal systems: |b| >= |a| + |c| + {MARGIN}",
    }
    return {"protocol": protocol, "runs": [], "rows": [], "peers": []}


def _replace(document: dict[str, Any], table: str, family: str, n: int, rows: list[dict[str, Any]]) -> None:
    run = len(document["runs"]) - 1
    kept = [row for row in document[table] if (row["family"], row["n"]) != (family, n)]
    document[table] = [*kept, *({**row, "run": run} for row in rows)]


def contest(bench: Bench, libraries: Libraries, name: str, n: int, copy_gb_s: float) -> Contest:
    """Our kernels' best configurations, the peers' best forms and the bare kernel at one size."""
    cp, family = bench.cp, FAMILIES[name]
    data = make(cp, family.problem, n, ELEMENTS)
    ours = {}
    for kernel_name in family.kernels:
        kernel = bench.catalog.kernel(kernel_name)
        workload = kernel.workload({"N": n}, batch=ELEMENTS // n)
        ours[kernel_name] = bench.sweep(kernel, workload, data, REPEATS)
        wrong = [r for r in ours[kernel_name] if r.trouble.startswith("wrong")]
        if wrong:
            print(f"{kernel_name} N={n}: {len(wrong)} wrong answers, e.g. {wrong[0].configuration}")
    moves = _fastest(bench, bare(cp, family.problem, data.inputs, data.output))
    tried = _tried(bench, libraries, data)
    finals = _finalists(tried, allowed_error(family.problem, n))
    finalists = {k: [r for r in results if not r.trouble][:FINALISTS] for k, results in ours.items()}
    runs = {f"{k} {r.configuration}": r.run for k, best in finalists.items() for r in best}
    runs |= {peer.key: peer.run for peer in finals} | moves
    prepare = {peer.key: peer.prepare for peer in finals if peer.prepare is not None}
    times = bench.timer.interleaved(runs, ROUNDS, prepare, seed=n)
    spaces = {k: len(results) for k, results in ours.items()}
    return Contest(name, n, copy_gb_s, spaces, finalists, tried, list(moves), times)


def _tried(bench: Bench, libraries: Libraries, data: Data) -> list[Tried]:
    """Every form of every peer, each checked and timed."""

    def one(peer: Peer) -> Tried:
        try:
            error = _error(bench.cp, peer, data)
            ms = median([bench.timer.once(peer.run, peer.prepare) for _ in range(REPEATS)])
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


def _error(cp: Any, peer: Peer, data: Data) -> float:
    data.poison(cp)
    if peer.prepare is not None:
        peer.prepare()
    peer.run()
    return data.error(cp, peer.answer())


def _fastest(bench: Bench, moves: dict[str, Any], count: int = 3) -> dict[str, Any]:
    times = bench.timer.interleaved(moves, 5)
    best = sorted(moves, key=lambda m: median(times[m]))[:count]
    return {m: moves[m] for m in best}


if __name__ == "__main__":
    main()
