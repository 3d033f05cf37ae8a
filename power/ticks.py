"""The rhythm of a counter: regular times of its ticks from the intervals that polling found them in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.interfaces import Sample

from .response import Array

_FEW = 4  # of fewer ticks no rhythm is taken
_JITTER = (
    0.002  # standard deviation of a tick from its rhythm, of the period; an H200's ticks show half of it
)
_PERIODS = 2001  # trial values of the period
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
        """Collect samples; one that is not later than its predecessor is left out."""
        rows = np.array([(s.time_s, s.value, s.time_sigma_s) for s in samples], dtype=np.float64)
        rows = rows.reshape(-1, 3)
        if len(rows):
            latest = np.maximum.accumulate(rows[:, 0])
            rows = rows[np.concatenate(([True], rows[1:, 0] > latest[:-1]))]
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

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return float(self.times_s[-1] - self.times_s[0]) if len(self) else 0.0


def on_rhythm(trace: Trace) -> Trace:
    """The ticks of a counter at the times of a regular rhythm, if one agrees with all that is known of them.

    A tick dated by polling lies anywhere in an interval around its time, sqrt(3) standard uncertainties wide
    to either side. The pairs of a start t0 and a period T that put every tick t0 + n T into its interval form
    a polygon, all of whose points are as likely. Times and period are those of the polygon's centre, and T's
    standard deviation over it, which is common to all times between ticks, becomes ``scale_sigma``. It is
    the smaller the more ticks there are. Left out are ticks known to less than half a period, as the first
    after a pause, and ticks of twice the usual interval: what delays a read delays a tick's update too.

    Returns:
        The trace with the fitted times; the same trace where its times are exact or no rhythm fits.
    """
    if len(trace) < _FEW or not trace.time_sigmas_s.any():
        return trace
    period_s = float(np.median(np.diff(trace.times_s)))
    known = trace.at(trace.time_sigmas_s * _HALF_WIDTH < period_s / 4.0)
    if len(known) < _FEW:
        return trace
    numbers = np.concatenate(([0.0], np.cumsum(np.round(np.diff(known.times_s) / period_s))))
    fitted = _rhythm(known, numbers, _JITTER * period_s)
    if fitted is None:
        return trace
    first_s, mean_s, sigma_s = fitted
    jitters_s = np.full(len(known), _JITTER * mean_s)
    ticks = Trace(first_s + numbers * mean_s, known.values, jitters_s, sigma_s / mean_s)
    return ticks.at(known.time_sigmas_s < 2.0 * np.median(known.time_sigmas_s))


def _rhythm(ticks: Trace, numbers: Array, jitter_s: float) -> tuple[float, float, float] | None:
    """Start, period and the period's standard deviation, over the polygon; None where it is empty."""
    half_s = ticks.time_sigmas_s * _HALF_WIDTH + _HALF_WIDTH * jitter_s
    count = max(numbers[-1], 1.0)
    reach_s = (half_s[0] + half_s[-1]) / count
    periods_s = ticks.duration_s / count + np.linspace(-reach_s, reach_s, _PERIODS)
    starts_s = ticks.times_s - np.outer(periods_s, numbers)  # what t0 each tick's own time asks for
    latest_s, earliest_s = np.min(starts_s + half_s, axis=1), np.max(starts_s - half_s, axis=1)
    room_s = np.maximum(latest_s - earliest_s, 0.0)
    if not room_s.any():
        return None
    period_s = float(np.average(periods_s, weights=room_s))
    sigma_s = float(np.sqrt(np.average((periods_s - period_s) ** 2, weights=room_s)))
    first_s = float(np.average((latest_s + earliest_s) / 2.0, weights=room_s))
    return first_s, period_s, sigma_s
