"""Packed files and NumPy headers whose size in memory is known to be bounded before they are read."""

import io
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy

from tuner.system.untrusted.reading import (
    ARCHIVE_BYTES,
    ARCHIVE_MEMBERS,
    ARCHIVE_RATIO,
    ARCHIVE_RATIO_FROM,
    read_bytes,
    shown_bytes,
)

_END = struct.Struct("<4s4H2LH")  # of the central directory
_END_SIGNATURE = b"PK\x05\x06"
_END_64_SIGNATURE = b"PK\x06\x07"
_LONGEST_COMMENT = 2**16
_BYTES_PER_MEMBER = 512  # of the directory; names of workloads are shorter


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip whose members may be read whole; it is read into memory, so that it cannot change.

    Raises:
        OSError: it cannot be read.
        zipfile.BadZipFile: it is none.
        ValueError: it is beyond a limit, which the message names.
    """
    data = read_bytes(path, ARCHIVE_BYTES)
    check_directory(data[-_END.size - _LONGEST_COMMENT :])
    archive = zipfile.ZipFile(io.BytesIO(data))
    inflated = sum(member.file_size for member in archive.infolist())  # `member_of` reads no more
    check_inflated(inflated, len(data), ARCHIVE_BYTES)
    return archive


def member_of(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member, as long as the directory says; the packed bytes may be of more.

    Raises:
        KeyError: there is none.
        OSError, zipfile.BadZipFile, zlib.error: it is damaged.
    """
    size = archive.getinfo(name).file_size
    with archive.open(name) as stream:
        content = stream.read(size)  # without a count, all is inflated before it is cut
        stream.read(1)  # the end, where the sum is checked
    return content


def check_directory(end: bytes) -> None:
    """Look at the end of a zip before its directory is read, which takes memory for every member.

    Args:
        end: the last bytes of the file.

    Raises:
        ValueError: there are too many members.
    """
    at = len(end) - _END.size
    if end[at : at + 4] != _END_SIGNATURE or end[-2:] != b"\0\0":
        at = end.rfind(_END_SIGNATURE)
    if at < 0 or at + _END.size > len(end):
        return  # no zip, which its reader will say
    *_, size, _, _ = _END.unpack_from(end, at)
    if size > ARCHIVE_MEMBERS * _BYTES_PER_MEMBER or _END_64_SIGNATURE in end[max(0, at - 20) : at]:
        raise ValueError(f"has more than {ARCHIVE_MEMBERS:,} members, or is of more than 4 GiB")


def check_inflated(inflated: int, packed: int, most: int, ratio: int = ARCHIVE_RATIO) -> None:
    """Refuse what takes much more memory than disk.

    Raises:
        ValueError: it does; the message names the limit.
    """
    if inflated > most:
        raise ValueError(f"takes {inflated:,} bytes unpacked; at most {shown_bytes(most)} are read")
    if inflated > ARCHIVE_RATIO_FROM and inflated > ratio * max(1, packed):
        raise ValueError(
            f"takes {inflated:,} bytes unpacked, {inflated // max(1, packed)} times its own;"
            f" at most {ratio} times is read, and real files have less than 20"
        )


def gunzip(packed: bytes) -> bytes:
    """Return the contents of a gzip file, of one or more members.

    Raises:
        ValueError: it is beyond a limit, damaged or cut off.
    """
    own = len(packed)
    most = min(ARCHIVE_BYTES, max(ARCHIVE_RATIO_FROM, ARCHIVE_RATIO * own))
    parts: list[bytes] = []
    size = 0
    while packed:
        inflater = zlib.decompressobj(wbits=31)
        try:
            parts.append(inflater.decompress(packed, most + 1 - size))
        except zlib.error as error:
            raise ValueError(f"cannot be unpacked: {error}") from error
        size += len(parts[-1])
        if size > most:
            check_inflated(size, own, ARCHIVE_BYTES)
        if not inflater.eof:
            raise ValueError("cannot be unpacked: it is cut off")
        packed = inflater.unused_data.lstrip(b"\0")
    return b"".join(parts)


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
        content = self._file.read(size)
        self.count += len(content)
        return content


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
