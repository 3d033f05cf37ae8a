"""The database and its mirror, open: two SQLite files that every transaction goes to.

The write lock of the first orders transactions in both. A count in each goes up with every one. The first is
committed first: a transaction has happened when it is in there. Where the second could not follow (killed in
between, no room), the counts differ and the next transaction puts it right before it begins.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tuner.database.faults import MovedError, SuspectError, mirror_of
from tuner.database.files import connect, cut_off, locked, side_file
from tuner.database.migrations import MIGRATIONS

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
Values = Sequence[object]
Row = tuple[Any, ...]
_NAMES = {name for name, _ in MIGRATIONS}


class Transaction:
    """What may be done inside a transaction, or to read; changes go to both files."""

    def __init__(self, main: sqlite3.Connection, mirror: "_File | None" = None) -> None:
        self._main = main
        self._mirror = mirror

    def rows(self, statement: str, values: Values = ()) -> list[Row]:
        """All rows of a query."""
        return self._main.execute(statement, values).fetchall()

    def row(self, statement: str, values: Values = ()) -> Row | None:
        """The first row of a query."""
        found: Row | None = self._main.execute(statement, values).fetchone()
        return found

    def execute(self, statement: str, values: Values = ()) -> None:
        """Change something; the statement must do the same whenever it is executed: no clock, no chance."""
        done = self._main.execute(statement, values)
        if self._mirror is not None:
            again = self._mirror.connection.execute(statement, values)
            self._same(done.rowcount, again.rowcount)

    def insert(self, statement: str, values: Values) -> int:
        """Insert a row into a table that numbers its rows, and return its number."""
        done = self._main.execute(statement, values)
        if self._mirror is not None:
            again = self._mirror.connection.execute(statement, values)
            self._same(done.lastrowid, again.lastrowid)
        return done.lastrowid or 0

    def _same(self, done: int | None, again: int | None) -> None:
        if self._mirror is not None and done != again:
            raise SuspectError("the database and its mirror differ", self._mirror.path)

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        """Change something once for each tuple of values."""
        for each in values:
            self.execute(statement, each)

    def writes(self) -> int:
        """Number of this transaction: higher than that of every earlier one, whatever the clocks say."""
        return _standing(self._main)[1] + 1


@dataclass
class _File:
    """An open file, and what its name must stand for as long as it is open.

    Attributes:
        place: device and inode.
        size_bytes: as it was seen last; SQLite shortens neither a file of ours nor the log of an open one.
        log_bytes: the same of its log.
    """

    path: Path
    connection: sqlite3.Connection
    place: tuple[int, int]
    size_bytes: int
    log_bytes: int = 0

    def check(self) -> None:
        """Look whether the file is still there and has not lost anything.

        Raises:
            MovedError: the name stands for another file, or for none.
            SuspectError: the file or its log is shorter than it was.
        """
        log_bytes = self._log_bytes()  # before the file: who replaces both begins with the file
        try:
            found = self.path.stat()
        except FileNotFoundError as error:
            raise MovedError(str(self.path)) from error
        if (found.st_dev, found.st_ino) != self.place:
            raise MovedError(str(self.path))
        if found.st_size < self.size_bytes or log_bytes < self.log_bytes:
            raise SuspectError(f"{self.path} became shorter", self.path)
        self.size_bytes, self.log_bytes = found.st_size, log_bytes

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0

    def __post_init__(self) -> None:
        self._log = side_file(self.path, "-wal")


class Pair:
    """Both files, open; whether they are whole is only looked at as far as that is quick.

    Args:
        path: of the database.
        mirrored: without the mirror, nothing can be written.

    Raises:
        SuspectError: they have to be made, brought up to this version, or put right first.
        sqlite3.Error: they cannot be opened or read.
    """

    def __init__(self, path: Path, *, mirrored: bool = True) -> None:
        with ExitStack() as stack, locked(path, alone=False):
            self._mirror = _opened(mirror_of(path), stack) if mirrored else None
            # The mirror's count is read first: it is committed last, so that the other's is never below it.
            second = None if self._mirror is None else _looked_at(self._mirror)
            self._main = _opened(path, stack)
            first = _looked_at(self._main)
            if second is not None and (first[0] != second[0] or first[1] < second[1]):
                raise SuspectError("the database is older than its mirror, or another one")
            self._connections = stack.pop_all()

    @property
    def main(self) -> sqlite3.Connection:
        """The connection to the database itself."""
        return self._main.connection

    def close(self) -> None:
        """Close both; safe to call twice."""
        self._connections.close()

    def check(self) -> None:
        """See ``_File.check``; of both files."""
        self._main.check()
        if self._mirror is not None:
            self._mirror.check()

    def read(self, look: Callable[[Transaction], T]) -> T:
        """Do something that changes nothing."""
        self.check()
        return look(Transaction(self.main))

    def read_mirror(self, look: Callable[[Transaction], T]) -> T:
        """Do something that changes nothing, with what the mirror has."""
        if self._mirror is None:
            raise SuspectError("no mirror")
        return look(Transaction(self._mirror.connection))

    def write(self, change: Callable[[Transaction], T], *, synced: bool) -> T:
        """Do something in one transaction.

        Raises:
            SuspectError: there is no mirror, or it is not what it must be; nothing was changed.
        """
        if self._mirror is None:
            raise SuspectError("no mirror")
        mirror = self._mirror.connection
        self.main.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        stored = False
        try:
            self.main.execute("BEGIN IMMEDIATE")
            mirror.execute("BEGIN IMMEDIATE")
            self.check()  # who replaces a file holds the lock of the other: from here on they stay
            _same(_standing(self.main), _standing(mirror))
            result = change(Transaction(self.main, self._mirror))
            for connection in (self.main, mirror):
                connection.execute("UPDATE writes SET count = count + 1")
            self.main.execute("COMMIT")
            stored = True
            mirror.execute("COMMIT")
        except BaseException as error:  # a commit that fails, or Ctrl-C anywhere, leaves nothing open
            for connection in (mirror, self.main):
                if connection.in_transaction:
                    with suppress(sqlite3.Error):  # what it was that failed is told, not this
                        connection.execute("ROLLBACK")
            if not stored or not isinstance(error, sqlite3.Error):
                raise
            _LOG.warning("%s could not follow, and is put right later: %s", self._mirror.path, error)
        return result


def _opened(path: Path, stack: ExitStack) -> _File:
    """A file, open and read once, so that its log is open too."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise SuspectError(f"{path} is not there") from error
    connection = stack.enter_context(closing(connect(path)))
    # A killed process loses nothing; after a power cut the last trials may be measured again.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    return _File(path, connection, (found.st_dev, found.st_ino), found.st_size)


def _looked_at(file: _File) -> tuple[str, int]:
    """Identity and count of a file that is of this version, and not shorter than it says."""
    connection = file.connection
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'migrations'").fetchone()[0]:
        raise SuspectError(f"{file.path} has no tables")
    names = {name for (name,) in connection.execute("SELECT name FROM migrations")}
    if names != _NAMES:
        raise SuspectError(f"{file.path} is of another version")
    if cut_off(file.path, connection):
        raise SuspectError(f"{file.path} is cut off")
    return _standing(connection)


def _same(first: tuple[str, int], second: tuple[str, int]) -> None:
    if first != second:
        raise SuspectError("the database and its mirror are not at the same transaction")


def _standing(connection: sqlite3.Connection) -> tuple[str, int]:
    """Identity of a database, and number of its last transaction."""
    row = connection.execute("SELECT identity, count FROM writes").fetchone()
    if row is None:
        raise SuspectError("the count of transactions is gone")
    return row[0], row[1]
