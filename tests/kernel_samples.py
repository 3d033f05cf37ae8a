"""The catalogue's kernels, and which of their configurations the tests build and run."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pairwise import pairwise

from tuner.config import KernelFile, load_kernel_file
from tuner.config.sizes import listed
from tuner.model import Configuration, Plan, TunableValue

Row = dict[str, TunableValue]
"""Sizes and tunables of one configuration of one workload."""

CATALOGUE = Path(__file__).parents[1] / "kernels"
KERNELS = {path.parent.name: load_kernel_file(path) for path in sorted(CATALOGUE.glob("*/kernel.toml"))}
UNSEEN_BY_HOST = ("blocks", "cap")  # bounds of registers and of residency: the same code, word for word
LEAST, ODD = 64, 61  # the size that samples are drawn at, and one that fills no power of two
MOST_POINTS = 2**17  # of all problems of a launch, unless one has more


def small_sizes(kernel: KernelFile) -> list[Row]:
    """Workloads to sample: small N, odd where any N is solved, at which together every form occurs.

    Some forms of long transforms begin at larger N: N grows until every text among the tunables' values has
    occurred.
    """
    values = kernel.sizes["N"]
    if isinstance(values, range):
        return list(workloads(kernel, [ODD, LEAST]))
    wanted = {(name, v) for name, vs in kernel.tunables.items() for v in vs if isinstance(v, str)}
    chosen: list[Row] = []
    for N in sorted(int(n) for n in values if int(n) >= LEAST):
        added = list(workloads(kernel, [N]))
        seen = {item for row in rows_at(kernel, added[:1]) for item in row.items()}
        if not chosen or wanted & seen:
            chosen += added
        wanted -= seen
        if not wanted:
            break
    return chosen


def all_sizes(kernel: KernelFile) -> list[Row]:
    """Every workload that the file lists, and of a range some odd ones."""
    values = kernel.sizes["N"]
    odd = [ODD, 1000, values[-1] - 1] if isinstance(values, range) else []
    return list(workloads(kernel, [*listed(values), *odd]))


def workloads(kernel: KernelFile, lengths: Iterable[int | str]) -> Iterator[Row]:
    """Every combination of the sizes, N from ``lengths``."""
    sizes = {name: listed(values) for name, values in kernel.sizes.items()} | {"N": tuple(lengths)}
    return (dict(zip(sizes, values, strict=True)) for values in itertools.product(*sizes.values()))


def rows_at(kernel: KernelFile, workloads: Sequence[Row]) -> list[Row]:
    """Every configuration of the workloads."""
    return [{**sizes, **c} for sizes in workloads for c in kernel.space(kernel.workload(_texts(sizes)))]


def defaults_at(kernel: KernelFile, workloads: Sequence[Row]) -> list[Row]:
    """The default configuration of each workload."""
    return [{**sizes, **kernel.default(kernel.workload(_texts(sizes)))} for sizes in workloads]


def pairs_on_host(kernel: KernelFile) -> list[Row]:
    """Rows at small sizes that hold each pair of the values that the host sees."""
    return _sampled(kernel, [n for n in kernel.tunables if n not in UNSEEN_BY_HOST], together=2)


def ways_on_host(kernel: KernelFile) -> list[Row]:
    """Rows at small sizes that hold each way to do a thing: each text and each switch among the tunables."""
    ways = [n for n, values in kernel.tunables.items() if isinstance(values[0], str | bool)]
    return _sampled(kernel, ways, together=1)


def _sampled(kernel: KernelFile, names: Sequence[str], together: int) -> list[Row]:
    small = small_sizes(kernel)
    whole: dict[tuple[tuple[str, TunableValue], ...], Row] = {}
    for row in [*defaults_at(kernel, small), *rows_at(kernel, small)]:
        whole.setdefault(tuple((name, row[name]) for name in (*kernel.sizes, *names)), row)
    sample = pairwise([dict(items) for items in whole], together=together)
    return [whole[tuple(row.items())] for row in sample]


def plan_of(kernel: KernelFile, row: Row, batch: int | None = None) -> Plan:
    """The plan of a row.

    Args:
        kernel: the row's kernel.
        row: its sizes and tunables; others are left out.
        batch: problems; the file's if not given.
    """
    workload = kernel.workload(_texts({name: row[name] for name in kernel.sizes}), batch)
    return kernel.plan(workload, Configuration([(name, row[name]) for name in kernel.tunables]))


def small_plan(kernel: KernelFile, row: Row) -> Plan:
    """The plan of a row with so few problems that a launch has three blocks, the last not full, or fewer."""
    first = plan_of(kernel, row, 1).stages[0]
    per_block = next(
        b for b in itertools.count(1) if plan_of(kernel, row, b + 1).stages[0].grid != first.grid
    )
    return plan_of(kernel, row, max(1, min(2 * per_block + 1, MOST_POINTS // int(row["N"]))))


def element_count(plan: Plan) -> int:
    """Elements of the plan's arrays."""
    return sum(math.prod(buffer.shape) for buffer in plan.buffers)


def _texts(sizes: Row) -> dict[str, int | str]:
    return {name: value if isinstance(value, str) else int(value) for name, value in sizes.items()}
