"""Energy counters: ticks with dates, and energy up to any time."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from ..base import SensorInfo
from ..response.models import Array, energy_weights_s
from .samples import SampleSeries, Spread, median, sample_variances_w2

_FEW = 4  # of fewer ticks no rhythm is taken
_JITTER = 0.002  # of the period: standard deviation of a tick from its rhythm; an H200's show half of it
_PERIODS = 2001  # trial values of the period
_STEADY = 1e-5  # of a period: no two clocks of two crystals agree better
_AGREES = 4.0  # standard uncertainties that two recordings' periods may be apart
_HALF_WIDTH = 3.0**0.5  # of a rectangular distribution, in its standard deviations
_WINDOWS = 32  # whose noise is kept
_CALM = 4  # a quarter of them: so many at least have a steady load, or noise is taken for larger than it is
_ONE_VOTE = 10.0  # a window's log-likelihood ratio counts as no more
_BRIDGED = 0.07  # of a period: where a pause leaves the next tick less certain, ticks are not counted over it
_MISSED = 0.2  # of a period: a tick farther from where it was due is of another rhythm


@dataclass(frozen=True)
class Period:
    """Time between two ticks of a sensor, with its standard uncertainty; it outlives a recording."""

    seconds: float
    sigma_s: float


def on_rhythm(trace: SampleSeries, earlier: Period | None = None) -> tuple[SampleSeries, Period | None]:
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
        earlier: the period that earlier recordings found.

    Returns:
        The trace with the fitted times, and the period this recording found by itself; the same trace, and
        None, where its times are exact or no rhythm fits.
    """
    if len(trace) < _FEW or not trace.time_sigmas_s.any():
        return trace, None
    period_s = median(np.diff(trace.times_s))
    dated = trace.at(trace.time_sigmas_s * _HALF_WIDTH < period_s / 4.0)
    if len(dated) < _FEW:
        return trace, None
    numbers = np.concatenate(([0.0], np.cumsum(np.round(np.diff(dated.times_s) / period_s))))
    alone = _rhythm(dated, numbers, _JITTER * period_s)
    if alone is None:
        return trace, None
    first_s, period = _rhythm(dated, numbers, _JITTER * period_s, earlier) or alone if earlier else alone
    jitters_s = np.full(len(dated), _JITTER * period.seconds)
    times_s = first_s + numbers * period.seconds
    ticks = SampleSeries(times_s, dated.values, jitters_s, period.sigma_s / period.seconds)
    return ticks.at(dated.time_sigmas_s < 2.0 * median(dated.time_sigmas_s)), alone[1]


def _rhythm(
    ticks: SampleSeries, numbers: Array, jitter_s: float, earlier: Period | None = None
) -> tuple[float, Period] | None:
    """Start and period over the polygon; None where it is empty."""
    half_s = ticks.time_sigmas_s * _HALF_WIDTH + _HALF_WIDTH * jitter_s
    count = max(numbers[-1], 1.0)
    reach_s = (half_s[0] + half_s[-1]) / count
    middle_s = ticks.duration_s / count
    periods_s = middle_s + np.linspace(-reach_s, reach_s, _PERIODS)
    if earlier is not None:
        near_s = earlier.seconds + earlier.sigma_s * np.linspace(-_AGREES, _AGREES, _PERIODS)
        periods_s = near_s[np.abs(near_s - middle_s) <= reach_s]
        if len(periods_s) == 0:
            return None
    starts_s = ticks.times_s - np.outer(periods_s, numbers)  # what t0 each tick's own time asks for
    latest_s, earliest_s = np.min(starts_s + half_s, axis=1), np.max(starts_s - half_s, axis=1)
    room_s = np.maximum(latest_s - earliest_s, 0.0)
    if earlier is not None:
        room_s = room_s * np.exp(-(((periods_s - earlier.seconds) / earlier.sigma_s) ** 2) / 2.0)
    if not room_s.any():
        return None
    period_s = float(np.average(periods_s, weights=room_s))
    sigma_s = float(np.sqrt(np.average((periods_s - period_s) ** 2, weights=room_s)))
    first_s = float(np.average((latest_s + earliest_s) / 2.0, weights=room_s))
    return first_s, Period(period_s, max(sigma_s, _STEADY * period_s))


class SensorHistory:
    """Noise, correlation and period of one sensor, learned from its recordings.

    A tick is dated to some milliseconds whatever the recording's length, so the period is the surer the
    farther apart the ticks are that it is taken from: ticks are counted over pauses, from the first recording
    on, as long as the period is known well enough to count them.
    """

    def __init__(self) -> None:
        self._noise: deque[Spread] = deque(maxlen=_WINDOWS)
        self._likelihoods: deque[Array] = deque(maxlen=_WINDOWS)
        self._anchor_s = 0.0
        self._last_s = 0.0
        self._count = 0
        self.period: Period | None = None

    @property
    def noise(self) -> Spread | None:
        """Variance of a sample in units of its power squared (of a tick: seconds squared); None at first.

        A window that scatters more than one of the calmest quarter by more than chance had an unsteady load.
        """
        if not self._noise:
            return None
        calm = sorted(self._noise, key=lambda spread: spread.variance)[len(self._noise) // _CALM]
        usual = [spread for spread in self._noise if not spread.exceeds(calm)]
        degrees = math.fsum(spread.degrees for spread in usual)
        squares = math.fsum(spread.variance * spread.degrees for spread in usual)
        return Spread(squares / degrees, degrees)

    def add_noise(self, spread: Spread) -> None:
        """Add the relative noise of a window."""
        if spread.degrees > 0 and math.isfinite(spread.variance):
            self._noise.append(spread)

    @property
    def correlation(self) -> tuple[Array | None, int]:
        """Log-likelihoods of the noise's correlation times (``correlation``), and of how many windows."""
        count = len(self._likelihoods)
        return (np.sum(np.stack(self._likelihoods), axis=0), count) if count else (None, 0)

    def add_correlation(self, likelihoods: Array) -> None:
        """Add what a window told of the times; some with an unsteady load must not outvote all others."""
        if np.isfinite(likelihoods).all():
            self._likelihoods.append(
                likelihoods * min(1.0, _ONE_VOTE / max(float(likelihoods.max()), _ONE_VOTE))
            )

    def add_ticks(self, first_s: float, last_s: float, sigma_s: float, own: Period) -> None:
        """Add the first and last tick of a recording.

        Args:
            first_s: time of the first tick.
            last_s: time of the last.
            sigma_s: standard uncertainty that ticks are dated with.
            own: the period this recording found by itself.
        """
        if self.period is not None and self._anchor_s <= first_s and last_s <= self._last_s:
            return  # another window of a recording that was told of
        between = self._between(first_s)
        if between is None:
            self._anchor_s, self._count = first_s, 0
        else:
            self._count += between
        self._last_s = last_s
        period = own if self.period is None or between is None else self.period
        self._count += round((last_s - first_s) / period.seconds)
        counted = own
        if self._count > 0:
            seconds = (last_s - self._anchor_s) / self._count
            counted = Period(seconds, math.sqrt(2.0) * sigma_s / self._count)
        self.period = min((counted, own), key=lambda period: period.sigma_s)

    def _between(self, first_s: float) -> int | None:
        """Ticks since the last recording's last; None where they cannot be counted."""
        if self.period is None or first_s <= self._last_s:
            return None
        ticks = (first_s - self._last_s) / self.period.seconds
        count = round(ticks)
        if count * self.period.sigma_s > _BRIDGED * self.period.seconds or abs(ticks - count) > _MISSED:
            return None
        return count


_UNKNOWN_AGE = 0.1  # of the period: what ticks of an H200, every 100 ms, count is up to 9 ms older than they


def unknown_age_s(info: SensorInfo) -> float:
    """Return the unknown part of the age of a tick's number, in s; 0 unless the response is assumed."""
    return _UNKNOWN_AGE * info.period_s if info.response.origin == "assumed" else 0.0


def age_variance_s2(info: SensorInfo) -> float:
    """Variance of the age of a tick's number: by the response, and by what nobody has calibrated."""
    return info.response.age_sigma_s**2 + unknown_age_s(info) ** 2 / 3.0


# --- Energy up to any time from a power reading, whatever power does.
#
# The energy up to each sample is a weighted sum of the samples (``response.models``), and so is that up to
# a time between two samples, which is found in one of three ways. *Inside*: power stays the same from one
# sample to the next. *At a program's start*: up to it power is what it was before, and the rest of the energy
# between the two samples came after it. *At its end*: from there on power is what it is afterwards. The
# uncertainty of a sum is the noise of its samples, what the ways differ by, and the age of the reading.

_TRIPLE = 3
_NEAR = 3  # gaps between samples that tell the power next to a time: one alone is mostly noise, overshoots;
_NEAR_S = 0.06  # but what is further off than this says nothing
_SQRT_3 = 3.0**0.5


@dataclass(frozen=True)
class EnergyPoint:
    """The energy up to a time.

    Attributes:
        weights_s: weights of the samples it is the sum of, shape (n,).
        doubt_j: standard uncertainty of what lies between two samples.
        shown_w: what the reading shows there.
    """

    weights_s: Array
    doubt_j: float
    shown_w: float


class EnergyCurve:
    """Energy over time from a power reading.

    Args:
        samples: uncorrected.
        info: the reading.
    """

    def __init__(self, samples: SampleSeries, info: SensorInfo) -> None:
        self._samples = samples.earlier(info.response.delay_s)
        self._info = info
        self._variances_w2 = sample_variances_w2(samples, info)
        self._places: dict[int, Array] = {}
        self._near = max(1, round(min(_NEAR, _NEAR_S / info.period_s))) if info.period_s else 1

    def covers(self, start_s: float, end_s: float) -> bool:
        """True where there are samples before and after."""
        times = self._samples.times_s
        return len(times) >= _TRIPLE and bool(times[0] <= start_s < end_s <= times[-1])

    def joules(self, start: EnergyPoint, end: EnergyPoint) -> tuple[float, float]:
        """Energy from one place to another, and its variance."""
        weights = end.weights_s - start.weights_s
        aged_j = self._info.response.age_sigma_s * (end.shown_w - start.shown_w)
        variance_j2 = float(weights**2 @ self._variances_w2)
        variance_j2 += start.doubt_j**2 + end.doubt_j**2 + aged_j**2
        return float(weights @ self._samples.values), variance_j2

    def inside(self, time_s: float) -> EnergyPoint:
        """The place of a time between the first sample and the last."""
        i, share, step_s = self._gap(time_s)
        weights = (1.0 - share) * self._up_to(i) + share * self._up_to(i + 1)
        change_w = (
            self._slope(i + 1, i + 1 + self._near) - self._slope(i - self._near, i)
        ) @ self._samples.values
        return self._place(weights, share * (1.0 - share) * step_s * float(change_w) / _SQRT_3, time_s)

    def at_start(self, time_s: float) -> EnergyPoint:
        """The place of the start of something that draws nothing before it."""
        i, share, step_s = self._gap(time_s)
        before = self._up_to(i) + share * step_s * self._slope(i - self._near, i)
        return self._of_two(before, time_s)

    def at_end(self, time_s: float) -> EnergyPoint:
        """The place of the end of something that draws nothing after it."""
        i, share, step_s = self._gap(time_s)
        after = self._up_to(i + 1) - (1.0 - share) * step_s * self._slope(i + 1, i + 1 + self._near)
        return self._of_two(after, time_s)

    def before(self, time_s: float, start_s: float) -> tuple[float, float]:
        """Energy from a time to the start of something that draws nothing before it, and its variance."""
        i = self._gap(start_s)[0]
        if time_s < self._samples.times_s[i]:
            return self.joules(self.inside(time_s), self.at_start(start_s))
        return self._steady(self._slope(i - self._near, i), self._slope(i, i + 1), start_s - time_s)

    def after(self, end_s: float, time_s: float) -> tuple[float, float]:
        """Energy from the end of something that draws nothing after it to a time, and its variance."""
        i = self._gap(end_s)[0]
        if time_s > self._samples.times_s[i + 1]:
            return self.joules(self.at_end(end_s), self.inside(time_s))
        return self._steady(self._slope(i + 1, i + 1 + self._near), self._slope(i, i + 1), time_s - end_s)

    def watts(self, time_s: float) -> float:
        """Mean power around a time."""
        i = self._gap(time_s)[0]
        return float(self._slope(i - self._near, i + 1 + self._near) @ self._samples.values)

    def _steady(self, power: Array, other: Array, duration_s: float) -> tuple[float, float]:
        """Energy of some time within a gap at one power, which may have been another, and its variance."""
        weights, doubt_j = duration_s * power, duration_s * float((power - other) @ self._samples.values)
        variance_j2 = float(weights**2 @ self._variances_w2) + doubt_j**2 / 3.0
        return float(weights @ self._samples.values), variance_j2

    def _of_two(self, weights: Array, time_s: float) -> EnergyPoint:
        other = self.inside(time_s)
        apart_j = float((weights - other.weights_s) @ self._samples.values) / _SQRT_3
        return self._place(weights, math.hypot(apart_j, other.doubt_j), time_s)

    def _place(self, weights: Array, doubt_j: float, time_s: float) -> EnergyPoint:
        shown_w = float(np.interp(time_s, self._samples.times_s, self._samples.values))
        return EnergyPoint(weights, abs(doubt_j), shown_w)

    def _gap(self, time_s: float) -> tuple[int, float, float]:
        """The sample before a time, the share of the gap to the next one that is past, and that gap."""
        times = self._samples.times_s
        i = int(np.clip(np.searchsorted(times, time_s, side="right") - 1, 0, len(times) - 2))
        step_s = float(times[i + 1] - times[i])
        return i, float(np.clip((time_s - times[i]) / step_s, 0.0, 1.0)), step_s

    def _up_to(self, index: int) -> Array:
        """Weights of the energy from the first sample to another, shape (n,)."""
        if index not in self._places:
            weights = np.zeros(len(self._samples))
            weights[: index + 1] = energy_weights_s(self._samples.times_s[: index + 1], self._info.response)
            self._places[index] = weights
        return self._places[index]

    def _slope(self, first: int, last: int) -> Array:
        """Weights of the mean power from one sample to another; at an end of the trace, of its sample."""
        first, last = max(first, 0), min(last, len(self._samples) - 1)
        if first >= last:
            weights = np.zeros(len(self._samples))
            weights[min(first, last)] = 1.0
            return weights
        step_s = self._samples.times_s[last] - self._samples.times_s[first]
        return np.asarray((self._up_to(last) - self._up_to(first)) / step_s)
