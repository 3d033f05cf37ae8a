"""Mean power of a window from samples of watts, as a weighted sum with its uncertainty.

A sensor that sees all of the time, as a mean over the time between two samples does, or a lag longer than
that, misses nothing of a periodic load: its scatter is then the load's, and noise is only what the spectrum
of the samples shows everywhere (``noise.noise_floor``). Of a sensor that looks away in between, all scatter
counts. Slow beats, as of a load whose period is nearly the sensor's, count where a sensor lets them through.
"""

from dataclasses import dataclass

import numpy as np

from tuner.interfaces import Response, SensorInfo
from tuner.model import Part

from ..response.models import Array, corrected, energy_weights_s
from .noise import ROUNDING, Spread, local_spread, noise_floor, pooled, sees_all
from .samples import SampleSeries
from .ticks import SensorHistory

LEAST_LOAD_W = 0.01  # of less power no relative noise is told
_PAIR = 2  # a mean power needs two samples
_SMOOTH = 8.0  # periods: a longer lag leaves less than 2 % of a load whose period is the sensor's
_PIECES = 8  # of a window, whose scatter tells of beats
_FEW_PIECES = 4
_FEW_MEANS = 6  # of fewer running means inside a window the exact inverse has less noise


@dataclass(frozen=True)
class PowerEstimate:
    """Mean power between two times, the parts of its variance not yet joined.

    Attributes:
        watts: the mean.
        parts: of its variance, in watts squared.
        begin_s: from when on it is the mean.
        end_s: until when.
        slope_w_s: drift of power, in watts by second.
        method: names a weaker way to get it.
    """

    watts: float
    parts: tuple[Part, ...]
    begin_s: float
    end_s: float
    slope_w_s: float = 0.0
    method: str = ""


def stream_power(
    series: SampleSeries, start_s: float, end_s: float, info: SensorInfo, history: SensorHistory
) -> PowerEstimate | None:
    """Mean power of a window from the samples that show power of it; None of too few."""
    response = info.response
    hidden_s = 0.0 if response.kind == "lag" or sees_all(info) else response.window_s
    if response.kind == "ramp":
        return _of_means(series, start_s, end_s, info, history) or _inverted(series, start_s, end_s, info)
    inside = series.between(start_s + hidden_s, end_s)
    if len(inside) < _PAIR:
        return None
    return power_of_samples(inside, info, (start_s, end_s), history)


def power_of_samples(
    inside: SampleSeries,
    info: SensorInfo,
    window: tuple[float, float] | None = None,
    history: SensorHistory | None = None,
) -> PowerEstimate:
    """Mean power from the first of at least two samples to the last, undone of a lag.

    Args:
        inside: the samples, dated by the power that they show.
        info: the reading; no running mean.
        window: (start, end) of the window they lie in; None for one from the first of them to the last.
        history: what earlier windows told of the sensor; this one adds to it.
    """
    times_s, power = inside.times_s, inside.values
    window = window or (float(times_s[0]), float(times_s[-1]))
    weights = energy_weights_s(times_s, info.response) / inside.duration_s
    watts = float(weights @ power)
    noise, parts = _scatter(inside, watts, window, info, history or SensorHistory())
    parts += [Part(noise.variance * float(weights @ weights), noise.degrees), *_systematic(inside, info)]
    slope = _slope(times_s, power, info.response)
    return PowerEstimate(watts, tuple(parts), float(times_s[0]), float(times_s[-1]), slope)


def _beats_through(inside: SampleSeries, own: Spread, info: SensorInfo) -> list[Part]:
    """Beats of a short lag: a load whose period is the sensor's keeps some of its swing in every sample.

    Means that tile the time, and running means over whole periods, leave nothing of it. A beat may be so slow
    that neighbouring samples do not scatter by it.
    """
    if info.response.kind != "lag" or info.response.capacitance_s >= _SMOOTH * info.period_s:
        return []
    return [_beats(inside, own)]


def _scatter(
    inside: SampleSeries, watts: float, window: tuple[float, float], info: SensorInfo, history: SensorHistory
) -> tuple[Spread, list[Part]]:
    """Noise of a sample, and the parts of the mean's variance that the load's own changes make."""
    whole = inside.between(window[0] + info.response.window_s, window[1])
    inside = whole if len(whole) >= _PAIR else inside  # the first mean may reach back to before the window
    own = local_spread(inside.times_s, inside.values)
    if not sees_all(info):
        return own, [_beats(inside, own)]
    floor = noise_floor(inside.values)
    if floor is not None and own.exceeds(floor):
        edges = [] if info.response.kind == "ramp" else [_edges(inside, floor, window, info)]
        return floor, edges + _beats_through(inside, floor, info)
    if watts < LEAST_LOAD_W:
        return own, []
    relative = Spread(own.variance / watts**2, own.degrees)
    surer = pooled(relative, history.noise)
    history.tell_noise(relative)
    return Spread(surer.variance * watts**2, surer.degrees), _beats_through(inside, own, info)


def _edges(inside: SampleSeries, floor: Spread, window: tuple[float, float], info: SensorInfo) -> Part:
    """A pulsing load may be on or off between the window's ends and the samples nearest to them."""
    power = corrected(inside.times_s, inside.values, info.response)
    rest = _detrended(inside.times_s, power)
    noise = floor.variance
    if info.response.kind == "lag":
        step_s = inside.duration_s / (len(inside) - 1)
        noise *= 1.0 + (info.response.capacitance_s / step_s) ** 2 / 2.0
    pulses = max(0.0, float(rest @ rest) / len(rest) - noise)
    before_s, after_s = inside.times_s[0] - window[0], window[1] - inside.times_s[-1]
    return Part(pulses * float(before_s**2 + after_s**2) / (window[1] - window[0]) ** 2)


def _beats(inside: SampleSeries, own: Spread) -> Part:
    """Scatter of the means of pieces of the window, where it is more than the samples' own explains."""
    count = min(_PIECES, len(inside) // 2)
    if count < _FEW_PIECES:
        return Part(0.0)
    rest = _detrended(inside.times_s, inside.values)
    means = np.array([piece.mean() for piece in np.array_split(rest, count)])
    found = Spread(float(means @ means) / (count - 2), count - 2)
    explained = Spread(own.variance * count / len(inside), own.degrees)
    if not found.exceeds(explained):
        return Part(0.0)
    return Part((found.variance - explained.variance) / count, found.degrees)


def _systematic(inside: SampleSeries, info: SensorInfo) -> list[Part]:
    """What the response's own uncertainties and the rounding of the reading make of the mean."""
    response, power = info.response, inside.values
    rise_w = float(power[-1] - power[0]) / inside.duration_s
    age_sigma_s = float(np.hypot(response.delay_sigma_s, response.window_sigma_s / 2.0))
    middle = len(power) // 2
    change_w = float(power[middle:].mean() - power[:middle].mean())
    return [
        Part((response.capacitance_sigma_s * rise_w) ** 2),
        Part((age_sigma_s * 2.0 * change_w / inside.duration_s) ** 2),
        Part(info.resolution**2 / ROUNDING),  # a reading that never toggles is rounded by the same each time
    ]


def _slope(times_s: Array, power: Array, response: Response) -> float:
    """Drift of the corrected power in watts by second, from the two halves of the window; 0 of too few."""
    half = len(times_s) // 2
    if half < _PAIR:
        return 0.0
    first, second = (
        float(energy_weights_s(times_s[part], response) @ power[part])
        / float(times_s[part][-1] - times_s[part][0])
        for part in (slice(0, half + 1), slice(half, None))
    )
    return (second - first) / (float(times_s[-1] - times_s[0]) / 2.0)


# --- running means -------------------------------------------------------------------------------


def _of_means(
    series: SampleSeries, start_s: float, end_s: float, info: SensorInfo, history: SensorHistory
) -> PowerEstimate | None:
    """The mean of the running means that lie inside: power weighted by a trapezoid; None of too few.

    Where a window has room for it this carries a fraction of the noise of the exact inverse, and it needs
    nothing of what came before. Slow changes of power are weighted unevenly, which counts.
    """
    window_s = info.response.window_s
    inside = series.between(start_s + window_s, end_s)
    if len(inside) < _FEW_MEANS:
        return None
    watts = float(inside.values.mean())
    noise, parts = _scatter(inside, watts, (start_s, end_s), info, history)
    parts += [Part(noise.variance / len(inside), noise.degrees), *_systematic(inside, info)]
    parts.append(_uneven(inside, noise, window_s))
    slope = float(np.polyfit(inside.times_s - inside.times_s[0], inside.values, 1)[0])
    return PowerEstimate(
        watts, tuple(parts), float(inside.times_s[0]) - window_s, float(inside.times_s[-1]), slope
    )


def _uneven(inside: SampleSeries, noise: Spread, window_s: float) -> Part:
    """What a trapezoid makes of power that changes: means half a window apart tell how much it does.

    Of power without memory, of spectral density S, such a difference has the variance S / W, and the mean
    under the trapezoid that a window W and the time A between the first mean and the last make, less that of
    their whole time, S * ((L - l / 3) / L^2 - 1 / (A + W)), with L the longer of W and A and l the shorter.
    """
    step = max(1, round(window_s / 2.0 / (inside.duration_s / (len(inside) - 1))))
    rest = _detrended(inside.times_s, inside.values)
    differences = rest[step:] - rest[:-step]
    if len(differences) < _PAIR:
        return Part(0.0)
    found = Spread(float(np.mean(differences**2)), max(1.0, inside.duration_s / window_s))
    explained = Spread(2.0 * noise.variance, noise.degrees)
    if not found.exceeds(explained):
        return Part(0.0)
    apart_s = inside.duration_s
    longer_s, shorter_s = max(apart_s, window_s), min(apart_s, window_s)
    shape = (longer_s - shorter_s / 3.0) / longer_s**2 - 1.0 / (apart_s + window_s)
    return Part((found.variance - explained.variance) * window_s * max(0.0, shape), found.degrees)


def _inverted(series: SampleSeries, start_s: float, end_s: float, info: SensorInfo) -> PowerEstimate | None:
    """The exact inverse of running means, from the recording's first sample on; None of too few.

    It takes power to have been steady for a window before that sample.
    """
    places = np.flatnonzero((series.times_s >= start_s) & (series.times_s <= end_s))
    if len(places) < _PAIR or places[0] == 0:
        return None
    first, last = int(places[0]), int(places[-1])
    span_s = float(series.times_s[last] - series.times_s[first])
    weights = energy_weights_s(series.times_s[: last + 1], info.response)
    weights[: first + 1] -= energy_weights_s(series.times_s[: first + 1], info.response)
    weights /= span_s
    watts = float(weights @ series.values[: last + 1])
    inside = series.at(places.tolist())  # what came before may have jumped
    noise = local_spread(inside.times_s, inside.values)
    parts = [Part(noise.variance * float(weights @ weights), noise.degrees), *_systematic(inside, info)]
    return PowerEstimate(
        watts, tuple(parts), float(inside.times_s[0]), float(inside.times_s[-1]), method="inverted means"
    )


def _detrended(times_s: Array, values: Array) -> Array:
    """Values without mean and drift."""
    line = np.polyfit(times_s - times_s[0], values, 1)
    return np.asarray(values - np.polyval(line, times_s - times_s[0]))
