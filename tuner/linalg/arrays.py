"""Arguments and results of calls: matrices of the caller, and the arrays that kernels work on.

Kernels take matrices that are column-major: element (i, j) of matrix b is ``array[b, j, i]``.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from tuner.application.arrays import borrowed_call
from tuner.application.capture import ALLOCATES
from tuner.devices.cuda import probe
from tuner.model.errors import InputError

Array: TypeAlias = Any
"""``cupy.ndarray``, which has no type information."""

DTYPES = ("float32", "float64")
MATRIX_AXES = 2  # axes


@dataclass(frozen=True)
class Call:
    """A call on the GPU of its arrays.

    Attributes:
        name: what messages begin with, e.g. ``tuner.linalg.qr``.
        cp: CuPy.
        returned: makes an array of CuPy, made in this call, one of the caller's library.
    """

    name: str
    cp: ModuleType
    returned: Callable[[Array], Any]

    def wrong(self, what: str) -> InputError:
        """An error of this call."""
        return InputError(f"{self.name}: {what}")


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
    label = f"tuner.linalg.{name}"
    cp = probe.import_cupy(label)
    arrays = [(key, value, False) for key, value in {**given, **also}.items()]
    borrowed = borrowed_call(cp, label, arrays, (), None, refused=ALLOCATES)
    with borrowed.computing() as returned:
        call = Call(label, cp, returned)
        lent = dict(zip((*given, *also), borrowed.arrays, strict=True))
        (first, one), *_ = lent.items()
        for key, other in lent.items():
            if key in given and other.dtype not in DTYPES:
                raise call.wrong(f"{key} has dtype {other.dtype}; it must be float32 or float64")
        for key, other in lent.items():
            if key in given and other.dtype != one.dtype:
                raise call.wrong(f"{key} has dtype {other.dtype}; it must be {one.dtype} as {first} is")
            here, there = one.array.data.device_id, other.array.data.device_id
            if here != there:
                raise call.wrong(f"{key} is on GPU {there}; it must be on GPU {here} as {first} is")
        yield (call, *(other.array for other in lent.values()))


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


def column_major(
    call: Call, matrices: Array, lead: Sequence[int] | None = None, order: int | None = None
) -> Array:
    """A copy for kernels.

    Args:
        call: which call.
        matrices: of shape (..., m, n).
        lead: axes to broadcast to; those of the matrices if not given.
        order: rows and columns of the copy, beyond the matrices' own filled with zeros.

    Returns:
        Of shape (batch, n, m), or (batch, order, order).
    """
    return row_major(call, matrices.swapaxes(-1, -2), lead, order)


def row_major(
    call: Call, matrices: Array, lead: Sequence[int] | None = None, order: int | None = None
) -> Array:
    """A copy as ``column_major`` makes one, of the transposed matrices: of shape (batch, m, n)."""
    lead = tuple(matrices.shape[:-2] if lead is None else lead)
    m, n = matrices.shape[-2:]
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


def place(index: int, lead: Sequence[int]) -> str:
    """A matrix of a batch for messages, e.g. ``matrix (3, 1): ``; nothing where there is only one."""
    if not lead:
        return ""
    at = tuple(int(one) for one in np.unravel_index(index, tuple(lead)))
    return f"matrix {at[0] if len(at) == 1 else at}: "
