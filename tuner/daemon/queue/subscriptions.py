"""Who listens to which job: events fan out, and nobody who is slow or gone holds up the others.

What attempts tell, on its way to followers: in order, and into the database what is to outlive the day.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from tuner.daemon.interface import NoSuchJobError
from tuner.daemon.queue.storage import Storage
from tuner.errors import JobError, StoreError
from tuner.model.jobs import JobEvent, JobState

_MOST_PROGRESS = 256  # of a follower who does not read; what is told after that is not told to him
_PAGE = 200  # stored events that are read at a time
_MOST_STORED = 256  # after that he reads again from the database
STORED = ("run", "told", "answer")
"""Kinds of events that are stored, beside changes of state: few, and of use to who comes later."""

_MOST_WAITING = 1000  # events; beyond it progress is left out
_RETRY_S = 1.0  # until the database is asked again
_LOG = logging.getLogger(__name__)


class Heard(NamedTuple):
    """What came in since a follower took it last.

    Attributes:
        events: in their order.
        behind: True where stored events were left out: they are to be read from the database.
        closed: True where nothing will come any more.
    """

    events: list[JobEvent]
    behind: bool
    closed: bool


class Follower:
    """The ear of one client."""

    def __init__(self) -> None:
        self._stored = 0
        self._progress = 0
        self._events: deque[JobEvent] = deque()
        self._behind = False
        self._closed = False
        self._come = asyncio.Event()

    def hear(self, event: JobEvent) -> None:
        """Take an event, as far as there is room."""
        if event.id is None:
            if self._progress >= _MOST_PROGRESS:
                return
            self._progress += 1
        else:
            if self._stored >= _MOST_STORED:
                self._behind = True
            if self._behind:
                return
            self._stored += 1
        self._events.append(event)
        self._come.set()

    def miss(self) -> None:
        """Something is stored that was not told."""
        self._behind = True
        self._come.set()

    def close(self) -> None:
        """Say that nothing will come any more."""
        self._closed = True
        self._come.set()

    async def take(self) -> Heard:
        """Wait for events and take all there are."""
        await self._come.wait()
        heard = Heard(list(self._events), self._behind, self._closed)
        self._events.clear()
        self._stored = self._progress = 0
        self._behind = False
        self._come.clear()
        return heard


class Following:
    """Followers by the number of their job."""

    def __init__(self) -> None:
        self._followers: dict[int, set[Follower]] = {}
        self._closed = False

    @property
    def count(self) -> int:
        """How many follow."""
        return sum(map(len, self._followers.values()))

    def follow(self, job: int) -> Follower:
        """Begin to listen; to be given back with ``leave``."""
        follower = Follower()
        if self._closed:
            follower.close()
        self._followers.setdefault(job, set()).add(follower)
        return follower

    def leave(self, job: int, follower: Follower) -> None:
        """Listen no more."""
        followers = self._followers.get(job, set())
        followers.discard(follower)
        if not followers:
            self._followers.pop(job, None)

    def publish(self, event: JobEvent) -> None:
        """Tell all who follow the job."""
        for follower in self._followers.get(event.job, ()):
            follower.hear(event)

    def missed(self, job: int) -> None:
        """Have all who follow the job read it again from the database."""
        for follower in self._followers.get(job, ()):
            follower.miss()

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._closed = True
        for followers in self._followers.values():
            for follower in followers:
                follower.close()


async def follow(
    number: int, after: int, *, following: Following, storage: Storage
) -> AsyncIterator[JobEvent]:
    """Stored events of a job after a number, then all as they happen; ends with the job.

    Raises:
        NoSuchJobError: there is no such job.
        StoreError: the database cannot be used just now.
    """
    follower = following.follow(number)  # first: what happens while it is read is not missed
    try:
        behind = True
        while True:
            if behind:
                ended = await _ended(number, storage)  # asked before they are read: then they are all
                async for event in _stored(number, after, storage):
                    after = max(after, event.id or 0)
                    yield event
                    ended = ended or _is_end(event)
                if ended:
                    return
            heard = await follower.take()
            for event in heard.events:
                if event.id is not None:
                    if event.id <= after:
                        continue
                    after = event.id
                yield event
                if _is_end(event):
                    return
            if heard.closed:
                return
            behind = heard.behind
    finally:
        following.leave(number, follower)


async def _stored(number: int, after: int, storage: Storage) -> AsyncIterator[JobEvent]:
    """Stored events after a number, some at a time."""
    while True:
        page = await storage.read(lambda books, after=after: books.jobs.events(number, after, _PAGE))  # type: ignore[misc]  # bound at once
        for event in page:
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].id or after


async def _ended(number: int, storage: Storage) -> bool:
    """True where nothing will happen any more."""
    job = await storage.read(lambda books: books.jobs.job(number))
    if job is None:
        raise NoSuchJobError(f"there is no job {number}")
    return job.state.ended


def _is_end(event: JobEvent) -> bool:
    return event.kind == "state" and JobState(event.data["state"]).ended


class HandingOn:
    """Hands events on, one after the other.

    Args:
        storage: where some are kept.
        following: who hears them.
    """

    def __init__(self, storage: Storage, following: Following) -> None:
        self._storage = storage
        self._following = following
        self._waiting: deque[tuple[int, str, Mapping[str, Any]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    def tell(self, job: int, kind: str, data: Mapping[str, Any]) -> None:
        """Hand on an event; returns at once."""
        if kind not in STORED and not self._waiting:
            self._following.publish(_progress(job, kind, data))
            return
        if kind not in STORED and len(self._waiting) >= _MOST_WAITING:
            return
        self._waiting.append((job, kind, data))
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._hand_on())

    async def done(self) -> None:
        """Return when all that was told before is handed on, however long the database lets that wait."""
        if self._pump is not None:
            await asyncio.shield(self._pump)

    def close(self) -> None:
        """Hand nothing more on."""
        self._waiting.clear()
        if self._pump is not None:
            self._pump.cancel()

    async def _hand_on(self) -> None:
        try:
            while self._waiting:
                job, kind, data = self._waiting[0]
                event = await self._stored(job, kind, data) if kind in STORED else _progress(job, kind, data)
                self._following.publish(event)
                self._waiting.popleft()
        finally:
            self._pump = None

    async def _stored(self, job: int, kind: str, data: Mapping[str, Any]) -> JobEvent:
        while True:
            try:
                return await self._storage.run(lambda books: books.jobs.event(job, kind, data))
            except StoreError:  # noqa: PERF203 - that is what it is tried again for
                await asyncio.sleep(_RETRY_S)
            except JobError as error:  # those who listen hear it all the same
                _LOG.warning("job %d: %s is not kept: %s", job, kind, error)
                return _progress(job, kind, data)


def _progress(job: int, kind: str, data: Mapping[str, Any]) -> JobEvent:
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return JobEvent(None, job, kind, at, data)
