"""Joules of a program from a counter, which ticks neither when it starts nor when it ends.

The counter's difference from its last tick before the start to its first one after the end is exact. What of
it lies outside the program is taken off. Where there is a curve of the same power, it shows that. Else it is
idle power before the start, and after the end what the counter's next ticks say of power then: that is right
if power fell when the program ended, and as it may have stayed at the program's mean, it is so uncertain.
"""

import numpy as np

from tuner.interfaces import PowerLevel, ProgramTimeline, SensorInfo

from .curve import EnergyCurve
from .levels import between_ticks
from .samples import SampleSeries

_UNKNOWN_AGE = 0.1  # of the period: what ticks of an H200, every 100 ms, count is up to 9 ms older than they
_LAGS = 3.0  # after a step, until which a mean age does not tell what a lag does
_SQRT_3 = 3.0**0.5
_SQRT_12 = 12.0**0.5

Joules = tuple[float, float]  # and their variance


def counted(
    series: SampleSeries, info: SensorInfo, line: ProgramTimeline, idle: PowerLevel, curve: EnergyCurve | None
) -> Joules | None:
    """Joules from start to end and their variance; None without a tick before and one after.

    Args:
        series: the ticks.
        info: the counter.
        line: of the recording.
        idle: power before the start.
        curve: of another reading of the same power; None where there is none.
    """
    ticks = series.earlier(info.response.delay_s + info.response.mean_age_s)
    told_s = line.ended_s + _LAGS * info.response.capacitance_s + _unknown_s(info)
    first = int(np.searchsorted(ticks.times_s, line.started_s, side="right")) - 1
    last = min(int(np.searchsorted(ticks.times_s, told_s)), len(ticks) - 1)
    if first < 0 or ticks.times_s[last] < line.ended_s:
        return None
    around = ticks.part(first, last)
    if curve is not None and curve.covers(around.times_s[0], around.times_s[-1]):
        outside_j, variance_j2 = _shown(around, line, curve)
        before_w, after_w = (curve.watts(float(time_s)) for time_s in around.times_s[[0, -1]])
    else:
        before = _between(ticks, first - 1, info) or idle
        after = _between(ticks, last, info)
        outside_j, variance_j2 = _supposed(
            around, line, (idle, before, after, _between(ticks, last + 1, info))
        )
        before_w, after_w = before.watts, (after or idle).watts
    total_j = _joules(around) - outside_j
    variance_j2 += info.resolution**2 / 6.0
    variance_j2 += float(
        (before_w * around.time_sigmas_s[0]) ** 2 + (after_w * around.time_sigmas_s[-1]) ** 2
    )
    age_s2 = info.response.age_sigma_s**2 + _unknown_s(info) ** 2 / 3.0
    variance_j2 += age_s2 * (after_w - before_w) ** 2
    return total_j, variance_j2


def _shown(around: SampleSeries, line: ProgramTimeline, curve: EnergyCurve) -> Joules:
    """What of the ticks' joules lies outside the program, by the curve.

    By how much the curve differs from the counter over all of it, it may be wrong there too.
    """
    first, last = (curve.inside(float(time_s)) for time_s in around.times_s[[0, -1]])
    early_j, early_variance_j2 = curve.before(float(around.times_s[0]), line.started_s)
    late_j, late_variance_j2 = curve.after(line.ended_s, float(around.times_s[-1]))
    outside_j, counted_j = early_j + late_j, _joules(around)
    wrong = min(1.0, abs(curve.joules(first, last)[0] / counted_j - 1.0)) if counted_j > 0 else 1.0
    return outside_j, early_variance_j2 + late_variance_j2 + (wrong * outside_j) ** 2


def _supposed(
    around: SampleSeries,
    line: ProgramTimeline,
    levels: tuple[PowerLevel, PowerLevel, PowerLevel | None, PowerLevel | None],
) -> Joules:
    """The same without a curve, from idle power, that before the first tick, after the last, and later."""
    idle, before, after, later = levels
    early_s, late_s = line.started_s - around.times_s[0], around.times_s[-1] - line.ended_s
    early_w = np.hypot(before.sigma_w, (before.watts - idle.watts) / _SQRT_3)
    mean_w = (_joules(around) - before.watts * early_s - idle.watts * late_s) / line.duration_s
    if after is None:
        after_w, late_w = (mean_w + idle.watts) / 2.0, (mean_w - idle.watts) / _SQRT_12
    else:
        after_w = after.watts
        other_w = max((mean_w, (later or after).watts), key=lambda watts: abs(watts - after_w))
        late_w = np.hypot(after.sigma_w, (other_w - after_w) / _SQRT_3)
    return before.watts * early_s + after_w * late_s, float((early_w * early_s) ** 2 + (late_w * late_s) ** 2)


def _between(ticks: SampleSeries, index: int, info: SensorInfo) -> PowerLevel | None:
    """Mean power from a tick to the next; None where one of them is not there."""
    return between_ticks(ticks, index, index + 1, info) if 0 <= index < len(ticks) - 1 else None


def _joules(ticks: SampleSeries) -> float:
    return float(ticks.values[-1] - ticks.values[0])


def _unknown_s(info: SensorInfo) -> float:
    """How old a tick's number may be, beyond what is known."""
    return _UNKNOWN_AGE * info.period_s if info.response.origin == "assumed" else 0.0
