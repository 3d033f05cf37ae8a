"""Jobs of several users and GPUs of one host: fair shares, the board, and turns."""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import pwd
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cli_process import document
from fake_service import queued_job
from fake_setup import PLANS, FakeMeter, Watched, trial_of
from hypothesis import given
from hypothesis import strategies as st
from service_rig import DEVICE, PATIENCE_S, PEER, ROOT, WORKLOAD, Rig, plays, settings, working, works

from tuner.daemon.interface import NoSuchJobError, NotNowError, NotYoursError, Peer
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.events import Subscriptions
from tuner.daemon.jobs.shares import DAEMON, HALF_LIFE_S, KILLED, Shares, check_may_change, user_of
from tuner.daemon.settings import LimitsTable
from tuner.database.storage import Repositories, Storage
from tuner.devices.base import RunRecord
from tuner.devices.simulated.device import Faults
from tuner.measurement.base import TurnGate
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import ClockError, StoreError
from tuner.model.jobs import Event, Job, JobSpec, JobState, Origin
from tuner.model.plan import Plan
from tuner.search.job_messages import AttemptSpec, EventWriter, parse_line, parse_spec, spec_json
from tuner.search.job_process import Attempt
from tuner.system.ownership import BoardTurns
from tuner.system.signals import StopRequest

# --- fair shares: places in the queue, turns on a device, and who may change a job ----------------


OTHER = Peer(uid=1001, pid=2)
TCP = Peer(token="default")  # noqa: S106 - a name
STRANGER = 54_321  # an id that no user has here
USERS = st.sampled_from([1000, 1001, 1002, 1003, None])
NOW = datetime.now(timezone.utc)


def job(
    number: int = 1,
    submitter: int | str | None = 1000,
    priority: float = 0.0,
    origin: Origin = Origin.CLIENT,
    state: JobState = JobState.QUEUED,
) -> Job:
    """A job of a client."""
    order = JobSpec((WORKLOAD,), device="sim:jetson-tx1")
    when = NOW.isoformat()
    return queued_job(
        number, order, origin=origin, priority=priority, state=state, submitter=submitter, created_at=when
    )


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1e6

    def __call__(self) -> float:
        return self.now_s


def shares(clock: Clock | None = None, **limits: float | tuple[str, ...]) -> Shares:
    table = LimitsTable.model_validate(limits)
    return Shares(lambda: table, clock or Clock())


def ran(found: Shares, clock: Clock, number: int, submitter: int | str | None, seconds: float) -> None:
    """Let a job run for so long."""
    one = job(number, submitter, state=JobState.RUNNING)
    found.note(one)
    clock.now_s += seconds
    found.note(replace(one, state=JobState.FINISHED))


# --- places ------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 40), st.lists(USERS, max_size=120))
def test_no_user_takes_the_last_place(queue: int, per_user: int, asking: list[int | None]) -> None:
    """However many jobs users queue, none has more than its limit, and whoever has none may queue one."""
    found = shares(queue=queue, queue_per_user=per_user)
    jobs: list[Job] = []
    for number, user in enumerate(asking, 1):
        one = job(number, user)
        own = sum(user_of(other) == user_of(one) for other in jobs)
        refusal = found.refusal(user_of(one), jobs)
        assert not (refusal and own == 0)
        if not refusal:
            jobs.append(one)
            assert own + 1 <= per_user
    users = {user_of(one) for one in jobs}
    assert len(jobs) <= queue + len(users)


def test_root_is_bounded_by_the_queue_alone() -> None:
    """Root may queue more than a user's share, up to all places; then others still have one each."""
    found = shares(queue=10, queue_per_user=2)
    jobs = [job(number, 0) for number in range(1, 10)]

    assert found.refusal(0, jobs) == ""
    jobs.append(job(10, 0))
    assert "10 jobs wait already" in found.refusal(0, jobs)
    assert found.refusal(1000, jobs) == ""


def test_jobs_that_run_or_have_ended_take_no_place() -> None:
    """What is queued or paused waits; what runs does not."""
    found = shares(queue_per_user=2)
    jobs = [job(1), job(2, state=JobState.RUNNING)]

    assert found.refusal(1000, jobs) == ""
    assert "[limits] queue_per_user" in found.refusal(1000, [*jobs, job(3, state=JobState.PAUSED)])


# --- turns -------------------------------------------------------------------------------------------


def test_who_has_used_less_goes_first() -> None:
    """A thousand jobs of the highest priority wait behind one of a user who has used the device less."""
    clock = Clock()
    found = shares(clock)
    ran(found, clock, 1, 1000, 60.0)
    ran(found, clock, 2, 1001, 5.0)
    flood = [job(number, 1000, 1e6) for number in range(3, 1003)]

    order = found.ordered([*flood, job(2000, 1001)])

    assert [one.id for one in order[:3]] == [2000, 3, 4]


def test_the_seconds_of_a_running_job_count() -> None:
    """A user whose job runs now has used its seconds already, and gives the turn away."""
    clock = Clock()
    found = shares(clock)
    found.note(job(1, 1000, state=JobState.RUNNING))
    clock.now_s += 30.0

    assert found.device_s(1000) == pytest.approx(30.0, rel=0.01)
    assert [one.id for one in found.ordered([job(2, 1000), job(3, 1001)])] == [3, 2]


@given(st.floats(0.0, 10 * HALF_LIFE_S), st.floats(0.0, 10 * HALF_LIFE_S))
def test_device_seconds_halve(length_s: float, age_s: float) -> None:
    """After each half-life the seconds of a user count half, and a span counts at most its length."""
    clock = Clock()
    found = shares(clock)
    ran(found, clock, 1, 1000, length_s)
    at_once_s = found.device_s(1000)
    clock.now_s += age_s

    assert at_once_s <= length_s * (1 + 1e-9) + 1e-9
    assert found.device_s(1000) == pytest.approx(at_once_s * 0.5 ** (age_s / HALF_LIFE_S), abs=1e-6)


@given(st.lists(st.tuples(USERS, st.floats(-1e6, 1e6)), max_size=30), st.lists(USERS, max_size=5))
def test_a_user_s_own_jobs_go_by_priority(
    waiting: list[tuple[int | None, float]], used: list[int | None]
) -> None:
    """Of one user's jobs the highest priority goes first, then the oldest; no job is lost or doubled."""
    clock = Clock()
    found = shares(clock)
    for number, user in enumerate(used):
        ran(found, clock, 1000 + number, user, 10.0)
    jobs = [job(number, user, priority) for number, (user, priority) in enumerate(waiting, 1)]

    order = found.ordered(jobs)

    assert sorted(one.id for one in order) == [one.id for one in jobs]
    for _, group in itertools.groupby(sorted(order, key=lambda one: str(user_of(one))), user_of):
        own = list(group)
        assert own == sorted(own, key=lambda one: (-one.priority, one.id))


def test_priorities_between_users_are_clamped() -> None:
    """A user's high priority passes no other user's job; root's and a set's do, and a low one gives way."""
    found = shares()
    user, other = job(1, 1000, 5.0), job(2, 1001, 0.0)
    root, group = job(3, 0, 5.0), job(4, None, 4.0, Origin.SET)
    own, low = job(5, None, -0.5, Origin.REQUEST), job(6, 1000, -1.0)

    order = found.ordered([low, own, other, user, group, root])

    assert [one.id for one in order] == [3, 4, 1, 2, 5, 6]
    assert found.level(user) == found.level(other)


def test_a_higher_clamp_lets_priorities_count() -> None:
    """With a higher limit, priorities count between users up to it."""
    found = shares(highest_priority=10.0)

    order = found.ordered([job(1, 1000, 5.0), job(2, 1001, 1e6), job(3, 1002, 10.0)])

    assert [one.id for one in order] == [2, 3, 1]


def event(kind: str, ago_s: float, **data: str) -> Event:
    at = (datetime.now(timezone.utc) - timedelta(seconds=ago_s)).isoformat()
    return Event(kind, at, 1, data, 1)


def test_stored_events_show_device_seconds() -> None:
    """After a restart the seconds come from stored changes of state; the daemon's absence is none."""
    found = shares()
    events = [
        event("state", 100.0, state="queued"),
        event("state", 90.0, state="running"),
        event("state", 70.0, state="queued", reason="a window closed"),
        event("state", 60.0, state="running"),
        event("told", 50.0),
        event("state", 5.0, state="queued", reason=KILLED),
    ]

    found.restore(job(1, 1000), events)

    assert found.device_s(1000) == pytest.approx(30.0, rel=0.03)


def test_a_clock_that_jumped_makes_no_seconds() -> None:
    """Events of the future and spans that end before they begin count for nothing."""
    found = shares()
    events = [event("state", -9e9, state="running"), event("state", 50.0, state="finished")]

    found.restore(job(1, 1000), events)

    assert found.device_s(1000) == 0.0


def test_the_table_of_users_is_bounded() -> None:
    """However many users there are, status and metrics have twenty rows, and no job is left out."""
    jobs = [job(number, 5000 + number) for number in range(1, 100)]

    table = shares().table(jobs)

    assert len(table) == 20
    assert sum(row["waiting"] for row in table) == len(jobs)


# --- rights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "managers", "may"),
    [
        (Peer(uid=STRANGER), (), True),
        (OTHER, (), False),
        (TCP, (), False),
        (ROOT, (), True),
        (Peer(uid=os.geteuid()), (), True),
        (OTHER, ("1001",), True),
        (OTHER, ("1002", "nobody-of-this-name"), False),
        (OTHER, ("*",), True),
        (TCP, ("1001", "default"), False),
        (TCP, ("token:default",), True),
        (Peer(uid=1), (pwd.getpwuid(1).pw_name,), True),
    ],
)
def test_who_may_change_a_job(peer: Peer, managers: tuple[str, ...], may: bool) -> None:
    """One's own, root and the daemon's user any, and those that daemon.toml names."""
    theirs = job(7, STRANGER)
    if may:
        check_may_change(theirs, peer, "cancel", managers)
        return
    said = rf"job 7 is a job of user {STRANGER}: .*\[limits\] manage.* may cancel it"
    with pytest.raises(NotYoursError, match=said):
        check_may_change(theirs, peer, "cancel", managers)


def test_the_daemon_s_own_jobs_are_nobody_s() -> None:
    """A job of the daemon is changed by root and managers alone; that of a TCP client is the token's."""
    own, theirs = job(1, None, origin=Origin.REQUEST), job(2, None)

    assert (user_of(own), user_of(theirs)) == (DAEMON, TCP.user)
    with pytest.raises(NotYoursError, match="job 1 is the daemon's own"):
        check_may_change(own, TCP, "pause", ())
    check_may_change(theirs, TCP, "pause", ())


async def submitted(rig: Rig, peer: Peer, count: int = 1, priority: float = 0.0) -> list[Job]:
    orders = [JobSpec((WORKLOAD,), policy="random", options={"seed": seed}) for seed in range(count)]
    return [await rig.service.submit(order, peer, priority) for order in orders]


@works(settings(limits={"queue": 40}))
async def test_a_flood_holds_up_another_by_one_job(rig: Rig) -> None:
    """The job of another user begins when the one that runs has ended, whatever a flood waits for."""
    flood = await submitted(rig, PEER, 20, 1e6)
    running = await rig.attempts.get()
    (other,) = await submitted(rig, OTHER)
    running.end()
    attempt = await rig.attempts.get()
    assert (running.spec.job, attempt.spec.job) == (flood[0].id, other.id)
    with pytest.raises(NotNowError, match="jobs of yours wait already"):
        await submitted(rig, PEER, 40)


@works()
async def test_others_jobs_are_not_changed(rig: Rig) -> None:
    """Another user's job is not cancelled, paused or resumed, unless settings allow it."""
    (mine,) = await submitted(rig, PEER)
    for change in (rig.service.cancel, rig.service.pause, rig.service.resume):
        with pytest.raises(NotYoursError, match=f"job {mine.id} is "):
            await change(mine.id, OTHER)
    rig.state.settings = settings(limits={"manage": ["1001"]})
    assert (await rig.service.cancel(mine.id, OTHER)).reason == "by user 1001"


@plays
async def test_shares_outlive_the_daemon(tmp_path: Path) -> None:
    """Whose turn it is follows from what is stored: a restart gives a flood no advantage."""
    async with working(tmp_path) as rig:
        await submitted(rig, PEER)
        (await rig.attempts.get()).end()
        await rig.until(1, "finished")
        await submitted(rig, PEER, 2)
        await rig.attempts.get()
        rig.state.settings = settings(window=[{"start": "0 0 1 1 *", "hours": 0.1}])
        await rig.service.adopt()
        await submitted(rig, OTHER)
    async with working(tmp_path) as rig:
        assert (await rig.attempts.get()).spec.job == 4
        rows = (await rig.service.status())["users"]
        assert {(row["waiting"], row["running"]) for row in rows} == {(2, 0), (0, 1)}


# --- the board of jobs and the database stay one, whoever gives up waiting ------------------------


T = TypeVar("T")
ORDER = JobSpec((WORKLOAD,), device=DEVICE)


class HeldStorage(Storage):
    """A database whose thread has done what it was asked for, and goes no further until it is let go."""

    held = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.done = asyncio.Event()
        self.go = threading.Event()

    async def run(self, action: Callable[[Repositories], T]) -> T:
        if not self.held:
            return await super().run(action)
        loop = asyncio.get_running_loop()

        def slow(books: Repositories) -> T:
            value = action(books)
            loop.call_soon_threadsafe(self.done.set)
            assert self.go.wait(PATIENCE_S)
            return value

        return await super().run(slow)


@contextlib.asynccontextmanager
async def boards(folder: Path) -> AsyncIterator[tuple[Board, HeldStorage]]:
    """A board over a database that can be held."""
    storage = HeldStorage(folder / "tuner.db")
    board = Board(storage, Subscriptions(), lambda _: None)
    await board.load()
    try:
        yield board, storage
    finally:
        await storage.close()


async def cut_short(caller: Coroutine[Any, Any, Job], board: Board, storage: HeldStorage) -> None:
    """Cancel a caller when the database has done his work, and before he hears of it."""
    storage.done.clear()
    storage.go.clear()
    storage.held = True
    task = asyncio.create_task(caller)
    await storage.done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    storage.held = False
    storage.go.set()
    await board.settled()


@plays
async def test_who_gives_up_waiting_parts_nothing(tmp_path: Path) -> None:
    """What is in the database is on the board, in the same state, also where the caller was cancelled."""
    async with boards(tmp_path) as (board, storage):
        await cut_short(board.add(ORDER, origin=Origin.CLIENT), board, storage)
        (job,) = board.jobs
        assert [job] == await storage.run(lambda books: books.jobs.jobs())
        await cut_short(board.change(job.id, JobState.CANCELLED), board, storage)
        (stored,) = await storage.run(lambda books: books.jobs.jobs())
        assert stored.state is JobState.CANCELLED
        assert not board.jobs


@plays
async def test_what_the_database_knows_better_is_read_again(tmp_path: Path) -> None:
    """A change that the database refuses is refused, and the job is known from then on as it is there."""
    async with boards(tmp_path) as (board, storage):
        job = await board.add(ORDER, origin=Origin.CLIENT)
        await storage.run(lambda books: books.jobs.change(job.id, JobState.CANCELLED))
        with pytest.raises(NotNowError, match="cancelled"):
            await board.change(job.id, JobState.RUNNING, of=(JobState.QUEUED,), started_on="sim:k40c")
        assert not board.jobs
        assert board.find(ORDER) is None


@works()
async def test_a_job_that_ended_unheard_holds_up_no_other(rig: Rig) -> None:
    """The lane goes on with the next job at once, and who follows the ended one hears of its end."""
    _, attempt = await rig.begun(2.0)
    ended, other = await rig.submit(1.0), await rig.submit()
    told = asyncio.create_task(rig.told(ended.id))
    await asyncio.sleep(0.0)
    await rig.storage.run(lambda books: books.jobs.change(ended.id, JobState.CANCELLED, reason="unheard"))
    attempt.end()
    assert (await rig.attempts.get()).spec.job == other.id
    assert await told == [("queued", ""), ("cancelled", "unheard")]


def test_an_odd_job_is_left_alone(tmp_path: Path) -> None:
    """The daemon starts whatever a job says, names it, and works on with the others."""

    async def test() -> None:
        async with boards(tmp_path) as (board, storage):
            for _ in range(2):
                await board.add(ORDER, origin=Origin.CLIENT)

            def spoil(books: Repositories) -> None:
                books.database.write(
                    lambda change: change.execute(
                        "UPDATE jobs SET ordered = replace(ordered, '\"kind\"', '\"oind\"') WHERE id = 1"
                    )
                )

            await storage.run(spoil)
            again = Board(storage, Subscriptions(), lambda _: None)
            await again.load()

            assert [job.id for job in again.jobs] == [2]
            assert "job 1 is not understood" in again.not_understood[0]
            with pytest.raises(NoSuchJobError, match="job 1 is not understood"):
                await again.change(1, JobState.CANCELLED)
            assert (await again.change(2, JobState.CANCELLED)).state is JobState.CANCELLED

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


# --- GPUs of one host take turns where load on one disturbs the joules of another.


class GaveUpError(Exception):
    """A turn is not to be had now."""


def give_up(_seconds: float) -> None:
    raise GaveUpError


def free(folder: Path, *, alone: bool) -> bool:
    """Whether another process could take a turn now; locks of files are per open file, as are those here."""
    with BoardTurns(folder, give_up) as other:
        try:
            with other.turn(alone=alone):
                return True
        except GaveUpError:
            return False


def test_joules_are_measured_alone_and_times_together(tmp_path: Path) -> None:
    """A turn alone keeps out everybody; turns for times only those that want to be alone."""
    with BoardTurns(tmp_path) as turns:
        with turns.turn(alone=True):
            assert not free(tmp_path, alone=True)
            assert not free(tmp_path, alone=False)
        with turns.turn(alone=False):
            assert not free(tmp_path, alone=True)
            assert free(tmp_path, alone=False)
        assert free(tmp_path, alone=True)


def test_who_waits_comes_before_who_was_just_there(tmp_path: Path) -> None:
    """While one waits, the one whose turn it is cannot take the turn after it too."""
    tried: list[bool] = []

    def while_waiting(_seconds: float) -> None:
        tried.append(free(tmp_path, alone=False))  # a turn for times would be free, if nobody waited
        raise GaveUpError

    with BoardTurns(tmp_path) as first, BoardTurns(tmp_path, while_waiting) as second:
        with first.turn(alone=False), pytest.raises(GaveUpError), second.turn(alone=True):
            pass
        assert tried == [False]
        assert free(tmp_path, alone=True), "who gave up waits no more"


def _take_and_die(folder: Path) -> None:
    turns = BoardTurns(folder)
    turns.turn(alone=True).__enter__()
    os._exit(1)


def test_a_dead_process_keeps_no_turn(tmp_path: Path) -> None:
    """The kernel releases what a killed attempt held."""
    process = multiprocessing.get_context("fork").Process(target=_take_and_die, args=(tmp_path,))
    process.start()
    process.join(20.0)
    assert process.exitcode == 1
    assert free(tmp_path, alone=True)


class PlayedDevice(Watched):
    """Notes whether others could use the board while it ran or idled."""

    def __init__(self, folder: Path, faults: Faults | None = None) -> None:
        super().__init__(faults)
        self._folder = folder
        self.shared: list[bool] = []

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        self.shared.append(free(self._folder, alone=False))
        return super().run(plans, window_s)

    def sleep(self, seconds: float) -> None:
        self.shared.append(free(self._folder, alone=False))
        super().sleep(seconds)


@pytest.mark.parametrize("alone", [True, False])
def test_whatever_runs_on_the_gpu_runs_in_a_turn(tmp_path: Path, alone: bool) -> None:
    """Trials and idle readings have the board alone where joules are measured, and else share it."""
    device = PlayedDevice(tmp_path)
    with BoardTurns(tmp_path) as turns:
        measurer = TrialMeasurer(device, FakeMeter(), gates=[TurnGate(turns, alone=alone)])
        assert measurer.measure(trial_of(PLANS), PLANS).ok
        trials = len(device.shared)
        assert free(tmp_path, alone=True)
        assert measurer.measure_idle(None) == 7.0
        assert free(tmp_path, alone=True)
    assert 0 < trials < len(device.shared)
    assert set(device.shared) == {not alone}


def test_a_turn_ends_with_what_fails_in_it(tmp_path: Path) -> None:
    """A trial that raises gives its turn back."""
    with BoardTurns(tmp_path) as turns:
        measurer = TrialMeasurer(Watched(), gates=[TurnGate(turns, alone=True)])
        with pytest.raises(ClockError, match="cannot be set here"):
            measurer.measure(trial_of(PLANS, 810), PLANS)
        assert free(tmp_path, alone=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The message names the folder."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=f"{file}/in: GPUs cannot take turns"):
        BoardTurns(file / "in")


def test_a_run_may_take_turns(tmp_path: Path) -> None:
    """`tuner run --exclusive-board` locks files beside its database, and measures as without."""
    words = ("run", "scan-lf:N=4", "--device", "sim:k40c", "--policy", "random", "--budget", "2")
    found = document(*words, "--exclusive-board", "--database", tmp_path / "tuner.db")
    assert found["space"]["measured"] == 2
    assert (tmp_path / "board.lock").exists()
    assert free(tmp_path, alone=True)


def test_an_attempt_gives_signs_of_life_while_it_waits(tmp_path: Path) -> None:
    """The daemon kills what is silent; a GPU that waits for its turn is not."""
    read, write = os.pipe()
    spec = AttemptSpec(1, JobSpec(("scan-lf:N=4",)), tmp_path / "tuner.db", exclusive_board=True)
    assert parse_spec(spec_json(spec)).exclusive_board
    made = Attempt(spec, EventWriter(write, "energy"), StopRequest())
    made._guard = Spent()  # type: ignore[assignment]  # played
    made._wait_for_turn(0.0)
    made._wait_for_turn(0.0)
    os.close(write)
    with os.fdopen(read) as lines:
        assert [parse_line(line.encode()) for line in lines] == [("spent", {"seconds": 2.0, "joules": 7.0})]


class Spent:
    """What an attempt has taken so far."""

    windows_s, joules = 2.0, 7.0
