"""What the analytical rules look at: a candidate's numbers, and criteria that order candidates by them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.interfaces import Candidate, Launch
from tuner.model import DeviceLimits
from tuner.occupancy import warps_and_blocks

RADIX = "radix"
SHARED_ELEMENTS = "shared_elements"
SHUFFLE = "shuffle"
ELEMENTS_PER_THREAD = "elements_per_thread"
THREADS_PER_BLOCK = "threads_per_block"


@dataclass(frozen=True)
class Rated:
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
    def launches(self) -> tuple[Launch, ...]:
        """Its launches; m of section IV-C is their number."""
        return self.candidate.launches

    @property
    def warp_share(self) -> float:
        """W_SM / W^max of the launch with the fewest resident warps."""
        return min(self.W_SM) / self.limits.max_warps_per_sm

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, of the launch that takes most."""
        return max(launch.shared_bytes for launch in self.launches)

    @property
    def elements_per_thread(self) -> int:
        """P, 0 where no tunable has that role."""
        return self.candidate.elements_per_thread

    @property
    def steps(self) -> float:
        """Dependent communication steps of a block; 0 where the kernel file states none."""
        return 0.0 if self.candidate.work is None else self.candidate.work.steps

    @cached_property
    def bytes_in_flight(self) -> float:
        """Device memory that the resident blocks of a multiprocessor read and write, of the emptiest launch.

        Every launch moves all bytes of the work; 0 where the work is not known.
        """
        if self.candidate.work is None:
            return 0.0
        per_launch = self.candidate.work.bytes
        return min(
            per_launch / launch.blocks * min(launch.blocks_per_sm, self._share_of_grid(launch))
            for launch in self.launches
        )

    def _share_of_grid(self, launch: Launch) -> float:
        """Blocks a multiprocessor gets when the whole grid is spread over all of them."""
        return launch.blocks / self.limits.multiprocessors


Key = tuple[float, ...]


@dataclass(frozen=True)
class Criterion:
    """One sentence of a rule.

    Attributes:
        name: what it asks for, as a message says it.
        key: the smaller, the better.
        shown: the numbers behind the key, with units.
    """

    name: str
    key: Callable[[Rated], Key]
    shown: Callable[[Rated], str]


def rate(candidate: Candidate, limits: DeviceLimits, roles: Mapping[str, str]) -> Rated:
    """The numbers of a candidate that has launches."""
    filled = [
        warps_and_blocks(limits, stage.threads_per_block, stage.registers_per_thread, stage.shared_bytes)
        for stage in candidate.launches
    ]
    radix = candidate.configuration.get(roles.get(RADIX, ""), 0)
    return Rated(
        candidate,
        limits,
        tuple(W_SM for W_SM, _ in filled),
        tuple(B_a for _, B_a in filled),
        radix if isinstance(radix, int) and not isinstance(radix, bool) else 0,
    )


def key(rated: Rated, criteria: Sequence[Criterion]) -> tuple[Key, ...]:
    """What candidates are ordered by: one criterion after another."""
    return tuple(criterion.key(rated) for criterion in criteria)


def decisive(better: Rated, worse: Rated, criteria: Sequence[Criterion]) -> Criterion | None:
    """The first criterion in which two candidates differ; None when none tells them apart."""
    return next((one for one in criteria if one.key(better) != one.key(worse)), None)


def listed(numbers: Sequence[int], unit: str = "") -> str:
    """The number of one launch, or those of several: ``24``, ``4 + 8``."""
    return " + ".join(map(str, numbers)) + unit
