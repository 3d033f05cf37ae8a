"""A caller's arrays and streams: kernels take them as they are, or not at all."""

from types import ModuleType
from typing import Any, TypeAlias

from tuner.errors import InputError

Array: TypeAlias = Any
"""``cupy.ndarray``, which has no type information."""

Stream: TypeAlias = Any
"""``cupy.cuda.Stream``, which has none either."""

_ALIGNMENT = 16  # kernels load 16 bytes at a time


def check_array(cp: ModuleType, kernel: str, name: str, array: Array, first: Array) -> None:
    """Refuse what a kernel cannot be handed as it is.

    Raises:
        InputError: the message names the array and what would be right.
    """
    if not isinstance(array, cp.ndarray):
        kind = type(array)
        raise InputError(
            f"{kernel}: {name} is a {kind.__module__}.{kind.__qualname__}; it must be a CuPy array"
            " (cupy.asarray copies one to the GPU)"
        )
    here, there = array.data.device_id, first.data.device_id
    if here != there:
        raise InputError(
            f"{kernel}: {name} is on GPU {here}; it must be on GPU {there} as the first array is"
        )
    if not array.flags.c_contiguous:
        raise InputError(
            f"{kernel}: {name} is not contiguous (strides {array.strides} of shape {array.shape});"
            " cupy.ascontiguousarray copies it to one that is"
        )
    beyond = array.data.ptr % _ALIGNMENT
    if beyond:
        raise InputError(
            f"{kernel}: {name} begins {beyond} bytes past a multiple of {_ALIGNMENT}; its copy() does not"
        )


def overlap(one: Array, other: Array) -> bool:
    """True when two contiguous arrays share memory."""
    begin, other_begin = one.data.ptr, other.data.ptr
    return bool(begin < other_begin + other.nbytes and other_begin < begin + one.nbytes)


def checked_stream(stream: Stream, device: int) -> Stream:
    """The stream, when it is one of CuPy's on this GPU.

    Raises:
        InputError: it is not.
    """
    if not hasattr(stream, "ptr") or not hasattr(stream, "__enter__"):
        kind = type(stream)
        raise InputError(f"stream is a {kind.__module__}.{kind.__qualname__}; it must be a cupy.cuda.Stream")
    on = getattr(stream, "device_id", -1)
    if on not in (-1, device):
        raise InputError(f"stream is on GPU {on}; the arrays are on GPU {device}")
    return stream
