"""Times configurations of transforms at many lengths, and chooses the measured answers of their kernel files.

At every length few configurations are timed with a cold L2 (``KERNELS`` tells which), of short
rows only where the default leaves 3 % of a copy's speed. Wrong answers are left out, and what spills
registers unless it answers without a file. Other GPUs time the default and what is near the best, and the
shortlist of a length where nothing else was timed:

    python benchmarks/kernels/measured_rows.py record fft-any --out fft-any-h200.json [--lengths 100 1000]
    python benchmarks/kernels/measured_rows.py record fft-any --out fft-any-h100.json --near fft-any-h200.json
    python benchmarks/kernels/measured_rows.py choose fft-any RECORD.json ... \
        --answers kernels/fft-any/measured.csv

Results of fft_lengths.py and fft_planes.py are records, too.

A row of the file is the configuration whose time, by the best one's on the same GPU, is least where it is
most, if it is faster on each than what answers without the file: by 2 %, or by 10 % where not all GPUs timed
the length. Before it stand those of single GPUs, where they are 2 % faster there. Further rows are for GPUs
that cannot launch it; such rows that were there stay where the records have none. Where not all GPUs timed a
length, the rows that the file has stay: without a file all is chosen anew.
"""

import argparse
import csv
import json
import random
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth, median
from fft_lengths import Kind, Problem, contender
from provenance import provenance
from sweep import Bench, opened

from tuner.compiler.compiler import CompiledStage
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration, Plan, Workload

# --- lengths, and few configurations of each ------------------------------------------------------


BESIDE = 2  # shapes of whole rows beside those that are stated; of double precision twice as many
SMOOTH_PRIME = 7  # of lengths that have them
DRAWN = 11  # configurations of short rows beside the default
MOST_WASTED, MOST_IDLE = 0.7, 0.07  # part of the points, and of the threads, of those


def largest_prime(n: int) -> int:
    """Largest prime factor of n."""
    largest, factor = 1, 2
    while n > 1:
        if n % factor == 0:
            largest, n = factor, n // factor
        else:
            factor += 1
    return largest


def whole_rows(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """What is stated, two passes, and plain loads by the threads of the stated and of the best shapes.

    The best shapes of a length of 2, 3, 5 and 7 have few stages, whose threads share the points evenly.
    """
    sizes, stated = dict(workload.sizes), kernel.stated_answers(workload, gpu=None)
    whole = [one for one in kernel.space(workload) if one["form"] == "whole" and one["load"] == "plain"]
    shapes: dict[tuple[object, object], float] = {}
    for one in whole:
        value = derived_values(kernel, workload, one)
        waste = value("held") * value("G") / value("N") - 1
        shapes[one["r"], one["P"]] = 1 + value("behind") + 3 * waste + (0.5 if one["P"] < 16 else 0)
    smooth = largest_prime(int(sizes["N"])) <= SMOOTH_PRIME
    beside = BESIDE * (1 if sizes["dtype"] == "complex64" else 2) if smooth else 0
    best = sorted(shapes, key=lambda shape: shapes[shape])[:beside]
    best += [(one["r"], one["P"]) for one in stated if one["form"] == "whole"]
    plain = [one for one in whole if (one["r"], one["P"]) in best]
    return list(dict.fromkeys([*stated, kernel.default(workload), *plain]))


def short_rows(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """What is stated, the default, and some drawn from those whose threads share the points evenly."""
    space = []
    for one in kernel.space(workload):
        value = derived_values(kernel, workload, one)
        idle = 1 - value("problems") * value("G") / value("L")
        waste = value("held") * value("G") / value("M") - 1
        if idle <= MOST_IDLE and waste <= MOST_WASTED and one["blocks"] == 0:
            space.append(one)
    drawn = random.Random(int(dict(workload.sizes)["N"])).sample(space, min(DRAWN, len(space)))  # noqa: S311
    stated = kernel.stated_answers(workload, gpu=None)
    return list(dict.fromkeys([kernel.default(workload), *stated, *drawn]))


def derived_values(
    kernel: KernelFile, workload: Workload, configuration: Configuration
) -> Callable[[str], Any]:
    """Evaluates derived names of a kernel file for one configuration."""
    derived = {name: formula.expression for name, formula in kernel.recipe.derived.items()}
    known: dict[str, Any] = {**dict(workload.sizes), "batch": workload.batch, **dict(configuration)}

    def value(name: str) -> Any:
        if name not in known:
            for needed in derived[name].names:
                value(needed)
            known[name] = derived[name].evaluate(known)
        return known[name]

    return value


def is_of_last_table(kernel: KernelFile, workload: Workload, configuration: Configuration) -> bool:
    """Whether a configuration is the last that the kernel file states, which no measurement chose."""
    return configuration == kernel.stated_answers(workload, gpu="")[-1]


def is_passes(_kernel: KernelFile, _workload: Workload, configuration: Configuration) -> bool:
    """Whether rows are transformed in passes."""
    return configuration["form"] == "passes"


def of_less(found: Sequence[Configuration]) -> list[Configuration]:
    """The first of all, of those without bulk copies, and of these with half of the shared memory."""
    plain = [one for one in found if dict(one).get("load") != "bulk"]
    halves = [one for one in plain if dict(one).get("split")]
    return list(dict.fromkeys(few[0] for few in (found, plain, halves) if few))


@dataclass(frozen=True)
class Transforms:
    """Transforms of one kernel at many sizes.

    Attributes:
        kernel: name of the kernel.
        names: the sizes that tell answers apart, in the order of the columns of the file.
        columns: the tunables that the file has.
        is_fallback: whether a configuration is one that answers without a file.
        directions: those that are timed; the answers of a single one are taken for both.
        further: sizes that tell no answers apart.
        first: shortest length that is timed.
        last: longest one of each type.
        largest_prime: of a length that is timed.
        shortlist: configurations that are timed, those that answer without a file among them.
    """

    kernel: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    is_fallback: Callable[[KernelFile, Workload, Configuration], bool]
    directions: tuple[str, ...] = ("forward",)
    further: Mapping[str, int] = field(default_factory=dict)
    first: int = 1
    last: Mapping[str, int] = field(default_factory=dict)
    largest_prime: int = 7
    shortlist: Callable[[KernelFile, Workload], list[Configuration]] = short_rows

    def sizes(self) -> list[dict[str, int | str]]:
        """Length, type and direction of all that are timed; lengths of 2, 3, 5 and 7 first."""
        found: list[dict[str, int | str]] = [
            {"N": n, "dtype": dtype, "direction": direction}
            for dtype, last in self.last.items()
            for direction in self.directions
            for n in range(self.first, last + 1)
            if largest_prime(n) <= self.largest_prime
        ]
        return sorted(found, key=lambda size: largest_prime(int(size["N"])) > SMOOTH_PRIME)


SHORT = ("r", "P", "L", "split", "tile", "blocks")
ROWS = ("N", "dtype")
KERNELS = {
    "fft-long": Transforms(
        "fft-long",
        ROWS,
        ("form", "r", "P", "split", "load", "blocks"),
        is_passes,
        first=8193,
        last={"complex64": 20736, "complex128": 10368},
        largest_prime=13,
        shortlist=whole_rows,
    ),
    "fft-any": Transforms(
        "fft-any",
        ROWS,
        SHORT,
        is_of_last_table,
        first=2,
        last={"complex64": 8192, "complex128": 8192},
    ),
    "fft-real": Transforms(
        "fft-real",
        (*ROWS, "direction"),
        SHORT,
        is_of_last_table,
        directions=("forward", "inverse"),
        first=3,
        last={"float32": 8192, "float64": 8192},
    ),
    "fft-columns": Transforms(  # chosen from the results of fft_planes.py, as the next one is
        "fft-columns",
        ROWS,
        ("A", "r", "P", "C", "split", "blocks"),
        is_of_last_table,
        further={"W": 4096},
    ),
    "fft-2d": Transforms(
        "fft-2d",
        ("M", *ROWS),
        ("A", "r1", "P1", "L1", "split1", "r2", "P2", "C", "split2", "bounded"),
        is_of_last_table,
    ),
}

TOGETHER = 12  # lengths whose configurations are compiled at a time
REPEATS = 7
NEAR = 1.15  # times of the best: what is stored, and what another GPU times
WORTH = 1.02  # a row: what would be taken without it is slower by this
WORTH_ELSEWHERE = 1.1  # a row for all GPUs of what not all timed: of 129 of an H100, 2 lost on an H200
FAST = 0.97  # part of a copy's speed at which nothing but the fallback is timed


Size = tuple[int | str, ...]
"""Values of the sizes that tell answers apart."""

Times = Mapping[Configuration, float]
"""Milliseconds of configurations."""

Record = Mapping[Size, Mapping[str, float]]
"""Milliseconds of configurations, by their text, of every size."""


def main() -> None:
    """Record times on this GPU, or choose from the recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    record_part = parts.add_parser("record", help="time on this GPU")
    record_part.add_argument("kernel", choices=[name for name, kind in KERNELS.items() if kind.last])
    record_part.add_argument("--out", type=Path, required=True)
    record_part.add_argument("--lengths", nargs="*", type=int, default=[], help="only these")
    record_part.add_argument("--types", nargs="*", default=[], help="only these")
    record_part.add_argument(
        "--after", nargs="*", type=Path, default=[], help="records whose sizes are left out"
    )
    record_part.add_argument("--near", type=Path, help="only what is near the best there")
    record_part.add_argument("--seconds", type=float, default=3600, help="no lengths are begun after these")
    choose_part = parts.add_parser("choose", help="write the answers of the kernel file")
    choose_part.add_argument("kernel", choices=KERNELS)
    choose_part.add_argument("records", nargs="+", type=Path)
    choose_part.add_argument("--lengths", nargs="*", type=int, default=[], help="only these")
    choose_part.add_argument("--answers", type=Path, required=True)
    options = parser.parse_args()
    kind = KERNELS[options.kernel]
    if options.part == "choose":
        choose(kind, records_by_gpu(kind, options.records, options.lengths), options.answers)
        return
    there = None if options.near is None else read_record(kind, options.near)
    sizes = {
        key_of(kind, size): size
        for size in kind.sizes()
        if size["N"] in (options.lengths or [size["N"]])
        and size["dtype"] in (options.types or [size["dtype"]])
    }
    if there is not None:
        sizes = {key: size for key, size in sizes.items() if key in there}
    done = {key for path in options.after for key in read_record(kind, path)}
    sizes = {key: size for key, size in sizes.items() if key not in done}
    if not sizes:
        parser.error("no sizes are left by --lengths, --types, --near and --after")
    record(kind, sizes, there, options.out, options.seconds)


def key_of(kind: Transforms, row: Mapping[str, Any]) -> Size:
    """What tells the answers of a size apart; planes and columns are of complex64."""
    known = {"dtype": "complex64", "direction": kind.directions[0], **row}
    return tuple(int(known[name]) if name in ("M", "N") else known[name] for name in kind.names)


def record(
    kind: Transforms,
    sizes: Mapping[Size, Mapping[str, Any]],
    there: Record | None,
    out: Path,
    seconds: float,
) -> None:
    """Time, print a line for each size, write the JSON after each group of sizes."""
    bench, begin = opened(), time.monotonic()
    kernel = bench.catalog.kernel(kind.kernel)
    copy_gb_s = copy_bandwidth(bench.cp, bench.timer)
    document: dict[str, Any] = {"provenance": {**provenance(), "copy_gb_s": copy_gb_s}, "rows": []}
    keys = list(sizes)
    for group in (keys[k : k + TOGETHER] for k in range(0, len(keys), TOGETHER)):
        if time.monotonic() - begin > seconds:
            print(f"left out: {len(keys) - len(document['rows'])} sizes", flush=True)
            break
        problems = {key: problem_of(bench, kind, sizes[key]) for key in group}
        workloads = {key: problem.workload for key, problem in problems.items()}
        if there is None:
            chosen = {key: kind.shortlist(kernel, workload) for key, workload in workloads.items()}
        else:
            chosen = {key: near_there(kind, kernel, w, there[key]) for key, w in workloads.items()}
        fallbacks = {
            key: [one for one in few if kind.is_fallback(kernel, workloads[key], one)]
            for key, few in chosen.items()
        }
        times = timed_together(problems, fallbacks, spilling=True)
        others = {
            key: [one for one in few if one not in fallbacks[key]]
            for key, few in chosen.items()
            if not is_fast(problems[key], times[key], copy_gb_s)
        }
        for key, found in timed_together(problems, others, spilling=False).items():
            times[key] |= found
        for key, found in times.items():
            kept = near_best(found, fallbacks[key])
            texts = {str(one): round(ms, 5) for one, ms in kept.items()}
            document["rows"].append({"kernel": kind.kernel, **sizes[key], "ms": texts})
            print(*key, f"{len(found)} of {len(chosen[key])}:", *list(texts.items())[:3], flush=True)
        out.write_text(json.dumps(document, indent=0) + "\n")


def near_there(
    kind: Transforms, kernel: KernelFile, workload: Workload, times: Mapping[str, float]
) -> list[Configuration]:
    """The default and what was near the best on another GPU; the shortlist where nothing else was timed."""
    near = list(configurations(kernel, workload, times))
    if all(kind.is_fallback(kernel, workload, one) for one in near):
        return kind.shortlist(kernel, workload)
    return list(dict.fromkeys([kernel.default(workload), *near]))


def problem_of(bench: Bench, kind: Transforms, size: Mapping[str, Any]) -> Problem:
    """The arrays of a size, about 2^29 bytes of input."""
    table = Kind(kind.kernel, size["dtype"], size["direction"], (size["N"],), 0, "")
    return Problem(bench, table, size["N"])


def is_fast(problem: Problem, times: Times, copy_gb_s: float) -> bool:
    """Whether some configuration is about as fast as a copy of the bytes."""
    copy_ms = (problem.x.nbytes + problem.y.nbytes) / copy_gb_s / 1e6
    return copy_ms >= FAST * min(times.values(), default=float("inf"))


def timed_together(
    problems: Mapping[Size, Problem], chosen: Mapping[Size, Sequence[Configuration]], spilling: bool
) -> dict[Size, dict[Configuration, float]]:
    """Milliseconds of those that answer right, and spill no registers unless spilling; compiled at once."""
    plans = {
        s: [problems[s].kernel.plan(problems[s].workload, one) for one in few] for s, few in chosen.items()
    }
    if not any(plans.values()):
        return {size: {} for size in plans}
    compiler = next(iter(problems.values())).bench.compiler
    compiled = iter(
        compiler.compile([stage for few in plans.values() for plan in few for stage in plan.stages])
    )
    found: dict[Size, dict[Configuration, float]] = {}
    for size, few in plans.items():
        made = [[next(compiled) for _ in plan.stages] for plan in few]
        fit = [
            plan
            for plan, stages in zip(few, made, strict=True)
            if all(isinstance(stage, CompiledStage) for stage in stages)
            and (spilling or not any(stage.resources.local_bytes for stage in stages))
        ]
        found[size] = timed(problems[size], fit)
    return found


def timed(problem: Problem, plans: Sequence[Plan]) -> dict[Configuration, float]:
    """Medians in milliseconds of those that answer right."""
    cp, found = problem.bench.cp, {}
    for plan in plans:
        problem.y.view(cp.uint8).fill(0xFF)
        try:
            one = contender(problem, plan)
            one.run()
            cp.cuda.runtime.deviceSynchronize()
        except (TunerError, cp.cuda.driver.CUDADriverError) as trouble:
            print(f"{plan.label()}: {trouble}", flush=True)
            continue
        wrong = problem.check(problem.y, whole=False)
        if wrong:
            print(f"{plan.label()}: {wrong}", flush=True)
        else:
            times = [problem.bench.timer.once(one.run, one.prepare) for _ in range(REPEATS)]
            found[plan.configuration] = float(median(times))
    return found


def near_best(times: Times, fallbacks: Sequence[Configuration]) -> dict[Configuration, float]:
    """Fallbacks, and of others those that are near the best of those that are launched as widely."""
    near = {one: ms for one, ms in times.items() if one in fallbacks}
    others = {one: ms for one, ms in times.items() if one not in fallbacks}
    for first in of_less(sorted(others, key=lambda one: others[one])):
        near |= {one: ms for one, ms in others.items() if ms <= NEAR * others[first]}
    return dict(sorted(near.items(), key=lambda one: one[1]))


def records_by_gpu(kind: Transforms, paths: Iterable[Path], lengths: Sequence[int] = ()) -> dict[str, Record]:
    """The records of each GPU, by a word of its product name, as H100; of some lengths, or of all.

    Where several files have the same, the last counts.
    """
    found: dict[str, dict[Size, dict[str, float]]] = {}
    for path in paths:
        name = json.loads(path.read_text())["provenance"]["gpus"][0]["name"]
        word = next((word for word in re.split(r"\W+", name) if re.search(r"\d", word)), None)
        if word is None:
            raise SystemExit(f"{path}: the product name {name!r} has no word with a number, which rows need")
        for key, times in read_record(kind, path).items():
            if dict(zip(kind.names, key, strict=True))["N"] in lengths or not lengths:
                found.setdefault(word, {}).setdefault(key, {}).update(times)
    return found


def read_record(kind: Transforms, path: Path) -> dict[Size, dict[str, float]]:
    """Milliseconds of configurations of one kernel, by size; directions that are not timed are left out."""
    found = json.loads(path.read_text())["rows"]
    flat = [row for few in found.values() for row in few] if isinstance(found, dict) else found
    record: dict[Size, dict[str, float]] = {}
    for row in flat:
        if row.get("kernel", kind.kernel) != kind.kernel:
            continue
        if row.get("direction", kind.directions[0]) in kind.directions:
            times = row["ms"]
            if not isinstance(times, dict):  # of fft_lengths.py and fft_planes.py
                times = {one["configuration"]: one["ms"] for one in row["tried"]}
                times |= {row["default"]: row["default_ms"], row["configuration"]: row["ms"]}
            record.setdefault(key_of(kind, row), {}).update(times)
    return record


def configurations(
    kernel: KernelFile, workload: Workload, times: Mapping[str, float]
) -> dict[Configuration, float]:
    """The recorded times by configuration."""
    named = (*kernel.stated_answers(workload, gpu=None), kernel.default(workload), *kernel.space(workload))
    by_name = {str(one): one for one in named}
    return {by_name[name]: ms for name, ms in times.items() if name in by_name}


def choose(kind: Transforms, records: Mapping[str, Record], path: Path) -> None:
    """Write the rows of every size that all GPUs timed, or that had none, and keep the others."""
    kernel = Catalog.load().kernel(kind.kernel)
    written: dict[Size, list[dict[str, str]]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                written.setdefault(key_of(kind, row), []).append({"gpu": "", **row})
    kept: list[Size] = []
    for key in set().union(*records.values()):
        workload = kernel.workload({**dict(zip(kind.names, key, strict=True)), **kind.further})
        times = {
            gpu: configurations(kernel, workload, record[key])
            for gpu, record in records.items()
            if key in record
        }
        fallbacks = {one for few in times.values() for one in few if kind.is_fallback(kernel, workload, one)}
        if len(times) < len(records) and key in written:
            kept.append(key)
            continue
        worth = WORTH if len(times) == len(records) else WORTH_ELSEWHERE
        shared = of_less(by_largest_loss([faster(few, fallbacks, worth) for few in times.values()]))
        before = written.get(key, [])
        written[key] = [
            *(row for row in before if row["gpu"] and row["gpu"] not in records),
            *(
                cells(kind, key, gpu, best)
                for gpu, few in times.items()
                if (best := better(faster(few, fallbacks), shared))
            ),
            *(cells(kind, key, "", one) for one in shared),
            *(row for row in before if shared and not row["gpu"] and is_needed(row, shared)),
        ]
    if kept:
        print(f"as they were, since not all GPUs timed them: {', '.join(map(str, sorted(kept)))}")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*kind.names, "gpu", *kind.columns], lineterminator="\n")
        writer.writeheader()
        types = list(kernel.sizes["dtype"])
        place = kind.names.index("dtype")
        for key in sorted(written, key=lambda key: (types.index(key[place]), key)):
            writer.writerows(written[key])


def faster(
    times: Times, fallbacks: Collection[Configuration], worth: float = WORTH
) -> dict[Configuration, float]:
    """What is faster than the fallbacks; nothing where none of them was timed."""
    least = min((ms for one, ms in times.items() if one in fallbacks), default=0.0)
    return {one: ms for one, ms in times.items() if one not in fallbacks and worth * ms <= least}


def by_largest_loss(times: Sequence[Times]) -> list[Configuration]:
    """Those that all GPUs timed, in the order of their largest time by the best of each GPU."""
    common = [one for one in times[0] if all(one in some for some in times)]
    return sorted(common, key=lambda one: max(some[one] / min(some.values()) for some in times))


def better(times: Times, shared: Sequence[Configuration]) -> Configuration | None:
    """The best configuration of a GPU, if it is worth a row beside what is shared."""
    best = min(times, key=lambda one: times[one], default=None)
    if best is None or (shared and times[shared[0]] <= WORTH * times[best]):
        return None
    return best


def is_needed(row: Mapping[str, str], shared: Sequence[Configuration]) -> bool:
    """Whether a GPU that can launch a row of the file may be unable to launch what is shared."""
    return "load" in row and not any(
        (one["load"] != "bulk" or row["load"] == "bulk") and (one["split"] or row["split"] == "false")
        for one in shared
    )


def cells(kind: Transforms, key: Size, gpu: str, configuration: Configuration) -> dict[str, str]:
    """A line of the file; a tunable without a value leaves its cell empty."""
    values = {**dict(zip(kind.names, key, strict=True)), **dict(configuration)}
    words = {name: str(values.get(name, "")).lower() for name in (*kind.names, *kind.columns)}
    return {**words, "gpu": gpu}


if __name__ == "__main__":
    main()
