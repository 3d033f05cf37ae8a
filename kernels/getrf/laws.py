"""How far LU factors with partial pivoting are from their matrix."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 512  # at once, so that float64 copies stay small
VECTORS = 4


def errors(
    A: NDArray[Any], A_before: NDArray[Any], ipiv: NDArray[np.int32], info: NDArray[np.int32], n: int
) -> dict[str, float]:
    """How large ``P A - L U`` is by ``n u`` and A, and broken promises.

    Both by their largest rows, as sums of squares: of ``E x`` for vectors x of random signs, each element
    is as large as the row of E on average. One wrong element is thus not lost among all others. The arrays
    are NumPy's or CuPy's.

    Args:
        A: after the run, (n, m), column-major: element (i, j) of the matrix is ``A[j, i]``.
        A_before: before it.
        ipiv: LAPACK's, (n,): row i was exchanged with row ``ipiv[i]``, both from 1.
        info: LAPACK's, (1,): number of the first pivot that is zero, from 1, else 0.
        n: columns.
    """
    xp = sys.modules[type(A).__module__.partition(".")[0]]
    m, exchanged = A.shape[1], np.array(ipiv.tolist(), int) - 1
    if (exchanged < np.arange(n)).any() or (exchanged >= m).any():
        return {"pivots out of range": np.inf}
    order = np.arange(m)
    for i, other in enumerate(exchanged):
        order[i], order[other] = order[other], order[i]
    signs = xp.asarray(np.random.default_rng(n).choice([-1.0, 1.0], size=(n, VECTORS)))
    right, found, above = xp.zeros((m, VECTORS)), xp.zeros((m, VECTORS)), xp.zeros_like(signs)
    squares, largest = xp.zeros(m), 0.0
    for first in range(0, n, ROWS):  # columns of the matrix
        some = slice(first, first + ROWS)
        before = A_before[some].astype(xp.float64)
        right += before.T @ signs[some]
        squares += (before**2).sum(axis=0)
        above += xp.tril(A[some, :n].astype(xp.float64), first).T @ signs[some]
    for first in range(0, n, ROWS):
        some = slice(first, first + ROWS)
        lower = xp.triu(A[some].astype(xp.float64), first + 1)
        found += lower.T @ above[some]
        largest = max(largest, float(abs(lower).max()))
    found[:n] += above
    u = float(np.finfo(A.dtype).eps) / 2
    defect = float(abs(found - right[xp.asarray(order)]).max())
    norm = float(squares.max()) ** 0.5 or 1.0
    zeros = np.flatnonzero(np.array(xp.diagonal(A).tolist()) == 0)
    return {
        "backward error": defect / (n * u * norm),
        "multipliers above 1": max(0.0, largest - 1) / (2 * u),
        "wrong info": np.inf if int(info[0]) != (zeros[0] + 1 if len(zeros) else 0) else 0.0,
    }
