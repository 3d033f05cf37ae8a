"""The state directory of a daemon: one daemon at a time, and the directory that it was at the start."""

import contextlib
import errno
import os
from pathlib import Path

from tuner.model.errors import InputError, StoreError, StoreFullError, TunerError
from tuner.system.lock_files import open_lock, try_lock
from tuner.system.user_folders import make_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_PID_BYTES = 32


class StateLock:
    """Holds the state directory.

    Args:
        directory: made if it is not there.

    Raises:
        InputError: another daemon has it, it cannot be made, or its file system has no locks.
        StoreFullError: there is no room for it on the disk.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "daemon.lock"
        self._file = -1
        try:
            make_folder(directory)
            self._file = open_lock(self._path)
        except OSError as error:
            raise _cannot_be_kept(directory, error) from error
        try:
            self._take()
        except TunerError:
            self.close()
            raise
        self._place = _place(os.fstat(self._file))
        with contextlib.suppress(OSError):  # the number only helps people; a disk may be full
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> None:
        try:
            taken = try_lock(self._file, self.directory)
        except StoreError as error:
            raise InputError(str(error)) from error
        if not taken:
            owner = os.read(self._file, _PID_BYTES).decode("ascii", "replace").strip()
            raise InputError(
                f"{self.directory}: another daemon works there (process {owner or 'unknown'});"
                " stop it, or name another directory with --state"
            )

    def trouble(self) -> str:
        """What is wrong with the directory that was taken; empty where all is well. It takes microseconds."""
        if self._file < 0:
            return ""
        gone = self._gone()
        if not gone and not os.access(self.directory, os.W_OK):
            return f"{self.directory} cannot be written any more; nothing can be stored"
        return gone

    def check(self) -> None:
        """See that the directory is the one that was taken.

        Raises:
            StoreError: it is not.
        """
        gone = self._gone()
        if gone:
            raise StoreError(gone)

    @property
    def replaced(self) -> bool:
        """True where another directory is there, or what was in it is gone, and it can be written."""
        return bool(self._gone()) and self.directory.is_dir() and os.access(self.directory, os.W_OK)

    @property
    def hidden(self) -> bool:
        """True where the directory is there, or another one, and only a new process can write to it.

        A sandbox lets a process into a directory by mounting it; once that was moved away, what comes in its
        place is as read-only as all around it.
        """
        with contextlib.suppress(OSError):
            by_name, by_file = os.statvfs(self.directory), os.statvfs(self._file)
            return bool(by_name.f_flag & os.ST_RDONLY and not by_file.f_flag & os.ST_RDONLY)
        return False

    def _gone(self) -> str:
        if self._file < 0:
            return ""
        try:
            there = _place(self._path.lstat()) == self._place
        except OSError:
            there = False
        if there:
            return ""
        happened = "was emptied or replaced" if self.directory.is_dir() else "was removed"
        return f"{self.directory} {happened} while the daemon ran; nothing can be stored"

    def close(self) -> None:
        """Release the directory."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _cannot_be_kept(directory: Path, error: OSError) -> InputError | StoreFullError:
    if error.errno in _NO_ROOM:
        return StoreFullError(f"{directory}: no state can be kept there: no room is left on the disk")
    return InputError(f"{directory}: cannot keep state there: {error.strerror}; name another")


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
