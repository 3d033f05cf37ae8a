"""Plans of the catalogue's kernels by name, at sizes and with values that tests ask for."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan, TunableValue

Sizes = Mapping[str, int | str]
Values = Mapping[str, TunableValue]

CATALOGUE = Path(__file__).parents[2] / "kernels"
LARGE = 2**22  # numbers, from which the files state wide tiles
DEFAULT: Values = {}
STATED: Values = {"stated": True}  # no tunable is called so


@functools.cache
def kernel_of(name: str) -> KernelFile:
    """A kernel of the catalogue."""
    return load_kernel_file(CATALOGUE / name / "kernel.toml")


def plan_of(name: str, sizes: Sizes, batch: int | None = None, values: Values = DEFAULT) -> Plan:
    """The plan of the default, of the first answer that is stated, or of the first with such values.

    Args:
        name: of the kernel.
        sizes: of the problem.
        batch: the file's if None.
        values: of tunables, ``DEFAULT`` or ``STATED``.
    """
    kernel = kernel_of(name)
    workload = kernel.workload(sizes, batch)
    if values is STATED:
        stated = kernel.stated(workload)
        assert stated is not None, f"{workload}: nothing is stated"
        return kernel.plan(workload, stated)
    if not values:
        return kernel.plan(workload, kernel.default(workload))
    fits = (c for c in kernel.space(workload) if values.items() <= dict(c).items())
    return kernel.plan(workload, next(fits))


def large_batch(sizes: Sizes) -> int:
    """Problems of ``LARGE`` numbers together."""
    return LARGE // math.prod(size for size in sizes.values() if isinstance(size, int)) + 1


def sizes_of(table: Mapping[str, Sequence[int | str]]) -> list[Sizes]:
    """Every combination of the sizes of a table."""
    return [dict(zip(table, values, strict=True)) for values in itertools.product(*table.values())]


def headers_of(*folders: str) -> dict[str, str]:
    """Headers in folders of the catalogue, by name."""
    return {path.name: path.read_text() for folder in folders for path in (CATALOGUE / folder).glob("*.cuh")}
