"""What `tuner run` finds around it and cannot use: databases, disks, GPUs, clocks."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND, SMALL, begun, document, refused, rows, tuner
from fake_setup import FakeClocks
from tuner.power.base import ClockControl

from tuner.cli import output
from tuner.database.runs import Store
from tuner.devices.cuda.probe import driver_problem


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


# --- databases -----------------------------------------------------------------------------------


def test_database_that_is_none(db: Path) -> None:
    """A file that is no database is named and left as it was."""
    db.write_text("not a database" * 1000)
    result = tuner("run", *SMALL, "--database", db)

    assert result.exit_code == 2
    assert f"'--database': {db} is no database; name another file" in result.stderr
    assert not [path for path in db.parent.iterdir() if path != db]
    assert db.read_text() == "not a database" * 1000


@pytest.fixture
def _locked(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tuner.database.files.BUSY_TIMEOUT_S", 0.01)
    Store(db).close()
    holder = sqlite3.connect(db, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    yield
    holder.close()


@pytest.mark.usefixtures("_locked")
def test_locked_database(db: Path) -> None:
    """A database that another program holds is reported as locked."""
    result = tuner("run", *SMALL, "--database", db)

    assert result.exit_code == 1
    assert "locked" in result.stderr
    assert "Traceback" not in result.output


def test_full_disk(db: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the database cannot grow, the run ends with the trials it could store, whole."""
    begin = Store.begin

    def begin_on_a_full_disk(store: Store, *given: Any) -> int:
        number = begin(store, *given)
        pages = store.database.read(lambda view: view.rows("PRAGMA page_count"))[0][0]
        store.database.read(lambda view: view.rows(f"PRAGMA max_page_count = {pages + 3}"))
        return number

    monkeypatch.setattr(Store, "begin", begin_on_a_full_disk)
    path = tmp_path / "run.json"
    result = tuner("run", *SMALL, "--policy", "exhaustive", "--database", db, "--json", path)

    assert result.exit_code == 1
    assert "full" in result.stderr
    assert "Traceback" not in result.output
    assert not path.exists()
    with Store(db) as store:
        (run,) = store.history()
        assert 0 < run.trials < 20
        assert len(store.trials(run.id, ["scan-lf:N=4"])) == run.trials


def test_disk_that_fills_up_under_a_run(db: Path) -> None:
    """A run that may write no more ends with a message; with room again, --resume goes on from there."""
    words = ("run", *SMALL, "--policy", "exhaustive", "--database", str(db))
    document(*words, "--budget", "1", "--seed", "1")  # the database and the compiled code are there
    room = db.stat().st_size + 8_192  # for some trials, not for all

    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))"
    process = begun(*words, code=f"{limit}\n{COMMAND[2]}")
    _, errors = process.communicate()
    kept = rows(db) - 1

    assert process.returncode == 1
    assert f"Error: {db}" in errors
    assert "Traceback" not in errors
    found = document(*words, "--resume")
    assert (found["resumed"], found["space"]["measured"]) == (kept, found["space"]["pruned"])
    assert 0 < kept < found["space"]["pruned"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_database_that_may_not_be_written(db: Path) -> None:
    """A database without permission is named."""
    Store(db).close()
    db.chmod(0o400)
    result = tuner("run", *SMALL, "--database", db)

    assert result.exit_code == 1
    assert str(db) in result.stderr


# --- devices -------------------------------------------------------------------------------------


@pytest.mark.skipif(driver_problem() is None, reason="there is a GPU")
def test_no_gpu(db: Path) -> None:
    """A GPU asked for by name where there is none is an error that says what is missing."""
    refused(db, ("scan-lf:N=4", "--device", "cuda:0"), "cuda:0", "no NVIDIA driver", code=1)


def install_clocks(monkeypatch: pytest.MonkeyPatch, clocks: ClockControl | None, reason: str = "") -> None:
    monkeypatch.setattr("tuner.search.setup.open_clocks", lambda _device: (clocks, reason))


def test_clocks_that_cannot_be_set(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--clocks where there is no clock control says why, and what to do instead."""
    install_clocks(monkeypatch, None, "this GPU has no lockable clocks")
    words = (*SMALL, "--objective", "time", "--clocks", "all")
    refused(db, words, "this GPU has no lockable clocks; use --clocks off", code=1)


def test_clocks_that_may_not_be_set(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who may not set clocks is told so at the first trial; no clock is changed, no trial stored."""
    clocks = FakeClocks(denied=True)
    install_clocks(monkeypatch, clocks)
    result = tuner("run", *SMALL, "--objective", "time", "--clocks", "875", "--database", db)

    assert result.exit_code == 1
    assert "Error: not yours to set" in result.stderr
    assert clocks.events == []
    assert rows(db) == 0
    with Store(db) as store:
        assert [run.status for run in store.history()] == ["failed"]


def test_clock_is_given_back_after_an_error(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the database fails in the middle of a run, the clock set for the trial is restored."""
    clocks = FakeClocks()
    install_clocks(monkeypatch, clocks)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("tuner.database.runs.measurement_record", full)
    result = tuner("run", *SMALL, "--objective", "time", "--clocks", "875", "--database", db)

    assert result.exit_code == 1
    assert "full" in result.stderr
    assert clocks.events == ["875", "restored"]


@pytest.mark.parametrize(
    ("columns", "width"), [("80", 80), ("0", None), ("x", None), ("9" * 5000, None), ("99999", 10_000)]
)
def test_widths_that_are_none(monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None) -> None:
    """COLUMNS counts where it is a width."""
    monkeypatch.setenv("COLUMNS", columns)
    assert output.console().width == (width or output.WHOLE_LINES)
