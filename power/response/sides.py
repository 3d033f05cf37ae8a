"""C or window as rising and as falling power show it: where they differ, the model is not the sensor's."""

import numpy as np
import numpy.typing as npt

from .fitting import Evidence, Fit, Projected, model, nearest_minimum, within
from .models import Array

_SPREAD = np.array([0.1, 0.1, 0.1])  # of the first simplex: periods, and logarithms of sizes


def rise_and_fall_s(evidence: Evidence, fitted: Fit) -> tuple[float, float]:
    """Size of a lag or mean as it rises and as it falls, in seconds."""
    if fitted.kind == "lag" and evidence.since_s is None:
        return _of_lag(evidence, fitted)
    on = evidence.load.at(evidence.times_s - fitted.response.delay_s) > 0
    return _of_part(evidence, fitted, on), _of_part(evidence, fitted, ~on)


def _of_lag(evidence: Evidence, fitted: Fit) -> tuple[float, float]:
    """A lag with one time constant while the load is on and another while it is off."""
    projected = Projected(evidence, slow=fitted.slow)

    def squares(point: Array) -> float:
        seen_s = evidence.times_s - float(point[0]) * evidence.period_s
        shape = evidence.load.lagged(seen_s, within(point[2]), rising_s=within(point[1]))
        return float(projected.squares(shape))

    size = float(np.log(fitted.size_s))
    found = nearest_minimum(
        squares, np.array([fitted.response.delay_s / evidence.period_s, size, size]), _SPREAD
    )
    return within(found[1]), within(found[2])


def _of_part(evidence: Evidence, fitted: Fit, part: npt.NDArray[np.bool_]) -> float:
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
