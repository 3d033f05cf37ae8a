"""What opening candidates as centres gains."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def gains(  # noqa: PLR0917 - the arrays and sizes of the kernel file
    points: Array, weight: Array, cost: Array, centre: Array, N: int, K: int, CALLS: int
) -> dict[str, Array]:
    """Savings of the points that switch, and sums of them and of the rows of the centres, in float64."""
    saving, gain = np.zeros((CALLS, N)), np.zeros((CALLS, K + 1))
    for call in range(CALLS):
        candidate = call * 7919 % N
        distance = np.zeros(N)
        for row in points:
            distance += (row.astype(np.float64) - float(row[candidate])) ** 2
        more = weight * distance - cost
        saving[call] = np.maximum(-more, 0)
        gain[call, :K] = np.bincount(centre, np.maximum(more, 0), K)
        gain[call, K] = saving[call].sum()
    return {"saving": saving, "gain": gain}
