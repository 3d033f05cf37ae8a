"""Files whose lock (flock) is the ownership of something; the kernel unlocks them when their holder dies."""

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from tuner.model.errors import StoreError

_HOW = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def open_lock(path: Path) -> int:
    """Open a lock file for those who may write beside it, and make it if it is missing.

    Raises:
        OSError: it cannot be opened or made.
    """
    try:
        return open_made_lock(path)
    except FileNotFoundError:
        os.close(os.open(path, _HOW | os.O_CREAT, 0o600))
        return open_made_lock(path)


def open_made_lock(path: Path) -> int:
    """Open a lock file that is there, as ``open_lock`` does.

    Raises:
        OSError: it is missing, or cannot be opened.
    """
    file = os.open(path, _HOW)
    with contextlib.suppress(OSError):  # a file system without owners or modes, or another user's file
        _close_to_strangers(file, path.parent)
    return file


def _close_to_strangers(file: int, folder: Path) -> None:
    """Leave a lock to its owner and, where the folder is its group's to write, to that group."""
    there, around = os.fstat(file), folder.stat()
    shared = bool(around.st_mode & stat.S_IWGRP)
    # Who can open a file can lock it, whatever he may do with what is in it.
    mode = 0o660 if shared else 0o600
    if stat.S_IMODE(there.st_mode) != mode:
        os.fchmod(file, mode)
    if os.geteuid() == 0 and there.st_uid != around.st_uid:
        os.fchown(file, around.st_uid, around.st_gid)  # what root makes stays usable for the service's user
    elif shared and there.st_gid != around.st_gid:
        os.fchown(file, -1, around.st_gid)  # not the maker's own group, which a new file has


def try_lock(file: int, path: Path, how: int = fcntl.LOCK_EX) -> bool:
    """Lock a file unless another process has.

    Args:
        file: its descriptor.
        path: its name, for messages.
        how: ``fcntl.LOCK_EX`` or ``fcntl.LOCK_SH``.

    Returns:
        False where another process has it.

    Raises:
        StoreError: its file system has no locks.
    """
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{path}: its file system has no file locks (flock: {error.strerror}), as some network file"
            " systems; name a file on a local disk with --database (of the daemon: a directory with --state,"
            " or [service] state of daemon.toml)"
        ) from error
    return True
