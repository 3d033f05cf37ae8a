"""The catalogue's kernels against their peers, side by side in one run on one GPU.

Every configuration of every kernel is timed (a kernel's space, unpruned but for spills); the best few go with
the peers and bare kernels that only move the same bytes into interleaved rounds. The first half of those
rounds chooses the configuration, the second half is reported. Times are medians with a cold L2 (160 MB are
set to zero before every repeat), on 2^26 elements, batch 2^26 / N. The JSON is written after every size.

    python benchmarks/peers.py --out benchmarks/results/peers-h200.json [--families scan fft] [--sizes 64 512]
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import answers
from bare import bare
from cold_timing import median, spread
from peer_libraries import Libraries, Peer
from provenance import provenance
from sweep import Bench, Result, opened

ROUNDS = 22
SLOW_ROUNDS = 3
FINALISTS = 5
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


def main() -> None:
    """Measure, print the tables, add to the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--sizes", nargs="*", type=int, help="only these N")
    parser.add_argument(
        "--repeats", type=int, default=5, help="of each configuration before the final rounds"
    )
    options = parser.parse_args()
    bench = opened()
    libraries = Libraries(bench.cp)
    document = _document(options.out)
    copy_gb_s = copy_bandwidth(bench)
    print(f"copy: {copy_gb_s:.0f} GB/s; peers not found: {libraries.missing or 'none'}", flush=True)
    document["runs"].append({**provenance(), "copy_gb_s": copy_gb_s, "missing": libraries.missing})
    for name in options.families:
        family = FAMILIES[name]
        for n in [n for n in family.sizes if not options.sizes or n in options.sizes]:
            result = contest(bench, libraries, name, n, Options(options.repeats, copy_gb_s))
            rows = result.rows()
            _replace(document, "rows", name, n, rows)
            _replace(document, "peers", name, n, result.peer_rows())
            options.out.write_text(json.dumps(document, indent=1) + "\n")
            for row in rows:
                print(_line(row), flush=True)


def copy_bandwidth(bench: Bench) -> float:
    """GB/s of a device-to-device copy of 4 GiB, bytes read and written: the roofline of this run."""
    cp = bench.cp
    source, target = cp.zeros(2**30, cp.float32), cp.empty(2**30, cp.float32)
    times = [bench.timer.once(lambda: cp.copyto(target, source)) for _ in range(11)]
    return float(2 * source.nbytes / median(times) / 1e6)


def _document(path: Path) -> dict[str, Any]:
    """What earlier runs left, or a new document."""
    if path.exists():
        document: dict[str, Any] = json.loads(path.read_text())
        return document
    protocol = {
        "elements": ELEMENTS,
        "rounds": ROUNDS,
        "reported": "median of the second half of the rounds; the first half chose the configuration",
        "flush": "160 MB set to zero before every repeat",
        "margin": f"tridiagonal systems: |b| >= |a| + |c| + {answers.MARGIN}",
    }
    return {"protocol": protocol, "runs": [], "rows": [], "peers": []}


def _replace(document: dict[str, Any], table: str, family: str, n: int, rows: list[dict[str, Any]]) -> None:
    run = len(document["runs"]) - 1
    kept = [row for row in document[table] if (row["family"], row["n"]) != (family, n)]
    document[table] = [*kept, *({**row, "run": run} for row in rows)]


def contest(bench: Bench, libraries: Libraries, name: str, n: int, options: "Options") -> "Contest":
    """Our kernels' best configurations, the peers and the bare kernel at one size."""
    cp, family = bench.cp, FAMILIES[name]
    data = answers.make(cp, family.problem, n, ELEMENTS)
    ours = {}
    for kernel_name in family.kernels:
        kernel = bench.catalog.kernel(kernel_name)
        workload = kernel.workload({"N": n}, batch=ELEMENTS // n)
        ours[kernel_name] = bench.sweep(kernel, workload, data, options.repeats)
        wrong = [r for r in ours[kernel_name] if r.trouble.startswith("wrong")]
        if wrong:
            print(f"{kernel_name} N={n}: {len(wrong)} wrong answers, e.g. {wrong[0].configuration}")
    peers = {peer.name: peer for peer in libraries.peers(data)}
    moves = _fastest(bench, bare(cp, family.problem, data.inputs, data.output))
    finalists = {k: [r for r in results if not r.trouble][:FINALISTS] for k, results in ours.items()}
    runs = {f"{k} {r.configuration}": r.run for k, best in finalists.items() for r in best}
    runs |= {p.name: p.run for p in peers.values() if not p.slow} | moves
    prepare = {p.name: p.prepare for p in peers.values() if p.prepare is not None}
    times = bench.timer.interleaved(runs, ROUNDS, prepare, seed=n)
    slow = {p.name: p.run for p in peers.values() if p.slow}
    times |= bench.timer.interleaved(slow, SLOW_ROUNDS, prepare)
    errors = {name: _error(cp, peer, data) for name, peer in peers.items()}
    spaces = {k: len(results) for k, results in ours.items()}
    return Contest(name, n, options.copy_gb_s, spaces, finalists, errors, list(moves), times)


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
class Options:
    """What all contests of a run share: repeats of a configuration in the sweep, GB/s of a copy."""

    repeats: int
    copy_gb_s: float


@dataclass(frozen=True)
class Contest:
    """Times of one family at one size.

    Attributes:
        family: key of ``FAMILIES``.
        n: length of a row.
        copy_gb_s: roofline of the run.
        spaces: configurations timed, by kernel.
        finalists: our best configurations, by kernel.
        errors: of the peers, by name.
        moves: names of the bare kernels.
        times: milliseconds of the rounds, by name.
    """

    family: str
    n: int
    copy_gb_s: float
    spaces: dict[str, int]
    finalists: dict[str, list[Result]]
    errors: dict[str, float]
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
        """Times of the second half of the rounds; all of them where there are few."""
        times = self.times[name]
        return times[len(times) // 2 :] if len(times) >= ROUNDS else times

    def peer_rows(self) -> list[dict[str, Any]]:
        """One row for each peer, and for the bare kernel."""
        allowed = answers.allowed_error(self.problem, self.n)
        bare_kernel = self.chosen(self.moves)
        listed = [(name, name, error) for name, error in self.errors.items()] + [("bare", bare_kernel, 0.0)]
        return [
            {
                "family": self.family,
                "n": self.n,
                "peer": peer,
                "ms": median(self.reported(name)),
                "spread_ms": spread(self.reported(name)),
                "error": error,
                "correct": error <= allowed,
            }
            for peer, name, error in listed
        ]

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
            "rate": _rate(self.problem, self.n, ms),
            "rate_name": RATES[self.problem],
            "roofline": BYTES[self.problem] * ELEMENTS / (ms * 1e6 * self.copy_gb_s),
            "bare_ms": bare_ms,
            "of_bare": bare_ms / ms,
            "error": result.error,
            "correct": result.error <= answers.allowed_error(self.problem, self.n),
            "best_peer": best["peer"],
            "best_peer_ms": best["ms"],
            "ratio": best["ms"] / ms,
        }
        return {**row, **_target(self.family, row)}


def _rate(problem: str, n: int, ms: float) -> float:
    if problem == "fft":
        return 5 * math.log2(n) * ELEMENTS / ms / 1e6
    return ELEMENTS / ms / 1e3


def _target(family: str, row: dict[str, Any]) -> dict[str, Any]:
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


def _line(row: dict[str, Any]) -> str:
    configuration = " ".join(f"{name}={value}" for name, value in row["configuration"].items())
    return (
        f"{row['kernel']:12} N={row['n']:<8} {row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        f" {100 * row['of_bare']:6.1f} % of bare  {row['ratio']:5.3f} x {row['best_peer']}"
        f" ({row['best_peer_ms']:.4f} ms)  error {row['error']:.1e}"
        f"  {'met' if row['met'] else 'MISSED'} ({row['target']})  {configuration}"
        f"  [of {row['configurations_timed']}]"
    )


if __name__ == "__main__":
    main()
