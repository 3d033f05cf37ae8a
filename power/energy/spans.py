"""Joules between any two times, from the readings of one device, whatever power does between and around them.

A counter's growth is exact from tick to tick. Of the ticks' joules around an end of the span, a reading of
power tells the share that lies before it. Without one, power before the span is taken to be that of the tick
before it, and power after the span that of the tick after it; what the ticks around differ by counts as
uncertainty. Without a counter the joules are those of the reading's curve (``counters.EnergyCurve``).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Sample, SensorInfo, Span, SpanEnergy
from ..response.models import Array, cumulative_energy_j
from .counters import EnergyCurve, EnergyPoint, age_variance_s2, on_rhythm
from .programs import peak_power
from .samples import SampleSeries, gaps, screened

_PAIR = 2
_NEAR_S = 3.0  # ticks so near to an end are dated together
_NOISY = 8  # ticks to each side that tell their noise
_SIDES = 2  # ticks to each side of an end tell how steady power is there
_CONTEXT = 20.0  # periods to each side of a span that tell its noise,
_CONTEXT_WINDOWS = 3.0  # or averaging windows, if they are longer
_MEDIAN = 0.4549  # of the square of a normal number
_LAGS = 2.0  # time constants that a step of power is a mean over: equation (6) adds no more than the noise
_SQRT_3 = 3.0**0.5


@dataclass(frozen=True)
class _PlausibleSamples:
    """Plausible samples of a reading, and notes on the others."""

    info: SensorInfo
    series: SampleSeries
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _CountedPoint:
    """Joules up to a time, their variance, and the power there."""

    joules: float
    variance_j2: float
    watts: float


def span_energy(readings: Sequence[tuple[SensorInfo, Sequence[Sample]]], span: Span) -> SpanEnergy | None:
    """Joules of a span; None where the readings show nothing of it.

    Args:
        readings: of one device: power, a counter or both; each with its samples, uncorrected, oldest first.
        span: the time.
    """
    stream, counted = _first(readings, span, counter=False), _first(readings, span, counter=True)
    finest = stream or counted
    if finest is None:
        return None
    curve = None if stream is None else EnergyCurve(stream.series, stream.info)
    total, used = None, [reading for reading in (counted, stream) if reading is not None]
    if counted is not None:
        total = CounterCurve(counted.series, counted.info, curve).joules(span)
    if total is None and stream is not None and curve is not None:
        total, used = _by_curve(stream, curve, span), [stream]
    if total is None:
        return None
    joules, variance_j2 = total
    if _is_short(span, finest.info):
        variance_j2 += joules**2 / 3.0  # from none to twice as much
    peak_w, peak_window_s = _peak(finest, span)
    edges_s, watts = _power(finest, span)
    return SpanEnergy(
        joules=joules,
        sigma_j=math.sqrt(variance_j2),
        peak_w=peak_w,
        peak_window_s=peak_window_s,
        sensor="+".join(reading.info.name for reading in used),
        scope=finest.info.scope,
        edges_s=edges_s,
        watts=watts,
        notes=tuple(_notes(used, finest.info, span)),
    )


def _first(
    readings: Sequence[tuple[SensorInfo, Sequence[Sample]]], span: Span, *, counter: bool
) -> _PlausibleSamples | None:
    """The first reading of a kind that has samples enough in and around the span."""
    for info, samples in readings:
        if (info.kind == "counter") == counter:
            around_s = info.response.delay_s + max(
                _CONTEXT * info.period_s, _CONTEXT_WINDOWS * info.response.window_s
            )
            if counter:
                around_s = max(around_s, _NEAR_S)
            first_s, last_s = span.start_s - around_s, span.end_s + around_s
            series, notes = screened([s for s in samples if first_s <= s.time_s <= last_s], info)
            if len(series) >= _PAIR:
                return _PlausibleSamples(info, series, notes)
    return None


def _is_short(span: Span, info: SensorInfo) -> bool:
    return span.duration_s < info.period_s and span.starts and span.ends


def _notes(used: Sequence[_PlausibleSamples], info: SensorInfo, span: Span) -> Iterator[str]:
    for reading in used:
        yield from (f"{reading.info.name}: {note}" for note in reading.notes)
    if _is_short(span, info):
        yield (
            f"too-short: the region took {span.duration_s * 1e3:.3g} ms, and {info.name} has a sample every"
            f" {info.period_s * 1e3:.3g} ms"
        )
    yield from used[0].info.aliasing
    if used[0].info.kind == "counter":
        return
    unseen_s = math.fsum(end - begin for begin, end in _pauses(used[0], span))
    if unseen_s > 0:
        yield f"sensor-gap: no sample for {unseen_s:.2g} s"


# --- a reading of power --------------------------------------------------------------------------


def _by_curve(stream: _PlausibleSamples, curve: EnergyCurve, span: Span) -> tuple[float, float] | None:
    """Joules and their variance; None where no sample lies near.

    Power is that of the nearest sample before the first and after the last one, from none to twice as much.
    """
    times_s = stream.series.times_s - stream.info.response.delay_s
    start_s, end_s = max(span.start_s, float(times_s[0])), min(span.end_s, float(times_s[-1]))
    if start_s >= end_s:
        return None
    sampled = curve.joules(
        _point(curve, start_s, starts=span.starts and start_s == span.start_s),
        _point(curve, end_s, ends=span.ends and end_s == span.end_s),
    )
    before_j = curve.watts(start_s) * (start_s - span.start_s)
    after_j = curve.watts(end_s) * (span.end_s - end_s)
    unseen_j2 = before_j**2 + after_j**2
    for begin, end in _pauses(stream, span):
        unseen_j2 += (curve.watts(begin) * (end - begin)) ** 2
    return sampled[0] + before_j + after_j, sampled[1] + unseen_j2 / 3.0


def _point(curve: EnergyCurve, time_s: float, *, starts: bool = False, ends: bool = False) -> EnergyPoint:
    if starts:
        return curve.at_start(time_s)
    return curve.at_end(time_s) if ends else curve.inside(time_s)


def _pauses(stream: _PlausibleSamples, span: Span) -> list[tuple[float, float]]:
    """Times in the span without a sample, between two samples."""
    dated = stream.series.earlier(stream.info.response.delay_s)
    start_s, end_s = max(span.start_s, float(dated.times_s[0])), min(span.end_s, float(dated.times_s[-1]))
    return list(gaps(dated, start_s, end_s, stream.info)) if start_s < end_s else []


def _peak(reading: _PlausibleSamples, span: Span) -> tuple[float | None, float]:
    """Highest mean power over a time that the reading resolves, and that time; None of too few samples."""
    seen_s = reading.series.times_s - reading.info.response.delay_s
    first = max(0, int(np.searchsorted(seen_s, span.start_s, side="right")) - 1)
    last = min(int(np.searchsorted(seen_s, span.end_s)), len(seen_s) - 1)
    if last <= first:
        return None, 0.0
    around = reading.series.part(first, last)
    if reading.info.kind != "counter":
        return peak_power(around, reading.info)
    steps_s = np.diff(around.times_s)
    watts = np.diff(around.values) / steps_s
    highest = int(np.argmax(watts))
    return float(watts[highest]), float(steps_s[highest])


def _power(reading: _PlausibleSamples, span: Span) -> tuple[Array, Array]:
    """Mean power between times of a span, see ``SpanEnergy``: as short ones as the reading resolves.

    The joules between two of them are those of the reading between them, whatever its response.
    """
    info, series = reading.info, reading.series
    resolved_s = max(info.period_s, info.response.window_s, _LAGS * info.response.capacitance_s)
    if info.kind == "counter":
        series, _ = on_rhythm(series.earlier(info.response.delay_s + info.response.mean_age_s))
        times_s, joules = series.times_s, series.values
    else:
        times_s = series.times_s - info.response.delay_s
        joules = cumulative_energy_j(series.times_s, series.values, info.response)
    start_s, end_s = max(span.start_s, float(times_s[0])), min(span.end_s, float(times_s[-1]))
    if start_s >= end_s:
        return np.empty(0), np.empty(0)
    inner_s = times_s[(times_s > start_s) & (times_s < end_s)]
    inner_s = inner_s[:: max(1, round(resolved_s / info.period_s)) if info.period_s else 1]
    if len(inner_s) and end_s - inner_s[-1] < resolved_s / 2.0:
        inner_s = inner_s[:-1]
    if len(inner_s) and inner_s[0] - start_s < resolved_s / 2.0:
        inner_s = inner_s[1:]
    edges_s = np.concatenate(([start_s], inner_s, [end_s]))
    return edges_s, np.diff(np.interp(edges_s, times_s, joules)) / np.diff(edges_s)


def joined_power(first: SpanEnergy, second: SpanEnergy, most: int) -> tuple[Array, Array]:
    """Power of a span and of a later one, NaN between them; above so many steps neighbours are joined."""
    if not len(first.watts) or not len(second.watts):
        some = first if len(first.watts) else second
        return some.edges_s, some.watts
    if first.edges_s[-1] < second.edges_s[0]:
        edges_s = np.concatenate((first.edges_s, second.edges_s))
        watts = np.concatenate((first.watts, [math.nan], second.watts))
    else:
        edges_s = np.concatenate((first.edges_s, second.edges_s[1:]))
        watts = np.concatenate((first.watts, second.watts))
    while len(watts) > most:
        joules = np.add.reduceat(watts * np.diff(edges_s), np.arange(0, len(watts), 2))
        edges_s = np.append(edges_s[:-1:2], edges_s[-1])
        watts = joules / np.diff(edges_s)
    return edges_s, watts


# --- a counter -----------------------------------------------------------------------------------


class CounterCurve:
    """Energy over time from a counter.

    Args:
        ticks: uncorrected.
        info: the counter.
        curve: of another reading of the same power; None where there is none.
    """

    def __init__(self, ticks: SampleSeries, info: SensorInfo, curve: EnergyCurve | None) -> None:
        self._ticks = ticks.earlier(info.response.delay_s + info.response.mean_age_s)
        self._info = info
        self._curve = curve

    def joules(self, span: Span) -> tuple[float, float] | None:
        """Joules of a span and their variance.

        None where no two ticks lie near each of its ends, or where the last tick lies before a span that a
        curve shows.
        """
        if self._curve is not None and float(self._ticks.times_s[-1]) <= span.start_s:
            return None
        start = self._place(span.start_s, starts=span.starts)
        end = self._place(span.end_s, ends=span.ends)
        if start is None or end is None:
            return None
        aged_j2 = age_variance_s2(self._info) * (end.watts - start.watts) ** 2
        variance_j2 = start.variance_j2 + end.variance_j2 + aged_j2
        return end.joules - start.joules, variance_j2 + self._info.resolution**2 / 6.0

    def _place(self, time_s: float, *, starts: bool = False, ends: bool = False) -> _CountedPoint | None:
        near = self._ticks.between(time_s - _NEAR_S, time_s + _NEAR_S)
        if len(near) < _PAIR:
            return None
        ticks, _ = on_rhythm(near)
        i = int(np.clip(np.searchsorted(ticks.times_s, time_s, side="right") - 1, 0, len(ticks) - 2))
        begin_s, end_s = float(ticks.times_s[i]), float(ticks.times_s[i + 1])
        base_j, grown_j = float(ticks.values[i]), float(ticks.values[i + 1] - ticks.values[i])
        watts = grown_j / (end_s - begin_s)
        dated_j2 = float(np.max(ticks.time_sigmas_s[i : i + 2]) * watts) ** 2 + _noise_j2(
            ticks, i, self._curve
        )
        if not begin_s <= time_s <= end_s:
            since_tick = self._beyond(begin_s if time_s < begin_s else end_s, time_s, watts)
            base_j += grown_j if time_s > end_s else 0.0
        elif self._curve is not None and self._curve.covers(begin_s, end_s):
            since_tick = _shared(self._curve, (begin_s, end_s), grown_j, time_s, starts=starts, ends=ends)
        else:
            since_tick = _between_ticks(ticks, i, time_s, starts=starts, ends=ends)
        return _CountedPoint(base_j + since_tick[0], since_tick[1] + dated_j2, watts)

    def _beyond(self, tick_s: float, time_s: float, watts: float) -> tuple[float, float]:
        """Joules from the first or last tick to a time beyond it (negative before it), and their variance."""
        early_s, late_s = sorted((tick_s, time_s))
        sign = 1.0 if time_s > tick_s else -1.0
        if self._curve is not None and self._curve.covers(early_s, late_s):
            joules, variance_j2 = self._curve.joules(self._curve.inside(early_s), self._curve.inside(late_s))
            return sign * joules, variance_j2 + ((watts * (late_s - early_s) - joules) / _SQRT_3) ** 2
        joules = watts * (late_s - early_s)
        return sign * joules, joules**2 / 3.0


def _noise_j2(ticks: SampleSeries, i: int, curve: EnergyCurve | None) -> float:
    """Variance of a tick's joules, from the ticks around the ``i``-th.

    It is what the growth from tick to tick differs by from that of a curve. Without one it is told by the
    changes of power, each of which three ticks move, by six variances: a step is in few of them.
    """
    near = ticks.part(max(0, i - _NOISY), min(len(ticks) - 1, i + 1 + _NOISY))
    apart_j = [] if curve is None else list(_apart_j(near, curve))
    if apart_j:
        return float(np.median(np.square(apart_j))) / 2.0 / _MEDIAN
    powers = np.diff(ticks.values) / np.diff(ticks.times_s)
    means = (powers[1:] + powers[:-1]) / 2.0
    changes = np.diff(powers)[means > 0] / means[means > 0]
    if len(changes) == 0:
        return 0.0
    grown_j = float(ticks.values[i + 1] - ticks.values[i])
    return float(np.median(changes**2)) / 6.0 / _MEDIAN * grown_j**2


def _apart_j(ticks: SampleSeries, curve: EnergyCurve) -> Iterator[float]:
    """Excess of the growth from tick to tick over that of the curve, where the curve covers both."""
    before: EnergyPoint | None = None
    for k, (tick_s, next_s) in enumerate(itertools.pairwise(ticks.times_s.tolist())):
        if curve.covers(tick_s, next_s):
            here, there = before or curve.inside(tick_s), curve.inside(next_s)
            yield float(ticks.values[k + 1] - ticks.values[k]) - curve.joules(here, there)[0]
            before = there


def _shared(
    curve: EnergyCurve,
    around_s: tuple[float, float],
    grown_j: float,
    time_s: float,
    *,
    starts: bool,
    ends: bool,
) -> tuple[float, float]:
    """Return the growth of a counter since a tick, shared out by a curve until the next, and its variance."""
    first, last = (curve.inside(edge_s) for edge_s in around_s)
    early_j, variance_j2 = curve.joules(first, _point(curve, time_s, starts=starts, ends=ends))
    whole_j = curve.joules(first, last)[0]
    if whole_j <= 0 or grown_j <= 0:
        share = (time_s - around_s[0]) / (around_s[1] - around_s[0])
        return grown_j * share, variance_j2 + grown_j**2 / 3.0
    share = min(1.0, max(0.0, early_j / whole_j))
    wrong_j = (grown_j - whole_j) * min(share, 1.0 - share)
    return grown_j * share, variance_j2 + wrong_j**2


def _between_ticks(
    ticks: SampleSeries, i: int, time_s: float, *, starts: bool, ends: bool
) -> tuple[float, float]:
    """The same without a curve, from the power between the ticks around."""
    around = ticks.part(max(0, i - _SIDES), min(len(ticks) - 1, i + 1 + _SIDES))
    powers, middle = np.diff(around.values) / np.diff(around.times_s), min(i, _SIDES)
    step_s, grown_j = float(ticks.times_s[i + 1] - ticks.times_s[i]), float(np.diff(ticks.values)[i])
    share = (time_s - float(ticks.times_s[i])) / step_s
    even_j = found_j = share * grown_j
    if starts and middle > 0:
        found_j = share * step_s * float(powers[middle - 1])
    elif ends and middle + 1 < len(powers):
        found_j = grown_j - (1.0 - share) * step_s * float(powers[middle + 1])
    found_j = min(max(found_j, min(0.0, grown_j)), max(0.0, grown_j))
    unsteady_j = share * (1.0 - share) * step_s * float(np.ptp(powers))
    return found_j, ((found_j - even_j) ** 2 + unsteady_j**2) / 3.0
