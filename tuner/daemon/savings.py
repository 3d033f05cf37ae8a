"""What a use of an answer saves against the default, as its run has measured both."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tuner.model.objective import COVERAGE


class Saving(NamedTuple):
    """Of one use; the uncertainty is half of the 95 % interval."""

    joules: float
    uncertainty_j: float


def saving(answer: Mapping[str, Any] | None) -> Saving | None:
    """What one use saves; None where joules of both were not measured.

    Args:
        answer: ``Reply.answer``.
    """
    best, default = (answer or {}).get("best") or {}, (answer or {}).get("default") or {}
    best_j, default_j = best.get("energy_j"), default.get("energy_j")
    if best_j is None or default_j is None:
        return None
    unsure = [one.get("energy_j_uncertainty") or 0.0 for one in (best, default)]
    return Saving(default_j - best_j, COVERAGE * math.hypot(*unsure))
