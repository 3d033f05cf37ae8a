"""The tables of a file: whether they are those that the migrations make.

The text of a table's definition is in the file too, and is damaged like everything else; a file of another
hand may hold triggers and views.
"""

import hashlib
import re
import sqlite3
from contextlib import closing
from functools import lru_cache

from tuner.database.files import now
from tuner.database.integrity.checksums import checksum_all, teach
from tuner.database.migrations import MIGRATIONS
from tuner.database.transaction import Row

_COMMENT = re.compile(r"--[^\n]*|\s+")
NAMES = tuple(name for name, _ in MIGRATIONS)
CHECKSUMMED = NAMES.index("checksums") + 1
"""Changes from which on every row has a checksum."""

# Of the tables of this version as SQLite 3.40 writes them down, which others do too so far.
_DIGEST = "36286ded0dd0176428284dc2345be754"


def has_our_tables(connection: sqlite3.Connection) -> bool:
    """True where a file has the tables of this version, as they were made, and nothing else."""
    defined = _defined(connection)
    if not defined:
        return False
    names = [name for (name,) in connection.execute("SELECT name FROM main.migrations")]
    return (
        len(names) == len(NAMES)
        and set(names) == set(NAMES)
        and (_digest(defined) == _DIGEST or _texts(defined) == _made(len(NAMES)))
    )


def has_tables_of(connection: sqlite3.Connection, changes: int) -> bool:
    """True where a file has the tables that the first changes make."""
    return _texts(_defined(connection)) == _made(changes)


def apply(connection: sqlite3.Connection, done: int = 0) -> None:
    """Make the changes that a file lacks, in the caller's transaction."""
    connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT)")
    for name, statements in MIGRATIONS[done:]:
        for statement in statements:
            connection.execute(statement)
        connection.execute("INSERT INTO migrations VALUES (?, ?)", (name, now()))
    if done < CHECKSUMMED:  # later ones keep theirs: a damaged row must not get one that is right
        checksum_all(connection)


def _defined(connection: sqlite3.Connection) -> list[Row]:
    """What defines the tables, without what SQLite makes for itself, such as statistics."""
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM main.sqlite_master"
        " WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"
    ).fetchall()


def _digest(defined: list[Row]) -> str:
    return hashlib.blake2b(repr(defined).encode(), digest_size=16).hexdigest()


def _texts(defined: list[Row]) -> list[tuple[str, ...]]:
    """Definitions without comments and spaces, which versions may write otherwise."""
    return [(kind, name, table, _COMMENT.sub("", str(text))) for kind, name, table, text in defined]


@lru_cache
def _made(changes: int) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        teach(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT)")
        for _, statements in MIGRATIONS[:changes]:
            for statement in statements:
                connection.execute(statement)
        return _texts(_defined(connection))
