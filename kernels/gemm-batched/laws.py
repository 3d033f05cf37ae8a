"""How far products of matrices are from the exact ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**20  # elements, so that float64 copies stay small


def backward_error(A: NDArray[Any], B: NDArray[Any], C: NDArray[Any], n: int) -> float:
    """Largest ``||A B - C||`` by ``n u ||A|| ||B||`` in the Frobenius norm.

    Args:
        A: (batch, n, n), column-major: element (i, j) of a matrix is ``A[b, j, i]``.
        B: likewise.
        C: likewise.
        n: order.
    """
    u = float(np.finfo(C.dtype).eps) / 2
    step = max(1, AT_ONCE // (n * n))
    worst = 0.0
    for first in range(0, len(A), step):
        some = slice(first, first + step)
        left, right = A[some].astype(np.float64), B[some].astype(np.float64)
        error = np.linalg.norm(right @ left - C[some], axis=(1, 2))  # all are transposed
        size = np.linalg.norm(left, axis=(1, 2)) * np.linalg.norm(right, axis=(1, 2))
        worst = max(worst, float((error / (n * u * size)).max()))
    return worst
