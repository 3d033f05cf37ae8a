"""Mean power of a window from samples of watts, as a weighted sum with its uncertainty.

Scatter of a few percent is noise, which may hang together (``correlation``). More is the load's: a sensor
that sees all of the time, as a mean over the time between two samples does, or a lag longer than that, misses
nothing of it but what ``sampling`` names, and noise is only what the spectrum of the samples shows everywhere
(``noise.noise_floor``). Of a sensor that looks away in between, all scatter counts.
"""

from dataclasses import dataclass

import numpy as np

from tuner.interfaces.power import Response, SensorInfo
from tuner.model.uncertainty import Part, expanded

from ..response.models import Array, energy_weights_s
from .correlation import correlated, told_of_times
from .counters import SensorHistory
from .noise import ROUNDING, Spread, local_spread, noise_floor, pooled, sees_all
from .samples import SampleSeries
from .sampling import beats, beats_through, detrended, edges, in_step, jumps

LEAST_LOAD_W = 0.01  # of less power no relative noise is told
_PAIR = 2  # a mean power needs two samples
_MOST_FLOOR = 0.02  # of power: noise under pulses, twice what any sensor known here has
_MOST_NOISE = 0.05  # of power: more scatter is the load's
_UNTOLD = 3  # degrees of freedom of each window that tell nothing of a correlation
_LEAST_CORRELATED = 18  # others of all windows: fewer tell nothing either
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
    series: SampleSeries,
    window: tuple[float, float],
    info: SensorInfo,
    history: SensorHistory,
    round_s: float = 0.0,
) -> PowerEstimate | None:
    """Mean power of a window from the samples that show power of it; None of too few.

    Args:
        series: the samples, dated by the power that they show.
        window: its (start, end).
        info: the reading.
        history: what earlier windows told of the sensor; this one adds to it.
        round_s: period with which the load repeats; 0 where that is not known.
    """
    start_s, end_s = window
    response = info.response
    hidden_s = 0.0 if response.kind == "lag" or sees_all(info) else response.window_s
    if response.kind == "ramp":
        return _of_means(series, window, info, history, round_s) or _inverted(series, start_s, end_s, info)
    inside = series.between(start_s + hidden_s, end_s)
    if len(inside) < _PAIR:
        return None
    return power_of_samples(inside, info, window, history, round_s)


def power_of_samples(
    inside: SampleSeries,
    info: SensorInfo,
    window: tuple[float, float] | None = None,
    history: SensorHistory | None = None,
    round_s: float = 0.0,
) -> PowerEstimate:
    """Mean power from the first of at least two samples to the last, undone of a lag.

    Args:
        inside: the samples, dated by the power that they show.
        info: the reading; no running mean.
        window: (start, end) of the window they lie in; None for one from the first of them to the last.
        history: what earlier windows told of the sensor; this one adds to it. Without one, noise is taken for
            white.
        round_s: period with which the load repeats; 0 where that is not known.
    """
    times_s, power = inside.times_s, inside.values
    window = window or (float(times_s[0]), float(times_s[-1]))
    weights = energy_weights_s(times_s, info.response) / inside.duration_s
    watts = float(weights @ power)
    whole = _whole(inside, window, info)
    unseen_s = float(times_s[0]) - window[0], window[1] - float(times_s[-1])
    noise, parts = _scatter(whole, watts, unseen_s, info, history or SensorHistory())
    within = weights[len(inside) - len(whole) :]
    parts.append(_noise(whole, within, noise, info, history if _steady(whole, watts) else None))
    parts += [in_step(inside, weights, watts, round_s, info), *_systematic(inside, info)]
    slope = _slope(times_s, power, info.response)
    return PowerEstimate(watts, tuple(parts), float(times_s[0]), float(times_s[-1]), slope)


def _whole(inside: SampleSeries, window: tuple[float, float], info: SensorInfo) -> SampleSeries:
    """The samples of nothing but the window: the first mean may reach back to before it; it has no weight."""
    whole = inside.between(window[0] + info.response.window_s, window[1])
    return whole if len(whole) >= _PAIR else inside


def _steady(inside: SampleSeries, watts: float) -> bool:
    """True where samples scatter by no more than noise may."""
    rest = detrended(inside.times_s, inside.values)
    return float(rest @ rest) <= (_MOST_NOISE * watts) ** 2 * len(rest)


def _noise(
    inside: SampleSeries, weights: Array, noise: Spread, info: SensorInfo, history: SensorHistory | None
) -> Part:
    """What noise makes of the mean: as white noise, or as correlated noise where that is more."""
    white = Part(noise.variance * float(weights @ weights), noise.degrees)
    if history is None:
        return white
    told = told_of_times(inside, weights, info.response, info.period_s)
    if told is None:
        return white
    likelihoods, variances, degrees = told
    known, windows = history.correlation
    history.tell_correlation(likelihoods)
    if (windows + 1) * (degrees - _UNTOLD) < _LEAST_CORRELATED:
        return white
    other = correlated(likelihoods, variances, degrees, known)
    return max(white, other, key=lambda part: expanded([part])[0])


def _scatter(
    inside: SampleSeries,
    watts: float,
    unseen_s: tuple[float, float],
    info: SensorInfo,
    history: SensorHistory,
) -> tuple[Spread, list[Part]]:
    """Noise of a sample, and the parts of the mean's variance that the load's own changes make."""
    own = local_spread(inside.times_s, inside.values)
    if not sees_all(info):
        return own, [beats(inside, own)]
    floor = noise_floor(inside.values)
    if floor is not None and (own.exceeds(floor) or not _steady(inside, watts)):
        if info.response.kind != "ramp":  # what is left in running means is none of their slow changes
            floor = Spread(min(floor.variance, (_MOST_FLOOR * watts) ** 2), floor.degrees)
        window_s = inside.duration_s + sum(unseen_s)
        ends = edges(inside, floor, unseen_s, window_s, info)
        return floor, [ends, jumps(inside, floor, info), beats_through(inside, floor, watts, info)]
    if watts < LEAST_LOAD_W:
        return own, []
    relative = Spread(own.variance / watts**2, own.degrees)
    surer = pooled(relative, history.noise)
    history.tell_noise(relative)
    return Spread(surer.variance * watts**2, surer.degrees), [beats_through(inside, own, watts, info)]


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
    series: SampleSeries,
    window: tuple[float, float],
    info: SensorInfo,
    history: SensorHistory,
    round_s: float,
) -> PowerEstimate | None:
    """The mean of the running means that lie inside: power weighted by a trapezoid; None of too few.

    Where a window has room for it this carries a fraction of the noise of the exact inverse, and it needs
    nothing of what came before. Slow changes of power are weighted unevenly, which counts.
    """
    window_s = info.response.window_s
    inside = series.between(window[0] + window_s, window[1])
    if len(inside) < _FEW_MEANS:
        return None
    watts = float(inside.values.mean())
    weights = np.full(len(inside), 1.0 / len(inside))
    noise, parts = _scatter(inside, watts, (0.0, 0.0), info, history)
    steady = _steady(inside, watts)
    parts.append(_noise(inside, weights, noise, info, history if steady else None))
    parts += [_uneven(inside, noise, window_s, surely=steady), in_step(inside, weights, watts, round_s, info)]
    parts += _systematic(inside, info)
    slope = float(np.polyfit(inside.times_s - inside.times_s[0], inside.values, 1)[0])
    return PowerEstimate(
        watts, tuple(parts), float(inside.times_s[0]) - window_s, float(inside.times_s[-1]), slope
    )


def _uneven(inside: SampleSeries, noise: Spread, window_s: float, *, surely: bool) -> Part:
    """What a trapezoid makes of power that changes: means half a window apart tell how much it does.

    Of power without memory, of spectral density S, such a difference has the variance S / W, and the mean
    under the trapezoid that a window W and the time A between the first mean and the last make, less that of
    their whole time, S * ((L - l / 3) / L^2 - 1 / (A + W)), with L the longer of W and A and l the shorter.

    Args:
        inside: the running means.
        noise: of one of them.
        window_s: W.
        surely: whether only differences count that noise surely does not explain.
    """
    step = max(1, round(window_s / 2.0 / (inside.duration_s / (len(inside) - 1))))
    differences = inside.values[step:] - inside.values[:-step]
    if len(differences) < _PAIR:
        return Part(0.0)
    if surely:
        differences -= differences.mean()  # a drift
    found = Spread(float(np.mean(differences**2)), max(1.0, inside.duration_s / window_s))
    explained = Spread(2.0 * noise.variance, noise.degrees)
    if found.variance <= explained.variance or (surely and not found.exceeds(explained)):
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
