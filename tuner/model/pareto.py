"""Points of two costs that no other point dominates: the Pareto front."""

import math
from collections.abc import Sequence


def non_dominated(costs: Sequence[tuple[float, float]]) -> list[int]:
    """The Pareto front of points of two costs, both to be minimised.

    A point dominates another one that it is below in one cost and not above in the other. Of equal points
    the earliest counts; a point with a cost that is not finite is on no front.

    Args:
        costs: both costs of every point, in any units.

    Returns:
        Indices into ``costs``, by ascending first cost, and so by descending second cost.
    """
    finite = [i for i, point in enumerate(costs) if all(map(math.isfinite, point))]
    front: list[int] = []
    lowest = math.inf
    for i in sorted(finite, key=lambda i: (*costs[i], i)):
        if costs[i][1] < lowest:
            front.append(i)
            lowest = costs[i][1]
    return front
