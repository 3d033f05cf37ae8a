"""How far Householder QR factors are from their matrix, and Q from orthogonal."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = 64  # reflections that are applied together
VECTORS = 4


def errors(A: NDArray[Any], A_before: NDArray[Any], tau: NDArray[Any], n: int) -> dict[str, float]:
    """How large ``A - Q R`` is by ``n u`` and A, and ``Q' Q - I`` by ``n u``.

    All by their largest rows, as sums of squares: of ``E x`` for vectors x of random signs, each element
    is as large as the row of E on average. One wrong element is thus not lost among all others. The arrays
    are NumPy's or CuPy's.

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
    squares = xp.zeros(n)
    for first in range(0, n, COLUMNS):
        some = slice(first, first + COLUMNS)
        before = A_before[some].astype(xp.float64)
        right += before.T @ signs[some]
        squares += (before**2).sum(axis=0)
        turned += xp.tril(A[some].astype(xp.float64), first).T @ signs[some]
    both = xp.concatenate([turned, signs], axis=1)
    blocks = [_Block(xp, A, tau, first) for first in range(0, n, COLUMNS)]
    for block in reversed(blocks):
        block.apply(both, block.triangle)
    defect = float(abs(both[:, :VECTORS] - right).max())
    both = both[:, VECTORS:].copy()
    for block in blocks:
        block.apply(both, block.triangle.T)
    off = float(abs(both - signs).max())
    norm = float(squares.max()) ** 0.5 or 1.0
    u = float(np.finfo(A.dtype).eps) / 2
    return {
        "backward error": defect / (n * u * norm),
        "loss of orthogonality": off / (n * u),
    }


class _Block:
    """``COLUMNS`` reflections as I - V T V'."""

    def __init__(
        self,
        xp: Any,  # noqa: ANN401 - a module
        A: NDArray[Any],
        tau: NDArray[Any],
        first: int,
    ) -> None:
        self._xp, self._first = xp, first
        self._some = A[first : first + COLUMNS, first:]
        vectors = self._vectors()
        products = np.array((vectors @ vectors.T).tolist())
        factors = np.array(tau[first : first + COLUMNS].tolist())
        triangle = np.diag(factors)
        for k in range(1, len(factors)):
            triangle[:k, k] = -factors[k] * (triangle[:k, :k] @ products[:k, k])
        self.triangle = xp.asarray(triangle)

    def apply(self, to: NDArray[Any], triangle: NDArray[Any]) -> None:
        """Applies I - V T V' to columns in place."""
        vectors = self._vectors()
        to[self._first :] -= vectors.T @ (triangle @ (vectors @ to[self._first :]))

    def _vectors(self) -> NDArray[Any]:
        """V transposed, with its zeros and ones."""
        vectors: NDArray[Any] = self._xp.triu(self._some.astype(self._xp.float64), 1)
        diagonal = self._xp.arange(len(vectors))
        vectors[diagonal, diagonal] = 1
        return vectors
