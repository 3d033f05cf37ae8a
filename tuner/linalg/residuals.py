"""Backward errors of results, computed on the GPU: what ``check="residual"`` looks at.

Errors are by the largest row of |A|, in the type of the matrices, by CuPy's products. A factorisation is held
to A by a vector of random signs, which misses a wrong row with a chance of a half at most.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.application.functions import Call, refuse_errors
from tuner.application.keys import Array
from tuner.linalg.operations import MATRIX_AXES

RESIDUAL = "residual"
"""Asks a call to look at backward errors, too."""

ALLOWED = 30  # units of roundoff, times the root of the order: LAPACK's own tests allow 30, times the order

Measure = Callable[..., "tuple[Array, Array]"]
"""Defects and the sizes that they are held to, (...), by a call, its arrays and its result."""


def refuse_residuals(call: Call, measure: Measure, arrays: Any, found: Any) -> None:  # noqa: ANN401 - arrays
    """Wait for the GPU, and refuse results whose backward error is too large, or NaN.

    Raises:
        LinAlgError: one is; the message names the first matrix and its order.
    """
    matrices, results = arrays[0], found if isinstance(found, tuple) else (found,)
    if 0 in (matrices.size, *(one.size for one in results)):
        return
    order = max(matrices.shape[-2:])
    defect, size = measure(call, *arrays, found)
    limit = ALLOWED * math.sqrt(order) * float(np.finfo(matrices.dtype).eps) / 2
    refuse_errors(call, defect, size, limit, f"of order {order}")


def of_solution(call: Call, matrices: Array, right: Array, found: Array) -> tuple[Array, Array]:
    """Of ``A x = b``: ``max |A x - b|`` by ``max |A| max |x|``."""
    columns, x = ((one[..., None] if right.ndim == 1 else one) for one in (right, found))
    defect = abs(call.cp.matmul(matrices, x) - columns)
    return _largest(defect), _norm(matrices) * _largest(abs(x))


def of_symmetric(*, lower: bool) -> Measure:
    """Of ``A x = b``, of A one triangle is read."""

    def measure(call: Call, matrices: Array, right: Array, found: Array) -> tuple[Array, Array]:
        return of_solution(call, _whole(call, matrices, lower=lower), right, found)

    return measure


def of_triangle(*, turned: bool, lower: bool, unit: bool) -> Measure:
    """Of ``op(A) x = b``, of A one triangle is read."""

    def measure(call: Call, matrices: Array, right: Array, found: Array) -> tuple[Array, Array]:
        part = call.cp.tril(matrices) if lower else call.cp.triu(matrices)
        if unit:
            part = part + (1 - part) * call.cp.eye(part.shape[-1], dtype=part.dtype)
        return of_solution(call, part.swapaxes(-1, -2) if turned else part, right, found)

    return measure


def of_cholesky(*, lower: bool) -> Measure:
    """Of ``A = L L'`` or ``A = R' R``."""

    def measure(call: Call, matrices: Array, found: Array) -> tuple[Array, Array]:
        turned = found.swapaxes(-1, -2)
        factors = (found, turned) if lower else (turned, found)
        return _of_product(call, _whole(call, matrices, lower=lower), *factors)

    return measure


def of_qr(call: Call, matrices: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
    """Of ``A = Q R``."""
    return _of_product(call, matrices, *found)


def _of_product(call: Call, matrices: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """Of ``A = left right``, by a vector of random signs."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (matrices.shape[-1], 1)).astype(matrices.dtype)
    vector, multiply = call.cp.asarray(signs), call.cp.matmul
    defect = abs(multiply(matrices, vector) - multiply(left, multiply(right, vector)))
    return _largest(defect), _norm(matrices)


def _whole(call: Call, matrices: Array, *, lower: bool) -> Array:
    """Symmetric matrices by one of their triangles."""
    part = call.cp.tril(matrices, -1) if lower else call.cp.triu(matrices, 1)
    return part + part.swapaxes(-1, -2) + matrices * call.cp.eye(matrices.shape[-1], dtype=matrices.dtype)


def _norm(matrices: Array) -> Array:
    return abs(matrices).sum(axis=-1).max(axis=-1)


def _largest(array: Array) -> Array:
    return array.max(axis=tuple(range(-MATRIX_AXES, 0)))
