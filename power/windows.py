"""Mean power over a time window, with its standard uncertainty, from the samples of one sensor.

The uncertainty joins what the sensor's noise and clock do to the mean of the whole window, u_n, with what the
power itself scatters. The window is cut into K <= 8 pieces of mean power p_k. Of their variance s^2 the part
that the noise explains, s_n^2, is taken away, with one standard deviation of what noise alone would give::

    u^2 = u_n^2 + t^2 * max(0, s^2 - s_n^2 * (1 + sqrt(2 / (K - 1)))) / K

t widens a standard error of few pieces to the one-sigma width of Student's distribution with K - 1 degrees
of freedom. Treating noise apart matters for a corrected lag: the noise of its pieces cancels between
neighbours, and the plain scatter of the pieces would overstate u by a factor of sqrt(K).
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.interfaces import SensorInfo

from .response import Array, energy_j, energy_weights_s
from .ticks import Trace, on_rhythm

PIECES = 8
_PAIR = 2  # a difference needs two samples
_TRIPLE = 3  # a second difference needs three


@dataclass(frozen=True)
class MeanPower:
    """Mean power of a window with its standard uncertainty; ``method`` names a weaker way to get it."""

    watts: float
    uncertainty_w: float
    method: str = ""


def mean_power(trace: Trace, start_s: float, end_s: float, info: SensorInfo) -> MeanPower | None:
    """Mean power from ``start_s`` to ``end_s``, or None where the samples say too little.

    A counter is read from its first tick in the window to its last; a power trace from its first sample whose
    averaging window lies inside to its last, corrected by equation (6).
    """
    if end_s <= start_s:
        return None
    if info.kind == "counter":
        trace = on_rhythm(trace)
        ticks = trace.between(start_s, end_s)
        if len(ticks) >= _PAIR:
            return _between_ticks(ticks, info)
        return _around_ticks(trace, start_s, end_s, info)
    samples = trace.between(start_s + info.response.window_s, end_s)
    return _under_trace(samples, info) if len(samples) >= _PAIR else None


def total_joules(trace: Trace, duration_s: float, info: SensorInfo) -> float:
    """Energy of a recording of ``duration_s``: that between its samples, scaled to the whole; 0.0 without."""
    if len(trace) < _PAIR:
        return float(trace.values[0]) * duration_s if len(trace) and info.kind != "counter" else 0.0
    if info.kind == "counter":
        joules = float(trace.values[-1] - trace.values[0])
    else:
        joules = energy_j(trace.times_s, trace.values, info.response)
    return joules * duration_s / trace.duration_s


def _between_ticks(ticks: Trace, info: SensorInfo) -> MeanPower:
    """Edge-aligned counter difference; u_n is the timing of the ticks and the counter's quantum."""
    edges = _edges(len(ticks))
    spans = np.diff(ticks.times_s[edges])
    powers = np.diff(ticks.values[edges]) / spans
    watts = float(ticks.values[-1] - ticks.values[0]) / ticks.duration_s
    # A step q rounds each end by q / sqrt(12); a time that is off by s moves the energy by P * s.
    variance_j2 = info.resolution**2 / 12.0 + (watts * ticks.time_sigmas_s) ** 2
    noise = (variance_j2[edges[1:]] + variance_j2[edges[:-1]]) / spans**2
    own = float(variance_j2[0] + variance_j2[-1]) / ticks.duration_s**2 + (watts * ticks.scale_sigma) ** 2
    return MeanPower(watts, _joined(own, noise, powers, spans))


def _around_ticks(trace: Trace, start_s: float, end_s: float, info: SensorInfo) -> MeanPower | None:
    """Counter interpolated through the ticks around a window that holds fewer than two.

    Power in the time that belongs to only one of window and tick interval may be anything from none to twice
    the mean: the uncertainty is that of a rectangular distribution.
    """
    before = np.flatnonzero(trace.times_s <= start_s)
    after = np.flatnonzero(trace.times_s >= end_s)
    first = int(before[-1]) if len(before) else 0
    last = int(after[0]) if len(after) else len(trace) - 1
    if last <= first:
        return None
    begin, finish = float(trace.times_s[first]), float(trace.times_s[last])
    shared = min(finish, end_s) - max(begin, start_s)
    if shared <= 0:
        return None
    apart = (finish - begin) + (end_s - start_s) - 2.0 * shared
    known = _between_ticks(trace.at([first, last]), info)
    guess = known.watts * apart / (end_s - start_s) / np.sqrt(3.0)
    return MeanPower(known.watts, float(np.hypot(known.uncertainty_w, guess)), "interpolated")


def _under_trace(samples: Trace, info: SensorInfo) -> MeanPower:
    """Mean of the corrected trace; u_n is the samples' noise as their weights carry it, and C's own."""
    times, power = samples.times_s, samples.values
    noise_w2 = _sample_noise(power)
    edges = _edges(len(samples))
    spans = np.diff(times[edges])
    parts = [slice(a, b + 1) for a, b in itertools.pairwise(edges)]
    weights = [energy_weights_s(times[part], info.response) for part in parts]
    pieces = [w @ power[part] for w, part in zip(weights, parts, strict=True)] / spans
    noise = noise_w2 * np.array([w @ w for w in weights]) / spans**2
    whole = energy_weights_s(times, info.response)
    watts = float(whole @ power) / samples.duration_s
    own = noise_w2 * float(whole @ whole) / samples.duration_s**2
    own += (info.response.capacitance_sigma_s * float(power[-1] - power[0]) / samples.duration_s) ** 2
    own += info.resolution**2 / 12.0  # a reading that never toggles is rounded by the same amount each time
    return MeanPower(watts, _joined(own, noise, pieces, spans))


def _sample_noise(power: Array) -> float:
    """Variance of one sample, from second differences, which a drift or a lag's decay hardly enters.

    Widened by t for the few samples it comes from; of two samples alone their difference has to do.
    """
    if len(power) < _TRIPLE:
        return float(student_factor(1) ** 2 * (power[1] - power[0]) ** 2 / 2.0)
    widened = student_factor(len(power) - _PAIR) ** 2
    return widened * float(np.mean(np.diff(power, n=2) ** 2)) / 6.0


def _edges(count: int) -> npt.NDArray[np.intp]:
    """Indices that cut ``count`` samples into at most ``PIECES`` pieces; neighbours share their end."""
    pieces = min(PIECES, count - 1)
    return np.linspace(0, count - 1, pieces + 1).round().astype(np.intp)


def _joined(own: float, noise: Array, powers: Array, spans: Array) -> float:
    """The formula at the top of this file: u from u_n^2, the pieces' noise variances and their powers."""
    count = len(powers)
    if count < _PAIR:
        return float(np.sqrt(own))
    mean = float(np.average(powers, weights=spans))
    scatter = float(np.average((powers - mean) ** 2, weights=spans)) * count / (count - 1)
    explained = float(np.mean(noise)) * (1.0 + np.sqrt(2.0 / (count - 1)))
    excess = max(0.0, scatter - explained)
    return float(np.sqrt(own + student_factor(count - 1) ** 2 * excess / count))


def student_factor(degrees: int) -> float:
    """One-sigma (68.3 %) half-width of Student's t distribution.

    Three terms of the Cornish-Fisher expansion around the normal distribution at z = 1; within 1.5 % from one
    degree of freedom (1.84) on.
    """
    return 1.0 + 1.0 / (2.0 * degrees) + 1.0 / (4.0 * degrees**2) + 1.0 / (16.0 * degrees**3)
