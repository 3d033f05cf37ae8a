"""How far Cholesky factors are from their matrices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**20  # elements, so that float64 copies stay small


def backward_error(
    A: NDArray[Any], A_before: NDArray[Any], info: NDArray[np.int32], n: int
) -> dict[str, float]:
    """``||A - L L'||`` by ``n u ||A||`` in the Frobenius norm, and what must be zero.

    Args:
        A: after the run, (batch, n, n), column-major: element (i, j) of a matrix is ``A[b, j, i]``.
        A_before: before it.
        info: LAPACK's, (batch,).
        n: order.
    """
    u = float(np.finfo(A.dtype).eps) / 2
    step = max(1, AT_ONCE // (n * n))
    worst, above = 0.0, 0.0
    for first in range(0, len(A), step):
        some = slice(first, first + step)
        upper = np.triu(A_before[some].astype(np.float64))  # the transpose of the lower triangle
        matrix = upper + np.swapaxes(np.triu(upper, 1), 1, 2)
        factor = np.triu(A[some].astype(np.float64))
        error = np.linalg.norm(np.swapaxes(factor, 1, 2) @ factor - matrix, axis=(1, 2))
        worst = max(worst, float((error / (n * u * np.linalg.norm(matrix, axis=(1, 2)))).max()))
        changed = np.tril(A[some], -1) != np.tril(A_before[some], -1)
        above += float(changed.sum())
    return {
        "backward error": worst,
        "elements changed above the diagonal": np.inf if above else 0.0,
        "problems with info": np.inf if info.any() else 0.0,
    }
