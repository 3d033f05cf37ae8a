"""Rows that are sound nowhere are kept aside; what else may be damaged beside rows is worked out again."""

import errno
import json
import logging
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from damaging import CONDITIONS, Model, backup_of, named
from mirrored import rows

from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.check import check_copies
from tuner.database.integrity.checksums import Position
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.errors import StoreDamagedError
from tuner.model.jobs import Job, JobSpec, Origin

ORDER = JobSpec(("scan-lf:N=4",))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.made(tmp_path_factory.mktemp("model") / "tuner.db")


@pytest.fixture(scope="module")
def jobs(model: Model, tmp_path_factory: pytest.TempPathFactory) -> list[Job]:
    """What is served of them where nothing is damaged."""
    with Database(model.copy(tmp_path_factory.mktemp("sound") / "copy")) as database:
        return Jobs(database).jobs()


@pytest.fixture
def path(model: Model, tmp_path: Path) -> Path:
    return model.copy(tmp_path / "copy")


def spoil(path: Path, statement: str, *, main: bool = True, mirror: bool = True) -> None:
    """Change something in one file or both, as damage would."""
    for file, wanted in ((path, main), (mirror_of(path), mirror)):
        if wanted and file.exists():
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute(statement)


def test_row_that_is_sound_nowhere_is_kept_aside(
    path: Path, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named once, kept as both files have it, and everything else is served."""
    spoil(path, "UPDATE jobs SET ordered = 'lost' WHERE id = 2", mirror=False)
    spoil(path, "UPDATE jobs SET reason = CAST(x'ff' AS TEXT) WHERE id = 2", main=False)
    with caplog.at_level(logging.WARNING), Database(path) as database:
        assert [job.id for job in Jobs(database).jobs()] == [6, 5, 4, 3, 1]
        (row,) = database.isolated()
        found = database.examine()

    assert found.whole
    assert caplog.text.count("jobs 2: sound in neither file, kept aside") == 1
    assert (row.table, row.key) == ("jobs", (2,))
    assert json.loads(row.main or b"")["ordered"] == "lost"
    assert json.loads(row.mirror or b"")["reason"] == {"hex": "ff"}
    assert rows(path) == rows(mirror_of(path))
    assert named(path).items() == model.rows.items() - {(("jobs", (2,)), model.rows["jobs", (2,)])}


def test_number_of_a_lost_row_is_not_given_again(path: Path) -> None:
    """Runs and jobs after a lost one have higher numbers, and its trials belong to nobody."""
    spoil(path, "UPDATE runs SET owner = 'x' WHERE id = 6")
    spoil(path, "UPDATE jobs SET origin = 'x' WHERE id = 6")
    with Database(path) as database:
        store = Store(database)
        assert [run.id for run in store.history()] == [5, 4, 3, 2, 1]
        assert store.run(6) is None
        assert len(store.trials(6, CONDITIONS.names)) == 5
        assert store.begin(CONDITIONS) == 7
        assert Jobs(database).add(ORDER, origin=Origin.CLIENT).id == 7
        assert Ledger(database).samples(6) != []
        assert [row.key for row in database.isolated()] == [(6,), (6,)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE writes SET count = count + 1048576",
        "UPDATE writes SET count = count - 64",
        "UPDATE writes SET count = 'many'",
        "UPDATE writes SET identity = 'x' || substr(identity, 2)",
        "UPDATE writes SET identity = CAST(x'ff' AS TEXT)",
        "DELETE FROM writes",
        "DELETE FROM sqlite_sequence",
        "UPDATE sqlite_sequence SET seq = 'x'",
        "DELETE FROM migrations WHERE name = 'ledger'",
        "UPDATE migrations SET name = 'ledges' WHERE name = 'ledger'",
        "UPDATE migrations SET name = NULL",
        "UPDATE sqlite_master SET sql = replace(sql, 'objective', 'objectiwe') WHERE name = 'runs'",
        "UPDATE sqlite_master SET sql = 'nonsense' WHERE name = 'trials'",
        "CREATE TRIGGER theirs AFTER INSERT ON uses BEGIN DELETE FROM jobs; END",
        "CREATE VIEW theirs AS SELECT * FROM runs",
        "DROP INDEX runs_by_job",
    ],
)
@pytest.mark.parametrize("where", ["main", "mirror", "both"])
def test_what_is_beside_the_rows_can_be_worked_out(
    path: Path, model: Model, jobs: list[Job], statement: str, where: str
) -> None:
    """Counts, identity, numbers, migrations, definitions of tables: damaged, they cost no row."""
    if where == "both" and "nonsense" in statement:  # which table that is, a backup alone says
        shutil.copy(backup_of(model.path), path.parent)
    spoil(path, statement, main=where != "mirror", mirror=where != "main")
    with Database(path) as database:
        database.examine()
        assert Jobs(database).jobs() == jobs
        assert named(path) == named(mirror_of(path)) == model.rows
        assert Jobs(database).add(ORDER, origin=Origin.CLIENT).id == 7
        assert database.examine().whole
    assert check_copies(path).whole


def test_repairs_are_named(path: Path) -> None:
    """An examination says which rows it took from where."""
    spoil(path, "UPDATE runs SET owner = 'x' WHERE id = 1", mirror=False)
    spoil(path, "DELETE FROM uses WHERE key = 'use 1'", main=False)
    checked = check_copies(path)
    with Database(path) as database:
        found = database.examine()

    expected = ("runs 1: taken from the mirror", "uses use 1: taken from the database")
    assert checked.lines == found.lines == expected
    assert found.rows == 114
    assert check_copies(path).whole


def test_scrub_goes_through_all_rows_and_repairs(path: Path, model: Model) -> None:
    """Rows are verified some at a time, of all tables; where one is damaged, it is put right."""

    def scrubbed(database: Database) -> tuple[int, int]:
        after: Position | None = None
        verified, calls = 0, 0
        while calls == 0 or after is not None:
            after, found = database.scrub(after, 7)
            assert found.rows <= 7 or not found.whole
            verified, calls = verified + found.rows, calls + 1
        return verified, calls

    with Database(path) as database:
        assert scrubbed(database) == (114, 17)
        spoil(path, "UPDATE trials SET measurement = '{}' WHERE run_id = 3", mirror=False)
        assert scrubbed(database)[0] > 114
        assert named(path) == model.rows
        assert database.scrub(Position("gone", (1,)), 5)[0] is not None


def test_damage_is_not_served_where_there_is_no_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mirror cannot be made again, what is sound is read, and a damaged row is kept aside."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tuner.database.files.make_like", no_room)
    mirror_of(path).unlink()
    spoil(path, "UPDATE uses SET count = 3 WHERE key = 'use 1'", mirror=False)
    with Database(path) as database:
        assert len(Jobs(database).jobs()) == 6
        assert set(Ledger(database).uses()) == {f"use {number}" for number in range(30)} - {"use 1"}
        assert [row.key for row in database.isolated()] == [("use 1",)]
    spoil(path, "UPDATE uses SET count = 3 WHERE key = 'use 2'", mirror=False)
    with Database(path) as database:
        assert "use 2" not in Ledger(database).uses()


def test_files_of_nobody_are_left_as_they_are(tmp_path: Path) -> None:
    """Where nothing of this program is in either file, none is touched, and the advice costs nothing."""
    path = tmp_path / "tuner.db"
    for file in (path, mirror_of(path)):
        file.write_bytes(b"something else")
    with pytest.raises(StoreDamagedError, match=r"keep tuner\.db and tuner\.db\.mirror, and name"):
        Database(path)
    with pytest.raises(StoreDamagedError):
        check_copies(path)
    assert path.read_bytes() == mirror_of(path).read_bytes() == b"something else"
