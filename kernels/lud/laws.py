"""How far a factorisation is from its matrix."""

import numpy as np
from numpy.typing import NDArray

ROWS = 256  # at once, so that float64 copies stay small


def residual(A: NDArray[np.float32], A_before: NDArray[np.float32]) -> float:
    """||L U x - A x|| by ||A|| ||x|| in the largest norm, for vectors x of random signs."""
    n = len(A)
    signs = np.random.default_rng(n).choice([-1.0, 1.0], size=(n, 4))
    product, right, largest = np.empty((n, 4)), np.empty((n, 4)), 0.0
    for first in range(0, n, ROWS):
        rows = slice(first, first + ROWS)
        product[rows] = np.triu(A[rows].astype(np.float64), first) @ signs
        before = A_before[rows].astype(np.float64)
        right[rows] = before @ signs
        largest = max(largest, np.abs(before).sum(axis=1).max())
    found = np.empty((n, 4))
    for first in range(0, n, ROWS):
        rows = slice(first, first + ROWS)
        found[rows] = np.tril(A[rows].astype(np.float64), first - 1) @ product + product[rows]
    return float(np.abs(found - right).max() / largest)
