"""SQLite's faults in the words of this package, and whether a database and its mirror are whole."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tuner.model.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)

_BUSY_S = 1.0  # a reader is hardly ever kept out of a database with a write-ahead log
_TABLES = {"runs", "trials", "migrations"}
BUSY_TIMEOUT_S = 5.0  # of waiting for another process; a transaction takes less than a millisecond

ELSEWHERE = "name a file on a local disk with --database (of the daemon: a directory with --state)"
NO_LOCKS = "its file system has no file locks, which keep processes apart"
_CANNOT_OPEN = "cannot be opened"
NO_SHARED_MEMORY = "its file system has no shared memory, which SQLite needs"

# Begin of SQLite's name of the error; what it says; the error here; what that means.
_KNOWN = (
    ("SQLITE_BUSY", "is locked", StoreBusyError, "locked by another process for more than {s:g} s"),
    ("SQLITE_NOTADB", "not a database", StoreDamagedError, "not a database"),
    ("SQLITE_CORRUPT", "malformed", StoreDamagedError, "the database is corrupted"),
    ("SQLITE_FULL", "is full", StoreFullError, "the disk is full"),
    # a quota or the largest size of a file is reached
    ("SQLITE_IOERR_WRITE", "no text of its own", StoreFullError, "the disk takes no more"),
    ("SQLITE_IOERR_SHMSIZE", "no text of its own", StoreFullError, "the disk takes no more"),
    *(
        (f"SQLITE_IOERR_SHM{part}", "no text of its own", StoreError, NO_SHARED_MEMORY)
        for part in ("MAP", "OPEN")
    ),
    *(
        (f"SQLITE_IOERR_{part}", "no text of its own", StoreError, NO_LOCKS)
        for part in ("LOCK", "RDLOCK", "UNLOCK", "CHECKRESERVEDLOCK", "SHMLOCK")
    ),
    ("SQLITE_PROTOCOL", "locking protocol", StoreError, NO_LOCKS),
    ("SQLITE_READONLY", "readonly", StoreReadOnlyError, "not writable by this user"),
    ("SQLITE_CANTOPEN", "unable to open", StoreError, _CANNOT_OPEN),
)
# What may come from damage: a table that is gone is an error like any other to SQLite.
_DAMAGE = (
    *(("SQLITE_NOTADB", "not a database"), ("SQLITE_CORRUPT", "malformed"), ("SQLITE_IOERR", "I/O error")),
    *(("SQLITE_ERROR", "no such table"), ("SQLITE_FORMAT", "format")),
    # said by Python: a text that is none, a row that is not what its checksum says, columns that are gone
    *(("no name", "Could not decode to UTF-8"), ("no name", "user-defined function raised exception")),
    ("SQLITE_ERROR", "no such column"),
)


def mirror_of(path: Path) -> Path:
    """The second file that every transaction goes to."""
    return path.with_name(f"{path.name}.mirror")


def check_database(path: Path) -> int:
    """Read all pages of a database and return how many runs it holds.

    Args:
        path: an existing file.

    Raises:
        StoreError: it is none of this program's, damaged, or not readable.
    """
    try:
        with closing(_opened(path)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if verdict != "ok":
                raise StoreError(f"{path} is damaged: {verdict}")
            if not tables >= _TABLES:
                raise StoreError(f"{path} is no database of tuner")
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def check_mirror(path: Path) -> str:
    """Read all pages of the mirror of a whole database and say what is wrong with it; empty if nothing is.

    Args:
        path: of the database.
    """
    mirror = mirror_of(path)
    if not mirror.exists():
        return f"{mirror} is not there"
    try:
        check_database(mirror)
        there = _standing(path)
        followed = _standing(mirror)  # asked later, as a transaction is in the database first
    except (StoreError, sqlite3.Error) as error:
        return str(error)
    if there is None or followed is None or there[0] != followed[0]:
        return f"{mirror} is that of another database"
    if followed[1] < there[1]:
        return f"{mirror} lacks {there[1] - followed[1]} transactions"
    return ""


def _opened(path: Path) -> sqlite3.Connection:
    # Without a log nobody has it open; then it is read as it is, and not even its shared memory file appears.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=_BUSY_S)


def _standing(path: Path) -> tuple[str, int] | None:
    """Identity of a database and number of its last transaction; None where an earlier version made it."""
    with closing(_opened(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'writes'").fetchone():
            return None
        identity, count = connection.execute("SELECT identity, count FROM writes").fetchone()
        return identity, count


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
    known = _known(error)
    if known is None:
        return StoreError(f"{path}: {error}; {advice(path)}")
    kind, meaning = known
    if meaning == _CANNOT_OPEN and path.is_file() and not os.access(path.absolute().parent, os.W_OK):
        return StoreReadOnlyError(
            f"{path}: {path.absolute().parent} cannot be written, as SQLite needs also to read ({error});"
            f" `tuner db copy --database {path} --output FILE` copies it to a directory that can be written"
        )
    what = ELSEWHERE if meaning in (NO_LOCKS, NO_SHARED_MEMORY) else advice(path)
    if kind is StoreFullError:
        what = f"make room on it; {what}"
    return kind(f"{path}: {meaning.format(s=BUSY_TIMEOUT_S)} ({error}); {what}")


def unreadable(error: OSError, path: Path) -> StoreError:
    """The error of this package where the system refuses a file, as in a folder of another user."""
    return StoreError(f"{path}: {error.strerror}; name a file of yours with --database")


def damaged(error: sqlite3.Error) -> bool:
    """True where an error may come from a damaged file."""
    known = _known(error)
    if known is not None and (known[0] is StoreFullError or known[1] in (NO_LOCKS, NO_SHARED_MEMORY)):
        return False  # some errors of writing have a name of reading's
    name = getattr(error, "sqlite_errorname", "")
    return any(name.startswith(code) if name else text in str(error) for code, text in _DAMAGE)


def _known(error: sqlite3.Error) -> tuple[type[StoreError], str] | None:
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on; below, the text is all there is
    for code, text, kind, meaning in _KNOWN:
        if name.startswith(code) if name else text in str(error):
            return kind, meaning
    return None


def advice(path: Path) -> str:
    """What a user can do about a database that cannot be used; nothing that would cost what is in it."""
    return (
        f"keep {path.name} and {mirror_of(path).name}, and name another file with --database"
        " (of the daemon: a directory with --state) until they can be used"
    )
