"""Q of a large QR factorisation: its reflections, applied block by block to columns of the identity."""

from tuner.linalg.arrays import Array, Call
from tuner.linalg.blas import Blas

BLOCK = 256
"""Reflections applied at once; the last ones come first, so that zeros are left out."""


def form_q(call: Call, blas: Blas, factors: Array, tau: Array, out: Array) -> None:
    """Write the first columns of Q.

    A block of reflections is ``I - V T V'`` with ``T^-1 = striu(V' V) + diag(1 / tau)``; see Joffrain, Low,
    Quintana-Orti, van de Geijn and Van Zee, "Accumulating Householder transformations, revisited" (2006).

    Args:
        call: which call.
        blas: multiplies.
        factors: of LAPACK's form, column-major: element (i, j) is ``factors[j, i]``, (reflections, rows).
        tau: (reflections,).
        out: C-contiguous, (rows, columns), with as many columns as reflections or more.
    """
    cp, (count, rows), columns = call.cp, factors.shape, out.shape[1]
    out.fill(0)
    out.reshape(-1)[: columns * columns : columns + 1] = 1
    for first in reversed(range(0, count, BLOCK)):
        scales = tau[first : first + BLOCK]
        width = len(scales)
        vectors = cp.empty((width, rows - first), factors.dtype)  # V', a row for each reflection
        vectors[...] = cp.triu(factors[first : first + width, first:], 1)
        _set_diagonal(vectors, 1)
        vectors *= (scales != 0)[:, None]  # one that does nothing is left out
        triangle = cp.empty((width, width), factors.dtype)
        blas.multiply(vectors, vectors.T, triangle)
        _set_diagonal(triangle, 1 / cp.where(scales == 0, 1, scales))
        part = out[first:, first:]
        product = cp.empty((columns - first, width), factors.dtype).T
        blas.multiply(vectors, part, product)
        blas.solve(triangle, product, lower=False)
        blas.multiply(vectors.T, product, part, alpha=-1, beta=1)


def _set_diagonal(matrix: Array, values: Array) -> None:
    """Put values onto the diagonal of a C-contiguous matrix that has no more rows than columns."""
    matrix.reshape(-1)[:: matrix.shape[1] + 1][: len(matrix)] = values
