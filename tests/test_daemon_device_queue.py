"""Which job runs when, and what becomes of it: queue, gates, failures, and what clients do meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_rig import DEVICE, LOADED, OTHER, PEER, WORKLOAD, Rig, play, plays, settings, working, works

from tuner.daemon.devices import queue
from tuner.daemon.devices.admission import WindowStatus, local_zone, window_status
from tuner.daemon.devices.queue import MOST_CRASHES, wait_s
from tuner.daemon.interface import NotNowError, Question
from tuner.daemon.settings import WindowTable
from tuner.devices.gpu_users import FREE, Contention
from tuner.model.errors import InputError, StoreError
from tuner.model.jobs import OWN, Job, JobKind, JobSpec, JobState, Origin
from tuner.search.job_messages import AttemptResult

# --- which job runs when: queue, gates, failures, and what clients do meanwhile -------------------


BUSY = Contention(busy=True, reason="1 process of others on the GPU")


@works()
async def test_a_job_runs_and_finishes(rig: Rig) -> None:
    """A job that was submitted is launched with its order, and finishes when its attempt does."""
    job, attempt = await rig.begun(budget=3)
    assert (attempt.spec.job, attempt.spec.job_spec) == (job.id, replace(job.spec, device=DEVICE))
    assert (await rig.service.job(job.id)).device == DEVICE
    attempt.end()
    assert await rig.told(job.id) == [("queued", ""), ("running", ""), ("finished", "")]
    assert (await rig.service.job(job.id)).attempts == 1


@works()
async def test_the_best_waiting_job_goes_first(rig: Rig) -> None:
    """One job at a time on a device: the highest priority first, then the oldest."""
    first, attempt = await rig.begun()
    low, high, also = await rig.submit(1.0), await rig.submit(2.0), await rig.submit(1.0)
    assert rig.attempts.empty()
    order = []
    for _ in range(3):
        attempt.end()
        attempt = await rig.attempts.get()
        order.append(attempt.spec.job)
    assert attempt.spec.job != first.id
    assert order == [high.id, low.id, also.id]


@works(devices=(DEVICE, OTHER))
async def test_devices_work_at_the_same_time(rig: Rig) -> None:
    """Each device has a job of its own."""
    await rig.submit(device=DEVICE)
    await rig.submit(device=OTHER)
    both = [await rig.attempts.get(), await rig.attempts.get()]
    assert {attempt.spec.job_spec.device for attempt in both} == {DEVICE, OTHER}


@works()
async def test_a_job_that_only_crashes_fails(rig: Rig) -> None:
    """After so many crashes without a trial between them a job has failed, and says why."""
    job = await rig.submit()
    for _ in range(MOST_CRASHES):
        (await rig.attempts.get()).end(AttemptResult("crashed", "it was killed by SIGSEGV"))
    state, reason = (await rig.told(job.id))[-1]
    assert state == "failed"
    assert reason == f"{MOST_CRASHES} attempts crashed, the last: it was killed by SIGSEGV"


@works()
async def test_a_job_that_gets_on_may_crash(rig: Rig) -> None:
    """Crashes with trials between them do not add up."""
    job = await rig.submit()
    for number in range(2 * MOST_CRASHES):
        attempt = await rig.attempts.get()
        attempt.tell("trial", {"number": number, "status": "ok"})
        attempt.end(AttemptResult("crashed", "it was killed by SIGKILL"))
    (await rig.attempts.get()).end()
    assert (await rig.told(job.id))[-1] == ("finished", "")


@works()
async def test_what_is_not_there_now_is_tried_again(rig: Rig) -> None:
    """A GPU that cannot be had fails no job, however often."""
    job = await rig.submit()
    for _ in range(MOST_CRASHES + 1):
        (await rig.attempts.get()).end(AttemptResult("unavailable", "no driver"))
    (await rig.attempts.get()).end()
    told = await rig.told(job.id)
    assert told[2] == ("queued", "no driver; tried again in 2 s")
    assert told[-1] == ("finished", "")


@works()
async def test_a_refused_job_has_failed(rig: Rig) -> None:
    """Where trying again will not help, a job fails with the message."""
    job = await rig.submit()
    (await rig.attempts.get()).end(AttemptResult("refused", "--clocks all: no clocks"))
    assert (await rig.told(job.id))[-1] == ("failed", "--clocks all: no clocks")


def test_waits_grow_and_end() -> None:
    """The wait after failures doubles, up to ten minutes."""
    assert [wait_s(failures) for failures in (1, 2, 3)] == [2.0, 4.0, 8.0]
    assert wait_s(10_000) == 600.0


@works()
async def test_a_paused_job_stops_and_goes_on(rig: Rig) -> None:
    """Pausing is durable at once and stops the attempt; resuming begins another."""
    job, attempt = await rig.begun()
    paused = await rig.service.pause(job.id, PEER)
    assert (paused.state, paused.reason) == (JobState.PAUSED, "by user 1000")
    await attempt.stopped.wait()
    await rig.service.resume(job.id, PEER)
    (await rig.attempts.get()).end()
    assert [state for state, _ in await rig.told(job.id)] == [
        *("queued", "running", "paused", "queued", "running", "finished")
    ]


@works()
async def test_a_cancelled_job_stops(rig: Rig) -> None:
    """Cancelling stops the attempt, and cancelling again changes nothing."""
    job, attempt = await rig.begun()
    cancelled = await rig.service.cancel(job.id, PEER)
    await attempt.stopped.wait()
    assert await rig.service.cancel(job.id, PEER) == cancelled
    with pytest.raises(NotNowError, match=f"job {job.id} is cancelled"):
        await rig.service.pause(job.id, PEER)
    assert (await rig.told(job.id))[-1] == ("cancelled", "by user 1000")


@works()
async def test_a_job_that_ends_while_it_is_paused_has_finished(rig: Rig) -> None:
    """A run that was complete before the order to stop came is not made again."""
    job, attempt = await rig.begun()
    attempt.when_stopped = AttemptResult("finished")
    await rig.service.pause(job.id, PEER)
    assert (await rig.told(job.id))[-1][0] == "finished"
    assert rig.attempts.empty()


@works(settings(idle={"calm_s": 2.0}))
async def test_others_on_the_gpu_go_first(rig: Rig) -> None:
    """A job waits while others are on the GPU, gives way when they come, and goes on when they have left."""
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


@works()
async def test_nobody_looks_while_nothing_waits(rig: Rig) -> None:
    """Without a job, nobody asks who is on the GPU."""
    await asyncio.sleep(15.0)  # dozens of looks, if there were any
    assert rig.looks == 0
    job = await rig.submit()
    (await rig.attempts.get()).end()
    await rig.told(job.id)
    looks = rig.looks
    assert looks > 0
    await asyncio.sleep(15.0)
    assert rig.looks == looks


@works(settings(window=({"start": "0 22 * * *", "hours": 8.0},)))
async def test_windows_open_and_close(rig: Rig) -> None:
    """Outside of the windows nothing runs; at their end what runs is stopped, and goes on with the next."""
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
        job, attempt = await rig.begun()
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
        job, attempt = await rig.begun()
    assert attempt.stopped.is_set()
    async with working(tmp_path) as rig:
        (await rig.attempts.get()).end()
        told = await rig.told(job.id)
        assert ("queued", "the daemon was stopped") in told
        assert told[-1] == ("finished", "")


@plays
async def test_an_orderly_end_waits_for_no_process_that_starts(tmp_path: Path) -> None:
    """A process that takes long to start, as on a busy machine, is given up at once, and its job waits."""
    async with working(tmp_path) as rig:
        _, ended = await rig.begun()
        ended.end()
        rig.attempts = asyncio.Queue(1)
        rig.attempts.put_nowait(ended)  # no other finds room, so none starts
        job = await rig.submit()
        await rig.until(job.id, "running")
        before_s = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() == before_s
    async with working(tmp_path) as rig:
        (await rig.attempts.get()).end()
        assert ("queued", "the daemon was stopped") in await rig.told(job.id)


@works()
async def test_an_ending_is_stored_when_that_is_possible_again(rig: Rig) -> None:
    """While the database cannot be used, an ended job waits to be stored; nothing is lost or stuck."""
    job, attempt = await rig.begun()
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
        job, _ = await rig.begun()
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
@works()
async def test_a_clients_job_stops_our_own(rig: Rig, origin: Origin) -> None:
    """The daemon's own job gives way to a client's, says why, and goes on after it."""
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


@works()
async def test_a_clients_job_is_not_stopped_by_another(rig: Rig) -> None:
    """Whatever the priority of the other, and of our own."""
    first, attempt = await rig.begun()
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
        patch.setattr(queue, "wait_s", lambda _: RESTS_S)
        await ours_run_on(tmp_path)


RESTS_S = 50.0  # until the next attempt


async def ours_run_on(tmp_path: Path) -> None:
    async with working(tmp_path) as rig:
        theirs, first = await rig.begun()
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


@works(settings(idle={"calm_s": 30.0}))
async def test_our_own_load_of_the_past_keeps_nobody_waiting(rig: Rig) -> None:
    """What the driver tells as load just after our job is that job's: the next one begins at once."""
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


@works(settings(idle={"calm_s": 30.0}))
async def test_load_that_lasts_is_others(rig: Rig) -> None:
    """Some seconds after our job the load counts again."""
    first, attempt = await rig.begun()
    rig.presence = LOADED
    attempt.end()
    await rig.told(first.id)
    await asyncio.sleep(3.0)
    second = await rig.submit()
    await rig.until(second.id, "queued", reason="the GPU is busy: it is loaded, and not by us")
    assert rig.attempts.empty()


# --- nothing that one client asks for keeps the daemon from the others for long -------------------


USES = 50


@works()
async def test_many_uses_let_others_in_between(rig: Rig) -> None:
    """Whoever is answered meanwhile waits for one use, not for all of a list."""
    questions = [Question((f"scan-lf:N={2 ** (1 + number % 8)}",)) for number in range(USES)]
    counting = asyncio.create_task(rig.service.used(questions, PEER))
    turns = 0
    while not counting.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns >= USES


# --- when tuning is allowed, summer time and all --------------------------------------------------


BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = WindowTable(start="0 22 * * 1-5", hours=8)


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def test_without_windows_tuning_is_always_allowed() -> None:
    """No window is no limit."""
    assert window_status((), berlin("2026-03-02T12:00")) == WindowStatus(open=True, changes_at=None)


@pytest.mark.parametrize(
    ("now", "allowed", "changes_at"),
    [
        ("2026-03-02T21:59:59", False, "2026-03-02T22:00"),
        ("2026-03-02T22:00:00", True, "2026-03-03T06:00"),
        ("2026-03-03T05:59:59", True, "2026-03-03T06:00"),
        ("2026-03-03T06:00:00", False, "2026-03-03T22:00"),
        ("2026-03-07T05:00:00", True, "2026-03-07T06:00"),  # Friday's, on Saturday
        ("2026-03-07T22:00:00", False, "2026-03-09T22:00"),
    ],
)
def test_window_is_open_from_its_start_for_its_hours(now: str, changes_at: str, *, allowed: bool) -> None:
    """A window begins with the minute that the expression names, and is as long as it says."""
    assert window_status((NIGHT,), berlin(now)) == WindowStatus(open=allowed, changes_at=berlin(changes_at))


def test_overlapping_windows_close_with_the_last() -> None:
    """While one of several is open, tuning is allowed."""
    late = WindowTable(start="0 4 * * *", hours=4)
    assert window_status((NIGHT, late), berlin("2026-03-03T05:00")).changes_at == berlin("2026-03-03T08:00")


def test_a_start_that_summer_time_leaves_out_is_made_up_for() -> None:
    """2:30 does not exist on that night: the window opens at 3:00, where cron's jobs run."""
    half = WindowTable(start="30 2 * * *", hours=0.5)
    assert not window_status((half,), berlin("2026-03-29T01:59:59")).open
    assert window_status((half,), berlin("2026-03-29T03:00")).open
    assert not window_status((half,), berlin("2026-03-29T03:30")).open


def test_hours_are_hours() -> None:
    """A night of nine hours by the clock has eight in spring: the window closes by what has passed."""
    closes = window_status((WindowTable(start="0 22 * * *", hours=8),), berlin("2026-03-28T23:00")).changes_at
    assert closes == berlin("2026-03-29T07:00")


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 - the zone comes below
    st.integers(0, 59),
    st.integers(0, 23),
    st.floats(0.5, 30.0),
)
def test_nothing_changes_before_it_is_said_to(moment: datetime, minute: int, hour: int, hours: float) -> None:
    """Until ``changes_at`` a window stays as it is, and then it is the other way."""
    windows = (WindowTable(start=f"{minute} {hour} * * *", hours=hours),)
    now = moment.replace(tzinfo=BERLIN).astimezone(timezone.utc).astimezone(BERLIN)
    seen = window_status(windows, now)
    assert seen.changes_at is not None
    change = seen.changes_at.astimezone(timezone.utc)
    assert change > now.astimezone(timezone.utc)
    second = timedelta(seconds=1)
    if change - now.astimezone(timezone.utc) > second:
        before = window_status(windows, (change - second).astimezone(BERLIN))
        assert before.open == seen.open
    after = window_status(windows, (change + second).astimezone(BERLIN))
    assert after.open != seen.open or hours >= 23  # the next may have begun before this one ended


@pytest.mark.parametrize(("named", "zone"), [("Asia/Tokyo", "Asia/Tokyo"), (":Asia/Tokyo", "Asia/Tokyo")])
def test_tz_names_the_zone(named: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """$TZ goes before /etc/localtime."""
    monkeypatch.setenv("TZ", named)
    assert str(local_zone()) == zone


def test_a_machine_without_a_zone_is_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither $TZ nor /etc/localtime: UTC."""
    monkeypatch.delenv("TZ", raising=False)
    assert local_zone(tmp_path / "localtime") is timezone.utc


# --- jobs whose device is not here, and a database that is not here at the start ------------------


@plays
async def test_a_job_whose_device_is_not_here_says_so(tmp_path: Path) -> None:
    """Also after it was resumed; the status tells it, and the job goes on when the device is back."""
    async with working(tmp_path, devices=(DEVICE, OTHER)) as rig:
        await rig.submit(device=OTHER)
        await rig.attempts.get()
        job, paused = await rig.submit(device=OTHER), await rig.submit(device=OTHER)
        await rig.service.pause(paused.id, PEER)
    absent = f"device {OTHER} is not here"
    async with working(tmp_path) as rig:
        assert (await rig.service.job(job.id)).reason == absent
        assert (
            f"jobs: 2 wait for device {OTHER}, which is not here" in (await rig.service.status())["troubles"]
        )
        assert (await rig.service.resume(paused.id, PEER)).reason == absent
        assert (
            f"jobs: 3 wait for device {OTHER}, which is not here" in (await rig.service.status())["troubles"]
        )
    async with working(tmp_path, devices=(DEVICE, OTHER)) as rig:
        assert not (await rig.service.status())["troubles"]
        for _ in range(3):
            (await rig.attempts.get()).end()
        assert (await rig.told(job.id))[-3:] == [("queued", ""), ("running", ""), ("finished", "")]


def test_why_no_job_is_done_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The database is tried again and again; the log has its trouble once, and jobs are done in the end."""

    async def test() -> None:
        rig = Rig(tmp_path, settings())
        rig.storage.broken = "full"
        await rig.service.begin()
        await asyncio.sleep(10.0)
        rig.storage.broken = ""
        await asyncio.sleep(5.0)
        assert (await rig.submit()).id == 1
        await rig.service.end()

    play(test())
    assert caplog.text.count("no job is done: full") == 1


# --- what holds a device up: what is told of it, and what is remembered ---------------------------


@works()
async def test_load_is_told_once(rig: Rig) -> None:
    """Each look finds another figure: the status has it, the job's reason and its events do not."""
    rig.presence = LOADED
    job = await rig.submit()
    for percent in range(20, 30):
        rig.presence = replace(LOADED, load=f"{percent} %")
        looks = rig.looks
        await asyncio.sleep(3.0)  # some looks
        assert rig.looks > looks + 1
    assert (await rig.service.job(job.id)).reason == "the GPU is busy: it is loaded, and not by us"
    assert await rig.storage.run(lambda books: len(books.jobs.events(job.id))) == 2
    (device,) = (await rig.service.status())["devices"]
    assert device["holds"] == "the GPU is busy: it is loaded, and not by us (29 %)"


@plays
async def test_a_wall_clock_that_was_wrong_forgets_no_spending(tmp_path: Path) -> None:
    """Spending belongs to its day: after a leap ahead and back, also over a restart, the day's is known."""
    thrifty = settings(budget={"seconds_per_day": 5.0})
    async with working(tmp_path, thrifty) as rig:
        rig.wait(days=2)
        _, attempt = await rig.begun()
        attempt.spent = (6.0, 1.0)
        await attempt.stopped.wait()
        rig.wait(days=1)
        attempt = await rig.attempts.get()
        rig.wait(days=-1)
        await attempt.stopped.wait()
    async with working(tmp_path, thrifty) as rig:
        rig.wait(days=2)
        (device,) = (await rig.service.status())["devices"]
        assert device["spent_today_s"] == 6.0


# --- what an attempt told and brought outlives it: stored in order, before its job is concluded ---


async def kinds(rig: Rig, number: int) -> list[str]:
    """What is stored of a job: kinds of events, and states."""
    events = await rig.storage.run(lambda books: books.jobs.events(number))
    return [event.data["state"] if event.kind == "state" else event.kind for event in events]


@works()
async def test_a_crash_while_measuring_again_counts(rig: Rig) -> None:
    """Trials that are measured again get a job no further: if each attempt ends there, it has failed."""
    job = await rig.submit()
    for _ in range(MOST_CRASHES):
        attempt = await rig.attempts.get()
        attempt.tell("trial", {"number": 0, "status": "ok", "confirming": True})
        attempt.end(AttemptResult("crashed", "it was killed by SIGSEGV"))
    assert (await rig.told(job.id))[-1][0] == "failed"


@pytest.mark.parametrize("broken", ["", "locked"])
@works()
async def test_all_that_is_told_comes_before_the_end(rig: Rig, broken: str) -> None:
    """Followers hear, and the database holds, what an attempt told, and then the job's last state."""
    job, attempt = await rig.begun()
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


@works()
async def test_what_ends_while_it_is_paused_and_the_database_is_locked_ends(rig: Rig) -> None:
    """Its ending is stored when that is possible again; then the lane is free, and the attempt counted."""
    job, attempt = await rig.begun()
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


@works()
async def test_a_result_is_stored_before_its_job_has_finished(rig: Rig) -> None:
    """Whoever is killed between the two measures once more, and loses nothing."""
    job, stored = await measured_again(rig, lambda _, sample: {"judged": sample})
    assert (await rig.told(job.id))[-1] == ("finished", "")
    assert stored == [(7, {"judged": {"energy_j": 1.0}}, JobState.RUNNING)]


@works()
async def test_a_result_that_cannot_be_read_fails_its_job(rig: Rig) -> None:
    """Nothing is stored, and what is said is said of the record and not of the database."""

    def unreadable(*_: Any) -> None:
        raise StoreError("measurement: no time")

    job, stored = await measured_again(rig, unreadable)
    state, reason = (await rig.told(job.id))[-1]
    assert (state, reason) == ("failed", "run 7 was measured again in vain: measurement: no time")
    assert not stored
    assert not (await rig.service.status())["devices"][0]["holds"]


@works()
async def test_what_is_not_known_any_more_is_not_tried(rig: Rig) -> None:
    """A job whose kernel was taken away fails at once, with what is wrong, and starts no process."""

    def unknown(_: JobSpec) -> None:
        raise InputError("unknown kernel 'gone'")

    backlog: Any = rig.service._backlog
    backlog.sample_task = unknown
    order = JobSpec((WORKLOAD,), device=DEVICE, kind=JobKind.SAMPLE)
    job = await rig.service._board.add(order, origin=Origin.CHECK)
    assert (await rig.told(job.id))[-2:] == [("running", ""), ("failed", "unknown kernel 'gone'")]
    assert rig.attempts.empty()
