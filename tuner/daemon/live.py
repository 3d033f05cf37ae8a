"""The feed of all events, and one stream of everything for any number of followers.

A follower begins with the present: devices, jobs, and the trials of those that run, from the database. Who
was away for a while and says where, gets what was missed instead, as long as the feed has it.
"""

import asyncio
import mmap
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple

from tuner.client.answer_values import DeviceStatus, PowerSample, Status
from tuner.daemon.interface import stream_text
from tuner.daemon.jobs.events import Subscription
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import InputError, StoreError
from tuner.model.jobs import ACTIVE, ENDED, Event, Job, JobState
from tuner.model.records import StoredRun
from tuner.search.job_messages import stored_trial

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
_PAGE = 500  # trials that are read at a time
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
                lambda db, after=after: db.store.trials_page(run.id, names, after=after, limit=_PAGE)  # type: ignore[misc]  # bound at once
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
