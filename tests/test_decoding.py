"""Content of the database that this version does not understand: left out, named, kept as it is."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, conditions, document, first_values, trial
from cli_process import tuner
from hypothesis import given
from hypothesis import strategies as st

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import NotUnderstood
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.errors import InputError, UnknownJobError
from tuner.model.jobs import Job, JobSpec, JobState, Origin
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.model.typed import UnfitError, canonical, typed
from tuner.model.typed import document as parsed

NAMES = ("scan-lf:N=4",)
SPEC = JobSpec(NAMES, "time", "random", "off", "sim:k40c", options={"budget": 3})
TRIAL = Trial((first_values(NAMES[0])[0],))
MEASURED = Measurement((WorkloadResult(Status.OK, 1e-3),), 1e-3)
DEEP = "[" * 200 + "]" * 200
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuner.db") as there:
        yield there


def put(database: Database, table: str, key: int, **columns: Any) -> None:
    """Change columns of a row as another version might have written them: its checksum is sound."""
    settings = ", ".join(f"{column} = ?" for column in columns)
    database.write(
        lambda transaction: transaction.execute(
            f"UPDATE {table} SET {settings} WHERE id = ?",  # noqa: S608 - of a test
            (*columns.values(), key),
        )
    )


def spec(**changes: Any) -> str:
    return json.dumps({**vars(SPEC), "kind": "tune", **changes})


ODD_JOBS = [
    ({"ordered": spec().replace('"kind"', '"oind"')}, "oind is not known"),
    ({"ordered": spec(kind="dance")}, "kind is 'dance', not one of tune, sample"),
    ({"ordered": spec(workloads=3)}, "workloads is 3, not a list"),
    ({"ordered": spec(workloads=[])}, "it has no workloads"),
    ({"ordered": spec(nice=1)}, "nice is not known"),
    ({"ordered": spec(objective="beauty")}, "unknown objective 'beauty'"),
    ({"ordered": spec(options={"budget": float("inf")})}, "a number in it is inf"),
    ({"ordered": f'{{"options": {DEEP}}}'}, "more than 32 levels"),
    ({"ordered": "[]"}, "it is a list, not an object"),
    ({"ordered": "{"}, "it is not JSON"),
    ({"state": "asleep"}, "state is 'asleep', not one of queued"),
    ({"origin": "mars"}, "origin is 'mars', not one of client"),
    ({"attempts": "many"}, "attempts is 'many', not a whole number"),
]


@pytest.mark.parametrize("at", ["yesterday", "2026-01-01T00:00:00", "9" * 30])
def test_an_event_without_a_time_is_left_out(database: Database, at: str) -> None:
    """Device seconds are counted by these times when the daemon starts."""
    jobs = Jobs(database)
    number = jobs.add(SPEC, origin=Origin.CLIENT).id
    jobs.event(number, "told", {})
    kept = jobs.events(number)
    put(database, "job_events", 1, at=at)
    assert jobs.events(number) == kept[1:]


@pytest.mark.parametrize(("columns", "why"), ODD_JOBS, ids=[why for _, why in ODD_JOBS])
def test_an_odd_job_hides_no_other(database: Database, columns: dict[str, Any], why: str) -> None:
    """It is named and untouched; the others are listed, page by page, and can be changed."""
    jobs = Jobs(database)
    numbers = [jobs.add(SPEC, origin=Origin.CLIENT).id for _ in range(4)]
    put(database, "jobs", numbers[2], **columns)

    assert [job.id for job in jobs.jobs()] == [4, 2, 1]
    assert [job.id for job in jobs.jobs(limit=2)] == [4, 2]
    assert [job.id for job in jobs.jobs(limit=2, before=4)] == [2, 1]
    assert [(odd.what, odd.key) for odd in jobs.not_understood()] == [("job", 3)]
    assert why in str(jobs.not_understood()[0])
    with pytest.raises(UnknownJobError, match="job 3 is not understood"):
        jobs.job(3)
    with pytest.raises(UnknownJobError, match="job 3 is not understood"):
        jobs.change(3, JobState.CANCELLED)
    assert jobs.recover() == []
    assert jobs.change(1, JobState.CANCELLED)[0].state is JobState.CANCELLED


def test_an_odd_event_is_left_out(database: Database) -> None:
    """The events before and behind it are told; one of a kind that is not known yet is passed on."""
    jobs = Jobs(database)
    number = jobs.add(SPEC, origin=Origin.CLIENT).id
    for kind in ("told", "told", "applause"):
        jobs.event(number, kind, {"sentence": kind})
    put(database, "job_events", 2, data="[1]")
    put(database, "job_events", 1, data='{"state": "asleep"}')

    assert [(event.id, event.kind) for event in jobs.events(number)] == [(3, "told"), (4, "applause")]
    assert [event.id for event in jobs.events(number, limit=1)] == [3]


ODD_RUNS = [
    ({"conditions": "{}"}, "conditions.clocks is missing"),
    ({"status": "resting"}, "status is 'resting', not one of running"),
    ({"objective": "beauty"}, "unknown objective 'beauty'"),
    ({"conditions": canonical({**conditions(NAMES).record(), "cooling": "water"})}, "conditions.cooling"),
    ({"answer": canonical(document(NAMES) | {"best": trial({})})}, "lacks scan-lf:N=4"),
    ({"answer": canonical(document(NAMES, joules=-1.0))}, "energy_j is -1.0, less than 0"),
    ({"answer": canonical(document(NAMES)).replace('"clock_mhz":null', '"clock_mhz":"x"')}, "clock_mhz"),
]


@pytest.mark.parametrize(("columns", "why"), ODD_RUNS, ids=[why for _, why in ODD_RUNS])
def test_an_odd_run_hides_no_other(
    database: Database, columns: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named once in the log and by `tuner history`; the others are listed and answer."""
    store = Store(database)
    for _ in range(3):
        store.end(store.begin(conditions(NAMES)), RunStatus.FINISHED, document(NAMES))
    put(database, "runs", 2, **columns)
    with caplog.at_level(logging.WARNING):
        assert [run.id for run in store.history()] == [3, 1]
        assert [run.id for run in store.history()] == [3, 1]

    assert caplog.text.count("run 2 is not understood") == 1
    assert why in caplog.text
    assert [run.id for run in store.all_answered()] == [3, 1]
    with pytest.raises(InputError, match="run 2 is not understood"):
        store.run(2)
    database.close()
    listed = tuner("history", "--database", database.path)
    assert listed.exit_code == 0
    assert "run 2 is not understood" in listed.stdout
    shown = json.loads(tuner("history", "--database", database.path, "--json", "-").stdout)
    assert [run["run"] for run in shown["runs"]] == [3, 1]
    assert [odd["key"] for odd in shown["not_understood"]] == [2]
    assert tuner("show", "2", "--database", database.path).exit_code == 2


@pytest.mark.parametrize("odd", ["trial", "lost", "status"])
def test_what_cannot_be_gone_on_with_begins_anew(database: Database, odd: str) -> None:
    """--resume leaves a run with an odd or lost trial, or in an odd state, as it is."""
    store = Store(database)
    run = store.begin(conditions(NAMES))
    store.add(run, 1, TRIAL, MEASURED, NAMES)
    store.end(run, RunStatus.INTERRUPTED, None)
    statement = {
        "trial": "UPDATE trials SET measurement = '{\"results\": 3}'",
        "lost": "UPDATE trials SET number = 2",
        "status": "UPDATE runs SET status = 'resting'",
    }[odd]
    database.write(lambda transaction: transaction.execute(statement))

    assert store.resume(conditions(NAMES)) is None
    assert len(store.trials(run, NAMES)) == (0 if odd == "trial" else 1)


def test_odd_counts_are_left_out(database: Database) -> None:
    """Uses, samples, analytical answers and spending are read as far as they are understood."""
    ledger = Ledger(database)
    run = Store(database).begin(conditions(NAMES))
    ledger.add_uses({"a": 1.0, "b": 2.0})
    for verdict in ("inside", "shining"):
        ledger.add_sample(run, {"verdict": verdict, "told": ""})
    odd: Any = {"configuration": 3, "rule": None, "considered": 1, "default": None}
    ledger.remember_analytical("odd", odd)
    ledger.remember_analytical("own", {"configuration": None, "rule": None, "considered": 1, "default": {}})
    ledger.spend("2026-11-01", H200.uuid, -1.0, 5.0)
    database.write(lambda transaction: transaction.execute("UPDATE uses SET count = 9e999 WHERE key = 'a'"))

    assert ledger.uses() == {"b": 2.0}
    assert [one["verdict"] for one in ledger.samples(run)] == ["inside"]
    assert list(ledger.analytical()) == ["own"]
    assert ledger.analytical_answer("odd") is None
    assert ledger.spent("2026-11-01", H200.uuid) == (0.0, 0.0)


@given(st.lists(JSON | st.binary(max_size=8), min_size=15, max_size=15), JSON)
def test_no_row_raises(values: list[Any], inner: Any) -> None:
    """Whatever the columns hold, decoding gives a value or says why not."""
    text = json.dumps(inner)
    for row in (values, [*values[:1], text, *values[2:]]):
        assert isinstance(decoding.job(row), Job | NotUnderstood)
        assert decoding.event([*row[:4], text]) is not None
        assert isinstance(decoding.run([*row[:6], text, text, row[8]]), NotUnderstood)
        assert isinstance(decoding.trial(1, 1, (text, text), NAMES), NotUnderstood)
        assert decoding.analytical(row[0], text) is not None
        assert decoding.sample(row[0], row[1], text) is not None
        assert decoding.amount("use", row[0], row[1]) is not None


@given(st.sampled_from(["1e999", "NaN", "-Infinity", "9" * 400, DEEP, "9" * 5000]))
def test_numbers_and_levels_are_bounded(value: str) -> None:
    """No number that is not finite, none that SQLite cannot keep, and no absurd nesting gets in."""
    with pytest.raises(UnfitError):
        parsed(f'{{"a": {value}}}')


def test_what_was_written_is_understood(database: Database) -> None:
    """Nothing that this version writes is odd to it."""
    store, jobs = Store(database), Jobs(database)
    run = store.begin(conditions(NAMES))
    store.add(run, 1, TRIAL, MEASURED, NAMES)
    store.end(run, RunStatus.FINISHED, document(NAMES))
    job = jobs.add(SPEC, origin=Origin.CLIENT, priority=2.0, submitter=7)

    assert store.trials(run, NAMES) == [(TRIAL, MEASURED)]
    assert store.listed(5) == store.history()
    assert jobs.jobs() == [job]
    assert job.spec == SPEC
    assert jobs.not_understood() == []
    assert typed(JobSpec, json.loads(spec())) == SPEC
