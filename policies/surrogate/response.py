"""Transforms costs for the surrogate: logarithms, the slow half compressed, standardised."""

from dataclasses import dataclass

import numpy as np

from .features import Floats

SQUASH = 0.3  # of what lies above the bend: how slow the slow are matters little, and would hide the rest
_LEAST_COST = 1e-300  # a cost of zero has no logarithm
_LEAST_SCALE = 1e-9  # of the logarithms: equal costs have none


@dataclass(frozen=True)
class CostTransform:
    """How costs become responses.

    Attributes:
        lowest: log of the lowest cost.
        bend: log cost above which differences are squashed.
        middle: mean of the bent log costs.
        scale: their standard deviation.
    """

    lowest: float
    bend: float
    middle: float
    scale: float

    def of(self, costs: Floats) -> Floats:
        """Responses of costs, shape (n,)."""
        return (_bent(_logs(costs), self.bend) - self.middle) / self.scale


def respond(
    costs: Floats, *, reach: float | None = None, scale: float = 0.0, weight: float = 0.0
) -> CostTransform:
    """The response that fits some costs.

    Args:
        costs: finite, at least one.
        reach: from the lowest log cost to the bend; None for the median.
        scale: a standard deviation known beforehand.
        weight: how many costs it counts for.
    """
    logs = _logs(costs)
    lowest = float(np.min(logs))
    bend = float(np.median(logs)) if reach is None else lowest + reach
    bent = _bent(logs, bend)
    middle = float(np.mean(bent))
    variance = (weight * scale**2 + float(np.sum((bent - middle) ** 2))) / (weight + len(bent))
    return CostTransform(lowest, bend, middle, max(float(np.sqrt(variance)), _LEAST_SCALE))


def _logs(costs: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(costs, _LEAST_COST)))


def _bent(logs: Floats, bend: float) -> Floats:
    return np.asarray(np.where(logs > bend, bend + SQUASH * (logs - bend), logs))
