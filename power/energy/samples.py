"""Samples of one reading as arrays, and their noise: the one series that all of this package computes with.

Samples that cannot be are left out before anything is computed, and a note tells the reader.

``local_spread``, ``beating_spread`` and ``noise_floor`` take the samples of a window for ones of the same
load. ``sample_variances_w2`` takes them for nothing: power may jump anywhere between them.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tuner.model.distributions import fisher_quantile

from ..base import LEAST_W, MOST_W, Sample, SensorInfo
from ..response.models import Array

_RESOLVED_S = 1e-9  # what a host's clock tells apart

_MOST_S = 1e12  # no clock of a host shows more
_GAP_PERIODS = 3.0  # a pause this long is told; single updates come late on every sensor
_DATES = 4.0  # standard uncertainties that a date may be off by


def median(values: Array) -> float:
    """Middle of numbers, at least one: NumPy's own imports masked arrays, which takes long."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] + ordered[-half - 1]) / 2.0


@dataclass(frozen=True)
class SampleSeries:
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
    def of(samples: Sequence[Sample]) -> "SampleSeries":
        """Collect samples; one that is not later than all before it, by a nanosecond, is left out."""
        rows = np.array([(s.time_s, s.value, s.time_sigma_s) for s in samples], dtype=np.float64)
        rows = rows.reshape(-1, 3)
        if len(rows):
            latest = np.maximum.accumulate(rows[:, 0])
            rows = rows[np.concatenate(([True], rows[1:, 0] > latest[:-1] + _RESOLVED_S))]
        return SampleSeries(rows[:, 0], rows[:, 1], rows[:, 2])

    def __len__(self) -> int:
        return len(self.times_s)

    def at(self, which: npt.NDArray[np.bool_] | list[int] | slice) -> "SampleSeries":
        """The samples of a mask, of a list of indices, or of a slice."""
        return replace(
            self,
            times_s=self.times_s[which],
            values=self.values[which],
            time_sigmas_s=self.time_sigmas_s[which],
        )

    def between(self, start_s: float, end_s: float) -> "SampleSeries":
        """The samples from ``start_s`` to ``end_s``."""
        return self.at((self.times_s >= start_s) & (self.times_s <= end_s))

    def before(self, start_s: float, end_s: float) -> "SampleSeries":
        """The samples from ``start_s`` on that come before ``end_s``."""
        return self.at((self.times_s >= start_s) & (self.times_s < end_s))

    def part(self, first: int, last: int) -> "SampleSeries":
        """The samples from index ``first`` to ``last``, both included."""
        return self.at(slice(first, last + 1))

    def earlier(self, seconds: float) -> "SampleSeries":
        """The samples at times ``seconds`` before theirs."""
        return replace(self, times_s=self.times_s - seconds) if seconds else self

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return float(self.times_s[-1] - self.times_s[0]) if len(self) else 0.0


def screened(samples: Sequence[Sample], info: SensorInfo) -> tuple[SampleSeries, tuple[str, ...]]:
    """The plausible samples of a reading, and notes on the others.

    Of a counter that went back, or jumped, as when a driver was loaded anew, the longest part without that is
    kept; of one that stands still nothing.
    """
    series, notes = plausible(samples, info)
    if info.kind == "counter" and len(series) > 1 and np.ptp(series.values) == 0.0:
        return series.at(slice(0, 0)), (*notes, "sensor-values: the counter stands still")
    if info.kind == "counter" and len(series) > 1:
        unbroken = _unbroken(series, info)
        if len(unbroken) < len(series):
            note = "sensor-reset: the counter went back or jumped; only one side of that is used"
            return unbroken, (*notes, note)
    return series, notes


def plausible(samples: Sequence[Sample], info: SensorInfo) -> tuple[SampleSeries, tuple[str, ...]]:
    """The samples that can be, and notes on the others.

    Left out are what is no reading (``SensorInfo.is_reading``), and samples that are not later than all
    before them.
    """
    notes = []
    whole = [
        s
        for s in samples
        if info.is_reading(s.value) and abs(s.time_s) <= _MOST_S and 0.0 <= s.time_sigma_s <= _MOST_S
    ]
    if len(whole) < len(samples):
        notes.append(f"sensor-values: {len(samples) - len(whole)} of {len(samples)} samples cannot be")
    series = SampleSeries.of(whole)
    if len(series) < len(whole):
        late = len(whole) - len(series)
        notes.append(f"sensor-time: {late} of {len(whole)} samples are not later than the one before")
    return series, tuple(notes)


def gaps(
    series: SampleSeries, start_s: float, end_s: float, info: SensorInfo, least_s: float = 0.0
) -> Iterator[tuple[float, float]]:
    """(start, end) of each pause of more than three periods in a window, its ends included.

    Args:
        series: samples, dated by the power they show.
        start_s: begin of the window.
        end_s: its end.
        info: the reading.
        least_s: shorter pauses are none.
    """
    period_s = max(info.period_s, median(np.diff(series.times_s)) if len(series) > 1 else 0.0)
    inside = series.between(start_s, end_s).times_s
    edges = np.concatenate(([start_s], inside, [end_s]))
    for begin, end in itertools.pairwise(edges):
        if end - begin > max(least_s, _GAP_PERIODS * period_s):
            yield float(begin), float(end)


def _unbroken(ticks: SampleSeries, info: SensorInfo) -> SampleSeries:
    """The longest part of a counter's ticks between which power was possible.

    A tick that was seen late leaves little time to the next, so a period and what the dates may be off by
    are allowed on top.
    """
    passed_s = np.diff(ticks.times_s)
    grown_j = np.diff(ticks.values)
    room_s = passed_s + info.period_s + _DATES * (ticks.time_sigmas_s[1:] + ticks.time_sigmas_s[:-1])
    impossible = (grown_j < LEAST_W * passed_s - info.resolution) | (grown_j > MOST_W * room_s)
    edges = [0, *(np.flatnonzero(impossible) + 1).tolist(), len(ticks)]
    begin, end = max(itertools.pairwise(edges), key=lambda part: part[1] - part[0])
    return ticks.at(list(range(begin, end)))


# --- Noise of a reading: of a window that holds one load, and of any load.

ROUNDING = 12.0  # variance of a rounding to steps of 1 is 1/12
_BLOCK = 10  # samples that one curve is fitted to: short against a drift
_CURVED = 6  # of fewer samples a straight line has to do, for its degrees of freedom
_LEAST_FLOOR = 16  # of fewer samples no spectrum is made
_LEAST_STRIDE = 8  # samples that are left when only every other is looked at
_STRIDES = (2, 3, 4)
_SURELY = 0.98  # a larger variance is believed when chance alone would make it so rarely
SEES = 0.9  # of the time, from where on a sensor counts as seeing all of it
_TRIPLE = 3  # samples that a second difference takes
_MEDIAN = 0.4549  # of the square of a normal number
_LOCAL = 5  # samples whose scatter is taken together: a step is none of what follows it
_HANN = 2.0 / 3.0  # independent ordinates of a spectrum under a Hann window, of all


@dataclass(frozen=True)
class Spread:
    """A variance estimated from scatter.

    Attributes:
        variance: in the square of the values' unit.
        degrees: degrees of freedom it was estimated with; 0 where nothing could be.
    """

    variance: float
    degrees: float

    def exceeds(self, other: "Spread") -> bool:
        """True when this variance is larger than the other by more than chance (2 %)."""
        if self.degrees <= 0 or other.degrees <= 0:
            return False
        return self.variance > other.variance * fisher_quantile(self.degrees, other.degrees, _SURELY)


def local_spread(times_s: Array, values: Array, *, least_degree: int = 0) -> Spread:
    """Variance of single values around smooth curves through about ten of them each.

    A curve follows a drift of power, and the decay of a lag, so that what is left is noise and what goes on
    between samples.

    Args:
        times_s: increasing, shape (n,).
        values: shape (n,).
        least_degree: of the curve through fewer than six values: 0 a mean, 1 a line. More take a parabola.
    """
    squares = degrees = 0.0
    count = max(1, round(len(times_s) / _BLOCK))
    size, longer = divmod(len(times_s), count)
    split = longer * (size + 1)  # the first blocks have one sample more
    for part, rows, length in (
        (slice(0, split), longer, size + 1),
        (slice(split, None), count - longer, size),
    ):
        degree = 2 if length >= _CURVED else min(max(least_degree, 1), length - 2)
        degree = max(degree, least_degree)
        if rows == 0 or length <= degree + 1:
            continue
        times, levels = times_s[part].reshape(rows, length), values[part].reshape(rows, length)
        centred = times - times.mean(axis=1, keepdims=True)
        scaled = centred / np.abs(centred).max(axis=1, keepdims=True)
        basis, _ = np.linalg.qr(scaled[:, :, None] ** np.arange(degree + 1))
        rest = levels - (basis @ (basis.transpose(0, 2, 1) @ levels[:, :, None]))[:, :, 0]
        squares += float((rest**2).sum())
        degrees += rows * (length - degree - 1)
    return Spread(squares / degrees, degrees) if degrees else Spread(0.0, 0.0)


def beating_spread(times_s: Array, values: Array, *, least_degree: int = 0) -> Spread:
    """``local_spread``, also of every second, third and fourth value, the largest that is surely larger.

    A load whose period nearly fits the sensor's shows as a slow beat, which neighbours follow together.
    """
    widest = local_spread(times_s, values, least_degree=least_degree)
    for stride in _STRIDES:
        if len(times_s) < _LEAST_STRIDE * stride:
            break
        parts = [
            local_spread(times_s[begin::stride], values[begin::stride], least_degree=least_degree)
            for begin in range(stride)
        ]
        degrees = sum(part.degrees for part in parts)
        variance = sum(part.variance * part.degrees for part in parts) / degrees
        wider = Spread(variance, degrees / stride)
        if wider.exceeds(widest):
            widest = wider
    return widest


def noise_floor(values: Array) -> Spread | None:
    """Variance of white noise under whatever else the values show; None of too few.

    A periodic load shows in few ordinates of the spectrum, noise in all: the median ordinate is noise's. The
    median of an exponential distribution, which squares of noise have, is ln 2 of its mean.
    """
    if len(values) < _LEAST_FLOOR:
        return None
    steps = np.arange(len(values)) - (len(values) - 1) / 2.0
    rest = values - values.mean() - steps * (steps @ values) / (steps @ steps)
    taper = np.hanning(len(values) + 2)[1:-1]
    power = np.abs(np.fft.rfft(rest * taper)) ** 2 / (taper @ taper)
    inner = power[2 : (len(values) + 1) // 2]  # not what the line took away, nor the ends' one real number
    return Spread(median(inner) / float(np.log(2.0)), max(1.0, _HANN * len(inner)))


def pooled(own: Spread, earlier: Spread | None) -> Spread:
    """A window's scatter made surer by that of earlier windows; its own alone where they surely differ.

    It is larger where the load is unsteady, and smaller where that of the earlier windows was.
    """
    if earlier is None or own.exceeds(earlier) or earlier.exceeds(own):
        return own
    degrees = own.degrees + earlier.degrees
    if degrees <= 0:
        return own
    return Spread((own.variance * own.degrees + earlier.variance * earlier.degrees) / degrees, degrees)


def sees_all(info: SensorInfo) -> bool:
    """True where the samples together see all of the time.

    A lag weighs the past by exp(-t / C), which is as wide as a window of 2 C.
    """
    width_s = max(info.response.window_s, 2.0 * info.response.capacitance_s)
    return width_s >= SEES * info.period_s


def sample_variances_w2(series: SampleSeries, info: SensorInfo) -> Array:
    """Variance of each sample of any load, shape (n,).

    It comes from second differences around it, which hold the sensor's noise and what the power does between
    samples: a load that changes faster than the sensor looks is sampled, not followed. The noise shows where
    power is steady, and there is nothing else in a mean over all of the time.
    """
    power, response, rounding_w2 = series.values, info.response, info.resolution**2 / ROUNDING
    if len(power) < _TRIPLE:
        return np.full(len(power), float(np.ptp(power)) ** 2 / ROUNDING + rounding_w2 if len(power) else 0.0)
    bends_w2 = np.diff(power, n=2) ** 2 / 6.0
    local = np.full(len(bends_w2), median(bends_w2) / _MEDIAN)
    if not response.averages or response.window_s < SEES * info.period_s:
        wide = np.ones(min(_LOCAL, len(bends_w2)))
        around = np.convolve(bends_w2, wide, "same") / np.convolve(np.ones_like(bends_w2), wide, "same")
        local = np.maximum(local, around)
    slopes = np.gradient(power, series.times_s)
    return np.asarray(np.pad(local, 1, mode="edge") + rounding_w2 + (slopes * series.time_sigmas_s) ** 2)
