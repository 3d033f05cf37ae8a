"""What measured_rows.py times of each kernel: lengths, and few configurations of every length."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Workload

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
