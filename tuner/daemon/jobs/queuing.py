"""Queues what the daemon wants without being asked, each once, and keeps places for what clients ask."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from tuner.daemon.answering.wishes import MOST_WANTED, Wanted, priority, worth_of
from tuner.daemon.desk import NotNowError
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.orders import topic
from tuner.errors import StoreError, TunerError
from tuner.model.jobs import OWN, Job, Kind, Order, Origin, State

_SURELY_MORE = 2.0
"""So many times as much a wish must be worth as one that makes room for it: of two that are used alike,
none drives out the other over and over."""

_WORTH_WRITING = 0.05  # a worth that has changed by a smaller share changes no priority: that is written

_LOG = logging.getLogger(__name__)


class Queuing:
    """What the daemon queues of itself.

    Args:
        board: where jobs go.
        most_waiting: jobs that may wait, those of clients included.
    """

    def __init__(self, board: Board, most_waiting: Callable[[], int]) -> None:
        self._board = board
        self._most_waiting = most_waiting
        self._lock = asyncio.Lock()
        self._wishing = asyncio.Lock()

    async def queue(self, order: Order, origin: Origin, priority: float) -> Job | None:
        """The job that does what the order asks for, queued now if there was none.

        Returns:
            None where it cannot be queued now; it will be wanted again.
        """
        async with self._lock:
            known = self._known(order, origin)
            if known is not None:
                return known
            try:
                job = await self._board.add(
                    order, origin=origin, priority=priority, most_waiting=self._most_waiting()
                )
            except (NotNowError, StoreError) as error:
                _LOG.warning("%s is not queued now: %s", " ".join(order.workloads), error)
                return None
        _LOG.info("job %d queued by the daemon (%s): %s", job.id, origin.value, " ".join(order.workloads))
        return job

    async def wish(self, wanted: Sequence[Wanted]) -> None:
        """Queue what would make answers better or surer, as far as there are places for that.

        At most ``MOST_WANTED`` of the daemon's own jobs wait, and at most half of all that may; where these
        places are taken, the job that is worth least makes room, one at a time.

        Args:
            wanted: the most worthwhile first.
        """
        async with self._wishing:
            await self._wish(wanted, min(MOST_WANTED, self._most_waiting() // 2))

    async def _wish(self, wanted: Sequence[Wanted], places: int) -> None:
        worths = await self._weigh(wanted)
        for one in wanted[:places]:
            if self._known(one.order, one.origin) is not None:
                continue
            if len(worths) >= places:
                if await self._make_room(one, worths):
                    await self.queue(one.order, one.origin, one.priority)
                return
            job = await self.queue(one.order, one.origin, one.priority)
            if job is None:
                return
            worths[job.id] = one.worth_j

    async def _weigh(self, wanted: Sequence[Wanted]) -> dict[int, float]:
        """What each of the daemon's own jobs that wait is worth now; their priorities follow.

        What is not wanted among so many is worth no more than the last that is; where few are wanted, it is
        worth nothing, but keeps its turn.
        """
        least_j = wanted[-1].worth_j if len(wanted) >= MOST_WANTED else 0.0
        own = {job.id: job for job in self._board.jobs if job.origin in OWN and job.state is State.QUEUED}
        before = {number: worth_of(job.priority) for number, job in own.items()}
        worths = {number: min(worth_j, least_j) for number, worth_j in before.items()}
        listed = {job.id: one.worth_j for one in wanted for job in self._alike(one.order, one.topic)}
        worths |= {number: worth_j for number, worth_j in listed.items() if number in own}
        priorities = {
            number: priority(worth_j)
            for number, worth_j in worths.items()
            if (number in listed or least_j)
            and not math.isclose(worth_j, before[number], rel_tol=_WORTH_WRITING)
        }
        try:
            await self._board.prioritise(priorities)
        except StoreError as error:  # at the next look
            _LOG.warning("priorities stay as they are for now: %s", error)
        return worths

    async def _make_room(self, one: Wanted, worths: dict[int, float]) -> bool:
        """Take back the own job that is worth least, where a wish is surely worth more."""
        least = min(worths, key=lambda number: (worths[number], -number), default=None)
        if least is None or one.worth_j <= _SURELY_MORE * worths[least]:
            return False
        try:
            await self._board.change(least, State.CANCELLED, "others are worth more now", of=(State.QUEUED,))
        except TunerError:  # it was taken just now, or the database is busy
            return False
        return True

    def _known(self, order: Order, origin: Origin) -> Job | None:
        """The job that does what an order asks for; one that a client has paused is no promise of an answer.

        A set does not count on the daemon's own job, which goes after everybody's.
        """
        for job in self._alike(order, topic(order)):
            waits_for_client = job.origin is Origin.CLIENT and job.state is State.PAUSED
            gives_way = origin is Origin.SET and job.origin in OWN
            if not waits_for_client and not gives_way:
                return job
        return None

    def _alike(self, order: Order, searched: str) -> list[Job]:
        """Jobs that have not ended and bring what an order asks for."""
        if order.kind is Kind.TUNE:
            return self._board.about(searched)
        job = self._board.like(order)
        return [] if job is None else [job]
