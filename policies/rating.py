"""The inputs of the analytical rules: a candidate's numbers, and criteria that order candidates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.model.device import DeviceLimits
from tuner.space.occupancy import occupancy, warps_and_blocks
from tuner.space.search_view import Candidate, StageLaunch

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
        """Whether a launch has persistent blocks, which prefetch their next tile."""
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
        static = [taken.static_shared_bytes for taken in self.candidate.resources]
        known = static or [0] * len(self.launches)
        return tuple(bytes_ - own for bytes_, own in zip(self.shared_bytes, known, strict=True))

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
    return CandidateRating(
        candidate,
        limits,
        tuple(W_SM for W_SM, _ in filled),
        tuple(B_a for _, B_a in filled),
        radix_of(candidate, roles),
    )


def radix_of(candidate: Candidate, roles: Mapping[str, str]) -> int:
    """The value of the tunable in the role radix; 0 where there is none, or no whole number."""
    radix = candidate.configuration.get(roles.get(RADIX, ""), 0)
    return radix if isinstance(radix, int) and not isinstance(radix, bool) else 0


def facts_of(candidates: Iterable[Candidate], roles: Mapping[str, str]) -> Facts:
    """Compute the facts about all candidates together."""
    radices: set[int] = set()
    launches = 0
    for candidate in candidates:
        radices.add(radix_of(candidate, roles))
        launches = max(launches, len(candidate.launches))
    return Facts(radix_varies=len(radices) > 1, several_launches=launches > 1)


def key(rated: CandidateRating, criteria: Sequence[RuleCriterion]) -> tuple[Key, ...]:
    """What candidates are ordered by: one criterion after another."""
    return tuple(criterion.key(rated) for criterion in criteria)


def without_resources(candidate: Candidate, limits: DeviceLimits) -> Candidate:
    """A candidate as if it took no registers and no shared memory: what is known of it before and after."""
    launches = []
    for stage in candidate.launches:
        filled = occupancy(limits, stage.threads_per_block, 0, 0)
        launches.append(
            replace(
                stage,
                shared_bytes=0,
                registers_per_thread=0,
                occupancy=filled.occupancy,
                blocks_per_sm=filled.blocks_per_sm,
                warps_per_sm=filled.warps_per_sm,
            )
        )
    return replace(candidate, launches=tuple(launches))


def decisive(
    better: CandidateRating, worse: CandidateRating, criteria: Sequence[RuleCriterion]
) -> RuleCriterion | None:
    """The first criterion in which two candidates differ; None when none tells them apart."""
    return next((one for one in criteria if one.key(better) != one.key(worse)), None)


def listed(numbers: Sequence[int]) -> str:
    """The number of one launch, or those of several: ``24``, ``4 + 8``."""
    return " + ".join(map(str, numbers))


def launched(one: CandidateRating) -> str:
    """How many launches it takes."""
    return "1 launch" if len(one.launches) == 1 else f"{len(one.launches)} launches"


def warps(one: CandidateRating) -> str:
    """Resident warps of each launch."""
    return f"W_SM {listed(one.W_SM)} of {one.limits.max_warps_per_sm}"


def shared(one: CandidateRating) -> str:
    """Shared memory of a block of each launch."""
    return f"{listed(one.shared_bytes)} B of shared memory"
