"""Arrays in files of NumPy: looked at when a kernel file is read, opened by who needs the values.

Pickled objects are never read. A file is known by the SHA-256 of its bytes, so that what is run is what was
looked at. Files may be larger than memory: headers are read by themselves, bytes are hashed in pieces, and a
``.npy`` file is mapped.
"""

import hashlib
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import InputError
from tuner.model.inputs import DataFile
from tuner.untrusted import arrays
from tuner.untrusted.archives import check_directory, check_inflated
from tuner.untrusted.limits import ARCHIVE_BYTES

_PIECE_BYTES = 2**22
_UNREADABLE = (OSError, EOFError, NotImplementedError, RuntimeError, zlib.error, lzma.LZMAError)
_END_BYTES = 2**17  # of a zip: where its directory is described
_RATIO = 200  # of a member of more than 64 MiB; arrays of zeros are packed more tightly
_hashes: dict[tuple[str, int, int], str] = {}  # of (path, time of the last change in ns, bytes)


@dataclass(frozen=True)
class ArrayHeader:
    """What the header of an array says.

    Attributes:
        dtype: NumPy dtype name.
        shape: elements per axis.
    """

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def file_sha256(path: str | Path) -> str:
    """Hex digest of a file's bytes; read again only when its time or size has changed.

    Raises:
        InputError: it cannot be read.
    """
    with _opened(Path(path)) as file:
        status = Path(path).stat()
        key = str(path), status.st_mtime_ns, status.st_size
        if key not in _hashes:
            digest = hashlib.sha256()
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
            _hashes[key] = digest.hexdigest()
        return _hashes[key]


def array_header(file: DataFile) -> ArrayHeader:
    """Element type and shape of an array, from its header.

    Raises:
        InputError: the file is missing, truncated, pickled, in the order of Fortran or no file of NumPy; or
            it has no such key. The message names file and key.
    """
    path = Path(file.path)
    with _opened(path) as opened:
        if path.suffix == ".npy" and not file.key:
            return _header(file, opened, path.stat().st_size)
        if path.suffix != ".npz":
            wanted = "has one array and no keys" if path.suffix == ".npy" else "is not of NumPy"
            raise InputError(f"{path} {wanted}; name a .npy file, or a .npz file and a key")
        try:
            _check_end(opened)
            with zipfile.ZipFile(opened) as archive:
                member = archive.getinfo(_member(file, archive))
                if member.file_size > ARCHIVE_BYTES:
                    check_inflated(member.file_size, member.compress_size, member.file_size, _RATIO)
                with archive.open(member) as inner:
                    return _header(file, cast("BinaryIO", inner), member.file_size)
        except zipfile.BadZipFile as e:
            raise InputError(f"{path}: not a .npz file of NumPy, or a truncated one: {e}") from e
        except _UNREADABLE as e:
            raise InputError(f"{file}: cannot be read: {e}") from e
        except InputError:
            raise
        except ValueError as e:
            raise InputError(f"{file}: {e}; save it as .npy, or by numpy.savez without compression") from e


def array_of(file: DataFile) -> NDArray[Any]:
    """The array; that of a ``.npy`` file is mapped, not read.

    Raises:
        InputError: it cannot be read, or the file is not the one that was looked at.
    """
    if file.sha256 and file_sha256(file.path) != file.sha256:
        raise InputError(f"{file.path}: has changed since the kernel file was read; start the run again")
    array_header(file)
    try:
        if file.key:
            with np.load(file.path, allow_pickle=False) as archive:
                return np.asarray(archive[file.key])
        return cast("NDArray[Any]", np.load(file.path, mmap_mode="r", allow_pickle=False))
    except (*_UNREADABLE, ValueError, TypeError, KeyError, zipfile.BadZipFile) as e:
        raise InputError(f"{file}: cannot be read: {e}") from e


def _member(file: DataFile, archive: zipfile.ZipFile) -> str:
    name = f"{file.key}.npy"
    if not file.key or name not in archive.namelist():
        keys = ", ".join(one.removesuffix(".npy") for one in archive.namelist()) or "none"
        wanted = f"has no array {file.key!r}" if file.key else "needs a key"
        raise InputError(f"{file.path}: {wanted}; its keys are {keys}")
    return name


def _header(file: DataFile, opened: BinaryIO, size: int) -> ArrayHeader:
    """The header at the beginning of what was opened, which has ``size`` bytes."""
    try:
        shape, fortran, dtype = arrays.array_header(opened, size)
    except ValueError as e:
        raise InputError(f"{file}: {e}") from e
    if fortran and len(shape) > 1:
        raise InputError(f"{file}: is in the order of Fortran; save numpy.ascontiguousarray(...) of it")
    if not dtype.isnative:
        raise InputError(
            f"{file}: its bytes are in the other order ({dtype.str}); save it in that of this machine"
        )
    return ArrayHeader(dtype.name, tuple(shape))


def _check_end(opened: BinaryIO) -> None:
    opened.seek(max(0, opened.seek(0, 2) - _END_BYTES))
    check_directory(opened.read(_END_BYTES))
    opened.seek(0)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        if path.exists() and not path.is_file():  # such as a pipe, which may never end
            raise InputError(f"{path}: is not a file")
        file = path.open("rb")
    except (OSError, ValueError) as e:
        raise InputError(f"{path}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
    with file:
        yield file
