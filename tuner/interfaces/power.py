"""The borders to power sensors and clocks."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

LEAST_W = -2.0  # an INA238 without load has shown -0.4 W by its offset; no rail gives back more
MOST_W = 5000.0  # more than any module draws; a driver in trouble answers with all ones
_MOST_J = 1e15  # more than any counter has counted; its origin may be anything
_FORGOTTEN = 7.0  # time constants, until less than 0.1 % of a short program's energy is still to be shown


@dataclass(frozen=True)
class Response:
    """How a power reading follows the true power.

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
        """How long a lag takes to forget what was before; 0 without a lag."""
        return _FORGOTTEN * self.capacitance_s

    @property
    def lasting_s(self) -> float:
        """How long a reading goes on showing what has ended, beyond its delay."""
        return max(self.settling_s, self.window_s)

    @property
    def memory_s(self) -> float:
        """How long after its end a reading shows a program; its delay may be negative, its memory is not."""
        return max(0.0, self.delay_s + self.lasting_s)


@dataclass(frozen=True)
class SensorInfo:
    """What is known of a power reading.

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
        """What is known of this reading."""

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
        """Whole watts that may be set, highest first; empty where none may."""


class ClockControl(Protocol):
    """Reads, and when the user asked for it sets, the GPU clock."""

    def supported_mhz(self) -> tuple[int, ...]:
        """Clocks that can be locked, highest first; empty where none can."""

    def read(self) -> ClockReading:
        """Present clock and throttle reasons; never changes anything."""

    def locked(self, mhz: int) -> AbstractContextManager[None]:
        """Hold the GPU at ``mhz`` while the block runs and restore what was there, on every way out.

        Raises:
            ClockPermissionError: this process may not set clocks.
            ClockError: the clock is not supported, or could not be set or restored.
        """

    def close(self) -> None:
        """Restore if needed and release."""


class PowerLimitControl(Protocol):
    """Reads the power limit of one GPU, and sets it when the user asked for that.

    Opening and reading change nothing.
    """

    def supported_w(self) -> tuple[int, ...]:
        """Whole watts that may be set, highest first; empty where none may.

        None is above the default or the limit as found, or outside the range of the driver or of the
        administrator.
        """

    def read_w(self) -> float | None:
        """The limit that is set now, in watts; None where it is not told."""

    def locked(self, watts: int) -> AbstractContextManager[None]:
        """Hold the GPU at a limit while the block runs and restore what was there, on every way out.

        Raises:
            ClockPermissionError: this process may not set power limits.
            ClockLostError: the limit was not held to the end of the block.
            ClockError: the limit is not supported, or could not be set or restored.
        """

    def close(self) -> None:
        """Restore if needed and release."""
