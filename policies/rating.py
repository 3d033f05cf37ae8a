"""Ratings of candidates by analytical criteria, and the best one found without compiling all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter

from tuner.model.jobs import DeviceLimits
from tuner.model.plan import tunable_names
from tuner.space.occupancy import launch, warps_and_blocks
from tuner.space.search_view import Candidate, StageLaunch

from .descent import Resolve, value_ranks

RADIX = "radix"


@dataclass(frozen=True)
class CandidateRating:
    """A candidate with the numbers of "Performance Tuning for GPU-Embedded Systems", section IV-A.

    Attributes:
        candidate: the candidate.
        limits: of the device.
        W_SM: resident warps of each of its launches.
        B_a: active blocks of each of its launches, by registers, shared memory and the hardware's maximum.
        radix: r, 0 where no tunable has that role.
    """

    candidate: Candidate
    limits: DeviceLimits
    W_SM: tuple[int, ...]
    B_a: tuple[int, ...]
    radix: int

    @property
    def launches(self) -> tuple[StageLaunch, ...]:
        """Its launches; their number is m of section IV-C."""
        return self.candidate.launches

    @property
    def warp_share(self) -> float:
        """W_SM / W^max of the launch with the fewest resident warps."""
        return min(self.W_SM) / self.limits.max_warps_per_sm

    @property
    def stays(self) -> bool:
        """True if a launch has persistent blocks, which prefetch their next tile."""
        return any(launch.resident for launch in self.launches)

    @property
    def threads_per_block(self) -> int:
        """L of the launch with the largest blocks."""
        return max(launch.threads_per_block for launch in self.launches)

    @property
    def shared_bytes(self) -> tuple[int, ...]:
        """Shared memory of a block of each launch."""
        return tuple(launch.shared_bytes for launch in self.launches)

    @property
    def dynamic_shared_bytes(self) -> tuple[int, ...]:
        """The same without what the source declares; a recording does not tell that apart."""
        static = [resources.static_shared_bytes for resources in self.candidate.resources]
        declared = static or [0] * len(self.launches)
        return tuple(bytes_ - own for bytes_, own in zip(self.shared_bytes, declared, strict=True))

    @property
    def steps(self) -> float:
        """Dependent communication steps of a block; 0 where the kernel file states none."""
        return 0.0 if self.candidate.work is None else self.candidate.work.steps

    @property
    def bytes_in_flight(self) -> float:
        """Device memory read and written by the resident blocks of a multiprocessor, of the emptiest launch.

        Every launch moves all bytes of the work. A grid too small to fill the device counts as it is spread
        over it. 0 where the work is not known.
        """
        if self.candidate.work is None:
            return 0.0
        per_launch = self.candidate.work.bytes
        return min(
            per_launch * min(launch.blocks_per_sm / max(launch.blocks, 1), 1 / self.limits.multiprocessors)
            for launch in self.launches
        )


@dataclass(frozen=True)
class Facts:
    """Facts about all candidates together, for the rules.

    Attributes:
        radix_varies: the algorithm lets the radix be chosen.
        several_launches: some candidates need more than one launch, so that a problem is shared by blocks.
    """

    radix_varies: bool
    several_launches: bool


Key = tuple[float, ...]
Rank = tuple[tuple[Key, ...], int]
"""The keys of a candidate, one for each criterion, and its place among those that have the same."""


@dataclass(frozen=True)
class RuleCriterion:
    """One sentence of a rule.

    Attributes:
        name: what it asks for, as a message says it.
        key: the smaller, the better; no smaller with more registers or more static shared memory, so that the
            key of a candidate that is not compiled is a bound.
        shown: the numbers behind the key, with units.
    """

    name: str
    key: Callable[[CandidateRating], Key]
    shown: Callable[[CandidateRating], str]


def rate(candidate: Candidate, limits: DeviceLimits, roles: Mapping[str, str]) -> CandidateRating:
    """The numbers of a candidate that has launches."""
    filled = [
        warps_and_blocks(limits, stage.threads_per_block, stage.registers_per_thread, stage.shared_bytes)
        for stage in candidate.launches
    ]
    W_SM, B_a = zip(*filled, strict=True)
    return CandidateRating(candidate, limits, W_SM, B_a, radix_of(candidate, roles))


def radix_of(candidate: Candidate, roles: Mapping[str, str]) -> int:
    """The value of the tunable in the role radix; 0 where there is none, or no whole number."""
    radix = candidate.configuration.get(roles.get(RADIX, ""), 0)
    return radix if isinstance(radix, int) and not isinstance(radix, bool) else 0


def facts_of(candidates: Sequence[Candidate], roles: Mapping[str, str]) -> Facts:
    """Compute the facts about all candidates together."""
    radices = {radix_of(candidate, roles) for candidate in candidates}
    several = any(len(candidate.launches) > 1 for candidate in candidates)
    return Facts(radix_varies=len(radices) > 1, several_launches=several)


def decisive(
    better: CandidateRating, worse: CandidateRating, criteria: Sequence[RuleCriterion]
) -> RuleCriterion | None:
    """The first criterion in which two candidates differ; None when none tells them apart."""
    return next((criterion for criterion in criteria if criterion.key(better) != criterion.key(worse)), None)


def listed(numbers: Sequence[int]) -> str:
    """The number of one launch, or those of several: ``24``, ``4 + 8``."""
    return " + ".join(map(str, numbers))


def launched(rated: CandidateRating) -> str:
    """Return the number of launches, in words."""
    return "1 launch" if len(rated.launches) == 1 else f"{len(rated.launches)} launches"


def warps(rated: CandidateRating) -> str:
    """Resident warps of each launch."""
    return f"W_SM {listed(rated.W_SM)} of {rated.limits.max_warps_per_sm}"


def shared(rated: CandidateRating) -> str:
    """Shared memory of a block of each launch."""
    return f"{listed(rated.shared_bytes)} B of shared memory"


# --- Finds the best candidate by a rule without compiling all: bounds prove that no other is ahead.
#
# What the criteria see gets no better with more registers or more static shared memory: resident blocks and
# warps, and the bytes that they have in flight. So the key of a candidate that is not compiled, without
# registers and with dynamic shared memory only, is a bound: compiled, it is that or worse.

TOGETHER = 8  # compiled at a time, the same on every machine: so are answers where `MOST` binds
MOST = 160  # compiled of a workload: a quarter of a minute on two cores
_SHARED_ELEMENTS = "shared_elements"


@dataclass(frozen=True)
class FrontRunners:
    """The candidates that were compared, and those that were not.

    Attributes:
        compared: with their resources, best first.
        left_out: candidates that were not compiled.
        undecided: of them, those that may be ahead of the best by their bounds: none where it is proved.
    """

    compared: tuple[CandidateRating, ...]
    left_out: int
    undecided: int


class Contest:
    """Candidates of a workload that have launches, compared by a rule.

    Args:
        candidates: in the order of the space; those that are not ``declared`` are taken as they are.
        limits: of the device.
        roles: role -> tunable.
        criteria: of the rule.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        limits: DeviceLimits,
        roles: Mapping[str, str],
        criteria: Sequence[RuleCriterion],
    ) -> None:
        self._limits, self._roles, self._criteria = limits, roles, criteria
        places = self._places(candidates)
        self._place = {one.configuration: place for one, place in zip(candidates, places, strict=True)}
        ranked = [(self.rank(self._rated(one)), one) for one in candidates]
        self._known = [one for _, one in ranked if not one.declared]
        self._waiting = sorted(((rank, one) for rank, one in ranked if one.declared), key=itemgetter(0))

    @property
    def waiting(self) -> list[Candidate]:
        """The candidates that are not compiled, those with the best bounds first."""
        return [candidate for _, candidate in self._waiting]

    def _rated(self, candidate: Candidate) -> CandidateRating:
        return rate(candidate, self._limits, self._roles)

    def rank(self, rated: CandidateRating) -> Rank:
        """The sort key of candidates: one criterion after another, then what is declared of them."""
        key = tuple(criterion.key(rated) for criterion in self._criteria)
        return key, self._place[rated.candidate.configuration]

    def front_runners(self, resolve: Resolve) -> FrontRunners:
        """Compile candidates, the most promising first, until no other can be ahead of the best.

        The answer does not depend on what was compiled: it is that of all, compiled, unless some are left
        undecided. Asked for are `TOGETHER` at a time, and `MOST` at most once there is one that is not ruled
        out.
        """
        waiting = self._waiting
        compared = {self.rank(rated): rated for rated in map(self._rated, self._known)}
        requested = 0
        while True:
            best = min(compared, default=None)
            ahead = len(waiting) if best is None else sum(bound < best for bound, _ in waiting)
            if not ahead or (best is not None and requested >= MOST):
                break
            count = min(ahead, TOGETHER)
            batch, waiting = [candidate for _, candidate in waiting[:count]], waiting[count:]
            requested += count
            compiled = (one for one in resolve(batch) if one is not None and not one.declared)
            compared.update((self.rank(rated), rated) for rated in map(self._rated, compiled))
        return FrontRunners(tuple(compared[rank] for rank in sorted(compared)), len(waiting), ahead)

    def _places(self, candidates: Sequence[Candidate]) -> list[int]:
        """An order to choose by among candidates that no criterion tells apart, by what is declared alone.

        What no criterion sees should be neither at its least nor at its most. Candidates are *alike* that
        differ neither in their keys, if they took no registers and no shared memory, nor in the tunable in
        the role ``shared_elements``. Of those, tunable by tunable, what is nearest to the median comes first,
        the lower of two. So a recording, and a search that has compiled little, choose the same.
        """
        groups: dict[tuple[object, ...], list[int]] = {}
        shared = self._roles.get(_SHARED_ELEMENTS, "")
        for number, candidate in enumerate(candidates):
            bare = self._rated(without_resources(candidate, self._limits))
            key = tuple(criterion.key(bare) for criterion in self._criteria)
            groups.setdefault((key, str(candidate.configuration.get(shared))), []).append(number)
        order = [0] * len(candidates)
        placed = (
            _from_the_middle([candidates[i] for i in group], group) for _, group in sorted(groups.items())
        )
        for place, number in enumerate(chain.from_iterable(placed)):
            order[number] = place
        return order


def without_resources(candidate: Candidate, limits: DeviceLimits) -> Candidate:
    """A candidate as if it took no registers and no shared memory: what is known of it before and after."""
    launches = [
        launch(
            limits,
            blocks=stage.blocks,
            threads_per_block=stage.threads_per_block,
            shared_bytes=0,
            registers_per_thread=0,
            resident=stage.resident,
        )
        for stage in candidate.launches
    ]
    return replace(candidate, launches=tuple(launches))


def _from_the_middle(alike: Sequence[Candidate], numbers: Sequence[int]) -> list[int]:
    """The numbers of some candidates, those in the middle of them first."""
    distances: list[list[tuple[int, int]]] = [[] for _ in alike]
    for name in tunable_names(candidate.configuration for candidate in alike):
        values = [candidate.configuration.get(name) for candidate in alike]
        rank_of = value_ranks(values)
        ranks = [rank_of[value] for value in values]
        median = sorted(ranks)[(len(ranks) - 1) // 2]
        for distance, rank in zip(distances, ranks, strict=True):
            distance.append((abs(rank - median), rank))
    return [number for _, number in sorted(zip(distances, numbers, strict=True))]
