"""How far solutions of triangular systems are from solving them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**20  # elements, so that float64 copies stay small


def backward_error(L: NDArray[Any], B: NDArray[Any], B_before: NDArray[Any], n: int) -> float:
    """Largest ``||L X - B||`` by ``n u ||L|| ||X||`` in the Frobenius norm.

    Args:
        L: (batch, n, n), column-major: element (i, j) of a matrix is ``L[b, j, i]``; lower triangles.
        B: the solutions X, likewise.
        B_before: the right-hand sides.
        n: order.
    """
    u = float(np.finfo(B.dtype).eps) / 2
    step = max(1, AT_ONCE // (n * n))
    worst = 0.0
    for first in range(0, len(B), step):
        some = slice(first, first + step)
        factor = np.triu(L[some].astype(np.float64))  # the transpose of the lower triangle
        solution = B[some].astype(np.float64)
        error = np.linalg.norm(solution @ factor - B_before[some], axis=(1, 2))
        size = np.linalg.norm(factor, axis=(1, 2)) * np.linalg.norm(solution, axis=(1, 2))
        worst = max(worst, float((error / (n * u * size)).max()))
    return worst
