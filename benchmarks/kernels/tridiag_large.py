"""Tridiagonal systems that are long, double or complex, against cuSPARSE, side by side in one run on one GPU.

For every type and length some configurations are timed, and every routine of cuSPARSE as it comes. The best
few of both go with bare kernels, which read four arrays and write one, into interleaved rounds. The first
half of the rounds chooses, the second half is reported. Times are medians with a cold L2 (160 MB are zeroed
before every repeat) of all launches of a call. Answers are judged as the tuner judges them: the backward
error of all systems, and the error of the first and the last one against LAPACK in float64.

    python benchmarks/kernels/tridiag_large.py --out benchmarks/results/tridiag-large-h200.json \
        [--seconds 400]
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import numpy as np
from cold_timing import copy_bandwidth, median, spread
from peer_libraries import CusparsePeers, Peer
from provenance import command_line, provenance, save
from sweep import Bench, Data, Result, bare, opened

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Buffer, Configuration, ProblemSpec, Workload
from tuner.problems.base import Problem, take_rows
from tuner.problems.lookup import problem_for

ROUNDS = 22
FINALISTS = 5
TRIALS = 3
SLOW_MS = 200.0
LONGEST_INTERLEAVED = 2**14
LONGEST_COMPARED = 2**20


@dataclass(frozen=True)
class Case:
    """Systems of one type and length."""

    kernel: str
    dtype: str
    n: int
    batch: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kernel}, {self.dtype}, N = {self.n}, batch {self.batch}"


def _cases() -> list[Case]:
    """The most telling ones first, as time may be short."""
    rows = {"float32": 2**26, "float64": 2**25, "complex64": 2**25}

    def many(kernel: str, dtype: str, n: int) -> Case:
        return Case(kernel, dtype, n, rows[dtype] // n)

    long = [2**k for k in (16, 20, 22, 13, 18, 14, 15, 17, 19, 21)]
    return [
        *(many("tridiag-large", dtype, n) for n in long[:4] for dtype in ("float32", "float64")),
        *(
            Case("tridiag-large", dtype, 2**k, 1)
            for k in (20, 22, 16, 18)
            for dtype in ("float32", "float64")
        ),
        *(many("tridiag-wm", "float64", n) for n in (512, 4096, 64)),
        many("tridiag-large", "complex64", 2**16),
        many("tridiag-wm", "complex64", 512),
        *(many("tridiag-large", dtype, n) for n in long[4:] for dtype in ("float32", "float64")),
        *(many("tridiag-wm", "float64", n) for n in (128, 256, 1024, 2048)),
        *(many("tridiag-large", "complex64", n) for n in (2**13, 2**20)),
    ]


CASES = _cases()


@dataclass(frozen=True)
class Systems(Data):
    """Systems of any type; the error is the backward error.

    Attributes:
        problem: that judges.
        sizes: that it is told.
    """

    problem: Problem
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def error(self, cp: Any, answer: Any = None) -> float:
        """See ``Problem.residual``."""
        given = self.output if answer is None else answer
        return self.problem.residual(cp, self.named, {"x": given}, self.sizes).error

    @property
    def named(self) -> dict[str, Any]:
        """The inputs by their names."""
        return dict(zip("abcd", self.inputs, strict=True))

    def verdict(self, cp: Any, answer: Any) -> tuple[float, float, float]:
        """Backward error of all systems, error of two (NaN where they are long), and what is allowed."""
        allowed = self.problem.allowed(self.output)
        if self.n > LONGEST_COMPARED:
            return self.error(cp, answer), math.nan, allowed
        rows = np.unique([0, self.batch - 1])
        inputs, outputs = take_rows(self.named, rows, 2), take_rows({"x": answer}, rows, 2)
        return self.error(cp, answer), self.problem.compare(inputs, outputs, self.sizes).error, allowed


def make(cp: Any, case: Case) -> Systems:
    """Random systems, dominant by a margin of 0.5."""
    problem = problem_for(ProblemSpec("tridiagonal"))
    shape = (case.batch, case.n)
    buffers = [Buffer(name, case.dtype, shape, "in") for name in "abcd"]
    buffers.append(Buffer("x", case.dtype, shape, "out"))
    rng = cp.random.Generator(cp.random.Philox4x3210(1))
    inputs = tuple(problem.inputs(cp, rng, buffers, {}).values())
    return Systems("tridiagonal", case.n, inputs, cp.empty_like(inputs[0]), None, None, problem)


def shortlist(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """The default, the stated answer, and plain ones of 16 to 64 bytes of each array a thread."""
    width = np.dtype(str(dict(workload.sizes).get("dtype", "float32"))).itemsize

    def wanted(c: Configuration) -> bool:
        values = dict(c)
        if kernel.name != "tridiag-large":
            return bool(values["shuffle"] and values["r"] == 2 and 16 <= int(values["P"]) * width <= 64)
        alike = values.get("blocks2", values["blocks1"]) == values["blocks1"]
        large = int(values["L1"]) >= 128 and 32 <= int(values["P1"]) * width <= 64
        return bool(alike and large and values["load"] != "transpose")

    chosen = [kernel.default(workload), *(c for c in kernel.space(workload) if wanted(c))]
    stated = kernel.stated(workload)
    return list(dict.fromkeys(chosen if stated is None else [stated, *chosen]))


def main() -> None:
    """Measure, print a line for each case, write the JSON after each."""
    parser = command_line(__doc__, must_save=True)
    parser.add_argument("--only", default="", help="cases whose name contains this, e.g. 'float64'")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case is begun after these")
    options = parser.parse_args()
    bench, begin = opened(), time.monotonic()
    copy_gb_s = copy_bandwidth(bench.cp, bench.timer)
    peers = CusparsePeers(bench.cp)
    origin = {**provenance(), "copy_gb_s": copy_gb_s, "cusparse": peers.version}
    document: dict[str, Any] = {"provenance": origin, "rows": []}
    for case in (case for case in CASES if options.only in case.name):
        if time.monotonic() - begin > options.seconds:
            print(f"left out: {case.name}")
            continue
        row = contest(bench, case, peers)
        document["rows"].append(row)
        document["failed"] = peers.failed
        save(options.out, document)
        print(line(row), flush=True)
        bench.cp.get_default_memory_pool().free_all_blocks()


def contest(bench: Bench, case: Case, peers: CusparsePeers) -> dict[str, Any]:
    """Our best configuration, the fastest right form of cuSPARSE and the fastest bare kernel."""
    cp, kernel = bench.cp, bench.catalog.kernel(case.kernel)
    data = make(cp, case)
    workload = kernel.workload({"N": case.n, "dtype": case.dtype}, batch=case.batch)
    contenders = Contenders(
        kernel,
        workload,
        shortlist(kernel, workload),
        lambda: peers.usual(data, interleaved=is_short(case)),
        lambda: bare(cp, "tridiagonal", data.inputs, data.output),
    )
    return compared(bench, case.name, data, contenders)


@dataclass(frozen=True)
class Contenders:
    """What is compared.

    Attributes:
        kernel: ours.
        workload: of it.
        configurations: that are timed.
        peers: makes what it is compared with.
        moves: makes the kernels that only move bytes, by their names.
    """

    kernel: KernelFile
    workload: Workload
    configurations: Sequence[Configuration]
    peers: Callable[[], list[Peer]]
    moves: Callable[[], dict[str, Callable[[], None]]]


def compared(bench: Bench, name: str, data: Systems, contenders: Contenders) -> dict[str, Any]:
    """What all were timed at, and what the second half of the rounds says of the best."""
    cp, kernel, workload = bench.cp, contenders.kernel, contenders.workload
    results = bench.sweep(kernel, workload, data, TRIALS, contenders.configurations)
    good = [result for result in results if not result.trouble]
    chosen = [result for result in good[:FINALISTS] if judged(cp, data, result)]
    if not chosen:
        return {"name": name, "wrong": [f"{r.configuration}: {r.trouble}" for r in results]}
    tried = [tried_peer(bench, data, peer) for peer in contenders.peers()]
    right = sorted((one for one in tried if one["correct"]), key=lambda one: one["ms"])[:FINALISTS]
    moves = contenders.moves()
    runs = {str(result.configuration): result.run for result in chosen}
    runs |= {one["peer"].key: one["peer"].run for one in right} | moves
    prepare = {one["peer"].key: one["peer"].prepare for one in right}
    times = bench.timer.interleaved(runs, ROUNDS, prepare, seed=data.n)
    stated = kernel.stated(workload) or kernel.default(workload)
    return {
        "name": name,
        **summary(times, [str(result.configuration) for result in chosen], right, list(moves)),
        "stated": str(stated),
        "stated_ms": next((r.ms for r in good if r.configuration == stated), None),
        "configurations": [{**dict(r.configuration), "ms": r.ms} for r in good],
        "troubles": [f"{r.configuration}: {r.trouble}" for r in results if r.trouble],
        "forms": [{key: value for key, value in one.items() if key != "peer"} for one in tried],
    }


def is_short(case: Case) -> bool:
    """Whether a thread a system is worth a try."""
    return case.n <= LONGEST_INTERLEAVED and case.batch > 1


def judged(cp: Any, data: Systems, result: Result) -> bool:
    """Whether a configuration is as right as its type allows; notes its error."""
    data.poison(cp)
    result.run()
    backward, error, allowed = data.verdict(cp, data.output)
    result.error = backward if math.isnan(error) else max(error, backward)
    return result.error <= allowed


def tried_peer(bench: Bench, data: Systems, peer: Peer) -> dict[str, Any]:
    """A form of cuSPARSE, timed a few times and judged."""
    cp = bench.cp
    data.poison(cp)
    first = bench.timer.once(peer.run, peer.prepare)
    backward, error, allowed = data.verdict(cp, peer.answer())
    error = backward if math.isnan(error) else max(error, backward)
    repeats = TRIALS if first < SLOW_MS else 0
    ms = median([bench.timer.once(peer.run, peer.prepare) for _ in range(repeats)] or [first])
    shown = error if math.isfinite(error) else None
    return {"form": peer.key, "ms": ms, "error": shown, "correct": error <= allowed, "peer": peer}


def summary(
    times: dict[str, list[float]], ours: list[str], right: list[dict[str, Any]], moves: list[str]
) -> dict[str, Any]:
    """What the second half of the rounds says of those that the first half chose."""
    half = ROUNDS // 2

    def best(names: list[str]) -> str:
        return min(names, key=lambda name: median(times[name][:half]))

    configuration, move = best(ours), best(moves)
    ms, bare_ms = (median(times[name][half:]) for name in (configuration, move))
    found = {
        "configuration": configuration,
        "ms": ms,
        "spread_ms": spread(times[configuration][half:]),
        "bare": move,
        "bare_ms": bare_ms,
        "of_bare": bare_ms / ms,
    }
    if right:
        peer = best([one["form"] for one in right])
        peer_ms = median(times[peer][half:])
        found |= {"peer": peer, "peer_ms": peer_ms, "ratio": peer_ms / ms}
    return found


def line(row: dict[str, Any]) -> str:
    """One case, for the terminal."""
    if "ms" not in row:
        return f"{row['name']}: no right answer; {row['wrong'][:3]}"
    ours = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms, {100 * row['of_bare']:.1f} % of bare"
    peer = (
        f"{row['ratio']:.2f} x {row['peer']} ({row['peer_ms']:.4f} ms)" if "peer" in row else "no right peer"
    )
    stated = f"stated {row['stated_ms'] or math.inf:.4f} ms"
    return f"{row['name']:50} {ours}  {peer}  {row['configuration']}  {stated}"


if __name__ == "__main__":
    main()
