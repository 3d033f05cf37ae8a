"""Numbers in files of the kernel that are read repeatedly."""

import errno
import os
from pathlib import Path

from tuner.model.errors import PowerError

_BYTES = 64  # more than a number takes
_BUSY = 20  # reads in a row that the driver may refuse because the chip was busy


class SysfsAttribute:
    """A file of the kernel with one whole number in it, kept open.

    Args:
        path: the file.

    Raises:
        PowerError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._busy = 0
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise PowerError(_told(path, error)) from error

    def read(self) -> int | None:
        """The number now; None where the driver says that the chip is busy.

        Raises:
            PowerError: it cannot be read, is no number, or the chip has been busy 20 times in a row.
        """
        try:
            text = os.pread(self._file, _BYTES, 0)
        except OSError as error:
            self._busy += 1
            if error.errno == errno.EAGAIN and self._busy < _BUSY:
                return None
            raise PowerError(_told(self._path, error)) from error
        self._busy = 0
        try:
            return int(text)
        except ValueError:
            shown = text.decode(errors="replace").strip()
            raise PowerError(f"{self._path}: holds {shown!r} instead of a number") from None

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_text(path: Path) -> str:
    """The text of a file without the white space around it.

    Raises:
        PowerError: it cannot be read.
    """
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        raise PowerError(_told(path, error)) from error


def read_number(path: Path) -> int | None:
    """A whole number that a driver may or may not tell; None where it does not."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _told(path: Path, error: OSError) -> str:
    advice = (
        ": let this user read it (chmod a+r), or run as root" if isinstance(error, PermissionError) else ""
    )
    return f"{path}: {error.strerror}{advice}"
