"""Trials and measurements: what ran together and what it gave, with uncertainties and Pareto fronts."""

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from tuner.model.distributions import student_quantile
from tuner.model.plan import Configuration
from tuner.model.units import Amount, Number, Positive

_POWER_CAP = "sw-power-cap"  # NVML's name of the throttle reason of a GPU at its power limit


class FlagKind(Enum):
    """Kind of a flag; the value begins its text."""

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
    SENSORS_DIFFER = "sensors-differ"  # counter and ring of one GPU tell of different power
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
    """Clock, power limit and power profile of the GPU while trials are measured; None is "as found".

    Attributes:
        clock_mhz: GPU clock.
        power_limit_w: power limit.
        power_profile: NVML's ID of a power profile that is requested.
    """

    clock_mhz: int | None = None
    power_limit_w: int | None = None
    power_profile: int | None = None


@dataclass(frozen=True)
class Trial:
    """Configurations and GPU setting that are run and measured together.

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
    """Outcome of a workload of a trial. Anything but ``ok`` costs infinity and stops no search.

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
        metrics: of a program, what it told: (name, value).
    """

    status: Status
    time_s: Positive | None = None
    spread_s: Amount = 0.0
    detail: str = ""
    restore_s: Amount = 0.0
    metrics: tuple[tuple[str, Number], ...] = ()


@dataclass(frozen=True)
class Energy:
    """Joules of one round with their standard uncertainty: +- 1.96 of it covers 95 %.

    While a run measures, the uncertainty is that of its windows. What it prints and stores is about the mean
    over minutes (``tuner.model.trial``), and the uncertainty of the windows stands beside it. The
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
    """Factors from numbers of one GPU to those of another of its kind: home's anchor over the GPU's own.

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
    """Result of measuring one trial.

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
        power: power over time of its windows, packed (``tuner.model.trial``); of the default trial and
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
        """Flags that require the window of a valid trial to be measured again."""
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


# --- Standard uncertainties whose 95 % intervals hold, however few values they were estimated from.
#
# An interval is printed as value +- 1.96 u. Where a variance was estimated from the scatter of few values,
# the interval that covers 95 % is wider than 1.96 of its root: Student's t for its degrees of freedom takes
# the place of 1.96. Here u is that interval divided by 1.96, so that whoever prints or compares needs no
# degrees. Parts with different degrees are joined by the formula of Welch and Satterthwaite, as in the "Guide
# to the expression of uncertainty in measurement" (JCGM 100, annex G.4).

_UPPER = 0.975  # a two-sided interval of 95 % leaves 2.5 % above
_NORMAL = 1.96  # half of that interval of a normal distribution, in its standard deviations
_MANY = 1000.0  # degrees from which Student's distribution is the normal one to a thousandth


@dataclass(frozen=True)
class Part:
    """One part of a variance.

    Attributes:
        variance: in the square of the value's unit.
        degrees: degrees of freedom it was estimated with; None where it is known, not estimated.
    """

    variance: float
    degrees: float | None = None


def student_factor(degrees: float | None) -> float:
    """Half of Student's 95 % interval against that of a normal distribution: 6.48 for one degree, 1 for many.

    Args:
        degrees: degrees of freedom, at least a fraction; None for many.
    """
    if degrees is None or degrees >= _MANY:
        return 1.0
    return student_quantile(degrees, _UPPER) / _NORMAL


def expanded(parts: Iterable[Part]) -> tuple[float, float | None]:
    """The uncertainty of a value whose variance has these parts, and its effective degrees of freedom.

    Returns:
        (u, degrees): +- 1.96 u covers 95 %; ``contracted`` undoes the widening.
    """
    uncertain = [part for part in parts if part.variance > 0]
    variance = math.fsum(part.variance for part in uncertain)
    if variance == 0:
        return 0.0, None
    spread = math.fsum(part.variance**2 / part.degrees for part in uncertain if part.degrees is not None)
    degrees = None if spread == 0 or variance**2 / spread >= _MANY else variance**2 / spread
    return student_factor(degrees) * math.sqrt(variance), degrees


def contracted(uncertainty: float, degrees: float | None) -> Part:
    """The variance that ``expanded`` made an uncertainty of."""
    return Part((uncertainty / student_factor(degrees)) ** 2, degrees)


# --- Joules as they are stated: with an uncertainty about the mean over minutes, not about the window alone.

_COVERAGE = 1.96  # standard uncertainties in half a 95 % interval

ASSUMED_SCATTER = 0.004
"""Relative standard deviation of joules of one trial's windows over minutes, where a run cannot tell."""

ASSUMED_DRIFT = 0.006
"""Relative standard deviation of what joules still change by as a GPU warms, where a run cannot tell.

± 1.2 % (95 %) is 12 K at 0.1 % per kelvin: an H100 that warmed from 39 to 55 °C took 0.9 to 1.8 % more, an
H200 0.9 % more between its 20th second of load and its third minute.
"""


@dataclass(frozen=True)
class WindowScatter:
    """Scatter of joules between windows of one trial, and what the GPU's warming may still change.

    Attributes:
        deviation: relative standard deviation from window to window.
        degrees: degrees of freedom it was learnt with; None where it is assumed.
        drift: relative standard deviation of what is left of the drift when the run ends.
    """

    deviation: float = ASSUMED_SCATTER
    degrees: float | None = None
    drift: float = ASSUMED_DRIFT

    @property
    def parts(self) -> tuple[Part, Part]:
        """Relative variances of both."""
        return Part(self.deviation**2, self.degrees), Part(self.drift**2)

    @property
    def learnt(self) -> bool:
        """True where the run has shown it."""
        return self.degrees is not None

    @property
    def interval(self) -> float:
        """Half the relative 95 % interval of a window without an uncertainty of its own."""
        return _COVERAGE * expanded(self.parts)[0]


ASSUMED = WindowScatter()


def stated(measurement: Measurement, scatter: WindowScatter = ASSUMED) -> Measurement:
    """The measurement with the uncertainty of its joules about the mean over minutes.

    That of its windows stays available as ``Energy.window_uncertainty_j``; stating again replaces it.
    """
    measured = of_window(measurement)
    energy = measured.energy
    if energy is None:
        return measured
    own = contracted(energy.uncertainty_j, energy.degrees)
    between = [Part(part.variance * energy.joules**2, part.degrees) for part in scatter.parts]
    uncertainty_j, degrees = expanded([own, *between])
    if energy.uncertainty_j > uncertainty_j:  # of few degrees, which a known part makes seem more
        uncertainty_j, degrees = energy.uncertainty_j, energy.degrees
    energy = replace(
        energy,
        uncertainty_j=uncertainty_j,
        degrees=degrees,
        window_uncertainty_j=energy.uncertainty_j,
        window_degrees=energy.degrees,
    )
    return replace(measured, energy=energy)


def of_window(measurement: Measurement) -> Measurement:
    """The measurement with the uncertainty of its windows alone: undoes ``stated``."""
    energy = measurement.energy
    if energy is None or energy.window_uncertainty_j is None:
        return measurement
    own = replace(
        energy,
        uncertainty_j=energy.window_uncertainty_j,
        degrees=energy.window_degrees,
        window_uncertainty_j=None,
        window_degrees=None,
    )
    return replace(measurement, energy=own)


def non_dominated(costs: Sequence[tuple[float, float]]) -> list[int]:
    """The Pareto front of points of two costs, both to be minimised.

    A point dominates another one that it is below in one cost and not above in the other. Of equal points
    the earliest counts; a point with a cost that is not finite is on no front.

    Args:
        costs: both costs of every point, in any units.

    Returns:
        Indices into ``costs``, by ascending first cost, and so by descending second cost.
    """
    finite = [i for i, point in enumerate(costs) if all(map(math.isfinite, point))]
    front: list[int] = []
    lowest = math.inf
    for i in sorted(finite, key=lambda i: (*costs[i], i)):
        if costs[i][1] < lowest:
            front.append(i)
            lowest = costs[i][1]
    return front


# --- Power over time in one measurement window, as the sensor shows it, in few bytes.

MOST_POINTS = 512
"""Of a series; of more samples, neighbours are joined into their means."""

_TICK_S = 1e-4
_DIGITS = 4  # of the highest power: joules are never made from a series
_SEVEN, _MORE = 0x7F, 0x80  # bits of a number in a byte, and that another byte follows
_LARGEST = 2**53
_LEAST_EXPONENT, _MOST_EXPONENT = -6, 30
_MOST_BYTES = 10 * (2 * MOST_POINTS + 2)


@dataclass(frozen=True)
class PowerSeries:
    """Power over time.

    Attributes:
        times_s: of the points, from the begin of the window; negative ones lie before it.
        watts: power at each point, of an energy counter the mean up to the next one. As the sensor shows it:
            lag and averaging are in it.
    """

    times_s: tuple[float, ...]
    watts: tuple[float, ...]

    def packed(self) -> str:
        """The series as text: times to 0.1 ms, power to four digits of the highest, differences as varints.

        The first number is the exponent of the step of power, the second counts the points.
        """
        if not self.times_s:
            return ""
        exponent = _step_exponent(max(map(abs, self.watts)))
        ticks = [round(time_s / _TICK_S) for time_s in self.times_s]
        steps = [round(watts / 10.0**exponent) for watts in self.watts]
        numbers = [exponent, len(ticks), *_differences(ticks), *_differences(steps)]
        return base64.b64encode(b"".join(map(_varint, numbers))).decode()


def series_of(points: Sequence[tuple[float, float]]) -> PowerSeries:
    """The series of (time in s, power in W), the oldest first; see ``MOST_POINTS``."""
    group = max(1, math.ceil(len(points) / MOST_POINTS))
    parts = [points[i : i + group] for i in range(0, len(points), group)]
    return PowerSeries(
        tuple(part[0][0] for part in parts), tuple(sum(w for _, w in part) / len(part) for part in parts)
    )


def mean_powers(ticks: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Mean power in W from each tick of an energy counter to the next, with the time of the tick.

    A counter that restarts, or a tick that is not later than the one before, leaves a gap.

    Args:
        ticks: (time in s, joules), the oldest first.
    """
    return [
        (time_s, (after_j - before_j) / (next_s - time_s))
        for (time_s, before_j), (next_s, after_j) in pairwise(ticks)
        if next_s > time_s and after_j >= before_j
    ]


def unpacked(text: str) -> PowerSeries:
    """The series of a packed text.

    Raises:
        ValueError: ``PowerSeries.packed`` did not write it.
    """
    try:
        numbers = list(_numbers(base64.b64decode(text, validate=True)))
    except binascii.Error as error:
        raise ValueError("a power series is not base64") from error
    if not numbers:
        return PowerSeries((), ())
    exponent, count, *values = numbers if len(numbers) > 1 else (0, 0)
    if not 0 < count <= MOST_POINTS or len(values) != 2 * count or abs(exponent) > _MOST_EXPONENT:
        raise ValueError("a power series has another form")
    times = tuple(round(tick * _TICK_S, 4) for tick in _sums(values[:count]))
    watts = tuple(round(step * 10.0**exponent, max(0, -exponent)) for step in _sums(values[count:]))
    return PowerSeries(times, watts)


def _step_exponent(highest_w: float) -> int:
    if highest_w <= 0:
        return _LEAST_EXPONENT
    return max(math.floor(math.log10(highest_w)) + 1 - _DIGITS, _LEAST_EXPONENT)


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for value, before in zip(values, [0, *values[:-1]], strict=True)]


def _sums(differences: Sequence[int]) -> Iterator[int]:
    total = 0
    for step in differences:
        total += step
        yield total


def _varint(number: int) -> bytes:
    """A whole number in seven bits a byte, its sign in the lowest bit."""
    rest, bits = (2 * number if number >= 0 else -2 * number - 1), bytearray()
    while rest > _SEVEN:
        bits.append(rest & _SEVEN | _MORE)
        rest >>= 7
    return bytes([*bits, rest])


def _numbers(data: bytes) -> Iterator[int]:
    if len(data) > _MOST_BYTES:
        raise ValueError("a power series is too long")
    number, shift = 0, 0
    for byte in data:
        number |= (byte & _SEVEN) << shift
        shift += 7
        if number > _LARGEST:
            raise ValueError("a power series has a number that is too large")
        if not byte & _MORE:
            yield number >> 1 if number % 2 == 0 else -(number + 1 >> 1)
            number, shift = 0, 0
    if shift:
        raise ValueError("a power series has no end")
