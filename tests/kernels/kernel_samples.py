"""The catalogue's kernels, and which of their configurations the tests build and run.

Kernels of one family with the same tunables share most of their code. The kernel is one more thing that
varies there: pairs of values are tried in one of them, and every value in each.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pairwise import pairwise

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.sizes import combinations, listed
from tuner.model.plan import Configuration, Plan, TunableValue

Row = dict[str, TunableValue]
"""A configuration: its ``kernel``, sizes and tunables."""

CATALOGUE = Path(__file__).parents[2] / "kernels"
KERNELS = {  # applications and dense linear algebra have tests of their own
    path.parent.name: kernel
    for path in sorted(CATALOGUE.glob("*/kernel.toml"))
    if (kernel := load_kernel_file(path)).family not in ("application", "linalg")
}
UNSEEN_BY_HOST = ("blocks", "cap")  # bounds of registers and of residency: the same code, word for word
LEAST, ODD = 256, 251  # sizes of samples: several warps share a problem; a power of two, and a prime
SEVERAL = 23  # of what else a size counts, as offsets of segments or columns of a plane
ROWS = 24  # of a plane: several of them are transformed together
LONG = 2**14  # beyond, values are sampled and not pairs
MOST_POINTS = 2**17  # of all problems of a launch, unless one has more


def kin(kernel: KernelFile) -> list[KernelFile]:
    """The kernels of the same family, sizes and tunables, itself among them."""
    return [
        other
        for other in KERNELS.values()
        if (other.family, set(other.sizes), set(other.tunables))
        == (kernel.family, set(kernel.sizes), set(kernel.tunables))
    ]


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
        seen = {item for row in rows_at(added[:1]) for item in row.items()}
        if not chosen or wanted & seen:
            chosen += added
        wanted -= seen
        if not wanted:
            break
    return chosen


def all_sizes() -> list[Row]:
    """Every workload that the files list, and of ranges some odd ones."""
    found: list[Row] = []
    for kernel in KERNELS.values():
        values = kernel.sizes["N"]
        odd = [ODD, 1000, values[-1] - 1] if isinstance(values, range) else []
        found += workloads(kernel, [*listed(values), *odd])
    return found


def workloads(kernel: KernelFile, lengths: Iterable[int | str]) -> Iterator[Row]:
    """Combinations of the sizes, N from ``lengths``: those listed; of other ranges one value."""
    ranges = [name for name, values in kernel.sizes.items() if isinstance(values, range)]
    others = {name: (ROWS if name == "M" else SEVERAL,) for name in ranges}
    for sizes in combinations({**kernel.sizes, **others, "N": tuple(lengths)}):
        yield {"kernel": kernel.name, **sizes}


def rows_at(workloads: Iterable[Row]) -> list[Row]:
    """Every configuration of the workloads."""
    return [row for sizes in workloads for row in _rows_of(tuple(sizes.items()))]


@functools.lru_cache(maxsize=64)  # of the few sizes at which a family is sampled
def _rows_of(workload: tuple[tuple[str, TunableValue], ...]) -> list[Row]:
    sizes = dict(workload)
    kernel = KERNELS[str(sizes["kernel"])]
    space = kernel.space(kernel.workload(_sizes(kernel, sizes)))
    return [{**sizes, **dict(configuration)} for configuration in space]


def defaults_at(workloads: Iterable[Row]) -> list[Row]:
    """The default configuration of each workload."""
    return [
        {**sizes, **kernel.default(kernel.workload(_sizes(kernel, sizes)))}
        for sizes in workloads
        for kernel in [KERNELS[str(sizes["kernel"])]]
    ]


def sampled(rows: Sequence[Row], counts: Callable[[str], bool], together: int = 2) -> list[Row]:
    """Some of ``rows`` that hold each pair of values, or each value where ``together`` is 1.

    Args:
        rows: all that may be drawn.
        counts: whether the values of a name do; names that are not asked for are left to chance.
        together: see ``pairwise``.
    """
    whole: dict[tuple[tuple[str, TunableValue], ...], Row] = {}
    for row in rows:
        whole.setdefault(tuple(item for item in row.items() if counts(item[0])), row)
    sample = pairwise([dict(items) for items in whole], together=together)
    return [whole[tuple(row.items())] for row in sample]


def values_of(rows: Sequence[Row], pairs: Sequence[Row], left_out: Sequence[str]) -> list[Row]:
    """Some of ``rows`` that hold each value, from ``pairs`` as far as those go, as they are compiled anyway.

    Args:
        rows: all that may be drawn.
        pairs: what is drawn of them for pairs of values.
        left_out: names whose values do not count.
    """

    def seen_in(row: Row) -> set[tuple[str, TunableValue]]:
        return {item for item in row.items() if item[0] not in left_out}

    chosen = sampled(pairs, lambda name: name not in left_out, together=1)
    seen = set().union(*map(seen_in, chosen))
    others = [row for row in rows if seen_in(row) - seen]
    return chosen + sampled(others, lambda name: name not in left_out, together=1)


def pairs_of(rows: Sequence[Row], left_out: Sequence[str]) -> list[Row]:
    """Some of ``rows`` that hold each pair of values; where N is above ``LONG``, of ways to do a thing alone.

    Args:
        rows: all that may be drawn.
        left_out: names whose values do not count.
    """
    pairs = sampled([row for row in rows if int(row["N"]) <= LONG], lambda name: name not in left_out)
    return pairs + pairs_of_ways([row for row in rows if int(row["N"]) > LONG])


def pairs_of_ways(rows: Sequence[Row]) -> list[Row]:
    """Some of ``rows`` that hold each pair of ways to do a thing."""
    ways = ways_of(rows) if rows else set()
    return sampled(rows, lambda name: name in ways)


def ways_of(rows: Sequence[Row]) -> set[str]:
    """Names of sizes and of what is a text or a switch: how a thing is done, not how much of it."""
    tunables = KERNELS[str(rows[0]["kernel"])].tunables
    numbers = {name for name, values in tunables.items() if not isinstance(values[0], str | bool)}
    return set().union(*rows) - numbers


def pairs_on_host(name: str) -> list[Row]:
    """Rows of a kernel at small sizes that hold each value, and with its kin's each pair, the host sees."""
    return [row for row in _pairs_of_kin(tuple(k.name for k in kin(KERNELS[name]))) if row["kernel"] == name]


def defaults_on_host(name: str) -> list[Row]:
    """The default of a kernel at each of its small sizes."""
    return defaults_at(small_sizes(KERNELS[name]))


@functools.cache
def values_on_host(name: str) -> list[Row]:
    """Rows of a kernel at small sizes: its defaults, and some that hold each value the host sees."""
    small = small_sizes(KERNELS[name])
    chosen = [*defaults_at(small), *values_of(rows_at(small), pairs_on_host(name), UNSEEN_BY_HOST)]
    return [row for i, row in enumerate(chosen) if row not in chosen[:i]]


def ways_on_host(name: str) -> list[Row]:
    """Rows of a kernel at small sizes that hold each way to do a thing."""
    small = small_sizes(KERNELS[name])
    rows = [*defaults_at(small), *rows_at(small)]
    ways = ways_of(rows)
    return sampled(rows, lambda name: name in ways, together=1)


def plan_of(row: Row, batch: int | None = None) -> Plan:
    """The plan of a row; the file's batch if none is given."""
    kernel = KERNELS[str(row["kernel"])]
    configuration = Configuration([(name, row[name]) for name in kernel.tunables if name in row])
    return kernel.plan(kernel.workload(_sizes(kernel, row), batch), configuration)


def small_plan(row: Row) -> Plan:
    """The plan of a row with so few problems that a launch has three blocks, the last not full, or fewer."""
    first = plan_of(row, 1).stages[0]
    per_block = next(b for b in itertools.count(1) if plan_of(row, b + 1).stages[0].grid != first.grid)
    return plan_of(row, max(1, min(2 * per_block + 1, MOST_POINTS // int(row["N"]))))


def shown(row: Row) -> str:
    """A row's values, for the name of a test."""
    return ",".join(map(str, row.values()))


def element_count(plan: Plan) -> int:
    """Elements of the plan's arrays."""
    return sum(math.prod(buffer.shape) for buffer in plan.buffers)


@functools.cache
def _pairs_of_kin(names: tuple[str, ...]) -> list[Row]:
    rows = []
    for kernel in (KERNELS[name] for name in names):
        small = small_sizes(kernel)
        rows += [*defaults_at(small), *rows_at(small)]
    return pairs_of(rows, UNSEEN_BY_HOST)


def _sizes(kernel: KernelFile, row: Row) -> dict[str, int | str]:
    values = {name: row[name] for name in kernel.sizes}
    return {name: value if isinstance(value, str) else int(value) for name, value in values.items()}
