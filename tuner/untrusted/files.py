"""Regular files of bounded size; what is no file, such as a pipe or a device, is never read."""

import os
import stat
from pathlib import Path

_PIECE_BYTES = 2**16


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """The bytes of a regular file.

    Nothing is waited for: a pipe, which may never be written to, is refused before it is read.

    Raises:
        OSError: it cannot be opened or read.
        ValueError: it is no regular file, or larger than ``most_bytes``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a file")
        if status.st_size > most_bytes:
            raise ValueError(f"is larger than {shown_bytes(most_bytes)}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            found = file.read(status.st_size + 1)
            while len(found) <= most_bytes and (more := file.read(_PIECE_BYTES)):  # as below /proc
                found += more
    finally:
        os.close(descriptor)
    if len(found) > most_bytes:
        raise ValueError(f"is larger than {shown_bytes(most_bytes)}")
    return found


def read_text(path: Path, most_bytes: int) -> str:
    """The text of a regular file in UTF-8.

    Raises:
        OSError: it cannot be opened or read.
        ValueError: as ``read_bytes``, or it is no UTF-8.
    """
    try:
        return read_bytes(path, most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.start})") from error


def shown_bytes(count: int) -> str:
    """A limit as messages write it, such as ``64 MiB``."""
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 2**10} KiB"
