"""Joules of a program that ran between two idle times, from the samples around it.

The recording begins while the GPU is idle and goes on until the sensor has forgotten the program: 7 C of a
lag, the window of a mean. From a sample a before the program's start to a sample b after that, with the idle
power P0 known from before (and after, if wanted)::

    E(a, b) = integral(Pm)
    net     = E(a, b) - P0 * (t_b - t_a)
    total   = net + P0 * duration

Equation (6) of the multi-kernel paper would add C * (Pm(b) - Pm(a)). As both ends are idle, that is nothing
but C times the noise of two samples, which for a slow lag is more than all other noise: it is left out, and
neither the sensor's lag or window nor the place of its samples near the program's start and end enters. Only
where the recording ended too early it is added. A counter's difference takes the place of E(a, b).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from tuner.interfaces import Response, Sample, SensorInfo

Array = npt.NDArray[np.float64]

FORGOTTEN = 7.0  # time constants until less than 0.1 % of a short program's energy is still to be shown
_FEW = 4  # samples of idle power that say something
_ONE_SIGMA = 0.8413447460685429  # of the normal distribution, one-sided
_PAIR = 2
_TRIPLE = 3
_GAP_PERIODS = 4.0  # without a sample are a gap,
_GAP_S = 0.25  # if they last as long
_PEAK_LAGS = 2.0  # time constants a peak is averaged over: equation (6) then adds no more than the noise


@dataclass(frozen=True)
class Timeline:
    """When what happened, on the clock of the samples.

    Attributes:
        began_s: idle from here on.
        started_s: the program started.
        ended_s: the program ended.
        finished_s: the recording ended.
        idle_after_s: how much of the recording's end is to count as idle, beside what was before.
    """

    began_s: float
    started_s: float
    ended_s: float
    finished_s: float
    idle_after_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """How long the program ran."""
        return self.ended_s - self.started_s


@dataclass(frozen=True)
class TracedEnergy:
    """What a reading says of a program. Uncertainties are standard uncertainties of noise and timing.

    Attributes:
        total_j: energy while the program ran.
        total_sigma_j: its uncertainty.
        net_j: energy beyond what the GPU would have drawn idle.
        net_sigma_j: its uncertainty.
        idle_w: idle power.
        idle_sigma_w: its uncertainty.
        mean_w: total over duration.
        peak_w: highest corrected power over ``peak_window_s``; None for a counter.
        peak_window_s: see ``peak_w``.
        notes: what was not as it should be.
    """

    total_j: float
    total_sigma_j: float
    net_j: float
    net_sigma_j: float
    idle_w: float
    idle_sigma_w: float
    mean_w: float
    peak_w: float | None
    peak_window_s: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """Samples as arrays of shape (n,), oldest first: times, values, standard uncertainties of the times."""

    times_s: Array
    values: Array
    time_sigmas_s: Array

    @staticmethod
    def of(samples: Sequence[Sample]) -> "Series":
        """Collect samples; one that is not later than all before it is left out."""
        rows = np.array([(s.time_s, s.value, s.time_sigma_s) for s in samples], dtype=np.float64)
        rows = rows.reshape(-1, 3)
        latest = np.maximum.accumulate(np.concatenate(([-np.inf], rows[:, 0])))
        rows = rows[rows[:, 0] > latest[:-1]]
        return Series(rows[:, 0], rows[:, 1], rows[:, 2])

    def __len__(self) -> int:
        return len(self.times_s)

    def part(self, first: int, last: int) -> "Series":
        """The samples from index ``first`` to ``last``, both included."""
        chosen = slice(first, last + 1)
        return Series(self.times_s[chosen], self.values[chosen], self.time_sigmas_s[chosen])

    def between(self, start_s: float, end_s: float) -> "Series":
        """The samples from one time to another, which is not included."""
        first, end = np.searchsorted(self.times_s, [start_s, end_s], side="left")
        return self.part(int(first), int(end) - 1)

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return float(self.times_s[-1] - self.times_s[0]) if len(self) else 0.0


def memory_s(response: Response) -> float:
    """How long a reading goes on showing what has ended."""
    return response.delay_s + max(FORGOTTEN * response.capacitance_s, response.window_s)


def traced_energy(samples: Sequence[Sample], info: SensorInfo, timeline: Timeline) -> TracedEnergy | None:
    """Joules of the program; None where too few samples lie before or after it.

    Args:
        samples: watts, or joules of a counter, uncorrected, oldest first.
        info: the reading.
        timeline: of the recording.
    """
    trace = Series.of(samples)
    idle = _idle(trace, info, timeline)
    before = np.flatnonzero(trace.times_s < timeline.started_s + info.response.delay_s)
    forgotten_s = timeline.ended_s + max(memory_s(info.response), _quantum_s(info))
    after = np.flatnonzero(trace.times_s > max(timeline.ended_s, timeline.started_s + info.response.delay_s))
    if idle is None or not len(before) or not len(after):
        return None
    late = after[trace.times_s[after] >= forgotten_s]
    span = trace.part(int(before[-1]), int(late[0] if len(late) else after[-1]))
    complete = len(late) > 0
    energy_j, variance_j2 = (
        _counted(span, info) if info.kind == "counter" else _integral(span, info, complete=complete)
    )
    idle_w, idle_sigma_w = idle
    if info.kind == "counter":  # a tick that is dated wrongly moves idle power in or out
        variance_j2 += float(idle_w**2 * (span.time_sigmas_s[0] ** 2 + span.time_sigmas_s[-1] ** 2))
    net_j = energy_j - idle_w * span.duration_s
    total_j = net_j + idle_w * timeline.duration_s
    surplus_s = timeline.duration_s - span.duration_s
    peak_w, peak_window_s = _peak(span, info)
    return TracedEnergy(
        total_j=total_j,
        total_sigma_j=float(np.sqrt(variance_j2 + (idle_sigma_w * surplus_s) ** 2)),
        net_j=net_j,
        net_sigma_j=float(np.sqrt(variance_j2 + (idle_sigma_w * span.duration_s) ** 2)),
        idle_w=idle_w,
        idle_sigma_w=idle_sigma_w,
        mean_w=total_j / timeline.duration_s,
        peak_w=peak_w,
        peak_window_s=peak_window_s,
        notes=tuple(_notes(span, info, complete=complete)),
    )


def _quantum_s(info: SensorInfo) -> float:
    """A counter shows what has ended at its next tick, which may have been on its way."""
    return info.period_s if info.kind == "counter" else 0.0


def _idle(trace: Series, info: SensorInfo, timeline: Timeline) -> tuple[float, float] | None:
    """Idle power and its standard uncertainty, of before and, where wanted, after."""
    parts = [_mean(trace, info, timeline.began_s, timeline.started_s)]
    if timeline.idle_after_s > 0:
        parts.append(_mean(trace, info, timeline.finished_s - timeline.idle_after_s, timeline.finished_s))
    known = [part for part in parts if part is not None]
    if parts[0] is None or not known:
        return None
    if len(known) == 1:
        return known[0]
    (before_w, before_sigma_w), (after_w, after_sigma_w) = known
    # a drift between the two is met half-way, and not better known than to a fraction of itself
    sigma_w = np.hypot(before_sigma_w, after_sigma_w) / 2.0
    return (before_w + after_w) / 2.0, float(np.hypot(sigma_w, (after_w - before_w) / np.sqrt(12.0)))


def _mean(trace: Series, info: SensorInfo, start_s: float, end_s: float) -> tuple[float, float] | None:
    """Mean power of an idle time and its standard uncertainty."""
    response = info.response
    if info.kind == "counter":
        ticks = trace.between(start_s, end_s)
        if len(ticks) < _PAIR:
            return None
        energy_j, variance_j2 = _counted(ticks, info)
        watts = energy_j / ticks.duration_s
        ends_s2 = ticks.time_sigmas_s[0] ** 2 + ticks.time_sigmas_s[-1] ** 2
        return watts, float(np.sqrt(variance_j2 + watts**2 * ends_s2) / ticks.duration_s)
    power = trace.between(start_s + response.delay_s + response.window_s, end_s + response.delay_s).values
    if len(power) < _FEW:
        return None
    # samples of one mean are no new information, nor are those within a lag
    common = (
        1.0 + (response.window_s + 2.0 * response.capacitance_s) / info.period_s if info.period_s else 1.0
    )
    free = max(1.0, len(power) / common)
    scatter_w2 = float(np.var(power, ddof=1)) + info.resolution**2 / 12.0
    widened = float(stdtrit(max(1.0, free - 1.0), _ONE_SIGMA))
    return float(np.mean(power)), widened * float(np.sqrt(scatter_w2 / free))


def _counted(ticks: Series, info: SensorInfo) -> tuple[float, float]:
    """Joules from the first tick to the last, and the variance that the counter's step gives them."""
    return float(ticks.values[-1] - ticks.values[0]), info.resolution**2 / 6.0


def _integral(span: Series, info: SensorInfo, *, complete: bool) -> tuple[float, float]:
    """Joules under the trace and their variance; corrected where the sensor has not forgotten the program.

    The variance of a sample comes from second differences, which hold the sensor's noise and what the power
    does between samples: a load that changes faster than the sensor looks is sampled, not followed.
    """
    times, power = span.times_s, span.values
    lag_s = 0.0 if complete else info.response.capacitance_s + info.response.window_s / 2.0
    steps = np.diff(times)
    energy_j = float(np.sum(steps * (power[1:] + power[:-1])) / 2.0 + lag_s * (power[-1] - power[0]))
    weights = np.concatenate(([steps[0]], steps[1:] + steps[:-1], [steps[-1]])) / 2.0
    noise_w2 = _sample_variance(power) + info.resolution**2 / 12.0
    variance_j2 = noise_w2 * float(np.sum(weights**2) + 2.0 * lag_s**2)
    variance_j2 += (info.response.capacitance_sigma_s * float(power[-1] - power[0])) ** 2
    turns_w = np.concatenate(([power[0] - power[1]], power[:-2] - power[2:], [power[-2] - power[-1]])) / 2.0
    return energy_j, variance_j2 + float(np.sum((turns_w * span.time_sigmas_s) ** 2))


def _sample_variance(power: Array) -> float:
    if len(power) < _TRIPLE:
        return float(np.ptp(power)) ** 2 / 12.0
    return float(np.mean(np.diff(power, n=2) ** 2)) / 6.0


def _peak(span: Series, info: SensorInfo) -> tuple[float | None, float]:
    """Highest mean power over a time that the sensor resolves, and that time."""
    if info.kind == "counter":
        return None, 0.0
    lag_s, times, power = info.response.capacitance_s, span.times_s, span.values
    if lag_s == 0 or len(span) < _TRIPLE:
        return float(np.max(power)), max(info.response.window_s, info.period_s)
    wide = max(1, round(_PEAK_LAGS * lag_s / info.period_s)) if info.period_s else 1
    wide = min(wide, len(span) - 1)
    integral = np.concatenate(([0.0], np.cumsum(np.diff(times) * (power[1:] + power[:-1]) / 2.0)))
    lengths = times[wide:] - times[:-wide]
    energy = integral[wide:] - integral[:-wide] + lag_s * (power[wide:] - power[:-wide])
    return float(np.max(energy / lengths)), float(np.median(lengths))


def _notes(span: Series, info: SensorInfo, *, complete: bool) -> list[str]:
    notes = []
    longest_s = float(np.max(np.diff(span.times_s)))
    if info.kind != "counter" and longest_s > max(_GAP_S, _GAP_PERIODS * info.period_s):
        notes.append(f"sensor-gap: no sample for {longest_s:.2g} s")
    if not complete:
        notes.append("cut-short: the recording ended before the sensor had forgotten the program")
    if not info.response.averages:
        notes.append(f"aliasing: {info.name} need not show the mean of a load that repeats")
    if info.kind == "counter" and float(span.values[-1] - span.values[0]) < 0:
        notes.append("counter-reset: the counter started anew; its joules are no use")
    return notes
