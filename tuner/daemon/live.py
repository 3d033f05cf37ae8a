"""The feed of all events, and one stream of everything for any number of followers.

A follower begins with the present: devices, jobs, and the trials of those that run, from the database. Who
was away for a while and says where, gets what was missed instead, as long as the feed has it.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from tuner.daemon.attempts.messages import stored_trial
from tuner.daemon.interface import FeedEvent, encode
from tuner.daemon.jobs.documents import job_document
from tuner.daemon.jobs.events import Subscription
from tuner.database.decoding import trials_page
from tuner.database.ledger import Repositories, Storage
from tuner.model.errors import InputError, StoreError
from tuner.model.jobs import JobEvent, JobRecord, JobState
from tuner.model.records import StoredRun

KEPT_BYTES = 2**22
"""Of the newest events: an hour of trials, or minutes of the fastest simulated ones."""

_EVENT_BYTES = 256  # of an event's objects beside its body
_INSTANCE_BYTES = 4


class EventFeed:
    """Sends events to all followers, and keeps the newest ones.

    Events are encoded once, however many follow.

    Args:
        kept_bytes: of the events that are kept.

    Attributes:
        instance: tells the numbers of this feed from those of an earlier daemon's.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.instance = secrets.token_hex(_INSTANCE_BYTES)
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._kept: deque[FeedEvent] = deque()
        self._followers: set[Subscription[FeedEvent]] = set()
        self._last = 0
        self._closed = False

    @property
    def last(self) -> int:
        """Number of the newest event that is kept or was; 0 before the first."""
        return self._last

    @property
    def count(self) -> int:
        """Number of followers."""
        return len(self._followers)

    def publish(self, kind: str, body: Mapping[str, Any], *, keep: bool = True) -> None:
        """Send an event.

        Args:
            kind: of the event.
            body: what JSON has.
            keep: number it, and send it again to followers who come back.
        """
        if not keep and not self._followers:
            return
        event = FeedEvent(None, kind, encode(body))
        if keep:
            self._last += 1
            event = replace(event, id=self._last, place=self.place(self._last))
            self._kept.append(event)
            self._bytes += _EVENT_BYTES + len(event.body)
            while self._bytes > self._kept_bytes:
                self._bytes -= _EVENT_BYTES + len(self._kept.popleft().body)
        for follower in self._followers:
            follower.put(event)

    def since(self, number: int) -> list[FeedEvent] | None:
        """Events after a number; None where they are not all there any more, or never were."""
        first = self._last - len(self._kept)
        if not first <= number <= self._last:
            return None
        return [event for event in self._kept if event.id is not None and event.id > number]

    def follow(self) -> Subscription[FeedEvent]:
        """Begin to buffer events, until ``leave``."""
        follower = Subscription[FeedEvent]()
        if self._closed:
            follower.close()
        self._followers.add(follower)
        return follower

    def leave(self, follower: Subscription[FeedEvent]) -> None:
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

    def number(self, place: str) -> int | None:
        """The number of a place; None for a place in another daemon's feed, or for none."""
        instance, _, number = place.partition("-")
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
_ACTIVE = tuple(state for state in JobState if not state.ended)
_ENDED = tuple(state for state in JobState if state.ended)

State = tuple[str, Mapping[str, Any]]
"""Kind of an event, ``status`` or ``device``, and what is so now."""


class LiveEvents:
    """The events of the feed, with what a follower must know first.

    Args:
        feed: all events.
        storage: has jobs and trials.
        states: gives the state of the daemon and of each device, always in the same order.
    """

    def __init__(self, feed: EventFeed, storage: Storage, states: Callable[[], Sequence[State]]) -> None:
        self._feed = feed
        self._storage = storage
        self._states = states
        self._looking: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of followers."""
        return self._feed.count

    def job(self, job: JobRecord) -> None:
        """Tell of a job that has changed."""
        self._feed.publish("job", _body("job", job_document(job), job=job.id))

    def event(self, event: JobEvent) -> None:
        """Tell of something that happened to a job."""
        body = _body(event.kind, event.data, job=event.job, at=event.at)
        self._feed.publish(event.kind, body, keep=event.kind not in _PASSING)

    def power(self, document: Mapping[str, Any]) -> None:
        """Tell of the power of a device."""
        self._feed.publish("power", _body("power", document), keep=False)

    async def follow(self, place: str = "") -> AsyncGenerator[FeedEvent, None]:
        """The present, or what was missed since a place; then new events as they happen.

        Args:
            place: of the last event that the follower has; empty for none.
        """
        follower = self._feed.follow()
        self._look()
        last, closed = self._feed.number(place), False
        try:
            while not closed:
                async for event in self._beginning(last):
                    last = event.id or last
                    yield event
                behind = False
                while not (behind or closed):
                    batch = await follower.take()
                    for event in batch.events:
                        if event.id is None or event.id > (last or 0):
                            last = event.id or last
                            yield event
                    behind, closed = batch.behind, batch.closed
        except StoreError as error:
            yield _passing("trouble", {"message": f"the database cannot be used: {error}"})
        finally:
            self._feed.leave(follower)

    def close(self) -> None:
        """End all streams: the daemon stops."""
        self._feed.close()
        if self._looking is not None:
            self._looking.cancel()

    # --- the present ----------------------------------------------------------------------------------

    async def _beginning(self, last: int | None) -> AsyncIterator[FeedEvent]:
        """Yield the events missed since an event, if the feed has them, else the present; then the states.

        Args:
            last: number of the event; None for none.
        """
        missed = None if last is None else self._feed.since(last)
        yield _passing("begin", {"instance": self._feed.instance, "resumed": missed is not None})
        if missed is None:
            begun = self._feed.last  # what comes while the database is read is in the follower's buffer
            async for event in self._jobs():
                yield event
            yield replace(_passing("present", {}), id=begun, place=self._feed.place(begun))
        for event in missed or ():
            yield event
        for kind, document in self._states():
            yield _passing(kind, document)

    async def _jobs(self) -> AsyncIterator[FeedEvent]:
        """Jobs, those that run with what has happened to them."""
        active = await self._storage.read(lambda db: db.jobs.jobs(_ACTIVE))
        ended = await self._storage.read(lambda db: db.jobs.jobs(_ENDED, _MOST_ENDED))
        for job in sorted((*active, *ended), key=lambda job: job.id):
            yield _passing("job", job_document(job), job=job.id)
            if job.state is JobState.RUNNING:
                for told in await self._storage.read(partial(_told, job.id)):
                    yield _passing(told.kind, told.data, job=job.id, at=told.at)
                async for event in self._trials(job):
                    yield event

    async def _trials(self, job: JobRecord) -> AsyncIterator[FeedEvent]:
        """The newest trials of a job's run."""
        run = None if job.run is None else await self._storage.read(partial(_run, job.run))
        if run is None:
            return
        names = [name for name, _ in run.conditions["workloads"]]
        after: int | None = max(0, run.trials - MOST_REPLAYED)
        while after is not None:
            page, after = await self._storage.read(
                lambda db, after=after: trials_page(db.database, run.id, names, after=after, limit=_PAGE)  # type: ignore[misc]  # bound at once
            )
            for stored in page:
                for data in stored_trial(stored, run.id, run.objective, names):
                    yield _passing("trial", data, job=job.id, at=stored.ended_at)

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
                    self._feed.publish(kind, _body(kind, document), keep=False)
            before = now


def _run(number: int, db: Repositories) -> StoredRun | None:
    """A run; None where there is none, or it is not understood."""
    try:
        return db.store.run(number)
    except InputError:
        return None


def _told(job: int, db: Repositories) -> list[JobEvent]:
    """The newest stored events of a job, its changes of state left out: the job says where it stands."""
    return [event for event in db.jobs.events(job) if event.kind != "state"][-_MOST_EVENTS:]


def _body(
    kind: str, data: Mapping[str, Any], *, job: int | None = None, at: str | None = None
) -> dict[str, Any]:
    """An event as JSON has it."""
    moment = at or datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return {"kind": kind, "at": moment, "job": job, "data": data}


def _passing(
    kind: str, data: Mapping[str, Any], *, job: int | None = None, at: str | None = None
) -> FeedEvent:
    return FeedEvent(None, kind, encode(_body(kind, data, job=job, at=at)))
