"""The jobs that have not ended.

A change goes to the database first, then to memory, then to subscribers.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from tuner.daemon.interface import NotNowError, User
from tuner.daemon.jobs.events import Subscriptions, known_job
from tuner.daemon.jobs.shares import ABSENT, DAEMON, REMEMBERED, Placement, Shares
from tuner.daemon.jobs.specs import answer_key, spec_key, topic
from tuner.database import decoding
from tuner.database.storage import Repositories, Storage
from tuner.model.errors import JobError, QueueFullError, TunerError
from tuner.model.jobs import ACTIVE, NEXT, Event, Job, JobKind, JobSpec, JobState, Origin

T = TypeVar("T")

_MOST_RESTORED = 500  # of the newest jobs, whose device seconds are read at the start


class Board:
    """Jobs that wait, run or are paused.

    Args:
        storage: the database.
        subscriptions: are told of changes.
        changed: called after every change, with the jobs as they are then.
        shares: places and turns of users; those of default limits if None.
        hear: called with every job as it is after a change of it.
        placement: which device may run which job.

    Attributes:
        placement: the same.
        not_understood: jobs that the database has and that are left alone, for people.
    """

    def __init__(
        self,
        storage: Storage,
        subscriptions: Subscriptions,
        changed: Callable[[Sequence[Job]], None],
        shares: Shares | None = None,
        *,
        hear: Callable[[Job], None] = lambda _: None,
        placement: Placement | None = None,
    ) -> None:
        self.placement = placement or Placement()
        self._hear = hear
        self._storage = storage
        self._subscriptions = subscriptions
        self._changed = changed
        self._shares = shares or Shares()
        self._restored = False
        self.not_understood: list[str] = []
        self._jobs: dict[int, Job] = {}
        self._by_spec: dict[str, set[int]] = {}
        self._by_topic: dict[str, set[int]] = {}
        self._topics: dict[int, str] = {}
        self._by_question: dict[str, set[int]] = {}
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[Job]] = set()

    async def load(self) -> list[Job]:
        """Load the jobs that have not ended; returns those that ran when the last daemon was killed.

        Raises:
            StoreError: the database cannot be used just now.
        """
        recovered = await self._storage.run(lambda db: db.jobs.recover())
        active = await self._storage.run(lambda db: db.jobs.jobs(ACTIVE))
        await self._restore_shares()
        self.not_understood = decoding.named(await self._storage.run(lambda db: db.jobs.not_understood()))
        for job in active:
            self._keep(job)
        self._changed(active)
        return recovered

    async def _restore_shares(self) -> None:
        """Count the device seconds of jobs that ran lately."""
        since = (datetime.now(timezone.utc) - REMEMBERED).isoformat(timespec="milliseconds")

        def read(db: Repositories) -> list[tuple[Job, list[Event]]]:
            ran = [job for job in db.jobs.jobs(limit=_MOST_RESTORED) if job.started_at is not None]
            lately = [job for job in ran if job.ended_at is None or job.ended_at >= since]
            return [(job, db.jobs.events(job.id)) for job in lately]

        if not self._restored:
            for job, events in await self._storage.run(read):
                self._shares.restore(job, events)
            self._restored = True

    @property
    def jobs(self) -> Collection[Job]:
        """All jobs, in no order."""
        return self._jobs.values()

    def waiting(self, device: str) -> Iterable[Job]:
        """Jobs that wait for a device, the next one first: see ``Shares.ordered``."""
        return self._shares.ordered(
            job
            for job in self._jobs.values()
            if job.state is JobState.QUEUED and self.placement.may_run(job, device)
        )

    def devices_of(self, job: Job) -> list[str]:
        """The devices on which a job that has not ended runs, or may run."""
        return [job.device] if job.state is JobState.RUNNING else self.placement.devices(job)

    def located(self, job: Job) -> Job:
        """A job as the database has it, with the device that it runs on before it has a run."""
        active = self._jobs.get(job.id)
        return (
            job if active is None or job.device != job.wanted_device else replace(job, device=active.device)
        )

    def goes_before(self, job: Job, other: Job) -> bool:
        """True where a job would be taken before another whatever their users have used."""
        return self._shares.level(job) < self._shares.level(other)

    def get(self, number: int) -> Job | None:
        """A job that has not ended; its number of trials may be out of date."""
        return self._jobs.get(number)

    def find(self, spec: JobSpec) -> Job | None:
        """The job with this spec that has not ended; the oldest of several."""
        numbers = self._by_spec.get(spec_key(spec))
        return self._jobs[min(numbers)] if numbers else None

    def searches(self, topic_key: str) -> list[Job]:
        """Searches of a ``topic`` that have not ended, the oldest first."""
        return [self._jobs[number] for number in sorted(self._by_topic.get(topic_key, ()))]

    def alike(self, spec: JobSpec) -> list[Job]:
        """Jobs that have not ended and answer the same question, on whatever device, the oldest first."""
        return [self._jobs[number] for number in sorted(self._by_question.get(_question(spec), ()))]

    def refining(self, topic_key: str) -> int | None:
        """The search of a ``topic`` that waits or runs; a paused one may never run."""
        numbers = sorted(self._by_topic.get(topic_key, ()))
        return next((number for number in numbers if self._jobs[number].state is not JobState.PAUSED), None)

    async def add(
        self,
        spec: JobSpec,
        *,
        origin: Origin,
        priority: float = 0.0,
        submitter: User | None = None,
        most_waiting: int | None = None,
    ) -> Job:
        """Queue a job; one of a client only where its user has a place.

        Raises:
            NotNowError: the queue is full, or holds enough of this user.
            StoreError: the database cannot be used just now.
        """

        def new(db: Repositories) -> Job:
            return db.jobs.add(
                spec, origin=origin, priority=priority, submitter=submitter, most_waiting=most_waiting
            )

        async def add() -> Job:
            async with self._lock:
                user = DAEMON if submitter is None else submitter
                if origin is Origin.CLIENT and (refusal := self._shares.refusal(user, self._jobs.values())):
                    raise NotNowError(refusal)
                try:
                    job = await self._storage.run(new)
                except QueueFullError as error:
                    raise NotNowError(str(error)) from error
                self._keep(job)
            self._changed((job,))
            return job

        return await self._shielded(add())

    async def change(
        self,
        number: int,
        state: JobState,
        reason: str = "",
        *,
        of: Collection[JobState] = (),
        started_on: str = "",
    ) -> Job:
        """Change the state of a job.

        Args:
            number: of the job.
            state: the new one.
            reason: why, for people.
            of: the states from which it may; those of ``tuner.model.jobs.NEXT`` if empty.
            started_on: the device on which an attempt begins; empty where none does.

        Raises:
            NoSuchJobError: there is no such job.
            NotNowError: its state does not allow that.
            StoreError: the database cannot be used just now.
        """
        return await self._shielded(self._change(number, state, reason, of=of, started_on=started_on))

    async def _change(
        self, number: int, state: JobState, reason: str, *, of: Collection[JobState], started_on: str
    ) -> Job:
        started = bool(started_on)
        async with self._lock:
            before = self._jobs.get(number) or await known_job(number, self._storage.run)
            allowed = state in NEXT[before.state] or state is before.state
            if not allowed or (of and before.state not in of):
                raise NotNowError(f"job {number} is {before.state.value} and cannot become {state.value}")
            if (state, reason, started) == (before.state, before.reason, False):
                return before
            try:
                job, event = await self._storage.run(
                    lambda db: db.jobs.change(number, state, reason=reason, started=started)
                )
            except JobError as error:
                await self._reload(before)
                raise NotNowError(str(error)) from error
            job = self._keep(job, started_on)
            if event is None:
                self._subscriptions.missed(number)
            else:
                self._subscriptions.publish(event)
        self._changed((job,))
        return job

    async def prioritise(self, priorities: Mapping[int, float]) -> None:
        """Change priorities; jobs that have ended meanwhile are left as they are.

        Raises:
            StoreError: the database cannot be used just now.
        """
        if not priorities:
            return
        async with self._lock:
            await self._storage.run(lambda db: db.jobs.prioritise(priorities))
            active = priorities.keys() & self._jobs.keys()
            for number in active:
                self._jobs[number] = replace(self._jobs[number], priority=priorities[number])
                self._hear(self._jobs[number])
            changed = [self._jobs[number] for number in active]
        self._changed(changed)

    async def settled(self) -> None:
        """Wait until no change is in progress."""
        if self._changes:
            await asyncio.wait(self._changes)

    async def _shielded(self, change: Coroutine[Any, Any, Job]) -> Job:
        """Complete a change even where its caller is cancelled: the database does not stop halfway."""
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _reload(self, before: Job) -> None:
        """Replace a job by what the database has, which differs."""
        job = await self._storage.run(lambda db: db.jobs.job(before.id))
        present = self._keep(job or replace(before, state=JobState.CANCELLED))
        self._subscriptions.missed(before.id)
        self._changed((present,))

    async def mark_absent(self) -> None:
        """Say of waiting jobs that no device here may run them; take that back where one may again."""
        for job in tuple(self.jobs):
            absence = self.placement.absence(job)
            changed = job.reason != absence if absence else job.reason.endswith(ABSENT)
            if job.state is JobState.QUEUED and changed:
                with contextlib.suppress(TunerError):  # cancelled just now, or marked the next time
                    await self.change(job.id, JobState.QUEUED, absence, of=(JobState.QUEUED,))

    def _keep(self, job: Job, started_on: str = "") -> Job:
        """Remember a job as it is now; returns it with the device on which it runs."""
        before = self._jobs.get(job.id)
        if job.state is JobState.RUNNING and before is not None:
            job = replace(job, device=started_on or before.device)
        elif job.gpu:
            job = replace(job, device=self.placement.device_of(job) or job.device)
        self._shares.note(job)
        self._hear(job)
        _discard(self._by_topic, self._topics.pop(job.id, ""), job.id)
        if job.ended:
            self._jobs.pop(job.id, None)
            _discard(self._by_spec, spec_key(job.spec), job.id)
            _discard(self._by_question, _question(job.spec), job.id)
            return job
        self._jobs[job.id] = job
        self._by_spec.setdefault(spec_key(job.spec), set()).add(job.id)
        self._by_question.setdefault(_question(job.spec), set()).add(job.id)
        if job.kind is JobKind.TUNE:
            devices = self.devices_of(job)  # the topic is that of its device where but one is left
            placed = replace(job.spec, device=devices[0]) if len(devices) == 1 else job.placed_spec
            self._topics[job.id] = topic(placed)
            self._by_topic.setdefault(self._topics[job.id], set()).add(job.id)
        return job


def _question(spec: JobSpec) -> str:
    """The same text for specs that answer the same question, on whatever device."""
    return answer_key(replace(spec, device=""))


def _discard(numbers: dict[T, set[int]], key: T, number: int) -> None:
    """Remove a number, and the key with its last one."""
    remaining = numbers.get(key, set())
    remaining.discard(number)
    if not remaining:
        numbers.pop(key, None)
