"""Headers of NumPy's files, which say how much memory an array will take."""

import io
import math
import tokenize
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy

_HEADER_BYTES = 2**16
_NO_HEADER = (
    *(ValueError, EOFError, io.UnsupportedOperation),
    *(SyntaxError, TypeError, tokenize.TokenError, MemoryError, RecursionError),  # of NumPy's parser
)


class _Beginning(io.RawIOBase):
    """The beginning of a file: a header that claims to be longer is not read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes; a ValueError where there would be more than a header has."""
        if size < 0 or self.count + size > _HEADER_BYTES:
            raise ValueError(f"its header has more than {_HEADER_BYTES // 2**10} KiB")
        found = self._file.read(size)
        self.count += len(found)
        return found


def array_header(file: BinaryIO, size: int) -> tuple[tuple[int, ...], bool, "np.dtype[Any]"]:
    """Shape, order (true for that of Fortran) and element type of a ``.npy`` file.

    Args:
        file: at its beginning; the header is read from it.
        size: bytes of the file.

    Raises:
        ValueError: it has no such header, or fewer bytes than the header says; the message says which.
    """
    beginning = _Beginning(file)
    try:
        version = npy.read_magic(cast("BinaryIO", beginning))
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(cast("BinaryIO", beginning))
    except _NO_HEADER as e:
        raise ValueError(f"not an array of NumPy: {str(e) or 'its header cannot be parsed'}") from e
    if any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"not an array of NumPy: its shape is {shape}")
    if dtype.hasobject:
        raise ValueError("holds pickled Python objects, which are never read; save an array of numbers")
    if dtype.itemsize == 0:
        raise ValueError(f"its elements are {dtype.str}, which have no bytes; save an array of numbers")
    expected = beginning.count + dtype.itemsize * math.prod(shape)
    if size < expected:
        raise ValueError(f"is truncated: {size} bytes, and its header asks for {expected}")
    return shape, fortran, dtype
