"""Mean power of a window from samples of watts: weights, sampling, and correlated noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.model.distributions import student_below, student_quantile
from tuner.model.trial import Part, contracted, expanded

from ..base import Response, SensorInfo
from ..response.models import Array, corrected, energy_weights_s
from .counters import SensorHistory
from .samples import ROUNDING, SampleSeries, Spread, local_spread, noise_floor, pooled, sees_all

# --- Noise whose neighbours hang together: what it makes of a weighted sum of samples.
#
# White noise of variance s^2 makes s^2 sum(w_i^2) of a sum with weights w. Correlated noise makes s^2 w'Rw, R
# the correlations of the samples: for the mean of many that is the integrated autocorrelation time, 1 + 2
# sum(r_k), times as much (Priestley, "Spectral Analysis and Time Series", section 5.3). It is taken here for
# noise with one correlation time T, r(t) = exp(-|t| / T): an AR(1) process where samples come regularly.
#
# T is not known. Each of a few times is as likely as the restricted likelihood of the samples says, which is
# that of the residuals alone, whatever the mean, the drift and the decay of a lag are (Patterson and
# Thompson, Biometrika 58, 1971; Harville, Biometrika 61, 1974). For one T the sum's error follows Student's
# distribution; its distribution is their mixture, and the interval holds 95 % of that. Few samples tell
# little of T: what earlier windows of the sensor told is added.

TIMES = np.concatenate(([0.0], np.geomspace(1.0, 25.0, 8)))  # correlation times that are tried, in periods
_PRIOR = np.log(np.concatenate(([0.5], np.full(len(TIMES) - 1, 0.5 / (len(TIMES) - 1)))))
_OUTSIDE = 0.05  # of the distribution lies outside the interval
_NO_SHARE = 1e-12
_MOST_STEPS = 40
_PRECISE = 1e-11  # of the probability outside, as a share of it
_NORMAL = 1.96  # half of that interval of a normal distribution, in its standard deviations
_LEAST = 3  # degrees of freedom, of fewer nothing is told


def correlation_evidence(
    samples: SampleSeries, weights: Array, response: Response, period_s: float
) -> tuple[Array, Array, int] | None:
    """Return log-likelihoods and variances of a window for each of ``TIMES``; None of too few samples.

    Args:
        samples: of one load; mean, drift and the decay of a lag are taken off.
        weights: of the sum, shape (n,).
        response: how the reading follows power.
        period_s: unit of ``TIMES``.

    Returns:
        Restricted log-likelihoods less that of white noise; variances of ``weights @ values``; both of shape
        (len(TIMES),). Degrees of freedom.
    """
    basis = _smooth(samples, response)
    degrees = len(samples) - basis.shape[1]
    if degrees < _LEAST:
        return None
    decay = np.exp(-np.diff(samples.times_s) / period_s / np.maximum(TIMES, 1e-9)[:, None])
    innovation = np.sqrt(1.0 - decay**2)
    columns = np.column_stack((basis, samples.values))
    white = np.repeat(columns[None], len(TIMES), axis=0)
    white[:, 1:] = (columns[1:] - decay[:, :, None] * columns[:-1]) / innovation[:, :, None]
    triangles = np.abs(np.diagonal(np.asarray(np.linalg.qr(white, mode="r")), axis1=1, axis2=2))
    squares = np.maximum(triangles[:, -1] ** 2, np.finfo(np.float64).tiny)
    likelihoods = -np.log(innovation).sum(axis=1) - np.log(triangles[:, :-1]).sum(axis=1)
    likelihoods -= degrees / 2.0 * np.log(squares)
    return likelihoods - likelihoods[0], squares / degrees * _quadratic(weights, decay), degrees


def correlated(likelihoods: Array, variances: Array, degrees: int, earlier: Array | None = None) -> Part:
    """The part of a sum's variance that noise makes, as wide as its 95 % interval.

    Args:
        likelihoods: of this window, see ``correlation_evidence``.
        variances: of the sum for each of ``TIMES``.
        degrees: of freedom of each.
        earlier: what earlier windows told of the likelihoods, their sum.
    """
    logs = likelihoods + _PRIOR + (0.0 if earlier is None else earlier)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    sigmas = np.sqrt(variances)
    kept = (shares > _NO_SHARE) & (sigmas > 0.0)
    half = _half_interval(list(zip(shares[kept].tolist(), sigmas[kept].tolist(), strict=True)), degrees)
    return contracted(half / _NORMAL, degrees)


def _half_interval(parts: Sequence[tuple[float, float]], degrees: int) -> float:
    """Half of the interval of a mixture of Student's distributions: it lies between those of its parts.

    Args:
        parts: shares and standard deviations.
        degrees: of freedom of each.
    """

    def excess(half: float) -> float:
        return 2.0 * sum(share * student_below(degrees, -half / sigma) for share, sigma in parts) - _OUTSIDE

    single = -student_quantile(degrees, _OUTSIDE / 2.0)
    low, high = (single * extreme((sigma for _, sigma in parts), default=0.0) for extreme in (min, max))
    if high - low <= _PRECISE * high:
        return high
    above, below, rose = excess(low), excess(high), False
    for step in range(_MOST_STEPS):  # false position, by the rule of Illinois
        middle = (low * below - high * above) / (below - above)
        value = excess(middle)
        if abs(value) <= _PRECISE * _OUTSIDE:
            return middle
        rises, again = value > 0.0, step > 0 and rose == (value > 0.0)
        if rises:
            low, above, below = middle, value, below / 2.0 if again else below
        else:
            high, below, above = middle, value, above / 2.0 if again else above
        rose = rises
    return high


def _smooth(samples: SampleSeries, response: Response) -> Array:
    """Columns that are no noise: a mean, a drift, and the decay of a lag after a step of power."""
    since_s = samples.times_s - samples.times_s[0]
    columns = [np.ones(len(samples)), since_s / max(samples.duration_s, np.finfo(np.float64).tiny)]
    if response.kind == "lag":
        columns.append(np.exp(-since_s / response.capacitance_s))
    return np.column_stack(columns)


def _quadratic(weights: Array, decay: Array) -> Array:
    """The sum w'Rw for each correlation time, by the recursion that exponentials allow."""
    sums = np.empty((len(weights), len(decay)))  # of all weights so far, by their correlation with the last
    sums[0] = weights[0]
    for row, share in enumerate(np.ascontiguousarray(decay.T), 1):
        np.multiply(share, sums[row - 1], out=sums[row])
        sums[row] += weights[row]
    total = weights @ (2.0 * sums - weights[:, None])
    return np.asarray(np.maximum(total, 0.0))


# --- What a load that pulses does between samples, and at the ends of a window.
#
# A sensor that sees all of the time, as a mean over the time between two samples does, or a lag longer than
# that, shows every change of power; but a lag's samples are joined by straight lines, and a load whose period
# is in step with them shows the same phase in each.

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
    """Return the variance of ``weights @ values`` by a load of period ``round_s``, too fast to see.

    A load that is on and off by a swing S has harmonics of amplitudes up to 2 S / (pi h). The response lets a
    part of each through, and the samples' times and weights leave of it |sum(w exp(2 pi i h t / round))|: all
    where the samples show the same phase each time, next to nothing where they show every phase. Scatter
    tells nothing of S then; it is taken for anything from none to twice the mean power.
    """
    if round_s <= 0:
        return Part(0.0)
    numbers = np.arange(1, _HARMONICS + 1)
    numbers = numbers[numbers / round_s >= 0.5 / info.period_s]  # slower ones are seen
    remaining = np.abs(np.exp(2j * np.pi * np.outer(numbers, inside.times_s) / round_s) @ weights)
    amplitudes = 2.0 / np.pi / numbers * passed(info.response, numbers / round_s) * remaining
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
    """Return the variance by jumps of power of straight lines between the samples of a lag.

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
    decay = float(np.exp(-1.0 / ratio))
    changes = np.diff((inside.values[1:] - decay * inside.values[:-1]) / (1.0 - decay))
    noisy = noise.variance * (1.0 + (1.0 + decay) ** 2 + decay**2) / (1.0 - decay) ** 2
    squares = _SPLIT * max(0.0, float(changes @ changes) - len(changes) * noisy)
    return Part(max(0.0, share) * squares * (step_s / inside.duration_s) ** 2)


def beats(inside: SampleSeries, own: Spread) -> Part:
    """Scatter of the means of pieces of the window, where it is more than the samples' own explains."""
    count = min(_PIECES, len(inside) // 2)
    if count < _FEW_PIECES:
        return Part(0.0)
    rest = detrended(inside.times_s, inside.values)
    means = np.array([piece.mean() for piece in np.array_split(rest, count)])
    scatter = Spread(float(means @ means) / (count - 2), count - 2)
    explained = Spread(own.variance * count / len(inside), own.degrees)
    if not scatter.exceeds(explained):
        return Part(0.0)
    return Part((scatter.variance - explained.variance) / count, scatter.degrees)


def beats_through(inside: SampleSeries, own: Spread, watts: float, info: SensorInfo) -> Part:
    """Beats of a short lag: a load whose period is the sensor's keeps some of its swing in every sample.

    Means that tile the time, and running means over whole periods, leave nothing of it. A beat may be so slow
    that neighbouring samples do not scatter by it. It is no larger than the lag lets through of a load that
    is on and off; and where neighbours do differ, so that the load itself is seen, of its third harmonic.
    """
    response = info.response
    if response.kind != "lag" or response.capacitance_s >= _SMOOTH * info.period_s:
        return Part(0.0)
    beat = beats(inside, own)
    if beat.variance == 0:
        return beat
    rest = detrended(inside.times_s, inside.values)
    changes = np.diff(rest)
    fastest = (2.0 * np.pi * _PIECES / len(rest)) ** 2 / 2.0  # mean square change of what the pieces can show
    slow = float(changes @ changes) < fastest * float(rest @ rest) + 2.0 * own.variance * len(rest)
    shown_w = float(np.ptp(corrected(inside.times_s, inside.values, response)))
    swing_w, harmonic, reach = (2.0 * watts, 1.0, 1.0) if slow else (min(2.0 * watts, shown_w), 3.0, 2.0)
    most_w = 2.0 * swing_w / np.pi / harmonic * float(passed(response, np.array(reach / info.period_s)))
    return Part(min(beat.variance, most_w**2 / 2.0 / _PIECES), beat.degrees)


def detrended(times_s: Array, values: Array) -> Array:
    """Values without mean and drift."""
    line = np.polyfit(times_s - times_s[0], values, 1)
    return np.asarray(values - np.polyval(line, times_s - times_s[0]))


# --- The mean power of a window, with its uncertainty.

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
    """Return the variance of the mean by noise: white, or correlated noise if that is more."""
    white = Part(noise.variance * float(weights @ weights), noise.degrees)
    if history is None:
        return white
    evidence = correlation_evidence(inside, weights, info.response, info.period_s)
    if evidence is None:
        return white
    likelihoods, variances, degrees = evidence
    earlier, windows = history.correlation
    history.add_correlation(likelihoods)
    if (windows + 1) * (degrees - _UNTOLD) < _LEAST_CORRELATED:
        return white
    other = correlated(likelihoods, variances, degrees, earlier)
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
    history.add_noise(relative)
    return Spread(surer.variance * watts**2, surer.degrees), [beats_through(inside, own, watts, info)]


def _systematic(inside: SampleSeries, info: SensorInfo) -> list[Part]:
    """Return the variances of the mean by the response's uncertainties and the rounding of the reading."""
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
    """Return the variance of a trapezoid mean by changing power, from means half a window apart.

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
    scatter = Spread(float(np.mean(differences**2)), max(1.0, inside.duration_s / window_s))
    explained = Spread(2.0 * noise.variance, noise.degrees)
    if scatter.variance <= explained.variance or (surely and not scatter.exceeds(explained)):
        return Part(0.0)
    apart_s = inside.duration_s
    longer_s, shorter_s = max(apart_s, window_s), min(apart_s, window_s)
    shape = (longer_s - shorter_s / 3.0) / longer_s**2 - 1.0 / (apart_s + window_s)
    return Part((scatter.variance - explained.variance) * window_s * max(0.0, shape), scatter.degrees)


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
