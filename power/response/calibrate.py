"""Calibration: a known load on a GPU, its readings side by side, and the response models found by it.

The load consists of steps, pulses of random lengths, and square waves.
Steps show time constants and windows of many periods, pulses around a reading's own period show delays and
windows shorter than it, and square waves of exactly its period show whether it aliases. No two pulses but
those of a square wave are alike, so that edges fall everywhere between two samples.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..base import ClockControl, LoadSource, PowerSampler, Response, Sample, SensorInfo
from ..energy.meter import SampledRecording, SamplingMeter
from ..energy.samples import SEES, SampleSeries, screened
from .fitting import Evidence, Kind, ModelFit, Projection, fit, model, nearest_minimum, sigmas, within
from .models import Array

# --- What rising and falling power tell of a fit: sizes of either, and a second lag behind the first.

_SPREAD = np.array([0.1, 0.1, 0.1])  # of the first simplex: periods, and logarithms of sizes
_SECOND = 0.2  # of the first lag: what a search for a second one begins with
_SECOND_SPREAD = np.array([0.2, -0.1, 0.5])
_APART = 0.98  # of the first lag: two that are nearer to each other count as so near
_STEP = 0.02  # of derivatives, relative and in periods
_STRONG = 10.0  # BIC by which two lags must beat one
_SQRT_3 = 3.0**0.5


def rise_and_fall_s(evidence: Evidence, fitted: ModelFit) -> tuple[float, float]:
    """Size of a lag or mean as it rises and as it falls, in seconds."""
    if fitted.kind == "lag" and evidence.since_s is None:
        return _of_lag(evidence, fitted)
    on = evidence.load.at(evidence.times_s - fitted.response.delay_s) > 0
    return _of_part(evidence, fitted, on), _of_part(evidence, fitted, ~on)


def _of_lag(evidence: Evidence, fitted: ModelFit) -> tuple[float, float]:
    """A lag with one time constant while the load is on and another while it is off."""
    projected = Projection(evidence, slow=fitted.slow)

    def squares(point: Array) -> float:
        seen_s = evidence.times_s - float(point[0]) * evidence.period_s
        shape = evidence.load.lagged(seen_s, within(point[2]), rising_s=within(point[1]))
        return float(projected.squares(shape))

    size = float(np.log(fitted.size_s))
    minimum = nearest_minimum(
        squares, np.array([fitted.response.delay_s / evidence.period_s, size, size]), _SPREAD
    )
    return within(minimum[1]), within(minimum[2])


def _of_part(evidence: Evidence, fitted: ModelFit, part: npt.NDArray[np.bool_]) -> float:
    """Size for a part of the samples, idle power and step as they are.

    A moving mean, and a counter of power through a lag, have no simple form with two sizes.
    """
    rest_w = (fitted.residuals_w + fitted.step_w * evidence.shape(fitted.response))[part]

    def squares(point: Array) -> float:
        response = model(fitted.kind, within(point[1]), float(point[0]) * evidence.period_s)
        left_w = rest_w - fitted.step_w * evidence.shape(response)[part]
        return float(left_w @ left_w)

    first = np.array([fitted.response.delay_s / evidence.period_s, np.log(fitted.size_s)])
    return within(nearest_minimum(squares, first, _SPREAD[:2])[1])


def second_lag(evidence: Evidence, fitted: ModelFit, effective: float) -> tuple[Response, float] | None:
    """The response with the longer of two lags in a row, and the shorter in seconds; None where one does.

    Power that takes 15 ms to rise, seen through a lag of 0.1 s, fits one lag of 0.11 s nearly as well. The
    standard uncertainty of C holds the shorter lag over sqrt(3), as it may be the sensor's own.
    """
    projected = Projection(evidence, slow=fitted.slow)

    def shape(point: Array) -> Array:
        longer_s, shorter_s = within(point[1]), float(np.exp(point[2]))
        return in_a_row(evidence, longer_s, shorter_s, float(point[0]) * evidence.period_s)

    size_s = fitted.size_s
    first = np.array([fitted.response.delay_s / evidence.period_s, np.log(size_s), np.log(_SECOND * size_s)])
    first[0] -= _SECOND * size_s / evidence.period_s
    minimum = nearest_minimum(lambda point: float(projected.squares(shape(point))), first, _SECOND_SPREAD)
    steps = np.diag([_STEP, _STEP, _STEP])
    slopes = [(shape(minimum + step) - shape(minimum - step)) / (2.0 * _STEP) for step in steps]
    along = projected.without(shape(minimum))
    step_w = float(along @ projected.target / (along @ along)) if along.any() else 0.0
    residuals_w = projected.target - step_w * along
    better = replace(fitted, residuals_w=residuals_w, parameters=fitted.parameters + 1)
    if better.bic(effective) > fitted.bic(effective) - _STRONG:
        return None
    delay_sigma, size_sigma, *_ = sigmas(
        projected, [step_w * slope for slope in slopes] + [along], residuals_w
    )
    longer_s, shorter_s = within(minimum[1]), min(float(np.exp(minimum[2])), _APART * within(minimum[1]))
    response = replace(
        model("lag", longer_s, float(minimum[0]) * evidence.period_s),
        capacitance_sigma_s=float(np.hypot(size_sigma * longer_s, shorter_s / _SQRT_3)),
        delay_sigma_s=float(np.hypot(delay_sigma * evidence.period_s, shorter_s / _SQRT_3)),
    )
    return response, shorter_s


def in_a_row(evidence: Evidence, longer_s: float, shorter_s: float, delay_s: float) -> Array:
    """Return the load as read through two lags: their shares of C / (C - c) and c / (c - C)."""
    shorter_s = min(shorter_s, _APART * longer_s)
    longer, shorter = (evidence.shape(model("lag", size_s, delay_s)) for size_s in (longer_s, shorter_s))
    return np.asarray((longer_s * longer - shorter_s * shorter) / (longer_s - shorter_s))


# --- Identifies the response model of a reading from its samples under a known load.

AGREEMENT = 0.1  # rise and fall may differ by this share of their mean
_SIGMAS = 2.0  # and by as many standard uncertainties of their difference
_TILED = 1.1  # a window of up to so many periods is a boxcar: neither is known any better
_FEWEST = 30  # of fewer samples nothing is identified
_FOLLOWS = 0.5  # share of the variance that the load must explain
# Of the step, by which means of square loads may be off: 0.12 is a lag's that is as long as the period.
ALIASING = 0.25
_DENSE = 32  # points per period that stand for all of the time
_FEW_IN_BLOCK = 4
_FEW_TICKS = 2  # of a counter, which is to have counted squares that are shorter than its period
_PER_UNIT = 1000  # drivers count milliwatts and millijoules

Busy = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ModelCandidate:
    """One model's fit, for a report: its kind, size (C or W), delay, rms of residuals and BIC."""

    kind: str
    size_s: float
    delay_s: float
    rms_w: float
    bic: float


@dataclass(frozen=True)
class Identification:
    """Identified response of a reading to power.

    Attributes:
        name: of the reading.
        kind: of the reading: counter, ring or stream.
        scope: what it sees.
        response: the model chosen, an identity where none holds on both edges; None where nothing was
            identified (see ``reason``). What matters of a counter is ``mean_age_s + delay_s``, the age of
            what it has counted; its delay is negative where a look at power counts for the time around it.
        period_s: median time between fresh samples.
        resolution: step of the reading in watts, or joules of a counter.
        samples: how many there were.
        idle_w: power of the idle GPU.
        step_w: power of the load above that.
        candidates: all models, the one chosen first.
        rise_s: size (C or W) as rising power shows it; None where the model has none.
        fall_s: the same of falling power.
        aliasing: largest error of the mean reading of a square load, as a share of the step; None where no
            square load was long enough.
        explained: share of the reading's variance that load and model explain.
        usable: whether energy may be taken from this reading.
        reason: why it may not, why it is taken uncorrected, what its samples lacked; empty where all is well.
    """

    name: str
    kind: Literal["counter", "ring", "stream"]
    scope: str
    response: Response | None = None
    period_s: float = 0.0
    resolution: float = 0.0
    samples: int = 0
    idle_w: float = 0.0
    step_w: float = 0.0
    candidates: tuple[ModelCandidate, ...] = ()
    rise_s: float | None = None
    fall_s: float | None = None
    aliasing: float | None = None
    explained: float = 0.0
    usable: bool = False
    reason: str = ""

    @property
    def stored(self) -> Response | None:
        """Response to store for later runs; None if there were too few samples.

        Of a reading that does not follow the load it is a response without mean energy (``averages`` False).
        """
        if self.response is None and self.candidates:
            return Response(origin="calibrated", averages=False)
        return self.response


def identify(samples: Sequence[Sample], info: SensorInfo, busy: Busy, squares: Busy = ()) -> Identification:
    """Fit every model and choose by the Bayesian information criterion.

    A correction must rest on more than a good fit: where rising and falling power do not show the same C or
    window, the reading is taken uncorrected. A reading whose mean under a periodic load is not the mean power
    must not be used for energy.

    Args:
        samples: fresh samples of watts, or joules of a counter, oldest first.
        info: the reading; what it says of its response is not looked at.
        busy: (start, end) of the times in which the load was on, in order, on the clock of the samples.
        squares: (start, end) of the times in which it was a square wave of about the reading's period.
    """
    trace, notes = screened(samples, info)
    evidence = Evidence.of(trace, counter=info.kind == "counter", busy=busy)
    result = Identification(
        info.name,
        info.kind,
        info.scope,
        period_s=evidence.period_s,
        resolution=_resolution(trace.values),
        samples=len(trace),
        reason="; ".join(notes),
    )
    if len(evidence) < _FEWEST:
        reason = f"only {len(trace)} fresh samples came; {_FEWEST} are needed"
        return _noted(result, reason)
    fits, effective = _fits(evidence)
    best = fits[0]
    result = replace(
        result,
        idle_w=best.idle_w,
        step_w=best.step_w,
        explained=_explained(evidence, best),
        candidates=tuple(_candidate(fitted, evidence.period_s, effective) for fitted in fits),
    )
    if result.explained < _FOLLOWS:
        reason = f"does not follow the load, which explains only {result.explained:.0%} of what it shows"
        return _noted(result, reason)
    response, result = _checked(evidence, fits, result, effective)
    if evidence.since_s is not None:  # ticks dated by their rhythm are all off by the same
        date_sigma_s = float(np.median(trace.time_sigmas_s))
        response = replace(response, delay_sigma_s=math.hypot(response.delay_sigma_s, date_sigma_s))
    worst = aliasing(evidence, best, squares)
    averages = (worst or 0.0) <= ALIASING and blindness(best.response, evidence) <= ALIASING
    if evidence.since_s is not None and response.window_s > 0:  # the middle of a period is what a part shows
        response = replace(response, delay_s=response.delay_s - evidence.period_s / 2.0)
    response = replace(response, origin="calibrated", averages=averages)
    if not averages:
        result = _noted(result, "its mean under a periodic load is not the mean power")
    return replace(result, response=response, aliasing=worst, usable=averages)


def _fits(evidence: Evidence) -> tuple[list[ModelFit], float]:
    """The fits of all models, best first, and the number of independent samples.

    What warms is always among what is fitted, as about the best response shows it: 2 % of power within
    seconds passes for half a percent of C, and the residuals do not tell.
    """
    kinds: tuple[Kind, ...] = ("identity", "lag", "mean")
    fits, _ = _ranked(evidence, [fit(evidence, kind) for kind in kinds])
    return _ranked(evidence, [fit(evidence, kind, slow=fits[0].response) for kind in kinds])


def _ranked(evidence: Evidence, fits: list[ModelFit]) -> tuple[list[ModelFit], float]:
    if evidence.since_s is not None:  # what a counter counts of a mean over all of the time is all there was
        fits = [one for one in fits if one.response.window_s < SEES * evidence.period_s]
    effective = _effective(min(fits, key=lambda fitted: fitted.squares).residuals_w)
    return sorted(fits, key=lambda fitted: _rank(fitted, effective)), effective


def _rank(fitted: ModelFit, effective: float) -> float:
    """BIC with a head start for the identity: edges dated to a millisecond look like a small window."""
    return fitted.bic(effective) + (0.0 if fitted.kind == "identity" else _STRONG)


def _effective(residuals: Array) -> float:
    """Number of independent samples among correlated ones, from the correlation of neighbours."""
    power = float(residuals @ residuals)
    correlation = float(residuals[1:] @ residuals[:-1]) / power if power > 0 else 0.0
    return (
        max(float(_FEWEST), len(residuals) * (1.0 - correlation) / (1.0 + correlation))
        if correlation > 0
        else float(len(residuals))
    )


def _checked(
    evidence: Evidence, fits: list[ModelFit], result: Identification, effective: float
) -> tuple[Response, Identification]:
    """The best fit's response if rise and fall agree on its size, else the identity's.

    Of two lags in a row the longer is taken for the sensor's, and the shorter for the time that power itself
    takes. A reading does not tell which is which, so that C may be off by the shorter.
    """
    best = fits[0]
    response = named(best.response, evidence.period_s)
    if best.kind == "identity":
        return response, result
    rise_s, fall_s = rise_and_fall_s(evidence, best)
    result = replace(result, rise_s=rise_s, fall_s=fall_s)
    # each of the two has half of the samples: their difference is twice as uncertain as their mean
    sigma_s = 2.0 * (best.response.capacitance_sigma_s + best.response.window_sigma_s)
    if abs(rise_s - fall_s) <= max(AGREEMENT * (rise_s + fall_s) / 2.0, _SIGMAS * sigma_s):
        second = second_lag(evidence, best, effective) if best.kind == "lag" else None
        if second is None:
            return response, result
        response, shorter_s = second
        reason = f"power shows through a second lag of {shorter_s * 1e3:.3g} ms, its own or the sensor's"
        return response, _noted(result, reason)
    plain = next(fitted for fitted in fits if fitted.kind == "identity").response
    plain = replace(plain, delay_sigma_s=best.size_s)  # power of that long ago may still be in it
    reason = f"uncorrected: rising power shows {rise_s * 1e3:.3g} ms and falling power {fall_s * 1e3:.3g} ms"
    return plain, _noted(result, reason)


def named(response: Response, period_s: float) -> Response:
    """The same response, a mean over no more than a period called boxcar."""
    if response.kind == "ramp" and response.window_s <= _TILED * period_s:
        return replace(response, kind="boxcar")
    return response


def aliasing(evidence: Evidence, fitted: ModelFit, squares: Busy) -> float | None:
    """Largest error of the mean reading over a square load, as a share of the step; None without squares.

    Compared is the mean of the samples with the mean, over all of the time, of what the model shows of the
    load, which holds what came before the square. Of a reading that sees all of the time the two agree.
    """
    errors = []
    shape = evidence.shape(fitted.response)
    for start_s, end_s in squares:
        inside = (evidence.times_s > start_s + evidence.period_s) & (evidence.times_s <= end_s)
        few = _FEW_IN_BLOCK if evidence.since_s is None else _FEW_TICKS
        if inside.sum() < few or fitted.step_w <= 0:
            continue
        times_s = evidence.times_s[inside]
        always = shape[inside]
        if evidence.since_s is None or fitted.response.window_s > 0:
            first_s, last_s = times_s[0] - evidence.period_s, times_s[-1]
            all_times_s = np.linspace(first_s, last_s, _DENSE * len(times_s), endpoint=False)
            always = replace(evidence, times_s=all_times_s).shape(fitted.response)
        off = float(shape[inside].mean() - always.mean())
        errors.append(abs(off + float(fitted.residuals_w[inside].mean()) / fitted.step_w))
    return max(errors) if errors else None


def blindness(response: Response, evidence: Evidence) -> float:
    """Error of the mean reading, as a share of the step, of a half busy load whose period is the reading's.

    The phase is the worst. A counter misses nothing, unless it counts what a window shows; a mean over W of a
    period U is off by U / 2W - 1/2, a lag, which turns the square into exponentials, by tanh(U / 4C) / 2.
    """
    if evidence.since_s is not None and response.window_s == 0:
        return 0.0
    if response.capacitance_s > 0:
        return float(np.tanh(evidence.period_s / 4.0 / response.capacitance_s)) / 2.0
    if response.window_s > 0:
        return float(np.clip(evidence.period_s / response.window_s / 2.0 - 0.5, 0.0, 0.5))
    return 0.5


def _explained(evidence: Evidence, fitted: ModelFit) -> float:
    """Share of the variance of the reading that load and model explain."""
    rest = evidence.watts - evidence.watts.mean()
    total = float(rest @ rest)
    return 1.0 - fitted.squares / total if total > 0 else 0.0


def _candidate(fitted: ModelFit, period_s: float, effective: float) -> ModelCandidate:
    response = named(fitted.response, period_s)
    rms_w = float(np.sqrt(fitted.squares / len(fitted.residuals_w)))
    return ModelCandidate(response.kind, fitted.size_s, response.delay_s, rms_w, fitted.bic(effective))


def _resolution(values: Array) -> float:
    """The step that all differences between values are multiples of, to a thousandth; 0 of fewer than two."""
    thousandths = {round(value * _PER_UNIT) for value in values.tolist()}
    return math.gcd(*(value - min(thousandths) for value in thousandths)) / _PER_UNIT if thousandths else 0.0


def _noted(result: Identification, reason: str) -> Identification:
    """Add a reason, if there is one."""
    return replace(result, reason="; ".join(filter(None, (result.reason, reason))))


# --- The load that is played, and the calibration of all readings beside it.

SECONDS = 60.0
_FEW = 8  # samples that give a period
_LOG = logging.getLogger(__name__)

Played = list[tuple[float, float]]
Progress = Callable[[float, float], None]
"""Called with (seconds done, seconds in all)."""
_RHYTHM, _STEPS, _DITHERED, _SQUARES = 0.05, 0.5, 0.25, 0.2  # shares of the time
_SETTLE_S = 0.5  # idle at the start, for what ran before
_RHYTHM_PULSE_S = (0.005, 0.015)  # short: a reading must change at each of its updates
_STEP_CYCLES = 4
_STEP_JITTER = 0.2
_SHORTEST, _LONGEST = 0.3, 3.0  # dithered pulses, in periods
_MOST = 400  # dithered pulses per period: more add nothing to a short one
_LEAST_S = 0.002  # shorter pulses are not what was asked for
_SAME = 1.05  # periods within this factor share their pulses
_SQUARE_BLOCKS = 4  # at random phases: one may be at a lucky one
_SQUARE_PERIODS = (6, 16)  # per block: fewer say little, of more a period known to 1 % drifts through
_CHUNK_S = 1.0  # played in one call, for progress and interruption


@dataclass(frozen=True)
class PulseTrain:
    """Pulses that are played in one call, as (busy, idle) seconds; ``square`` if they are one square wave."""

    pulses: tuple[tuple[float, float], ...]
    square: bool = False

    @property
    def duration_s(self) -> float:
        """Nominal length."""
        return sum(busy_s + idle_s for busy_s, idle_s in self.pulses)


def calibrate(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    *,
    clocks: ClockControl | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Identification]:
    """Identify the response model of each reading, in the order of the samplers.

    The GPU must have nothing else to do. Its clocks are left as they are; if they are held back meanwhile,
    which changes the power of the load, a warning says so. The first part of the load measures how often each
    reading is updated, the rest is made for the periods found.

    Args:
        load: the device whose power the samplers read; its clock stamps the samples.
        samplers: opened readings; they stay open.
        clocks: read for throttle reasons while the load is played, never set; None where there are none.
        seconds: about how long the load is played.
        seed: of the random lengths of pulses.
        progress: called after each part of the load.

    Raises:
        DeviceError: the load could not be run.
    """
    rng = np.random.default_rng(seed)
    player = _Player(load, seconds, progress)
    first = rhythm(seconds, rng)
    recordings = _recorded(load, samplers, None, lambda: player.play(first))
    periods_s = [
        _period_s(sampler, recording.samples())
        for sampler, recording in zip(samplers, recordings, strict=True)
    ]
    rest = schedule(periods_s, seconds, rng)
    recordings = _recorded(load, samplers, clocks, lambda: player.play(rest))
    for reason in recordings[0].clock(-math.inf, math.inf).throttle_reasons if recordings else ():
        _LOG.warning("the GPU was held back under the load (%s), so that its power was not steady", reason)
    return [
        _noted(identify(recording.samples(), sampler.info, player.busy, player.squares), recording.failure)
        for sampler, recording in zip(samplers, recordings, strict=True)
    ]


class _Player:
    """Plays bursts and remembers when the load was on, and when it was a square wave."""

    def __init__(self, load: LoadSource, seconds: float, progress: Progress | None) -> None:
        self.busy: Played = []
        self.squares: Played = []
        self._load = load
        self._seconds = seconds
        self._progress = progress
        self._done_s = 0.0

    def play(self, bursts: Sequence[PulseTrain]) -> None:
        """Play bursts one after the other."""
        for burst in bursts:
            played = self._load.pulse(burst.pulses)
            self.busy += played
            if burst.square:
                self.squares.append((played[0][0], played[-1][1] + burst.pulses[-1][1]))
            self._done_s += burst.duration_s
            if self._progress is not None:
                self._progress(self._done_s, max(self._seconds, self._done_s))


def _recorded(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    clocks: ClockControl | None,
    play: Callable[[], None],
) -> list[SampledRecording]:
    """Return the recordings of all readings while the load is played; the first records the clocks, too."""
    with ExitStack() as stack:
        recordings = []
        for number, sampler in enumerate(samplers):
            meter = SamplingMeter(sampler, None if number else clocks, load.now_s)
            recordings.append(stack.enter_context(meter.recording()))
        play()
    return recordings


def _period_s(sampler: PowerSampler, samples: Sequence[Sample]) -> float:
    """Median time between samples; of a reading too slow for the rhythm what it says itself."""
    times_s = SampleSeries.of(samples).times_s
    return float(np.median(np.diff(times_s))) if len(times_s) >= _FEW else sampler.info.period_s


def rhythm(seconds: float, rng: np.random.Generator) -> list[PulseTrain]:
    """Short pulses under which every update of a reading shows, for finding its period."""
    pulses = [(_LEAST_S, _SETTLE_S)]
    left_s = _RHYTHM * seconds
    while left_s > 0:
        pulses.append((rng.uniform(*_RHYTHM_PULSE_S), rng.uniform(*_RHYTHM_PULSE_S)))
        left_s -= sum(pulses[-1])
    return list(_chunked(pulses))


def schedule(periods_s: Sequence[float], seconds: float, rng: np.random.Generator) -> list[PulseTrain]:
    """The load for readings of these periods; it takes about 95 % of ``seconds``, the rhythm took the rest.

    Args:
        periods_s: time between samples of each reading.
        seconds: length of the whole calibration.
        rng: draws the lengths of pulses.
    """
    groups = grouped(periods_s)
    step_s = _STEPS * seconds / (2 * _STEP_CYCLES)
    steps = rng.uniform(1.0 - _STEP_JITTER, 1.0 + _STEP_JITTER, (_STEP_CYCLES, 2)) * step_s
    bursts = list(_chunked((float(busy_s), float(idle_s)) for busy_s, idle_s in steps))
    for period_s in groups:
        bursts += _chunked(_dithered(period_s, _DITHERED * seconds / len(groups), rng))
    for period_s in groups:
        bursts += _squares(period_s, _SQUARES * seconds / len(groups), rng)
    return bursts


def grouped(periods_s: Sequence[float]) -> list[float]:
    """One period for each group of similar ones, shortest first."""
    groups: list[list[float]] = []
    for period_s in sorted(periods_s):
        if groups and period_s <= _SAME * groups[-1][0]:
            groups[-1].append(period_s)
        else:
            groups.append([period_s])
    return [float(np.median(group)) for group in groups]


def _dithered(period_s: float, seconds: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Pulses of random lengths around a period."""
    pulses: list[tuple[float, float]] = []
    while seconds > 0 and len(pulses) < _MOST:
        lengths = np.exp(rng.uniform(np.log(_SHORTEST), np.log(_LONGEST), 2)) * period_s
        busy_s, idle_s = np.maximum(lengths, _LEAST_S).tolist()
        pulses.append((busy_s, idle_s))
        seconds -= busy_s + idle_s
    return pulses


def _squares(period_s: float, seconds: float, rng: np.random.Generator) -> list[PulseTrain]:
    """Square waves of a period, busy for half of it; none where they would take too long."""
    fewest, most = _SQUARE_PERIODS
    count = min(most, int(seconds / _SQUARE_BLOCKS / period_s) - 1)
    if count < fewest:
        return []
    half_s = period_s / 2.0
    bursts = []
    for pause in rng.uniform(0.5, 1.5, _SQUARE_BLOCKS):
        wave = [(half_s, half_s)] * count
        bursts += [PulseTrain(tuple(wave), square=True), PulseTrain(((_LEAST_S, float(pause) * period_s),))]
    return bursts


def _chunked(pulses: Iterable[tuple[float, float]]) -> Iterable[PulseTrain]:
    """Bursts of at least about a second."""
    chunk: list[tuple[float, float]] = []
    for pulse in pulses:
        chunk.append(pulse)
        if sum(map(sum, chunk)) >= _CHUNK_S:
            yield PulseTrain(tuple(chunk))
            chunk = []
    if chunk:
        yield PulseTrain(tuple(chunk))
