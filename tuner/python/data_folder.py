"""A folder for the arrays of a call, in memory where there is room; left-over ones are removed."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory; folders in it are private
_PREFIX = "tuner-arrays-"
_ROOM = 2  # times the bytes that are wanted
_YOUNG_S = 60.0  # a folder is locked at once after it is made


@contextmanager
def data_folder(wanted_bytes: int) -> Iterator[Path]:
    """A private folder, which goes on every way out; those of killed processes go before.

    Its process holds a lock on it: the lock ends with the process, wherever it ran.

    Args:
        wanted_bytes: of the files that are written to it.
    """
    memory = _MEMORY if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else None
    for place in {memory or _temporary(), _temporary()}:
        _remove_left_over(place)
    roomy = memory is not None and shutil.disk_usage(memory).free > _ROOM * wanted_bytes
    with tempfile.TemporaryDirectory(
        prefix=_PREFIX, dir=memory if roomy else None, ignore_cleanup_errors=True
    ) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks, where nobody else gets one either
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(folder)
        finally:
            os.close(lock)


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


def _remove_left_over(place: Path) -> None:
    """Remove folders of this user that no process holds."""
    with suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                status = folder.lstat()
                if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S:
                    _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    """Remove a folder whose lock is free.

    Raises:
        OSError: it is held, or is no folder.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
