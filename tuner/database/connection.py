"""The database, open: whole transactions, and errors of this package."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import platformdirs

from tuner.database.faults import BUSY_TIMEOUT_S, advice, translated
from tuner.database.migrations import MIGRATIONS
from tuner.errors import StoreDamagedError, StoreError

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
Values = Sequence[object]
Row = tuple[Any, ...]


def default_path() -> Path:
    """Where results are kept: ``tuner/tuner.db`` in the user's state directory (``$XDG_STATE_HOME``)."""
    return platformdirs.user_state_path("tuner") / "tuner.db"


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class Transaction:
    """What may be done inside a transaction."""

    def __init__(self, main: sqlite3.Connection) -> None:
        self._main = main

    def rows(self, statement: str, values: Values = ()) -> list[Row]:
        """All rows of a query."""
        return self._main.execute(statement, values).fetchall()

    def row(self, statement: str, values: Values = ()) -> Row | None:
        """The first row of a query."""
        found: Row | None = self._main.execute(statement, values).fetchone()
        return found

    def execute(self, statement: str, values: Values = ()) -> int:
        """Change something.

        Returns:
            The number of the row that was inserted last, whatever the statement was.
        """
        return self._main.execute(statement, values).lastrowid or 0

    def execute_many(self, statement: str, values: Iterable[Values]) -> None:
        """Change something once for each tuple of values."""
        self._main.executemany(statement, values)

    def writes(self) -> int:
        """Number of this transaction: higher than that of every earlier one, whatever the clocks say."""
        row = self.row("SELECT count FROM writes")
        return 0 if row is None else int(row[0]) + 1


class Database:
    """The file, open. A context manager; one thread uses it, one process may hold several.

    Raises:
        StoreBusyError: (any method) another process held it for too long.
        StoreFullError: the disk is full; nothing was changed.
        StoreDamagedError: the file is damaged, or not a database of this program.
        StoreReadOnlyError: this user may not write it.
        StoreError: anything else; the message says what, and what to do.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the directory of {self.path}: {error.strerror}") from error
        try:
            self._main = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        try:
            self._main.execute("PRAGMA journal_mode = WAL")
            # A killed process loses nothing; after a power cut the last trials may be measured again.
            self._main.execute("PRAGMA synchronous = NORMAL")
            self._main.execute("PRAGMA foreign_keys = ON")
            self._migrate()
        except sqlite3.Error as error:
            self._main.close()
            raise translated(error, self.path) from error
        except BaseException:
            self._main.close()
            raise

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._main.close()

    def read(self, look: Callable[[Transaction], T]) -> T:
        """Do something that changes nothing."""
        try:
            return look(Transaction(self._main))
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def write(self, change: Callable[[Transaction], T]) -> T:
        """Do something in one transaction: durable when this returns, undone when anything is raised."""
        try:
            self._main.execute("BEGIN IMMEDIATE")
            result = change(Transaction(self._main))
            self._main.execute("UPDATE writes SET count = count + 1")
            self._main.execute("COMMIT")
        except BaseException as error:  # a commit that fails, or Ctrl-C anywhere, leaves nothing open
            if self._main.in_transaction:
                self._main.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise translated(error, self.path) from error
            raise
        return result

    def decoded(self, text: str) -> dict[str, Any]:
        """The object of a stored JSON text.

        Raises:
            StoreDamagedError: it is none.
        """
        try:
            value = json.loads(text)
        except ValueError as error:
            raise StoreDamagedError(f"{self.path}: a record is not JSON; {advice(self.path)}") from error
        if not isinstance(value, dict):
            raise StoreDamagedError(f"{self.path}: a record is not an object; {advice(self.path)}")
        return value

    def _migrate(self) -> None:
        try:
            self._main.execute("BEGIN IMMEDIATE")
            self._main.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT)")
            applied = {name for (name,) in self._main.execute("SELECT name FROM migrations")}
            for name, statements in MIGRATIONS:
                if name in applied:
                    continue
                for statement in statements:
                    self._main.execute(statement)
                self._main.execute("INSERT INTO migrations VALUES (?, ?)", (name, now()))
            unknown = applied - {name for name, _ in MIGRATIONS}
            if unknown:
                raise StoreError(
                    f"{self.path} was written by a newer tuner (migrations {', '.join(sorted(unknown))});"
                    " upgrade tuner or name another file with --database"
                )
            self._main.execute("COMMIT")
        finally:
            if self._main.in_transaction:
                self._main.execute("ROLLBACK")
