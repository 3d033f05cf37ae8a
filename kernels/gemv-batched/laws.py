"""How far products of matrices and vectors are from the exact ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**20  # elements, so that float64 copies stay small


def backward_error(A: NDArray[Any], x: NDArray[Any], y: NDArray[Any], n: int) -> float:
    """Largest ``||A x - y||`` by ``n u ||A|| ||x||`` in the Frobenius norm.

    Args:
        A: (batch, n, n), column-major: element (i, j) of a matrix is ``A[b, j, i]``.
        x: (batch, n).
        y: (batch, n).
        n: order.
    """
    u = float(np.finfo(y.dtype).eps) / 2
    step = max(1, AT_ONCE // (n * n))
    worst = 0.0
    for first in range(0, len(A), step):
        some = slice(first, first + step)
        matrix, factor = A[some].astype(np.float64), x[some].astype(np.float64)
        error = np.linalg.norm((factor[:, None, :] @ matrix)[:, 0] - y[some], axis=1)
        size = np.linalg.norm(matrix, axis=(1, 2)) * np.linalg.norm(factor, axis=1)
        worst = max(worst, float((error / (n * u * size)).max()))
    return worst
