"""The borders to power sensors, meters and clocks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol


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
    """

    name: str
    kind: Literal["counter", "ring", "stream"]
    scope: str
    period_s: float
    poll_interval_s: float = 0.0
    resolution: float = 0.0
    response: Response = Response()


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
    """GPU clock and what holds it back: ``mhz`` is None where it cannot be read."""

    mhz: float | None
    throttle_reasons: tuple[str, ...] = ()


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
    """

    watts: float
    uncertainty_w: float
    sensor: str
    scope: str
    notes: tuple[str, ...] = ()
    degrees: float | None = None


class Recording(Protocol):
    """Samples being collected; asked for windows after it has ended."""

    @property
    def problem(self) -> str:
        """Why the latest ``reading`` was None; empty where it was not."""

    def reading(self, start_s: float, end_s: float) -> PowerReading | None:
        """Mean power between two times; None when the sensor gave too little for an answer, see ``problem``.

        Raises:
            PowerError: the sensor stopped answering while the recording was made.
        """

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Median clock and all throttle reasons seen between two times."""

    def joules(self) -> float:
        """Energy of the whole recording, best estimate; 0.0 without samples."""

    def samples(self) -> Sequence[Sample]:
        """Every fresh sample of the recording as the sensor gave it, oldest first."""


class Meter(Protocol):
    """Sensor to joules: sampler, response model and integration."""

    @property
    def info(self) -> SensorInfo:
        """The reading in use."""

    def recording(self) -> AbstractContextManager[Recording]:
        """Collect samples while the block runs."""

    def close(self) -> None:
        """Release the sensor."""


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
