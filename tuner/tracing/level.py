"""Power that is meant to be steady: idle before a program, and what goes on after it."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from tuner.interfaces import SensorInfo
from tuner.tracing.series import FORGOTTEN, Array, Series, Timeline, mean_age_s

_FEW = 4  # samples of a level that say something
_PAIR = 2
_ONE_SIGMA = 0.8413447460685429  # of the normal distribution, one-sided
_SURELY = 3.0  # standard uncertainties that make a drift one
_DRIFT = 0.01  # of the power: a smaller drift is an idle GPU's own, and told by the uncertainty only
_LEAST_W2 = 1e-12  # no level is known better
_SQRT_12 = 12.0**0.5


@dataclass(frozen=True)
class Level:
    """Mean power of some time.

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

    def joined(self, other: "Level") -> "Level | None":
        """The level that both are, as well as both know it; None where they differ."""
        if abs(other.watts - self.watts) > _SURELY * np.hypot(self.sigma_w, other.sigma_w):
            return None
        variances_w2 = np.maximum((self.sigma_w**2, other.sigma_w**2), _LEAST_W2)
        sigma_w = float(np.sqrt(1.0 / np.sum(1.0 / variances_w2)))
        return Level(float(np.average((self.watts, other.watts), weights=1.0 / variances_w2)), sigma_w)


def idle_level(trace: Series, info: SensorInfo, line: Timeline) -> Level | None:
    """Idle power before the program, and after it where that is wanted; None of too few samples."""
    before = level(trace, info, line.began_s, line.started_s)
    if before is None or line.idle_after_s <= 0:
        return before
    after = level(trace, info, line.finished_s - line.idle_after_s, line.finished_s)
    if after is None:
        return before
    # a drift between the two is met half-way, and not better known than to a fraction of itself
    sigma_w = np.hypot(before.sigma_w, after.sigma_w) / 2.0
    between_w = (after.watts - before.watts) / _SQRT_12
    drift_w = max(before.drift_w, after.drift_w, key=abs)
    return Level((before.watts + after.watts) / 2.0, float(np.hypot(sigma_w, between_w)), drift_w)


def after_level(trace: Series, info: SensorInfo, line: Timeline) -> Level | None:
    """Power from when the sensor has forgotten the program to the end; None of too few samples."""
    return level(trace, info, line.ended_s + FORGOTTEN * info.response.capacitance_s, math.inf)


def level(trace: Series, info: SensorInfo, start_s: float, end_s: float) -> Level | None:
    """Mean power between two times; None of too few samples.

    Of a mean over a window the first one counts that began after the start; a lag is not waited for.
    """
    response = info.response
    if info.kind == "counter":
        return _of_ticks(trace.earlier(response.delay_s + mean_age_s(response)), start_s, end_s)
    power = trace.between(start_s + response.delay_s + response.window_s, end_s + response.delay_s).values
    if len(power) < _FEW:
        return None
    whole_w2 = _variance_of_mean(power, info)
    first, second = power[: len(power) // 2], power[len(power) // 2 :]
    rise_w = float(np.mean(second) - np.mean(first))
    sure_w = _SURELY * np.sqrt(_variance_of_mean(first, info) + _variance_of_mean(second, info))
    if abs(rise_w) > sure_w:
        return Level(float(np.mean(second)), abs(rise_w), rise_w)
    return Level(float(np.mean(power)), float(np.sqrt(whole_w2)))


def _variance_of_mean(power: Array, info: SensorInfo) -> float:
    """Variance of the mean of at least two samples.

    Noise is new in each sample, and shows in their second differences; what scatters beside it is not new in
    samples of one mean, nor within a lag.
    """
    count, rounding_w2 = len(power), info.resolution**2 / 12.0
    scatter_w2 = float(np.var(power, ddof=1))
    noise_w2 = min(scatter_w2, float(np.mean(np.diff(power, n=2) ** 2)) / 6.0) if count > _PAIR else 0.0
    memory_s = info.response.window_s + 2.0 * info.response.capacitance_s
    free = max(1.0, count / (1.0 + memory_s / info.period_s) if info.period_s else 1.0)
    widened = float(stdtrit(max(1.0, free - 1.0), _ONE_SIGMA)) ** 2
    return widened * (noise_w2 / count + (scatter_w2 - noise_w2) / free) + rounding_w2


def _of_ticks(ticks: Series, start_s: float, end_s: float) -> Level | None:
    """Mean power between the first tick and the last of some time."""
    inside = ticks.between(start_s, end_s)
    if len(inside) < _PAIR:
        return None
    watts = float(inside.values[-1] - inside.values[0]) / inside.duration_s
    sigma_w = _slope_sigma_w(inside, watts)
    if len(inside) == _PAIR:
        return Level(watts, sigma_w)
    middle = int(np.argmin(np.abs(inside.times_s[1:-1] - (inside.times_s[0] + inside.times_s[-1]) / 2.0))) + 1
    first, second = inside.part(0, middle), inside.part(middle, len(inside) - 1)
    later_w = float(second.values[-1] - second.values[0]) / second.duration_s
    rise_w = later_w - float(first.values[-1] - first.values[0]) / first.duration_s
    sure_w = _SURELY * np.hypot(_slope_sigma_w(first, watts), _slope_sigma_w(second, watts))
    return Level(later_w, abs(rise_w), rise_w) if abs(rise_w) > sure_w else Level(watts, sigma_w)


def _slope_sigma_w(ticks: Series, watts: float) -> float:
    ends_s = float(np.hypot(ticks.time_sigmas_s[0], ticks.time_sigmas_s[-1]))
    return abs(watts) * ends_s / ticks.duration_s
