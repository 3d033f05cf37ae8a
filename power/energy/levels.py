"""Steady power around a program: idle power before and after it, and what goes on after it.

A level is the mean power of a window (``windows``) in which the sensor has long settled, so that its lag is
not undone: equation (6) would only add the noise of two samples, C times each. Two halves that surely differ
make it a level that drifts.
"""

import math
from dataclasses import replace

import numpy as np

from tuner.interfaces.power import Response, SensorInfo
from tuner.model.uncertainty import expanded

from ..base import PowerLevel, ProgramTimeline
from .counters import SensorHistory
from .samples import SampleSeries
from .streams import power_of_samples
from .windows import power_between

_FEW = 4  # samples of a level that say something
_SURELY = 3.0  # standard uncertainties that make a drift one
_LEAST_W2 = 1e-12  # no level is known better


def joined(one: PowerLevel, other: PowerLevel) -> PowerLevel | None:
    """The level that both are, as well as both know it; None where they differ."""
    if abs(other.watts - one.watts) > _SURELY * math.hypot(one.sigma_w, other.sigma_w):
        return None
    variances_w2 = np.maximum((one.sigma_w**2, other.sigma_w**2), _LEAST_W2)
    sigma_w = float(np.sqrt(1.0 / np.sum(1.0 / variances_w2)))
    return PowerLevel(float(np.average((one.watts, other.watts), weights=1.0 / variances_w2)), sigma_w)


def idle_level(series: SampleSeries, info: SensorInfo, line: ProgramTimeline) -> PowerLevel | None:
    """Idle power before the program, and after it where that is wanted; None of too few samples."""
    before = level(series, info, line.began_s, line.started_s)
    if before is None or line.idle_after_s <= 0:
        return before
    after = level(series, info, line.finished_s - line.idle_after_s, line.finished_s)
    return before if after is None else PowerLevel.between((before, after))


def after_level(series: SampleSeries, info: SensorInfo, line: ProgramTimeline) -> PowerLevel | None:
    """Power from when the sensor has forgotten the program to the end; None of too few samples."""
    return level(series, info, line.ended_s + info.response.settling_s, math.inf)


def level(series: SampleSeries, info: SensorInfo, start_s: float, end_s: float) -> PowerLevel | None:
    """Mean power between two times; None of too few samples.

    Of a mean over a window the first one counts that began after the start; a lag is not waited for.
    """
    response = info.response
    if info.kind == "counter":
        return _of_ticks(series.earlier(response.delay_s + response.mean_age_s), start_s, end_s, info)
    inside = series.before(start_s + response.delay_s + response.window_s, end_s + response.delay_s)
    if len(inside) < _FEW:
        return None
    middle, last = len(inside) // 2, len(inside) - 1
    whole = _settled(inside, info)
    return _with_drift(
        whole, _settled(inside.part(0, middle - 1), info), _settled(inside.part(middle, last), info)
    )


def between_ticks(ticks: SampleSeries, first: int, last: int, info: SensorInfo) -> PowerLevel:
    """Mean power from one tick to another."""
    found = power_between(ticks.at([first, last]), info, SensorHistory())
    return PowerLevel(found.watts, expanded(found.parts)[0])


def _settled(series: SampleSeries, info: SensorInfo) -> PowerLevel:
    """Mean of what a sensor shows once it has settled, of at least two samples."""
    found = power_of_samples(series, replace(info, response=Response()))
    return PowerLevel(found.watts, expanded(found.parts)[0])


def _of_ticks(ticks: SampleSeries, start_s: float, end_s: float, info: SensorInfo) -> PowerLevel | None:
    """Mean power between the first tick and the last of some time."""
    inside = ticks.before(start_s, end_s)
    last = len(inside) - 1
    if last < 1:
        return None
    whole = between_ticks(inside, 0, last, info)
    if last == 1:
        return whole
    middle_s = (inside.times_s[0] + inside.times_s[-1]) / 2.0
    middle = int(np.argmin(np.abs(inside.times_s[1:-1] - middle_s))) + 1
    return _with_drift(
        whole, between_ticks(inside, 0, middle, info), between_ticks(inside, middle, last, info)
    )


def _with_drift(whole: PowerLevel, first: PowerLevel, second: PowerLevel) -> PowerLevel:
    """The level of some time from those of its halves, where these surely differ."""
    rise_w = second.watts - first.watts
    if abs(rise_w) <= _SURELY * math.hypot(first.sigma_w, second.sigma_w):
        return whole
    return PowerLevel(second.watts, abs(rise_w), rise_w)
