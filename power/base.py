"""The border to power: readings, clocks, power limits, meters and joules."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

# --- The borders to power sensors and clocks.

LEAST_W = -2.0  # an INA238 without load has shown -0.4 W by its offset; no rail gives back more
MOST_W = 5000.0  # more than any module draws; a driver in trouble answers with all ones
_MOST_J = 1e15  # more than any counter has counted; its origin may be anything
_FORGOTTEN = 7.0  # time constants, until less than 0.1 % of a short program's energy is still to be shown


@dataclass(frozen=True)
class Response:
    """Response of a power reading to the true power.

    Attributes:
        kind: ``identity`` shows the present power. ``lag`` is a first-order low pass. ``boxcar`` is a mean
            over at most one update period, so that what lies between two windows is never seen. ``ramp`` is a
            running mean over several periods, which answers a step with a ramp.
        capacitance_s: C of equation (6) of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware
            Optimization": time constant of a lag; 0 for every other kind.
        window_s: length of the mean of a boxcar or ramp; 0 for every other kind.
        delay_s: age of the power a fresh sample shows, beyond lag and window; negative where samples are
            dated too early.
        capacitance_sigma_s: standard uncertainty of C.
        window_sigma_s: standard uncertainty of the window.
        delay_sigma_s: standard uncertainty of the delay.
        origin: ``assumed`` without measurement, ``published`` for this model of GPU, or ``calibrated`` on
            this very one.
        averages: False where the mean reading of a periodic load need not be its mean power (aliasing), or
            where the reading does not follow the load at all.
    """

    kind: Literal["identity", "lag", "boxcar", "ramp"] = "identity"
    capacitance_s: float = 0.0
    window_s: float = 0.0
    delay_s: float = 0.0
    capacitance_sigma_s: float = 0.0
    window_sigma_s: float = 0.0
    delay_sigma_s: float = 0.0
    origin: Literal["assumed", "published", "calibrated"] = "assumed"
    averages: bool = True

    @property
    def mean_age_s(self) -> float:
        """Age of steady power's energy in what a reading shows, beyond its delay."""
        return self.capacitance_s + self.window_s / 2.0

    @property
    def age_sigma_s(self) -> float:
        """Standard uncertainty of the age of what a reading shows."""
        return math.hypot(self.capacitance_sigma_s, self.window_sigma_s / 2.0, self.delay_sigma_s)

    @property
    def settling_s(self) -> float:
        """Time in which a lag forgets past power, in s; 0 without a lag."""
        return _FORGOTTEN * self.capacitance_s

    @property
    def lasting_s(self) -> float:
        """Time for which a reading still shows past power, in s, beyond its delay."""
        return max(self.settling_s, self.window_s)

    @property
    def memory_s(self) -> float:
        """Time after its end for which a reading shows a program, in s; never negative, unlike the delay."""
        return max(0.0, self.delay_s + self.lasting_s)


@dataclass(frozen=True)
class SensorInfo:
    """Properties of a power reading.

    Attributes:
        name: e.g. ``nvml-energy-counter``, ``ina3221:VDD_GPU_SOC``.
        kind: ``counter`` gives joules since some origin, ``ring`` and ``stream`` give watts.
        scope: what it sees, e.g. ``gpu``, ``module``, ``VDD_GPU_SOC``.
        period_s: expected time between fresh samples.
        poll_interval_s: how often ``poll`` must be called to miss nothing; 0 when once afterwards will do.
        resolution: smallest step of a reading, in watts (joules for a counter).
        response: how the reading follows power.
        longest_pause_s: how seldom a counter that wraps may be read, not to lose count; 0 for any other.
        may_be_zero: True for a part of a board that may be switched off. A GPU, a processor and a board that
            are read draw power, so that 0 W of them is no reading.
    """

    name: str
    kind: Literal["counter", "ring", "stream"]
    scope: str
    period_s: float
    poll_interval_s: float = 0.0
    resolution: float = 0.0
    response: Response = Response()
    longest_pause_s: float = 0.0
    may_be_zero: bool = False

    def is_reading(self, value: float) -> bool:
        """False for a number that is none, or that nothing of this kind draws or has counted."""
        if self.kind == "counter":
            return abs(value) <= _MOST_J
        return (value >= LEAST_W if self.may_be_zero else value > 0.0) and value <= MOST_W

    @property
    def aliasing(self) -> tuple[str, ...]:
        """A note where the mean of a load that repeats may be shown wrong; none where it is not."""
        if self.response.averages:
            return ()
        why = f"{self.name} does not see all of the time"
        if self.kind == "counter" and self.response.origin != "calibrated":
            why = f"whether {self.name} sees all of the time here is for tuner power calibrate to find"
        return (f"aliasing: {why}, and a periodic load may read wrong",)


@dataclass(frozen=True)
class Sample:
    """One fresh reading of a sensor.

    Attributes:
        time_s: time of the sensor's update.
        value: watts, or joules since some origin for a counter.
        time_sigma_s: standard uncertainty of ``time_s``.
    """

    time_s: float
    value: float
    time_sigma_s: float = 0.0


class PowerSampler(Protocol):
    """A source of fresh samples: each update of the sensor is reported once."""

    @property
    def info(self) -> SensorInfo:
        """Properties of this reading."""

    @property
    def due_s(self) -> float:
        """Time before which ``poll`` finds nothing, on the clock of the samples; 0 where that is unknown."""

    def poll(self) -> list[Sample]:
        """Samples that appeared since the last call, oldest first.

        Raises:
            PowerError: the sensor stopped answering.
        """

    def close(self) -> None:
        """Release the sensor."""


@dataclass(frozen=True)
class Reading:
    """A power reading that may be there; opening it is how one finds out.

    Attributes:
        name: as in ``SensorInfo.name``.
        open: makes its sampler, after a successful read; raises SensorUnavailableError with the reason.
    """

    name: str
    open: Callable[[], PowerSampler]


class PowerSource(Protocol):
    """The truth a simulated sensor looks at: power over time of a simulated device."""

    def now_s(self) -> float:
        """Present time of the simulated device."""

    def power_segments(self, since_s: float) -> Sequence[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now, in order, without gaps."""


@dataclass(frozen=True)
class ClockReading:
    """GPU clock, what holds it back, and the temperature at which it is so.

    Attributes:
        mhz: None where it cannot be read.
        throttle_reasons: why it is below the clock asked for.
        power_limit_w: the power limit in force; None where it is not told.
        limit_scope: the scope of readings that the limit applies to, as in ``SensorInfo.scope``.
        temperature_c: of the chip, in degrees Celsius; None where it is not told.
    """

    mhz: float | None
    throttle_reasons: tuple[str, ...] = ()
    power_limit_w: float | None = None
    limit_scope: str = "gpu"
    temperature_c: float | None = None


class SettableClocks(Protocol):
    """Tells which GPU clocks can be set."""

    def supported_mhz(self) -> tuple[int, ...]:
        """Clocks that can be locked, highest first; empty where none can."""


class SettableLimits(Protocol):
    """Tells which power limits can be set."""

    def supported_w(self) -> tuple[int, ...]:
        """Whole watts that may be set, highest first; empty where none may.

        None is above the default or the limit as found, or outside the range of the driver or of the
        administrator.
        """


class SettingControl(Protocol):
    """Holds one setting of a GPU when the user asked for that; opening and reading change nothing."""

    def locked(self, value: int, /) -> AbstractContextManager[None]:
        """Hold the GPU at a value while the block runs and restore what was there, on every way out.

        Args:
            value: MHz of a clock, watts of a power limit, ID of a power profile.

        Raises:
            ClockPermissionError: this process may not set it.
            ClockLostError: the value was not held to the end of the block.
            ClockError: the value is not supported, or could not be set or restored.
        """

    def close(self) -> None:
        """Restore if needed and release."""


class ClockControl(SettableClocks, SettingControl, Protocol):
    """Reads, and when the user asked for it sets, the GPU clock."""

    def read(self) -> ClockReading:
        """Present clock and throttle reasons; never changes anything."""


class PowerLimitControl(SettableLimits, SettingControl, Protocol):
    """Reads the power limit of one GPU, and sets it when the user asked for that."""

    def read_w(self) -> float | None:
        """The limit that is set now, in watts; None where it is not told."""


class PowerProfileControl(SettingControl, Protocol):
    """Sets the power profile of one GPU when the user asked for that."""

    def names(self) -> dict[str, int]:
        """IDs of the profiles that may be set, by name."""

    def demand_held(self) -> None:
        """Raise a ClockLostError where a profile was asked for that is no longer held."""


# --- Power and joules as they are read, measured and spent.

_DRIFT = 0.01  # of the power: a smaller drift is an idle GPU's own, and told by the uncertainty only


@dataclass(frozen=True)
class PowerReading:
    """Mean power over a window.

    Attributes:
        watts: mean corrected power.
        uncertainty_w: standard uncertainty of it: +- 1.96 of it covers 95 % (statistics and timing, not the
            sensor's gain, which is common to all trials).
        sensor: reading and method, e.g. ``nvml-energy-counter``.
        scope: what the sensor sees.
        notes: what was not as it should be, e.g. ``sensor-gap: ...``; they become flags of a measurement.
        degrees: effective degrees of freedom of the uncertainty; None for many.
        parts: the readings that a sum is made of; empty for that of one sensor.
    """

    watts: float
    uncertainty_w: float
    sensor: str
    scope: str
    notes: tuple[str, ...] = ()
    degrees: float | None = None
    parts: tuple["PowerReading", ...] = ()


class Recording(Protocol):
    """Samples being collected; asked for windows after it has ended."""

    @property
    def problem(self) -> str:
        """Reason that the latest ``reading`` was None; empty if it was not."""

    def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
        """Mean power between two times; None when the sensor gave too little for an answer, see ``problem``.

        Args:
            start_s: begin of the window.
            end_s: its end.
            round_s: period with which the load repeats in it; 0 where that is not known. A period that is in
                step with the sensor's widens the interval.

        Raises:
            PowerError: the sensor stopped answering while the recording was made.
        """

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Median clock and all throttle reasons seen between two times."""

    def joules(self) -> float:
        """Energy of the whole recording, best estimate; 0.0 without samples."""

    def samples(self) -> Sequence[Sample]:
        """Every fresh sample of the recording as the sensor gave it, oldest first."""


@dataclass(frozen=True)
class SpentEnergy:
    """Joules of a time in which nobody looked at the sensor now and then.

    Attributes:
        joules: all of them.
        sigma_j: their standard uncertainty.
        unseen_j: the part that no sample tells: pauses of a reading of power, begin and end.
        unseen_sigma_j: its standard uncertainty, which is part of ``sigma_j``.
        unseen_s: how long those were.
    """

    joules: float
    sigma_j: float
    unseen_j: float = 0.0
    unseen_sigma_j: float = 0.0
    unseen_s: float = 0.0

    def since(self, before: "SpentEnergy") -> "SpentEnergy":
        """Return the energy spent after an earlier reading of the same meter."""
        return SpentEnergy(
            self.joules - before.joules,
            math.sqrt(max(0.0, self.sigma_j**2 - before.sigma_j**2)),
            self.unseen_j - before.unseen_j,
            math.sqrt(max(0.0, self.unseen_sigma_j**2 - before.unseen_sigma_j**2)),
            self.unseen_s - before.unseen_s,
        )


class Meter(Protocol):
    """Sensor to joules: sampler, response model and integration."""

    @property
    def info(self) -> SensorInfo:
        """The reading in use."""

    def recording(self) -> AbstractContextManager[Recording]:
        """Collect samples while the block runs."""

    def spent(self) -> SpentEnergy | None:
        """Joules since the meter was opened, pauses between recordings included; None without samples."""

    def close(self) -> None:
        """Release the sensor."""


@dataclass(frozen=True)
class PowerLevel:
    """Mean power of a time in which it is meant to be steady.

    Attributes:
        watts: the mean; of power that drifts that of the later half, which is nearer to what it settles at.
        sigma_w: its standard uncertainty, which holds all of a drift.
        drift_w: what the later half of the time has more than the earlier one; 0 where that may be noise.
    """

    watts: float
    sigma_w: float
    drift_w: float = 0.0

    @property
    def unsteady(self) -> bool:
        """True when the drift is more than an idle GPU's own."""
        return abs(self.drift_w) > _DRIFT * abs(self.watts)

    @staticmethod
    def between(levels: "Sequence[PowerLevel]") -> "PowerLevel":
        """The idle level of a time around which it was measured, before and after for one.

        A GPU warms up, so levels differ by more than each is uncertain of: what was between them is taken to
        be anywhere from the lowest to the highest.
        """
        watts = [level.watts for level in levels]
        own_w = math.hypot(*(level.sigma_w for level in levels)) / len(levels)
        between_w = (max(watts) - min(watts)) / math.sqrt(12.0)
        drift_w = max((level.drift_w for level in levels), key=abs)
        return PowerLevel(math.fsum(watts) / len(watts), math.hypot(own_w, between_w), drift_w)


@dataclass(frozen=True)
class ProgramTimeline:
    """When what happened around a program, on the clock of the samples.

    Attributes:
        began_s: idle from here on.
        started_s: the program started.
        ended_s: the program ended.
        finished_s: the recording ended.
        idle_after_s: how much of the recording's end is to count as idle, beside what was before.
    """

    began_s: float
    started_s: float
    ended_s: float
    finished_s: float
    idle_after_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Run time of the program, in s."""
        return self.ended_s - self.started_s


@dataclass(frozen=True)
class ProgramEnergy:
    """Energy of a program, from a reading. Uncertainties are standard uncertainties of noise and timing.

    Attributes:
        total_j: energy while the program ran.
        total_sigma_j: its uncertainty.
        net_j: energy beyond what the GPU would have drawn idle in that time.
        net_sigma_j: its uncertainty.
        idle_w: idle power.
        idle_sigma_w: its uncertainty.
        mean_w: total over duration.
        peak_w: highest corrected power over ``peak_window_s``; None for a counter.
        peak_window_s: see ``peak_w``.
        after: power once the program had ended; None where the recording does not tell.
        notes: what was not as it should be.
    """

    total_j: float
    total_sigma_j: float
    net_j: float
    net_sigma_j: float
    idle_w: float
    idle_sigma_w: float
    mean_w: float
    peak_w: float | None
    peak_window_s: float
    after: PowerLevel | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A time whose joules are wanted, on the clock of the samples.

    Attributes:
        start_s: its begin.
        end_s: its end.
        starts: power may jump at its begin; False where it only goes on with another span.
        ends: power may jump at its end; likewise.
    """

    start_s: float
    end_s: float
    starts: bool = True
    ends: bool = True

    @property
    def duration_s(self) -> float:
        """Length of the span, in s."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class SpanEnergy:
    """Energy of a span, from the readings of a device.

    Attributes:
        joules: energy.
        sigma_j: its standard uncertainty (noise, timing, and what no sensor saw at the ends).
        peak_w: highest corrected power over ``peak_window_s``; None where too few samples tell.
        peak_window_s: see ``peak_w``.
        sensor: the readings.
        scope: what they see.
        edges_s: times between which ``watts`` are means, shape (n + 1,), or (0,) of too few samples.
        watts: corrected power by the reading of power, or by the counter alone, shape (n,); NaN where no
            sensor saw it.
        notes: what was not as it should be.
    """

    joules: float
    sigma_j: float
    peak_w: float | None
    peak_window_s: float
    sensor: str
    scope: str
    edges_s: "NDArray[float64]" = field(compare=False, repr=False)
    watts: "NDArray[float64]" = field(compare=False, repr=False)
    notes: tuple[str, ...] = ()


# --- The settings of a GPU that are held for a run: its clocks, its power limit, and its power profile.

POWER_LIMIT = "powerlimit"  # how journal entries and requests name its control: letters alone
POWER_PROFILE = "powerprofile"  # likewise


@dataclass(frozen=True)
class GpuSettingKind:
    """Words for a setting in messages.

    Attributes:
        name: of all of it.
        held: the name with its verb, as in "are held by".
        value: one value of it.
        unit: of a value.
        option: of ``tuner run`` that asks for it.
        reset: option of ``tuner clocks restore`` that gives it back whoever set it.
    """

    name: str
    held: str
    value: str
    unit: str
    option: str
    reset: str


CLOCKS = GpuSettingKind("clocks", "are held", "clock", "MHz", "--clocks", "--reset")
POWER_LIMITS = GpuSettingKind(
    "power limit", "is held", "power limit", "W", "--power-limits", "--reset-power-limit"
)
POWER_PROFILES = GpuSettingKind(
    "power profile", "is held", "power profile", "in its list", "--power-profiles", "--reset-power-profile"
)


SettingState = Mapping[str, str | int | list[int] | None]
"""A setting as it was found, in the words of its control: plain JSON values, as a journal holds them."""


def kind_of(control: str) -> GpuSettingKind:
    """Return the kind of setting that a control sets."""
    return {POWER_LIMIT: POWER_LIMITS, POWER_PROFILE: POWER_PROFILES}.get(control, CLOCKS)


class LoadSource(Protocol):
    """A device that can draw a square wave of power, for calibrating a sensor."""

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Load all of the GPU steadily, then leave it idle, again and again.

        Args:
            pulses: (busy, idle) durations in seconds, played in order.

        Returns:
            (start, end) of each busy time on the clock of ``Device.now_s``, as it really was.

        Raises:
            DeviceError: the load could not be run.
        """

    def now_s(self) -> float:
        """See ``Device.now_s``."""
