"""A service in memory, for the HTTP face: it answers like the daemon's, and does nothing."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.daemon.interface import (
    NoSuchJobError,
    NoSuchRunError,
    NotNowError,
    Peer,
    Question,
    Reply,
    stream_text,
)
from tuner.daemon.service import Service
from tuner.daemon.stored_runs import Archive
from tuner.model.errors import InputError
from tuner.model.jobs import NEXT, Event, Job, JobSpec, JobState, Origin
from tuner.model.run_document import WorkloadAnswer

WHEN = "2026-01-02T03:04:05+00:00"
BEST: Mapping[str, Any] = {
    "time_s": 1.5e-3,
    "time_s_uncertainty": 1e-6,
    "energy_j": 0.012,
    "energy_j_uncertainty": 1e-4,
    "power_w": 8.0,
    "status": "ok",
}
TRIAL: Mapping[str, Any] = {
    **BEST,
    "number": 1,
    "ended_at": WHEN,
    "configurations": {"scan-lf:N=64": {"P": 4, "L": 256, "shuffle": True}},
    "clock_mhz": None,
    "power_limit_w": None,
    "confirmed": True,
    "searched": BEST,
}
RUN: Mapping[str, Any] = {
    "run": 1,
    "started_at": WHEN,
    "ended_at": WHEN,
    "status": "finished",
    "workloads": ["scan-lf:N=64"],
    "device": "sim:jetson-tx1",
    "modelled": True,
    "recorded": None,
    "objective": "energy",
    "policy": "auto",
    "clocks": "off",
    "trials": 1,
    "merged_from": None,
    "best": TRIAL,
}
SAMPLE: Mapping[str, Any] = {
    "at": WHEN,
    "verdict": "inside",
    "cost": 0.012,
    "expected": 0.012,
    "interval": 1e-3,
    "unit": "J",
    "told": "0.012 J",
}
ANSWER: Mapping[str, Any] = {
    "run": 1,
    "at": WHEN,
    "status": "finished",
    "device": "sim:jetson-tx1",
    "device_name": "Jetson TX1",
    "modelled": True,
    "objective": "energy",
    "clock_mhz": None,
    "power_limit_w": None,
    "stale": [],
    "workloads": {"scan-lf:N=64": {"batch": 8, "configuration": {"P": 4}}},
    "best": BEST,
    "default": BEST,
    "against_default": None,
    "saving": {"energy_j": 0.0, "energy_j_interval": 1e-4},
    "sampled_at": None,
    "sample": None,
}
POWER: Mapping[str, Any] = {
    "device": "sim:jetson-tx1",
    "at": WHEN,
    "watts": 8.0,
    "clock_mhz": 998.0,
    "throttle_reasons": [],
    "temperature_c": None,
    "processes": 1,
    "others": 0,
    "load_percent": None,
    "reading": "trial",
    "scope": "",
    "failure": "",
    "modelled": True,
}


def queued_job(number: int, spec: JobSpec, **changes: Any) -> Job:
    """A job of a client that waits."""
    columns: dict[str, Any] = {
        "origin": Origin.CLIENT,
        "priority": 0.0,
        "state": JobState.QUEUED,
        "reason": "",
        "run": None,
        "attempts": 0,
        "trials": 0,
        "submitter": 1000,
        "created_at": WHEN,
        "started_at": None,
        "ended_at": None,
    }
    order = {**vars(spec), "wanted_device": spec.device}
    return Job(id=number, **{**order, **columns, **changes})


class FakeArchive(Archive):
    """One run with one trial and one sample, which is also an answer.

    Args:
        check: called first by every method.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    async def runs(self, workloads: Sequence[str], limit: int, before: int | None = None) -> Any:
        self._check()
        return [RUN][:limit] if before != 1 and not workloads else []

    async def run(self, number: int) -> Any:
        self._find(number)
        return RUN

    async def trials(self, number: int, limit: int, after: int = 0) -> Any:
        self._find(number)
        trials = [TRIAL][after : after + limit]
        return {"run": number, "modelled": True, "count": 1, "trials": trials, "next": None}

    async def samples(self, number: int) -> Any:
        self._find(number)
        return [SAMPLE]

    async def history(self, workloads: Sequence[str], limit: int, before: int | None = None) -> Any:
        rows = await self.runs(workloads, limit, before)
        bound = {"driver": "1", "runtime": "12.9", "uuid": "sim", "name": "Jetson TX1"}
        more = {"against_default": None, "saving": None, "samples": [SAMPLE]}
        return [{**row, **bound, **more} for row in rows]

    def answers(self, *, stale: bool | None = None) -> Any:
        self._check()
        return [] if stale else [ANSWER]

    def _find(self, number: int) -> None:
        self._check()
        if number != RUN["run"]:
            raise NoSuchRunError(f"there is no run {number}")


class FakeService(Service):
    """Jobs stay queued until a test or a client changes them.

    Attributes:
        asked: questions and uses that came, with who asked.
        broken: what every call raises; None while all is well.
        most_jobs: that wait at most.
        following: how many follow just now.
        stores: whether uses reach the disk.
        places: of those who followed everything, with whether they wanted the power.
    """

    def __init__(self, most_jobs: int = 1000) -> None:
        self.rows: dict[int, Job] = {}
        self.told: dict[int, list[Event]] = {}
        self.asked: list[tuple[Question, Peer]] = []
        self.broken: Exception | None = None
        self.most_jobs = most_jobs
        self.following = 0
        self.stores = True
        self.waits: list[str] = []
        self.archive = FakeArchive(self._check)
        self.places: list[tuple[str, bool]] = []
        self.changed = asyncio.Condition()
        self._ids = itertools.count(1)
        self._event_ids = itertools.count(1)

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _find(self, number: int) -> Job:
        self._check()
        if number not in self.rows:
            raise NoSuchJobError(f"no job {number}")
        return self.rows[number]

    async def submit(self, spec: JobSpec, peer: Peer, priority: float = 0.0) -> Job:
        self._check()
        if not spec.workloads[0].startswith("scan"):
            raise InputError(f"unknown kernel {spec.workloads[0]!r}; choose from scan-lf")
        if sum(not job.state.ended for job in self.rows.values()) >= self.most_jobs:
            raise NotNowError("the queue is full")
        number = next(self._ids)
        job = queued_job(number, spec, priority=priority, submitter=peer.user)
        self.rows[number] = job
        await self.tell(number, "state", {"state": "queued", "reason": ""})
        return job

    async def tell(self, number: int, kind: str, data: Mapping[str, Any], *, stored: bool = True) -> None:
        """Let something happen to a job."""
        event = Event(kind, WHEN, number, data, next(self._event_ids) if stored else None)
        async with self.changed:
            self.told.setdefault(number, []).append(event)
            self.changed.notify_all()

    async def change(self, number: int, state: JobState) -> Job:
        """Change the state of a job, as the daemon would."""
        job = self._find(number)
        if state is job.state:
            return job
        if state not in NEXT[job.state]:
            raise NotNowError(f"job {number} is {job.state.value}")
        self.rows[number] = replace(job, state=state, ended_at=WHEN if state.ended else None)
        await self.tell(number, "state", {"state": state.value, "reason": ""})
        return self.rows[number]

    async def job(self, number: int) -> Job:
        return self._find(number)

    async def jobs(
        self, states: Sequence[JobState] = (), limit: int = 100, before: int | None = None
    ) -> list[Job]:
        self._check()
        found = [job for job in reversed(self.rows.values()) if not states or job.state in states]
        return [job for job in found if before is None or job.id < before][:limit]

    async def cancel(self, number: int, peer: Peer) -> Job:  # noqa: ARG002 - as the real one
        return await self.change(number, JobState.CANCELLED)

    async def pause(self, number: int, peer: Peer) -> Job:  # noqa: ARG002 - as the real one
        return await self.change(number, JobState.PAUSED)

    async def resume(self, number: int, peer: Peer) -> Job:  # noqa: ARG002 - as the real one
        return await self.change(number, JobState.QUEUED)

    async def events(self, number: int, after: int = 0) -> AsyncIterator[Event]:
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

    async def follow(self, place: str = "", *, power: bool = False) -> AsyncGenerator[bytes, None]:
        self.places.append((place, power))
        yield stream_text("begin", {})
        yield stream_text("job", {"job": 1}, "0123abcd-1")

    async def power(self) -> Any:
        self._check()
        return {"interval_s": 1.0, "devices": [{"device": "sim:jetson-tx1", "samples": [POWER]}]}

    def best(self, question: Question, peer: Peer) -> Reply:
        self._check()
        if not question.workloads[0].startswith("scan"):
            raise InputError(f"unknown kernel {question.workloads[0]!r}; choose from scan-lf")
        self.asked.append((question, peer))
        configuration = WorkloadAnswer({"P": 4, "L": 256, "shuffle": True}, "stored", "")
        return Reply(
            origin="stored",
            device={"spec": "sim:jetson-tx1", "name": "Jetson TX1", "uuid": "sim", "modelled": True},
            objective=question.objective,
            workloads=dict.fromkeys(question.workloads, configuration),
            clock_mhz=998,
            stale=(),
            answer={"best": {"time_s": 1.5e-3, "energy_j": 0.012, "energy_j_uncertainty": 1e-4}},
            run=7,
            refinement=None,
            notices=(),
        )

    async def used(self, uses: Sequence[Question], peer: Peer) -> bool:
        self._check()
        self.asked.extend((use, peer) for use in uses)
        return self.stores

    async def status(self) -> Any:
        self._check()
        return {"state": "idle", "jobs": len(self.rows), "longest_s": float("inf")}

    def not_ready(self) -> list[str]:
        return self.waits

    def metrics(self) -> bytes:
        self._check()
        return b"# TYPE tuner_jobs gauge\ntuner_jobs 0\n"
