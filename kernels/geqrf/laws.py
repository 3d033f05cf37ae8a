"""How far Householder QR factors are from their matrix, and Q from orthogonal."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = 64  # reflections that are applied together
VECTORS = 4


def errors(A: NDArray[Any], A_before: NDArray[Any], tau: NDArray[Any], n: int) -> dict[str, float]:
    """Estimates of ``||A - Q R||`` by ``n u ||A||`` and of ``||Q' Q - I||`` by ``n u ||I||``.

    In the Frobenius norm: for vectors x of random signs, the mean square of ``||E x||`` is the square of
    ``||E||``. The arrays are NumPy's or CuPy's.

    Args:
        A: after the run, (n, n), column-major: element (i, j) of the matrix is ``A[j, i]``. R is on and
            above the diagonal; below it the vectors of ``H(k) = I - tau(k) v v'``, Q = H(1) ... H(n).
        A_before: before it.
        tau: LAPACK's, (n,).
        n: order.
    """
    xp = sys.modules[type(A).__module__.partition(".")[0]]
    signs = xp.asarray(np.random.default_rng(n).choice([-1.0, 1.0], size=(n, VECTORS)))
    right, turned = xp.zeros_like(signs), xp.zeros_like(signs)
    squares = 0.0
    for first in range(0, n, COLUMNS):
        some = slice(first, first + COLUMNS)
        before = A_before[some].astype(xp.float64)
        right += before.T @ signs[some]
        squares += float((before**2).sum())
        turned += xp.tril(A[some].astype(xp.float64), first).T @ signs[some]
    both = xp.concatenate([turned, signs], axis=1)
    starts = range(0, n, COLUMNS)
    for first in reversed(starts):
        _apply(xp, both, A, tau, first, transposed=False)
    defect = float(((both[:, :VECTORS] - right) ** 2).sum() / VECTORS) ** 0.5
    both = both[:, VECTORS:].copy()
    for first in starts:
        _apply(xp, both, A, tau, first, transposed=True)
    off = float(((both - signs) ** 2).sum() / VECTORS) ** 0.5
    u = float(np.finfo(A.dtype).eps) / 2
    return {
        "backward error": defect / (n * u * (squares**0.5 or 1)),
        "loss of orthogonality": off / (n * u * n**0.5),
    }


def _apply(
    xp: Any,  # noqa: ANN401 - a module
    to: NDArray[Any],
    A: NDArray[Any],
    tau: NDArray[Any],
    first: int,
    *,
    transposed: bool,
) -> None:
    """Applies H(first + 1) ... of ``COLUMNS`` reflections, or the transpose, to columns in place."""
    some = A[first : first + COLUMNS, first:].astype(xp.float64)
    vectors = xp.triu(some, 1)
    xp.einsum("ii->i", vectors[:, : len(vectors)])[...] = 1
    factors = tau[first : first + COLUMNS].astype(xp.float64)
    products = vectors @ vectors.T
    triangle = xp.zeros_like(products)
    for k in range(len(factors)):
        triangle[:k, k] = -factors[k] * (triangle[:k, :k] @ products[:k, k])
        triangle[k, k] = factors[k]
    if transposed:
        triangle = triangle.T
    to[first:] -= vectors.T @ (triangle @ (vectors @ to[first:]))
