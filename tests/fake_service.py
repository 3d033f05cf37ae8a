"""A service in memory, for the HTTP face: it answers like the daemon's, and does nothing."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.daemon.interface import NoSuchJobError, NotNowError, Peer, Question, Reply
from tuner.errors import InputError
from tuner.model.jobs import NEXT, JobEvent, JobRecord, JobSpec, JobState, Origin

WHEN = "2026-01-02T03:04:05+00:00"


class FakeService:
    """Jobs stay queued until a test or a client changes them.

    Attributes:
        asked: questions and uses that came, with who asked.
        broken: what every call raises; None while all is well.
        most_jobs: that wait at most.
        following: how many follow just now.
        stores: whether uses reach the disk.
    """

    def __init__(self, most_jobs: int = 1000) -> None:
        self.rows: dict[int, JobRecord] = {}
        self.told: dict[int, list[JobEvent]] = {}
        self.asked: list[tuple[Question, Peer]] = []
        self.broken: Exception | None = None
        self.most_jobs = most_jobs
        self.following = 0
        self.stores = True
        self.changed = asyncio.Condition()
        self._ids = itertools.count(1)
        self._events = itertools.count(1)

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _find(self, number: int) -> JobRecord:
        self._check()
        if number not in self.rows:
            raise NoSuchJobError(f"no job {number}")
        return self.rows[number]

    async def submit(self, order: JobSpec, peer: Peer, priority: float = 0.0) -> JobRecord:
        self._check()
        if not order.workloads[0].startswith("scan"):
            raise InputError(f"unknown kernel {order.workloads[0]!r}; choose from scan-lf")
        if sum(not job.state.ended for job in self.rows.values()) >= self.most_jobs:
            raise NotNowError("the queue is full")
        number = next(self._ids)
        job = JobRecord(
            number,
            order,
            Origin.CLIENT,
            priority,
            JobState.QUEUED,
            "",
            None,
            0,
            0,
            peer.uid,
            WHEN,
            None,
            None,
        )
        self.rows[number] = job
        await self.tell(number, "state", {"state": "queued", "reason": ""})
        return job

    async def tell(self, number: int, kind: str, data: Mapping[str, Any], *, stored: bool = True) -> None:
        """Let something happen to a job."""
        event = JobEvent(next(self._events) if stored else None, number, kind, WHEN, data)
        async with self.changed:
            self.told.setdefault(number, []).append(event)
            self.changed.notify_all()

    async def change(self, number: int, state: JobState) -> JobRecord:
        """Change the state of a job, as the daemon would."""
        job = self._find(number)
        if state is job.state:
            return job
        if state not in NEXT[job.state]:
            raise NotNowError(f"job {number} is {job.state.value}")
        self.rows[number] = replace(job, state=state, ended_at=WHEN if state.ended else None)
        await self.tell(number, "state", {"state": state.value, "reason": ""})
        return self.rows[number]

    async def job(self, number: int) -> JobRecord:
        return self._find(number)

    async def jobs(
        self, states: Sequence[JobState] = (), limit: int = 100, before: int | None = None
    ) -> list[JobRecord]:
        self._check()
        found = [job for job in reversed(self.rows.values()) if not states or job.state in states]
        return [job for job in found if before is None or job.id < before][:limit]

    async def cancel(self, number: int, peer: Peer) -> JobRecord:  # noqa: ARG002 - as the real one
        return await self.change(number, JobState.CANCELLED)

    async def pause(self, number: int, peer: Peer) -> JobRecord:  # noqa: ARG002 - as the real one
        return await self.change(number, JobState.PAUSED)

    async def resume(self, number: int, peer: Peer) -> JobRecord:  # noqa: ARG002 - as the real one
        return await self.change(number, JobState.QUEUED)

    async def events(self, number: int, after: int = 0) -> AsyncIterator[JobEvent]:
        self.following += 1
        try:
            for position in itertools.count():
                async with self.changed:
                    if position >= len(self.told[number]) and self.rows[number].state.ended:
                        return
                    await self.changed.wait_for(lambda at=position: at < len(self.told[number]))  # type: ignore[misc]  # lambdas have no annotations
                event = self.told[number][position]
                if event.id is None or event.id > after:
                    yield event
        finally:
            self.following -= 1

    def best(self, question: Question, peer: Peer) -> Reply:
        self._check()
        if not question.workloads[0].startswith("scan"):
            raise InputError(f"unknown kernel {question.workloads[0]!r}; choose from scan-lf")
        self.asked.append((question, peer))
        configuration = {
            "configuration": {"P": 4, "L": 256, "shuffle": True},
            "origin": "stored",
            "details": "",
        }
        return Reply(
            origin="stored",
            device={"spec": "sim:jetson-tx1", "name": "Jetson TX1", "uuid": "sim", "modelled": True},
            objective=question.objective,
            workloads=dict.fromkeys(question.workloads, configuration),
            clock_mhz=998,
            stale=(),
            answer={"makespan_s": 1.5e-3, "energy_j": 0.012, "energy_uncertainty_j": 1e-4},
            run=7,
            refinement=None,
        )

    async def used(self, uses: Sequence[Question], peer: Peer) -> bool:
        self._check()
        self.asked.extend((use, peer) for use in uses)
        return self.stores

    async def status(self) -> Mapping[str, Any]:
        self._check()
        return {"state": "idle", "jobs": len(self.rows), "longest_s": float("inf")}

    def metrics(self) -> bytes:
        self._check()
        return b"# TYPE tuner_jobs gauge\ntuner_jobs 0\n"
