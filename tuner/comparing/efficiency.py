"""How good an answer is: efficiency, its harmonic mean over problem sizes, and how it grows.

The metric is that of section VI of "Performance Tuning for GPU-Embedded Systems".
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

CLOSE = 0.98  # an answer within 2 % of the best is as good: trials of one configuration repeat to about 1 %


def efficiency(best: float, cost: float) -> float:
    """The best known cost by the cost of an answer: 1 for the best, 0 for a failed one."""
    return best / cost if math.isfinite(cost) else 0.0


def phi(efficiencies: Sequence[float]) -> float:
    """The metric Φ: the harmonic mean of efficiencies, every problem size with the same weight.

    Args:
        efficiencies: one per problem size, each 0 to 1; at least one.

    Returns:
        A number between the lowest and the highest of them; 0 where one is 0.
    """
    if min(efficiencies) <= 0.0:
        return 0.0
    mean = len(efficiencies) / math.fsum(1.0 / one for one in efficiencies)
    return min(max(mean, min(efficiencies)), max(efficiencies))  # rounding may lead outside by a bit


def improvements(costs: Iterable[float]) -> tuple[tuple[int, float], ...]:
    """Where a sequence of costs gets lower: (evaluations so far, lowest cost), failures left out."""
    steps: list[tuple[int, float]] = []
    for count, cost in enumerate(costs, start=1):
        if math.isfinite(cost) and (not steps or cost < steps[-1][1]):
            steps.append((count, cost))
    return tuple(steps)


def lowest_after(steps: Sequence[tuple[int, float]], evaluations: float) -> float:
    """The lowest cost after so many evaluations; infinity while there is none."""
    place = bisect_right([count for count, _ in steps], evaluations)
    return steps[place - 1][1] if place else math.inf


def evaluations_to(steps: Sequence[tuple[int, float]], best: float, share: float = CLOSE) -> int | None:
    """Evaluations until the efficiency reached a share; None where it never did."""
    return next((count for count, cost in steps if efficiency(best, cost) >= share), None)
