"""Systems of equations: general, positive definite and triangular ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.linalg.factorisations import check_order, first_failure, getrf, permutation, potrf, square_shape
from tuner.linalg.operations import (
    CUBLAS,
    MATRIX_AXES,
    Array,
    Call,
    as_matrices,
    called,
    check_matrices,
    column_major,
    common_batch,
    factor,
    flag,
    place,
    route,
    row_major,
    run,
    set_diagonal,
    transposed,
)
from tuner.linalg.products import Blas
from tuner.model.errors import InputError

_GENERAL = (None, "gen", "general")
_POSITIVE = ("pos", "positive definite")


def solve(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    *,
    lower: bool = False,
    assume_a: str | None = None,
    check: bool = True,
) -> Array:
    """Solution of ``a x = b``, as ``scipy.linalg.solve``; condition numbers are not estimated.

    Args:
        a: (..., n, n), float32 or float64.
        b: (n,), or (..., n, k); leading axes are broadcast with those of a.
        lower: the triangle that is read of a positive definite a.
        assume_a: ``gen`` or None: LU; ``pos``: Cholesky.
        check: whether to wait for the GPU and look for failures.

    Returns:
        Of the shape of b, with the leading axes of both.

    Raises:
        LinAlgError: a matrix is singular, or not positive definite; the message names the first.
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    with called("solve", a=a, b=b) as (call, matrices, right):
        if assume_a not in (*_GENERAL, *_POSITIVE):
            raise call.wrong(f"assume_a is {assume_a!r}; it must be 'gen' or 'pos'")
        lower = flag(call, "lower", lower)
        own, _ = square_shape(call, matrices, "getrf" if assume_a in _GENERAL else "potrf")
        system = _System(call, matrices, right, check=check)
        if system.empty:
            return call.returned(system.zeros())
        if assume_a in _GENERAL:
            factors, pivots, info = getrf(call, matrices)
            found = first_failure(info) if check else None
            if found is not None:
                raise np.linalg.LinAlgError(
                    f"{place(found[0], own)}Matrix is singular: diagonal {found[1]} of U is exactly zero."
                )
            return call.returned(_by_lu(system, as_matrices(factors, own), pivots))
        factor = (column_major if lower else row_major)(call, matrices)
        potrf(call, factor, own, check=check)
        triangle = as_matrices(factor, own)
        forward = system.solved(triangle, system.right(), lower=True)
        solution = system.solved(triangle.swapaxes(-1, -2), forward, lower=False)
        return call.returned(system.shaped(solution))


def lu_solve(lu_and_piv: Sequence[Any], b: Any) -> Array:  # noqa: ANN401 - arrays on the GPU
    """Solution of ``a x = b`` by the factors of a, as ``scipy.linalg.lu_solve``.

    Args:
        lu_and_piv: of ``lu_factor``; piv is of any type of signed whole numbers.
        b: (n,), or (..., n, k); leading axes are broadcast with those of the factors.

    Returns:
        Of the shape of b, with the leading axes of both. A zero on the diagonal of U gives infinities or NaN.

    Raises:
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    if not isinstance(lu_and_piv, (tuple, list)) or len(lu_and_piv) != 2:  # noqa: PLR2004 - two arrays
        raise InputError("tuner.linalg.lu_solve: lu_and_piv must be the pair (lu, piv) of lu_factor")
    factors, pivots = lu_and_piv
    with called("lu_solve", {"piv": pivots}, lu=factors, b=b) as (call, matrices, right, exchanged):
        check_matrices(call, "lu", matrices, square=True)
        n = matrices.shape[-1]
        check_order(call, "trsm", n)
        shape = (*matrices.shape[:-2], n)
        if exchanged.shape != shape or exchanged.dtype.kind != "i":
            raise call.wrong(
                f"piv has dtype {exchanged.dtype} and shape {exchanged.shape}; it must be whole numbers of"
                f" shape {shape}, as lu_factor returns"
            )
        system = _System(call, matrices, right, "lu")
        if system.empty:
            return call.returned(system.zeros())
        return call.returned(_by_lu(system, matrices, exchanged.reshape(-1, n).astype("int32")))


def solve_triangular(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    check: bool = True,
) -> Array:
    """Solution of ``op(a) x = b``, a triangular, as ``scipy.linalg.solve_triangular``.

    Args:
        a: (..., n, n), float32 or float64; one triangle is read.
        b: (n,), or (..., n, k); leading axes are broadcast with those of a.
        trans: 0 or ``N`` for a itself; 1, 2, ``T`` or ``C`` for its transpose.
        lower: the triangle that is read.
        unit_diagonal: take the diagonal as ones, without reading it.
        check: whether to wait for the GPU and look for zeros on diagonals.

    Returns:
        Of the shape of b, with the leading axes of both.

    Raises:
        LinAlgError: a diagonal has a zero; the message names the first matrix, and where.
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    with called("solve_triangular", a=a, b=b) as (call, matrices, right):
        turned, lower = transposed(call, "trans", trans), flag(call, "lower", lower)
        unit_diagonal = flag(call, "unit_diagonal", unit_diagonal)
        own, n = square_shape(call, matrices, "trsm")
        system = _System(call, matrices, right, check=check)
        if system.empty:
            return call.returned(system.zeros())
        if check and not unit_diagonal:
            diagonal = matrices.diagonal(0, -2, -1).reshape(-1, n).get()
            failed = np.argwhere(np.asarray(diagonal) == 0)
            if len(failed):
                where, number = failed[0]
                raise np.linalg.LinAlgError(
                    f"{place(int(where), own)}singular matrix: resolution failed at diagonal {number}"
                )
        triangle = matrices.swapaxes(-1, -2) if turned else matrices
        solution = system.solved(triangle, system.right(), lower=lower != turned, unit=unit_diagonal)
        return call.returned(system.shaped(solution))


def trsm(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    *,
    alpha: float = 1.0,
    side: str = "left",
    lower: bool = True,
    trans_a: bool | int | str = False,
    unit_diagonal: bool = False,
) -> Array:
    """Solution of ``op(a) x = alpha b`` or ``x op(a) = alpha b``, a triangular; as BLAS, without checks.

    Args:
        a: (..., n, n), float32 or float64; one triangle is read.
        b: (..., n, k), or (..., k, n) on the right side; leading axes are broadcast with those of a.
        alpha: a factor; 0 reads neither a nor b.
        side: ``left`` or ``right``.
        lower: the triangle that is read.
        trans_a: whether a is taken as its transpose; 0 or ``N``, 1, 2, ``T`` or ``C`` as BLAS has it.
        unit_diagonal: take the diagonal as ones, without reading it.

    Returns:
        Of the shape of b, with the leading axes of both.

    Raises:
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    with called("trsm", a=a, b=b) as (call, matrices, right):
        if side not in ("left", "right"):
            raise call.wrong(f"side is {side!r}; it must be 'left' or 'right'")
        lower, unit_diagonal = flag(call, "lower", lower), flag(call, "unit_diagonal", unit_diagonal)
        scale = factor(call, "alpha", alpha, matrices.dtype)
        from_right = side == "right"
        turned = transposed(call, "trans_a", trans_a) != from_right  # x op(a) = b is op(a)' x' = b'
        _, n = square_shape(call, matrices, "trsm")
        if right.ndim < MATRIX_AXES or right.shape[-1 if from_right else -2] != n:
            wanted = f"(..., k, {n})" if from_right else f"(..., {n}, k)"
            raise call.wrong(
                f"b has shape {right.shape}; it must be {wanted} for side={side!r} and a of"
                f" shape {matrices.shape}"
            )
        system = _System(call, matrices, right.swapaxes(-1, -2) if from_right else right)
        if system.empty or not scale:
            found = system.zeros()
        else:
            triangle = matrices.swapaxes(-1, -2) if turned else matrices
            columns = system.right()
            if scale != 1:
                columns *= scale
            solution = system.solved(triangle, columns, lower=lower != turned, unit=unit_diagonal)
            found = system.shaped(solution)
        return call.returned(found.swapaxes(-1, -2) if from_right else found)


class _System:
    """Right-hand sides of a call, and how they become an answer.

    Args:
        call: which call.
        matrices: of shape (..., n, n).
        right: of shape (n,) or (..., n, k).
        name: of the matrices in messages.
        check: whether pivots are looked at that libraries take for zero.

    Raises:
        InputError: the shapes do not go together.
    """

    def __init__(
        self, call: Call, matrices: Array, right: Array, name: str = "a", *, check: bool = False
    ) -> None:
        self.call, self._n, self._check = call, matrices.shape[-1], check
        self._flat = right.ndim == 1
        self._right = right[:, None] if self._flat else right
        if not right.ndim or self._right.shape[-2] != self._n:
            raise call.wrong(
                f"b has shape {right.shape}; it must be ({self._n},) or (..., {self._n}, k) for {name} of"
                f" shape {matrices.shape}"
            )
        self._lead = common_batch(call, **{name: matrices, "b": self._right})
        self._count = self._right.shape[-1]
        self.empty = 0 in (*self._lead, self._n, self._count)

    def zeros(self) -> Array:
        """The answer where there is nothing to solve, or right-hand sides are zero."""
        batch = math.prod(self._lead)
        return self.shaped(self.call.cp.zeros((batch, self._count, self._n), self._right.dtype))

    def right(self) -> Array:
        """A column-major copy of the right-hand sides, (batch, k, n)."""
        return column_major(self.call, self._right, self._lead)

    def shaped(self, columns: Array) -> Array:
        """Column-major solutions as the caller has them."""
        found = as_matrices(columns, self._lead)
        return found[..., 0] if self._flat else found

    def permuted(self, columns: Array, order: Array, own: tuple[int, ...]) -> Array:
        """Right-hand sides with their rows in another order, that is given for each matrix."""
        cp = self.call.cp
        rows = cp.empty((*self._lead, self._n), "int32")
        rows[...] = order.reshape(*own, self._n)
        moved = cp.empty(columns.shape, columns.dtype)
        moved[...] = cp.take_along_axis(columns, rows.reshape(-1, 1, self._n), axis=2)
        return moved

    def solved(self, triangles: Array, columns: Array, *, lower: bool, unit: bool = False) -> Array:
        """Solutions of triangular systems, (batch, k, n); ``columns`` may change.

        The kernel takes lower triangles and as many right-hand sides as rows. Upper ones are solved from the
        last row to the first; right-hand sides are dealt to several squares, or filled up with zeros to one.
        """
        if route(self.call, "trsm", self._n).kernel == CUBLAS:
            return self._large_solved(triangles, columns, lower=lower, unit=unit)
        if not lower:
            turned = self.solved(triangles[..., ::-1, ::-1], columns[..., ::-1], lower=True, unit=unit)
            return turned[..., ::-1]
        cp, n = self.call.cp, self._n
        batch, k, _ = columns.shape
        parts = -(-k // n)
        squares = cp.empty((batch, parts * n, n), columns.dtype)
        squares[:, :k] = columns
        squares[:, k:] = 0
        factors = column_major(self.call, triangles, self._lead)
        if unit:
            set_diagonal(factors, 1)
        if parts > 1:
            factors = factors.repeat(parts, axis=0)
        solution = run(self.call, "trsm", factors, squares.reshape(batch * parts, n, n))
        return solution.reshape(batch, parts * n, n)[:, :k]

    def _large_solved(self, triangles: Array, columns: Array, *, lower: bool, unit: bool) -> Array:
        """Solutions in place of ``columns``, matrix by matrix."""
        blas = Blas(self.call)
        wide = self.call.cp.broadcast_to(triangles, (*self._lead, self._n, self._n))
        for number, at in enumerate(np.ndindex(*self._lead)):
            triangle, right = wide[at], columns[number].T
            if unit:
                blas.solve(triangle, right, lower=lower, unit=True)
                continue
            if self._check:
                _refuse_denormal(triangle.diagonal().get())
            # cuBLAS inverts blocks, which overflows where pivots are denormal. Scaled by the roots of pivots
            # on both sides, pivots are near 1, and no inverse overflows, whether rows or columns are small.
            cp, roots = self.call.cp, self._inverse_roots(triangle.diagonal())[:, None]
            scaled = triangle * roots
            scaled[...] = (cp.tril if lower else cp.triu)(scaled)
            scaled *= roots.T
            right *= roots
            blas.solve(scaled, right, lower=lower, unit=False)
            right *= roots
        return columns

    def _inverse_roots(self, pivots: Array) -> Array:
        """Powers of two near the inverse roots of pivots: multiplying by them is exact."""
        cp = self.call.cp
        _, exponents = cp.frexp(pivots)
        return cp.ldexp(cp.ones_like(pivots), -(exponents // 2))


def _refuse_denormal(pivots: Any) -> None:  # noqa: ANN401 - an array of the host
    """Refuse pivots of float32 that CuPy and cuBLAS take for zero.

    Raises:
        np.linalg.LinAlgError: one is denormal.
    """
    sizes = np.abs(np.asarray(pivots))
    least = np.finfo(sizes.dtype).smallest_normal
    tiny = np.flatnonzero((sizes > 0) & (sizes < least))
    if sizes.dtype == np.float32 and tiny.size:
        raise np.linalg.LinAlgError(
            f"pivot {tiny[0] + 1} is {sizes[tiny[0]]:.3g}, below the least normal float32 number"
            f" ({least:.3g}), which is taken for zero on the GPU: scale rows or columns, or solve in float64"
        )


def _by_lu(system: _System, factors: Array, pivots: Array) -> Array:
    """Solutions by factors (..., n, n) and their pivots from 0, (batch, n)."""
    order = permutation(system.call, pivots, factors.shape[-1])
    right = system.permuted(system.right(), order, tuple(factors.shape[:-2]))
    forward = system.solved(factors, right, lower=True, unit=True)
    return system.shaped(system.solved(factors, forward, lower=False))
