"""What the daemon does on its own: it reads answers again, writes down counts, and queues what is wanted."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tuner.daemon.answering.answerer import Answerer
from tuner.daemon.chores import Chores
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.queuing import Queuing
from tuner.daemon.jobs.sets import WITHDRAWN, missing, reordered, unwanted
from tuner.daemon.jobs.storage import Books, Storage
from tuner.daemon.lanes.budgets import Budgets
from tuner.daemon.situation import Situation
from tuner.errors import StoreError, TunerError
from tuner.model.jobs import FOR_AN_ANSWER, Origin, State

_FLUSH_S = 10.0  # what was counted is in the database after so long
_WISH_S = 0.2  # from a question to the queue: several at once are looked at together
_SAMPLES_S = 60.0  # whether an answer that is used should be measured again
_FORGET_S = 86_400.0
_SETS_S = 600.0  # sets that could not be queued, or that a client's job is doing, are looked at again
_RETRY_S = 2.0  # what the database did not take is tried again
_LOG = logging.getLogger(__name__)


class Upkeep:
    """Chores, each done some time after there was a reason.

    Args:
        situation: settings and kernels.
        storage: the database.
        board: of jobs.
        budgets: what was spent.
        answerer: what is known.
        wall: local time.
    """

    def __init__(
        self,
        situation: Situation,
        *,
        storage: Storage,
        board: Board,
        budgets: Budgets,
        answerer: Answerer,
        wall: Callable[[], datetime],
    ) -> None:
        self._situation = situation
        self._storage = storage
        self._board = board
        self._budgets = budgets
        self._answerer = answerer
        self._wall = wall
        self._queuing = Queuing(board, lambda: situation.settings.limits.queue)
        self._chores = Chores()

    async def begin(self) -> None:
        """Know what is stored.

        Raises:
            StoreError: the database cannot be used just now.
        """
        uuids = [identity.uuid for identity in self._situation.identities.values()]
        await self._budgets.load(self._wall().date().isoformat(), uuids)
        uses = await self._storage.run(lambda books: books.ledger.uses())
        self._answerer.remember(await self._storage.run(lambda books: books.ledger.analytical()))
        await self.prune()
        self._answerer.restore_uses(uses)
        await self.refresh(None)
        await self.queue_sets()
        self.wishes_may_have_changed()
        await self._forget()

    async def end(self) -> None:
        """Write down what was counted."""
        self._chores.close()
        await self.flush()

    def used(self) -> None:
        """An answer was used: that is counted, and may be a reason to measure it again."""
        self._chores.soon("flush", _FLUSH_S, self.flush)
        self._chores.soon("samples", _SAMPLES_S, self._queue_wanted)

    def spent(self) -> None:
        """An attempt has cost something."""
        self._chores.soon("flush", _FLUSH_S, self.flush)

    def wishes_may_have_changed(self) -> None:
        """There may be jobs that are worth doing."""
        self._chores.soon("wishes", _WISH_S, self._queue_wanted)

    async def refresh(self, names: Sequence[str] | None) -> None:
        """Read answers again that may have changed; where that fails now, all of them later.

        Args:
            names: of workloads that run together; None for all answers.
        """
        try:
            read = await self._storage.run(lambda books: self._answerer.read(books.store, names))
        except StoreError:
            self._chores.soon("refresh", _RETRY_S, lambda: self.refresh(None))
            return
        self._answerer.take(read, names)
        await self._drop_answered()

    async def _drop_answered(self) -> None:
        """Take back searches of our own whose question another run has answered meanwhile."""
        for job in tuple(self._board.jobs):
            if job.state is not State.QUEUED or job.origin not in FOR_AN_ANSWER:
                continue
            await asyncio.sleep(0)  # questions go first
            run = self._answerer.answered(job.order)
            if run is None:
                continue
            with contextlib.suppress(TunerError):  # it was taken just now, or stays until the next look
                await self._board.change(
                    job.id, State.CANCELLED, f"answered by run {run}", of=(State.QUEUED,)
                )
                _LOG.info("cancelled: answered by run %d", run, extra={"job": job.id})

    async def prune(self) -> None:
        """Remove analytical answers that nobody can be given any more, or that there are too many of."""
        kept = self._answerer.forget_outdated()

        def prune(books: Books) -> None:
            gone = books.ledger.analytical().keys() - kept
            if gone:
                books.ledger.forget_analytical(gone)

        with contextlib.suppress(StoreError):  # they do no harm
            await self._storage.run(prune)

    async def flush(self) -> None:
        """Put what was counted into the database, or do so later."""
        uses = self._answerer.take_uses()
        try:
            await self._storage.run(lambda books: books.ledger.add_uses(uses))
        except StoreError:
            self._answerer.put_back_uses(uses)
            self._chores.soon("flush", _FLUSH_S, self.flush)
            return
        with contextlib.suppress(StoreError):  # kept, and stored with what is spent next
            await self._budgets.store()

    async def queue_sets(self) -> None:
        """Queue what daemon.toml wants tuned and never was; take back what it wants no more."""
        situation = self._situation
        try:
            known = await self._storage.run(lambda books: books.jobs.jobs())
        except StoreError:
            self._chores.soon("sets", _RETRY_S, self.queue_sets)
            return
        orders, situation.troubles["sets"] = missing(
            situation.settings, situation.catalog, situation.devices, known
        )
        for number in unwanted(situation.settings, situation.catalog, situation.devices, self._board.jobs):
            with contextlib.suppress(TunerError):  # it has ended just now
                await self._board.change(number, State.CANCELLED, WITHDRAWN)
        with contextlib.suppress(StoreError):  # at the next look
            await self._board.prioritise(reordered(situation.settings, situation.catalog, self._board.jobs))
        for order, priority in orders:
            if self._answerer.answered(order) is not None:
                continue
            job = await self._queuing.queue(order, Origin.SET, priority)
            if job is None or job.origin is not Origin.SET:  # a client's, which may be cancelled
                self._chores.soon("sets", _SETS_S, self.queue_sets)

    async def _queue_wanted(self) -> None:
        """Queue what would make answers better or surer."""
        while self._answerer.work_out():  # noqa: ASYNC110 - nothing is waited for
            await asyncio.sleep(0)  # questions go first
        await self._queuing.wish(self._answerer.wanted())

    async def _forget(self) -> None:
        """Remove jobs that ended long ago."""
        before = self._wall() - timedelta(days=self._situation.settings.limits.keep_days)
        try:
            count = await self._storage.run(lambda books: books.jobs.forget(before))
        except StoreError:
            count = 0
        if count:
            _LOG.info("%d jobs that ended before %s are listed no more", count, before.date())
        self._chores.soon("forget", _FORGET_S, self._forget)
