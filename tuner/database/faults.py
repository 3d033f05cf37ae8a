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
    ("SQLITE_READONLY", "readonly", StoreReadOnlyError, "not writable by this user"),
    ("SQLITE_CANTOPEN", "unable to open", StoreError, "cannot be opened"),
)


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The error of this package for one of SQLite's."""
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on; below, the text is all there is
    for code, text, kind, meaning in _KNOWN:
        if name.startswith(code) if name else text in str(error):
            return kind(f"{path}: {meaning.format(s=BUSY_TIMEOUT_S)} ({error}); {advice(path)}")
    return StoreError(f"{path}: {error}; {advice(path)}")


def advice(path: Path) -> str:
    """What a user can do about a database that cannot be used."""
    return f"free or move {path.name} aside, or name another file with --database"
