"""Answers of other sizes of a kernel: how near they are, and in which order they are lent."""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.database.answers import StoredAnswer
from tuner.database.ranking import NEAR_BATCH, AnswerQuery
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import Workload
from tuner.model.workload_name import WorkloadName

NEAR_SIZE = 4.0
"""Most by which sizes differ where the configuration of one goes before the default of the other."""


@dataclass(frozen=True)
class SizePoint:
    """A problem among the sizes of its kernel.

    Attributes:
        texts: sizes that are no number above zero.
        logarithms: of the others, to base 2.
        batch: that the kernel file has for these sizes.
    """

    texts: tuple[tuple[str, str], ...]
    logarithms: tuple[float, ...]
    batch: int

    def apart(self, other: "SizePoint") -> float:
        """Doublings between the sizes of two problems; infinite where their texts differ."""
        if self.texts != other.texts:
            return math.inf
        return math.fsum(abs(a - b) for a, b in zip(self.logarithms, other.logarithms, strict=True))


@dataclass(frozen=True, order=True)
class Distance:
    """How far apart two problems with their batches are; near ones are less than far ones.

    Attributes:
        far: sizes differ by more than ``NEAR_SIZE``, or batches by more than ``NEAR_BATCH``.
        sizes: doublings between the sizes.
        batches: doublings between the batches, as shares of the kernel file's batches.
    """

    far: bool
    sizes: float
    batches: float


def distance(one: SizePoint, batch: int, other: SizePoint, measured: int, asked: int) -> Distance:
    """From one problem to another, that was measured at a batch after it was asked for at another."""
    sizes = one.apart(other)
    gap = abs(math.log2(measured / other.batch) - math.log2(batch / one.batch))
    if asked * one.batch == batch * other.batch:
        gap = 0.0
    return Distance(sizes > math.log2(NEAR_SIZE) or gap > math.log2(NEAR_BATCH), sizes, gap)


def size_point(workload: Workload, batch: int) -> SizePoint:
    """Where a problem is; ``batch`` is that of the kernel file."""
    logarithms, texts = [], []
    for name, value in workload.sizes:
        number = isinstance(value, int) and value > 0
        texts.append((name, "" if number else str(value)))
        if isinstance(value, int) and value > 0:
            logarithms.append(math.log2(value))
    return SizePoint(tuple(texts), tuple(logarithms), batch)


def sizes_named(name: str) -> dict[str, str]:
    """The sizes that the name of a stored workload has, as text."""
    return dict(WorkloadName.parse(name).sizes)


def own_point(kernel: KernelFile, workload: Workload) -> SizePoint:
    """Where a workload of a kernel file is."""
    return size_point(workload, kernel.workload(dict(workload.sizes)).batch)


def named_point(kernel: KernelFile, name: str) -> SizePoint | None:
    """Where a stored workload is among the sizes that the kernel file has now; None where it is not."""
    try:
        workload = kernel.workload(sizes_named(name))
    except (InputError, ValueError):
        return None
    return size_point(workload, workload.batch)


Neighbour = tuple[SizePoint, StoredAnswer]


def neighbours(kernel: KernelFile, answers: Iterable[StoredAnswer]) -> list[Neighbour]:
    """Answers of single workloads of a kernel with their sizes; those of sizes that are gone are left out."""
    found = ((named_point(kernel, answer.names[0]), answer) for answer in answers)
    return [(point, answer) for point, answer in found if point is not None]


@dataclass(frozen=True)
class RankedNeighbour:
    """The answer of another size, in its place.

    Attributes:
        answer: the answer.
        near: size and batch are near.
    """

    answer: StoredAnswer
    near: bool


def rank_neighbours(query: AnswerQuery, found: Iterable[Neighbour], most: int) -> list[RankedNeighbour]:
    """Answers of other sizes for the one workload of a query, the nearest first, the best one of each size.

    Args:
        query: of one workload whose kernel file is known.
        found: answers of its kernel, whatever they are for.
        most: so many at most.
    """
    (workload,) = query.workloads
    own = own_point(query.kernels[workload.kernel], workload)
    sizes: dict[tuple[float, ...], list[tuple[Distance, Neighbour]]] = {}
    for point, answer in found:
        lends = point.logarithms != own.logarithms or (query.clocks_as_found and not answer.clocks_as_found)
        if point.texts == own.texts and lends and query.concerns(answer):
            ((name, measured),) = answer.batches.items()
            apart = distance(own, workload.batch, point, measured, answer.asked[name])
            sizes.setdefault(point.logarithms, []).append((apart, (point, answer)))

    def nearness(size: tuple[float, ...]) -> tuple[bool, float, tuple[float, ...]]:
        apart = min(apart for apart, _ in sizes[size])
        return apart.far, apart.sizes, size

    nearest = heapq.nsmallest(most, sizes, key=nearness)
    best = [min(sizes[size], key=lambda one: _rank(query, *one)) for size in nearest]
    best.sort(key=lambda one: (one[0].far, one[0].sizes, _rank(query, *one)))
    return [RankedNeighbour(answer, not apart.far) for apart, (_, answer) in best]


def _rank(query: AnswerQuery, apart: Distance, neighbour: Neighbour) -> tuple[object, ...]:
    """Of answers of one size, as ``rank_stored`` has them."""
    _, answer = neighbour
    return (
        *(apart.far, answer.uuid != query.device.uuid, bool(query.stale(answer, {}))),
        *(not answer.as_found, apart.batches, not answer.finished, -answer.run),
    )
