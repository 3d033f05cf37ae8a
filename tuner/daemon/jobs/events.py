"""Events of jobs: stored where they are to last, then sent to subscribers, and to followers of everything.

A subscriber that is slow or gone delays no other.
"""

import asyncio
import logging
import mmap
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from tuner.client.answer_values import DeviceStatus, PowerSample, Status
from tuner.daemon.interface import NoSuchJobError, stream_text
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import InputError, JobError, StoreError, UnknownJobError
from tuner.model.jobs import ACTIVE, ENDED, Event, Job, JobState
from tuner.model.records import StoredRun
from tuner.search.job_messages import stored_trial

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


# --- The feed of all events, and one stream of everything for any number of followers.
#
# A follower begins with the present: devices, jobs, and the trials of those that run, from the database. Who
# was away for a while and says where, gets what was missed instead, as long as the feed has it.

KEPT_BYTES = 2**21
"""Of the newest events: half an hour of trials, or minutes of the fastest simulated ones."""

_EVENT_BYTES = 256  # of an event's objects beside its body
_INSTANCE_BYTES = 4


class Message(NamedTuple):
    """An event as followers get it, encoded once however many there are.

    Attributes:
        id: of the event in the feed; None for what is not kept, as a later one replaces it.
        kind: of the event.
        text: what the stream sends.
    """

    id: int | None
    kind: str
    text: bytes


class _Kept(NamedTuple):
    """Place of a kept message in the ring of texts.

    Attributes:
        begin: bytes that were written before it.
        size: of its text in bytes.
    """

    id: int
    kind: str
    begin: int
    size: int


class EventFeed:
    """Sends events to all followers, and keeps the newest ones.

    Events are encoded once, however many follow. Kept texts share one ring: on the heap, where each would
    stand between what comes and goes sooner, they would leave gaps when they make room.

    Attributes:
        instance: tells the numbers of this feed from those of an earlier daemon's.
        last: number of the newest event that is kept or was; 0 before the first.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.instance = secrets.token_hex(_INSTANCE_BYTES)
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._kept: deque[_Kept] = deque()
        self._texts = mmap.mmap(-1, kept_bytes)
        self._written = 0
        self._followers: set[Subscription[Message]] = set()
        self.last = 0
        self._closed = False

    @property
    def count(self) -> int:
        """Number of followers."""
        return len(self._followers)

    def publish(self, event: Event, *, keep: bool = True) -> None:
        """Send an event.

        Args:
            event: the feed gives it a number of its own.
            keep: number it, and send it again to followers who come back.
        """
        if not keep and not self._followers:
            return
        self.last += keep
        message = self.message(event, self.last if keep else None)
        if keep:
            self._keep(message.kind, message.text)
        for follower in self._followers:
            follower.put(message, stored=keep)

    def _keep(self, kind: str, text: bytes) -> None:
        self._kept.append(_Kept(self.last, kind, self._written, len(text)))
        self._bytes += _EVENT_BYTES + len(text)
        while self._bytes > self._kept_bytes:
            self._bytes -= _EVENT_BYTES + self._kept.popleft().size
        if self._kept:  # it is not larger than all there is
            at = self._written % self._kept_bytes
            first, rest = text[: self._kept_bytes - at], text[self._kept_bytes - at :]
            self._texts[at : at + len(first)], self._texts[: len(rest)] = first, rest
            self._written += len(text)

    def _text(self, kept: _Kept) -> bytes:
        at = kept.begin % self._kept_bytes
        return self._texts[at : at + kept.size] + self._texts[: max(0, at + kept.size - self._kept_bytes)]

    def message(self, event: Event, number: int | None = None) -> Message:
        """An event as it is sent; followers go on after one with a number."""
        body = {"kind": event.kind, "at": event.at, "job": event.job, "data": event.data}
        position = "" if number is None else self.place(number)
        return Message(number, event.kind, stream_text(event.kind, body, position))

    def since(self, number: int) -> list[Message] | None:
        """Events after a number; None where they are not all there any more, or never were."""
        first = self.last - len(self._kept)
        if not first <= number <= self.last:
            return None
        return [Message(kept.id, kept.kind, self._text(kept)) for kept in self._kept if kept.id > number]

    def follow(self) -> Subscription[Message]:
        """Begin to buffer events, until ``leave``."""
        follower = Subscription[Message]()
        if self._closed:
            follower.close()
        self._followers.add(follower)
        return follower

    def leave(self, follower: Subscription[Message]) -> None:
        """Drop a follower."""
        self._followers.discard(follower)

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._closed = True
        for follower in self._followers:
            follower.close()

    # --- places in the feed ---------------------------------------------------------------------------

    def place(self, number: int) -> str:
        """The id of an event for clients."""
        return f"{self.instance}-{number}"

    def number(self, position: str) -> int | None:
        """The number of a place; None for a place in another daemon's feed, or for none."""
        instance, _, number = position.partition("-")
        if instance != self.instance or not (number.isascii() and number.isdecimal()):
            return None
        return int(number)


MOST_REPLAYED = 10_000
"""Of the newest trials of a job that runs, which a new follower is told."""

_MOST_ENDED = 50  # of the newest jobs that have ended, which a new follower is told
_MOST_EVENTS = 200  # stored ones of a job that runs, likewise
_TRIALS_PAGE = 500  # trials that are read at a time
_LOOK_S = 1.0  # between two looks at the devices, while somebody follows
_PASSING = ("compiled",)  # the next one says all that this one did

FollowedState = tuple[str, Status | DeviceStatus]
"""Kind of an event, ``status`` or ``device``, and what is so now."""


class LiveEvents:
    """The events of the feed, with what a follower must know first.

    Args:
        feed: all events.
        storage: has jobs and trials.
        states: gives the state of the daemon and of each device, always in the same order.
    """

    def __init__(
        self, feed: EventFeed, storage: Storage, states: Callable[[], Sequence[FollowedState]]
    ) -> None:
        self._feed = feed
        self._storage = storage
        self._states = states
        self._looking: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of followers."""
        return self._feed.count

    def job(self, job: Job) -> None:
        """Tell of a job that has changed."""
        self._feed.publish(Event.now("job", vars(job), job.id))

    def event(self, event: Event) -> None:
        """Tell of something that happened to a job."""
        self._feed.publish(event, keep=event.kind not in _PASSING)

    def power(self, document: PowerSample) -> None:
        """Tell of the power of a device."""
        self._feed.publish(Event.now("power", document), keep=False)

    async def follow(self, position: str = "", *, power: bool = False) -> AsyncGenerator[bytes, None]:
        """The present, or what was missed since a place; then new events as they happen.

        Args:
            position: of the last event that the follower has; empty for none.
            power: tell of the power of devices, too.
        """
        follower = self._feed.follow()
        self._look()
        last, closed = self._feed.number(position), False
        try:
            while not closed:
                async for message in self._beginning(last):
                    last = message.id or last
                    yield message.text
                behind = False
                while not (behind or closed):
                    messages, behind, closed = await follower.take()
                    for message in messages:
                        if message.id is None or message.id > (last or 0):
                            last = message.id or last
                            if power or message.kind != "power":
                                yield message.text
        except StoreError as error:
            trouble = Event.now("trouble", {"message": f"the database cannot be used: {error}"})
            yield self._feed.message(trouble).text
        finally:
            self._feed.leave(follower)

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._feed.close()
        if self._looking is not None:
            self._looking.cancel()

    # --- the present ----------------------------------------------------------------------------------

    async def _beginning(self, last: int | None) -> AsyncIterator[Message]:
        """Yield the events missed since an event, if the feed has them, else the present; then the states.

        Args:
            last: number of the event; None for none.
        """
        missed = None if last is None else self._feed.since(last)
        begin = {"instance": self._feed.instance, "resumed": missed is not None}
        yield self._feed.message(Event.now("begin", begin))
        if missed is None:
            begun = self._feed.last  # what comes while the database is read is in the follower's buffer
            async for event in self._jobs():
                yield self._feed.message(event)
            yield self._feed.message(Event.now("present", {}), begun)
        for message in missed or ():
            yield message
        for kind, document in self._states():
            yield self._feed.message(Event.now(kind, document))

    async def _jobs(self) -> AsyncIterator[Event]:
        """Jobs, those that run with what has happened to them."""
        active = await self._storage.read(lambda db: db.jobs.jobs(ACTIVE))
        ended = await self._storage.read(lambda db: db.jobs.jobs(ENDED, _MOST_ENDED))
        for job in sorted((*active, *ended), key=lambda job: job.id):
            yield Event.now("job", vars(job), job.id)
            if job.state is JobState.RUNNING:
                for event in await self._storage.read(partial(_told, job.id)):
                    yield event
                async for event in self._trials(job):
                    yield event

    async def _trials(self, job: Job) -> AsyncIterator[Event]:
        """The newest trials of a job's run."""
        run = None if job.run is None else await self._storage.read(partial(_run, job.run))
        if run is None:
            return
        names = [name for name, _ in run.conditions["workloads"]]
        after: int | None = max(0, run.trials - MOST_REPLAYED)
        while after is not None:
            page, after = await self._storage.read(
                lambda db, after=after: db.store.trials_page(run.id, names, after=after, limit=_TRIALS_PAGE)  # type: ignore[misc]  # bound at once
            )
            for stored in page:
                for data in stored_trial(stored, run.id, run.objective, names):
                    yield Event("trial", stored.ended_at, job.id, data)

    # --- states that nobody tells of ------------------------------------------------------------------

    def _look(self) -> None:
        """Look at the states now and then, while somebody follows."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._tell_changes(), name="states for followers")

    async def _tell_changes(self) -> None:
        before = list(self._states())
        while self._feed.count:
            await asyncio.sleep(_LOOK_S)
            now = list(self._states())
            for kind, document in now:
                if (kind, document) not in before:
                    self._feed.publish(Event.now(kind, document), keep=False)
            before = now


def _run(number: int, db: Repositories) -> StoredRun | None:
    """A run; None where there is none, or it is not understood."""
    try:
        return db.store.run(number)
    except InputError:
        return None


def _told(job: int, db: Repositories) -> list[Event]:
    """The newest stored events of a job, its changes of state left out: the job says where it stands."""
    return [event for event in db.jobs.events(job) if event.kind != "state"][-_MOST_EVENTS:]
