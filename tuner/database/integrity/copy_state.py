"""State of each of the two files, and their tables and rows, compared."""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

from tuner.database.files import (
    SuspectError,
    connect,
    connect_to_read,
    cut_off,
    damaged,
    lacks_shared_memory,
    now,
    side_file,
    translated,
    use_journal,
)
from tuner.database.integrity.checksums import TABLES, Key, Table, checksum_all, is_sound, quoted, teach
from tuner.database.migrations import MIGRATIONS
from tuner.database.transaction import Row, standing
from tuner.model.errors import StoreError

# --- Tables and rows of both files, compared.


class BadText(bytes):
    """The bytes of a text that is no UTF-8."""

    __slots__ = ()


def text_or_bytes(content: bytes) -> str | BadText:
    """A text as SQLite keeps it; its bytes where they are damaged. A ``text_factory`` that never fails."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return BadText(content)


@dataclass(frozen=True)
class RowDifference:
    """A row that is not sound and the same in both files.

    Attributes:
        table: its table.
        key: of the row.
        main: as the database has it; None where it has none.
        mirror: the same of the mirror.
    """

    table: Table
    key: Key
    main: Row | None
    mirror: Row | None

    def best(self) -> tuple[Row | None, str]:
        """The sound row of the highest version, and where it is from; None where none is sound."""
        rows = [
            (row, source)
            for row, source in ((self.main, "database"), (self.mirror, "mirror"))
            if row is not None and is_sound(self.table.name, row)
        ]
        return max(rows, key=lambda sourced: sourced[0][-2], default=(None, ""))


@dataclass
class VerifiedRows:
    """Number of rows verified so far."""

    rows: int = 0


def differences(
    main: sqlite3.Connection | None, mirror: sqlite3.Connection | None, tally: VerifiedRows
) -> Iterator[RowDifference]:
    """All rows of both files that are not sound and the same; of one file those that are not sound.

    Args:
        main: the database, with a lenient ``text_factory``; None to look at the mirror alone.
        mirror: the same of the mirror.
        tally: counts the rows.
    """
    for table in TABLES.values():
        statement = f"SELECT {table.listed()} FROM main.{table.name} ORDER BY {quoted(table.key_columns)}"  # noqa: S608
        yield from compared(
            table,
            iter(()) if main is None else main.execute(statement),
            iter(()) if mirror is None else mirror.execute(statement),
            tally,
            both=main is not None and mirror is not None,
        )


def page_of(connection: sqlite3.Connection, table: Table, after: Sequence[object], most: int) -> list[Row]:
    """The next rows of a table behind a key, in their order; from its beginning behind no key."""
    keys = quoted(table.key_columns)
    clause = f"WHERE ({keys}) > ({', '.join('?' * len(after))})" if after else ""
    statement = f"SELECT {table.listed()} FROM main.{table.name} {clause} ORDER BY {keys} LIMIT ?"  # noqa: S608
    return connection.execute(statement, (*after, most)).fetchall()


def compared(
    table: Table, main: Iterator[Row], mirror: Iterator[Row], tally: VerifiedRows, *, both: bool = True
) -> Iterator[RowDifference]:
    """The differences of some rows of a table, which come in the order of their keys."""
    of_main: dict[Key, Row] = {}
    of_mirror: dict[Key, Row] = {}
    first, second = next(main, None), next(mirror, None)
    while first is not None or second is not None:
        ahead, behind = _place(table, first), _place(table, second)
        if first is not None and ahead <= behind:
            tally.rows += 1
            alike = not both or (ahead == behind and first == second and is_sound(table.name, second or ()))
            if not (alike and is_sound(table.name, first)):
                of_main[table.key(first)] = first
                if ahead == behind and second is not None:
                    of_mirror[table.key(second)] = second
            if ahead == behind:
                second = next(mirror, None)
            first = next(main, None)
        elif second is not None:
            if both:
                of_mirror[table.key(second)] = second
            else:
                tally.rows += 1
                if not is_sound(table.name, second):
                    of_mirror[table.key(second)] = second
            second = next(mirror, None)
    for key in {**of_main, **of_mirror}:
        yield RowDifference(table, key, of_main.get(key), of_mirror.get(key))


def _place(table: Table, row: Row | None) -> tuple[tuple[int, object], ...]:
    """Return the sort key of a row in SQLite's order: NULL, numbers, texts, bytes; no row comes last."""
    if row is None:
        return ((9, 0),)
    return tuple(_rank(value) for value in row[: table.keys])


def _rank(value: object) -> tuple[int, object]:
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, str):
        return (2, value.encode())
    return (2, bytes(value)) if isinstance(value, BadText) else (3, value)


# --- The tables of a file: whether they are those that the migrations make.
#
# The text of a table's definition is in the file too, and is damaged like everything else; a file of another
# hand may hold triggers and views.

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
        and (
            hashlib.blake2b(repr(defined).encode(), digest_size=16).hexdigest() == _DIGEST
            or _texts(defined) == _made(len(NAMES))
        )
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
    """Return the definitions of the tables, without those that SQLite makes itself, such as statistics."""
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM main.sqlite_master"
        " WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"
    ).fetchall()


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


# --- The state of each file.

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
