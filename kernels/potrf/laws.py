"""How far a Cholesky factor is from its matrix."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 512  # at once, so that float64 copies stay small
VECTORS = 4


def backward_error(
    A: NDArray[Any], A_before: NDArray[Any], info: NDArray[np.int32], n: int
) -> dict[str, float]:
    """How large ``A - L L'`` is by ``n u`` and A, and what must be zero.

    Both by their largest rows, as sums of squares: of ``E x`` for vectors x of random signs, each element
    is as large as the row of E on average. One wrong element is thus not lost among all others. The arrays
    are NumPy's or CuPy's.

    Args:
        A: after the run, (n, n), column-major: element (i, j) of the matrix is ``A[j, i]``.
        A_before: before it.
        info: LAPACK's, (1,).
        n: order.
    """
    xp = sys.modules[type(A).__module__.partition(".")[0]]
    signs = xp.asarray(np.random.default_rng(n).choice([-1.0, 1.0], size=(n, VECTORS)))
    found, right = xp.zeros_like(signs), xp.zeros_like(signs)
    squares, changed = xp.zeros(n), 0
    for first in range(0, n, ROWS):
        rows = slice(first, first + ROWS)
        factor = xp.triu(A[rows].astype(xp.float64), first)  # rows of L'
        found += factor.T @ (factor @ signs)
        matrix = xp.triu(A_before[rows].astype(xp.float64), first)
        beyond = xp.triu(matrix, first + 1)
        right[rows] += matrix @ signs
        right += beyond.T @ signs[rows]
        squares[rows] += (matrix**2).sum(axis=1)
        squares += (beyond**2).sum(axis=0)
        changed += int((xp.tril(A[rows], first - 1) != xp.tril(A_before[rows], first - 1)).sum())
    u = float(np.finfo(A.dtype).eps) / 2
    defect, norm = float(abs(found - right).max()), float(squares.max()) ** 0.5
    return {
        "backward error": defect / (n * u * norm),
        "elements changed above the diagonal": np.inf if changed else 0.0,
        "info": np.inf if int(info[0]) else 0.0,
    }
