"""The border to policies: a search as a policy sees it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Configuration, Resources, TunableValue, Work
from tuner.model.trial import GpuSetting, Measurement, Trial


@dataclass(frozen=True)
class StageLaunch:
    """One stage of a candidate as it meets the device.

    Attributes:
        blocks: blocks of the grid, before one that stays resident is cut to what the device holds.
        threads_per_block: threads of a block.
        shared_bytes: shared memory of a block, static and dynamic.
        registers_per_thread: as compiled.
        occupancy: equation (5).
        blocks_per_sm: equation (1), B_a of the embedded paper.
        warps_per_sm: resident warps, W_SM of the embedded paper.
        resident: its blocks stay and walk over the work.
    """

    blocks: int
    threads_per_block: int
    shared_bytes: int
    registers_per_thread: int
    occupancy: float
    blocks_per_sm: int
    warps_per_sm: int
    resident: bool = False


@dataclass(frozen=True)
class Candidate:
    """A configuration a policy may choose, with what is known of it before any run.

    Before it is compiled, that is a bound by what its kernel file declares: occupancy, blocks and warps
    without registers and static shared memory, which are never higher when compiled.

    Attributes:
        configuration: values of the tunables.
        occupancy: equation (5); the smallest of its stages.
        threads_per_block: of the stage with that occupancy.
        blocks_per_sm: equation (1) for that stage.
        warps_per_sm: resident warps for that stage.
        elements_per_thread: the value of the tunable in that role, 0 where no tunable has it.
        resources: compiled (or declared) resources of its stages.
        launches: its stages in order; empty where nothing is known of them (spaces of other tuners).
        work: what one run must do; None where that is not known.
        declared: it is not compiled yet, and its numbers are bounds.
        stated: place among the analytical answers that its kernel file states, 1 of the preferred one; 0 of
            no answer.
    """

    configuration: Configuration
    occupancy: float
    threads_per_block: int
    blocks_per_sm: int
    warps_per_sm: int
    elements_per_thread: int = 0
    resources: tuple[Resources, ...] = ()
    launches: tuple[StageLaunch, ...] = ()
    work: Work | None = None
    declared: bool = False
    stated: int = 0


@dataclass(frozen=True)
class LargeSpace:
    """A space with more configurations than candidates are listed: those are a sample of it.

    Attributes:
        size: about how many configurations it has.
        neighbours: takes a configuration of the space, and makes the candidates that differ from it in one
            tunable, and in what the rules make follow from that. They need not be listed.
        candidate: takes a configuration, listed or not; None where it is none of the space, or pruned.
    """

    size: int
    neighbours: Callable[[Configuration], Sequence[Candidate]]
    candidate: Callable[[Configuration], Candidate | None]


@dataclass(frozen=True)
class PriorRun:
    """Measurements of a workload's kernel by other runs: at another size, on another GPU, or alone.

    Attributes:
        workload: place in ``Search.workloads`` of the workload it says something about.
        sizes: the problem sizes it was measured at.
        device: product name of the GPU.
        points: configurations and their costs, in the objective's unit; failed ones cost infinity.
    """

    workload: int
    sizes: Mapping[str, int | str]
    device: str
    points: tuple[tuple[Configuration, float], ...]


@dataclass(frozen=True)
class Payback:
    """When another evaluation no longer pays.

    Attributes:
        runs: rounds the answer will be used for.
        spent: what measuring a trial took, in the unit of the cost (seconds, or joules).
    """

    runs: float
    spent: Callable[[Measurement], float]


@dataclass(frozen=True)
class Criterion:
    """One of several numbers that are minimised at once.

    Attributes:
        cost: the number; infinity for a failed trial.
        noise: relative standard uncertainty of a measurement's cost.
        prior_runs: what other runs measured of the workloads' kernels, in this number's unit.
    """

    cost: Callable[[Measurement], float]
    noise: Callable[[Measurement], float]
    prior_runs: tuple[PriorRun, ...] = ()


@dataclass(frozen=True)
class ClockPoint:
    """One configuration per workload at one clock, measured or modelled.

    Attributes:
        clock_mhz: as set.
        time_s: of a round.
        time_uncertainty_s: standard uncertainty of the time.
        joules: of a round; None where they are not known.
        joules_uncertainty: standard uncertainty of the joules.
        measured: False where a model of time and power over the clock says so.
    """

    clock_mhz: int
    time_s: float
    time_uncertainty_s: float
    joules: float | None
    joules_uncertainty: float | None
    measured: bool


def _silent(_: str) -> None:
    """Tells nobody."""


def _resolved(_: int, candidates: Sequence[Candidate]) -> list[Candidate | None]:
    """Candidates about which there is no more to know."""
    return list(candidates)


def _unheard(_: Sequence[Trial]) -> None:
    """Nobody prepares for what is expected."""


def noiseless(_: Measurement) -> float:
    """No uncertainty is known."""
    return 0.0


@dataclass(frozen=True)
class Search:
    """Everything a policy is told, as plain values.

    Attributes:
        workloads: names, for messages.
        candidates: per workload, the configurations left after pruning by what is declared, in the order of
            the space. Compiling may rule out more: their trials are answered with the status ``pruned``.
        defaults: per workload, the default configuration, which pruning may have dropped from the candidates;
            the first candidate where it cannot be launched.
        clocks_mhz: clocks to choose from, highest first; empty means "as found" (``Trial.clock_mhz`` None).
        cost: the objective; infinity for a failed trial.
        seed: for policies that draw at random.
        prior: measurements that are known already.
        tunables: per workload, the value lists of its tunables in the order of declaration; empty where a
            policy has to go by the candidates alone.
        roles: per workload, role -> tunable, as in the kernel file; None where it says that analytical rules
            have no answer for it.
        sizes: per workload, its problem sizes.
        limits: of the device; None where they are not known.
        device: product name of the device.
        power_limits_w: power limits to choose from, highest first; empty means "as found". Policies that are
            run by ``tuner.policies.steering`` are told none.
        label: what numbers of this device are, for messages: ``modelled``, ``recorded``, or empty.
        noise: relative standard uncertainty of a measurement's cost.
        prior_runs: what other runs measured of the workloads' kernels.
        payback: None where nobody said how often the answer will be used.
        tell: takes a sentence for the user: what was done, and why.
        resolve: takes the place of a workload and some of its candidates, compiles them now, and returns each
            with its compiled resources, or None where these rule it out.
        expect: takes the trials that will probably be asked for next, the likeliest first; they are compiled
            while others are measured. Each call replaces the one before.
        parallel: trials that can be measured at once, on as many GPUs; a list of more is measured in turn,
            and one of fewer leaves GPUs idle.
        criteria: the two numbers of whose Pareto front the trials are wanted; empty where ``cost`` is all.
        large_spaces: per workload, its space where the candidates are a sample of it, else None; empty where
            all are listed. Trials may have any candidate that such a space makes.
    """

    workloads: tuple[str, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    defaults: tuple[Configuration, ...]
    clocks_mhz: tuple[int, ...]
    cost: Callable[[Measurement], float]
    seed: int = 0
    prior: Mapping[Trial, Measurement] = field(default_factory=dict)
    tunables: tuple[Mapping[str, tuple[TunableValue, ...]], ...] = ()
    roles: tuple[Mapping[str, str] | None, ...] = ()
    sizes: tuple[Mapping[str, int | str], ...] = ()
    limits: DeviceLimits | None = None
    device: str = ""
    power_limits_w: tuple[int, ...] = ()
    label: str = ""
    noise: Callable[[Measurement], float] = noiseless
    prior_runs: tuple[PriorRun, ...] = ()
    payback: Payback | None = None
    tell: Callable[[str], None] = _silent
    resolve: Callable[[int, Sequence[Candidate]], list[Candidate | None]] = _resolved
    expect: Callable[[Sequence[Trial]], None] = _unheard
    parallel: int = 1
    criteria: tuple[Criterion, ...] = ()
    large_spaces: tuple[LargeSpace | None, ...] = ()

    @property
    def suffix(self) -> str:
        """Suffix of numbers in messages: `` (modelled)``, or empty where they are measured."""
        return f" ({self.label})" if self.label else ""

    @property
    def compiles_ahead(self) -> bool:
        """True if ``expect`` has an effect; it has none where trials are only looked up."""
        return self.expect is not _unheard

    @property
    def clocks(self) -> tuple[int | None, ...]:
        """The clocks of trials: the choices, or a single None for "as found"."""
        return self.clocks_mhz or (None,)

    @property
    def settings(self) -> tuple[GpuSetting, ...]:
        """Settings for trials: every power limit with every clock, the clock changing fastest."""
        limits = self.power_limits_w or (None,)
        return tuple(GpuSetting(clock_mhz, limit_w) for limit_w in limits for clock_mhz in self.clocks)

    @property
    def listed(self) -> int:
        """Trials of the candidates."""
        total = len(self.clocks) * max(1, len(self.power_limits_w))
        for candidates in self.candidates:
            total *= len(candidates)
        return total

    @property
    def size(self) -> int:
        """Trials in the pruned joint space: of a large space all that there are about, listed or not."""
        total = self.listed
        for index, candidates in enumerate(self.candidates):
            large = self.large_space(index)
            if large is not None:
                total = total // len(candidates) * large.size
        return total

    def large_space(self, index: int) -> LargeSpace | None:
        """The space of a workload where its candidates are a sample of it, else None."""
        return self.large_spaces[index] if self.large_spaces else None


Policy = Callable[[Search], Generator[list[Trial], list[Measurement], Trial | None]]
"""A search strategy: a generator.

It yields a list of trials whose order does not matter (often just one), is sent their measurements in the
same order, and returns its best trial, or None when every trial failed. A trial asked for again is answered
from memory by the session and costs nothing. It draws randomness only from ``Search.seed``, so that feeding
stored measurements into a fresh generator resumes a run.
"""
