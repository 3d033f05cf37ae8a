"""Jobs in the database: their states, their events, and what a killed process leaves of them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from damaging import CONDITIONS
from examples import FEW
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from run_documents import answered

from tuner.database.connection import Database
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.errors import JobStateError, QueueFullError, UnknownJobError
from tuner.model.jobs import NEXT, Job, JobKind, JobSpec, JobState, Origin
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult

ORDER = JobSpec(
    ("scan-lf:N=4", "fft:N=4"), "time", "random", "off", "sim:k40c", JobKind.SAMPLE, {"budget": 3, "seed": 1}
)
TRIAL = Trial((Configuration({"considered": 4}),))
MEASUREMENT = Measurement((WorkloadResult(Status.OK, 1e-3),), 1e-3)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuner.db") as there:
        yield there


@pytest.fixture
def jobs(database: Database) -> Jobs:
    return Jobs(database)


def add(jobs: Jobs, priority: float = 0.0, origin: Origin = Origin.CLIENT, **options: Any) -> Job:
    return jobs.add(ORDER, origin=origin, priority=priority, **options)


def replayed(jobs: Jobs, number: int) -> tuple[JobState, str]:
    """Where a job stands by its events alone."""
    told = [event.data for event in jobs.events(number) if event.kind == "state"]
    return JobState(told[-1]["state"]), told[-1]["reason"]


class Queue(RuleBasedStateMachine):
    """Any changes, allowed or not, against a table in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = Database(Path(self.folder.name) / "tuner.db")
        self.jobs = Jobs(self.database)
        self.table: dict[int, tuple[JobState, str, int]] = {}
        self.last_event = 0

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    @precondition(lambda self: len(self.table) < 4)
    @rule(origin=st.sampled_from(Origin), priority=st.sampled_from([0.0, 1.5, -2.0]))
    def add(self, origin: Origin, priority: float) -> None:
        job = add(self.jobs, priority, origin)
        assert job.id == len(self.table) + 1
        self.table[job.id] = (JobState.QUEUED, "", 0)

    @precondition(lambda self: self.table)
    @rule(
        data=st.data(),
        state=st.sampled_from(JobState),
        reason=st.sampled_from(["", "why"]),
        started=st.booleans(),
    )
    def change(self, data: st.DataObject, state: JobState, reason: str, started: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.table)))
        was, why, attempts = self.table[number]
        if was is not state and state not in NEXT[was]:
            with pytest.raises(JobStateError, match=f"job {number} is {was.value}"):
                self.jobs.change(number, state, reason=reason, started=started)
            return
        job, event = self.jobs.change(number, state, reason=reason, started=started)
        if was is state and state.ended:
            assert event is None
            return
        self.table[number] = (state, reason, attempts + started)
        assert (event is None) == ((was, why) == (state, reason))
        assert (job.ended_at is not None) == state.ended
        if event is not None:
            assert event.id is not None
            assert event.id > self.last_event
            self.last_event = event.id

    @precondition(lambda self: self.table)
    @rule()
    def reopen(self) -> None:
        self.database.close()
        self.database = Database(self.database.path)
        self.jobs = Jobs(self.database)

    @invariant()
    def agree(self) -> None:
        found = self.jobs.jobs()
        assert [job.id for job in found] == sorted(self.table, reverse=True)
        assert {job.id: (job.state, job.reason, job.attempts) for job in found} == self.table
        for number, (state, reason, _) in self.table.items():
            assert replayed(self.jobs, number) == (state, reason)


Queue.TestCase.settings = settings(FEW, stateful_step_count=15)
test_queue = Queue.TestCase


@pytest.mark.parametrize("user", [1000, "token:ci"])
def test_job_comes_back_as_it_was_ordered(jobs: Jobs, user: int | str) -> None:
    """Everything that was asked for is there again, in the types it had."""
    job = jobs.add(ORDER, origin=Origin.STALE, priority=2.5, submitter=user)

    assert jobs.job(job.id) == job
    assert job.spec == ORDER
    assert (job.origin, job.priority, job.submitter, job.state) == (Origin.STALE, 2.5, user, JobState.QUEUED)
    assert (job.run, job.attempts, job.trials, job.started_at, job.ended_at) == (None, 0, 0, None, None)
    assert jobs.job(99) is None


def test_full_queue_takes_no_job(jobs: Jobs) -> None:
    """Queued and paused jobs count, others do not."""
    first, second = add(jobs), add(jobs)
    jobs.change(first.id, JobState.PAUSED)
    with pytest.raises(QueueFullError, match="2 jobs wait already"):
        add(jobs, most_waiting=2)
    jobs.change(second.id, JobState.RUNNING)

    assert add(jobs, most_waiting=2).id == 3


def test_jobs_are_listed_in_pages(jobs: Jobs) -> None:
    """Newest first, from a number down, in the states asked for."""
    for _ in range(5):
        add(jobs)
    jobs.change(2, JobState.CANCELLED)

    assert [job.id for job in jobs.jobs(limit=2)] == [5, 4]
    assert [job.id for job in jobs.jobs(limit=2, before=4)] == [3, 2]
    assert [job.id for job in jobs.jobs((JobState.QUEUED,), before=4)] == [3, 1]
    assert [job.id for job in jobs.jobs((JobState.CANCELLED, JobState.FAILED))] == [2]


def test_events_are_told_from_a_number_on(jobs: Jobs) -> None:
    """Who comes back with the number of the last event it has seen misses none."""
    job, other = add(jobs), add(jobs)
    told = jobs.event(job.id, "told", {"sentence": "tiled"})
    jobs.event(other.id, "told", {})
    _, changed = jobs.change(job.id, JobState.RUNNING, started=True)

    assert told.id is not None
    assert jobs.events(job.id, after=told.id) == [changed]
    assert jobs.events(job.id)[1:] == [told, changed]
    assert len(jobs.events(job.id, limit=1)) == 1
    with pytest.raises(UnknownJobError, match="no job 99"):
        jobs.event(99, "told", {})
    with pytest.raises(UnknownJobError, match="no job 99"):
        jobs.change(99, JobState.RUNNING)


def test_runs_belong_to_their_job(database: Database, jobs: Jobs) -> None:
    """A job knows its run and its trials; only its own unfinished run is resumed."""
    job, other = add(jobs), add(jobs)
    store = Store(database, job=job.id)
    run = store.begin(CONDITIONS)
    store.add(run, 1, TRIAL, MEASUREMENT, CONDITIONS.names)
    store.end(run, RunStatus.INTERRUPTED, None)
    found = jobs.job(job.id)

    assert found is not None
    assert (found.run, found.trials) == (run, 1)
    assert Store(database, job=other.id).resume(CONDITIONS) is None
    assert Store(database).resume(CONDITIONS) is None
    assert store.resume(CONDITIONS) == run
    assert len(store.trials(run, CONDITIONS.names)) == 1


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("finished", JobState.FINISHED),
        ("limited", JobState.FINISHED),
        ("interrupted", JobState.QUEUED),
        (None, JobState.QUEUED),
    ],
)
def test_jobs_of_a_dead_daemon_are_recovered(
    database: Database, jobs: Jobs, status: str | None, state: JobState
) -> None:
    """What ran is finished where its run had ended, and waits again elsewhere; other jobs stay."""
    job, other = add(jobs), add(jobs)
    jobs.change(other.id, JobState.PAUSED)
    jobs.change(job.id, JobState.RUNNING, started=True)
    store = Store(database, job=job.id)
    run = store.begin(CONDITIONS)
    if status is not None:
        store.end(run, RunStatus(status), None)
    (recovered,) = jobs.recover()

    assert (recovered.id, recovered.state, recovered.run) == (job.id, state, run)
    assert recovered.reason == ("" if state.ended else "the daemon ended in the middle")
    assert replayed(jobs, job.id)[0] is state
    assert jobs.recover() == []
    assert jobs.job(other.id) == jobs.jobs((JobState.PAUSED,))[0]


def test_the_run_gone_on_with_last_says_whether_a_job_has_ended(database: Database, jobs: Jobs) -> None:
    """After a driver was rolled back an older run of the job finishes: that one counts, not the newest."""
    job = add(jobs)
    jobs.change(job.id, JobState.RUNNING, started=True)
    newer = replace(CONDITIONS, device=replace(CONDITIONS.device, driver="2"))
    store = Store(database, job=job.id)
    first = store.begin(CONDITIONS)
    store.end(first, RunStatus.INTERRUPTED, None)
    store.end(store.begin(newer), RunStatus.INTERRUPTED, None)
    assert store.resume(CONDITIONS) == first
    store.end(first, RunStatus.FINISHED, None)
    assert jobs.has_ended(job.id)
    (recovered,) = jobs.recover()
    assert (recovered.state, recovered.run) == (JobState.FINISHED, first)


def test_old_jobs_are_forgotten_and_their_runs_are_not(database: Database, jobs: Jobs) -> None:
    """Ended jobs go with their events; those that wait stay, and no number is given twice."""
    job, waits = add(jobs), add(jobs)
    store = Store(database, job=job.id)
    store.end(store.begin(CONDITIONS), RunStatus.FINISHED, answered(None, CONDITIONS.names))
    jobs.change(job.id, JobState.FINISHED)
    now = datetime.now(timezone.utc)

    assert jobs.forget(now - timedelta(days=1)) == 0
    assert jobs.forget(now + timedelta(days=1)) == 1
    assert jobs.jobs() == [waits]
    assert jobs.events(job.id) == []
    assert [run.status for run in store.history()] == ["finished"]
    jobs.change(waits.id, JobState.CANCELLED)
    jobs.forget(now + timedelta(days=1))
    assert add(jobs).id == 3


def test_ledger_adds_up(database: Database) -> None:
    """Uses and costs are sums; what is remembered again replaces; samples come in their order."""
    ledger = Ledger(database)
    ledger.add_uses({"a": 1, "b": 2.5})
    ledger.add_uses({"a": 2})
    ledger.spend("2026-01-31", "GPU-1", 2.0, 100.0)
    ledger.spend("2026-01-31", "GPU-1", 0.5, 11.0)
    ledger.remember_analytical("k", {"considered": 4})
    ledger.remember_analytical("k", {"considered": 8})
    store = Store(database)
    run = store.begin(CONDITIONS)
    ledger.add_sample(run, {"cost": 2.0})
    ledger.add_sample(run, {"cost": 1.0})

    assert ledger.uses() == {"a": 3, "b": 2.5}
    assert ledger.spent("2026-01-31", "GPU-1") == (2.5, 111.0)
    assert ledger.spent("2026-02-01", "GPU-1") == (0.0, 0.0)
    assert ledger.analytical() == {"k": {"considered": 8}}
    assert [sample["cost"] for sample in ledger.samples(run)] == [2.0, 1.0]
    assert all(sample["at"].endswith("+00:00") for sample in ledger.samples(run))


KILLED = """
import json, os, signal, sys
from pathlib import Path
from tuner.database.connection import Database; from tuner.database.jobs import Jobs
from tuner.model.jobs import JobState

path = Path(sys.argv[1])
stages = []
for place in range(1, 200):
    child = os.fork()
    if child == 0:
        database = Database(path)
        database.write(lambda _: None)
        left = [place]

        def count(_):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        for connection in (database._pair.main, database._pair._mirror.connection):
            connection.set_trace_callback(count)
        Jobs(database).change(1, JobState.RUNNING, reason=f"attempt {place}")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    with Database(path) as database:
        jobs = Jobs(database)
        job = jobs.job(1)
        event = jobs.events(1)[-1]
        stages.append([os.WIFSIGNALED(status), job.reason, event.data["reason"], len(jobs.events(1))])
    if not os.WIFSIGNALED(status):
        break
print(json.dumps(stages))
"""


def test_change_is_whole_or_not_at_all(jobs: Jobs, database: Database) -> None:
    """Killed before any statement of a change, the job and its event are both old or both new."""
    add(jobs)
    jobs.change(1, JobState.RUNNING, reason="before")
    database.close()
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(database.path)], check=True, stdout=subprocess.PIPE, timeout=60
    )
    stages = json.loads(done.stdout)
    reasons = ["before"]
    for place, (_, reason, told, events) in enumerate(stages, 1):
        assert reason == told
        assert reason in (reasons[-1], f"attempt {place}")
        if reason != reasons[-1]:
            reasons.append(reason)
        assert events == len(reasons) + 1

    assert len(stages) > 10
    assert stages[-1][0] is False
    assert reasons[-1] == f"attempt {len(stages)}"
