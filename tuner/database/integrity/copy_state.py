"""State of each of the two files: whole, of another version, damaged, of another program, or missing."""

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tuner.database.files import (
    SuspectError,
    connect,
    connect_to_read,
    cut_off,
    damaged,
    lacks_shared_memory,
    side_file,
    translated,
    use_journal,
)
from tuner.database.integrity.row_comparison import NAMES, has_our_tables, has_tables_of, text_or_bytes
from tuner.database.migrations import MIGRATIONS
from tuner.database.transaction import standing
from tuner.model.errors import StoreError

_COUNTED = NAMES.index("writes") + 1  # changes from which on there is a count of transactions
OUR_TABLES = {"runs", "trials", "migrations"}


class CopyState(Enum):
    """State of a file; ``WHOLE`` only says that SQLite can read all of it, not that its rows are sound."""

    MISSING = "missing"
    WHOLE = "whole"
    EARLIER = "earlier"
    NEWER = "newer"
    DAMAGED = "damaged"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Copy:
    """One of the two files.

    Attributes:
        path: of it.
        form: what it is.
        trouble: why it cannot be used, for people; empty where it can be, and where there is none.
        changes: how many migrations made it, where it is whole or of an earlier version.
        identity: of the database; None where it cannot be read.
        count: number of its last transaction; None where it cannot be read.
    """

    path: Path
    form: CopyState
    trouble: str = ""
    changes: int = 0
    identity: str | None = None
    count: int | None = None

    @property
    def whole(self) -> bool:
        """True for a file of this version that SQLite can read all of."""
        return self.form is CopyState.WHOLE


def inspected(path: Path, *, to_change: bool = True) -> Copy:
    """Read all of a file, and return its state.

    Args:
        path: of it.
        to_change: whoever asks has the lock of the names alone; else the file is opened to read only.

    Raises:
        StoreError: it cannot be opened for another reason than damage.
    """
    try:
        size, trouble = path.stat().st_size, "it is empty"
    except FileNotFoundError:
        size, trouble = 0, "it is gone"
    if size == 0:  # SQLite would remove the log of an empty file
        log = side_file(path, "-wal")
        form = CopyState.DAMAGED if log.exists() and log.stat().st_size else CopyState.MISSING
        return Copy(path, form, trouble if form is CopyState.DAMAGED else "")
    try:
        with closing(connect(path) if to_change else connect_to_read(path)) as connection:
            connection.text_factory = text_or_bytes
            return _looked_at(path, connection)
    except UnicodeDecodeError as error:  # of a message of SQLite's, which has bytes of the file in it
        return Copy(path, CopyState.DAMAGED, f"the database is corrupted ({error.reason})")
    except sqlite3.Error as error:
        if to_change and lacks_shared_memory(error, path):
            use_journal(path)
            return inspected(path)
        if damaged(error):
            return Copy(path, CopyState.DAMAGED, f"the database is corrupted, or none ({error})")
        raise translated(error, path) from error


def _looked_at(path: Path, connection: sqlite3.Connection) -> Copy:
    connection.execute("PRAGMA cell_size_check = ON")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables:
        return Copy(path, CopyState.MISSING)
    if not tables & OUR_TABLES:
        return Copy(path, CopyState.FOREIGN, "no database of tuner")
    names = [name for (name,) in connection.execute("SELECT name FROM migrations")]
    if set(names) > set(NAMES):
        unknown = ", ".join(sorted(str(name) for name in set(names) - set(NAMES)))
        return Copy(path, CopyState.NEWER, unknown)
    trouble = _trouble(path, connection, len(names))
    if trouble:
        return Copy(path, CopyState.DAMAGED, trouble)
    identity = count = None
    if len(names) >= _COUNTED:
        with suppress(SuspectError):
            identity, count = standing(connection)
    form = CopyState.WHOLE if len(names) == len(MIGRATIONS) else CopyState.EARLIER
    return Copy(path, form, changes=len(names), identity=identity, count=count)


def _trouble(path: Path, connection: sqlite3.Connection, changes: int) -> str:
    as_made = has_our_tables(connection) if changes == len(NAMES) else has_tables_of(connection, changes)
    if not as_made:
        return "its tables are not as this program makes them"
    if cut_off(path, connection):
        return "the database is cut off"
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        return f"the database is corrupted ({' '.join(str(verdict).split())})"
    return ""


def refuse_newer(*copies: Copy) -> None:
    """Leave a file alone that a newer version has made.

    Raises:
        StoreError: one of them is.
    """
    for copy in copies:
        if copy.form is CopyState.NEWER:
            raise StoreError(
                f"{copy.path} was written by a newer tuner (migrations {copy.trouble});"
                " upgrade tuner or name another file with --database"
                " (of the daemon: a directory with --state)"
            )
