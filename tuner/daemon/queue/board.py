"""The jobs that have not ended: in the database first, then in memory, then told to those who follow."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tuner.daemon.interface import NoSuchJobError, NotNowError
from tuner.daemon.queue.job_specs import same_order, topic
from tuner.daemon.queue.storage import Books, Storage
from tuner.daemon.queue.subscriptions import Following
from tuner.errors import JobError, QueueFullError
from tuner.model.jobs import NEXT, JobKind, JobRecord, JobSpec, JobState, Origin

T = TypeVar("T")

ACTIVE = (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)
_ORIGINS = list(Origin)


def turn(job: JobRecord) -> tuple[float, int, int]:
    """What jobs are taken in the order of: the highest priority, then by origin, then the oldest."""
    return -job.priority, _ORIGINS.index(job.origin), job.id


class Board:
    """Jobs that wait, run or are paused.

    Args:
        storage: where they are kept.
        following: who hears of changes.
        changed: called after every change.
    """

    def __init__(self, storage: Storage, following: Following, changed: Callable[[], None]) -> None:
        self._storage = storage
        self._following = following
        self._changed = changed
        self._jobs: dict[int, JobRecord] = {}
        self._orders: dict[str, set[int]] = {}
        self._topics: dict[str, set[int]] = {}
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[JobRecord]] = set()

    async def load(self) -> list[JobRecord]:
        """Take over what a daemon before this one left; returns those jobs that it was killed in.

        Raises:
            StoreError: the database cannot be used just now.
        """
        recovered = await self._storage.run(lambda books: books.jobs.recover())
        active = await self._storage.run(lambda books: books.jobs.jobs(ACTIVE))
        for job in active:
            self._keep(job)
        self._changed()
        return recovered

    @property
    def jobs(self) -> Collection[JobRecord]:
        """All of them, in no order."""
        return self._jobs.values()

    def waiting(self, device: str) -> Iterable[JobRecord]:
        """Jobs that wait for a device, in the order they are to be taken."""
        queued = [
            job for job in self._jobs.values() if job.state is JobState.QUEUED and job.spec.device == device
        ]
        return sorted(queued, key=turn)

    def get(self, number: int) -> JobRecord | None:
        """A job that has not ended, as it is known here; its trials may have become more."""
        return self._jobs.get(number)

    def like(self, order: JobSpec) -> JobRecord | None:
        """The job that waits for, or does, what an order asks for."""
        numbers = self._orders.get(same_order(order))
        return self._jobs[min(numbers)] if numbers else None

    def about(self, searched: str) -> list[JobRecord]:
        """Searches of a ``topic`` that have not ended, the oldest first."""
        return [self._jobs[number] for number in sorted(self._topics.get(searched, ()))]

    def refining(self, searched: str) -> int | None:
        """The search of a ``topic`` that waits or runs; a paused one is no promise."""
        numbers = sorted(self._topics.get(searched, ()))
        return next((number for number in numbers if self._jobs[number].state is not JobState.PAUSED), None)

    async def add(
        self,
        order: JobSpec,
        *,
        origin: Origin,
        priority: float = 0.0,
        submitter: int | None = None,
        most_waiting: int | None = None,
    ) -> JobRecord:
        """Queue a job.

        Raises:
            NotNowError: the queue is full.
            StoreError: the database cannot be used just now.
        """

        def new(books: Books) -> JobRecord:
            return books.jobs.add(
                order, origin=origin, priority=priority, submitter=submitter, most_waiting=most_waiting
            )

        async def add() -> JobRecord:
            async with self._lock:
                try:
                    job = await self._storage.run(new)
                except QueueFullError as error:
                    raise NotNowError(str(error)) from error
                self._keep(job)
            self._changed()
            return job

        return await self._whole(add())

    async def change(
        self,
        number: int,
        state: JobState,
        reason: str = "",
        *,
        of: Collection[JobState] = (),
        started: bool = False,
    ) -> JobRecord:
        """Bring a job into a state.

        Args:
            number: of the job.
            state: the new one.
            reason: why, for people.
            of: the states from which it may; those of ``tuner.model.jobs.NEXT`` if empty.
            started: an attempt begins.

        Raises:
            NoSuchJobError: there is no such job.
            NotNowError: its state does not allow that.
            StoreError: the database cannot be used just now.
        """
        return await self._whole(self._change(number, state, reason, of=of, started=started))

    async def _change(
        self, number: int, state: JobState, reason: str, *, of: Collection[JobState], started: bool
    ) -> JobRecord:
        async with self._lock:
            before = self._jobs.get(number) or await self._storage.run(lambda books: books.jobs.job(number))
            if before is None:
                raise NoSuchJobError(f"there is no job {number}")
            allowed = state in NEXT[before.state] or state is before.state
            if not allowed or (of and before.state not in of):
                raise NotNowError(f"job {number} is {before.state.value}")
            if (state, reason, started) == (before.state, before.reason, False):
                return before
            try:
                job, event = await self._storage.run(
                    lambda books: books.jobs.change(number, state, reason=reason, started=started)
                )
            except JobError as error:
                await self._read_again(before)
                raise NotNowError(str(error)) from error
            self._keep(job)
            if event is None:
                self._following.missed(number)
            else:
                self._following.publish(event)
        self._changed()
        return job

    async def prioritise(self, priorities: Mapping[int, float]) -> None:
        """Have jobs taken in another order; those that have ended meanwhile do not care.

        Raises:
            StoreError: the database cannot be used just now.
        """
        if not priorities:
            return
        async with self._lock:
            await self._storage.run(lambda books: books.jobs.prioritise(priorities))
            for number in priorities.keys() & self._jobs.keys():
                self._jobs[number] = replace(self._jobs[number], priority=priorities[number])
        self._changed()

    async def settled(self) -> None:
        """Return when nothing is under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _whole(self, change: Coroutine[Any, Any, JobRecord]) -> JobRecord:
        """Do something to its end, even where its caller is cancelled: the database does not stop halfway."""
        task = asyncio.get_running_loop().create_task(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _read_again(self, known: JobRecord) -> None:
        """Know a job as the database does, which has it otherwise."""
        job = await self._storage.run(lambda books: books.jobs.job(known.id))
        self._keep(job or replace(known, state=JobState.CANCELLED))
        self._following.missed(known.id)
        self._changed()

    def _keep(self, job: JobRecord) -> None:
        if job.state.ended:
            self._jobs.pop(job.id, None)
            _leave(self._orders, same_order(job.spec), job.id)
            _leave(self._topics, topic(job.spec), job.id)
            return
        self._jobs[job.id] = job
        self._orders.setdefault(same_order(job.spec), set()).add(job.id)
        if job.spec.kind is JobKind.TUNE:
            self._topics.setdefault(topic(job.spec), set()).add(job.id)


def _leave(numbers: dict[T, set[int]], key: T, number: int) -> None:
    """Take a number away, and the key with the last one."""
    alike = numbers.get(key, set())
    alike.discard(number)
    if not alike:
        numbers.pop(key, None)
