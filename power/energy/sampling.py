"""What a load that pulses does between samples, and at the ends of a window.

A sensor that sees all of the time, as a mean over the time between two samples does, or a lag longer than
that, shows every change of power; but a lag's samples are joined by straight lines, and a load whose period
is in step with them shows the same phase in each.
"""

import numpy as np

from tuner.interfaces.power import Response, SensorInfo
from tuner.model.uncertainty import Part

from ..response.models import Array, corrected
from .noise import Spread
from .samples import SampleSeries

_SMOOTH = 8.0  # periods: a longer lag leaves less than 2 % of a load whose period is the sensor's
_PIECES = 8  # of a window, whose scatter tells of beats
_FEW_PIECES = 4
_HARMONICS = 24  # of a load's period; those of a square wave fall with their number
_SWING = 4.0 / 3.0  # mean square of a swing between none and twice the mean, of the mean squared
_SPLIT = 1.5  # a jump between two samples shows as two changes, of 2/3 of its square together


def passed(response: Response, frequencies: Array) -> Array:
    """Amplitude of an oscillation in a reading, of that of power; shape as the frequencies (Hz)."""
    if response.capacitance_s > 0:
        return np.asarray(1.0 / np.hypot(1.0, 2.0 * np.pi * frequencies * response.capacitance_s))
    return np.asarray(np.abs(np.sinc(frequencies * response.window_s)))


def in_step(inside: SampleSeries, weights: Array, watts: float, round_s: float, info: SensorInfo) -> Part:
    """What a load of period ``round_s`` may add to ``weights @ values``, too fast for the samples to show it.

    A load that is on and off by a swing S has harmonics of amplitudes up to 2 S / (pi h). The response lets a
    part of each through, and the samples' times and weights leave of it |sum(w exp(2 pi i h t / round))|: all
    where the samples show the same phase each time, next to nothing where they show every phase. Scatter
    tells nothing of S then; it is taken for anything from none to twice the mean power.
    """
    if round_s <= 0:
        return Part(0.0)
    numbers = np.arange(1, _HARMONICS + 1)
    numbers = numbers[numbers / round_s >= 0.5 / info.period_s]  # slower ones are seen
    left = np.abs(np.exp(2j * np.pi * np.outer(numbers, inside.times_s) / round_s) @ weights)
    amplitudes = 2.0 / np.pi / numbers * passed(info.response, numbers / round_s) * left
    return Part(_SWING * watts**2 * float(amplitudes @ amplitudes) / 2.0)


def edges(
    inside: SampleSeries, noise: Spread, unseen_s: tuple[float, float], window_s: float, info: SensorInfo
) -> Part:
    """A pulsing load may be on or off between the window's ends and the samples nearest to them.

    Args:
        inside: the samples.
        noise: of one of them.
        unseen_s: from the window's begin to the first sample that counts, and from the last to its end.
        window_s: length of the window.
        info: the reading.
    """
    power = corrected(inside.times_s, inside.values, info.response)
    rest = detrended(inside.times_s, power)
    variance = noise.variance
    if info.response.kind == "lag":
        step_s = inside.duration_s / (len(inside) - 1)
        variance *= 1.0 + (info.response.capacitance_s / step_s) ** 2 / 2.0
    pulses = max(0.0, float(rest @ rest) / len(rest) - variance)
    return Part(pulses * (unseen_s[0] ** 2 + unseen_s[1] ** 2) / window_s**2)


def jumps(inside: SampleSeries, noise: Spread, info: SensorInfo) -> Part:
    """What straight lines between the samples of a lag make of jumps of power.

    A jump D at x of the time U between two samples is off by D U (x - 1/2 + c - e(x) / (e(1) - 1)), with
    c = C / U and e(x) = exp(x / c). For any x alike that has no mean, and the variance
    D^2 U^2 (1/12 + c^2 - c / 2 coth(1 / 2c)).

    The jumps are those of the mean power between samples, exp(-t / C) weighted, less what noise makes of it.
    """
    if info.response.kind != "lag" or len(inside) < _FEW_PIECES:
        return Part(0.0)
    step_s = inside.duration_s / (len(inside) - 1)
    ratio = info.response.capacitance_s / step_s
    share = 1.0 / 12.0 + ratio**2 - ratio / 2.0 / float(np.tanh(0.5 / ratio))
    kept = float(np.exp(-1.0 / ratio))
    changes = np.diff((inside.values[1:] - kept * inside.values[:-1]) / (1.0 - kept))
    noisy = noise.variance * (1.0 + (1.0 + kept) ** 2 + kept**2) / (1.0 - kept) ** 2
    squares = _SPLIT * max(0.0, float(changes @ changes) - len(changes) * noisy)
    return Part(max(0.0, share) * squares * (step_s / inside.duration_s) ** 2)


def beats(inside: SampleSeries, own: Spread) -> Part:
    """Scatter of the means of pieces of the window, where it is more than the samples' own explains."""
    count = min(_PIECES, len(inside) // 2)
    if count < _FEW_PIECES:
        return Part(0.0)
    rest = detrended(inside.times_s, inside.values)
    means = np.array([piece.mean() for piece in np.array_split(rest, count)])
    found = Spread(float(means @ means) / (count - 2), count - 2)
    explained = Spread(own.variance * count / len(inside), own.degrees)
    if not found.exceeds(explained):
        return Part(0.0)
    return Part((found.variance - explained.variance) / count, found.degrees)


def beats_through(inside: SampleSeries, own: Spread, watts: float, info: SensorInfo) -> Part:
    """Beats of a short lag: a load whose period is the sensor's keeps some of its swing in every sample.

    Means that tile the time, and running means over whole periods, leave nothing of it. A beat may be so slow
    that neighbouring samples do not scatter by it. It is no larger than the lag lets through of a load that
    is on and off; and where neighbours do differ, so that the load itself is seen, of its third harmonic.
    """
    response = info.response
    if response.kind != "lag" or response.capacitance_s >= _SMOOTH * info.period_s:
        return Part(0.0)
    found = beats(inside, own)
    if found.variance == 0:
        return found
    rest = detrended(inside.times_s, inside.values)
    changes = np.diff(rest)
    fastest = (2.0 * np.pi * _PIECES / len(rest)) ** 2 / 2.0  # mean square change of what the pieces can show
    slow = float(changes @ changes) < fastest * float(rest @ rest) + 2.0 * own.variance * len(rest)
    shown_w = float(np.ptp(corrected(inside.times_s, inside.values, response)))
    swing_w, harmonic, reach = (2.0 * watts, 1.0, 1.0) if slow else (min(2.0 * watts, shown_w), 3.0, 2.0)
    most_w = 2.0 * swing_w / np.pi / harmonic * float(passed(response, np.array(reach / info.period_s)))
    return Part(min(found.variance, most_w**2 / 2.0 / _PIECES), found.degrees)


def detrended(times_s: Array, values: Array) -> Array:
    """Values without mean and drift."""
    line = np.polyfit(times_s - times_s[0], values, 1)
    return np.asarray(values - np.polyval(line, times_s - times_s[0]))
