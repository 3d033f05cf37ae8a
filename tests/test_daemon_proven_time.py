"""Time that is proven: what is deleted after some days is not deleted on the word of one wall clock."""

import json
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.daemon.backlog.maintenance import CATCHING_UP, ProvenTime
from tuner.database.connection import Database
from tuner.database.jobs import Jobs
from tuner.model.jobs import JobSpec, JobState, Origin

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


@settings(max_examples=15)  # each waits for the disk
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
