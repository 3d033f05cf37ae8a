"""Records beside runs (uses, analytical answers, models, samples, costs), and the database in threads."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import NotUnderstood
from tuner.database.files import now
from tuner.database.integrity.checksums import Examination, verified
from tuner.database.jobs import Jobs
from tuner.database.runs import Store
from tuner.database.transaction import Transaction
from tuner.model.errors import StoreBusyError, StoreError, StoreFullError
from tuner.model.records import canonical
from tuner.model.run_document import AnalyticalDocument, SampleDocument
from tuner.system.threads import StartedThreads

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_NOTHING = 1e-6  # of a count: what rounding leaves of one that has faded


class Ledger:
    """Small things that outlive the daemon. What is not understood stays as it is, and is left out.

    Raises:
        StoreError: (any method) the database cannot be used; ``Database`` names the kinds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told: set[NotUnderstood] = set()

    def add_uses(self, uses: Mapping[str, float]) -> None:
        """Add to the counts of uses of answers, by key; all or none. A count that falls to nothing goes."""

        def change(transaction: Transaction) -> None:
            transaction.execute_many(
                "INSERT INTO uses (key, count) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET count = count + excluded.count",
                list(uses.items()),
            )
            transaction.execute("DELETE FROM uses WHERE count < ?", (_NOTHING,))

        if uses:
            self._database.write(change)

    def uses(self) -> dict[str, float]:
        """All uses so far, by key."""
        statement = f"SELECT key, count FROM uses WHERE {verified('uses')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement))
        found = {key: self._known(decoding.amount("use of an answer", key, count)) for key, count in rows}
        return {key: amounts[0] for key, amounts in found.items() if amounts is not None}

    def remember_analytical(self, key: str, document: AnalyticalDocument) -> None:
        """Keep an analytical answer; an earlier one of the same key is replaced."""
        text = canonical(document)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO analytical (key, document) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET document = excluded.document",
                (key, text),
            )
        )

    def analytical(self) -> dict[str, AnalyticalDocument]:
        """All analytical answers, by key."""
        statement = f"SELECT key, document FROM analytical WHERE {verified('analytical')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement))
        found = {key: self._known(decoding.analytical(key, text)) for key, text in rows}
        return {key: document for key, document in found.items() if document is not None}

    def analytical_answer(self, key: str) -> AnalyticalDocument | None:
        """The analytical answer of a key; None without one."""
        statement = f"SELECT document FROM analytical WHERE key = ? AND {verified('analytical')}"  # noqa: S608
        row = self._database.read(lambda view: view.row(statement, (key,)))
        return None if row is None else self._known(decoding.analytical(key, row[0]))

    def forget_analytical(self, keys: Collection[str]) -> None:
        """Remove analytical answers by their keys."""
        self._database.write(
            lambda transaction: transaction.execute_many(
                "DELETE FROM analytical WHERE key = ?", [(key,) for key in keys]
            )
        )

    def remember_model(self, kernel: str, key: str, document: Mapping[str, Any]) -> None:
        """Keep a trained model of a kernel; an earlier one of the same key is replaced."""
        text = canonical(document)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO models (kernel, key, document) VALUES (?, ?, ?)"
                " ON CONFLICT (kernel, key) DO UPDATE SET document = excluded.document",
                (kernel, key, text),
            )
        )

    def models(self, kernel: str) -> list[dict[str, Any]]:
        """All trained models of a kernel."""
        statement = f"SELECT document FROM models WHERE kernel = ? AND {verified('models')} ORDER BY key"  # noqa: S608
        rows = self._database.read(lambda view: view.rows(statement, (kernel,)))
        found = (self._known(decoding.model(kernel, text)) for (text,) in rows)
        return [document for document in found if document is not None]

    def add_sample(self, run_id: int, document: SampleDocument) -> None:
        """Keep what measuring the answer of a run again has given."""
        text = json.dumps(document, allow_nan=False)
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO samples (run_id, at, document) VALUES (?, ?, ?)", (run_id, now(), text)
            )
        )

    def samples(self, run_id: int) -> list[SampleDocument]:
        """All samples of a run's answer, oldest first; ``at`` of each is when it was stored (UTC)."""
        statement = (
            "SELECT id, at, document FROM samples WHERE run_id = ?"  # noqa: S608 - constant text of this module
            f" AND {verified('samples')} ORDER BY id"
        )
        rows = self._database.read(lambda view: view.rows(statement, (run_id,)))
        return [one for row in rows if (one := self._known(decoding.sample(*row))) is not None]

    def spend(self, day: str, device_uuid: str, seconds: float, joules: float) -> None:
        """Add to what tuning has cost on a day (ISO 8601) on a GPU."""
        self._database.write(
            lambda transaction: transaction.execute(
                "INSERT INTO spending (day, device_uuid, seconds, joules) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (day, device_uuid) DO UPDATE"
                " SET seconds = seconds + excluded.seconds, joules = joules + excluded.joules",
                (day, device_uuid, seconds, joules),
            )
        )

    def spent(self, day: str, device_uuid: str) -> tuple[float, float]:
        """Seconds and joules that tuning has cost on a day on a GPU."""
        statement = (
            "SELECT seconds, joules FROM spending WHERE day = ? AND device_uuid = ?"  # noqa: S608
            f" AND {verified('spending')}"
        )
        row = self._database.read(lambda view: view.row(statement, (day, device_uuid)))
        found = None if row is None else self._known(decoding.amount("spending", day, *row))
        return (0.0, 0.0) if found is None else (found[0], found[1])

    def _known(self, found: T | NotUnderstood) -> T | None:
        """Return a decoded value; None for one that cannot be decoded, which is logged once."""
        if not isinstance(found, NotUnderstood):
            return found
        if found not in self._told:
            self._told.add(found)
            _LOG.warning("%s", found)
        return None


# --- The database in threads, for an event loop; it reconnects after errors.
#
# One thread writes. Another reads for clients: SQLite reads while a process holds the write lock, however
# long.

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0  # a disk with room again is found after so long at the latest
_PAUSE_S = 1.0  # after a wait for another process: calls that queued behind it do not wait as long again


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

    Attributes:
        failed: called in a thread of the database each time that it cannot be used.
        put_right: called in a thread of the database with what was wrong, each time that it was put right.
        closed: True when its threads have nothing more to do.

    Raises:
        ResourceError: its threads cannot be made just now.
    """

    def __init__(self, path: Path, guard: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.closed = False
        self.failed: Callable[[], None] = lambda: None
        self.put_right: Callable[[Examination], None] = lambda _: None
        self._guard = guard
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
        return _DatabaseThread(opened, name, self._fail, self._guard, examines=examines)

    def _fail(self) -> None:
        self.failed()

    def _put_right(self, found: Examination) -> None:
        self.put_right(found)


class _DatabaseThread:
    """A thread with the database open in it.

    Args:
        opened: opens the database.
        name: of the thread.
        failed: called in it each time that the database cannot be used.
        guard: called before every action.
        examines: read the files whole before they are first used: damage that no reader meets would be found
            when the other file is needed.

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
    ) -> None:
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
        if busy_s is not None and (self._begun_s is not None or asked_s < busy_s + _PAUSE_S):
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
