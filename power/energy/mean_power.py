"""Mean power of a time window from the samples of one sensor, with an uncertainty that covers.

What is wanted is the mean of the true power over this very window; how far the next window of the same work
would be from it, several bursts tell (``tuner.measurement.paired``). Samples give the mean between the first
and the last of them in the window, and the drift they show carries it to the window's middle. The
uncertainty is made of

- the samples' noise, estimated from their scatter around smooth curves (``noise``), as the energy's weights
  carry it, with Student's t for its degrees of freedom: of a counter, two ends; of a trace, every sample;
- what a sensor does not see: the power between two windows of a boxcar shows as scatter, too, and counts;
- the uncertainties of C, of the delay and the averaging window, times the change of power;
- the rounding of the reading, and of a counter the period of its ticks.

The gain of the sensor, some percent of every board, is common to all windows and not in it.
"""

import math
from collections.abc import Callable

import numpy as np

from tuner.model.errors import PowerError
from tuner.model.objective import COVERAGE
from tuner.model.trial import Part, expanded
from tuner.model.units import with_uncertainty

from ..base import PowerReading, SensorInfo
from .counters import SensorHistory, on_rhythm
from .samples import SampleSeries, Spread, beating_spread, gaps, median, pooled
from .streams import LEAST_LOAD_W, PowerEstimate, stream_power

PAIR = 2  # a difference needs two samples
# Of a period, where no scatter shows it: dated by polling, a tick of an H200 is off by 0.019.
_ASSUMED = 0.025
_SQRT_2 = 2.0**0.5
_UNSEEN = 0.5  # of a window: where a pause leaves less than this seen, there is no answer
_APART = 0.01  # readings of the same power that differ by more, and more than noise, are not both right
_SURELY = 3.0  # standard uncertainties that noise does not exceed
_SQRT_3 = 3.0**0.5


def disagreement(
    counted: tuple[str, float, float], shown: tuple[str, float, float], unit: str
) -> tuple[str, float] | None:
    """A note on two readings of the same that are not both right, and the doubt; None where they agree.

    The truth may be anywhere from what one tells to as far on the other side: the doubt is the standard
    uncertainty of a rectangular distribution, so that the widened interval holds both.

    Args:
        counted: name of a counter, what it tells, and the standard uncertainty of that.
        shown: the same of a reading of power.
        unit: of what they tell.
    """
    apart = abs(shown[1] - counted[1])
    if apart <= max(_SURELY * math.hypot(counted[2], shown[2]), _APART * abs(counted[1])):
        return None
    tell = " and ".join(
        f"{name} {with_uncertainty(value, COVERAGE * sigma, unit)}" for name, value, sigma in (counted, shown)
    )
    note = f"sensors-differ: {tell}: one is wrong, or the load changes in the rhythm of a sensor"
    return note, apart / _SQRT_3


def mean_power(
    series: SampleSeries,
    start_s: float,
    end_s: float,
    info: SensorInfo,
    history: SensorHistory | None = None,
    *,
    round_s: float = 0.0,
    beside: Callable[[float, float], PowerReading | None] | None = None,
) -> PowerReading:
    """Mean power from ``start_s`` to ``end_s``.

    Args:
        series: samples of the recording, screened.
        start_s: begin of the window.
        end_s: its end.
        info: the reading; its delay is taken off the samples' times.
        history: what earlier windows told of the sensor; this one adds to it.
        round_s: period with which the load repeats; 0 where that is not known.
        beside: another reading of the same power, asked for the very time that the samples tell of; where the
            two differ a note says so, and the uncertainty holds both.

    Raises:
        PowerError: the samples say too little; the message says why.
    """
    if end_s <= start_s:
        raise PowerError("the window is empty")
    older_s = info.response.mean_age_s if info.kind == "counter" else 0.0  # it integrates what a lag shows
    dated = series.earlier(info.response.delay_s + older_s)
    notes = list(info.aliasing)
    pauses = list(gaps(dated, start_s, end_s, info))
    unseen_s = sum(end - begin for begin, end in pauses)
    if pauses and unseen_s > (1.0 - _UNSEEN) * (end_s - start_s):
        raise PowerError(_too_little(info, start_s, end_s, f"no sample for {unseen_s:.3g} s of it"))
    if pauses:
        notes.append(f"sensor-gap: no sample for {unseen_s:.3g} s of {end_s - start_s:.3g} s")
    history = history or SensorHistory()
    if info.kind == "counter":
        estimate = _counted(dated, start_s, end_s, info, history)
    else:
        estimate = stream_power(dated, (start_s, end_s), info, history, round_s)
    if estimate is None:
        raise PowerError(_too_little(info, start_s, end_s, "too few samples"))
    uncertainty_w, degrees = expanded(estimate.parts)
    other = None if beside is None else beside(estimate.begin_s, estimate.end_s)
    if other is not None:
        shown = other.sensor, other.watts, other.uncertainty_w
        if told := disagreement((info.name, estimate.watts, uncertainty_w), shown, "W"):
            notes.append(told[0])
            uncertainty_w, degrees = expanded((*estimate.parts, Part(told[1] ** 2)))
    offset_s = (start_s + end_s - estimate.begin_s - estimate.end_s) / 2.0
    watts = estimate.watts + estimate.slope_w_s * offset_s
    sensor = f"{info.name} ({estimate.method})" if estimate.method else info.name
    return PowerReading(watts, uncertainty_w, sensor, info.scope, tuple(notes), degrees)


def _counted(
    series: SampleSeries, start_s: float, end_s: float, info: SensorInfo, history: SensorHistory
) -> PowerEstimate | None:
    """A counter from its first tick in the window to its last, or between the ticks around it."""
    ticks, own = on_rhythm(series, history.period)
    if own is not None:
        sigma_s = median(series.time_sigmas_s)
        history.add_ticks(float(ticks.times_s[0]), float(ticks.times_s[-1]), sigma_s, own)
    inside = ticks.between(start_s, end_s)
    if len(inside) >= PAIR and inside.duration_s > 0:  # late ticks may fall on one place of the rhythm
        return power_between(inside, info, history, dated_s=0.0 if own else _ends_s(inside))
    return _around_ticks(ticks, start_s, end_s, info)


def _ends_s(ticks: SampleSeries) -> float:
    """Standard uncertainty of the time between the first and the last tick, as they were dated."""
    return float(np.hypot(*ticks.time_sigmas_s[[0, -1]]))


def power_between(
    ticks: SampleSeries, info: SensorInfo, history: SensorHistory, *, dated_s: float = 0.0
) -> PowerEstimate:
    """Edge-aligned counter difference; both ends carry the scatter of the ticks around a smooth curve.

    Late ticks, noise of the counter, and power that changes within a tick all move single ticks off the
    curve, and are told apart by nothing; each end is off by as much.

    Args:
        ticks: of a counter, two or more.
        info: the counter.
        history: what earlier windows told of it; this one adds to it.
        dated_s: the least standard uncertainty of the time between the ends. Scatter tells nothing of an end
            that a busy host read late, and ticks that beat with the reads lie on a smooth curve for a while.
    """
    span_s = ticks.duration_s
    watts = float(ticks.values[-1] - ticks.values[0]) / span_s
    spread = beating_spread(ticks.times_s, ticks.values, least_degree=1)
    if watts > LEAST_LOAD_W:
        relative = Spread(spread.variance / watts**2, spread.degrees)
        surer = pooled(relative, history.noise)
        history.add_noise(relative)
        spread = Spread(surer.variance * watts**2, surer.degrees)
    parts = [Part((watts * ticks.scale_sigma) ** 2), Part(info.resolution**2 / 6.0 / span_s**2)]
    if spread.degrees > 0:
        scatter_j2 = 2.0 * spread.variance
        parts.append(Part(scatter_j2 / span_s**2, spread.degrees))
        parts.append(Part(max(0.0, (watts * dated_s) ** 2 - scatter_j2) / span_s**2))
    else:
        ends_s = _ends_s(ticks) or _SQRT_2 * _ASSUMED * info.period_s
        parts.append(Part((watts * ends_s / span_s) ** 2))
    return PowerEstimate(
        watts, tuple(parts), float(ticks.times_s[0]), float(ticks.times_s[-1]), _slope(ticks)
    )


def _slope(ticks: SampleSeries) -> float:
    """Watts by second, of the two halves of the ticks; 0 of too few, or where a half has no duration."""
    half = len(ticks) // 2
    ends = np.array((0, half, len(ticks) - 1))
    times_s = np.diff(ticks.times_s[ends])
    if half < PAIR or not np.all(times_s > 0):  # late ticks may fall on one place of the rhythm
        return 0.0
    first, second = np.diff(ticks.values[ends]) / times_s
    return float(second - first) / (ticks.duration_s / 2.0)


def _around_ticks(
    ticks: SampleSeries, start_s: float, end_s: float, info: SensorInfo
) -> PowerEstimate | None:
    """Counter interpolated through the ticks around a window that holds fewer than two.

    Power in the time that belongs to only one of window and tick interval may be anything from none to twice
    the mean: the uncertainty is that of a rectangular distribution.
    """
    before = np.flatnonzero(ticks.times_s <= start_s)
    after = np.flatnonzero(ticks.times_s >= end_s)
    first = int(before[-1]) if len(before) else 0
    last = int(after[0]) if len(after) else len(ticks) - 1
    if last <= first:
        return None
    begin, finish = float(ticks.times_s[first]), float(ticks.times_s[last])
    shared = min(finish, end_s) - max(begin, start_s)
    if shared <= 0:
        return None
    apart = (finish - begin) + (end_s - start_s) - 2.0 * shared
    between = power_between(ticks.at([first, last]), info, SensorHistory())
    guess_w = between.watts * apart / (end_s - start_s)
    parts = (*between.parts, Part(guess_w**2 / 3.0))
    return PowerEstimate(between.watts, parts, start_s, end_s, method="interpolated")


def _too_little(info: SensorInfo, start_s: float, end_s: float, why: str) -> str:
    return (
        f"{info.name} gave too little in a window of {end_s - start_s:.3g} s"
        f" (one sample every {info.period_s:.3g} s): {why}"
    )
