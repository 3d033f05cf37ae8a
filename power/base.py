"""The borders to meters: mean power of windows, idle levels, joules of programs."""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tuner.interfaces.power import ClockReading, Sample, SensorInfo

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
        """Why the latest ``reading`` was None; empty where it was not."""

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
        """What was spent after an earlier reading of the same meter."""
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
        """How long the program ran."""
        return self.ended_s - self.started_s


@dataclass(frozen=True)
class ProgramEnergy:
    """What a reading says of a program. Uncertainties are standard uncertainties of noise and timing.

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
class CorrectedPower:
    """Power over time as a reading shows it and as it was; all arrays have shape (n,).

    Attributes:
        times_s: times of the samples.
        shown_w: power as the sensor shows it.
        corrected_w: power corrected for the sensor's response.
        age_s: how much older the corrected power is than its samples.
    """

    times_s: "npt.NDArray[np.float64]"
    shown_w: "npt.NDArray[np.float64]"
    corrected_w: "npt.NDArray[np.float64]"
    age_s: float


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
        """How long it is."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class SpanEnergy:
    """What the readings of a device say of a span.

    Attributes:
        joules: energy.
        sigma_j: its standard uncertainty (noise, timing, and what no sensor saw at the ends).
        peak_w: highest corrected power over ``peak_window_s``; None where too few samples tell.
        peak_window_s: see ``peak_w``.
        sensor: the readings.
        scope: what they see.
        notes: what was not as it should be.
    """

    joules: float
    sigma_j: float
    peak_w: float | None
    peak_window_s: float
    sensor: str
    scope: str
    notes: tuple[str, ...] = ()


class EnergyTotal(Protocol):
    """Joules of a reading while it goes on, in constant memory."""

    @property
    def last(self) -> Sample | None:
        """The latest sample; None before the first."""

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""

    def add(self, samples: Iterable[Sample]) -> None:
        """Take in samples, oldest first; one that is not later than the last is left out."""

    def joules(self, info: SensorInfo) -> tuple[float, float] | None:
        """Energy from the first sample to the last and its standard uncertainty; None of fewer than two."""
