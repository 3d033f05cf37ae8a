"""The database: durable trials and checksums, resumable runs, answers bound to conditions, clear errors."""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from damaging import everything
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from mirrored import rows
from run_documents import answered, trial

from tuner.database.best_known import DatabaseSource
from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import TABLES, is_sound, row_checksum
from tuner.database.integrity.copy_state import has_our_tables
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.ranking import AnswerQuery, served_answer
from tuner.database.runs import Store
from tuner.model.errors import InputError, StoreError
from tuner.model.jobs import DeviceIdentity, JobSpec, Origin
from tuner.model.plan import Configuration, Workload
from tuner.model.records import PROTOCOL, Conditions, RunStatus, measurement_from, measurement_record
from tuner.model.trial import Energy, Flag, Measurement, Status, Trial, WorkloadResult

DEVICE = DeviceIdentity("cuda:0", "GPU", "GPU-1", "580.1", "13.0", modelled=False)
CONDITIONS = Conditions(
    workloads=(("scan-lf:N=64", 1024), ("fft:N=64", 512)),
    sources={"scan-lf": "a", "fft": "b"},
    device=DEVICE,
    objective="energy",
    policy="greedy",
    seed=0,
    clocks="off",
    settings={},
)
ANSWER = answered(trial({name: {"P": 4} for name in CONDITIONS.names}))
TRIAL = Trial((Configuration({"P": 4, "L": 64}), Configuration({"P": 8, "r": 2})))
MEASUREMENT = Measurement(
    (WorkloadResult(Status.OK, 1e-3), WorkloadResult(Status.OK, 2e-3)),
    2.5e-3,
    energy=Energy(0.5, 0.001, 200.0, "sensor", "gpu"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tuner.db"


def test_trials_come_back_in_order(path: Path) -> None:
    """A second process sees every trial as it was stored."""
    other = Trial((TRIAL.configurations[1], TRIAL.configurations[0]), 875)
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        store.add(run, 1, TRIAL, MEASUREMENT, CONDITIONS.names)
        store.add(run, 2, other, MEASUREMENT, CONDITIONS.names)

    with Store(path) as store:
        assert store.trials(run, CONDITIONS.names) == [(TRIAL, MEASUREMENT), (other, MEASUREMENT)]


def test_one_measurement_a_trial(path: Path) -> None:
    """A run cannot hold the same trial twice."""
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        store.add(run, 1, TRIAL, MEASUREMENT, CONDITIONS.names)

        with pytest.raises(StoreError, match="UNIQUE"):
            store.add(run, 2, TRIAL, MEASUREMENT, CONDITIONS.names)


def test_only_an_unfinished_run_is_resumed(path: Path) -> None:
    """--resume finds the newest run under the same conditions unless it finished."""
    with Store(path) as store:
        assert store.resume(CONDITIONS) is None
        run = store.begin(CONDITIONS)
        store.end(run, RunStatus.INTERRUPTED, None)
        assert store.resume(CONDITIONS) == run
        assert store.resume(replace(CONDITIONS, seed=1)) is None
        store.end(run, RunStatus.FINISHED, answered(None, CONDITIONS.names))

        assert store.resume(CONDITIONS) is None


def test_run_in_progress_is_not_taken_over(path: Path) -> None:
    """--resume refuses a run that a living process measures, and takes over a dead one's."""
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        with pytest.raises(InputError, match=f"run {run} is being measured by process"):
            store.resume(CONDITIONS)
        store.database.write(lambda change: change.execute("UPDATE runs SET owner = 'a-boot-before:1:1'"))

        assert store.resume(CONDITIONS) == run


def find(
    store: Store,
    *,
    device: DeviceIdentity = DEVICE,
    sources: Mapping[str, str] = CONDITIONS.sources,
    batches: Mapping[str, int] = MappingProxyType({}),
    clocks_as_found: bool = False,
) -> tuple[int, tuple[str, ...]] | None:
    """The run that answers for the workloads of ``CONDITIONS``, and why it is stale."""
    asked = dict(CONDITIONS.workloads) | dict(batches)
    workloads = tuple(Workload(name.partition(":")[0], (("N", 64),), batch) for name, batch in asked.items())
    query = AnswerQuery(workloads, {}, sources, "energy", device, clocks_as_found=clocks_as_found)
    found = served_answer(query, DatabaseSource(store).of_set(CONDITIONS.names))
    return None if found is None else (found.answer.run, found.stale)


def test_fresh_answer_wins_over_newer_stale_ones(path: Path) -> None:
    """The newest answer that is true here and now is served, whatever was stored since."""
    with Store(path) as store:
        fresh = store.begin(CONDITIONS)
        store.end(fresh, RunStatus.FINISHED, ANSWER)
        stale = store.begin(replace(CONDITIONS, device=replace(DEVICE, driver="570")))
        store.end(stale, RunStatus.FINISHED, ANSWER)

        assert find(store) == (fresh, ())


@pytest.mark.parametrize(
    ("present", "reason"),
    [
        ({"device": replace(DEVICE, driver="590.2")}, "driver was 580.1, is 590.2"),
        ({"device": replace(DEVICE, uuid="GPU-2")}, "GPU was GPU-1, is GPU-2"),
        ({"device": replace(DEVICE, runtime="12.9")}, "CUDA was 13.0, is 12.9"),
        ({"sources": {"scan-lf": "a", "fft": "new"}}, "the source of fft has changed"),
        ({"batches": {"fft:N=64": 500}}, "fft:N=64 was tuned for a batch of 512, is asked for 500"),
    ],
)
def test_stale_answer_says_why(path: Path, present: dict[str, Any], reason: str) -> None:
    """An answer from other conditions is served as stale, with the reason."""
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        store.end(run, RunStatus.FINISHED, ANSWER)

        assert find(store, **present) == (run, (reason,))


def test_finished_run_answers_before_a_stopped_one(path: Path) -> None:
    """A later run that a budget ended has tried less; it does not hide a finished one."""
    with Store(path) as store:
        finished = store.begin(CONDITIONS)
        store.end(finished, RunStatus.FINISHED, ANSWER)
        store.end(store.begin(replace(CONDITIONS, policy="random")), RunStatus.LIMITED, ANSWER)

        assert find(store) == (finished, ())


def test_capped_batch_answers_for_the_batch_that_was_asked(path: Path) -> None:
    """A batch that was capped to fit the memory is found by the batch it was asked for."""
    with Store(path) as store:
        run = store.begin(replace(CONDITIONS, asked={"fft:N=64": 4096}))
        store.end(run, RunStatus.FINISHED, ANSWER)

        assert find(store, batches={"fft:N=64": 4096}) == (run, ())


def test_numbers_of_another_protocol_are_stale(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When measuring has changed so that numbers cannot be compared, stored answers say so."""
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        store.end(run, RunStatus.FINISHED, ANSWER)
        monkeypatch.setattr("tuner.database.answers.PROTOCOL", PROTOCOL + 1)
        found = find(store)

    assert found is not None
    assert "another version of tuner" in found[1][0]


def test_a_run_of_another_protocol_is_not_resumed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials would be held against numbers that they cannot be compared with."""
    with Store(path) as store:
        with monkeypatch.context() as before:
            before.setattr("tuner.model.records.PROTOCOL", PROTOCOL - 1)
            store.end(store.begin(CONDITIONS), RunStatus.INTERRUPTED, None)
        assert store.resume(CONDITIONS) is None
        run = store.begin(CONDITIONS)
        store.end(run, RunStatus.INTERRUPTED, None)
        assert store.resume(CONDITIONS) == run


def test_measurements_of_before_are_read() -> None:
    """Fields that came later have the values of a trial that they say nothing of."""
    measurement = Measurement((WorkloadResult(Status.OK, 1e-3),), makespan_s=1e-3)
    record = measurement_record(measurement)
    for later in ("estimated_j", "ended_s"):
        del record[later]
    assert measurement_from(record) == measurement


def test_order_of_workloads_does_not_matter(path: Path) -> None:
    """A co-running set is a set."""
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        store.end(run, RunStatus.FINISHED, ANSWER)

        assert next(store.answered(tuple(reversed(CONDITIONS.names)), "energy")).id == run


def test_answers_that_set_clocks_can_be_left_out(path: Path) -> None:
    """Who may not set clocks can ask for answers that need none."""
    with Store(path) as store:
        store.end(store.begin(replace(CONDITIONS, clocks="875,810")), RunStatus.FINISHED, ANSWER)

        assert find(store, clocks_as_found=True) is None


def test_corrupted_file_is_named(path: Path) -> None:
    """A file that is no database is refused with its name and a way out, and left as it is."""
    path.parent.mkdir()
    path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(StoreError, match=r"tuner\.db.*--database"):
        Store(path)
    assert path.read_bytes().startswith(b"not a database")


def test_truncated_database_gives_what_is_left(path: Path) -> None:
    """A database that is cut off in the middle, as its mirror is, still has the rows of its first part."""
    with Store(path) as store:
        for _ in range(50):
            run = store.begin(CONDITIONS)
            store.add(run, 1, TRIAL, MEASUREMENT, CONDITIONS.names)
        before = {run.id: run for run in store.history()}
    for file in (path, mirror_of(path)):
        os.truncate(file, 3 * file.stat().st_size // 4)

    with Store(path) as store:
        after = store.history()
        next_run = store.begin(CONDITIONS)
    assert 0 < len(after) < 50
    assert all(replace(run, trials=before[run.id].trials) == before[run.id] for run in after)
    assert next_run > max(run.id for run in after)


def test_locked_database_names_the_trouble(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that holds the file for too long is reported as a lock."""
    monkeypatch.setattr("tuner.database.files.BUSY_TIMEOUT_S", 0.01)
    with Store(path) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        try:
            with pytest.raises(StoreError, match="locked"):
                store.begin(CONDITIONS)
        finally:
            holder.close()


def test_full_disk_keeps_what_was_stored(path: Path) -> None:
    """When no page can be added, the trial at hand is refused whole and the earlier ones stay."""
    with Store(path) as store:
        run = store.begin(CONDITIONS)
        store.add(run, 1, TRIAL, MEASUREMENT, CONDITIONS.names)
        assert store.database._pair is not None
        (pages,) = store.database._pair.main.execute("PRAGMA page_count").fetchone()
        store.database._pair.main.execute(f"PRAGMA max_page_count = {pages}")
        big = replace(MEASUREMENT, flags=(Flag.parse("x" * 100_000),))

        with pytest.raises(StoreError, match="full"):
            store.add(run, 2, replace(TRIAL, clock_mhz=1), big, CONDITIONS.names)

        assert store.trials(run, CONDITIONS.names) == [(TRIAL, MEASUREMENT)]


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    """A directory that cannot be made is reported with its path."""
    blocker = tmp_path / "file"
    blocker.write_text("")

    with pytest.raises(StoreError, match="cannot make the directory"):
        Store(blocker / "tuner.db")


def test_newer_schema_is_refused(path: Path) -> None:
    """A database of a newer version is not written to."""
    with Store(path) as store:
        store.database.write(
            lambda change: change.execute("INSERT INTO migrations VALUES ('from-the-future', '')")
        )

    with pytest.raises(StoreError, match="newer tuner"):
        Store(path)


def test_order_of_runs_does_not_come_from_a_clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had finished when a run began is told right while the time of day jumps about."""
    alone = replace(CONDITIONS, workloads=(("fft:N=64", 512),))
    times = iter(["2026-05-01", "2026-04-01", "2027-01-01", "2025-01-01", "2024-01-01"])
    monkeypatch.setattr("tuner.database.runs.now", lambda: next(times))
    with Store(path) as store:
        before, during = store.begin(alone), store.begin(alone)
        store.end(before, RunStatus.FINISHED, answered(trial({"fft:N=64": {"P": 4}})))
        asking = store.begin(alone)
        store.end(during, RunStatus.FINISHED, answered(trial({"fft:N=64": {"P": 4}})))

        assert [run.id for run in store.finished_before(asking, "fft", "energy")] == [before]


def test_long_history_comes_in_parts(path: Path) -> None:
    """However many runs there are, each is listed once, newest first, and a limit is kept."""
    with Store(path) as store:
        runs = [store.begin(CONDITIONS) for _ in range(40)]

        assert [run.id for run in store.history()] == runs[::-1]
        assert [run.id for run in store.history(17)] == runs[:22:-1]


values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
columns = st.lists(values, max_size=5).map(tuple)


def exactly(row: tuple[object, ...]) -> list[tuple[type, str]]:
    return [(type(value), repr(value)) for value in row]


@given(columns, columns)
def test_other_rows_have_other_checksums(first: tuple[object, ...], second: tuple[object, ...]) -> None:
    """NULL, integers, reals, texts and bytes are told apart, and where one value ends."""
    same = row_checksum("runs", *first) == row_checksum("runs", *second)
    assert same == (exactly(first) == exactly(second))


@given(st.sampled_from([(None, ""), (1, 1.0), ("1", 1), (0.0, -0.0), ("a", b"a"), ("é", "e\u0301")]))
def test_values_that_look_alike_are_told_apart(pair: tuple[object, object]) -> None:
    """Values that are equal, or print the same, have other checksums; so has the same in other tables."""
    assert row_checksum("runs", pair[0]) != row_checksum("runs", pair[1])
    assert row_checksum("runs", pair[0]) != row_checksum("jobs", pair[0])
    assert row_checksum("runs", "a", "b") != row_checksum("runs", "ab", "")


def test_every_row_that_is_written_is_sound(tmp_path: Path) -> None:
    """Rows of every table have right checksums in both files, in the layout that is described."""
    path = tmp_path / "tuner.db"
    everything(path)

    found = rows(path)
    assert found == rows(mirror_of(path))
    assert all(found[name] for name in TABLES if name != "isolated")
    assert all(is_sound(name, row) for name, some in found.items() for row in some)
    with closing(sqlite3.connect(path)) as connection:
        assert has_our_tables(connection)
        for name, table in TABLES.items():
            there = connection.execute(f"SELECT name, pk FROM pragma_table_info('{name}')").fetchall()  # noqa: S608
            assert tuple(column for column, _ in there) == table.all_columns
            assert tuple(column for column, key in there if key) == table.key_columns


@FEW
@given(st.dictionaries(st.text(st.characters(codec=None, categories=None)), st.floats(-1e9, 1e9), max_size=4))
def test_any_text_can_be_stored(tmp_path: Path, uses: dict[str, float]) -> None:
    """Texts with NUL or half a character are stored as far as SQLite can, and are sound."""
    with Database(tmp_path / "tuner.db") as database:
        Ledger(database).add_uses(uses)
        Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT, priority=1)
        assert database.examine().whole


def test_numbers_that_no_database_holds_are_an_error(tmp_path: Path) -> None:
    """A number of more than 64 bits is refused with an error of this package."""
    with Database(tmp_path / "tuner.db") as database, pytest.raises(StoreError, match="cannot be stored"):
        Jobs(database).job(2**70)


@pytest.mark.parametrize("table", ["jobs", "runs", "uses"])
def test_damaged_row_is_not_written_on(tmp_path: Path, table: str) -> None:
    """A change of a row that is not sound takes the sound one first, and changes that."""
    path = tmp_path / "tuner.db"
    everything(path)
    before = rows(path)
    statement = {
        "jobs": "UPDATE jobs SET origin = 'daemon' WHERE id = 2",
        "runs": "UPDATE runs SET conditions = '{}' WHERE id = 2",
        "uses": "UPDATE uses SET count = 77 WHERE key = 'use 3'",
    }[table]
    with Database(path) as database:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        if table == "jobs":
            Jobs(database).prioritise({2: 9.0})
        elif table == "runs":
            Store(database).end(2, RunStatus.FINISHED, None)
        else:
            Ledger(database).add_uses({"use 3": 1.0})

    after = rows(path)
    assert after == rows(mirror_of(path))
    changed = [
        (
            old[: TABLES[table].keys],
            [place for place, pair in enumerate(zip(old, new, strict=True)) if len(set(pair)) > 1],
        )
        for old, new in zip(before[table], after[table], strict=True)
        if old != new
    ]
    names = TABLES[table].all_columns
    ((key, places),) = changed
    assert key in [(2,), ("use 3",)]
    assert {names[place] for place in places} <= {
        *("priority", "count", "answer", "ended", "ended_at", "version", "checksum")
    }


def test_damaged_row_is_not_deleted_for_what_it_says(tmp_path: Path) -> None:
    """A job that damage shows as ended long ago is not forgotten."""
    path = tmp_path / "tuner.db"
    everything(path)
    with Database(path) as database:
        jobs = Jobs(database)
        for file in (path, mirror_of(path)):
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("UPDATE jobs SET state = 'failed', ended_at = '1999' WHERE id = 2")
        assert jobs.forget(datetime(9999, 1, 1, tzinfo=timezone.utc)) == 0
        assert [row.key for row in database.isolated()] == [(2,)]
