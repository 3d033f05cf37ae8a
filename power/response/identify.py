"""Identifies the response model of a reading from its samples under a known load."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tuner.interfaces.power import Response, Sample, SensorInfo

from ..energy.samples import screened
from .edges import rise_and_fall_s, second_lag
from .fitting import Evidence, Kind, ModelFit, fit
from .models import Array

AGREEMENT = 0.1  # rise and fall may differ by this share of their mean
_SIGMAS = 2.0  # and by as many standard uncertainties of their difference
_TILED = 1.1  # a window of up to so many periods is a boxcar: neither is known any better
_FEW = 30  # of fewer samples nothing is identified
_FOLLOWS = 0.5  # share of the variance that the load must explain
_STRONG = 10.0  # BIC by which a lag or mean must beat the identity, and drift and warming nothing of the kind
# Of the step, by which means of square loads may be off: 0.12 is a lag's that is as long as the period.
ALIASING = 0.25
_DENSE = 32  # points per period that stand for all of the time
_FEW_IN_BLOCK = 4
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
    """How a reading follows power.

    Attributes:
        name: of the reading.
        kind: of the reading: counter, ring or stream.
        scope: what it sees.
        response: the model chosen, an identity where none holds on both edges; None where nothing was
            identified (see ``reason``). What matters of a counter is ``capacitance_s + delay_s``, the age of
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
        """What later runs are to know; None where there were too few samples to tell.

        Of a reading that does not follow the load it is that no energy is to be taken from it.
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
    found = Identification(
        info.name,
        info.kind,
        info.scope,
        period_s=evidence.period_s,
        resolution=_resolution(trace.values),
        samples=len(trace),
        reason="; ".join(notes),
    )
    if len(evidence) < _FEW:
        reason = f"only {len(trace)} fresh samples came; {_FEW} are needed"
        return replace(found, reason=_joined(found.reason, reason))
    fits, effective = _fits(evidence)
    best = fits[0]
    found = replace(
        found,
        idle_w=best.idle_w,
        step_w=best.step_w,
        explained=_explained(evidence, best),
        candidates=tuple(_candidate(fitted, evidence.period_s, effective) for fitted in fits),
    )
    if found.explained < _FOLLOWS:
        reason = f"does not follow the load, which explains only {found.explained:.0%} of what it shows"
        return replace(found, reason=_joined(found.reason, reason))
    response, found = _checked(evidence, fits, found, effective)
    if evidence.since_s is not None:  # ticks dated by their rhythm are all off by the same
        date_sigma_s = float(np.median(trace.time_sigmas_s))
        response = replace(response, delay_sigma_s=math.hypot(response.delay_sigma_s, date_sigma_s))
    worst = aliasing(evidence, best, squares)
    averages = (worst or 0.0) <= ALIASING and blindness(best.response, evidence) <= ALIASING
    response = replace(response, origin="calibrated", averages=averages)
    if not averages:
        found = replace(
            found, reason=_joined(found.reason, "its mean under a periodic load is not the mean power")
        )
    return replace(found, response=response, aliasing=worst, usable=averages)


def _fits(evidence: Evidence) -> tuple[list[ModelFit], float]:
    """The fits of all models, best first, and the number of independent samples.

    What warms is always among what is fitted, as about the best response shows it: 2 % of power within
    seconds passes for half a percent of C, and the residuals do not tell.
    """
    kinds: tuple[Kind, ...] = (
        ("identity", "lag") if evidence.since_s is not None else ("identity", "lag", "mean")
    )
    fits, _ = _ranked([fit(evidence, kind) for kind in kinds])
    return _ranked([fit(evidence, kind, slow=fits[0].response) for kind in kinds])


def _ranked(fits: list[ModelFit]) -> tuple[list[ModelFit], float]:
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
        max(float(_FEW), len(residuals) * (1.0 - correlation) / (1.0 + correlation))
        if correlation > 0
        else float(len(residuals))
    )


def _checked(
    evidence: Evidence, fits: list[ModelFit], found: Identification, effective: float
) -> tuple[Response, Identification]:
    """The best fit's response if rise and fall agree on its size, else the identity's.

    Of two lags in a row the longer is taken for the sensor's, and the shorter for the time that power itself
    takes. A reading does not tell which is which, so that C may be off by the shorter.
    """
    best = fits[0]
    response = named(best.response, evidence.period_s)
    if best.kind == "identity":
        return response, found
    rise_s, fall_s = rise_and_fall_s(evidence, best)
    found = replace(found, rise_s=rise_s, fall_s=fall_s)
    # each of the two has half of the samples: their difference is twice as uncertain as their mean
    sigma_s = 2.0 * (best.response.capacitance_sigma_s + best.response.window_sigma_s)
    if abs(rise_s - fall_s) <= max(AGREEMENT * (rise_s + fall_s) / 2.0, _SIGMAS * sigma_s):
        second = second_lag(evidence, best, effective) if best.kind == "lag" else None
        if second is None:
            return response, found
        response, shorter_s = second
        reason = f"power shows through a second lag of {shorter_s * 1e3:.3g} ms, its own or the sensor's"
        return response, replace(found, reason=_joined(found.reason, reason))
    plain = next(fitted for fitted in fits if fitted.kind == "identity").response
    plain = replace(plain, delay_sigma_s=best.size_s)  # power of that long ago may still be in it
    reason = f"uncorrected: rising power shows {rise_s * 1e3:.3g} ms and falling power {fall_s * 1e3:.3g} ms"
    return plain, replace(found, reason=_joined(found.reason, reason))


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
        if inside.sum() < _FEW_IN_BLOCK or fitted.step_w <= 0:
            continue
        times_s = evidence.times_s[inside]
        always = shape[inside]
        if evidence.since_s is None:
            first_s, last_s = times_s[0] - evidence.period_s, times_s[-1]
            all_times_s = np.linspace(first_s, last_s, _DENSE * len(times_s), endpoint=False)
            always = replace(evidence, times_s=all_times_s).shape(fitted.response)
        off = float(shape[inside].mean() - always.mean())
        errors.append(abs(off + float(fitted.residuals_w[inside].mean()) / fitted.step_w))
    return max(errors) if errors else None


def blindness(response: Response, evidence: Evidence) -> float:
    """Error of the mean reading, as a share of the step, of a half busy load whose period is the reading's.

    The phase is the worst. A counter misses nothing; a mean over W of a period U is off by U / 2W - 1/2, a
    lag, which turns the square into exponentials, by tanh(U / 4C) / 2.
    """
    if evidence.since_s is not None:
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


def _joined(*reasons: str) -> str:
    return "; ".join(reason for reason in reasons if reason)
