"""Work that the daemon does by itself: it queues jobs, reads answers again, stores counts, keeps backups."""

import asyncio
import contextlib
import ctypes
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from tuner.daemon.answers.answerer import Answerer, cheapest
from tuner.daemon.answers.replies import answering_run
from tuner.daemon.backlog.backlog import AutoQueue, Backlog
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.shares import GONE_AFTER_S, Budgets
from tuner.daemon.jobs.specs import WITHDRAWN, missing, reprioritised, unwanted, verifies
from tuner.daemon.metrics import Metrics
from tuner.daemon.state import State
from tuner.database.integrity.checksums import Examination, IsolatedRow, Position
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import ResourceError, StoreError, StoreFullError, TunerError
from tuner.model.jobs import FOR_AN_ANSWER, JobState, Origin
from tuner.system.ownership import replace_file
from tuner.system.threads import give_way

CATCHING_UP = 4.0
"""Seconds that are proven at most by one second of running: a machine that runs six hours a day keeps up."""


class ProvenTime:
    """A time that is never later than the wall clock says, and never runs much faster than the machine.

    What is deleted after some days is deleted by this time. A wall clock that is 200 days ahead must be so
    for 50 days of running before 200 days have passed here. After a long time off, what is old is deleted
    later than it might be. It is kept in a file; without one it begins at the newest time that is stored.

    Args:
        path: of the file.
        wall: the wall clock, with its zone.
        running: seconds, also while the machine sleeps.
    """

    def __init__(
        self,
        path: Path,
        wall: Callable[[], datetime],
        running: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._path = path
        self._wall = wall
        self._running = running
        self._looked_s = running()
        self._proven: datetime | None = None

    def advance(self, newest: str) -> datetime:
        """The time that is proven now.

        Args:
            newest: the newest time that was stored, ISO 8601; empty where nothing is.
        """
        now, running_s = self._wall().astimezone(timezone.utc), self._running()
        proven = min(now, self._proven or self._kept() or _read(newest) or now)
        ran_s = max(0.0, running_s - self._looked_s)
        self._looked_s = running_s
        self._proven = min(now, proven + timedelta(seconds=CATCHING_UP * ran_s))
        with contextlib.suppress(OSError):  # a later start proves a little less
            replace_file(self._path, json.dumps({"utc": self._proven.isoformat()}))
        return self._proven

    def _kept(self) -> datetime | None:
        try:
            document = json.loads(self._path.read_text())
        except (OSError, ValueError, RecursionError):
            return None
        return _read(document.get("utc")) if isinstance(document, dict) else None


def _read(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):  # the first or last day of all, in another zone
        return None


_LOG = logging.getLogger(__name__)
_USES_S = 0.5  # uses that a client was told are counted are in the database within a second
_FADED_S = 600.0  # counts that have only faded follow after so long
_SPENT_S = 10.0  # so does what was spent
_BACKLOG_S = 0.2  # from a question to the queue: several at once are looked at together
_SAMPLES_S = 60.0  # whether an answer that is used should be measured again
_FORGET_FIRST_S = 3600.0  # never at the start, whose clock may be wrong
_FORGET_S = 86_400.0
_SETS_S = 600.0  # sets that could not be queued, or that a client's job is doing, are looked at again
_RETRY_S = 2.0  # what the database did not take is tried again
_TRIM_S = 60.0


class Debouncer:
    """Runs actions some time after they are asked for, once for all requests that come until then."""

    def __init__(self) -> None:
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def soon(self, name: str, within_s: float, action: Callable[[], Awaitable[None]]) -> None:
        """Run an action after so many seconds, unless one of this name waits already."""
        if name not in self._timers and not self._closed:
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(within_s, self._begin, name, action)

    def close(self) -> None:
        """Drop the actions that wait."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _begin(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        del self._timers[name]
        task = asyncio.get_running_loop().create_task(self._do(name, action))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        except Exception:  # noqa: BLE001 - an action that fails ends nothing else
            _LOG.exception("%s: unexpected exception", name)


class Maintenance:
    """Background tasks of the daemon, run some time after their cause."""

    def __init__(
        self,
        state: State,
        *,
        storage: Storage,
        board: Board,
        budgets: Budgets,
        answerer: Answerer,
        backlog: Backlog,
        wall: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._storage = storage
        self._board = board
        self._budgets = budgets
        self._answerer = answerer
        self._backlog = backlog
        self._wall = wall
        self._auto_queue = AutoQueue(board, lambda: state.settings.limits.queue)
        self._debouncer = Debouncer()
        self._proven = ProvenTime(storage.path.parent / "proven-time", wall)
        self._storing_uses = False

    async def begin(self) -> None:
        """Read what is stored.

        Raises:
            StoreError: the database cannot be used just now.
        """
        uuids = [identity.uuid for identity in self._state.identities.values()]
        await self._budgets.load(self._wall().date().isoformat(), uuids)
        uses = await self._storage.run(lambda books: books.ledger.uses())
        self._answerer.remember(await self._storage.run(lambda books: books.ledger.analytical()))
        await self.prune()
        self._backlog.uses.restore(uses)
        await self.refresh(None)
        await self.queue_sets()
        self.backlog_may_have_changed()
        self._debouncer.soon("forget", _FORGET_FIRST_S, self._forget)
        self._debouncer.soon("gone", GONE_AFTER_S, self._board.mark_absent)
        self._debouncer.soon("trim", _TRIM_S, self._trim)

    async def end(self) -> None:
        """Write down what was counted."""
        self._debouncer.close()
        await self.flush()

    def used(self) -> None:
        """An answer was used: that is counted, and may be a reason to measure it again."""
        self._debouncer.soon("uses", _USES_S, self._store_uses)
        self._debouncer.soon("flush", _FADED_S, self.flush)
        self._debouncer.soon("samples", _SAMPLES_S, self._queue_candidates)

    def spent(self) -> None:
        """An attempt has cost something."""
        self._debouncer.soon("spent", _SPENT_S, self._store_spending)

    def backlog_may_have_changed(self) -> None:
        """There may be jobs that are worth doing."""
        self._debouncer.soon("backlog", _BACKLOG_S, self._queue_candidates)

    async def refresh(self, names: Sequence[str] | None) -> None:
        """Read answers again that may have changed, and all trained models with all answers.

        Where that fails now, everything is read later.

        Args:
            names: of workloads that run together; None for all answers.
        """
        try:
            index, trained = await self._storage.run(lambda books: self._answerer.read(books.store, names))
        except StoreError:
            self._debouncer.soon("refresh", _RETRY_S, lambda: self.refresh(None))
            return
        self._answerer.take(index, trained, names)
        self._debouncer.soon("sets of new answers", _BACKLOG_S, self.queue_sets)
        await self._drop_answered()

    async def _drop_answered(self) -> None:
        """Take back searches of our own whose question another run has answered meanwhile."""
        for job in tuple(self._board.jobs):
            if job.state is not JobState.QUEUED or job.origin not in FOR_AN_ANSWER:
                continue
            await asyncio.sleep(0)  # questions go first
            run = answering_run(job.spec, self._answerer.snapshot)
            if run is None:
                continue
            with contextlib.suppress(TunerError):  # it was taken just now, or stays until the next look
                await self._board.change(
                    job.id, JobState.CANCELLED, f"answered by run {run}", of=(JobState.QUEUED,)
                )
                _LOG.info("cancelled: answered by run %d", run, extra={"job": job.id})

    async def prune(self) -> None:
        """Remove analytical answers that nobody can be given any more, or that there are too many of."""
        current = self._answerer.forget_outdated()

        def prune(books: Repositories) -> None:
            gone = books.ledger.analytical().keys() - current
            if gone:
                books.ledger.forget_analytical(gone)

        with contextlib.suppress(StoreError):  # they do no harm
            await self._storage.run(prune)

    async def flush(self) -> None:
        """Put what was counted into the database, or do so later."""
        await self._store(self._backlog.uses.take())
        await self._store_spending()

    async def _store_uses(self) -> None:
        """Put new uses into the database, in one transaction."""
        if self._storing_uses:  # a slow disk: the next transaction takes what came meanwhile
            self._debouncer.soon("uses", _USES_S, self._store_uses)
            return
        self._storing_uses = True
        try:
            await self._store(self._backlog.uses.take(used_only=True))
        finally:
            self._storing_uses = False

    async def _store(self, uses: Mapping[str, float]) -> None:
        try:
            await self._storage.run(lambda books: books.ledger.add_uses(uses))
        except StoreError:
            self._backlog.uses.put_back(uses)
            self._debouncer.soon("uses", _RETRY_S, self._store_uses)

    async def _store_spending(self) -> None:
        try:
            await self._budgets.store()
        except StoreError:  # kept
            self._debouncer.soon("spent", _SPENT_S, self._store_spending)

    async def queue_sets(self) -> None:
        """Queue what daemon.toml wants tuned and never was; take back what it wants no more."""
        state = self._state
        try:
            jobs = await self._storage.run(lambda books: books.jobs.jobs(origin=Origin.SET))
        except StoreError:
            self._debouncer.soon("sets", _RETRY_S, self.queue_sets)
            return
        specs, state.troubles["sets"] = missing(state.settings, state.catalog, state.identities, jobs)
        for number in unwanted(state.settings, state.catalog, state.identities, self._board.jobs):
            with contextlib.suppress(TunerError):  # it has ended just now
                await self._board.change(number, JobState.CANCELLED, WITHDRAWN)
        with contextlib.suppress(StoreError):  # at the next look
            await self._board.prioritise(reprioritised(state.settings, state.catalog, self._board.jobs))
        for spec, rank in specs:
            if answering_run(spec, self._answerer.snapshot) is not None:
                continue
            request = cheapest(spec, self._answerer.snapshot)
            if not verifies(request) and self._auto_queue.searched_elsewhere(spec):
                self._debouncer.soon("sets", _SETS_S, self.queue_sets)  # to be verified then
                continue
            job = await self._auto_queue.queue(request, Origin.SET, rank)
            if job is None or job.origin is not Origin.SET:  # a client's, which may be cancelled
                self._debouncer.soon("sets", _SETS_S, self.queue_sets)

    async def _queue_candidates(self) -> None:
        """Queue what would make answers better or surer."""
        while self._backlog.work_out():  # noqa: ASYNC110 - nothing is waited for
            await asyncio.sleep(0)  # questions go first
        await self._auto_queue.propose(self._backlog.candidates())

    async def _trim(self) -> None:
        """Give memory back: pages of the database, else kept for ever, and what is free in the heap."""
        self._debouncer.soon("trim", _TRIM_S, self._trim)
        for thread in (self._storage.run, self._storage.read):
            with contextlib.suppress(StoreError):
                await thread(lambda books: books.database.shrink())
        with contextlib.suppress(AttributeError):  # not of the GNU C library
            await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)

    async def _forget(self) -> None:
        """Remove jobs that ended long ago, by what time is proven."""
        self._debouncer.soon("forget", _FORGET_S, self._forget)
        keep = timedelta(days=self._state.settings.limits.keep_days)

        def forget(books: Repositories) -> tuple[int, datetime]:
            newest = books.jobs.jobs(limit=1)
            before = self._proven.advance(newest[0].created_at if newest else "") - keep
            return books.jobs.forget(before), before

        with contextlib.suppress(StoreError):  # at the next look
            count, before = await self._storage.run(forget)
            if count:
                _LOG.info("%d jobs that ended before %s are listed no more", count, before.date())


# --- The database, read through a few rows at a time while nothing else is to be done, and backed up.
#
# Damage that nobody reads would be found on the day when the other file is damaged too.

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
