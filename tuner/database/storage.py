"""The database in threads, for an event loop; it reconnects after errors.

One thread writes. Another reads for clients: SQLite reads while a process holds the write lock, however long.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tuner.database.connection import Database
from tuner.database.integrity.checksums import Examination
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.errors import StoreBusyError, StoreError, StoreFullError
from tuner.system.threads import StartedThreads

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0  # a disk with room again is found after so long at the latest


@dataclass(frozen=True)
class Repositories:
    """The open database and its tables; they belong to one of its threads."""

    database: Database
    jobs: Jobs
    ledger: Ledger
    store: Store


class Storage:
    """A database that may be locked, full or damaged for a while.

    Args:
        path: of the file.
        guard: called before every action, in the thread that does it; raises StoreError where the directory
            is not what it was: a database that is gone must not be made anew unnoticed.
        pause_s: after a wait for another process: calls that queued behind it do not wait as long again.

    Attributes:
        failed: called in a thread of the database each time that it cannot be used.
        put_right: called in a thread of the database with what was wrong, each time that it was put right.
        closed: True when its threads have nothing more to do.

    Raises:
        ResourceError: its threads cannot be made just now.
    """

    def __init__(self, path: Path, guard: Callable[[], None] = lambda: None, *, pause_s: float = 1.0) -> None:
        self.path = path
        self.closed = False
        self.failed: Callable[[], None] = lambda: None
        self.put_right: Callable[[Examination], None] = lambda _: None
        self._guard = guard
        self._pause_s = pause_s
        self._writer = self._thread("database", examines=True)
        self._reader = self._thread("reader", examines=False)

    @property
    def trouble(self) -> str:
        """The last error; empty while the database can be used."""
        return self._writer.trouble or self._reader.trouble

    @property
    def silent_s(self) -> float:
        """Seconds since the action began that runs now in one of the threads; 0 where none runs."""
        return max(self._writer.silent_s, self._reader.silent_s)

    async def run(self, action: Callable[[Repositories], T]) -> T:
        """Do something in the writing thread.

        While another process is known to hold the database, one call at a time waits for it; others fail.

        Raises:
            StoreError: the database cannot be used just now.
        """
        return await self._writer.run(action)

    async def read(self, action: Callable[[Repositories], T]) -> T:
        """Read something without waiting for what is written.

        Raises:
            StoreError: the database cannot be used just now.
        """
        return await self._reader.run(action)

    async def aside(self, action: Callable[[Repositories], T]) -> T:
        """Do something that takes long in a thread of its own, which no reader or writer waits for.

        It does not count as silent, however long it takes.

        Raises:
            StoreError: the database cannot be used just now.
            ResourceError: there is no thread for it just now.
        """
        thread = self._thread("aside", examines=False)
        try:
            return await thread.run(action)
        finally:
            await thread.close()

    async def insist(self, action: Callable[[Repositories], T]) -> T:
        """Do something in the writing thread, and retry until that succeeds."""
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                return await self.run(action)
            except StoreError as error:
                _LOG.warning("tried again in %g s: %s", wait_s, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def retry(self) -> None:
        """Check whether a database that could not be used can be used again."""
        for thread in (self._writer, self._reader):
            if thread.trouble:
                with contextlib.suppress(StoreError):
                    await thread.run(lambda _: None)

    async def close(self) -> None:
        """Close the file, after everything that was asked for before."""
        await self._writer.close()
        await self._reader.close()
        self.closed = True

    def _thread(self, name: str, *, examines: bool) -> "_DatabaseThread":
        opened = partial(Database, self.path, self._put_right)
        return _DatabaseThread(
            opened, name, self._fail, self._guard, examines=examines, pause_s=self._pause_s
        )

    def _fail(self) -> None:
        self.failed()

    def _put_right(self, examination: Examination) -> None:
        self.put_right(examination)


class _DatabaseThread:
    """A thread with the database open in it.

    Args:
        opened: opens the database.
        name: of the thread.
        failed: called in it each time that the database cannot be used.
        guard: called before every action.
        examines: read the files whole before they are first used: damage that no reader meets would be found
            when the other file is needed.
        pause_s: after a wait for another process, in which calls fail.

    Attributes:
        trouble: the last error; empty while the database can be used.
    """

    def __init__(
        self,
        opened: Callable[[], Database],
        name: str,
        failed: Callable[[], None],
        guard: Callable[[], None],
        *,
        examines: bool,
        pause_s: float,
    ) -> None:
        self._pause_s = pause_s
        self.trouble = ""
        self._opened = opened
        self._failed = failed
        self._guard = guard
        self._examines = examines
        self._repositories: Repositories | None = None
        self._thread = StartedThreads(1, name)
        self._begun_s: float | None = None  # of the action that runs now
        self._busy_s: float | None = None  # when a wait for another process failed last

    @property
    def silent_s(self) -> float:
        """Seconds since the action began that runs now; 0 where none runs."""
        begun_s = self._begun_s
        return 0.0 if begun_s is None else time.monotonic() - begun_s

    async def run(self, action: Callable[[Repositories], T]) -> T:
        """Do something in the thread.

        Raises:
            StoreError: the database cannot be used just now.
        """
        asked_s, busy_s = time.monotonic(), self._busy_s
        if busy_s is not None and (self._begun_s is not None or asked_s < busy_s + self._pause_s):
            raise StoreBusyError(self.trouble)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, action, asked_s)

    async def close(self) -> None:
        """Close the file, after everything that was asked for before."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _do(self, action: Callable[[Repositories], T], asked_s: float) -> T:
        if self._busy_s is not None and asked_s <= self._busy_s:  # it has waited for the same process already
            raise StoreBusyError(self.trouble)
        self._begun_s = time.monotonic()
        try:
            self._guard()
            value = action(self._open())
        except MemoryError as error:
            short = StoreError("no memory is left for the database")
            self._note(short)
            raise short from error
        except StoreError as error:
            self._note(error)
            raise
        finally:
            self._begun_s = None
        if self.trouble:
            _LOG.warning("the database can be used again")
        self.trouble, self._busy_s = "", None
        return value

    def _open(self) -> Repositories:
        """The open database, after a check that its lock can be had where it could not be had before."""
        if self._repositories is None:
            database = self._opened()
            self._repositories = Repositories(database, Jobs(database), Ledger(database), Store(database))
        if self._examines:
            self._repositories.database.examine()
            self._examines = False
        elif self._busy_s is not None:
            self._repositories.database.write(lambda _: None)  # a read would not test the lock
        return self._repositories

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
        repositories, self._repositories = self._repositories, None
        if repositories is not None:
            with contextlib.suppress(StoreError):
                repositories.database.close()
