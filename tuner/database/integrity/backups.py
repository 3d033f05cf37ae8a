"""Further sources of rows: dated backups beside a database, and what SQLite still reads of a damaged file.

A file that SQLite cannot check may still give most of its tables. Each is read from both ends up to the first
page that is damaged. Triggers and views of another hand are not read, and work is bounded by the size of the
file.
"""

import glob
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.database.files import SuspectError, connect_to_read
from tuner.database.integrity.checksums import TABLES, Table
from tuner.database.integrity.row_comparison import text_or_bytes
from tuner.database.transaction import Row, standing

_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # messages of SQLite have bytes of the file in them
_STEPS = 10_000  # of SQLite's virtual machine between two looks at how many there were
_STEPS_A_BYTE = 4  # a row of ours takes fewer
_ALIKE = 8  # digits of 32 that damage may change; those of two databases differ in thirty
_DIGITS = 32


def same_database(first: str | None, second: str | None) -> bool:
    """Return True if two identities may be of one database: one is damaged, or not known."""
    if first is None or second is None or not len(first) == len(second) == _DIGITS:
        return True
    return sum(a != b for a, b in zip(first, second, strict=True)) <= _ALIKE


@dataclass(frozen=True)
class Source:
    """A file that rows can be taken from.

    Attributes:
        path: of the file, which need not be there.
        name: for people: ``database``, ``mirror`` or ``backup of 2026-01-31``.
        identity: of its database; None where that cannot be read.
        count: number of its last transaction; 0 where that cannot be read.
    """

    path: Path
    name: str
    identity: str | None
    count: int

    @classmethod
    def of(cls, path: Path, name: str) -> "Source":
        """Read what a file says of itself."""
        with suppress(*_UNREADABLE, SuspectError), _opened(path) as connection:
            return cls(path, name, *standing(connection))
        return cls(path, name, None, 0)

    def rows(self) -> Iterator[tuple[Table, Row]]:
        """Yield all rows that can be read, sound or not; one may come twice."""
        with suppress(*_UNREADABLE), _opened(self.path) as connection:
            tables = connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall()
            for (name,) in tables:
                table = TABLES.get(name)
                if table is not None:
                    yield from ((table, row) for row in _rows(connection, table))

    def numbers(self) -> list[Row]:
        """Return the last number of each table that gives no number twice."""
        with suppress(*_UNREADABLE), _opened(self.path) as connection:
            return connection.execute("SELECT name, seq FROM main.sqlite_sequence").fetchall()
        return []


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists() or not path.stat().st_size:
        raise sqlite3.OperationalError  # SQLite would remove the log of an empty file
    with closing(connect_to_read(path)) as connection:
        steps_left = [1 + (_STEPS_A_BYTE * path.stat().st_size + 1_000_000) // _STEPS]

        def is_too_much() -> bool:
            steps_left[0] -= 1
            return steps_left[0] < 0

        connection.text_factory = text_or_bytes
        connection.set_progress_handler(is_too_much, _STEPS)
        connection.execute("PRAGMA writable_schema = ON")  # a damaged definition costs its own table alone
        connection.execute("PRAGMA cell_size_check = ON")
        yield connection


def _rows(connection: sqlite3.Connection, table: Table) -> Iterator[Row]:
    for order in ("ASC", "DESC"):
        keys = ", ".join(f'"{column}" {order}' for column in table.key_columns)
        statement = f"SELECT * FROM main.{table.name} ORDER BY {keys}"  # noqa: S608 - names of ours
        try:
            for row in connection.execute(statement):
                if len(row) == len(table.all_columns):
                    yield row
        except _UNREADABLE:
            continue  # from the other end
        return


# --- Backups: whole files beside the database, named by their day.


def backups(path: Path, identity: str | None) -> list[Source]:
    """List the backups of a database, the latest transaction first: dates are no order, as clocks jump.

    Args:
        path: of the database.
        identity: of it; None where it is not known.
    """
    days = {file: file.name.rpartition(".backup-")[2] for file in dated_files(path)}
    sources = [Source.of(file, f"backup of {day}") for file, day in days.items()]
    ours = [each for each in sources if each.identity and same_database(each.identity, identity)]
    return sorted(ours, key=lambda each: (each.count, each.path), reverse=True)


def dated_files(path: Path) -> list[Path]:
    """The files that have the names of backups of a database, by their days."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.backup-????-??-??"))
