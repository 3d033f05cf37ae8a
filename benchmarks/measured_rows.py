"""Times ways in which a block of ``fft-long`` holds a row, and chooses the answers of its kernel file.

At every length of primes up to 13 that a block holds, configurations are timed with a cold L2: what is stated
now, and plain loads by the same threads; at lengths of 2, 3, 5 and 7 by those of the fewest stages whose
threads share the points most evenly, too. Wrong answers are left out. Other GPUs time what is near the best.

    python benchmarks/whole_rows.py record --out benchmarks/results/whole-rows-h200.json [--lengths 10000]
    python benchmarks/whole_rows.py record --out OTHER.json --near benchmarks/results/whole-rows-h200.json
    python benchmarks/whole_rows.py choose RECORD.json ... --answers kernels/fft-long/whole_rows.csv

A row of the file is the configuration whose time, by the best one's on the same GPU, is least where it is
most, if it is faster than two passes on each. Before it stand those of single GPUs, where they are 1 % faster
there. Further rows are for other GPUs: the same without bulk copies, and of these one that needs half of the
shared memory; rows that were there stay where no GPU timed such a one.
"""

import argparse
import csv
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cold_timing import median
from provenance import provenance
from sweep import Bench, opened

from tuner.compiler import CompiledStage
from tuner.config import KernelFile
from tuner.config.catalog import Catalog
from tuner.errors import TunerError
from tuner.expressions import Expression
from tuner.model import Configuration, Plan, Workload
from tuner.problems import problem_for

KERNEL = "fft-long"
LONGEST = {"complex64": 20736, "complex128": 10368}
ELEMENTS = {"complex64": 2**26, "complex128": 2**25}
SHORTEST, LARGEST_PRIME = 8193, 13
FURTHER = {"complex64": 2, "complex128": 4}  # pairs of radix and points beside those that are stated
SMOOTH_PRIME = 7  # for which there are further pairs
TOGETHER = 12  # lengths whose configurations are compiled at a time
REPEATS = 7
KEPT = NEAR = 1.15  # times of the best: what is stored, and what another GPU times
SAMPLE = 3  # rows that are held to NumPy's answer
WORTH = 1.01  # a row for one GPU: what another is slower there
COLUMNS = ("N", "dtype", "gpu", "form", "r", "P", "split", "load", "blocks")

Size = tuple[int, str]
"""N and dtype."""


@dataclass(frozen=True)
class Timed:
    """A configuration and its cost: milliseconds, or a ratio to the best."""

    cost: float
    configuration: Configuration


def main() -> None:
    """Record times on this GPU, or choose from the recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    record_part = parts.add_parser("record", help="time on this GPU")
    record_part.add_argument("--out", type=Path, required=True)
    record_part.add_argument("--lengths", nargs="*", type=int, help="these instead of all")
    record_part.add_argument("--near", type=Path, help="only what is near the best there")
    record_part.add_argument("--seconds", type=float, default=3600, help="no lengths are begun after these")
    choose_part = parts.add_parser("choose", help="write the answers of the kernel file")
    choose_part.add_argument("records", nargs="+", type=Path)
    choose_part.add_argument("--answers", type=Path, required=True)
    options = parser.parse_args()
    if options.part == "record":
        record(options.out, options.lengths, options.near, options.seconds)
    else:
        choose({gpu_of(path): read_record(path) for path in options.records}, options.answers)


def record(out: Path, lengths: Sequence[int] | None, near: Path | None, seconds: float) -> None:
    """Time, print a line for each length, write the JSON after each group of lengths."""
    bench = opened()
    kernel, begin = bench.catalog.kernel(KERNEL), time.monotonic()
    document: dict[str, Any] = {"provenance": provenance(), "rows": []}
    there = None if near is None else read_record(near)
    todo = [
        (n, dtype)
        for dtype, longest in LONGEST.items()
        for n in lengths or range(SHORTEST, longest + 1)
        if n <= longest and largest_prime(n) <= LARGEST_PRIME and (there is None or (n, dtype) in there)
    ]
    todo.sort(key=lambda size: largest_prime(size[0]) > SMOOTH_PRIME)
    for group in (todo[k : k + TOGETHER] for k in range(0, len(todo), TOGETHER)):
        if time.monotonic() - begin > seconds:
            print(f"left out: {len(todo) - len(document['rows'])} lengths", flush=True)
            break
        plans: list[list[Plan]] = []
        for size in group:
            workload = workload_of(kernel, size)
            known = {} if there is None else configurations(kernel, workload, there[size])
            chosen = list(known) if known else shortlist(kernel, workload)
            plans.append([kernel.plan(workload, one) for one in chosen])
        compiled = iter(bench.compiler.compile([s for some in plans for plan in some for s in plan.stages]))
        for size, some in zip(group, plans, strict=True):
            made = [[next(compiled) for _ in plan.stages] for plan in some]
            fit = [plan for plan, stages in zip(some, made, strict=True) if all(map(without_spills, stages))]
            found = sorted(timed(bench, size, fit), key=lambda one: one.cost)
            times = {str(one): round(ms, 5) for one, ms in near_best(found).items()}
            document["rows"].append({"N": size[0], "dtype": size[1], "ms": times})
            print(*size, f"{len(found)} of {len(some)}:", *list(times.items())[:3], flush=True)
        out.write_text(json.dumps(document, indent=0) + "\n")


def workload_of(kernel: KernelFile, size: Size) -> Workload:
    """Rows of a length, about 2^29 bytes of them."""
    n, dtype = size
    return kernel.workload({"N": n, "dtype": dtype}, ELEMENTS[dtype] // n)


def without_spills(stage: Any) -> bool:
    """Whether a stage compiled, and keeps its numbers in registers."""
    return isinstance(stage, CompiledStage) and not stage.resources.local_bytes


def largest_prime(n: int) -> int:
    """Largest prime factor of n."""
    largest, factor = 1, 2
    while n > 1:
        if n % factor == 0:
            largest, n = factor, n // factor
        else:
            factor += 1
    return largest


def timed(bench: Bench, size: Size, plans: Sequence[Plan]) -> Iterator[Timed]:
    """Those that answer right, in milliseconds."""
    cp, (n, dtype) = bench.cp, size
    batch = ELEMENTS[dtype] // n
    x = cp.random.standard_normal((batch, 2 * n), dtype="float32")
    x = x.astype("float32" if dtype == "complex64" else "float64", copy=False).view(dtype)
    y = cp.empty_like(x)
    rows = slice(0, batch, batch // SAMPLE)
    for plan in plans:
        try:
            ms = median_ms(bench, plan, x, y)
        except (TunerError, cp.cuda.driver.CUDADriverError) as trouble:
            print(f"{plan.label()}: {trouble}", flush=True)
            continue
        sizes = {"N": n, "dtype": dtype, "direction": "forward"}
        right = problem_for(plan.problem).compare({"x": x[rows].get()}, {"y": y[rows].get()}, sizes)
        if right.ok:
            yield Timed(ms, plan.configuration)
        else:
            print(f"{plan.label()}: {right}", flush=True)


def median_ms(bench: Bench, plan: Plan, x: Any, y: Any) -> float:
    """Of some runs with a cold L2, in milliseconds; the answer is in ``y``."""
    cp = bench.cp
    given = {"x": x, "y": y}
    arrays = {b.name: given[b.name] if b.name in given else cp.empty(b.shape, b.dtype) for b in plan.buffers}
    y.view(cp.uint8).fill(0xFF)
    launches = bench.code.launches(plan, arrays)
    stream = cp.cuda.get_current_stream()

    def run() -> None:
        for launch in launches:
            launch.enqueue(stream)

    run()
    cp.cuda.runtime.deviceSynchronize()
    return float(median([bench.timer.once(run) for _ in range(REPEATS)]))


def shortlist(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """What is stated, two passes, and plain loads by the threads of the stated and of the best shapes."""
    derived = {name: formula.expression for name, formula in kernel.recipe.derived.items()}
    sizes, stated = dict(workload.sizes), kernel.stated_answers(workload, gpu=None)
    whole = [one for one in kernel.space(workload) if one["form"] == "whole" and one["load"] == "plain"]
    shapes: dict[tuple[object, object], float] = {}
    for one in whole:
        env: dict[str, Any] = {**sizes, "batch": workload.batch, **dict(one)}
        value = _value_of(derived, env)
        waste = value("held") * value("G") / value("N") - 1
        shapes[one["r"], one["P"]] = 1 + value("behind") + 3 * waste + (0.5 if one["P"] < 16 else 0)
    further = FURTHER[str(sizes["dtype"])] if largest_prime(int(sizes["N"])) <= SMOOTH_PRIME else 0
    best = sorted(shapes, key=lambda shape: shapes[shape])[:further]
    best += [(one["r"], one["P"]) for one in stated if one["form"] == "whole"]
    plain = [one for one in whole if (one["r"], one["P"]) in best]
    return list(dict.fromkeys([*stated, kernel.default(workload), *plain]))


def _value_of(derived: dict[str, Expression], env: dict[str, Any]) -> Callable[[str], Any]:
    def value(name: str) -> Any:
        if name not in env:
            for needed in derived[name].names:
                value(needed)
            env[name] = derived[name].evaluate(env)
        return env[name]

    return value


def read_record(path: Path) -> dict[Size, dict[str, float]]:
    """Milliseconds of configurations, by length and type."""
    rows = json.loads(path.read_text())["rows"]
    return {(row["N"], row["dtype"]): row["ms"] for row in rows}


def gpu_of(path: Path) -> str:
    """The word of a product name that tells the GPU, as H100."""
    name = json.loads(path.read_text())["provenance"]["gpus"][0]["name"]
    return next(word for word in name.split() if any(letter.isdigit() for letter in word))


def configurations(
    kernel: KernelFile, workload: Workload, times: Mapping[str, float]
) -> dict[Configuration, float]:
    """The recorded times by configuration."""
    named = (*kernel.stated_answers(workload, gpu=None), kernel.default(workload), *kernel.space(workload))
    by_name = {str(one): one for one in named}
    return {by_name[name]: ms for name, ms in times.items()}


def near_best(found: Sequence[Timed]) -> dict[Configuration, float]:
    """Two passes, and of each kind of whole rows those that are near its best."""
    near = {one.configuration: one.cost for one in found if one.configuration["form"] == "passes"}
    for few in kinds(found):
        best = min((one.cost for one in few), default=0.0)
        near |= {one.configuration: one.cost for one in few if one.cost <= NEAR * best}
    return dict(sorted(near.items(), key=lambda one: one[1]))


def kinds(found: Sequence[Timed]) -> list[list[Timed]]:
    """Whole rows: all, those without bulk copies, and of these those with half of the shared memory."""
    whole = [one for one in found if one.configuration["form"] == "whole"]
    plain = [one for one in whole if one.configuration["load"] != "bulk"]
    halves = [one for one in plain if one.configuration["split"]]
    return [whole, plain, halves]


def choose(records: Mapping[str, Mapping[Size, Mapping[str, float]]], path: Path) -> None:
    """Write the rows of every length that all GPUs timed, and keep the others."""
    kernel = Catalog.load().kernel(KERNEL)
    with path.open(newline="") as file:
        old = [{"gpu": "", **row} for row in csv.DictReader(file)]
    rows = {size: list(few) for size, few in itertools.groupby(old, lambda r: (int(r["N"]), r["dtype"]))}
    for size in set.intersection(*(set(record) for record in records.values())):
        workload = workload_of(kernel, size)
        times = {gpu: whole(configurations(kernel, workload, one[size])) for gpu, one in records.items()}
        shared = for_any_gpu(list(times.values()))
        rows[size] = [
            *(cells(size, gpu, best) for gpu, found in times.items() if (best := better(found, shared))),
            *(cells(size, "", one) for one in shared),
            *(row for row in rows.get(size, []) if shared and not row["gpu"] and is_needed(row, shared)),
        ]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for size in sorted(rows, key=lambda size: (size[1] != "complex64", size)):
            writer.writerows(rows[size])


def whole(times: Mapping[Configuration, float]) -> dict[Configuration, float]:
    """Whole rows that are faster than two passes."""
    passes = min((ms for one, ms in times.items() if one["form"] == "passes"), default=float("inf"))
    return {one: ms for one, ms in times.items() if one["form"] == "whole" and ms < passes}


def for_any_gpu(times: Sequence[Mapping[Configuration, float]]) -> list[Configuration]:
    """Of each kind the configuration whose largest time, by the best of each GPU, is least."""
    found = [
        Timed(max(some[one] / min(some.values()) for some in times), one)
        for one in times[0]
        if all(one in some for some in times)
    ]
    best = [min(few, key=lambda one: one.cost) for few in kinds(found) if few]
    return list(dict.fromkeys(one.configuration for one in best))


def better(times: Mapping[Configuration, float], shared: Sequence[Configuration]) -> Configuration | None:
    """The best configuration of a GPU, if it is worth a row beside what is shared."""
    best = min(times, key=lambda one: times[one], default=None)
    if best is None or (shared and times[shared[0]] <= WORTH * times[best]):
        return None
    return best


def is_needed(row: Mapping[str, str], shared: Sequence[Configuration]) -> bool:
    """Whether a GPU that can launch a row of the file may be unable to launch what is shared."""
    return not any(
        (one["load"] != "bulk" or row["load"] == "bulk") and (one["split"] or row["split"] == "false")
        for one in shared
    )


def cells(size: Size, gpu: str, configuration: Configuration) -> dict[str, str]:
    """A line of the file."""
    values = {"N": size[0], "dtype": size[1], **dict(configuration)}
    return {name: gpu if name == "gpu" else str(values[name]).lower() for name in COLUMNS}


if __name__ == "__main__":
    main()
