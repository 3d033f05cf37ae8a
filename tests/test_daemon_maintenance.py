"""What the daemon queues of itself and deletes: sets, wishes by their worth, and time that is proven."""

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from answering_scene import ENERGY, store_run
from fake_service import queued_job
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st
from service_rig import (
    DEVICE,
    LOADED,
    OTHER,
    PEER,
    ROOT,
    WORKLOAD,
    PlayedAttempt,
    Rig,
    catalog,
    play,
    plays,
    settings,
    working,
    works,
)

from tuner.daemon.backlog.backlog import priority, worth_of
from tuner.daemon.backlog.maintenance import CATCHING_UP, Debouncer, ProvenTime
from tuner.daemon.interface import Question
from tuner.daemon.jobs.specs import WITHDRAWN, missing, unwanted
from tuner.database.connection import Database
from tuner.database.jobs import Jobs
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import Job, JobSpec, JobState, Origin
from tuner.search.job_messages import AttemptResult

# --- what the daemon queues of itself: sets, also those that cannot be read now, and wishes by their worth


SET = {"name": "one", "workloads": (WORKLOAD,), "policy": "random"}
TUNED = {"refine": True}
LOOK_S = 5.0  # after a question, what is wanted is in the queue

MINUTE_S = 61.0  # likewise: uses were looked at


async def ask(rig: Rig, workload: str, count: float = 1.0, limit: float | None = None) -> int | None:
    """Ask for the best, wait until what that leads to is queued, and ask which job refines the answer."""
    rig.service.best(Question((workload,), max_slowdown=limit, count=count), PEER)
    await asyncio.sleep(LOOK_S)
    return rig.service.best(Question((workload,), max_slowdown=limit, count=0.0), PEER).refinement


def states(jobs: Sequence[Job]) -> list[JobState]:
    return [job.state for job in reversed(jobs)]


@works(settings(online=TUNED))
async def test_the_first_reply_says_what_comes_next(rig: Rig) -> None:
    """Of what was never seen it is said that a search follows; then its job, or why none does."""
    asked = Question((WORKLOAD,))
    first = rig.service.best(asked, PEER)
    assert first.refinement is None
    assert any("scan-lf:N=4: prediction pending" in one for one in first.notices)
    assert any("a search is queued" in one for one in first.notices)
    await asyncio.sleep(LOOK_S)
    then = rig.service.best(asked, PEER)
    assert then.refinement is not None
    assert not any("search is queued" in one for one in then.notices)
    await rig.service.cancel(then.refinement, ROOT)
    assert any("cancelled lately" in one for one in rig.service.best(asked, PEER).notices)
    rig.state.settings = settings()
    await rig.service.adopt()
    assert any("[online] refine is off" in one for one in rig.service.best(asked, PEER).notices)


@works()
async def test_asking_saves_nothing(rig: Rig) -> None:
    """Whoever polls an answer saves no joules; only uses that a client tells of do."""
    device = rig.state.identities[DEVICE]
    await rig.storage.run(lambda books: store_run(books.store, [WORKLOAD], device, bound=ENERGY, saves_j=0.5))
    await rig.service._maintenance.refresh(None)
    told = Question((WORKLOAD,), "energy", count=4.0)
    for asked, saved_j in ((Question((WORKLOAD,), "energy"), 0.0), (told, 2.0)):
        assert rig.service.best(asked, PEER).origin == "stored"
        assert saved(rig) == pytest.approx(saved_j)
    await rig.service.used([told], PEER)
    assert saved(rig) == pytest.approx(4.0)
    assert sum(rig.service._backlog.uses.take().values()) == pytest.approx(9.0)  # what is asked for is wanted


def saved(rig: Rig) -> float:
    (line,) = re.findall(
        rb"^tuner_expected_saved_joules_total{.*} (.+)$", rig.service.metrics(), re.MULTILINE
    )
    return float(line)


@plays
async def test_a_set_keeps_its_job_while_its_device_is_missing(tmp_path: Path) -> None:
    """A GPU that does not answer at one start costs no set its job."""
    chosen = settings(set=(SET,))
    async with working(tmp_path, chosen) as rig:
        (job,) = await rig.service.jobs()
    async with working(tmp_path, chosen, (OTHER,)) as rig:
        assert (await rig.service.job(job.id)).state is JobState.QUEUED
    async with working(tmp_path, chosen) as rig:
        assert [one.spec.device for one in await rig.service.jobs()] == [OTHER, DEVICE]
        assert (await rig.attempts.get()).job == job.id


@works(settings(set=(SET,)))
async def test_a_set_keeps_its_job_while_its_kernel_file_is_broken(rig: Rig) -> None:
    """A kernel file that is half saved ends no job, also not one that runs; the trouble is told."""
    job = (await rig.attempts.get()).job
    rig.state.catalog = Catalog({name: one for name, one in catalog().kernels.items() if name != "scan-lf"})
    await rig.service.adopt()
    assert states(await rig.service.jobs()) == [JobState.RUNNING]
    assert any("unknown kernel 'scan-lf'" in trouble for trouble in rig.state.troubles["sets"])
    rig.state.catalog = catalog()
    await rig.service.adopt()
    assert (await rig.service.job(job)).state is JobState.RUNNING
    assert rig.state.troubles["sets"] == []


def test_what_daemon_toml_takes_out_is_withdrawn() -> None:
    """A set that is gone, and a device that [service] devices no longer names, want no job."""
    orders, _ = missing(settings(set=(SET,)), catalog(), (OTHER,), ())
    job = queued_job(1, orders[0][0], origin=Origin.SET, submitter=None)
    for chosen, devices, numbers in (
        (settings(set=(SET,)), (OTHER,), []),
        (settings(set=(SET,)), (DEVICE,), []),
        (settings(), (DEVICE,), [1]),
        (settings(set=({**SET, "devices": (DEVICE,)},)), (DEVICE,), [1]),
        (settings(set=(SET,), service={"devices": (DEVICE,)}), (DEVICE,), [1]),
        (settings(set=(SET,), service={"devices": (DEVICE, OTHER)}), (DEVICE,), []),
    ):
        assert unwanted(chosen, catalog(), devices, (job,)) == numbers
    withdrawn = replace(job, state=JobState.CANCELLED, reason=WITHDRAWN)
    for known, count in ((withdrawn, 1), (replace(withdrawn, reason="by user 7"), 0)):
        assert len(missing(settings(set=(SET,)), catalog(), (OTHER,), (known,))[0]) == count


def test_a_missing_device_keeps_no_other_from_its_job() -> None:
    """A set that names two devices is queued on the one that is there; the other one is told."""
    chosen = settings(set=({**SET, "devices": (DEVICE, OTHER)},))
    orders, wrong = missing(chosen, catalog(), (DEVICE,), ())
    assert [order.device for order, _ in orders] == [DEVICE]
    assert wrong == [f"set one: device '{OTHER}' is not there; the daemon tunes on {DEVICE}"]


@works(settings(set=(SET,)))
async def test_a_set_has_the_priority_that_daemon_toml_gives_it_now(rig: Rig) -> None:
    """Another priority at a reload holds for the job that waits, also after a restart."""
    rig.presence = LOADED
    (job,) = await rig.service.jobs()
    rig.state.settings = settings(set=({**SET, "priority": 3.5},))
    await rig.service.adopt()
    (changed,) = await rig.service.jobs()
    assert (changed.id, changed.priority) == (job.id, 3.5)
    assert [one.priority for one in rig.service._board.jobs] == [3.5]


@works(settings(online=TUNED))
async def test_own_jobs_are_worth_what_they_are_worth_now(rig: Rig) -> None:
    """Uses that come after a job was queued count, also in the database."""
    await busy(rig)
    queued = await ask(rig, "scan-lf:N=64")
    assert await ask(rig, "scan-lf:N=64", 3e6) == queued
    await asyncio.sleep(MINUTE_S)
    stored = await rig.storage.run(lambda books: books.jobs.job(queued or 0))
    assert stored is not None
    assert worth_of(stored.priority) == pytest.approx(3e6 * 0.01 * 0.099, rel=0.02)


@works(settings(online=TUNED))
async def test_own_jobs_wait_in_the_backlog_until_they_run_next(rig: Rig) -> None:
    """One is queued, which no better one drives out, and a free place is for the best of then."""
    blocker = await busy(rig)
    asked = [await ask(rig, f"scan-lf:N={2**number}", 3.0**number) for number in range(3, 8)]
    assert [number is not None for number in asked] == [True] + [False] * 4
    assert [job.id for job in rig.service._board.waiting(DEVICE)] == asked[:1]
    blocker.end()
    done = []
    for _ in range(4):
        attempt = await rig.attempts.get()
        await asyncio.sleep(LOOK_S)
        done.append(attempt.spec.job_spec.workloads[0])
        attempt.end()
        await rig.until(attempt.job, "finished")
    assert done == [f"scan-lf:N={size}" for size in (8, 128, 64, 32)]
    assert JobState.CANCELLED not in states(await rig.service.jobs())


@works(settings(online=TUNED), (DEVICE, OTHER))
async def test_each_device_has_its_own_place(rig: Rig) -> None:
    """What waits for one device keeps the daemon from no job on another."""
    rig.presence = LOADED
    for device in (DEVICE, OTHER):
        for workload in ("scan-lf:N=64", "scan-lf:N=128"):
            rig.service.best(Question((workload,), device=device, count=1.0), PEER)
    await asyncio.sleep(LOOK_S)
    waiting = [job.spec.device for job in rig.service._board.jobs]
    assert sorted(waiting) == sorted((DEVICE, OTHER))


@plays
async def test_own_jobs_leave_places_for_clients(tmp_path: Path) -> None:
    """Half of the places stay for clients, and where their jobs wait, the daemon queues none before a set."""
    for places, own in ((1, 0), (2, 1)):
        async with working(tmp_path / str(places), settings(online=TUNED, limits={"queue": places})) as rig:
            await busy(rig)
            assert (await ask(rig, "scan-lf:N=64") is not None) is bool(own)
            for _ in range(places - own):
                await rig.submit()
    last = {**SET, "workloads": ("fft:N=4",), "priority": -2.0}
    async with working(tmp_path / "set", settings(online=TUNED, set=(last,))) as rig:
        rig.presence = LOADED
        assert await ask(rig, "scan-lf:N=64") is not None, "this set goes after all others"


@works(settings(online=TUNED))
async def test_a_place_that_a_client_gives_up_is_used(rig: Rig) -> None:
    """No question has to come for the daemon to go on with its backlog when clients cancel and pause."""
    rig.presence = LOADED
    first, second = await rig.submit(), await rig.submit()
    assert await ask(rig, "scan-lf:N=64") is None
    await rig.service.pause(first.id, PEER)
    await rig.service.cancel(second.id, PEER)
    await asyncio.sleep(LOOK_S)
    assert [job.origin for job in rig.service._board.waiting(DEVICE)] == [Origin.REQUEST]


def test_a_priority_tells_its_worth() -> None:
    """Joules per day are read from a priority, also very many and none."""
    for worth_j in (0.0, 1e-3, 1.0, 1e6):
        assert worth_of(priority(worth_j)) == pytest.approx(worth_j, rel=1e-6)
    assert worth_of(0.0) > 1e300


async def busy(rig: Rig) -> PlayedAttempt:
    """Have a client's job run on the device, so that all others wait."""
    await rig.service.submit(JobSpec(("tridiag-cr:N=4",), policy="random"), PEER)
    return await rig.attempts.get()


@pytest.mark.parametrize("options", [{"budget": 1}, {"time_limit_s": 5.0}])
@works(settings(online=TUNED))
async def test_another_search_is_no_refinement(rig: Rig, options: dict[str, float]) -> None:
    """A job with a limit promises nothing; the daemon queues its own search when that has not sufficed."""
    theirs = await rig.service.submit(JobSpec((WORKLOAD,), options=options), PEER)
    attempt = await rig.attempts.get()
    assert await ask(rig, WORKLOAD) is None
    attempt.end(AttemptResult("limited"))
    ours = await rig.attempts.get()
    assert await ask(rig, WORKLOAD) == ours.job != theirs.id
    assert (await rig.service.job(ours.job)).origin is Origin.REQUEST


@works(settings(online=TUNED))
async def test_a_search_of_another_batch_is_no_refinement(rig: Rig) -> None:
    """It answers another question, and the daemon's own search does not wait for it."""
    theirs = await rig.service.submit(JobSpec((f"{WORKLOAD},batch=7",)), PEER)
    await rig.attempts.get()
    refinement = await ask(rig, WORKLOAD)
    assert refinement not in (None, theirs.id)
    assert (await rig.service.job(refinement or 0)).origin is Origin.REQUEST


@works(settings(online=TUNED))
async def test_a_paused_job_is_no_refinement(rig: Rig) -> None:
    """A client's paused job promises nothing; the daemon's own that a client paused is not queued again."""
    await busy(rig)
    theirs = await rig.service.submit(JobSpec((f"{WORKLOAD}",), options={"seed": 5}), PEER)
    assert await ask(rig, WORKLOAD) == theirs.id, "a seed is another way to the same answer"
    await rig.service.pause(theirs.id, PEER)
    ours = await ask(rig, WORKLOAD)
    assert ours not in (None, theirs.id)
    await rig.service.pause(ours or 0, ROOT)
    assert await ask(rig, WORKLOAD) is None
    assert len(await rig.service.jobs()) == 3


@works(settings(online=TUNED))
async def test_a_set_waits_for_no_job_of_lesser_rank(rig: Rig) -> None:
    """The daemon's own search of the same keeps no set from its place."""
    await rig.submit()
    await rig.attempts.get()
    ours = await ask(rig, "fft:N=4")
    rig.state.settings = settings(online=TUNED, set=({**SET, "policy": "auto", "workloads": ("fft:N=4",)},))
    await rig.service.adopt()
    (job, *_) = rig.service._board.waiting(DEVICE)
    assert (job.origin, job.id == ours) == (Origin.SET, False)


@works()
async def test_a_limited_run_does_not_stand_for_a_set(rig: Rig) -> None:
    """The answer of a run that a client's limit ended keeps no set from its search."""
    device = rig.state.identities[DEVICE]
    await rig.storage.run(lambda books: store_run(books.store, [WORKLOAD], device, status="limited"))
    await rig.service._maintenance.refresh(None)
    rig.state.settings = settings(set=(SET,))
    await rig.service.adopt()
    (job,) = await rig.service.jobs()
    assert job.origin is Origin.SET


# --- time that is proven: what is deleted after some days is not deleted on the word of one wall clock


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
DAY_S = 86_400.0
steps = st.tuples(
    st.floats(0.0, 3 * DAY_S),  # that the machine ran
    st.floats(-400 * DAY_S, 400 * DAY_S),  # by which the wall clock jumped beside
    st.booleans(),  # whether the daemon was started again after it
)


class Machine:
    """A machine whose wall clock may say anything."""

    def __init__(self, folder: Path) -> None:
        self.wall = NOW
        self.ran_s = 1000.0
        self._folder = folder
        self.start()

    def start(self) -> None:
        self.time = ProvenTime(self._folder / "proven-time", lambda: self.wall, lambda: self.ran_s)

    def run(self, seconds: float, jump_s: float = 0.0) -> None:
        self.ran_s += seconds
        self.wall += timedelta(seconds=seconds + jump_s)


@tried(max_examples=15)  # each waits for the disk
@given(st.lists(steps, min_size=2, max_size=6))
def test_it_never_outruns_wall_clock_or_machine(passed: list[tuple[float, float, bool]]) -> None:
    """Whatever the wall clock does: never later than it, never faster than a few times the running time."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        before = machine.time.advance(NOW.isoformat())
        for seconds, jump_s, again in passed:
            if again:
                machine.start()
            machine.run(seconds, jump_s)
            proven = machine.time.advance("2090-01-01")
            assert proven <= machine.wall
            assert proven <= before + timedelta(seconds=CATCHING_UP * seconds + 1)
            before = proven


def test_a_machine_that_runs_now_and_then_keeps_up(tmp_path: Path) -> None:
    """Eight hours a day are enough for the wall clock to be followed."""
    machine = Machine(tmp_path)
    machine.time.advance(NOW.isoformat())
    for _ in range(30):
        machine.start()
        machine.run(DAY_S / 3, jump_s=0.0)
        assert machine.time.advance("") == machine.wall
        machine.wall += timedelta(days=2 / 3)  # off


def test_without_a_file_it_begins_at_what_is_stored(tmp_path: Path) -> None:
    """A first start with a clock that is 200 days ahead proves nothing, nor does a file that is garbage."""
    machine = Machine(tmp_path)
    machine.wall += timedelta(days=200)
    assert machine.time.advance(NOW.isoformat()) == NOW
    for garbage in ("", "[]", '{"utc": 3}', "\0"):
        (tmp_path / "proven-time").write_text(garbage)
        machine.start()
        assert machine.time.advance(NOW.isoformat()) == NOW
    (tmp_path / "proven-time").unlink()
    machine.start()
    assert machine.time.advance("") == machine.wall  # nothing is stored that could be lost


def test_a_job_with_a_stamp_before_those_of_earlier_ones_is_kept(tmp_path: Path) -> None:
    """A board without a clock that begins in 1970 stamps its jobs so: they are not 50 years old."""
    with Database(tmp_path / "db") as database:
        jobs = Jobs(database)
        for _ in range(3):
            job = jobs.add(JobSpec(("scan-lf:N=4",), "time", "sim:k40c"), origin=Origin.CLIENT)
            jobs.change(job.id, JobState.CANCELLED)
        stamps = {1: "2025-01-01T00:00:00.000+00:00", 2: NOW.isoformat(), 3: "1970-01-01T00:00:00.000+00:00"}
        for number, at in stamps.items():
            database.write(
                lambda change, number=number, at=at: change.execute(  # type: ignore[misc]  # bound at once
                    "UPDATE jobs SET created_at = ?, ended_at = ? WHERE id = ?", (at, at, number)
                )
            )
        assert jobs.forget(NOW - timedelta(days=90)) == 1
        assert {job.id for job in jobs.jobs()} == {2, 3}


@pytest.mark.parametrize(
    "kept", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "9999-12-31", "[" * 9999]
)
def test_what_the_file_says_ends_nothing(tmp_path: Path, kept: str) -> None:
    """A damaged file with the first or last day of all is no error and moves nothing ahead."""
    machine = Machine(tmp_path)
    (tmp_path / "proven-time").write_text(json.dumps({"utc": kept}) if kept[0] != "[" else kept)
    machine.run(DAY_S)
    assert machine.time.advance(NOW.isoformat()) <= machine.wall


def test_what_is_asked_for_again_is_done_once() -> None:
    """Requests until an action begins are one, at the time of the first; after the end there is none."""
    done_s: list[float] = []

    async def asked() -> None:
        loop, debouncer = asyncio.get_running_loop(), Debouncer()

        async def act() -> None:
            done_s.append(loop.time())

        for name, within_s in (("one", 2.0), ("one", 5.0), ("other", 3.0)):
            debouncer.soon(name, within_s, act)
        await asyncio.sleep(10.0)
        debouncer.soon("one", 2.0, act)
        debouncer.close()
        debouncer.soon("one", 2.0, act)
        await asyncio.sleep(10.0)

    play(asked())
    assert done_s == pytest.approx([2.0, 3.0])
