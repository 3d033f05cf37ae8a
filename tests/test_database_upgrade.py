"""Databases of earlier versions are read as they are; of two files the better row is kept.

``data/tuner-0.1.db.gz`` was made by the commands of 0.1.0: ``tuner run`` of ``scan-lf:N=4 fft:N=4`` (energy,
four random trials on ``sim:jetson-tx1``) and of ``fft-large:N=16384`` (time, three on ``sim:h200``), and two
submissions to a daemon that was killed before it began.
"""

import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from damaging import everything
from mirrored import content, rows

from tuner.cli.main import main
from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import TABLES, is_sound
from tuner.database.jobs import Jobs
from tuner.database.migrations import MIGRATIONS
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import JobSpec, JobState

LATER = ("isolated", "merged", "models")  # tables that came with checksums, or after


def old(path: Path, new: Path) -> None:
    """A database and its mirror as the version before checksums left them, with the rows of another."""
    everything(new)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, applied TEXT)")
        for name, statements in MIGRATIONS[:4]:
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, '')", (name,))
        for name, table in TABLES.items():
            if name not in LATER:
                columns = ", ".join(table.columns)
                there = [row[:-2] for row in rows(new)[name]]
                marks = ", ".join("?" * len(table.columns))
                connection.executemany(f"INSERT INTO {name} ({columns}) VALUES ({marks})", there)  # noqa: S608
        connection.execute("UPDATE writes SET count = 500")
    shutil.copy(path, mirror_of(path))


def change(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    old(tmp_path / "tuner.db", tmp_path / "new" / "tuner.db")
    return tmp_path / "tuner.db"


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    return {name: [row[:-2] for row in some] for name, some in rows(path).items() if name not in LATER}


@pytest.mark.parametrize("file", ["both", "main", "mirror"])
def test_rows_of_before_get_checksums(path: Path, tmp_path: Path, file: str) -> None:
    """Everything is there, sound, in both files, whichever of them was there."""
    if file != "both":
        (mirror_of(path) if file == "main" else path).unlink()
    with Database(path) as database:
        assert database.examine().whole

    assert contents(path) == contents(tmp_path / "new" / "tuner.db")
    assert content(path) == content(mirror_of(path))
    assert all(is_sound(name, row) for name, some in rows(path).items() for row in some)
    assert not list(path.parent.glob("*.damaged-*"))


def test_the_row_that_can_be_understood_is_kept(path: Path, tmp_path: Path) -> None:
    """Rows that differ: JSON before none, a known state before none, and those that only one has."""
    change(path, "UPDATE jobs SET ordered = 'x' WHERE id = 1")
    change(mirror_of(path), "UPDATE jobs SET state = 'nothing' WHERE id = 2")
    change(path, "UPDATE runs SET conditions = CAST(x'ff' AS TEXT) WHERE id = 3")
    change(path, "DELETE FROM uses WHERE key = 'use 4'")
    change(mirror_of(path), "UPDATE runs SET objective = 'other' WHERE id = 4")
    with Database(path) as database:
        assert len(Jobs(database).jobs()) == len(Store(database).history()) == 6

    assert contents(path) == contents(tmp_path / "new" / "tuner.db")
    assert content(path) == content(mirror_of(path))


def test_the_mirror_replaces_a_file_of_before_that_is_damaged(path: Path, tmp_path: Path) -> None:
    """As ever: a file that SQLite cannot read is rebuilt, and then brought up."""
    path.write_bytes(path.read_bytes()[:5000])
    Database(path).close()

    assert contents(path) == contents(tmp_path / "new" / "tuner.db")


def test_a_mirror_that_knows_more_is_what_is_brought_up(path: Path) -> None:
    """A copy of before, put in the place of the database, does not undo what was stored since."""
    change(mirror_of(path), "UPDATE writes SET count = 501")
    change(mirror_of(path), "DELETE FROM uses")
    with Database(path) as database:
        assert database.examine().whole

    assert contents(path)["uses"] == []
    assert content(path) == content(mirror_of(path))


WRITTEN = Path(__file__).parent / "data" / "tuner-0.1.db.gz"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuner.db"
    path.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    return path


def test_stored_answers_are_served_as_they_were(database: Path, tmp_path: Path) -> None:
    """The answer of 0.1.0 comes back with its configurations, time and joules; it was measured otherwise."""
    document = tmp_path / "best.json"
    asked = ["best", "scan-lf:N=4", "fft:N=4", "--device", "sim:jetson-tx1", "--no-daemon"]
    result = CliRunner().invoke(main, [*asked, "--database", str(database), "--json", str(document)])

    assert result.exit_code == 0, result.output
    assert "stale: another version of tuner measured it" in result.output
    best = json.loads(document.read_text())["best"]
    assert best["energy_j"] == pytest.approx(0.55737, rel=1e-4)
    assert best["time_s"] == pytest.approx(0.08191, rel=1e-3)
    assert {name: list(values.values()) for name, values in best["configurations"].items()} == {
        "scan-lf:N=4": [4, 64, 2, 0, 1, "direct", 1, 0],
        "fft:N=4": [4, 64, 4, "first", 0, 1, "none", 0],
    }


def test_configurations_with_values_that_have_no_meaning_now_are_understood(database: Path) -> None:
    """fft-large listed every tunable in 0.1.0; those that its form does not have are dropped now."""
    kernel = Catalog.load().kernel("fft-large")
    workload = kernel.workload({"N": 16384})
    with Store(database) as store:
        (run,) = store.answered(["fft-large:N=16384"], "time")
    assert run.answer is not None
    assert run.answer["best"] is not None
    (values,) = run.answer["best"]["configurations"].values()

    configuration = kernel.allowed(workload, values)

    assert configuration is not None
    kept = dict(configuration.items())
    assert kept.items() < values.items()
    assert kernel.plan(workload, configuration).stages


def test_queued_jobs_are_taken_over(database: Path) -> None:
    """Jobs that a daemon of 0.1.0 had queued are there with all that was asked for."""
    with Store(database) as store:
        jobs = Jobs(store.database).jobs()

    assert {job.id: job.state for job in jobs} == {1: JobState.QUEUED, 2: JobState.QUEUED}
    specs = {job.id: job.spec for job in jobs}
    assert specs[1] == JobSpec(
        ("tridiag-wm:N=64", "scan-lf:N=8"),
        "energy",
        "auto",
        device="sim:jetson-tx1",
        options={"energy_precision": 0.01, "max_slowdown": 0.05, "trial_timeout_s": 60.0},
    )
    assert specs[2].options["budget"] == 3
