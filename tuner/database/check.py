"""Is a database whole, and its mirror? Asked without making, migrating, healing or locking one."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tuner.errors import StoreError

_BUSY_S = 1.0  # a reader is hardly ever kept out of a database with a write-ahead log
_TABLES = {"runs", "trials", "migrations"}


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
