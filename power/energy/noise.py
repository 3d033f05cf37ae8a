"""Noise of a reading: of a window that holds one load, and of any load.

``local_spread``, ``beating_spread`` and ``noise_floor`` take the samples of a window for ones of the same
load. ``sample_variances_w2`` takes them for nothing: power may jump anywhere between them.
"""

from dataclasses import dataclass

import numpy as np

from tuner.model.distributions import fisher_quantile

from ..base import SensorInfo
from ..response.models import Array
from .samples import SampleSeries, median

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
