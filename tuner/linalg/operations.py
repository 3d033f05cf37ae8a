"""Arguments, options and results of calls, and the kernel that does an operation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.application import apply, functions
from tuner.application.functions import Call
from tuner.application.keys import ALIGNED, Array

DTYPES = ("float32", "float64")
MATRIX_AXES = 2  # axes


@contextmanager
def called(
    name: str,
    also: Mapping[str, Any] = MappingProxyType({}),
    /,
    **given: Any,  # noqa: ANN401 - whatever callers have
) -> Iterator[tuple[Any, ...]]:
    """The call and its arguments as CuPy arrays; their GPU and the stream of the call are current meanwhile.

    Args:
        name: of the function.
        also: arguments of other types, by name; they come last.
        given: matrices by name.

    Raises:
        InputError: an argument is no array on a GPU, is of another type than float32 and float64, or is of
            another type or on another GPU than the first; or a current stream is being captured.
        DeviceUnavailableError: there is no driver, or no CuPy.
        DeviceError: the GPU has no room for copies and results.
    """
    with functions.called(f"tuner.linalg.{name}", {**given, **also}) as (call, lent):
        matrices = dict(zip(given, lent, strict=False))
        first, one = next(iter({**given, **also})), lent[0]
        for key, other in matrices.items():
            if other.dtype not in DTYPES:
                raise call.wrong(f"{key} has dtype {other.dtype}; it must be float32 or float64")
        for key, other in matrices.items():
            if other.dtype != one.dtype:
                raise call.wrong(f"{key} has dtype {other.dtype}; it must be {one.dtype} as {first} is")
        yield (call, *(other.array for other in lent))


def check_matrices(call: Call, name: str, array: Array, *, square: bool = False) -> None:
    """Refuse what are no matrices.

    Raises:
        InputError: the array has fewer than two axes, or they differ where they must not.
    """
    wanted = "(..., n, n)" if square else "(..., m, n)"
    if array.ndim < MATRIX_AXES or (square and array.shape[-1] != array.shape[-2]):
        raise call.wrong(f"{name} has shape {array.shape}; it must be {wanted}")


def common_batch(call: Call, **arrays: Array) -> tuple[int, ...]:
    """The axes before the matrices, of all arrays together.

    Raises:
        InputError: they cannot be broadcast.
    """
    shapes = {name: tuple(array.shape[:-2]) for name, array in arrays.items()}
    try:
        return tuple(np.broadcast_shapes(*shapes.values()))
    except ValueError as error:
        words = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise call.wrong(f"the axes before the matrices do not go together: {words}") from error


def column_major(call: Call, matrices: Array, order: int | None) -> Array:
    """A copy of (..., m, n) for kernels: (batch, n, m), or filled up with zeros to (batch, order, order)."""
    return row_major(call, matrices.swapaxes(-1, -2), order)


def row_major(call: Call, matrices: Array, order: int | None = None) -> Array:
    """A copy as ``column_major`` makes one, of the transposed matrices: of shape (batch, m, n)."""
    *lead, m, n = matrices.shape
    rows, columns = (m, n) if order is None else (order, order)
    made = call.cp.empty((math.prod(lead), rows, columns), matrices.dtype)
    if (rows, columns) != (m, n):
        made.fill(0)
    made.reshape(*lead, rows, columns)[..., :m, :n] = matrices
    return made


def as_matrices(columns: Array, lead: Sequence[int]) -> Array:
    """Column-major arrays as the matrices they are, (..., rows, columns): a view, or a copy of a part."""
    return compact(columns).reshape(*lead, *columns.shape[1:]).swapaxes(-1, -2)


def compact(array: Array) -> Array:
    """The array itself where it is C-contiguous, else a copy, which does not hold on to what it is a part of.

    PyTorch takes no arrays with negative strides.
    """
    return array if array.flags.c_contiguous else array.copy()


def set_diagonal(matrices: Array, values: Any) -> None:  # noqa: ANN401 - an array or a number
    """Put values onto the diagonals of contiguous square matrices, (batch, n, n)."""
    batch, n, _ = matrices.shape
    matrices.reshape(batch, n * n)[:, :: n + 1] = values


# --- Options of calls: factors, flags and transposes.

_TRANSPOSED: dict[Any, bool] = {0: False, 1: True, 2: True, "N": False, "T": True, "C": True}


def factor(call: Call, name: str, value: Any, dtype: Any) -> Any:  # noqa: ANN401 - a number, NumPy's types
    """A number in the type of the matrices, as BLAS takes it.

    Raises:
        InputError: it is no real number.
    """
    if not isinstance(value, Real):
        raise call.wrong(f"{name} is {value!r}; it must be a real number")
    return dtype.type(value)


def is_number(value: Any, number: int) -> bool:  # noqa: ANN401 - whatever callers have
    """Return True if an option is this real number."""
    plain = value.__class__ is float or value.__class__ is int  # asking an abstract class takes longer
    return (plain or isinstance(value, Real)) and bool(value == number)


def transposed(call: Call, name: str, value: Any) -> bool:  # noqa: ANN401 - whatever callers have
    """Return True if an option transposes a matrix; the conjugate transpose is the same for real matrices.

    Raises:
        InputError: the option is none of SciPy's.
    """
    if isinstance(value, (str, int, np.bool_, np.integer)) and value in _TRANSPOSED:
        return _TRANSPOSED[value]
    raise call.wrong(f"{name} is {value!r}; it must be 0 or 'N', or 1, 2, 'T' or 'C'")


# --- Which kernel of the catalogue does an operation, by the order of the matrices.

CUBLAS = "cuBLAS"
_ANY = 2**31 - 1  # of BLAS, whose numbers are int


@dataclass(frozen=True)
class Route:
    """A kernel, and the largest order that it takes.

    Attributes:
        kernel: in the catalogue, or ``CUBLAS``; it takes the arrays that the other kernels of the operation
            take.
        most: the largest order.
        batched: whether it takes a batch; else matrices are given one after another.
    """

    kernel: str
    most: int
    batched: bool = True


ROUTES: dict[str, tuple[Route, ...]] = {  # the first that takes the order
    "potrf": (Route("potrf-batched", 128), Route("potrf", 32768, batched=False)),
    "getrf": (Route("getrf-batched", 128), Route("getrf", 32768, batched=False)),
    "geqrf": (Route("geqrf-batched", 128), Route("geqrf", 32768, batched=False)),
    "trsm": (Route("trsm-batched", 128), Route(CUBLAS, _ANY, batched=False)),
    "gemm": (Route("gemm-batched", 128), Route(CUBLAS, _ANY, batched=False)),
}


def route(call: Call, operation: str, order: int) -> Route:
    """The kernel for an order.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    result = next((one for one in ROUTES[operation] if order <= one.most), None)
    if result is None:
        most = max(one.most for one in ROUTES[operation])
        raise call.wrong(
            f"matrices of {order} rows or columns are too large; the kernels of {operation} take up"
            f" to {most} (cupy.linalg has others)"
        )
    return result


def is_batched(operation: str, order: int) -> bool:
    """Return True if a kernel for batches takes an order."""
    return any(one.batched and order <= one.most for one in ROUTES[operation])


def run(call: Call, operation: str, *arrays: Array) -> Any:  # noqa: ANN401 - arrays
    """Run an operation of the catalogue on arrays of shape (batch, order, order); see ``tuner.apply``.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    found = route(call, operation, int(arrays[0].shape[-1]))
    if found.batched:
        return apply(found.kernel, *arrays)
    (matrices,) = arrays
    made = [_one(found.kernel, matrices[number]) for number in range(len(matrices))]
    return (matrices, *(_stacked(call, ones) for ones in zip(*made, strict=True)))


def _one(kernel: str, matrix: Array) -> tuple[Array, ...]:
    """Factor one matrix in place, and return what else the kernel makes."""
    whole = matrix.copy() if matrix.data.ptr & ALIGNED else matrix  # one behind another of odd order
    _, *others = apply(kernel, whole)
    if whole is not matrix:
        matrix[...] = whole
    return tuple(others)


def _stacked(call: Call, arrays: Sequence[Array]) -> Array:
    """Arrays of one shape as one, (batch, ...)."""
    made = call.cp.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    for number, array in enumerate(arrays):
        made[number] = array
    return made
