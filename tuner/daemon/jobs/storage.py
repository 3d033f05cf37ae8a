"""The database as the daemon uses it: by one thread of its own, and again when it could not be used."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tuner.database import Database, Jobs, Ledger, Store
from tuner.errors import StoreError

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0  # a disk with room again is found after so long at the latest
_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Books:
    """What is in the database, for those who are in its thread."""

    database: Database
    jobs: Jobs
    ledger: Ledger
    store: Store


class Storage:
    """A database that may be locked, full or damaged for a while.

    Args:
        path: of the file.

    Attributes:
        trouble: why it could not be used last; empty while it can.
        failed: called in its thread each time that it cannot be used.
        closed: True when its thread has nothing more to do.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        self.closed = False
        self.failed: Callable[[], None] = lambda: None
        self._books: Books | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")

    async def run(self, action: Callable[[Books], T]) -> T:
        """Do something in the database's thread.

        Raises:
            StoreError: the database cannot be used just now.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, action)

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

    async def close(self) -> None:
        """Close the file, after everything that was asked for before."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)
        self.closed = True

    def _do(self, action: Callable[[Books], T]) -> T:
        try:
            if self._books is None:
                self._books = self._open()
            value = action(self._books)
        except StoreError as error:
            if not self.trouble:
                _LOG.error("the database cannot be used: %s", error)
            self.trouble = str(error)
            self.failed()
            self._drop()  # opening it again heals what can be healed
            raise
        if self.trouble:
            _LOG.warning("the database can be used again")
        self.trouble = ""
        return value

    def _open(self) -> Books:
        database = Database(self.path)
        database.examine()  # damage that no reader meets would be found when the other file is needed
        return Books(database, Jobs(database), Ledger(database), Store(database))

    def _drop(self) -> None:
        books, self._books = self._books, None
        if books is not None:
            with contextlib.suppress(StoreError):
                books.database.close()
