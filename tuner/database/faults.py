"""What SQLite says, in the words of this package."""

import sqlite3
from pathlib import Path

from tuner.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)

BUSY_TIMEOUT_S = 5.0  # of waiting for another process; a transaction takes less than a millisecond

# Begin of SQLite's name of the error; what it says; the error here; what that means.
_KNOWN = (
    ("SQLITE_BUSY", "is locked", StoreBusyError, "locked by another process for more than {s:g} s"),
    ("SQLITE_NOTADB", "not a database", StoreDamagedError, "not a database"),
    ("SQLITE_CORRUPT", "malformed", StoreDamagedError, "the database is corrupted"),
    ("SQLITE_FULL", "is full", StoreFullError, "the disk is full"),
    # a quota or the largest size of a file is reached
    ("SQLITE_IOERR_WRITE", "no text of its own", StoreFullError, "the disk takes no more"),
    ("SQLITE_IOERR_SHMSIZE", "no text of its own", StoreFullError, "the disk takes no more"),
    ("SQLITE_READONLY", "readonly", StoreReadOnlyError, "not writable by this user"),
    ("SQLITE_CANTOPEN", "unable to open", StoreError, "cannot be opened"),
)
# What may come from damage: a table that is gone is an error like any other to SQLite.
_DAMAGE = (
    *(("SQLITE_NOTADB", "not a database"), ("SQLITE_CORRUPT", "malformed"), ("SQLITE_IOERR", "I/O error")),
    *(("SQLITE_ERROR", "no such table"), ("SQLITE_FORMAT", "format")),
    ("no name", "Could not decode to UTF-8"),  # said by Python
)


class SuspectError(Exception):
    """The files may be damaged, or one of them is behind: they are to be looked at and put right.

    Args:
        why: what was seen.
        distrusted: the file that is not believed, even if nothing can be seen on it.
    """

    def __init__(self, why: str, distrusted: Path | None = None) -> None:
        super().__init__(why)
        self.distrusted = distrusted


class MovedError(Exception):
    """What is open is not what has the name any more: it is to be opened again."""


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The error of this package for one of SQLite's."""
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on; below, the text is all there is
    for code, text, kind, meaning in _KNOWN:
        if name.startswith(code) if name else text in str(error):
            return kind(f"{path}: {meaning.format(s=BUSY_TIMEOUT_S)} ({error}); {advice(path)}")
    return StoreError(f"{path}: {error}; {advice(path)}")


def damaged(error: sqlite3.Error) -> bool:
    """True where an error may come from a damaged file."""
    if isinstance(
        translated(error, Path()), StoreFullError
    ):  # some errors of writing have a name of reading's
        return False
    name = getattr(error, "sqlite_errorname", "")
    return any(name.startswith(code) if name else text in str(error) for code, text in _DAMAGE)


def advice(path: Path) -> str:
    """What a user can do about a database that cannot be used."""
    return (
        f"free {path.name}, move it and its mirror aside, or name another file with --database"
        " (of the daemon: a directory with --state)"
    )
