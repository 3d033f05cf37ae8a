"""How far Householder QR factors are from their matrices, and Q from orthogonal."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**20  # elements, so that float64 copies stay small


def errors(A: NDArray[Any], A_before: NDArray[Any], tau: NDArray[Any], n: int) -> dict[str, float]:
    """``||A - Q R||`` by ``n u ||A||`` and ``||Q' Q - I||`` by ``n u``, for vectors of random signs.

    Args:
        A: after the run, (batch, n, n), column-major: element (i, j) of a matrix is ``A[b, j, i]``. R is
            on and above the diagonal; below it the vectors of ``H(k) = I - tau(k) v v'``, Q = H(1) ... H(n).
        A_before: before it.
        tau: LAPACK's, (batch, n).
        n: order.
    """
    u = float(np.finfo(A.dtype).eps) / 2
    signs = np.random.default_rng(n).choice([-1.0, 1.0], size=(n, 4))
    backward, orthogonal = 0.0, 0.0
    step = max(1, AT_ONCE // (n * n))
    for start in range(0, len(A), step):
        some = slice(start, start + step)
        factors = np.swapaxes(A[some], 1, 2).astype(np.float64)
        vectors = np.tril(factors, -1) + np.eye(n)
        factor = tau[some].astype(np.float64)
        before = np.swapaxes(A_before[some], 1, 2).astype(np.float64)
        right = np.triu(factors) @ signs
        turned = np.broadcast_to(signs, right.shape).copy()
        for k in reversed(range(n)):
            _reflect(right, vectors, factor, k)
            _reflect(turned, vectors, factor, k)
        defect = np.linalg.norm(before @ signs - right, axis=(1, 2))
        norm = np.linalg.norm(before, axis=(1, 2)) * np.linalg.norm(signs, 2)
        backward = max(backward, float((defect / np.where(norm > 0, norm, 1)).max()) / (n * u))
        for k in range(n):
            _reflect(turned, vectors, factor, k)
        off = np.linalg.norm(turned - signs, axis=(1, 2)) / np.linalg.norm(signs)
        orthogonal = max(orthogonal, float(off.max()) / (n * u))
    return {"backward error": backward, "loss of orthogonality": orthogonal}


def _reflect(of: NDArray[Any], vectors: NDArray[Any], tau: NDArray[Any], k: int) -> None:
    """Applies reflection k to the columns of each problem."""
    v = vectors[:, k:, k, None]
    of[:, k:] -= v * (tau[:, k, None, None] * (v * of[:, k:]).sum(axis=1, keepdims=True))
