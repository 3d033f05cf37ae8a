"""Products of matrices, by kernels of the catalogue and by cuBLAS."""

import math
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from tuner.application.functions import Call
from tuner.application.keys import Array
from tuner.devices.cuda.code import WORKSPACE_BYTES, GpuLibraries, workspace_name
from tuner.linalg.composed import Finish, Matrices, Recipe, perform
from tuner.linalg.operations import (
    CUBLAS,
    called,
    check_matrices,
    common_batch,
    factor,
    is_number,
    route,
    run,
    transposed,
)
from tuner.model.plan import Fill, LibraryCall, Operand

# --- Products and triangular systems of matrices beyond the batched kernels, by cuBLAS.
#
# Matrices are arrays of two axes as the formulas have them, with any strides; row-major and column-major ones
# are read as they are, others are copied. Work is put into CuPy's current stream.


@cache
def _libraries(cp: ModuleType, device: int) -> GpuLibraries:
    del device  # which is current
    return GpuLibraries(cp)


class Blas:
    """cuBLAS on the current GPU."""

    def __init__(self, call: Call) -> None:
        self._cp = cp = call.cp
        self._libraries = _libraries(cp, int(cp.cuda.runtime.getDevice()))
        self._workspace = cp.empty(WORKSPACE_BYTES, "uint8")  # of the stream's pool, so that no other has it

    def multiply(self, a: Array, b: Array, c: Array, *, alpha: float = 1.0, beta: float = 0.0) -> None:
        """``c = alpha a b + beta c`` in place of c, which is row-major or column-major; 0 reads no c."""
        if _leading(c) is None:
            a, b, c = b.T, a.T, c.T
        (m, k), n = a.shape, b.shape[1]
        given = [self._operand(letter, one) for letter, one in (("a", a), ("b", b), ("c", c))]
        operands = tuple((letter, operand) for letter, operand, _ in given)
        call = LibraryCall("gemm", c.dtype.name, operands, m, n, k, alpha=alpha, beta=beta)
        self._put(call, {letter: array for letter, _, array in given})

    def solve(self, a: Array, b: Array, *, lower: bool, unit: bool = False) -> None:
        """Put x of ``a x = b`` in place of b, which is column-major; one triangle of a is read."""
        given = [self._operand(letter, one) for letter, one in (("a", a), ("b", b))]
        operands = tuple((letter, operand) for letter, operand, _ in given)
        stored_lower = lower != operands[0][1].transposed
        fill: Fill = "lower" if stored_lower else "upper"
        call = LibraryCall("trsm", b.dtype.name, operands, m=b.shape[0], n=b.shape[1], fill=fill, unit=unit)
        self._put(call, {letter: array for letter, _, array in given})

    def _put(self, call: LibraryCall, arrays: dict[str, Array]) -> None:
        self._libraries.bound(call, {**arrays, workspace_name(0): self._workspace}, 0).enqueue(None)

    def _operand(self, letter: str, matrix: Array) -> tuple[str, Operand, Array]:
        """A matrix as cuBLAS takes it: column-major, or the transpose of one that is."""
        for turned, array in ((False, matrix), (True, matrix.T)):
            leading = _leading(array)
            if leading is not None:
                return letter, Operand(letter, 0, leading, transposed=turned), array
        copy = self._cp.empty(matrix.shape, matrix.dtype)
        copy[...] = matrix
        return letter, Operand(letter, 0, matrix.shape[1], transposed=True), copy


def _leading(matrix: Array) -> int | None:
    """Elements from one column to the next of a matrix that is column-major; None of others."""
    rows, columns = matrix.shape
    down, across = matrix.strides
    if rows > 1 and down != matrix.itemsize:
        return None
    if columns == 1:
        return max(1, int(rows))
    leading, rest = divmod(int(across), matrix.itemsize)
    return None if rest or leading < max(1, rows) else leading


def gemm(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any | None = None,  # noqa: ANN401 - same
    trans_a: bool | int | str = False,
    trans_b: bool | int | str = False,
) -> Array:
    """``alpha op(a) op(b) + beta c``, as ``scipy.linalg.blas.dgemm`` has it.

    Where m, k and n are at most 128, square matrices of one order are not copied if they are C-contiguous;
    others are, and filled up with zeros to squares. Larger ones are multiplied by cuBLAS as they are.

    Args:
        a: (..., m, k), or (..., k, m) with ``trans_a``; float32 or float64. Leading axes of a, b and c are
            broadcast.
        b: (..., k, n), or (..., n, k) with ``trans_b``.
        alpha: a factor; 0 does not read a and b.
        beta: of ``c``; 0 does not read it.
        c: (..., m, n); it is not changed.
        trans_a: whether a is taken as its transpose; 0 or ``N``, 1, 2, ``T`` or ``C`` as BLAS has it.
        trans_b: likewise.

    Returns:
        (..., m, n).

    Raises:
        InputError: an argument cannot be used.
    """
    way = (trans_a, trans_b)
    if c is None and is_number(alpha, 1) and is_number(beta, 0):
        return perform("gemm", _gemm, {"a": a, "b": b}, *way)
    given = {"a": a, "b": b} | ({} if c is None else {"c": c})
    with called("gemm", **given) as (call, first, second, *addends):
        product = _Product(call, first, second, *way, *addends)
        scale = factor(call, "alpha", alpha, first.dtype)
        added_scale = factor(call, "beta", beta, first.dtype)
        if not addends and beta != 0:
            raise call.wrong(f"beta is {beta:g} and there is no c")
        made = call.cp.zeros(product.shape, first.dtype)
        if scale and made.size:
            made += scale * perform("gemm", _gemm, {"a": first, "b": second}, *way)
        if added_scale:
            made += addends[0] * added_scale
        return call.returned(made)


class _Product:
    """Shapes of a product.

    Args:
        call: which call.
        first: (..., m, k), or its transpose.
        second: (..., k, n), or its transpose.
        trans_a: whether the first is.
        trans_b: whether the second is.
        added: (..., m, n), if there is one.

    Raises:
        InputError: they do not go together.
    """

    def __init__(  # noqa: PLR0917 - those of gemm
        self,
        call: Call,
        first: Array,
        second: Array,
        trans_a: bool | int | str,
        trans_b: bool | int | str,
        added: Array | None = None,
    ) -> None:
        shown = {"a": first, "b": second} | ({} if added is None else {"c": added})
        for name, array in shown.items():
            check_matrices(call, name, array)
        self.turned = transposed(call, "trans_a", trans_a), transposed(call, "trans_b", trans_b)
        left, right = (
            array.swapaxes(-1, -2) if turned else array
            for array, turned in zip((first, second), self.turned, strict=True)
        )
        (m, k), n = left.shape[-2:], right.shape[-1]
        if right.shape[-2] != k:
            raise call.wrong(f"op(a) has {k} columns and op(b) has {right.shape[-2]} rows; they must agree")
        if added is not None and added.shape[-2:] != (m, n):
            raise call.wrong(f"c has shape {added.shape}; it must be (..., {m}, {n})")
        self.lead = common_batch(call, **shown)
        self.shape, self.inner = (*self.lead, m, n), k


def _gemm(
    call: Call, first: Array, second: Array, trans_a: bool | int | str, trans_b: bool | int | str
) -> tuple[Recipe, Finish] | Array:
    product = _Product(call, first, second, trans_a, trans_b)
    (*lead, m, n), k = product.shape, product.inner
    if 0 in product.shape or not k:
        return call.cp.zeros(product.shape, first.dtype)
    recipe = Recipe(call, {"a": first, "b": second})
    left, right = (
        recipe.given(name).turned.wide(lead) if turned else recipe.given(name).wide(lead)
        for name, turned in zip("ab", product.turned, strict=True)
    )
    order = max(m, k, n)
    made = recipe.array("product", *product.shape, out=True)
    if route(call, "gemm", order).kernel == CUBLAS:
        for at in np.ndindex(*lead):
            recipe.multiply(left.at(at), right.at(at), made.at(at))
        return recipe, only
    whole = made if m == n == order else recipe.array("squares", *lead, order, order)
    squares_of = [_square(recipe, one, order) for one in (left, right)]
    names = {"A": squares_of[1].buffer, "B": squares_of[0].buffer, "C": whole.buffer}
    recipe.kernel("gemm-batched", order, math.prod(lead), names)  # to the kernel all are transposed
    if whole is not made:
        recipe.move(whole.seen(lambda one: one[..., :m, :n]), made)
    return recipe, only


def only(made: Sequence[Array], check: bool) -> Array:
    """The only array of a run, as it is."""
    del check
    (one,) = made
    return one


def _square(recipe: Recipe, matrices: Matrices, order: int) -> Matrices:
    """Row-major squares; the array itself where it is that already."""
    if matrices.shape[-2:] == (order, order) and recipe.is_read(matrices):
        return matrices
    made = recipe.array("squares", *matrices.lead, order, order)
    recipe.move(matrices, made)
    return made


def squares(call: Call, left: Array, right: Array) -> Array:
    """Products of row-major square matrices, (batch, n, n)."""
    return run(call, "gemm", right, left)  # to the kernel all are transposed
