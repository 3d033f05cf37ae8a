"""How far LU factors with partial pivoting are from their matrices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**20  # elements, so that float64 copies stay small


def errors(
    A: NDArray[Any],
    A_before: NDArray[Any],
    ipiv: NDArray[np.int32],
    info: NDArray[np.int32],
    n: int,
) -> dict[str, float]:
    """Backward error ``||P A - L U||`` by ``n u ||A||`` for vectors of random signs, and broken promises.

    Args:
        A: after the run, (batch, n, n), column-major: element (i, j) of a matrix is ``A[b, j, i]``.
        A_before: before it.
        ipiv: LAPACK's, (batch, n): row i was exchanged with row ``ipiv[i]``, both from 1.
        info: LAPACK's, (batch,): number of the first pivot that is zero, from 1, else 0.
        n: order.
    """
    u = float(np.finfo(A.dtype).eps) / 2
    if (ipiv <= np.arange(n)).any() or (ipiv > n).any():
        return {"pivots out of range": np.inf}
    signs = np.random.default_rng(n).choice([-1.0, 1.0], size=(n, 4))
    worst, largest, wrong = 0.0, 0.0, 0
    step = max(1, AT_ONCE // (n * n))
    for start in range(0, len(A), step):
        some = slice(start, start + step)
        before = np.swapaxes(A_before[some], 1, 2).astype(np.float64)
        factors = np.swapaxes(A[some], 1, 2).astype(np.float64)
        right = _exchanged(before @ signs, ipiv[some])
        product = np.triu(factors) @ signs
        product += np.tril(factors, -1) @ product
        norm = np.abs(before).sum(axis=2).max(axis=1)
        defect = np.abs(product - right).max(axis=(1, 2))
        worst = max(worst, float((defect / np.where(norm > 0, norm, 1)).max()) / (n * u))
        largest = max(largest, float(np.abs(np.tril(factors, -1)).max()))
        zero = np.einsum("bii->bi", factors) == 0
        expected = np.where(zero.any(axis=1), zero.argmax(axis=1) + 1, 0)
        wrong += int((expected != info[some]).sum())
    return {
        "backward error": worst,
        "multipliers above 1": max(0.0, largest - 1) / (2 * u),
        "wrong info": np.inf if wrong else 0.0,
    }


def _exchanged(rows: NDArray[Any], ipiv: NDArray[np.int32]) -> NDArray[Any]:
    """The rows after LAPACK's exchanges, one after another."""
    problems = np.arange(len(rows))
    for i, other in enumerate(ipiv.T - 1):
        rows[problems, i], rows[problems, other] = rows[problems, other], rows[problems, i].copy()
    return rows
