"""Files of before checksums: the better row of both is kept, and both are the same and sound afterwards."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from damaging import everything
from mirrored import content, rows

from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import TABLES, is_sound
from tuner.database.jobs import Jobs
from tuner.database.migrations import MIGRATIONS
from tuner.database.runs import Store

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
