"""Reads the database through, a few rows at a time, while the daemon has nothing else to do.

Damage that nobody reads would be found on the day when the other file is damaged too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import date, datetime

from tuner.daemon.metrics import Metrics
from tuner.database.integrity.checksums import Examination, IsolatedRow, Position
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import ResourceError, StoreError, StoreFullError
from tuner.system.threads import give_way

_LOG = logging.getLogger(__name__)
_ROWS = 64  # at a time: two milliseconds
_EVERY_S = 5.0
_AGAIN_S = 600.0  # until a backup is tried again that could not be made
_PASS_S = 86_400.0  # no pass begins sooner than so long after the one before
_FEW_REQUESTS = 20  # within _EVERY_S; a daemon that is asked more has other things to read


class Scrub:
    """Verifies rows of the database and tells what was put right, also by others who read it.

    Attributes:
        kept_aside: how many rows neither file has soundly, for people.
        notices: what was put right since the start, for people.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        metrics: Metrics,
        busy: Callable[[], bool],
        refresh: Callable[[], Awaitable[None]],
        wall: Callable[[], datetime],
    ) -> None:
        self.kept_aside: list[str] = []
        self.notices: list[str] = []
        self._storage = storage
        self._metrics = metrics
        self._busy = busy
        self._refresh = refresh
        self._wall = wall
        self._requests = 0
        self._after: Position | None = None
        self._backed_up: date | None = None  # the day that has its backup
        self._repaired = 0
        self._found = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin; belongs to the event loop."""
        loop = asyncio.get_running_loop()

        def note(examination: Examination) -> None:
            loop.call_soon_threadsafe(self._note, examination)

        self._storage.put_right = note
        self._task = loop.create_task(self._run(), name="scrub")

    async def end(self) -> None:
        """Stop."""
        self._storage.put_right = lambda _: None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def asked(self) -> None:
        """A client has asked something."""
        self._requests += 1

    async def _run(self) -> None:
        await self._count_isolated()
        loop = asyncio.get_running_loop()
        begun_s = rests_until_s = again_s = loop.time()
        while True:
            self._requests = 0
            if await self._found_within(self._pause_s(rests_until_s - loop.time())):
                await self._adopt_findings()
                continue
            if (day := self._wall().date()) != self._backed_up and loop.time() >= again_s:
                if await self._back_up(day):
                    self._backed_up = day
                else:
                    again_s = loop.time() + _AGAIN_S
            if loop.time() < rests_until_s:
                continue
            if self._after is None:
                begun_s = loop.time()
            if self._busy() or self._requests > _FEW_REQUESTS:
                continue
            if await self._step():
                self._metrics.database_read.set(self._wall().timestamp())
                rests_until_s = begun_s + _PASS_S

    def _pause_s(self, rest_s: float) -> float:
        """Seconds until the next look, of a rest that lasts so long; a backup that failed is tried again."""
        missing = self._backed_up != self._wall().date()
        return max(_EVERY_S, min(rest_s, _AGAIN_S) if missing else rest_s)

    async def _found_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._found.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    async def _step(self) -> bool:
        """Verify the next rows; True where they were the last ones."""
        after = self._after
        try:
            self._after, examination = await self._storage.run(
                lambda books: books.database.scrub(after, _ROWS)
            )
        except StoreError:  # it is told as a trouble of the database; the same rows are next
            return False
        self._metrics.rows_checked.inc(examination.rows)
        return self._after is None

    async def _back_up(self, day: date) -> bool:
        """Keep a backup of a day, also while a job runs; False to try again."""

        def back_up(books: Repositories) -> bool:
            give_way()  # to clients: the thread is for this alone
            try:
                return books.database.back_up(day)
            except StoreFullError as error:  # the database itself can be used
                _LOG.warning("no backup of the database on %s: %s", day, error)
                return True

        try:
            return await self._storage.aside(back_up)  # a large one takes minutes on a slow disk
        except (StoreError, ResourceError) as error:
            _LOG.warning("no backup of the database on %s yet: %s", day, error)
            return False

    def _note(self, examination: Examination) -> None:
        """Show what was put right; the database has logged it."""
        self._metrics.rows_repaired.inc(len(examination.repaired))
        self._repaired += len(examination.repaired)
        day = self._wall().date().isoformat()
        self.notices = [*examination.rebuilt]
        if self._repaired:
            rows = "1 row was" if self._repaired == 1 else f"{self._repaired} rows were"
            self.notices.append(f"{rows} of the database not sound in one of its files; put right on {day}")
        self._found.set()

    async def _adopt_findings(self) -> None:
        self._found.clear()
        await self._count_isolated()
        await self._refresh()

    async def _count_isolated(self) -> None:
        def isolated(books: Repositories) -> list[IsolatedRow]:
            return books.database.isolated()

        try:
            rows = await self._storage.run(isolated)
        except StoreError:
            return
        self._metrics.rows_isolated.set(len(rows))
        self.kept_aside = []
        if rows:
            what = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
            consequence = "damaged in both files and kept aside; all others are served"
            self.kept_aside = [
                f"{what} {consequence}; `tuner db isolated --output FILE` exports what is left"
            ]
