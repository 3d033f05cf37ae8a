"""What is run together, and what it gave: trial, measurement, and the flags of a measurement."""

import math
from dataclasses import dataclass
from enum import Enum

from tuner.model.plan import Configuration
from tuner.model.units import Amount, Number, Positive

_POWER_CAP = "sw-power-cap"  # NVML's name of the throttle reason of a GPU at its power limit


class FlagKind(Enum):
    """What a flag is about; the value begins its text."""

    THROTTLED = "throttled"  # the GPU was held back; the detail lists the reasons
    OFF_CLOCK = "off-clock"  # the clock seen is not the clock set
    UNSTEADY = "unsteady"  # the mean round is away from the median
    POWER_LIMIT = "power-limit"  # mean watts are at the power limit in force, or above it
    UNSETTLED = "unsettled"  # energy still changed when the warm-up ended
    NO_ENERGY = "no-energy"
    NO_GRAPH = "no-graph"  # the rounds were not replayed from a graph
    CPU_THREADS = "cpu-threads"  # host stages have one thread, or nobody knows how many
    SHORT_ROUND = "short-round"  # starting and joining the workloads is a part of it that counts
    WARM_L2 = "warm-l2"  # the arrays do not reach past the second-level cache
    ESTIMATED = "estimated"  # a bound has shown that its joules need not be measured
    ALIASING = "aliasing"
    SENSOR_GAP = "sensor-gap"
    SENSOR_VALUES = "sensor-values"
    SENSOR_TIME = "sensor-time"
    SENSOR_RESET = "sensor-reset"
    UNCHECKED = "unchecked"
    OTHER = ""  # text of no known kind


SPOILING = frozenset({FlagKind.THROTTLED, FlagKind.OFF_CLOCK, FlagKind.UNSTEADY})
"""Kinds of flags that make a window one to measure again."""

_BY_TEXT = {kind.value: kind for kind in FlagKind if kind is not FlagKind.OTHER}


@dataclass(frozen=True)
class Flag:
    """One flag; its text is ``kind: detail``.

    Attributes:
        kind: what it is about.
        detail: for people; the whole text where the kind is ``OTHER``.
    """

    kind: FlagKind
    detail: str

    @classmethod
    def parse(cls, text: str) -> "Flag":
        """The flag of a stored text; ``str`` gives the same text back."""
        name, _, detail = text.partition(": ")
        if detail and name in _BY_TEXT:
            return cls(_BY_TEXT[name], detail)
        return cls(FlagKind.OTHER, text)

    def __str__(self) -> str:
        return self.detail if self.kind is FlagKind.OTHER else f"{self.kind.value}: {self.detail}"

    @property
    def at_power_limit(self) -> bool:
        """True for a GPU that was throttled by its power limit."""
        return self.kind is FlagKind.THROTTLED and _POWER_CAP in self.detail.split(", ")

    @property
    def only_power_limit(self) -> bool:
        """True for a GPU that was throttled by its power limit and by nothing else."""
        return self.kind is FlagKind.THROTTLED and self.detail == _POWER_CAP


@dataclass(frozen=True)
class GpuSetting:
    """What is set of the GPU while trials are measured; None is "as found".

    Attributes:
        clock_mhz: GPU clock.
        power_limit_w: power limit.
    """

    clock_mhz: int | None = None
    power_limit_w: int | None = None


@dataclass(frozen=True)
class Trial:
    """What is run and measured together.

    Attributes:
        configurations: one per workload, in the order of the run's workloads.
        clock_mhz: GPU clock to set, or None for "as found".
        power_limit_w: power limit to set, or None for "as found".
    """

    configurations: tuple[Configuration, ...]
    clock_mhz: int | None = None
    power_limit_w: int | None = None

    @property
    def setting(self) -> GpuSetting:
        """Clock and power limit."""
        return GpuSetting(self.clock_mhz, self.power_limit_w)


class Status(str, Enum):
    """How a workload of a trial ended. Anything but ``ok`` costs infinity and stops no search.

    ``pruned`` did not run: its compiled resources rule it out. It is no failure, and is stored nowhere.
    """

    OK = "ok"
    COMPILE_ERROR = "compile-error"
    LAUNCH_ERROR = "launch-error"
    WRONG_ANSWER = "wrong-answer"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    PRUNED = "pruned"


@dataclass(frozen=True)
class WorkloadResult:
    """One workload's part in a measurement.

    Attributes:
        status: how it ended.
        time_s: median time of one run within a round (None unless ok).
        spread_s: half the 16-84 % range of that time.
        detail: what went wrong, for people.
        restore_s: part of that time in which arrays are restored behind the run, measured alone; 0 where none
            are.
    """

    status: Status
    time_s: Positive | None = None
    spread_s: Amount = 0.0
    detail: str = ""
    restore_s: Amount = 0.0


@dataclass(frozen=True)
class Energy:
    """Joules of one round with their standard uncertainty: +- 1.96 of it covers 95 %.

    While a run measures, the uncertainty is that of its windows. What it prints and stores is about the mean
    over minutes (``tuner.model.long_run``), and the uncertainty of the windows stands beside it. The
    sensor's gain, which may be some percent off on a board, is the same in all trials on it, and in neither.

    Attributes:
        joules: energy of one round.
        uncertainty_j: standard uncertainty.
        watts: mean power of the measuring window.
        sensor: which reading it came from, e.g. ``nvml-energy-counter``.
        scope: what the sensor sees, e.g. ``gpu``, ``module``, ``VDD_GPU_SOC``.
        degrees: effective degrees of freedom of the uncertainty; None for many.
        idle_watts: power of the idle GPU at the same clock; None where it was not measured.
        idle_uncertainty_w: its standard uncertainty.
        window_uncertainty_j: standard uncertainty of the mean over the windows themselves, where
            ``uncertainty_j`` is about the mean over minutes; None where that is the one of the windows.
        window_degrees: its degrees of freedom; None for many.
    """

    joules: Number
    uncertainty_j: Amount
    watts: Number
    sensor: str
    scope: str
    degrees: float | None = None
    idle_watts: Number | None = None
    idle_uncertainty_w: Amount = 0.0
    window_uncertainty_j: Amount | None = None
    window_degrees: float | None = None

    @property
    def net_joules(self) -> float | None:
        """Joules of one round above those that the idle GPU would have drawn in its time."""
        return None if self.idle_watts is None else self.joules - self.idle_watts * self._round_s

    @property
    def net_uncertainty_j(self) -> float | None:
        """Standard uncertainty of ``net_joules``."""
        if self.idle_watts is None:
            return None
        return math.hypot(self.uncertainty_j, self.idle_uncertainty_w * self._round_s)

    @property
    def _round_s(self) -> float:
        return self.joules / self.watts if self.watts else 0.0


@dataclass(frozen=True)
class AnchorRatio:
    """How numbers of one GPU become those of another of its kind: home's anchor over the GPU's own.

    An anchor is the default trial as one GPU measures it.

    Attributes:
        time: factor of times.
        time_uncertainty: its standard uncertainty, relative.
        energy: factor of joules; 1 where no energy is measured.
        energy_uncertainty: its standard uncertainty, relative.
    """

    time: Positive = 1.0
    time_uncertainty: float = 0.0
    energy: Positive = 1.0
    energy_uncertainty: float = 0.0

    @property
    def inverse(self) -> "AnchorRatio":
        """From home's numbers to those of the GPU."""
        return AnchorRatio(1.0 / self.time, self.time_uncertainty, 1.0 / self.energy, self.energy_uncertainty)


SAME_GPU = AnchorRatio()
"""Of home itself."""


@dataclass(frozen=True)
class PoolGpu:
    """The GPU of a pool that measured a trial.

    Attributes:
        host: name of its host.
        uuid: of the GPU; of a simulated one its spec.
        driver: driver version, or the version of the model.
        ratio: what its times and joules were multiplied with to be those of the pool's home.
    """

    host: str
    uuid: str
    driver: str
    ratio: AnchorRatio = SAME_GPU


@dataclass(frozen=True)
class Measurement:
    """What one trial gave.

    Attributes:
        results: one per workload, in the order of the trial.
        makespan_s: median time of a round, all workloads started together until the last has ended.
        makespan_spread_s: half the 16-84 % range of the makespan.
        makespan_uncertainty_s: standard uncertainty of the makespan.
        repeats: measuring windows these numbers were joined from (contenders for the answer get several).
        energy: energy of a round; None where it was not measured.
        estimated_j: joules of a round that a search is told in place of ``energy`` where a bound has shown
            that the trial cannot be the best, so that none were measured; None otherwise.
        rounds: rounds of the measuring window.
        window_s: length of the measuring window.
        clock_mhz: median GPU clock seen during the window, if it can be read.
        flags: what a reader must know, e.g. that the GPU was throttled.
        modelled: True when a simulated device made these numbers.
        check_s: time spent on answer checks for this trial.
        energy_total_j: joules of everything this trial made the GPU do (checks, warm-up, window).
        ended_s: the device's clock when the trial had ended (a simulated device resumes from there).
        power: power over time of its windows, packed (``tuner.model.power_series``); of the default trial and
            of contenders, of which the first three repeats are kept.
        temperature_c: mean temperature of the chip in the window, degrees Celsius; None where nobody tells.
        gpu: of a pool, the GPU that measured it: times and joules of a round are scaled to home, what the
            trial cost is not. None where one GPU measures all trials.
    """

    results: tuple[WorkloadResult, ...]
    makespan_s: Positive | None = None
    makespan_spread_s: Amount = 0.0
    makespan_uncertainty_s: Amount = 0.0
    repeats: int = 1
    energy: Energy | None = None
    estimated_j: Number | None = None
    rounds: int = 0
    window_s: Amount = 0.0
    clock_mhz: Number | None = None
    flags: tuple[Flag, ...] = ()
    modelled: bool = False
    check_s: Number = 0.0
    energy_total_j: Number = 0.0
    ended_s: Number = 0.0
    power: tuple[str, ...] = ()
    temperature_c: float | None = None
    gpu: PoolGpu | None = None

    @property
    def ok(self) -> bool:
        """True when every workload is ok."""
        return all(result.status is Status.OK for result in self.results)

    @property
    def status(self) -> Status:
        """The first status that is not ok, else ok."""
        return next((r.status for r in self.results if r.status is not Status.OK), Status.OK)

    @property
    def scaled(self) -> bool:
        """True where another GPU than home measured it, so that an anchor's uncertainty is in its numbers."""
        return self.gpu is not None and self.gpu.ratio != SAME_GPU

    @property
    def flag_kinds(self) -> frozenset[FlagKind]:
        """Kinds of the flags."""
        return frozenset(flag.kind for flag in self.flags)

    @property
    def spoilt(self) -> frozenset[FlagKind]:
        """What makes the window of a valid trial one to measure again."""
        return SPOILING & self.flag_kinds if self.ok else frozenset()

    @property
    def passing(self) -> frozenset[FlagKind]:
        """Of ``spoilt``, what may be gone in another window for joules.

        A trial that nothing but the power limit held back is there again, below the clock that was set, and
        its rounds are uneven again, as power and clock swing there.
        """
        limited = any(flag.only_power_limit for flag in self.flags)
        return self.spoilt - (SPOILING if limited else set())

    @property
    def at_power_limit(self) -> bool:
        """True when the GPU was throttled by its power limit, or drew as much as that allows."""
        return any(flag.at_power_limit or flag.kind is FlagKind.POWER_LIMIT for flag in self.flags)
