"""Events of jobs: stored where they are to last, then sent to subscribers.

A subscriber that is slow or gone delays no other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from tuner.daemon.interface import NoSuchJobError
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import JobError, StoreError, UnknownJobError
from tuner.model.jobs import ENDED, Event, Job

_MOST_PROGRESS = 256  # events in the buffer of a subscriber that does not read; later ones are dropped
_MOST_STORED = 256  # likewise; later ones are read from the database
_PAGE = 200  # stored events that are read at a time
STORED = ("run", "told", "answer")
"""Kinds of events that are stored, beside changes of state: few, and of use to later subscribers."""

_MOST_WAITING = 1000  # events in the pump; beyond it progress is dropped
_RETRY_S = 1.0  # until the database is asked again
_LOG = logging.getLogger(__name__)


E = TypeVar("E")


class Subscription(Generic[E]):
    """The event buffer of one client."""

    def __init__(self) -> None:
        self._stored = 0
        self._progress = 0
        self._events: deque[E] = deque()
        self._behind = False
        self._closed = False
        self._ready = asyncio.Event()

    def put(self, event: E, *, stored: bool) -> None:
        """Add an event, as far as there is room; of those that are not stored, some may be missed."""
        if not stored:
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
        self._ready.set()

    def miss(self) -> None:
        """Note that an event is stored that was not sent."""
        self._behind = True
        self._ready.set()

    def close(self) -> None:
        """Note that no more will come."""
        self._closed = True
        self._ready.set()

    async def take(self) -> tuple[list[E], bool, bool]:
        """Wait for events and take all there are.

        Returns:
            Events in their order; whether stored ones were left out, which are to be read from the database;
            and whether no more will come.
        """
        await self._ready.wait()
        batch = list(self._events), self._behind, self._closed
        self._events.clear()
        self._stored = self._progress = 0
        self._behind = False
        self._ready.clear()
        return batch


class Subscriptions:
    """Subscriptions by the number of their job.

    Args:
        hear: called with every event, whether somebody follows its job or not.
    """

    def __init__(self, hear: Callable[[Event], None] = lambda _: None) -> None:
        self._by_job: dict[int | None, set[Subscription[Event]]] = {}
        self._closed = False
        self._hear = hear

    @property
    def count(self) -> int:
        """Number of subscriptions."""
        return sum(map(len, self._by_job.values()))

    def subscribe(self, job: int) -> Subscription[Event]:
        """Begin to buffer events, until ``unsubscribe``."""
        subscription = Subscription[Event]()
        if self._closed:
            subscription.close()
        self._by_job.setdefault(job, set()).add(subscription)
        return subscription

    def unsubscribe(self, job: int, subscription: Subscription[Event]) -> None:
        """Drop a subscription."""
        remaining = self._by_job.get(job, set())
        remaining.discard(subscription)
        if not remaining:
            self._by_job.pop(job, None)

    def publish(self, event: Event) -> None:
        """Send an event to the subscribers of its job."""
        self._hear(event)
        for subscription in self._by_job.get(event.job, ()):
            subscription.put(event, stored=event.id is not None)

    def missed(self, job: int) -> None:
        """Have the subscribers of a job read it again from the database."""
        for subscription in self._by_job.get(job, ()):
            subscription.miss()

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._closed = True
        for subscriptions in self._by_job.values():
            for subscription in subscriptions:
                subscription.close()


async def job_events(
    number: int, after: int, *, subscriptions: Subscriptions, storage: Storage
) -> AsyncIterator[Event]:
    """Stored events of a job after a number, then new ones as they happen; ends with the job.

    Raises:
        NoSuchJobError: there is no such job.
        StoreError: the database cannot be used just now.
    """
    subscription = subscriptions.subscribe(number)  # first: no event is missed while stored ones are read
    try:
        behind = True
        while True:
            if behind:
                # asked before they are read: then they are all
                ended = (await known_job(number, storage.read)).ended
                async for event in _stored(number, after, storage):
                    after = max(after, event.id or 0)
                    yield event
                    ended = ended or _is_end(event)
                if ended:
                    return
            events, behind, closed = await subscription.take()
            for event in events:
                if event.id is not None:
                    if event.id <= after:
                        continue
                    after = event.id
                yield event
                if _is_end(event):
                    return
            if closed:
                return
    finally:
        subscriptions.unsubscribe(number, subscription)


async def _stored(number: int, after: int, storage: Storage) -> AsyncIterator[Event]:
    """Stored events after a number, in pages."""
    while True:
        page = await storage.read(lambda db, after=after: db.jobs.events(number, after, _PAGE))  # type: ignore[misc]  # bound at once
        for event in page:
            yield event
        if len(page) < _PAGE:
            return
        after = page[-1].id or after


async def known_job(
    number: int, read: Callable[[Callable[[Repositories], Job | None]], Awaitable[Job | None]]
) -> Job:
    """A job that the database has.

    Raises:
        NoSuchJobError: there is none, or it is not understood.
        StoreError: the database cannot be used just now.
    """
    try:
        job = await read(lambda db: db.jobs.job(number))
    except UnknownJobError as error:
        raise NoSuchJobError(str(error)) from error
    if job is None:
        raise NoSuchJobError(f"there is no job {number}")
    return job


def _is_end(event: Event) -> bool:
    return event.kind == "state" and event.data["state"] in ENDED


class EventPump:
    """Stores and publishes the events of attempts in their order."""

    def __init__(self, storage: Storage, subscriptions: Subscriptions) -> None:
        self._storage = storage
        self._subscriptions = subscriptions
        self._waiting: deque[tuple[int, Event]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, job: int, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event; returns at once."""
        event = Event.now(kind, data, job)
        if kind not in STORED and not self._waiting:
            self._subscriptions.publish(event)
            return
        if kind not in STORED and len(self._waiting) >= _MOST_WAITING:
            return
        self._waiting.append((job, event))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def drained(self) -> None:
        """Wait until all events are stored and published, however long the database takes."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def close(self) -> None:
        """Drop what is left."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                job, event = self._waiting[0]
                if event.kind in STORED:
                    event = await self._stored(job, event)
                self._subscriptions.publish(event)
                self._waiting.popleft()
        finally:
            self._task = None

    async def _stored(self, job: int, event: Event) -> Event:
        while True:
            try:
                return await self._storage.run(lambda db: db.jobs.event(job, event.kind, event.data))
            except StoreError:  # noqa: PERF203 - retried
                await asyncio.sleep(_RETRY_S)
            except JobError as error:  # subscribers get it all the same
                _LOG.warning("job %d: %s is not stored: %s", job, event.kind, error)
                return event
