"""Systems of equations: general, positive definite and triangular ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.application.functions import Call, flag, place
from tuner.application.keys import Array
from tuner.linalg.composed import Finish, Matrices, Recipe, on_host, perform
from tuner.linalg.factorisations import (
    check_order,
    first_failure,
    getrf,
    potrf,
    refuse_indefinite,
    square_shape,
)
from tuner.linalg.operations import (
    CUBLAS,
    MATRIX_AXES,
    called,
    check_matrices,
    common_batch,
    factor,
    is_number,
    route,
    transposed,
)
from tuner.linalg.residuals import of_solution, of_symmetric, of_triangle
from tuner.model.errors import InputError
from tuner.model.plan import Fill, LibraryCall, Operand

_GENERAL = (None, "gen", "general")
_POSITIVE = ("pos", "positive definite")
SMALL = 16  # rows of systems that are solved by substitution, whatever the right-hand sides
FEW = 4  # right-hand sides, or a quarter of the rows, for which others are


def solve(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    *,
    lower: bool = False,
    assume_a: str | None = None,
    check: bool | str = True,
) -> Array:
    """Solution of ``a x = b``, as ``scipy.linalg.solve``; condition numbers are not estimated.

    Args:
        a: (..., n, n), float32 or float64.
        b: (n,), or (..., n, k); leading axes are broadcast with those of a.
        lower: the triangle that is read of a positive definite a.
        assume_a: ``gen`` or None: LU; ``pos``: Cholesky.
        check: whether to wait for the GPU and look for failures. ``residual`` computes a x - b, too:
            2 n² (k + 1) operations for k right sides beside 2 n³ / 3 + 2 n² k, and reads a twice more.

    Returns:
        Of the shape of b, with the leading axes of both.

    Raises:
        LinAlgError: a matrix is singular, or not positive definite; the message names the first. Or a
            backward error is too large.
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    measure = of_symmetric(lower=bool(lower)) if assume_a in _POSITIVE else of_solution
    options = (lower, assume_a, bool(check))
    return perform("solve", _solve, {"a": a, "b": b}, *options, check=check, measure=measure)


def _solve(  # noqa: PLR0917 - those of the function
    call: Call, matrices: Array, right: Array, lower: bool, assume_a: str | None, check: bool
) -> tuple[Recipe, Finish] | Array:
    if assume_a not in (*_GENERAL, *_POSITIVE):
        raise call.wrong(f"assume_a is {assume_a!r}; it must be 'gen' or 'pos'")
    lower = flag(call, "lower", lower)
    general = assume_a in _GENERAL
    own, _ = square_shape(call, matrices, "getrf" if general else "potrf")
    shape = _Shape(call, matrices, right)
    if shape.empty:
        return shape.zeros(call)
    recipe = Recipe(call, {"a": matrices, "b": right})
    system = _System(recipe, call, shape, looked_at=check)
    given = recipe.given("a")
    if general:
        factors, pivots = getrf(recipe, call, given, out=False)
        system.by_lu(factors.turned, pivots)
    else:
        factor = potrf(recipe, call, given.turned if lower else given, out=False)
        system.solve(factor.turned, lower=True)
        system.solve(factor, lower=False)
    finished = system.finished()

    def finish(made: Sequence[Array], check: bool) -> Array:
        info = made[0]
        if check and general:
            found = first_failure(info)
            if found is not None:
                raise np.linalg.LinAlgError(
                    f"{place(found[0], own)}Matrix is singular: diagonal {found[1]} of U is exactly zero."
                )
        elif check:
            refuse_indefinite(info, own)
        return finished(made, check)

    return recipe, finish


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
    return perform("lu_solve", _lu_solve, {"lu": factors, "b": b}, also={"piv": pivots})


def _lu_solve(call: Call, matrices: Array, right: Array, exchanged: Array) -> tuple[Recipe, Finish] | Array:
    check_matrices(call, "lu", matrices, square=True)
    n = matrices.shape[-1]
    check_order(call, "trsm", n)
    wanted = (*matrices.shape[:-2], n)
    if exchanged.shape != wanted or exchanged.dtype.kind != "i":
        raise call.wrong(
            f"piv has dtype {exchanged.dtype} and shape {exchanged.shape}; it must be whole numbers of"
            f" shape {wanted}, as lu_factor returns"
        )
    shape = _Shape(call, matrices, right, "lu")
    if shape.empty:
        return shape.zeros(call)
    recipe = Recipe(call, {"lu": matrices, "b": right, "piv": exchanged})
    system = _System(recipe, call, shape)
    pivots = recipe.given("piv")
    if not pivots.contiguous:
        rows = recipe.array("rows", *wanted, dtype=exchanged.dtype.name)
        recipe.move(pivots.seen(lambda one: one[..., None, :]), rows.seen(lambda one: one[..., None, :]))
        pivots = rows
    system.by_lu(recipe.given("lu"), pivots)
    finished = system.finished()
    return recipe, finished


def solve_triangular(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    check: bool | str = True,
) -> Array:
    """Solution of ``op(a) x = b``, a triangular, as ``scipy.linalg.solve_triangular``.

    Args:
        a: (..., n, n), float32 or float64; one triangle is read.
        b: (n,), or (..., n, k); leading axes are broadcast with those of a.
        trans: 0 or ``N`` for a itself; 1, 2, ``T`` or ``C`` for its transpose.
        lower: the triangle that is read.
        unit_diagonal: take the diagonal as ones, without reading it.
        check: whether to wait for the GPU and look for zeros on diagonals. ``residual`` computes op(a) x - b,
            too: as many operations as the solution, and two copies of a.

    Returns:
        Of the shape of b, with the leading axes of both.

    Raises:
        LinAlgError: a diagonal has a zero; the message names the first matrix, and where. Or a backward
            error is too large.
        InputError: an argument cannot be used, or n is beyond the kernels.
    """
    options = (trans, lower, unit_diagonal, bool(check))

    def measure(call: Call, matrices: Array, right: Array, found: Array) -> tuple[Array, Array]:
        turned = transposed(call, "trans", trans)
        held = of_triangle(turned=turned, lower=bool(lower), unit=bool(unit_diagonal))
        return held(call, matrices, right, found)

    given = {"a": a, "b": b}
    return perform("solve_triangular", _solve_triangular, given, *options, check=check, measure=measure)


def _solve_triangular(  # noqa: PLR0917 - those of the function
    call: Call,
    matrices: Array,
    right: Array,
    trans: int | str,
    lower: bool,
    unit_diagonal: bool,
    check: bool,
) -> tuple[Recipe, Finish] | Array:
    turned, lower = transposed(call, "trans", trans), flag(call, "lower", lower)
    unit_diagonal = flag(call, "unit_diagonal", unit_diagonal)
    own, n = square_shape(call, matrices, "trsm")
    shape = _Shape(call, matrices, right)
    if shape.empty:
        return shape.zeros(call)
    recipe = Recipe(call, {"a": matrices, "b": right})
    looks = check and not unit_diagonal
    system = _System(recipe, call, shape, looked_at=looks)
    given = recipe.given("a")
    system.solve(given.turned if turned else given, lower=lower != turned, unit=unit_diagonal, tell=looks)
    finished = system.finished()

    def finish(made: Sequence[Array], check: bool) -> Array:
        if looks:
            failed = np.argwhere(on_host(made[0]).reshape(-1, n) == 0)
            if len(failed):
                where, number = failed[0]
                raise np.linalg.LinAlgError(
                    f"{place(int(where), own)}singular matrix: resolution failed at diagonal {number}"
                )
        return finished(made, check)

    return recipe, finish


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
    way = (side, lower, trans_a, unit_diagonal)
    if is_number(alpha, 1):
        return perform("trsm", _trsm, {"a": a, "b": b}, *way)
    with called("trsm", a=a, b=b) as (call, matrices, right):
        scale = factor(call, "alpha", alpha, matrices.dtype)
        scaled = right * scale if scale else right
        return call.returned(perform("trsm", _trsm, {"a": matrices, "b": scaled}, *way, bool(scale)))


def _trsm(  # noqa: PLR0917 - those of the function
    call: Call,
    matrices: Array,
    right: Array,
    side: str,
    lower: bool,
    trans_a: bool | int | str,
    unit_diagonal: bool,
    reads: bool = True,
) -> tuple[Recipe, Finish] | Array:
    if side not in ("left", "right"):
        raise call.wrong(f"side is {side!r}; it must be 'left' or 'right'")
    lower, unit_diagonal = flag(call, "lower", lower), flag(call, "unit_diagonal", unit_diagonal)
    from_right = side == "right"
    turned = transposed(call, "trans_a", trans_a) != from_right  # x op(a) = b is op(a)' x' = b'
    _, n = square_shape(call, matrices, "trsm")
    if right.ndim < MATRIX_AXES or right.shape[-1 if from_right else -2] != n:
        wanted = f"(..., k, {n})" if from_right else f"(..., {n}, k)"
        raise call.wrong(
            f"b has shape {right.shape}; it must be {wanted} for side={side!r} and a of"
            f" shape {matrices.shape}"
        )
    shape = _Shape(call, matrices, right.swapaxes(-1, -2) if from_right else right)
    if shape.empty or not reads:
        zeros = shape.zeros(call)
        return zeros.swapaxes(-1, -2) if from_right else zeros
    recipe = Recipe(call, {"a": matrices, "b": right})
    system = _System(recipe, call, shape, turned=from_right)
    given = recipe.given("a")
    system.solve(given.turned if turned else given, lower=lower != turned, unit=unit_diagonal)
    finished = system.finished()

    def finish(made: Sequence[Array], check: bool) -> Array:
        found: Array = finished(made, check)
        return found.swapaxes(-1, -2) if from_right else found

    return recipe, finish


class _Shape:
    """Shape of the answer of a call.

    Args:
        call: which call.
        matrices: of shape (..., n, n).
        right: of shape (n,) or (..., n, k).
        name: of the matrices in messages.

    Raises:
        InputError: the shapes do not go together.
    """

    def __init__(self, call: Call, matrices: Array, right: Array, name: str = "a") -> None:
        self.n = n = matrices.shape[-1]
        self.flat = right.ndim == 1
        columns = right[:, None] if self.flat else right
        if not right.ndim or columns.shape[-2] != n:
            raise call.wrong(
                f"b has shape {right.shape}; it must be ({n},) or (..., {n}, k) for {name} of"
                f" shape {matrices.shape}"
            )
        self.own = tuple(matrices.shape[:-2])
        self.lead = common_batch(call, **{name: matrices, "b": columns})
        self.count = columns.shape[-1]
        self.empty = 0 in (*self.lead, n, self.count)
        self.dtype = right.dtype

    @property
    def answer(self) -> tuple[int, ...]:
        """Of the array that solutions lie in, column by column."""
        return (*self.lead, *(() if self.flat else (self.count,)), self.n)

    def zeros(self, call: Call) -> Array:
        """The answer where there is nothing to solve, or right-hand sides are zero."""
        return self.seen(call.cp.zeros(self.answer, self.dtype))

    def seen(self, columns: Array) -> Array:
        """Column-major solutions as the caller has them."""
        return columns if self.flat else columns.swapaxes(-1, -2)


class _System:
    """Right-hand sides of a recipe, and how they become an answer.

    Systems of a few rows or right-hand sides are solved by substitution. Others take as many right-hand
    sides as rows at a time, upper triangles from the last row to the first. cuBLAS solves in place of the
    answer, matrix by matrix.

    Args:
        recipe: of the call; ``b`` are the right-hand sides.
        call: which call.
        shape: of the answer.
        looked_at: whether pivots are looked at that libraries take for zero.
        turned: whether ``b`` has the right-hand sides in its rows.
    """

    def __init__(
        self, recipe: Recipe, call: Call, shape: _Shape, *, looked_at: bool = False, turned: bool = False
    ) -> None:
        self._recipe, self._shape = recipe, shape
        self._large = route(call, "trsm", shape.n).kernel == CUBLAS
        self._looked_at, self._told = looked_at, False
        given = recipe.given("b")
        if shape.flat:
            given = given.seen(lambda one: one[:, None])
        right = given.turned if turned else given
        self._columns = right.wide(shape.lead)  # (..., n, k)
        self._order: Matrices | None = None
        self._written: Matrices | None = None
        self._room: tuple[Matrices, Matrices, Matrices] | None = None

    def by_lu(self, factors: Matrices, pivots: Matrices) -> None:
        """Solve by LU factors (..., n, n) and their pivots from 0, (..., n)."""
        n = self._shape.n
        flat = pivots.seen(lambda one: one.reshape(-1, n))
        order = self._recipe.exchanges(flat, n, n)
        own = (*self._shape.own, n)
        self._order = order.seen(lambda one: one.reshape(own))
        self.solve(factors, lower=True, unit=True)
        self.solve(factors, lower=False)

    def solve(self, triangles: Matrices, *, lower: bool, unit: bool = False, tell: bool = False) -> None:
        """Put solutions in the place of the right-hand sides.

        Args:
            triangles: (..., n, n).
            lower: the triangle that is read.
            unit: take the diagonal as ones.
            tell: make the diagonals a result of the call, whatever the kernel.
        """
        if tell or (self._looked_at and self._large and not unit and not self._told):
            self._tell(triangles)
        if self._large:
            self._large_solve(triangles, lower=lower, unit=unit)
            return
        recipe, n, k, lead = self._recipe, self._shape.n, self._shape.count, self._shape.lead
        columns = self._columns
        if n <= SMALL or k <= max(FEW, n // 4):
            self._written = self._written or self._answer()
            wide = triangles.wide(lead)
            recipe.substitute(wide, columns, self._written, self._order, lower=lower, unit=unit)
            self._columns, self._order = self._written.turned, None
            return
        if not lower:
            triangles = triangles.seen(lambda one: one[..., ::-1, ::-1])
            columns = columns.seen(lambda one: one[..., ::-1, :])
        parts = -(-k // n)
        batch = math.prod(lead) * parts
        whole = lower and k == parts * n  # solutions lie as the answer has them
        squares = self._answer() if whole else recipe.array("squares", *lead, parts * n, n)
        recipe.move(columns.turned, squares, order=self._order)
        self._order, self._written = None, squares if whole else None
        factors = recipe.array("triangles", *lead, parts, n, n)
        one = triangles.turned.wide(lead).seen(
            lambda one: np.broadcast_to(one[..., None, :, :], factors.shape)
        )
        recipe.move(one, factors, part="UPPER", unit=unit)
        recipe.kernel("trsm-batched", n, batch, {"L": factors.buffer, "B": squares.buffer})
        solved = squares.seen(lambda one: one[..., :k, :]).turned
        self._columns = solved if lower else solved.seen(lambda one: one[..., ::-1, :])

    def finished(self) -> Finish:
        """Write the answer, and say what becomes of the arrays of a run."""
        shape, recipe = self._shape, self._recipe
        if self._written is None:
            recipe.move(self._columns.turned, self._answer())
        answer = recipe.results.index("answer")
        looked_at = self._large and self._looked_at
        pivots = recipe.results.index("pivots") if looked_at and self._told else -1

        def finish(made: Sequence[Array], check: bool) -> Array:
            if check and pivots >= 0:
                _refuse_denormal(on_host(made[pivots]), shape.n)
            return shape.seen(made[answer])

        return finish

    def _answer(self) -> Matrices:
        answer = self._recipe.array("answer", *self._shape.answer, out=True)
        return answer.seen(lambda one: one[..., None, :]) if self._shape.flat else answer

    def _tell(self, triangles: Matrices) -> None:
        """Make diagonals a result of the call."""
        told = self._recipe.array("pivots", *triangles.lead, triangles.shape[-1], out=True)
        diagonals = triangles.seen(lambda one: one.diagonal(0, -2, -1)[..., None, :])
        self._recipe.move(diagonals, told.seen(lambda one: one[..., None, :]))
        self._told = True

    def _scales(self) -> tuple[Matrices, Matrices, Matrices]:
        """Room for the diagonal of a triangle, its scales, and the scaled triangle: one after another."""
        if self._room is None:
            recipe, n = self._recipe, self._shape.n
            self._room = (
                recipe.array("diagonal", 1, n),
                recipe.array("roots", n),
                recipe.array("scaled", 1, n, n),
            )
        return self._room

    def _large_solve(self, triangles: Matrices, *, lower: bool, unit: bool) -> None:
        recipe, n, k = self._recipe, self._shape.n, self._shape.count
        if self._written is None:
            self._written = self._answer()
            recipe.move(self._columns.turned, self._written, order=self._order)
        answer, wide = self._written, triangles.wide(self._shape.lead)
        for number, at in enumerate(np.ndindex(*self._shape.lead)):
            one = wide.at(at)
            right = ("b", Operand(answer.buffer, number * k * n, n))
            scales = None
            if not unit:
                # cuBLAS inverts blocks, which overflows where pivots are denormal. Scaled by the roots of
                # pivots on both sides, pivots are near 1, and no inverse overflows, whether rows or columns
                # are small.
                diagonal, scales, scaled = self._scales()
                recipe.move(one.seen(lambda a: a.diagonal()[None, :]), diagonal)
                recipe.roots(diagonal, scales, 0)
                part = "UPPER" if lower else "LOWER"
                recipe.move(one.turned, scaled, part=part, scales=(scales, True, True))
                one = scaled.seen(lambda a: a[0]).turned
                recipe.scale(answer, scales, number)
            letter, matrix = recipe.operand("a", one)
            fill: Fill = "lower" if lower != matrix.transposed else "upper"
            operands = ((letter, matrix), right)
            recipe.library(LibraryCall("trsm", recipe.dtype, operands, m=n, n=k, fill=fill, unit=unit))
            if scales is not None:
                recipe.scale(answer, scales, number)


def _refuse_denormal(pivots: NDArray[Any], n: int) -> None:
    """Refuse pivots of float32 that cuBLAS takes for zero, of matrices one after another.

    Raises:
        np.linalg.LinAlgError: one is denormal.
    """
    sizes = np.abs(pivots).reshape(-1)
    least = np.finfo(sizes.dtype).smallest_normal
    tiny = np.flatnonzero((sizes > 0) & (sizes < least))
    if sizes.dtype == np.float32 and tiny.size:
        raise np.linalg.LinAlgError(
            f"pivot {tiny[0] % n + 1} is {sizes[tiny[0]]:.3g}, below the least normal float32 number"
            f" ({least:.3g}), which is taken for zero on the GPU: scale rows or columns, or solve in float64"
        )
