"""The database and its mirror, open: two SQLite files that every transaction goes to.

The write lock of the first orders transactions in both. A count in each goes up with every one. The first is
committed first: a transaction has happened when it is in there. Where the second could not follow (killed in
between, no room), the counts differ and the next transaction puts it right before it begins.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tuner.database.files import MovedError, SuspectError, connect, cut_off, locked, mirror_of, side_file
from tuner.database.integrity.checksums import watch
from tuner.database.integrity.copy_state import has_our_tables
from tuner.database.transaction import Transaction, standing

_LOG = logging.getLogger(__name__)

_OPENING_PATIENCE_S = 0.25
_PATIENCE_S = 0.05  # of a reader, for a writer between its two commits
_LOOK_AGAIN_S = 0.0005

T = TypeVar("T")


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
            status = os.stat(self._name)  # noqa: PTH116
        except FileNotFoundError as error:
            raise MovedError(str(self.path)) from error
        if (status.st_dev, status.st_ino) != self.place:
            raise MovedError(str(self.path))
        if status.st_size < self.size_bytes or log_bytes < self.log_bytes:
            raise SuspectError(f"{self.path} became shorter", self.path)
        self.size_bytes, self.log_bytes = status.st_size, log_bytes

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size  # noqa: PTH116
        except FileNotFoundError:
            return 0

    def __post_init__(self) -> None:
        self._name = str(self.path)  # texts, as this is done for every transaction
        self._log = str(side_file(self.path, "-wal"))


class Pair:
    """Both files, open; whether they are whole is only looked at as far as that is quick.

    Args:
        path: of the database.
        mirrored: without the mirror, nothing can be written, and rows are held against their checksums alone.

    Raises:
        SuspectError: they have to be made, brought up to this version, or put right first.
        sqlite3.Error: they cannot be opened or read.
    """

    def __init__(self, path: Path, *, mirrored: bool = True) -> None:
        self._second = mirror_of(path)
        self._watched = False
        self._synced = False
        self._behind: tuple[int, int] | None = None  # counts of both, where the mirror did not catch up
        with ExitStack() as stack, locked(path, alone=False):
            self._mirror = _opened(mirror_of(path), stack) if mirrored else None
            # The mirror's count is read first: it is committed last, so that the other's is never below it.
            second = None if self._mirror is None else _looked_at(self._mirror)
            self._main = _opened(path, stack)
            first = _looked_at(self._main)
            if second is not None and (first[0] != second[0] or first[1] < second[1]):
                raise SuspectError("the database is older than its mirror, or another one")
            if second is not None and second[1] < first[1]:
                self._catch_up()
            self._connections = stack.pop_all()

    def _catch_up(self) -> None:
        """Wait for a writer between its two commits; the mirror stays behind where it was killed there."""
        patience_s = time.monotonic() + _OPENING_PATIENCE_S
        while time.monotonic() < patience_s:
            with self.snapshot() as view:
                if view.mirrored:
                    return
            self._behind = None
            time.sleep(_LOOK_AGAIN_S)
        raise SuspectError("the mirror is behind")

    @property
    def main(self) -> sqlite3.Connection:
        """The connection to the database itself."""
        return self._main.connection

    @property
    def mirror(self) -> sqlite3.Connection | None:
        """The connection to the mirror; None without it."""
        return None if self._mirror is None else self._mirror.connection

    def close(self) -> None:
        """Close both; safe to call twice."""
        self._connections.close()

    def check(self) -> None:
        """See ``_File.check``; of both files."""
        self._main.check()
        if self._mirror is not None:
            self._mirror.check()

    def read(self, look: Callable[[Transaction], T]) -> T:
        """Do something that changes nothing, in both files at the same transaction.

        Raises:
            SuspectError: they do not say the same.
        """
        self.check()
        with self.snapshot() as view:
            return look(view)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """Both files at one transaction; the database alone where a killed writer left the mirror behind."""
        mirror = self.mirror
        try:
            if self._mirror is None:
                self.main.execute("BEGIN")
            elif not self._meet(self._mirror):
                mirror = None
            yield Transaction(self.main, mirror, 0, self._second)
        finally:
            self._leave()

    def _meet(self, mirror: _File) -> bool:
        """Begin to read both files at the same transaction; False where the mirror does not get there."""
        patience_s = time.monotonic() + _PATIENCE_S
        self.main.execute("BEGIN")
        identity, count = standing(self.main)
        while True:
            mirror.connection.execute("BEGIN")
            of, followed = standing(mirror.connection)
            if of != identity:
                raise SuspectError(f"{mirror.path} is that of another database")
            if followed == count:
                self._behind = None
                return True
            if followed > count:  # written meanwhile
                self.main.execute("COMMIT")
                self.main.execute("BEGIN")
                identity, count = standing(self.main)
                if count < followed:
                    raise SuspectError("the database is older than its mirror")
                if count == followed and of == identity:
                    return True
            mirror.connection.execute("COMMIT")
            if self._behind == (count, followed) or time.monotonic() > patience_s:
                self._behind = count, followed  # the next who writes puts it right
                return False
            time.sleep(_LOOK_AGAIN_S)

    def _leave(self) -> None:
        for connection in (self.mirror, self.main):
            if connection is not None and connection.in_transaction:
                with suppress(sqlite3.Error):  # what it was that failed is told, not this
                    connection.execute("ROLLBACK")

    def write(self, change: Callable[[Transaction], T], *, synced: bool) -> T:
        """Do something in one transaction.

        Raises:
            SuspectError: there is no mirror, or it is not what it must be; nothing was changed.
        """
        if self._mirror is None:
            raise SuspectError("no mirror")
        mirror = self._mirror.connection
        self._prepare(mirror, synced=synced)
        stored = False
        try:
            self.main.execute("BEGIN IMMEDIATE")
            mirror.execute("BEGIN IMMEDIATE")
            self.check()  # who replaces a file holds the lock of the other: from here on they stay
            there = standing(self.main)
            _same(there, standing(mirror))
            result = change(Transaction(self.main, mirror, there[1] + 1, self._second))
            for connection in (self.main, mirror):
                connection.execute("UPDATE writes SET count = count + 1")
            self.main.execute("COMMIT")
            stored = True
            mirror.execute("COMMIT")
        except BaseException as error:  # a commit that fails, or Ctrl-C anywhere, leaves nothing open
            self._leave()
            if not stored or not isinstance(error, sqlite3.Error):
                raise
            _LOG.warning("%s could not follow, and is put right later: %s", self._mirror.path, error)
        return result

    def _prepare(self, mirror: sqlite3.Connection, *, synced: bool) -> None:
        if synced is not self._synced:
            self.main.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            self._synced = synced
        if not self._watched:
            for connection in (self.main, mirror):
                watch(connection)
            self._watched = True


def _same(first: tuple[str, int], second: tuple[str, int]) -> None:
    if first != second:
        raise SuspectError("the database and its mirror are not at the same transaction")


def _opened(path: Path, stack: ExitStack) -> _File:
    """A file, open and read once, so that its log is open too."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise SuspectError(f"{path} is not there") from error
    if not status.st_size:  # SQLite would remove its log
        raise SuspectError(f"{path} is empty")
    connection = stack.enter_context(closing(connect(path)))
    # A killed process loses nothing; after a power cut the last trials may be measured again.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    return _File(path, connection, (status.st_dev, status.st_ino), status.st_size)


def _looked_at(file: _File) -> tuple[str, int]:
    """Identity and count of a file of this version that is not shorter than it says."""
    if not has_our_tables(file.connection):
        raise SuspectError(f"the tables of {file.path} are not those of this version")
    if cut_off(file.path, file.connection):
        raise SuspectError(f"{file.path} is cut off")
    return standing(file.connection)
