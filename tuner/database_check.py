"""Is a database whole? Asked without making, migrating or locking one."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from tuner.errors import StoreError

_BUSY_S = 1.0  # a reader is hardly ever kept out of a database with a write-ahead log
_TABLES = {"runs", "trials", "migrations"}


def check_database(path: Path) -> int:
    """Read all pages of a database and return how many runs it holds.

    Args:
        path: an existing file.

    Raises:
        StoreError: it is none of this program's, damaged, or not readable.
    """
    # Without a log nobody has it open; then it is read as it is, and not even its shared memory file appears.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=_BUSY_S)
        ) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if verdict != "ok":
                raise StoreError(f"{path} is damaged: {verdict}")
            if not tables >= _TABLES:
                raise StoreError(f"{path} is no database of tuner")
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
