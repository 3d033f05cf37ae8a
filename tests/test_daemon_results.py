"""What an attempt told and brought outlives it: stored in order, before its job is concluded."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from service_rig import DEVICE, PEER, WORKLOAD, Rig, plays, working

from tuner.daemon.devices.attempt_records import MOST_CRASHES
from tuner.model.errors import InputError, StoreError
from tuner.model.jobs import Job, JobKind, JobSpec, JobState, Origin
from tuner.search.job_messages import AttemptResult


async def kinds(rig: Rig, number: int) -> list[str]:
    """What is stored of a job: kinds of events, and states."""
    events = await rig.storage.run(lambda books: books.jobs.events(number))
    return [event.data["state"] if event.kind == "state" else event.kind for event in events]


@plays
async def test_a_crash_while_measuring_again_counts(tmp_path: Path) -> None:
    """Trials that are measured again get a job no further: if each attempt ends there, it has failed."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        for _ in range(MOST_CRASHES):
            attempt = await rig.attempts.get()
            attempt.tell("trial", {"number": 0, "status": "ok", "confirming": True})
            attempt.end(AttemptResult("crashed", "it was killed by SIGSEGV"))
        assert (await rig.told(job.id))[-1][0] == "failed"


@pytest.mark.parametrize("broken", ["", "locked"])
def test_all_that_is_told_comes_before_the_end(tmp_path: Path, broken: str) -> None:
    """Followers hear, and the database holds, what an attempt told, and then the job's last state."""

    @plays
    async def scene(folder: Path) -> None:
        async with working(folder) as rig:
            job = await rig.submit()
            attempt = await rig.attempts.get()
            rig.storage.broken = broken
            for number in range(5):
                attempt.tell("told", {"sentence": str(number)})
            attempt.tell("answer", {"summary": {}})
            attempt.end()
            await asyncio.sleep(3.0)
            rig.storage.broken = ""
            heard = [event.kind async for event in rig.service.events(job.id)]
            assert heard[2:] == [*["told"] * 5, "answer", "state"]
            assert (await kinds(rig, job.id))[2:] == [*["told"] * 5, "answer", "finished"]

    scene(tmp_path)


@plays
async def test_what_ends_while_it_is_paused_and_the_database_is_locked_ends(tmp_path: Path) -> None:
    """Its ending is stored when that is possible again; then the lane is free, and the attempt counted."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        attempt.when_stopped = AttemptResult("finished")
        await rig.service.pause(job.id, PEER)
        rig.storage.broken = "locked"
        await attempt.stopped.wait()
        await asyncio.sleep(5.0)
        rig.storage.broken = ""
        assert (await rig.told(job.id))[-1][0] == "finished"
        await rig.submit()
        await rig.attempts.get()
        assert b'tuner_job_endings_total{status="finished"} 1.0' in rig.service.metrics()


async def measured_again(rig: Rig, judged: Callable[..., Any]) -> tuple[Job, list[tuple[int, Any, JobState]]]:
    """A job that has measured the answer of run 7 again; what was stored of it, and in which state it was."""
    stored: list[tuple[int, Any, JobState]] = []

    async def insist(action: Callable[[Any], None]) -> None:
        (job,) = await rig.storage.run(lambda books: books.jobs.jobs())
        ledger = SimpleNamespace(add_sample=lambda run, document: stored.append((run, document, job.state)))
        action(SimpleNamespace(ledger=ledger))

    backlog: Any = rig.service._backlog
    storage: Any = rig.storage
    backlog.sample_task = lambda _: (7, {})
    backlog.sampled = judged
    storage.insist = insist
    order = JobSpec((WORKLOAD,), device=DEVICE, kind=JobKind.SAMPLE)
    job = await rig.service._board.add(order, origin=Origin.CHECK)
    (await rig.attempts.get()).end(AttemptResult("finished", sample={"energy_j": 1.0}))
    return job, stored


@plays
async def test_a_result_is_stored_before_its_job_has_finished(tmp_path: Path) -> None:
    """Whoever is killed between the two measures once more, and loses nothing."""
    async with working(tmp_path) as rig:
        job, stored = await measured_again(rig, lambda _, sample: {"judged": sample})
        assert (await rig.told(job.id))[-1] == ("finished", "")
        assert stored == [(7, {"judged": {"energy_j": 1.0}}, JobState.RUNNING)]


@plays
async def test_a_result_that_cannot_be_read_fails_its_job(tmp_path: Path) -> None:
    """Nothing is stored, and what is said is said of the record and not of the database."""

    def unreadable(*_: Any) -> None:
        raise StoreError("measurement: no time")

    async with working(tmp_path) as rig:
        job, stored = await measured_again(rig, unreadable)
        state, reason = (await rig.told(job.id))[-1]
        assert (state, reason) == ("failed", "run 7 was measured again in vain: measurement: no time")
        assert not stored
        assert not (await rig.service.status())["devices"][0]["holds"]


@plays
async def test_what_is_not_known_any_more_is_not_tried(tmp_path: Path) -> None:
    """A job whose kernel was taken away fails at once, with what is wrong, and starts no process."""

    def unknown(_: JobSpec) -> None:
        raise InputError("unknown kernel 'gone'")

    async with working(tmp_path) as rig:
        backlog: Any = rig.service._backlog
        backlog.sample_task = unknown
        order = JobSpec((WORKLOAD,), device=DEVICE, kind=JobKind.SAMPLE)
        job = await rig.service._board.add(order, origin=Origin.CHECK)
        assert (await rig.told(job.id))[-2:] == [("running", ""), ("failed", "unknown kernel 'gone'")]
        assert rig.attempts.empty()
