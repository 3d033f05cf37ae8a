"""Products of matrices, by kernels of the catalogue and by cuBLAS."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from tuner.application.keys import ALIGNED
from tuner.devices.cuda.code import WORKSPACE_BYTES, GpuLibraries, workspace_name
from tuner.linalg.operations import (
    CUBLAS,
    Array,
    Call,
    called,
    check_matrices,
    common_batch,
    factor,
    route,
    row_major,
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
    """cuBLAS on the current GPU.

    Args:
        call: for which call.
    """

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
    given = {"a": a, "b": b} | ({} if c is None else {"c": c})
    with called("gemm", **given) as (call, *arrays):
        for name, array in zip(given, arrays, strict=True):
            check_matrices(call, name, array)
        first, second, *addends = arrays
        added = addends[0] if addends else None
        scale = factor(call, "alpha", alpha, first.dtype)
        added_scale = factor(call, "beta", beta, first.dtype)
        left = first.swapaxes(-1, -2) if transposed(call, "trans_a", trans_a) else first
        right = second.swapaxes(-1, -2) if transposed(call, "trans_b", trans_b) else second
        (m, k), n = left.shape[-2:], right.shape[-1]
        if right.shape[-2] != k:
            raise call.wrong(f"op(a) has {k} columns and op(b) has {right.shape[-2]} rows; they must agree")
        if added is not None and added.shape[-2:] != (m, n):
            raise call.wrong(f"c has shape {added.shape}; it must be (..., {m}, {n})")
        if added is None and beta != 0:
            raise call.wrong(f"beta is {beta:g} and there is no c")
        shaped = {"a": left, "b": right} | ({} if added is None else {"c": added})
        lead = common_batch(call, **shaped)
        made = _scaled(call, left, right, lead, scale)
        if added_scale:
            made += added * added_scale
        return call.returned(made)


def _scaled(call: Call, left: Array, right: Array, lead: tuple[int, ...], scale: Any) -> Array:  # noqa: ANN401 - a number
    """A new array, (*lead, m, n); nothing is read where the factor is 0."""
    (m, k), n = left.shape[-2:], right.shape[-1]
    shape = (*lead, m, n)
    if not scale or 0 in shape or not k:
        return call.cp.zeros(shape, left.dtype)
    if route(call, "gemm", max(m, k, n)).kernel == CUBLAS:
        return _large_product(call, left, right, lead, float(scale))
    made = _product(call, left, right, lead)
    if scale != 1:
        made *= scale
    return made


def _large_product(call: Call, left: Array, right: Array, lead: tuple[int, ...], scale: float) -> Array:
    """A new array, (*lead, m, n), matrix by matrix."""
    cp, blas = call.cp, Blas(call)
    made = cp.empty((*lead, left.shape[-2], right.shape[-1]), left.dtype)
    both = [cp.broadcast_to(one, (*lead, *one.shape[-2:])) for one in (left, right)]
    for at in np.ndindex(*lead):
        blas.multiply(both[0][at], both[1][at], made[at], alpha=scale)
    return made


def _product(call: Call, left: Array, right: Array, lead: tuple[int, ...]) -> Array:
    """A new array, (*lead, m, n), of matrices that are not empty."""
    (m, k), n = left.shape[-2:], right.shape[-1]
    shape, order = (*lead, m, n), max(m, k, n)
    both = (_square(call, one, lead, order) for one in (left, right))
    product = squares(call, *both).reshape(*lead, order, order)
    return product if product.shape == shape else product[..., :m, :n].copy()


def squares(call: Call, left: Array, right: Array) -> Array:
    """Products of row-major square matrices, (batch, n, n)."""
    return run(call, "gemm", right, left)  # to the kernel all are transposed


def _square(call: Call, matrices: Array, lead: tuple[int, ...], order: int) -> Array:
    """Row-major squares; the array itself where it is that already."""
    as_it_is = (
        matrices.shape == (*lead, order, order)
        and matrices.flags.c_contiguous
        and not matrices.data.ptr & ALIGNED
    )
    return matrices.reshape(-1, order, order) if as_it_is else row_major(call, matrices, lead, order)
