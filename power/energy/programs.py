"""Joules of a program and the steady power around it, from the samples of one reading.

**Total** is the energy from the program's start to its end, and **net** what of it is above the idle power
that was measured before: ``net = total - P0 * duration``. What the GPU draws afterwards is in neither,
whether it has gone back to idle or not.

A reading of power gives the total in two ways. *Directly*: its samples, corrected for the sensor's response,
have an energy up to any time (``curve``). *By the tail*: once the sensor has forgotten the program its level
P1 is the power that went on after it, as P0 is that before, and from an early sample a to a late one b::

    total = integral(Pm) + A * (P1 - P0) - P0 * (start - t_a) - P1 * (t_b - end)

with A the mean age of what the sensor shows, C of a lag. Where the GPU is idle again A has no part in it. For
a slow lag that is less noisy, and right even if C is not; but it holds only if power was at P1 from the
program's end on. It counts where both levels are steady, unless the two ways contradict each other even with
a C that is 20 % off.

A counter's difference from its last tick before the start to its first one after the end is exact; what of it
lies outside the program is taken off (``counted``). A curve of the same power shows that. Without one it is
idle power before the start, and after the end the power between the counter's next ticks; as power may have
stayed at the program's mean, that is so uncertain.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.model.trial import expanded

from ..base import PowerLevel, ProgramEnergy, ProgramTimeline, Response, Sample, SensorInfo
from ..response.models import Array, age_s, corrected, cumulative_energy_j
from .counters import EnergyCurve, SensorHistory, age_variance_s2, unknown_age_s
from .mean_power import power_between
from .samples import SampleSeries, gaps, plausible
from .streams import power_of_samples

# --- Steady power around a program: idle power before and after it, and what goes on after it.
#
# A level is the mean power of a window (``windows``) in which the sensor has long settled, so that its lag is
# not undone: equation (6) would only add the noise of two samples, C times each. Two halves that surely
# differ make it a level that drifts.

_FEW = 4  # samples of a level that say something
_SURELY = 3.0  # standard uncertainties that make a drift one
_LEAST_W2 = 1e-12  # no level is known better


def joined(first: PowerLevel, other: PowerLevel) -> PowerLevel | None:
    """The level that both are, as well as both know it; None where they differ."""
    if abs(other.watts - first.watts) > _SURELY * math.hypot(first.sigma_w, other.sigma_w):
        return None
    variances_w2 = np.maximum((first.sigma_w**2, other.sigma_w**2), _LEAST_W2)
    sigma_w = float(np.sqrt(1.0 / np.sum(1.0 / variances_w2)))
    return PowerLevel(float(np.average((first.watts, other.watts), weights=1.0 / variances_w2)), sigma_w)


def idle_level(series: SampleSeries, info: SensorInfo, line: ProgramTimeline) -> PowerLevel | None:
    """Idle power before the program, and after it where that is wanted; None of too few samples."""
    before = level(series, info, line.began_s, line.started_s)
    if before is None or line.idle_after_s <= 0:
        return before
    after = level(series, info, line.finished_s - line.idle_after_s, line.finished_s)
    return before if after is None else PowerLevel.between((before, after))


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
    mean = power_between(ticks.at([first, last]), info, SensorHistory())
    return PowerLevel(mean.watts, expanded(mean.parts)[0])


def _settled(series: SampleSeries, info: SensorInfo) -> PowerLevel:
    """Mean of what a sensor shows once it has settled, of at least two samples."""
    mean = power_of_samples(series, replace(info, response=Response()))
    return PowerLevel(mean.watts, expanded(mean.parts)[0])


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


# --- Joules of the program itself, its corrected power and its peak.

_MODEL = 0.33  # of a lag: a fifth of the true one, and what its highest reading misses between two samples
_REMEMBERS = 2.0  # periods: what is shown for no longer needs no waiting for
_CONTRADICTION = 3.0  # standard uncertainties between two ways to the same joules
_TRIPLE = 3
_GAP_S = 0.25  # a shorter pause is that of a busy host
_PEAK_LAGS = 2.0  # time constants a peak is averaged over: equation (6) then adds no more than the noise
_LAGS = 3.0  # after a step, until which a mean age does not tell what a lag does
_SQRT_3 = 3.0**0.5
_SQRT_12 = 12.0**0.5

Joules = tuple[float, float]  # and their variance


def program_energies(
    readings: Sequence[tuple[SensorInfo, Sequence[Sample]]], line: ProgramTimeline
) -> list[ProgramEnergy | None]:
    """Joules of a program by each of its readings; None where too few samples lie before or after it.

    The first reading of power tells the counters of the same scope what lies between their ticks and the
    program's ends.

    Args:
        readings: each with its samples, uncorrected, oldest first.
        line: when the program ran.
    """
    stream = next(((info, samples) for info, samples in readings if info.kind != "counter" and samples), None)
    curve = EnergyCurve(plausible(stream[1], stream[0])[0], stream[0]) if stream is not None else None
    return [
        program_energy(
            samples, info, line, curve if stream is not None and stream[0].scope == info.scope else None
        )
        for info, samples in readings
    ]


def program_energy(
    samples: Sequence[Sample], info: SensorInfo, line: ProgramTimeline, curve: EnergyCurve | None = None
) -> ProgramEnergy | None:
    """Joules of the program; None where too few samples lie before or after it.

    Args:
        samples: watts, or joules of a counter, uncorrected, oldest first.
        info: the reading.
        line: of the recording.
        curve: of another reading of the same power, which tells a counter's what lies between its ticks and
            the program's ends.
    """
    series, _ = plausible(samples, info)
    idle = idle_level(series, info, line)
    after = level(series, info, line.ended_s + info.response.settling_s, math.inf)  # the program is forgotten
    if idle is None:
        return None
    if info.kind == "counter":
        total = counted(series, info, line, idle, curve)
    else:
        total = _integrated(series, info, line, idle, after)
    if total is None:
        return None
    total_j, variance_j2 = total
    idle_j = idle.watts * line.duration_s
    peak_w, peak_window_s = peak_power(_around(series, info, line), info)
    return ProgramEnergy(
        total_j=total_j,
        total_sigma_j=float(np.sqrt(variance_j2)),
        net_j=total_j - idle_j,
        net_sigma_j=float(np.sqrt(variance_j2 + (idle.sigma_w * line.duration_s) ** 2)),
        idle_w=idle.watts,
        idle_sigma_w=idle.sigma_w,
        mean_w=total_j / line.duration_s,
        peak_w=peak_w,
        peak_window_s=peak_window_s,
        after=after,
        notes=tuple(_notes(series, info, line, idle)),
    )


@dataclass(frozen=True)
class CorrectedPower:
    """Power over time as a reading shows it and as it was; all arrays have shape (n,).

    Attributes:
        times_s: times of the samples.
        shown_w: power as the sensor shows it.
        corrected_w: power corrected for the sensor's response.
        age_s: how much older the corrected power is than its samples.
    """

    times_s: Array
    shown_w: Array
    corrected_w: Array
    age_s: float


def corrected_power(samples: Sequence[Sample], info: SensorInfo) -> CorrectedPower:
    """Power over time that a reading of power shows, corrected for its response."""
    series, _ = plausible(samples, info)
    watts = corrected(series.times_s, series.values, info.response)
    return CorrectedPower(series.times_s, series.values, watts, age_s(info.response))


def _integrated(
    series: SampleSeries, info: SensorInfo, line: ProgramTimeline, idle: PowerLevel, after: PowerLevel | None
) -> tuple[float, float] | None:
    """Joules from start to end and their variance, of a reading of power."""
    curve = EnergyCurve(series, info)
    if not curve.covers(line.started_s, line.ended_s):
        return None
    start, end = curve.at_start(line.started_s), curve.at_end(line.ended_s)
    direct = curve.joules(start, end)
    tail = _by_tail(series, info, line, idle, after)
    if tail is None:
        return direct
    apart_j = abs(tail[0] - direct[0])
    model_j = abs(_MODEL * info.response.capacitance_s * (end.shown_w - start.shown_w))
    if apart_j > model_j + _CONTRADICTION * np.sqrt(tail[1] + direct[1]):
        return direct
    # power may not have been at its level right from the end on: by as much as the two differ, and unseen by
    # both between two samples
    return tail[0], tail[1] + start.doubt_j**2 + end.doubt_j**2 + apart_j**2 / 3.0


def _by_tail(
    series: SampleSeries, info: SensorInfo, line: ProgramTimeline, idle: PowerLevel, after: PowerLevel | None
) -> tuple[float, float] | None:
    """The same by the levels around, see the top of this file; None where they are unknown or unsteady."""
    age_s = info.response.mean_age_s
    if after is None or idle.unsteady or after.unsteady:
        return None
    if info.response.lasting_s < _REMEMBERS * info.period_s:
        return None
    dated = series.earlier(info.response.delay_s)
    first = int(np.searchsorted(dated.times_s, line.started_s, side="right")) - 1
    last = int(np.searchsorted(dated.times_s, line.ended_s + info.response.lasting_s))
    if first < 0 or last >= len(dated):
        return None
    early_s, late_s = line.started_s - dated.times_s[first], dated.times_s[last] - line.ended_s
    area = EnergyCurve(dated.part(first, last), replace(info, response=Response()))
    joules, variance_j2 = area.joules(area.inside(dated.times_s[first]), area.inside(dated.times_s[last]))
    both = joined(idle, after)
    if both is not None:
        joules -= both.watts * (early_s + late_s)
        return joules, variance_j2 + (both.sigma_w * (early_s + late_s)) ** 2
    rise_w = after.watts - idle.watts
    joules += age_s * rise_w - idle.watts * early_s - after.watts * late_s
    variance_j2 += (idle.sigma_w * (early_s + age_s)) ** 2 + (after.sigma_w * (late_s - age_s)) ** 2
    return joules, variance_j2 + (info.response.age_sigma_s * rise_w) ** 2


def _around(series: SampleSeries, info: SensorInfo, line: ProgramTimeline) -> SampleSeries:
    """From the sample before the program's start to the one after its end."""
    seen_s = series.times_s - info.response.delay_s
    first = int(np.searchsorted(seen_s, line.started_s, side="right")) - 1
    return series.part(max(first, 0), int(np.searchsorted(seen_s, line.ended_s)))


def peak_power(span: SampleSeries, info: SensorInfo) -> tuple[float | None, float]:
    """Highest mean power over a time that the sensor resolves, and that time."""
    if info.kind == "counter":
        return None, 0.0
    lag_s, times, power = info.response.capacitance_s, span.times_s, span.values
    if lag_s == 0 or len(span) < _TRIPLE:
        return float(np.max(power)), max(info.response.window_s, info.period_s)
    wide = max(1, round(_PEAK_LAGS * lag_s / info.period_s)) if info.period_s else 1
    wide = min(wide, len(span) - 1)
    joules = cumulative_energy_j(times, power, info.response)
    lengths_s = times[wide:] - times[:-wide]
    return float(np.max((joules[wide:] - joules[:-wide]) / lengths_s)), float(np.median(lengths_s))


def _notes(series: SampleSeries, info: SensorInfo, line: ProgramTimeline, idle: PowerLevel) -> Iterator[str]:
    if idle.unsteady:
        yield (
            f"unsteady-idle: power went {'up' if idle.drift_w > 0 else 'down'} by about"
            f" {abs(idle.drift_w):.3g} W while idle power was measured; let the GPU settle, or see --idle"
        )
    yield from info.aliasing
    if info.kind == "counter":
        if np.any(np.diff(series.values) < 0):
            yield "sensor-reset: the counter started anew; its joules are no use"
        return
    dated = series.earlier(info.response.delay_s)
    pauses_s = [end - begin for begin, end in gaps(dated, line.started_s, line.ended_s, info, _GAP_S)]
    if pauses_s:
        yield f"sensor-gap: no sample for {max(pauses_s):.2g} s"
    if series.times_s[-1] - info.response.delay_s < line.ended_s + info.response.lasting_s:
        yield "cut-short: the recording ended before the sensor had forgotten the program"


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
    told_s = line.ended_s + _LAGS * info.response.capacitance_s + unknown_age_s(info)
    first = int(np.searchsorted(ticks.times_s, line.started_s, side="right")) - 1
    last = min(int(np.searchsorted(ticks.times_s, told_s)), len(ticks) - 1)
    if first < 0 or ticks.times_s[last] < line.ended_s:
        return None
    around = ticks.part(first, last)
    if curve is not None and curve.covers(around.times_s[0], around.times_s[-1]):
        outside_j, variance_j2 = _outside_by_curve(around, line, curve)
        before_w, after_w = (curve.watts(float(time_s)) for time_s in around.times_s[[0, -1]])
    else:
        before = _between(ticks, first - 1, info) or idle
        after = _between(ticks, last, info)
        outside_j, variance_j2 = _outside_by_levels(
            around, line, (idle, before, after, _between(ticks, last + 1, info))
        )
        before_w, after_w = before.watts, (after or idle).watts
    total_j = _joules(around) - outside_j
    variance_j2 += info.resolution**2 / 6.0
    variance_j2 += float(
        (before_w * around.time_sigmas_s[0]) ** 2 + (after_w * around.time_sigmas_s[-1]) ** 2
    )
    variance_j2 += age_variance_s2(info) * (after_w - before_w) ** 2
    return total_j, variance_j2


def _outside_by_curve(around: SampleSeries, line: ProgramTimeline, curve: EnergyCurve) -> Joules:
    """Return the part of the ticks' joules outside the program, by the curve, and its variance.

    By how much the curve differs from the counter over all of it, it may be wrong there too.
    """
    first, last = (curve.inside(float(time_s)) for time_s in around.times_s[[0, -1]])
    early_j, early_variance_j2 = curve.before(float(around.times_s[0]), line.started_s)
    late_j, late_variance_j2 = curve.after(line.ended_s, float(around.times_s[-1]))
    outside_j, counted_j = early_j + late_j, _joules(around)
    wrong = min(1.0, abs(curve.joules(first, last)[0] / counted_j - 1.0)) if counted_j > 0 else 1.0
    return outside_j, early_variance_j2 + late_variance_j2 + (wrong * outside_j) ** 2


def _outside_by_levels(
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
