"""The border to search strategies."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from tuner.model import Configuration, Measurement, Resources, Trial


@dataclass(frozen=True)
class Candidate:
    """A configuration a policy may choose, with what is known of it before any run.

    Attributes:
        configuration: values of the tunables.
        occupancy: equation (5); the smallest of its stages.
        threads_per_block: of the stage with that occupancy.
        blocks_per_sm: equation (1) for that stage.
        warps_per_sm: resident warps for that stage.
        elements_per_thread: the value of the tunable in that role, 0 where no tunable has it.
        resources: compiled (or declared) resources of its stages.
    """

    configuration: Configuration
    occupancy: float
    threads_per_block: int
    blocks_per_sm: int
    warps_per_sm: int
    elements_per_thread: int = 0
    resources: tuple[Resources, ...] = ()


@dataclass(frozen=True)
class Search:
    """Everything a policy is told, as plain values.

    Attributes:
        workloads: names, for messages.
        candidates: per workload, the configurations left after pruning, in the order of the space.
        defaults: per workload, the default configuration (the first candidate where it was pruned).
        clocks_mhz: clocks to choose from, highest first; empty means "as found" (``Trial.clock_mhz`` None).
        cost: the objective; infinity for a failed trial.
        seed: for policies that draw at random.
        prior: measurements that are known already.
    """

    workloads: tuple[str, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    defaults: tuple[Configuration, ...]
    clocks_mhz: tuple[int, ...]
    cost: Callable[[Measurement], float]
    seed: int = 0
    prior: Mapping[Trial, Measurement] = field(default_factory=dict)

    @property
    def clocks(self) -> tuple[int | None, ...]:
        """The clocks of trials: the choices, or a single None for "as found"."""
        return self.clocks_mhz or (None,)

    @property
    def size(self) -> int:
        """Trials in the pruned joint space."""
        total = len(self.clocks)
        for candidates in self.candidates:
            total *= len(candidates)
        return total


Policy = Callable[[Search], Generator[list[Trial], list[Measurement], Trial | None]]
"""A search strategy: a generator.

It yields a list of trials whose order does not matter (often just one), is sent their measurements in the
same order, and returns its best trial, or None when every trial failed. A trial asked for again is answered
from memory by the driver and costs nothing. It draws randomness only from ``Search.seed``, so that feeding
stored measurements into a fresh generator resumes a run.
"""
