"""What rising and falling power tell of a fit: sizes of either, and a second lag behind the first."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tuner.interfaces.power import Response

from .fitting import Evidence, ModelFit, Projection, model, nearest_minimum, sigmas, within
from .models import Array

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
    found = nearest_minimum(
        squares, np.array([fitted.response.delay_s / evidence.period_s, size, size]), _SPREAD
    )
    return within(found[1]), within(found[2])


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
    found = nearest_minimum(lambda point: float(projected.squares(shape(point))), first, _SECOND_SPREAD)
    steps = np.diag([_STEP, _STEP, _STEP])
    slopes = [(shape(found + step) - shape(found - step)) / (2.0 * _STEP) for step in steps]
    shown = projected.without(shape(found))
    step_w = float(shown @ projected.target / (shown @ shown)) if shown.any() else 0.0
    residuals_w = projected.target - step_w * shown
    better = replace(fitted, residuals_w=residuals_w, parameters=fitted.parameters + 1)
    if better.bic(effective) > fitted.bic(effective) - _STRONG:
        return None
    delay_sigma, size_sigma, *_ = sigmas(
        projected, [step_w * slope for slope in slopes] + [shown], residuals_w
    )
    longer_s, shorter_s = within(found[1]), min(float(np.exp(found[2])), _APART * within(found[1]))
    response = replace(
        model("lag", longer_s, float(found[0]) * evidence.period_s),
        capacitance_sigma_s=float(np.hypot(size_sigma * longer_s, shorter_s / _SQRT_3)),
        delay_sigma_s=float(np.hypot(delay_sigma * evidence.period_s, shorter_s / _SQRT_3)),
    )
    return response, shorter_s


def in_a_row(evidence: Evidence, longer_s: float, shorter_s: float, delay_s: float) -> Array:
    """What a reading shows through two lags: their shares of C / (C - c) and c / (c - C)."""
    shorter_s = min(shorter_s, _APART * longer_s)
    longer, shorter = (evidence.shape(model("lag", size_s, delay_s)) for size_s in (longer_s, shorter_s))
    return np.asarray((longer_s * longer - shorter_s * shorter) / (longer_s - shorter_s))
