"""The database as the daemon uses it: by threads of its own, and again when it could not be used.

One thread writes, and does whatever the daemon does in one go. Another one reads for clients: SQLite lets it
read while a process holds the write lock, however long.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tuner.database import Database, Jobs, Ledger, Store
from tuner.errors import StoreBusyError, StoreError, StoreFullError

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0  # a disk with room again is found after so long at the latest
_REST_S = 1.0  # after a wait for another process: who queued behind it is not made to wait as long again
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Books:
    """What is in the database, for those who are in one of its threads."""

    database: Database
    jobs: Jobs
    ledger: Ledger
    store: Store


class Storage:
    """A database that may be locked, full or damaged for a while.

    Args:
        path: of the file.

    Attributes:
        failed: called in a thread of the database each time that it cannot be used.
        closed: True when its threads have nothing more to do.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self.failed: Callable[[], None] = lambda: None
        self._writer = _Hand(path, "database", self._fail, examines=True)
        self._reader = _Hand(path, "reader", self._fail, examines=False)

    @property
    def trouble(self) -> str:
        """Why it could not be used last; empty while it can."""
        return self._writer.trouble or self._reader.trouble

    @property
    def silent_s(self) -> float:
        """How long what is done in one of its threads has taken so far, in seconds; 0 where nothing is."""
        return max(self._writer.silent_s, self._reader.silent_s)

    async def run(self, action: Callable[[Books], T]) -> T:
        """Do something in the database's thread.

        While another process is known to hold the database, one call at a time waits for it; others fail.

        Raises:
            StoreError: the database cannot be used just now.
        """
        return await self._writer.run(action)

    async def read(self, action: Callable[[Books], T]) -> T:
        """Do something that changes nothing, for somebody who shall not wait for what is written.

        Raises:
            StoreError: the database cannot be used just now.
        """
        return await self._reader.run(action)

    async def insist(self, action: Callable[[Books], T]) -> T:
        """Do something in the database's thread, however long it takes until that is possible."""
        waits_s = _FIRST_WAIT_S
        while True:
            try:
                return await self.run(action)
            except StoreError as error:
                _LOG.warning("tried again in %g s: %s", waits_s, error)
            await asyncio.sleep(waits_s)
            waits_s = min(2 * waits_s, _LONGEST_WAIT_S)

    async def look(self) -> None:
        """See whether a database that could not be used can be used again."""
        for hand in (self._writer, self._reader):
            if hand.trouble:
                with contextlib.suppress(StoreError):
                    await hand.run(lambda _: None)

    async def close(self) -> None:
        """Close the file, after everything that was asked for before."""
        await self._writer.close()
        await self._reader.close()
        self.closed = True

    def _fail(self) -> None:
        self.failed()


class _Hand:
    """A thread with the database open in it.

    Args:
        path: of the file.
        name: of the thread.
        failed: called in it each time that the database cannot be used.
        examines: read the files whole before they are first used: damage that no reader meets would be found
            when the other file is needed.

    Attributes:
        trouble: why the database could not be used last; empty while it can.
    """

    def __init__(self, path: Path, name: str, failed: Callable[[], None], *, examines: bool) -> None:
        self.trouble = ""
        self._path = path
        self._failed = failed
        self._examines = examines
        self._books: Books | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._begun_s: float | None = None  # what is done now
        self._busy_s: float | None = None  # when another process was last waited for in vain

    @property
    def silent_s(self) -> float:
        """How long what is done now has taken so far, in seconds."""
        begun_s = self._begun_s
        return 0.0 if begun_s is None else time.monotonic() - begun_s

    async def run(self, action: Callable[[Books], T]) -> T:
        """Do something in the thread.

        Raises:
            StoreError: the database cannot be used just now.
        """
        asked_s, busy_s = time.monotonic(), self._busy_s
        if busy_s is not None and (self._begun_s is not None or asked_s < busy_s + _REST_S):
            raise StoreBusyError(self.trouble)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, action, asked_s)

    async def close(self) -> None:
        """Close the file, after everything that was asked for before."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _do(self, action: Callable[[Books], T], asked_s: float) -> T:
        if self._busy_s is not None and asked_s <= self._busy_s:  # it has waited for the same process already
            raise StoreBusyError(self.trouble)
        self._begun_s = time.monotonic()
        try:
            value = action(self._ready())
        except StoreError as error:
            self._note(error)
            raise
        finally:
            self._begun_s = None
        if self.trouble:
            _LOG.warning("the database can be used again")
        self.trouble, self._busy_s = "", None
        return value

    def _ready(self) -> Books:
        """The open database; its lock can be had where it could not be had before."""
        if self._books is None:
            database = Database(self._path)
            self._books = Books(database, Jobs(database), Ledger(database), Store(database))
        if self._examines:
            self._books.database.examine()
            self._examines = False
        elif self._busy_s is not None:
            self._books.database.write(lambda _: None)  # a read would say nothing of it
        return self._books

    def _note(self, error: StoreError) -> None:
        if not self.trouble:
            _LOG.error("the database cannot be used: %s", error)
        self.trouble = str(error)
        busy = isinstance(error, StoreBusyError)
        self._busy_s = time.monotonic() if busy else None
        self._failed()
        if not busy and not isinstance(error, StoreFullError):
            self._drop()  # opening it again heals what can be healed

    def _drop(self) -> None:
        books, self._books = self._books, None
        if books is not None:
            with contextlib.suppress(StoreError):
                books.database.close()
