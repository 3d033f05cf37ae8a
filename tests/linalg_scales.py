"""LAPACK's backward errors of matrices of any scale, as a law that hosts and GPUs are held to.

A defect counts by the bound that Higham's "Accuracy and Stability of Numerical Algorithms" (2002) has for it,
element by element but for QR, whose bound is by columns; sections 8.1, 9.3, 10.1 and 19.3. What is lost below
the smallest normal number is added (Demmel, "Underflow and the reliability of numerical software", 1984).
``LAWS`` are the operations of ``tuner.linalg``.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

Matrix = NDArray[Any]
Call = Callable[..., Any]  # a function by its name, with arrays and settings; gives NumPy's arrays
Law = Callable[[Call, int, str], None]  # of an order and a type

CONSTANT, FAILED = 8, 1e3
"""A defect is at most 1, or so many times LAPACK's own, unless that failed (NaN at denormal pivots).

LAPACK's own are 0.02 to 40 elsewhere, as the bound of ``_system`` has |A| in place of |L| |U|.
"""

CONDITIONS = 6  # of tall matrices, which come first

LARGEST_BATCHED = 128
"""Order up to which matrices are solved by kernels of this project, which keep denormal numbers."""

_SCALES = {
    "float32": (-30, -22, -15, 0, 19, 30),
    "float64": (-250, -160, 0, 160, 250),
}
_GRADES = {"float32": (0.0, -30.0), "float64": (150.0, -150.0)}  # from the first column or row to the last
_DENORMAL = {"float32": 2.0**-130, "float64": 2.0**-1026}


def _factors(n: int, dtype: str) -> list[tuple[Matrix, Matrix]]:
    """Of rows and of columns, for each matrix."""
    one, graded = np.ones(n), 10.0 ** np.linspace(*_GRADES[dtype], n)
    third = np.where(np.arange(n) % 3 == 1, _DENORMAL[dtype], 1)
    both = [(one * 10.0**scale, one) for scale in _SCALES[dtype]]
    ways = (graded, graded[::-1], third)
    return both + [(one, way) for way in ways] + [(way, one) for way in ways]


def general(n: int, dtype: str) -> Matrix:
    """Scaled, graded by columns or rows over 30 decades or more, with denormal pivots: (matrices, n, n)."""
    rng = np.random.default_rng(n)
    return np.array(
        [
            (left[:, None] * rng.uniform(-1, 1, (n, n)) * right).astype(dtype)
            for left, right in _factors(n, dtype)
        ]
    )


def positive(n: int, dtype: str) -> Matrix:
    """The same, symmetric and positive definite; factors are of rows and columns."""
    rng = np.random.default_rng(n)
    made = []
    for left, right in _factors(n, dtype):
        vectors = rng.uniform(-1, 1, (n, n))
        roots = np.sqrt(left * right)
        made.append((roots[:, None] * (vectors @ vectors.T / n + np.eye(n)) * roots).astype(dtype))
    return np.array(made)


def triangles(n: int, dtype: str) -> Matrix:
    """The same and near the largest number, dominated by their diagonals, with other numbers above them."""
    rng = np.random.default_rng(n)
    made = []
    largest = np.full(n, 0.45 * float(np.finfo(dtype).max))
    for left, right in [*_factors(n, dtype), (largest, np.ones(n))]:
        matrix = rng.uniform(-1, 1, (n, n)) / n
        np.fill_diagonal(matrix, rng.uniform(0.5, 1, n))
        made.append((left[:, None] * matrix * right).astype(dtype))
    return np.array(made)


def tall(m: int, n: int, dtype: str) -> list[Matrix]:
    """Conditions from 1 to beyond roundoff, rank-deficient, with zeros, and of any scale: each (m, n)."""
    rng = np.random.default_rng(m * n)
    left, right = (np.linalg.qr(rng.normal(size=(rows, n)))[0] for rows in (m, n))
    full = rng.uniform(-1, 1, (m, n))
    conditions = (1, 50, 1e3, 1e6, 1e12, 1e18)
    made = [(left * np.geomspace(1, 1 / condition, n)) @ right for condition in conditions]
    assert len(made) == CONDITIONS
    made.append((left * np.where(np.arange(n) == n - 1, 1e-3 if dtype == "float32" else 1e-7, 1)) @ right)
    made += [full[:, np.arange(n) // 2], np.where(np.arange(n) == n // 2, 0, full), 0 * full]
    made += [left_of[:1] * full * right_of[:n] for left_of, right_of in _factors(max(n, 2), dtype)[::3]]
    made.append(np.where(np.arange(m)[:, None] % 3 == 1, _DENORMAL[dtype], 1) * full)
    return [one.astype(dtype) for one in made]


def tall_law(call: Call, m: int, n: int, dtype: str) -> None:
    """A - Q R is small by columns, Q is orthogonal, and no number on the diagonal of R negative."""
    a = tall(m, n, dtype)
    found = list(zip(*(call("qr", one, mode="economic") for one in a), strict=True))
    assert all((one.diagonal() >= 0).all() and not np.tril(one, -1).any() for one in found[1])
    _check(_qr, [a], found, lambda: _each(scipy.linalg.qr, a, mode="economic"))


def products(matrices: Matrix) -> Matrix:
    """Two right-hand sides of systems whose solutions are near 1."""
    signs = np.random.default_rng(1).uniform(0.5, 1, (matrices.shape[-1], 2))
    return (matrices.astype(float) @ signs).astype(matrices.dtype)


def _ratio(defect: Matrix, size: Matrix, dtype: Any, lost: Any = 1.0) -> float:
    """Largest defect by ``n u size`` and what n operations lose below the normal numbers."""
    n, limits = defect.shape[0], np.finfo(dtype)
    bound = n * (float(limits.eps) / 2 * size + float(limits.smallest_subnormal) * (1 + lost))
    return float((np.abs(defect) / bound).max())


def _lu(a: Matrix, factors: Matrix, pivots: Matrix) -> float:
    n, wide = len(a), factors.astype(float)
    low, up = np.tril(wide, -1) + np.eye(n), np.triu(wide)
    order = np.arange(n)
    for row, other in enumerate(pivots):
        order[[row, other]] = order[[other, row]]
    assert np.abs(low).max() <= 1 + 2 * np.finfo(a.dtype).eps
    return _ratio(a[order] - low @ up, np.abs(low) @ np.abs(up), a.dtype, np.abs(up).max(axis=0))


def _qr(a: Matrix, q: Matrix, r: Matrix) -> float:
    wide, largest = q.astype(float), np.abs(a).max(axis=0).astype(float)
    off = wide.T @ wide - np.eye(q.shape[1])
    columns = _ratio(a - wide @ r.astype(float), np.broadcast_to(largest, a.shape), a.dtype)
    return max(columns, _ratio(off, np.ones(off.shape), a.dtype))


def _cholesky(a: Matrix, factor: Matrix) -> float:
    wide = factor.astype(float)
    size = np.abs(wide) @ np.abs(wide.T)
    return _ratio(np.tril(a - wide @ wide.T), size, a.dtype, np.abs(wide).max())


def _system(a: Matrix, b: Matrix, x: Matrix, *, factored: bool = False) -> float:
    size, wide = np.abs(a).astype(float) @ np.abs(x) + np.abs(b), np.abs(x).astype(float)
    lost = np.abs(a).max(axis=1)[:, None] + (wide.sum(axis=0) if factored else 0)  # of factors, too
    return _ratio(b - a.astype(float) @ x, size, a.dtype, lost)


def _check(measure: Call, arrays: Sequence[Any], found: Sequence[Any], lapack: Callable[[], Any]) -> None:
    """Asks ``measure`` of arrays and answers, and of LAPACK's answers where one exceeds its bound."""
    with np.errstate(all="ignore"):  # answers that are no numbers
        own = list(map(measure, *arrays, *found))
        if all(one <= 1 for one in own):
            return
        other = list(map(measure, *arrays, *lapack()))
    allowed = [CONSTANT * one if 1 / CONSTANT < one < FAILED else 1.0 for one in other]
    wrong = {at: both for at, both in enumerate(zip(own, allowed, strict=True)) if not both[0] <= both[1]}
    assert not wrong, f"defect and what is allowed, by the number of the matrix: {wrong}"


def _each(function: Call, *arrays: Matrix | Sequence[Matrix], **way: Any) -> list[Any]:
    """SciPy's answers, each of all matrices, with no word of conditions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
        made = [function(*one, **way) for one in zip(*arrays, strict=True)]
    return list(zip(*made, strict=True)) if isinstance(made[0], tuple) else [made]


def _qr_law(call: Call, n: int, dtype: str) -> None:
    """A - Q R is small by columns, and Q orthogonal."""
    a = general(n, dtype)
    _check(_qr, [a], call("qr", a), lambda: _each(scipy.linalg.qr, a))


def _lu_law(call: Call, n: int, dtype: str) -> None:
    """P A - L U is small by |L| |U|."""
    a = general(n, dtype)
    _check(_lu, [a], call("lu_factor", a), lambda: _each(scipy.linalg.lu_factor, a))


def _cholesky_law(call: Call, n: int, dtype: str) -> None:
    """A - L L' is small by |L| |L'|."""
    a = positive(n, dtype)
    _check(
        _cholesky, [a], [call("cholesky", a, lower=True)], lambda: _each(scipy.linalg.cholesky, a, lower=True)
    )


def _told(call: Call, a: Matrix, b: Matrix, **way: Any) -> Matrix:
    """Numbers of the systems but those whose pivots are denormal: large ones in float32 are refused."""
    if a.dtype != np.float32 or a.shape[-1] <= LARGEST_BATCHED:
        return np.arange(len(a))
    pivots = _DENORMAL["float32"] * np.ones(a.shape[-1])
    denormal = [np.abs(one).max(axis=axis).min() < 2 * pivots[0] for one in a for axis in (0, 1)]
    told = np.reshape(denormal, (-1, 2)).any(axis=1)
    assert told.sum() == 2  # by columns and by rows
    for one, other in zip(a[told], b[told], strict=True):
        with pytest.raises(np.linalg.LinAlgError, match=r"pivot \d+ is .* below the least normal float32"):
            call("solve" if "assume_a" in way else "solve_triangular", one, other, **way)
    return np.flatnonzero(~told)


def _solve_law(call: Call, n: int, dtype: str, *, assume_a: str) -> None:
    """The residual b - A x is small by |A| |x| + |b|."""
    a = general(n, dtype) if assume_a == "gen" else positive(n, dtype)
    b, way = products(a), {"assume_a": assume_a}
    if assume_a == "gen":
        held = _told(call, a, b, **way)
        a, b = a[held], b[held]
    found = call("solve", a, b, **way)
    _check(partial(_system, factored=True), [a, b], [found], lambda: _each(scipy.linalg.solve, a, b, **way))


def _triangular_law(call: Call, n: int, dtype: str, *, lower: bool) -> None:
    """The residual b - T x is small by |T| |x| + |b|."""
    a = triangles(n, dtype)
    of = (np.tril if lower else np.triu)(a)
    b, way = products(of), {"lower": lower}
    held = _told(call, of, b, **way)
    a, of, b = a[held], of[held], b[held]
    found = call("solve_triangular", a, b, **way)
    _check(_system, [of, b], [found], lambda: _each(scipy.linalg.solve_triangular, of, b, **way))


LAWS: dict[str, Law] = {
    "qr": _qr_law,
    "lu_factor": _lu_law,
    "cholesky": _cholesky_law,
    "solve": partial(_solve_law, assume_a="gen"),
    "solve positive": partial(_solve_law, assume_a="pos"),
    "solve_triangular lower": partial(_triangular_law, lower=True),
    "solve_triangular upper": partial(_triangular_law, lower=False),
}
