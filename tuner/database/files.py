"""The files of a database: their names, how they are opened, and the lock that putting them right needs."""

import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from tuner.database import faults
from tuner.database.integrity import checksums, raw_file
from tuner.model.errors import StoreBusyError, StoreReadOnlyError
from tuner.system.lock_files import open_lock, open_made_lock, try_lock

SIDE_FILES = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a file."""

_LOOK_AGAIN_S = 0.01  # flock has no time-out


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def side_file(path: Path, suffix: str) -> Path:
    """A file that SQLite keeps beside one."""
    return path.with_name(path.name + suffix)


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open a file; it is not made unless asked for, nor read yet. A new one is for this user alone.

    SQLite gives what it keeps beside a file the same mode. Who can read them can lock them.
    """
    if create:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = _connection(path, "mode=rwc" if create else "mode=rw")
    connection.execute("PRAGMA secure_delete = ON")  # what is salvaged from pages was not deleted
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file without leaving a trace."""
    # Without a log nobody has it open; then it is read as it is, and not even its shared memory file appears.
    return _connection(path, "mode=ro" if side_file(path, "-wal").exists() else "immutable=1")


def _connection(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}",
        uri=True,
        timeout=faults.BUSY_TIMEOUT_S,
        isolation_level=None,  # transactions are begun by hand
        factory=raw_file.Connection,
    )
    checksums.teach(connection)
    connection.execute("PRAGMA trusted_schema = OFF")  # a file of another hand calls no function
    return connection


def cut_off(path: Path, connection: sqlite3.Connection) -> bool:
    """True where an open file is shorter than it says; of free pages, SQLite itself does not miss the end."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    with suppress(FileNotFoundError):
        if side_file(path, "-wal").stat().st_size > 0:
            return False  # the end may still be in the log
    return bool(path.stat().st_size < pages * page_bytes)


@contextmanager
def locked(path: Path, *, alone: bool) -> Iterator[None]:
    """Hold the lock of the files' names: shared to open them, alone to make or replace them.

    Transactions do not need it. Without it, a connection could open the log of a file that is being replaced.

    Raises:
        StoreBusyError: it is held for too long.
        StoreReadOnlyError: it is needed alone, and this user may not make or open it.
        StoreError: the file system has no locks.
    """
    with ExitStack() as stack:
        lock = _lock_file(side_file(path, ".lock"), make=alone)
        if lock is not None:  # who is not kept out by it cannot replace files either
            stack.callback(os.close, lock)
            _wait(lock, path, alone=alone)
        yield


def make_like(path: Path, model: Path) -> None:
    """Make an empty file with the mode and the owner of another."""
    there = model.stat()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(file, stat.S_IMODE(there.st_mode))
        _own(file, there)
    finally:
        os.close(file)


def _lock_file(name: Path, *, make: bool) -> int | None:
    """The lock, open; None where it was never made, or is not for this user, and need not be."""
    try:
        return open_lock(name) if make else open_made_lock(name)
    except OSError as error:
        if not make:
            return None
        raise StoreReadOnlyError(f"{name} cannot be made or opened: {error.strerror}") from error


def _own(file: int, model: os.stat_result) -> None:
    """Give a new file the owner of another: what root makes must stay usable for the service's user."""
    if os.geteuid() == 0:
        with suppress(OSError):  # a file system without owners
            os.fchown(file, model.st_uid, model.st_gid)


def _wait(lock: int, path: Path, *, alone: bool) -> None:
    patience = time.monotonic() + faults.BUSY_TIMEOUT_S
    while not try_lock(lock, path, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
        if time.monotonic() > patience:
            raise StoreBusyError(f"{path}: being put right for more than {faults.BUSY_TIMEOUT_S:g} s")
        time.sleep(_LOOK_AGAIN_S)
