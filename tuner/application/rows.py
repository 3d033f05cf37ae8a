"""Arrays whose rows lie apart: what can be taken, and where two of them share memory."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

Array: TypeAlias = Any
"""``cupy.ndarray``, which has no type information."""


def only_rows_apart(shape: Sequence[int], strides: Sequence[int], unit: int = 1) -> bool:
    """True when elements of a row follow each other and rows do not: as in ``x[:, :N]`` or ``x[::2]``.

    Args:
        shape: of an array that is not contiguous.
        strides: from one element to the next along each axis.
        unit: stride of neighbours: 1 where strides count elements, the bytes of one where they count bytes.
    """
    step = unit
    for extent, stride in zip(reversed(shape[1:]), reversed(strides[1:]), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return len(shape) > 1 and strides[0] >= 0 and strides[0] % unit == 0


def row_pitch(array: Array) -> int | None:
    """Elements from one row to the next; None for a contiguous array, where its shape tells."""
    return None if array.flags.c_contiguous else int(array.strides[0]) // int(array.itemsize)


def overlap(one: Array, other: Array) -> bool:
    """True when two arrays share memory; rows of one may lie between those of the other.

    Rows of two pitches count as overlapping where their ranges of memory do.
    """
    begin, other_begin = one.data.ptr, other.data.ptr
    if begin + _extent_bytes(one) <= other_begin or other_begin + _extent_bytes(other) <= begin:
        return False
    pitch = one.strides[0] if one.ndim > 1 else 0
    if other.ndim == 1 or pitch != other.strides[0] or pitch == 0:
        return True
    distance = (other_begin - begin) % pitch
    return bool(distance < _row_bytes(one) or distance + _row_bytes(other) > pitch)


def _row_bytes(array: Array) -> int:
    return int(math.prod(array.shape[1:]) * array.itemsize)


def _extent_bytes(array: Array) -> int:
    """Bytes from its beginning to the end of its last row."""
    if array.flags.c_contiguous:
        return int(array.nbytes)
    return int((array.shape[0] - 1) * array.strides[0]) + _row_bytes(array)
