"""Times the measured answers of short rows against the defaults where batches are smaller than recorded.

The rows of the files hold for arrays of 64 MiB and more. Here some lengths of every type are timed with less,
with a cold L2 and over and over, when the L2 holds the arrays:

    python benchmarks/kernels/small_batches.py --out small-batches-h100.json
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from fft_length_cases import Kind, Problem
from fft_lengths import contender
from measured_rows import timed_together
from measured_shortlists import KERNELS, Transforms
from provenance import provenance
from sweep import Bench, opened

from tuner.model.plan import Configuration

LENGTHS = 20  # of every type and direction
INPUTS_MIB = (1, 2, 4, 8, 16, 32, 128)
REPEATS = 15
LAUNCHES = 20  # one after another on the same arrays
LOSS = 1.02  # times of the default: what is told


def main() -> None:
    """Print a row for each type, direction and size of the input, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600, help="no lengths are begun after these")
    options = parser.parse_args()
    bench, begin = opened(), time.monotonic()
    document: dict[str, Any] = {"provenance": provenance(), "rows": []}
    gpu = document["provenance"]["gpus"][0]["name"]
    for kind in (KERNELS["fft-any"], KERNELS["fft-real"]):
        for rows in sorted({(size["dtype"], size["direction"]) for size in kind.sizes()}, key=str):
            if time.monotonic() - begin > options.seconds:
                print(f"left out: {kind.kernel} {rows}", flush=True)
                continue
            found = timed_lengths(bench, kind, *map(str, rows), gpu)
            document["rows"] += found
            options.out.write_text(json.dumps(document, indent=0) + "\n")
            for mib in INPUTS_MIB:
                print(kind.kernel, *rows, f"{mib} MiB:", told([row for row in found if row["mib"] == mib]))


def timed_lengths(
    bench: Bench, kind: Transforms, dtype: str, direction: str, gpu: str
) -> list[dict[str, Any]]:
    """Milliseconds of the default and of the measured answer at some lengths whose answer is another."""
    kernel, differing = bench.catalog.kernel(kind.kernel), {}
    table = Kind(kind.kernel, dtype, direction, (), 0, "")
    for size in kind.sizes():
        if (size["dtype"], size["direction"]) == (dtype, direction):
            whole = kernel.workload(size, 2**30 // int(size["N"]))
            answer, default = kernel.stated_answers(whole, gpu)[0], kernel.default(whole)
            if answer != default:
                differing[int(size["N"])] = (default, answer)
    lengths = sorted(random.Random(0).sample(sorted(differing), min(LENGTHS, len(differing))))  # noqa: S311
    found = []
    for mib in INPUTS_MIB:
        problems = {(n,): Problem(bench, table, n, mib * 2**20) for n in lengths}
        right = timed_together(problems, {key: differing[key[0]] for key in problems}, spilling=True)
        for key, problem in problems.items():
            if len(right[key]) == len(differing[key[0]]):
                times = timed(problem, differing[key[0]])
                named = {"kernel": kind.kernel, "N": key[0], "dtype": dtype, "direction": direction}
                found.append({**named, "mib": mib, "batch": problem.workload.batch, **times})
    return found


def timed(problem: Problem, pair: Sequence[Configuration]) -> dict[str, float]:
    """Medians in milliseconds of the default and the answer, cold and warm."""
    runs = {
        name: contender(problem, problem.kernel.plan(problem.workload, one)).run
        for name, one in zip(("default", "answer"), pair, strict=True)
    }
    cold = problem.bench.timer.interleaved(runs, REPEATS)
    warm: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            warm[name].append(launched(problem.bench, run))
    medians = {f"{name}_ms": statistics.median(times) for name, times in cold.items()}
    return medians | {f"{name}_warm_ms": statistics.median(times) for name, times in warm.items()}


def launched(bench: Bench, run: Callable[[], None]) -> float:
    """Milliseconds of one of many launches on the same arrays."""

    def many() -> None:
        for _ in range(LAUNCHES):
            run()

    return bench.timer.once(many) / LAUNCHES


def told(rows: Iterable[Mapping[str, float]]) -> str:
    """By how much the default is slower in geometric mean, and how often it is faster."""
    parts = []
    for state in ("", "_warm"):
        ratios = [row[f"default{state}_ms"] / row[f"answer{state}_ms"] for row in rows]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lost = sum(ratio * LOSS < 1 for ratio in ratios)
        parts.append(
            f"{state[1:] or 'cold'} {mean:.3f} x, {lost} of {len(ratios)} lose, least {min(ratios):.2f}"
        )
    return "; ".join(parts)


if __name__ == "__main__":
    main()
