"""File systems that lack what a database needs: locks of files, or memory that processes share through one.

SQLite's write-ahead log has its index in shared memory. Where there is none, such as on some network file
systems, a journal does instead: it is slower, and who writes keeps readers waiting for that long.
"""

import logging
import mmap
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from tuner.database.files import connect

_LOG = logging.getLogger(__name__)
_NO_MEMORY = ("SQLITE_IOERR_SHMMAP", "SQLITE_IOERR_SHMOPEN")


def lacks_shared_memory(error: sqlite3.Error, path: Path) -> bool:
    """True where an error comes from a file system without shared memory.

    Args:
        error: SQLite's.
        path: of the database.
    """
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on
    return name in _NO_MEMORY if name else "I/O error" in str(error) and not _shares_memory(path.parent)


def use_log(path: Path, connection: sqlite3.Connection) -> None:
    """Give a new file a write-ahead log, or a journal where there is no shared memory."""
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        if not lacks_shared_memory(error, path):
            raise
        connection.close()
        use_journal(path)


def use_journal(path: Path) -> None:
    """Give a file a journal instead of its write-ahead log; nobody else may have it open."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the log is in memory of its own
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA journal_mode = DELETE")
    _LOG.warning(
        "%s: its file system has no shared memory, so that storing is slower and readers wait for it;"
        " better name a file on a local disk with --database (of the daemon: a directory with --state)",
        path,
    )


def _shares_memory(folder: Path) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, suffix="-shm") as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
    except (OSError, ValueError):
        return False
    return True
