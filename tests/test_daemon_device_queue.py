"""Which job runs when: queue, gates, failures, and what clients do meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from service_rig import DEVICE, LOADED, OTHER, PEER, Rig, plays, settings, working

from tuner.daemon.devices import attempt_records
from tuner.daemon.devices.attempt_records import MOST_CRASHES, wait_s
from tuner.daemon.interface import NotNowError
from tuner.devices.gpu_users import FREE, Contention
from tuner.model.jobs import OWN, Job, JobSpec, JobState, Origin
from tuner.search.job_messages import AttemptResult

BUSY = Contention(busy=True, reason="1 process of others on the GPU")


@plays
async def test_a_job_runs_and_finishes(tmp_path: Path) -> None:
    """A job that was submitted is launched with its order, and finishes when its attempt does."""
    async with working(tmp_path) as rig:
        job = await rig.submit(budget=3)
        attempt = await rig.attempts.get()
        assert (attempt.spec.job, attempt.spec.job_spec) == (job.id, replace(job.spec, device=DEVICE))
        assert (await rig.service.job(job.id)).device == DEVICE
        attempt.end()
        assert await rig.told(job.id) == [("queued", ""), ("running", ""), ("finished", "")]
        assert (await rig.service.job(job.id)).attempts == 1


@plays
async def test_the_best_waiting_job_goes_first(tmp_path: Path) -> None:
    """One job at a time on a device: the highest priority first, then the oldest."""
    async with working(tmp_path) as rig:
        first = await rig.submit()
        attempt = await rig.attempts.get()
        low, high, also = await rig.submit(1.0), await rig.submit(2.0), await rig.submit(1.0)
        assert rig.attempts.empty()
        order = []
        for _ in range(3):
            attempt.end()
            attempt = await rig.attempts.get()
            order.append(attempt.spec.job)
        assert attempt.spec.job != first.id
        assert order == [high.id, low.id, also.id]


@plays
async def test_devices_work_at_the_same_time(tmp_path: Path) -> None:
    """Each device has a job of its own."""
    async with working(tmp_path, devices=(DEVICE, OTHER)) as rig:
        await rig.submit(device=DEVICE)
        await rig.submit(device=OTHER)
        both = [await rig.attempts.get(), await rig.attempts.get()]
        assert {attempt.spec.job_spec.device for attempt in both} == {DEVICE, OTHER}


@plays
async def test_a_job_that_only_crashes_fails(tmp_path: Path) -> None:
    """After so many crashes without a trial between them a job has failed, and says why."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        for _ in range(MOST_CRASHES):
            (await rig.attempts.get()).end(AttemptResult("crashed", "it was killed by SIGSEGV"))
        state, reason = (await rig.told(job.id))[-1]
        assert state == "failed"
        assert reason == f"{MOST_CRASHES} attempts crashed, the last: it was killed by SIGSEGV"


@plays
async def test_a_job_that_gets_on_may_crash(tmp_path: Path) -> None:
    """Crashes with trials between them do not add up."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        for number in range(2 * MOST_CRASHES):
            attempt = await rig.attempts.get()
            attempt.tell("trial", {"number": number, "status": "ok"})
            attempt.end(AttemptResult("crashed", "it was killed by SIGKILL"))
        (await rig.attempts.get()).end()
        assert (await rig.told(job.id))[-1] == ("finished", "")


@plays
async def test_what_is_not_there_now_is_tried_again(tmp_path: Path) -> None:
    """A GPU that cannot be had fails no job, however often."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        for _ in range(MOST_CRASHES + 1):
            (await rig.attempts.get()).end(AttemptResult("unavailable", "no driver"))
        (await rig.attempts.get()).end()
        told = await rig.told(job.id)
        assert told[2] == ("queued", "no driver; tried again in 2 s")
        assert told[-1] == ("finished", "")


@plays
async def test_a_refused_job_has_failed(tmp_path: Path) -> None:
    """Where trying again will not help, a job fails with the message."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        (await rig.attempts.get()).end(AttemptResult("refused", "--clocks all: no clocks"))
        assert (await rig.told(job.id))[-1] == ("failed", "--clocks all: no clocks")


def test_waits_grow_and_end() -> None:
    """The wait after failures doubles, up to ten minutes."""
    assert [wait_s(failures) for failures in (1, 2, 3)] == [2.0, 4.0, 8.0]
    assert wait_s(10_000) == 600.0


@plays
async def test_a_paused_job_stops_and_goes_on(tmp_path: Path) -> None:
    """Pausing is durable at once and stops the attempt; resuming begins another."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        paused = await rig.service.pause(job.id, PEER)
        assert (paused.state, paused.reason) == (JobState.PAUSED, "by user 1000")
        await attempt.stopped.wait()
        await rig.service.resume(job.id, PEER)
        (await rig.attempts.get()).end()
        assert [state for state, _ in await rig.told(job.id)] == [
            *("queued", "running", "paused", "queued", "running", "finished")
        ]


@plays
async def test_a_cancelled_job_stops(tmp_path: Path) -> None:
    """Cancelling stops the attempt, and cancelling again changes nothing."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        cancelled = await rig.service.cancel(job.id, PEER)
        await attempt.stopped.wait()
        assert await rig.service.cancel(job.id, PEER) == cancelled
        with pytest.raises(NotNowError, match=f"job {job.id} is cancelled"):
            await rig.service.pause(job.id, PEER)
        assert (await rig.told(job.id))[-1] == ("cancelled", "by user 1000")


@plays
async def test_a_job_that_ends_while_it_is_paused_has_finished(tmp_path: Path) -> None:
    """A run that was complete before the order to stop came is not made again."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        attempt.when_stopped = AttemptResult("finished")
        await rig.service.pause(job.id, PEER)
        assert (await rig.told(job.id))[-1][0] == "finished"
        assert rig.attempts.empty()


@plays
async def test_others_on_the_gpu_go_first(tmp_path: Path) -> None:
    """A job waits while others are on the GPU, gives way when they come, and goes on when they have left."""
    async with working(tmp_path, settings(idle={"calm_s": 2.0})) as rig:
        rig.presence = BUSY
        job = await rig.submit()
        await rig.until(job.id, "queued", reason="the GPU is busy: 1 process of others")
        assert rig.attempts.empty()
        rig.presence = FREE
        attempt = await rig.attempts.get()
        rig.presence = BUSY
        await attempt.stopped.wait()
        rig.presence = FREE
        (await rig.attempts.get()).end()
        told = await rig.told(job.id)
        gave_way = told.index(("running", "")) + 1
        assert told[gave_way] == ("queued", "the GPU is busy: 1 process of others on the GPU")
        assert told[-2:] == [("running", ""), ("finished", "")]


@plays
async def test_nobody_looks_while_nothing_waits(tmp_path: Path) -> None:
    """Without a job, nobody asks who is on the GPU."""
    async with working(tmp_path) as rig:
        await asyncio.sleep(15.0)  # dozens of looks, if there were any
        assert rig.looks == 0
        job = await rig.submit()
        (await rig.attempts.get()).end()
        await rig.told(job.id)
        looks = rig.looks
        assert looks > 0
        await asyncio.sleep(15.0)
        assert rig.looks == looks


@plays
async def test_windows_open_and_close(tmp_path: Path) -> None:
    """Outside of the windows nothing runs; at their end what runs is stopped, and goes on with the next."""
    night = settings(window=({"start": "0 22 * * *", "hours": 8.0},))
    async with working(tmp_path, night) as rig:
        job = await rig.submit()
        await rig.until(job.id, "queued", reason="the next opens at 2026-03-02 22:00:00 UTC")
        assert rig.attempts.empty()
        windows = (await rig.service.status())["windows"]
        assert windows["changes_at"] == "2026-03-02T22:00:00+00:00"
        assert windows["summary"] == "closed until 2026-03-02 22:00:00 UTC"
        rig.wait(hours=10)
        attempt = await rig.attempts.get()
        rig.wait(hours=8)
        await attempt.stopped.wait()
        await rig.until(job.id, "queued", reason="the next opens at 2026-03-03 22:00:00 UTC")
        rig.wait(hours=-10)  # somebody sets the clock: to an evening before the window
        await asyncio.sleep(70.0)  # long enough to be noticed
        assert rig.attempts.empty()
        rig.wait(hours=2.5)
        (await rig.attempts.get()).end()
        assert (await rig.told(job.id))[-1] == ("finished", "")


@plays
async def test_a_budget_ends_the_day(tmp_path: Path) -> None:
    """A job is stopped when the day's joules are spent, and goes on the next day; a restart knows the day."""
    thrifty = settings(budget={"joules_per_day": 100.0})
    async with working(tmp_path, thrifty) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        attempt.spent = (3.0, 60.0)
        assert not attempt.stopped.is_set()
        attempt.spent = (6.0, 120.0)
        attempt.when_stopped = AttemptResult("interrupted", "told to stop", seconds=6.5, joules=130.0)
        await attempt.stopped.wait()
        await rig.until(job.id, "queued", reason="today's budget of 100 J of measuring is used up")
    async with working(tmp_path, thrifty) as rig:
        (device,) = (await rig.service.status())["devices"]
        assert (device["spent_today_s"], device["spent_today_j"]) == (6.5, 130.0)
        rig.wait(hours=12)
        (await rig.attempts.get()).end()
        assert (await rig.told(job.id))[-1] == ("finished", "")


@plays
async def test_an_orderly_end_queues_what_runs(tmp_path: Path) -> None:
    """When the daemon ends, its attempt is stopped and the job waits; the next daemon goes on with it."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
    assert attempt.stopped.is_set()
    async with working(tmp_path) as rig:
        (await rig.attempts.get()).end()
        told = await rig.told(job.id)
        assert ("queued", "the daemon was stopped") in told
        assert told[-1] == ("finished", "")


@plays
async def test_an_ending_is_stored_when_that_is_possible_again(tmp_path: Path) -> None:
    """While the database cannot be used, an ended job waits to be stored; nothing is lost or stuck."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        attempt = await rig.attempts.get()
        rig.storage.broken = "the disk is full"
        attempt.end()
        await asyncio.sleep(3.0)
        assert rig.service.alive
        rig.storage.broken = ""
        assert (await rig.told(job.id))[-1] == ("finished", "")
        assert rig.attempts.empty()


@plays
async def test_a_database_that_cannot_be_used_at_the_start_is_waited_for(tmp_path: Path) -> None:
    """The daemon answers all the same, says what is wrong, and works as soon as it can."""
    async with working(tmp_path) as rig:
        job = await rig.submit()
        await rig.attempts.get()
    rig.storage.broken = "locked"
    async with working(tmp_path) as rig:
        rig.storage.broken = ""
        (await rig.attempts.get()).end()
        assert (await rig.told(job.id))[-1] == ("finished", "")


async def own(rig: Rig, origin: Origin, priority: float = -0.5) -> Job:
    """A job that the daemon queues itself."""
    order = JobSpec(("fft:N=4",), device=DEVICE, policy="random")
    return await rig.service._board.add(order, origin=origin, priority=priority)


@pytest.mark.parametrize("origin", [origin for origin in Origin if origin in OWN])
def test_a_clients_job_stops_our_own(tmp_path: Path, origin: Origin) -> None:
    """The daemon's own job gives way to a client's, says why, and goes on after it."""

    @plays
    async def scene(folder: Path) -> None:
        async with working(folder) as rig:
            ours = await own(rig, origin)
            attempt = await rig.attempts.get()
            theirs = await rig.submit()
            await attempt.stopped.wait()
            attempt = await rig.attempts.get()
            assert attempt.spec.job == theirs.id
            attempt.end()
            attempt = await rig.attempts.get()
            assert attempt.spec.job == ours.id
            attempt.end()
            told = await rig.told(ours.id)
            assert [state for state, _ in told] == ["queued", "running", "queued", "running", "finished"]
            assert told[2][1] == "a client's job goes first"

    scene(tmp_path)


@plays
async def test_a_clients_job_is_not_stopped_by_another(tmp_path: Path) -> None:
    """Whatever the priority of the other, and of our own."""
    async with working(tmp_path) as rig:
        first = await rig.submit()
        attempt = await rig.attempts.get()
        await rig.submit(5.0)
        await own(rig, Origin.STALE, priority=3.0)
        await asyncio.sleep(10.0)  # dozens of looks
        assert not attempt.stopped.is_set()
        attempt.end()
        assert [state for state, _ in await rig.told(first.id)] == ["queued", "running", "finished"]


@plays
async def test_who_waits_for_something_else_stops_nobody(tmp_path: Path) -> None:
    """A client's job that is paused, rests after a failure, or has a lower priority leaves ours running."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt_records, "wait_s", lambda _: RESTS_S)
        await ours_run_on(tmp_path)


RESTS_S = 50.0  # until the next attempt


async def ours_run_on(tmp_path: Path) -> None:
    async with working(tmp_path) as rig:
        theirs = await rig.submit()
        first = await rig.attempts.get()
        await own(rig, Origin.STALE)
        first.end(AttemptResult("crashed", "it was killed by SIGSEGV"))
        attempt = await rig.attempts.get()
        assert attempt.spec.job_spec.workloads == ("fft:N=4",), "theirs rests"
        await rig.service.pause(theirs.id, PEER)
        await rig.submit(-1.0)
        await asyncio.sleep(1.2 * RESTS_S)
        assert not attempt.stopped.is_set()
        await rig.service.resume(theirs.id, PEER)
        await attempt.stopped.wait()
        assert (await rig.attempts.get()).spec.job == theirs.id


@plays
async def test_our_own_load_of_the_past_keeps_nobody_waiting(tmp_path: Path) -> None:
    """What the driver tells as load just after our job is that job's: the next one begins at once."""
    async with working(tmp_path, settings(idle={"calm_s": 30.0})) as rig:
        first, second = await rig.submit(), await rig.submit()
        attempt = await rig.attempts.get()
        rig.presence = LOADED
        attempt.end()
        await rig.attempts.get()
        assert (await rig.told(first.id))[-1][0] == "finished"
        assert [event async for event in seen(rig, second)] == ["queued", "running"]


async def seen(rig: Rig, job: Job) -> AsyncIterator[str]:
    """States of a job until it runs."""
    async for event in rig.service.events(job.id):
        if event.kind == "state":
            yield event.data["state"]
        if event.data.get("state") == "running":
            return


@plays
async def test_load_that_lasts_is_others(tmp_path: Path) -> None:
    """Some seconds after our job the load counts again."""
    async with working(tmp_path, settings(idle={"calm_s": 30.0})) as rig:
        first = await rig.submit()
        attempt = await rig.attempts.get()
        rig.presence = LOADED
        attempt.end()
        await rig.told(first.id)
        await asyncio.sleep(3.0)
        second = await rig.submit()
        await rig.until(second.id, "queued", reason="the GPU is busy: it is loaded, and not by us")
        assert rig.attempts.empty()
