"""The order of answers for ``tuner best``, ``tuner.apply``, the daemon and prior runs.

Of workloads that run together, the first of these that there is:

1. ``stored``: the answer of a run of exactly these workloads, at a near batch.
2. Otherwise each workload by itself: the ``stored`` answer of it alone, at a near batch;
3. ``predicted``: the version that a trained model picks for the sizes, at the kernel file's batch;
4. ``analytical``: the choice of the analytical model;
5. ``nearest``: the answer of a near size of the kernel, at a near batch;
6. ``default``: what the kernel file names;
7. a far answer: of this workload at a far batch (``stored``), then of a far size (``nearest``). A kernel
   without a default needs these.

*Near batch*: each workload's batch is within a factor of 2 of the measured one, or is the one that the run
was asked for before memory capped it; and the grid still fills the device as it did. A configuration is tuned
for a number of blocks: on an H200 that of ``fft-large:N=2^20`` at batch 64 takes 30.9 us at batch 1, where
the default takes 11.0. At other sizes, batches are compared as shares of the kernel file's batch there.

*Near size*: within a factor of 4, sizes multiplied; sizes that are no numbers are the same. Over the
recorded H200 spaces (``neighbour_sizes.py`` at commit 6844181e) the best configuration of another size
reaches 98.5 % of the best speed at a factor of 2 and 95.3 % at 4, the analytical choice 98.6 %, the default
92.8 %. At a factor of 8 it is 93.7 %, where the default of the same kernels reaches 95.3 %.

*Of several stored answers* come first: those timed back to back where nobody asks for a timing, this GPU's,
those that are fresh but for their batch, the nearest batch, those of finished runs, the newest. Another GPU
of the same model lends its answer, as stale; another model lends nothing. Where a configuration is lent
without its clock, one that was tuned with clocks as found goes before another of the same freshness. Where
clocks are to be as found, an answer that sets one is lent like that of a near size.

A run that was merged from another database is ranked by the number it got here, so by when it was merged,
and never by the clock of its host. Where the sources of its kernel are not those that are here, it is not
served at all: nobody here has seen that kernel.

A configuration that the kernel file does not allow is passed over.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tuner.database.answers import StoredAnswer
from tuner.kernel_files.kernel_file import KernelFile, stored_configuration
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.objective import OF_SINGLES
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.records import WorkloadName
from tuner.space.occupancy import upper_bound

NEAR_BATCH = 2.0
"""Most by which batches of one workload differ that one configuration serves."""


def _no_doubts(_answer: StoredAnswer) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class AnswerQuery:
    """Query for the answer of workloads that run together.

    Attributes:
        workloads: that run together, with their batches.
        kernels: their kernel files by name; a kernel without one (of a recording) has stored answers only.
        sources: kernel -> present hash of its sources.
        objective: as stored, with timing and slowdown limit; empty for any.
        device: the GPU, as it is now.
        limits: of that GPU; None where they are not known, and grids are not looked at.
        clocks_as_found: no clock and no power limit may be set.
        doubts: further reasons for which an answer is stale.
        any_timing: nobody asks for a timing: answers of single launches serve, too, after all others.
    """

    workloads: tuple[Workload, ...]
    kernels: Mapping[str, KernelFile]
    sources: Mapping[str, str]
    objective: str
    device: DeviceIdentity
    limits: DeviceLimits | None = None
    clocks_as_found: bool = False
    doubts: Callable[[StoredAnswer], Iterable[str]] = _no_doubts
    any_timing: bool = False

    @property
    def batches(self) -> dict[str, int]:
        """Workload -> batch."""
        return {str(workload): workload.batch for workload in self.workloads}

    def alone(self, workload: Workload) -> "AnswerQuery":
        """The same, of one of the workloads."""
        return replace(self, workloads=(workload,))

    def stale(self, answer: StoredAnswer, batches: Mapping[str, int]) -> tuple[str, ...]:
        """Return the reasons why an answer may no longer be true; empty if it is fresh."""
        return (*answer.reasons(self.device, self.sources, batches), *self.doubts(answer))

    def concerns(self, answer: StoredAnswer) -> bool:
        """True for an answer for this objective, of this GPU or one of its model, that may be served."""
        of_it = self.asks(answer.objective) and answer.on(self.device)
        return of_it and not answer.of_other_sources(self.sources)

    def asks(self, objective: str) -> bool:
        """True for the objective of an answer that is asked for."""
        return self.objective in ("", objective.replace(OF_SINGLES, "") if self.any_timing else objective)


@dataclass(frozen=True)
class RankedAnswer:
    """A stored answer in its place.

    Attributes:
        answer: the answer.
        stale: why it need not be true; empty where it is fresh.
        near: the batches are within ``NEAR_BATCH``.
    """

    answer: StoredAnswer
    stale: tuple[str, ...]
    near: bool


@dataclass(frozen=True)
class ServedAnswer:
    """A stored answer that is served.

    Attributes:
        answer: the answer.
        stale: why it need not be true; empty where it is fresh.
        configurations: workload -> values, as the kernel file writes them.
    """

    answer: StoredAnswer
    stale: tuple[str, ...]
    configurations: Mapping[str, Configuration]


def rank_stored(
    query: AnswerQuery, answers: Iterable[StoredAnswer], *, lent: bool = False
) -> list[RankedAnswer]:
    """Answers of exactly the workloads of a query, best first; those at far batches last.

    Args:
        query: what is asked for.
        answers: of these workloads together, whatever they are for.
        lent: the configuration is served without the clock.
    """
    batches = query.batches
    ranked: list[tuple[tuple[object, ...], RankedAnswer]] = []
    for answer in answers:
        if not query.concerns(answer) or (query.clocks_as_found and not answer.clocks_as_found):
            continue
        apart = [batch_gap(batch, answer, name) for name, batch in batches.items()]
        near = max(apart) <= math.log2(NEAR_BATCH)
        rank = (
            not near,
            answer.timing,
            answer.uuid != query.device.uuid,
            bool(query.stale(answer, {})),
            lent and not answer.as_found,
            sum(apart),
            not answer.finished,
            -answer.run,
        )
        ranked.append((rank, RankedAnswer(answer, query.stale(answer, batches), near)))
    return [answer for _, answer in sorted(ranked, key=lambda pair: pair[0])]


def served_answer(
    query: AnswerQuery, answers: Iterable[StoredAnswer], *, fresh: bool = False
) -> ServedAnswer | None:
    """The first near answer of exactly the workloads of a query that is allowed; None without one.

    Args:
        query: what is asked for.
        answers: of these workloads together, whatever they are for.
        fresh: only answers that are stale for their batch at most.
    """
    for ranked in rank_stored(query, answers):
        if not ranked.near:
            break
        if fresh and query.stale(ranked.answer, {}):
            continue
        configurations = configurations_of(query, ranked.answer)
        if configurations is not None:
            return ServedAnswer(ranked.answer, ranked.stale, configurations)
    return None


def configurations_of(query: AnswerQuery, answer: StoredAnswer) -> dict[str, Configuration] | None:
    """Those of an answer for the workloads of a query; None where one is not allowed, or fills less."""
    configurations: dict[str, Configuration] = {}
    for workload in query.workloads:
        name = str(workload)
        kernel = query.kernels.get(workload.kernel)
        configuration = allowed(kernel, workload, answer.configurations[name])
        if configuration is None:
            return None
        measured = replace(workload, batch=answer.batches[name])
        same = batch_gap(workload.batch, answer, name) == 0.0
        if not same and kernel and not fills(kernel, configuration, measured, workload, query.limits):
            return None
        configurations[name] = configuration
    return configurations


def misfit(kernels: Mapping[str, KernelFile], answer: StoredAnswer) -> str:
    """Return the reason why a stored answer does not fit its kernels; empty if it does, or without a file.

    A run that was merged may say anything: nobody looked at it here.
    """
    for name, batch in answer.batches.items():
        parsed = WorkloadName.parse(name)
        kernel = kernels.get(parsed.kernel)
        try:
            if kernel is not None:
                workload = kernel.workload(dict(parsed.sizes), batch)
                stored_configuration(kernel, workload, answer.configurations[name])
        except InputError as error:
            return f"{answer.told} is not served: {name}: {error}"
    return ""


def passed_over(
    query: AnswerQuery, answers: Iterable[StoredAnswer], served: ServedAnswer | None
) -> tuple[str, ...]:
    """Of the near answers that would come before the served one, why each is none of its kernels."""
    reasons = []
    for ranked in rank_stored(query, answers):
        if not ranked.near or (served is not None and ranked.answer is served.answer):
            break
        reasons.append(misfit(query.kernels, ranked.answer))
    return tuple(filter(None, reasons))


def batch_gap(batch: int, answer: StoredAnswer, name: str) -> float:
    """Doublings between a batch and the measured one; none where the run was asked for this very batch."""
    return 0.0 if batch == answer.asked[name] else abs(math.log2(answer.batches[name] / batch))


def allowed(
    kernel: KernelFile | None, workload: Workload, values: Mapping[str, TunableValue]
) -> Configuration | None:
    """The values as the kernel file writes them; None where they are no configuration of the workload."""
    if kernel is None:
        return Configuration(values)
    try:
        return stored_configuration(kernel, workload, values)
    except InputError:  # a rule without a result, too
        return None


def fills(
    kernel: KernelFile,
    configuration: Configuration,
    measured: Workload,
    requested: Workload,
    limits: DeviceLimits | None,
) -> bool:
    """True where a grid has as many blocks as when it was measured, or as many as the device can hold.

    What the device holds is counted without registers, which are not known here: the bound is an upper one.
    """
    if limits is None or (measured.sizes == requested.sizes and requested.batch >= measured.batch):
        return True
    try:
        pairs = zip(
            kernel.launches(measured, configuration), kernel.launches(requested, configuration), strict=True
        )
        for before, now in pairs:
            resident = upper_bound(limits, now.threads_per_block, now.shared_bytes).blocks_per_sm
            if now.blocks < min(before.blocks, limits.multiprocessors * max(1, resident)):
                return False
    except (InputError, ValueError):  # a formula has no result, or other stages are launched: not known
        return True
    return True


# --- Answers of other sizes of a kernel: how near they are, and in which order they are lent.

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
    """Distance between two problems with their batches; near ones are less than far ones.

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
    """Return the point of a problem among the sizes of its kernel; ``batch`` is that of the kernel file."""
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
    """Return the point of a workload of a kernel file."""
    return size_point(workload, kernel.workload(dict(workload.sizes)).batch)


def named_point(kernel: KernelFile, name: str) -> SizePoint | None:
    """Return the point of a stored workload by the present kernel file; None if that refuses its sizes."""
    try:
        workload = kernel.workload(sizes_named(name))
    except (InputError, ValueError):
        return None
    return size_point(workload, workload.batch)


Neighbour = tuple[SizePoint, StoredAnswer]


def neighbours(kernel: KernelFile, answers: Iterable[StoredAnswer]) -> list[Neighbour]:
    """Answers of single workloads of a kernel with their sizes; those of sizes that are gone are left out."""
    points = ((named_point(kernel, answer.names[0]), answer) for answer in answers)
    return [(point, answer) for point, answer in points if point is not None]


@dataclass(frozen=True)
class RankedNeighbour:
    """The answer of another size, in its place."""

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
    best = [min(sizes[size], key=lambda neighbour: _rank(query, *neighbour)) for size in nearest]
    best.sort(key=lambda neighbour: (neighbour[0].far, neighbour[0].sizes, _rank(query, *neighbour)))
    return [RankedNeighbour(answer, not apart.far) for apart, (_, answer) in best]


def _rank(query: AnswerQuery, apart: Distance, neighbour: Neighbour) -> tuple[object, ...]:
    """Of answers of one size, as ``rank_stored`` has them."""
    _, answer = neighbour
    return (
        *(apart.far, answer.timing, answer.uuid != query.device.uuid, bool(query.stale(answer, {}))),
        *(not answer.as_found, apart.batches, not answer.finished, -answer.run),
    )
