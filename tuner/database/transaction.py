"""A transaction in a database and its mirror: both do the same, and must say the same."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tuner.database.files import SuspectError

Values = Sequence[object]
Row = tuple[Any, ...]
LARGEST_COUNT = 2**60
"""No count of transactions comes near; a larger one is damage."""


class Transaction:
    """Operations inside a transaction, or of a reader; changes go to both files.

    Args:
        main: the database.
        mirror: its mirror at the same transaction; None to read the database alone.
        number: of this transaction.
        path: of the mirror, for messages.
    """

    def __init__(
        self, main: sqlite3.Connection, mirror: sqlite3.Connection | None, number: int, path: Path
    ) -> None:
        self._main = main
        self._mirror = mirror
        self._number = number
        self._path = path

    @property
    def connections(self) -> list[sqlite3.Connection]:
        """The database and, where it is at the same transaction, its mirror."""
        return [self._main] if self._mirror is None else [self._main, self._mirror]

    @property
    def mirrored(self) -> bool:
        """True where both files are read."""
        return self._mirror is not None

    def rows(self, statement: str, values: Values = ()) -> list[Row]:
        """All rows of a query; its order must be certain, and its tables ``verified``."""
        rows = self._main.execute(statement, values).fetchall()
        if self._mirror is not None:
            self._same(rows, self._mirror.execute(statement, values).fetchall())
        return rows

    def row(self, statement: str, values: Values = ()) -> Row | None:
        """The first row of a query."""
        row: Row | None = self._main.execute(statement, values).fetchone()
        if self._mirror is not None:
            self._same(row, self._mirror.execute(statement, values).fetchone())
        return row

    def execute(self, statement: str, values: Values = ()) -> None:
        """Change something; the statement must do the same whenever it is executed: no clock, no chance."""
        self.execute_ascii(statement, _storable(values))

    def execute_ascii(self, statement: str, values: Values) -> None:
        """The same with texts that are known to be of plain ASCII, which need no look."""
        done = self._main.execute(statement, values)
        if self._mirror is not None:
            again = self._mirror.execute(statement, values)
            self._same(done.rowcount, again.rowcount)

    def insert(self, statement: str, values: Values) -> int:
        """Insert a row into a table that numbers its rows, and return its number."""
        values = _storable(values)
        done = self._main.execute(statement, values)
        if self._mirror is not None:
            again = self._mirror.execute(statement, values)
            self._same(done.lastrowid, again.lastrowid)
        return done.lastrowid or 0

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        """Change something once for each tuple of values."""
        for each in values:
            self.execute(statement, each)

    def execute_many_ascii(self, statement: str, values: Sequence[Values]) -> None:
        """The same with texts that are known to be as ``execute_ascii`` has them."""
        done = self._main.executemany(statement, values)
        if self._mirror is not None:
            again = self._mirror.executemany(statement, values)
            self._same(done.rowcount, again.rowcount)

    def writes(self) -> int:
        """Number of this transaction: higher than that of every earlier one, whatever the clocks say."""
        return self._number

    def _same(self, done: object, again: object) -> None:
        if done != again:
            raise SuspectError(f"the database and {self._path.name} differ")


def standing(connection: sqlite3.Connection) -> tuple[str, int]:
    """Identity of a database, and number of its last transaction.

    Raises:
        SuspectError: they are gone, or not what they can be.
    """
    rows = connection.execute("SELECT identity, count FROM writes").fetchall()
    if len(rows) == 1:
        identity, count = rows[0]
        if type(identity) is str and type(count) is int and 0 <= count < LARGEST_COUNT:
            return identity, count
    raise SuspectError("the count of transactions is gone")


def last_transaction(connection: sqlite3.Connection) -> int | None:
    """Number of the last transaction of a database; None where it is gone, or not what it can be."""
    try:
        return standing(connection)[1]
    except SuspectError:
        return None


def _storable(values: Values) -> Values:
    """Values as SQLite keeps them: a text has no NUL, which ends it for some, and no half of a character."""
    for value in values:
        if type(value) is str and ("\0" in value or not _is_unicode(value)):
            return [_text(value) if isinstance(value, str) else value for value in values]
    return values


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(text: str) -> str:
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
