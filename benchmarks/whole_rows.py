"""Chooses how ``fft-long`` transforms rows that a block holds, and writes the answers of its kernel file.

At every length of primes up to 13 that a block holds, configurations are timed with a cold L2: those of the
fewest stages whose threads share the points most evenly, a few of each radix and number of points. A row of
the file is the fastest one that is faster than two passes. Further rows are for other GPUs: the fastest
without bulk copies, and the fastest of these that need half of the shared memory.

    python benchmarks/whole_rows.py --answers kernels/fft-long/whole_rows.csv [--lengths 10000 20000]
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cold_timing import median
from sweep import Bench, opened

from tuner.compiler import CompiledStage
from tuner.config import KernelFile
from tuner.errors import TunerError
from tuner.expressions import Expression
from tuner.model import Configuration, Plan, Workload

KERNEL = "fft-long"
LONGEST = {"complex64": 20736, "complex128": 10368}
ELEMENTS = {"complex64": 2**26, "complex128": 2**25}
SHORTEST, LARGEST_PRIME = 8193, 13
WAYS = (("bulk", False, 1), ("bulk", True, 1), ("prefetch", False, 1), ("prefetch", True, 1))
SHAPES = 6  # pairs of radix and points
REPEATS = 7
COLUMNS = ("N", "dtype", "form", "r", "P", "split", "load", "blocks")


class Timed(NamedTuple):
    """A configuration and its median in milliseconds."""

    ms: float
    configuration: Configuration


def main() -> None:
    """Time, print a line for each length, write the file in the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--lengths", nargs="*", type=int, help="these instead of all")
    options = parser.parse_args()
    bench = opened()
    kernel, rows = bench.catalog.kernel(KERNEL), []
    for dtype, longest in LONGEST.items():
        for n in options.lengths or range(SHORTEST, longest + 1):
            if n > longest or largest_prime(n) > LARGEST_PRIME:
                continue
            workload = kernel.workload({"N": n, "dtype": dtype}, ELEMENTS[dtype] // n)
            found = answers(sorted(timed(bench, kernel, workload), key=lambda one: one.ms))
            rows += [row(n, dtype, one.configuration) for one in found]
            print(n, dtype, *(f"{one.ms:.4f} ms {one.configuration};" for one in found), flush=True)
    with options.answers.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows])


def largest_prime(n: int) -> int:
    """Largest prime factor of n."""
    largest, factor = 1, 2
    while n > 1:
        if n % factor == 0:
            largest, n = factor, n // factor
        else:
            factor += 1
    return largest


def timed(bench: Bench, kernel: KernelFile, workload: Workload) -> Iterator[Timed]:
    """The shortlist, what is stated now, and the default; those that compile without spills."""
    sizes, stated = dict(workload.sizes), kernel.stated_answers(workload)
    chosen = dict.fromkeys([*shortlist(kernel, workload), *stated, kernel.default(workload)])
    plans = [kernel.plan(workload, one) for one in chosen]
    compiled = iter(bench.compiler.compile([stage for plan in plans for stage in plan.stages]))
    x = bench.cp.random.standard_normal((workload.batch, 2 * int(sizes["N"])))
    x = x.astype("float32" if sizes["dtype"] == "complex64" else "float64").view(str(sizes["dtype"]))
    for plan in plans:
        made = [next(compiled) for _ in plan.stages]
        if all(isinstance(one, CompiledStage) and not one.resources.local_bytes for one in made):
            try:
                yield Timed(median_ms(bench, plan, x), plan.configuration)
            except (TunerError, bench.cp.cuda.driver.CUDADriverError) as trouble:
                print(f"{plan.label()}: {trouble}", flush=True)


def median_ms(bench: Bench, plan: Plan, x: Any) -> float:
    """Of some runs with a cold L2, in milliseconds."""
    cp = bench.cp
    arrays = {b.name: x if b.name == "x" else cp.empty(b.shape, b.dtype) for b in plan.buffers}
    stream = cp.cuda.get_current_stream()
    for step in bench.code.preparation(plan, arrays):
        step.enqueue(stream)
    launches = bench.code.launches(plan, arrays)

    def run() -> None:
        for launch in launches:
            launch.enqueue(stream)

    run()
    cp.cuda.runtime.deviceSynchronize()
    return float(median([bench.timer.once(run) for _ in range(REPEATS)]))


def shortlist(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """Of the best shapes of whole rows the ways to load and exchange."""
    derived = {name: formula.expression for name, formula in kernel.recipe.derived.items()}
    whole = [one for one in kernel.space(workload) if one["form"] == "whole"]
    shapes: dict[tuple[object, object], float] = {}
    for one in whole:
        env: dict[str, Any] = {**dict(workload.sizes), "batch": workload.batch, **dict(one)}
        value = _value_of(derived, env)
        waste = value("held") * value("G") / value("N") - 1
        shapes[one["r"], one["P"]] = 1 + value("behind") + 3 * waste + (0.5 if one["P"] < 16 else 0)
    best = sorted(shapes, key=lambda shape: shapes[shape])[:SHAPES]
    return [o for o in whole if (o["r"], o["P"]) in best and (o["load"], o["split"], o["blocks"]) in WAYS]


def _value_of(derived: dict[str, Expression], env: dict[str, Any]) -> Callable[[str], Any]:
    def value(name: str) -> Any:
        if name not in env:
            for needed in derived[name].names:
                value(needed)
            env[name] = derived[name].evaluate(env)
        return env[name]

    return value


def answers(found: list[Timed]) -> list[Timed]:
    """The fastest; without bulk copies; and with half of the shared memory."""
    passes = next((one.ms for one in found if one.configuration["form"] == "passes"), float("inf"))
    whole = [one for one in found if one.configuration["form"] == "whole" and one.ms < passes]
    plain = [one for one in whole if one.configuration["load"] != "bulk"]
    halves = [one for one in plain if one.configuration["split"]]
    chosen = dict.fromkeys(one for few in (whole, plain, halves) for one in few[:1])
    return sorted(chosen, key=lambda one: one.ms)


def row(n: int, dtype: str, configuration: Configuration) -> list[str]:
    """A line of the file."""
    values = {"N": n, "dtype": dtype, **dict(configuration)}
    return [str(values[name]).lower() for name in COLUMNS]


if __name__ == "__main__":
    main()
