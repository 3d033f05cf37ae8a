"""Merging: finished runs of another database are taken over once, as they are, with where they come from."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import run_documents
from click.testing import CliRunner
from damaging import CONDITIONS
from mirrored import rows

from tuner.cli.db import db
from tuner.cli.main import main
from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.merging import merge_file
from tuner.database.runs import Store
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult

NAMES = CONDITIONS.names


def add_run(path: Path, trials: int = 3, status: RunStatus = RunStatus.FINISHED) -> int:
    """A run of a database, whose answer is its second trial."""
    with Store(path) as store:
        return stored_run(store, trials, status)


def stored_run(store: Store, trials: int, status: RunStatus = RunStatus.FINISHED) -> int:
    """The same in a database that is open."""
    run = store.begin(CONDITIONS)
    for number in range(1, trials + 1):
        trial = Trial((Configuration({"P": number}),))
        store.add(run, number, trial, Measurement((WorkloadResult(Status.OK, 1e-3),), 1e-3), NAMES)
    best = run_documents.trial({NAMES[0]: {"P": 2}}, time_s=1e-3)
    store.end(run, status, run_documents.answered(best, run=run, space={"measured": trials}))
    return run


def merged(path: Path, other: Path, source: str = "") -> tuple[int, int, int]:
    """Merge a file, and what that added: runs, runs that were known, trials."""
    with Database(path) as database:
        report = merge_file(database, other, source=source)
        assert database.examine().whole
    assert rows(path) == rows(mirror_of(path))
    assert not report.refused
    return report.runs_added, report.runs_known, report.trials_added


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A database with one run."""
    path = tmp_path / "here.db"
    add_run(path)
    return path


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Another one with two."""
    path = tmp_path / "there.db"
    add_run(path, 2)
    add_run(path, 4)
    return path


def test_runs_are_taken_over_as_they_are(here: Path, there: Path) -> None:
    """A merged run has the trials, times and answer of the run it is, and says where it comes from."""
    assert merged(here, there, "host b") == (2, 0, 6)
    with Store(there) as theirs, Store(here) as ours:
        identity = theirs.database.read(lambda view: view.row("SELECT identity FROM writes"))
        for run, other in zip(ours.history(2), theirs.history(), strict=True):
            assert (run.conditions, run.answer) == (other.conditions, other.answer)
            assert (run.started_at, run.ended_at) == (other.started_at, other.ended_at)
            assert ours.stored_trials(run.id, NAMES) == theirs.stored_trials(other.id, NAMES)
            assert run.origin is not None
            assert (run.origin.source, run.origin.number) == ("host b", other.id)
            assert (run.origin.identity,) == identity


def test_merging_again_or_by_another_host_adds_nothing(here: Path, there: Path, tmp_path: Path) -> None:
    """A run is known wherever it comes from: the same file, its own file, a third host, its host again."""
    third = tmp_path / "third.db"
    merged(here, there)
    assert merged(here, there) == (0, 2, 0)
    assert merged(here, here) == (0, 3, 0)
    assert merged(third, here) == (3, 0, 9)
    assert merged(there, third) == (1, 2, 3)
    assert merged(here, third) == (0, 3, 0)


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.FINISHED])
def test_only_finished_runs_are_taken_over(here: Path, tmp_path: Path, status: RunStatus) -> None:
    """A run that may be gone on with where it was measured is left there."""
    other = tmp_path / "other.db"
    add_run(other, status=status)
    assert merged(here, other) == (0, 0, 0)


def test_limited_runs_are_taken_over_where_asked_for(here: Path, tmp_path: Path) -> None:
    """A run that a budget has ended comes with its status, and the report has its number here."""
    other = tmp_path / "other.db"
    add_run(other, 2, RunStatus.LIMITED)
    with Database(here) as database:
        report = merge_file(database, other, limited=True)
    with Store(here) as store:
        run = store.run(report.newest_run or 0)
    assert run is not None
    assert (run.status, run.trials) == (RunStatus.LIMITED, 2)


def test_limited_is_an_option_of_the_command(here: Path, tmp_path: Path) -> None:
    """Without it, what a budget has ended is left out; with it, it is taken over."""
    other = tmp_path / "other.db"
    add_run(other, 2, RunStatus.LIMITED)
    words = ["merge", str(other), "--database", str(here)]
    for options, told in (((), "0 runs added"), (("--limited",), "1 run added, with 2 trials")):
        assert told in CliRunner().invoke(db, [*words, *options], catch_exceptions=False).output


def test_a_merged_run_is_not_gone_on_with_in_place_of_an_own_one(here: Path, tmp_path: Path) -> None:
    """An own run that was interrupted is resumed, though the same was finished elsewhere and merged since."""
    own = add_run(here, status=RunStatus.INTERRUPTED)
    other = tmp_path / "other.db"
    add_run(other)
    merged(here, other)
    with Store(here) as store:
        assert store.resume(CONDITIONS) == own


def test_a_long_source_is_cut_and_travels_on(here: Path, there: Path, tmp_path: Path) -> None:
    """What one host stores as the origin of a run, another one takes."""
    merged(here, there, "x" * 5000)
    assert merged(tmp_path / "third.db", here) == (3, 0, 9)


def test_the_command_says_what_was_merged_and_what_was_not(here: Path, there: Path) -> None:
    """Runs are counted; a damaged one is named, with exit status 1; the history says what was merged."""
    add_run(there, status=RunStatus.LIMITED)
    with closing(sqlite3.connect(there)) as connection, connection:
        connection.execute("UPDATE trials SET measurement = '{}' WHERE run_id = 2 AND number = 1")
    arguments = ["db", "merge", str(there), "--database", str(here)]
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 1
    assert f"{there}: 1 run added, with 2 trials; 0 runs known already" in told.output
    assert "1 run left out: no finished search (1 limited); --limited takes what a limit has" in told.stdout
    assert "left out: run 2: its trial 1 is damaged" in told.stdout
    counts = json.loads(CliRunner().invoke(main, [*arguments, "--json", "-"]).stdout)
    assert (counts["runs_known"], counts["runs_unfinished"], counts["runs_refused"]) == (1, 1, 1)
    listed = CliRunner().invoke(main, ["history", "--database", str(here), "--json", "-"])
    runs = json.loads(listed.stdout)["runs"]
    assert [(run["merged_from"] or {}).get("source") for run in runs] == [str(there), None]


def test_a_file_that_is_not_there_makes_no_database(tmp_path: Path) -> None:
    """A mistyped name is an error before anything is made."""
    missing, made = str(tmp_path / "none.db"), tmp_path / "made.db"
    assert CliRunner().invoke(main, ["db", "merge", missing, "--database", str(made)]).exit_code == 2
    own = tmp_path / "own.db"
    add_run(own)
    found = CliRunner().invoke(main, ["db", "merge", str(own), "--database", str(own)])
    assert found.exit_code == 2
    assert "this is the database itself" in found.stderr
    assert not made.exists()
