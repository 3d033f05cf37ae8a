"""The rhythm of a counter: regular times of its ticks from the intervals that polling found them in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.interfaces import Sample

from ..response.correction import Array

_RESOLVED_S = 1e-9  # what a host's clock tells apart
_FEW = 4  # of fewer ticks no rhythm is taken
_JITTER = (
    0.002  # standard deviation of a tick from its rhythm, of the period; an H200's ticks show half of it
)
_PERIODS = 2001  # trial values of the period
_STEADY = 1e-5  # of a period: no two clocks of two crystals agree better
_AGREES = 4.0  # standard uncertainties that two recordings' periods may be apart
_HALF_WIDTH = 3.0**0.5  # of a rectangular distribution, in its standard deviations


@dataclass(frozen=True)
class Trace:
    """Samples as arrays of shape (n,), oldest first.

    Attributes:
        times_s: times of the sensor's updates.
        values: watts, or joules of a counter.
        time_sigmas_s: standard uncertainties of the times, independent of each other.
        scale_sigma: relative standard uncertainty common to all time between samples.
    """

    times_s: Array
    values: Array
    time_sigmas_s: Array
    scale_sigma: float = 0.0

    @staticmethod
    def of(samples: Sequence[Sample]) -> "Trace":
        """Collect samples; one that is not later than all before it, by a nanosecond, is left out."""
        rows = np.array([(s.time_s, s.value, s.time_sigma_s) for s in samples], dtype=np.float64)
        rows = rows.reshape(-1, 3)
        if len(rows):
            latest = np.maximum.accumulate(rows[:, 0])
            rows = rows[np.concatenate(([True], rows[1:, 0] > latest[:-1] + _RESOLVED_S))]
        return Trace(rows[:, 0], rows[:, 1], rows[:, 2])

    def __len__(self) -> int:
        return len(self.times_s)

    def at(self, which: npt.NDArray[np.bool_] | list[int]) -> "Trace":
        """The samples of a mask, or of a list of indices."""
        return replace(
            self,
            times_s=self.times_s[which],
            values=self.values[which],
            time_sigmas_s=self.time_sigmas_s[which],
        )

    def between(self, start_s: float, end_s: float) -> "Trace":
        """The samples from ``start_s`` to ``end_s``."""
        return self.at((self.times_s >= start_s) & (self.times_s <= end_s))

    def earlier(self, seconds: float) -> "Trace":
        """The samples at times ``seconds`` before theirs."""
        return replace(self, times_s=self.times_s - seconds) if seconds else self

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return float(self.times_s[-1] - self.times_s[0]) if len(self) else 0.0


@dataclass(frozen=True)
class Period:
    """Time between two ticks of a sensor, with its standard uncertainty; it outlives a recording."""

    seconds: float
    sigma_s: float


def on_rhythm(trace: Trace, known: Period | None = None) -> tuple[Trace, Period | None]:
    """The ticks of a counter at the times of a regular rhythm, if one agrees with all that is known of them.

    A tick dated by polling lies anywhere in an interval around its time, sqrt(3) standard uncertainties wide
    to either side. The pairs of a start t0 and a period T that put every tick t0 + n T into its interval form
    a polygon, all of whose points are as likely, unless earlier recordings have told of T: then each counts
    by the normal density of its T. Times and period are those of the polygon's centre, and T's standard
    deviation over it, which is common to all times between ticks, becomes ``scale_sigma``. It is the smaller
    the more ticks there are. Left out are ticks known to less than half a period, as the first after a
    pause, and ticks of twice the usual interval: what delays a read delays a tick's update too.

    Args:
        trace: the ticks.
        known: the period that earlier recordings found.

    Returns:
        The trace with the fitted times, and the period this recording found by itself; the same trace, and
        None, where its times are exact or no rhythm fits.
    """
    if len(trace) < _FEW or not trace.time_sigmas_s.any():
        return trace, None
    period_s = float(np.median(np.diff(trace.times_s)))
    dated = trace.at(trace.time_sigmas_s * _HALF_WIDTH < period_s / 4.0)
    if len(dated) < _FEW:
        return trace, None
    numbers = np.concatenate(([0.0], np.cumsum(np.round(np.diff(dated.times_s) / period_s))))
    alone = _rhythm(dated, numbers, _JITTER * period_s)
    if alone is None:
        return trace, None
    first_s, period = _rhythm(dated, numbers, _JITTER * period_s, known) or alone if known else alone
    jitters_s = np.full(len(dated), _JITTER * period.seconds)
    times_s = first_s + numbers * period.seconds
    ticks = Trace(times_s, dated.values, jitters_s, period.sigma_s / period.seconds)
    return ticks.at(dated.time_sigmas_s < 2.0 * np.median(dated.time_sigmas_s)), alone[1]


def _rhythm(
    ticks: Trace, numbers: Array, jitter_s: float, known: Period | None = None
) -> tuple[float, Period] | None:
    """Start and period over the polygon; None where it is empty."""
    half_s = ticks.time_sigmas_s * _HALF_WIDTH + _HALF_WIDTH * jitter_s
    count = max(numbers[-1], 1.0)
    reach_s = (half_s[0] + half_s[-1]) / count
    middle_s = ticks.duration_s / count
    periods_s = middle_s + np.linspace(-reach_s, reach_s, _PERIODS)
    if known is not None:
        near_s = known.seconds + known.sigma_s * np.linspace(-_AGREES, _AGREES, _PERIODS)
        periods_s = near_s[np.abs(near_s - middle_s) <= reach_s]
        if len(periods_s) == 0:
            return None
    starts_s = ticks.times_s - np.outer(periods_s, numbers)  # what t0 each tick's own time asks for
    latest_s, earliest_s = np.min(starts_s + half_s, axis=1), np.max(starts_s - half_s, axis=1)
    room_s = np.maximum(latest_s - earliest_s, 0.0)
    if known is not None:
        room_s = room_s * np.exp(-(((periods_s - known.seconds) / known.sigma_s) ** 2) / 2.0)
    if not room_s.any():
        return None
    period_s = float(np.average(periods_s, weights=room_s))
    sigma_s = float(np.sqrt(np.average((periods_s - period_s) ** 2, weights=room_s)))
    first_s = float(np.average((latest_s + earliest_s) / 2.0, weights=room_s))
    return first_s, Period(period_s, max(sigma_s, _STEADY * period_s))
