"""Arguments and results of calls: matrices of the caller, and the arrays that kernels work on.

Kernels take matrices that are column-major: element (i, j) of matrix b is ``array[b, j, i]``.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from tuner.devices.cuda import probe
from tuner.errors import DeviceError, InputError

Array: TypeAlias = Any
"""``cupy.ndarray``, which has no type information."""

DTYPES = ("float32", "float64")
MATRIX_AXES = 2  # axes
_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


@dataclass(frozen=True)
class Call:
    """A call on the GPU of its arrays.

    Attributes:
        name: what messages begin with, e.g. ``tuner.linalg.qr``.
        cp: CuPy.
    """

    name: str
    cp: ModuleType

    def wrong(self, what: str) -> InputError:
        """An error of this call."""
        return InputError(f"{self.name}: {what}")


@contextmanager
def called(name: str, **given: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - whatever callers have
    """The call and its arguments as CuPy arrays; their GPU is current meanwhile.

    Args:
        name: of the function.
        given: arguments by name.

    Raises:
        InputError: an argument is no array on a GPU, is of another type than float32 and float64, or is of
            another type or on another GPU than the first.
        DeviceUnavailableError: there is no driver, or no CuPy.
        DeviceError: the GPU has no room for copies and results.
    """
    label = f"tuner.linalg.{name}"
    call = Call(label, probe.import_cupy(label))
    arrays = {key: on_gpu(call, key, value) for key, value in given.items()}
    first, *others = arrays.items()
    for key, array in arrays.items():
        if array.dtype.name not in DTYPES:
            raise call.wrong(f"{key} has dtype {array.dtype}; it must be float32 or float64")
    for key, array in others:
        if array.dtype != first[1].dtype:
            raise call.wrong(f"{key} has dtype {array.dtype}; it must be {first[1].dtype} as {first[0]} is")
        check_same_gpu(call, first, (key, array))
    try:
        with call.cp.cuda.Device(int(first[1].data.device_id)):
            yield (call, *arrays.values())
    except call.cp.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(f"{label}: copies and results do not fit on the GPU: {error}") from error


def on_gpu(call: Call, name: str, value: Any) -> Array:  # noqa: ANN401 - whatever callers have
    """An argument as a CuPy array of the same memory.

    Raises:
        InputError: it is no array on a GPU, or does not give its memory away.
    """
    try:
        array = _shared(call.cp, value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:  # of PyTorch: a gradient is required
        raise call.wrong(f"{name} cannot be read as an array on the GPU: {error}") from error
    if array is None:
        kind = type(value)
        raise call.wrong(
            f"{name} is a {kind.__module__}.{kind.__qualname__}; it must be an array on the GPU"
            " (cupy.asarray copies one to it)"
        )
    return array


def _shared(cp: ModuleType, value: Any) -> Array | None:  # noqa: ANN401 - whatever callers have
    if isinstance(value, cp.ndarray):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return cp.asarray(value)
    if hasattr(value, "__dlpack__") and value.__dlpack_device__()[0] in _ON_GPU:
        return cp.from_dlpack(value)
    return None


def check_same_gpu(call: Call, first: tuple[str, Array], other: tuple[str, Array]) -> None:
    """Refuse arrays of two GPUs, each with its name.

    Raises:
        InputError: the second is on another GPU than the first.
    """
    (name, array), (key, value) = first, other
    here, there = array.data.device_id, value.data.device_id
    if here != there:
        raise call.wrong(f"{key} is on GPU {there}; it must be on GPU {here} as {name} is")


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
