"""Damage anywhere: what one file has soundly is served as it was written, and nothing else."""

import dataclasses
import errno
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import run_documents
from cli_process import tuner
from damaging import CONDITIONS, DAY, Damage, Model, backup_of, named
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from mirrored import rows

from tuner.database.connection import Database
from tuner.database.files import mirror_of, side_file
from tuner.database.integrity.check import check_copies
from tuner.database.integrity.checksums import TABLES, Position, Table
from tuner.database.integrity.repair_plan import Source
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.database.transaction import Row
from tuner.model.errors import StoreDamagedError, StoreError, StoreFullError
from tuner.model.jobs import Job, JobSpec, JobState, Origin
from tuner.model.plan import Configuration
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult

MEASURED = Measurement((WorkloadResult(Status.OK, 1e-3),), 1e-3)
LENGTHS = [1, 16, 512, 4096, 20_000]
damages = st.builds(
    Damage,
    mirror=st.booleans(),
    how=st.sampled_from(["bits", "zeroes", "garbage", "cut off"]),
    place=st.floats(0, 1, exclude_max=True),
    length=st.sampled_from(LENGTHS),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model.made(tmp_path_factory.mktemp("model") / "tuner.db")


def spoilt(path: Path, some: list[Damage]) -> Path:
    for damage in some:
        damage.do(path)
    return path


@FEW
@given(st.lists(damages, min_size=1, max_size=3))
def test_what_one_file_has_is_there_and_nothing_else(
    model: Model, tmp_path: Path, some: list[Damage]
) -> None:
    """Both files damaged at any places: the rows that one of them still has are in both again, unchanged."""
    path = spoilt(model.copy(tmp_path / "copy"), some)
    left = model.left(path)
    if not left:
        return
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    check_copies(path)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
    with Database(path) as database:
        database.examine()
        assert database.examine().whole

    found = named(path)
    assert found == named(mirror_of(path))
    assert found.items() <= model.rows.items()
    assert set(found) >= left


@FEW
@given(st.lists(damages, min_size=1, max_size=6))
def test_with_a_backup_nothing_is_lost(model: Model, tmp_path: Path, some: list[Damage]) -> None:
    """Both files damaged at any places, also where SQLite can read neither: every row is back, unchanged."""
    path = spoilt(model.copy(tmp_path / "copy", backup=True), some)
    with Database(path) as database:
        database.examine()
        assert database.examine().whole
        assert database.isolated() == []

    assert named(path) == named(mirror_of(path)) == model.rows


@FEW
@given(st.lists(damages, min_size=1, max_size=2))
def test_readers_are_given_what_was_written(model: Model, tmp_path: Path, some: list[Damage]) -> None:
    """Whoever just reads is given the rows as they were, and can store more under numbers never given."""
    truth = served(model.copy(tmp_path / "whole"))
    path = spoilt(model.copy(tmp_path / "copy"), some)
    left = model.left(path)
    if not left:
        return
    found = served(path)

    # of a job, a run that is lost is not known
    assert all(found[name] == truth[name] for name in found if name in truth)
    assert set(found) <= set(truth)
    assert {name for name in left if name[0] in ("runs", "jobs", "uses", "analytical")} <= set(found)
    with Database(path) as database:
        number = Store(database).begin(CONDITIONS)
        job = Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT)
    numbers = {table: [int(str(key[0])) for name, key in left if name == table] for table in ("runs", "jobs")}
    assert number > max(numbers["runs"], default=0)
    assert job.id > max(numbers["jobs"], default=0)


def served(path: Path) -> dict[tuple[str, tuple[object, ...]], object]:
    with Database(path) as database:
        jobs, ledger, store = Jobs(database), Ledger(database), Store(database)
        return {
            **{("jobs", (job.id,)): dataclasses.replace(job, trials=0) for job in jobs.jobs()},
            **{("runs", (run.id,)): dataclasses.replace(run, trials=0) for run in store.history()},
            **{("uses", (key,)): count for key, count in ledger.uses().items()},
            **{("analytical", (key,)): document for key, document in ledger.analytical().items()},
        }


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose newest rows are in the logs of both files, as a kill leaves them."""
    folder = tmp_path_factory.mktemp("killed")
    path, copy = folder / "tuner.db", folder / "copy" / "tuner.db"
    copy.parent.mkdir()
    with Database(path) as database:
        for number in range(20):
            Ledger(database).add_uses({f"use {number}": 1.0})
        for file in folder.glob("tuner.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, copy.parent)
    return copy


@FEW
@given(st.booleans(), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0.8, 1, exclude_max=True))
def test_logs_that_were_not_written_back(
    killed: Path, tmp_path: Path, mirror: bool, place: float, cut: float | None
) -> None:
    """Damage to the log of one file costs nothing; to both, at different places, nothing that one has."""
    shutil.copytree(killed.parent, tmp_path, dirs_exist_ok=True)
    path = tmp_path / killed.name
    logs = [side_file(file, "-wal") for file in (path, mirror_of(path))]
    Damage(mirror=False, how="bits", place=place, length=1).do(logs[mirror])
    if cut is not None:
        Damage(mirror=False, how="cut off", place=cut, length=1).do(logs[not mirror])
    with Database(path) as database:
        uses = Ledger(database).uses()

    assert uses.items() <= {f"use {number}": 1.0 for number in range(20)}.items()
    assert len(uses) == 20 or cut is not None
    assert len(uses) >= 10
    assert named(path) == named(mirror_of(path))


@FEW
@given(st.binary(max_size=9000), st.binary(max_size=9000), st.sampled_from([b"", b"SQLite format 3\0\x10\0"]))
def test_garbage_is_read_without_an_error(tmp_path: Path, file: bytes, log: bytes, magic: bytes) -> None:
    """Any bytes: no rows are found in them, and it ends."""
    path = tmp_path / "tuner.db"
    path.write_bytes(magic + file)
    side_file(path, "-wal").write_bytes(log)

    assert list(Source.of(path, "database").rows()) == []


def test_a_query_of_another_hand_ends(tmp_path: Path) -> None:
    """A file whose tables are views is not read, and a column that is computed for ever is given up."""
    path = tmp_path / "tuner.db"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE VIEW runs AS {endless}")
        connection.execute(f"CREATE VIEW writes (identity, count) AS SELECT 'x', ({endless})")
        connection.commit()
    found = Source.of(path, "database")

    assert (found.identity, list(found.rows()), found.numbers()) == (None, [], [])


@pytest.mark.parametrize("backup", [False, True])
def test_two_files_that_cannot_be_read(model: Model, tmp_path: Path, *, backup: bool) -> None:
    """Tables that SQLite still reads of one of them are back; with a backup, everything is."""
    path = model.copy(tmp_path / "copy", backup=backup)
    for file in (path, mirror_of(path)):
        with closing(sqlite3.connect(file)) as connection:
            (page,) = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'trials'"
            ).fetchone()
        content = file.read_bytes()
        file.write_bytes(content[: 4096 * (page - 1)] + b"\xa5" * 4096 + content[4096 * page :])
    checked = check_copies(path)
    with Database(path) as database:
        database.examine()
        assert database.examine().whole
        assert Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT).id == 7

    lost = set(model.rows) - set(named(path))
    assert not checked.whole
    assert {table for table, _ in lost} == (set() if backup else {"trials"})
    assert named(path).items() >= {name: row for name, row in model.rows.items() if name not in lost}.items()


@pytest.mark.parametrize("backup", ["", "newest", "older"])
def test_remnants_of_rows_that_the_backup_has_are_not_kept_aside(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backup: str
) -> None:
    """A damaged page gives rows without a key; only where the backup may lack a row are they one."""
    path = model.copy(tmp_path / "copy", backup=bool(backup))
    if backup == "older":
        with Database(path) as database:
            Ledger(database).add_uses({"new": 1.0})
    rows = Source.rows

    def with_remnant(source: Source) -> Iterator[tuple[Table, Row]]:
        yield from rows(source)
        if source.name == "mirror":
            yield TABLES["trials"], (None,) * len(TABLES["trials"].all_columns)

    monkeypatch.setattr(Source, "rows", with_remnant)
    for file in (path, mirror_of(path)):
        content = file.read_bytes()
        file.write_bytes(content[:-4096] + b"\xa5" * 4096)
    with Database(path) as database:
        database.examine()
        isolated = [(row.table, row.key) for row in database.isolated()]
    if backup == "newest":
        assert isolated == []
    else:
        assert ("trials", ("None", "None")) in isolated


@pytest.mark.parametrize("how", [b"garbage", b""])
def test_backup_alone_brings_back_what_it_has(model: Model, tmp_path: Path, how: bytes) -> None:
    """Where nothing is left of both files, all up to the backup is there; the old files are kept."""
    path = model.copy(tmp_path / "copy", backup=True)
    for file in (path, mirror_of(path)):
        file.write_bytes(how)
    told: list[str] = []
    with Database(path, lambda found: told.extend(found.lines)) as database:
        assert database.examine().whole

    assert named(path) == named(mirror_of(path)) == model.rows
    assert f"made anew of what could be read (backup of {DAY})" in told[0]
    assert len(list(path.parent.glob("*.damaged-1"))) == (2 if how else 0)


def test_who_removes_both_files_begins_anew(model: Model, tmp_path: Path) -> None:
    """A backup brings nothing back that somebody has removed."""
    path = model.copy(tmp_path / "copy", backup=True)
    for file in (path, mirror_of(path)):
        file.unlink()
    Database(path).close()

    assert named(path) == {}


def test_a_row_that_neither_has_comes_from_the_newest_backup_that_has_it(
    model: Model, tmp_path: Path
) -> None:
    """And the check and the repair say which; a row of an older state is that of its backup."""
    path = model.copy(tmp_path / "copy", backup=True)
    with Database(path) as database:
        Ledger(database).add_uses({"use 1": 1.0, "new": 1.0})
        assert database.back_up(date(2026, 1, 5))  # the newest, whatever the clocks say
    newest = path.with_name("tuner.db.backup-2026-01-05")
    for file, keys in ((path, "1 2 3"), (mirror_of(path), "1 2 3"), (newest, "2"), (backup_of(path), "3")):
        with closing(sqlite3.connect(file)) as connection, connection:
            for key in keys.split():
                connection.execute("UPDATE uses SET count = 77 WHERE key = ?", (f"use {key}",))
    checked = check_copies(path)
    with Database(path) as database:
        found = database.examine()
        uses = Ledger(database).uses()

    assert (
        found.lines
        == checked.lines
        == (
            "uses use 1: taken from the backup of 2026-01-05",
            "uses use 3: taken from the backup of 2026-01-05",
            f"uses use 2: taken from the backup of {DAY}",
        )
    )
    assert [uses[key] for key in ("use 1", "use 2", "use 3", "new")] == [2.5, 2.5, 3.5, 1.0]


def test_what_both_files_lost_comes_from_the_backup(model: Model, tmp_path: Path) -> None:
    """Both at an earlier transaction, or one gone too: check and repair say which had more."""
    newer = model.copy(tmp_path / "newer")
    with Database(newer) as database:
        store = Store(database)
        run = store.begin(CONDITIONS)
        store.add(run, 1, Trial((Configuration({"P": 7}),)), MEASURED, CONDITIONS.names)
        store.end(1, RunStatus.LIMITED, None)
        Ledger(database).add_uses({"use 1": 1.0, "new": 2.0})
        Jobs(database).change(1, JobState.FINISHED)
        database.back_up(DAY)
    stored = named(newer)
    for gone in ("", "the mirror", "the database"):
        path = model.copy(tmp_path / f"copy without {gone}")
        shutil.copy(backup_of(newer), backup_of(path))
        if gone:
            (mirror_of(path) if gone == "the mirror" else path).unlink()
        (line,) = (line for line in check_copies(path).lines if "transactions" in line)
        told: list[str] = []
        with Database(path, lambda found, told=told: told.extend(found.lines)) as database:  # type: ignore[misc]
            database.examine()
            assert database.examine().whole

        assert line.startswith(f"{path} lacks ")
        assert line.endswith(" transactions that the backup of 2026-01-31 has")
        assert f"{line.replace('lacks', 'lacked')}, and has them again" in told
        assert named(path) == named(mirror_of(path)) == stored
        assert check_copies(path).whole


@pytest.mark.parametrize("other", ["a run", "a trial", "an event"])
def test_a_database_that_went_on_without_its_last_transactions_is_not_mixed(
    model: Model, tmp_path: Path, other: str
) -> None:
    """Numbers were given twice: the repair names the command that merges the runs of the backup."""

    def end(store: Store, run: int, seconds: float) -> None:
        trial, measured = Trial((Configuration({"P": 7}),)), Measurement(MEASURED.results, seconds)
        store.add(run, 1, trial, measured, CONDITIONS.names)
        answer = run_documents.answered(run_documents.trial({"scan-lf:N=4": {"P": 7}}, text=f"{seconds}"))
        store.end(run, RunStatus.FINISHED, answer)

    path = model.copy(tmp_path / "copy")
    with Database(path) as database:
        begun = Store(database).begin(CONDITIONS)
    newer = tmp_path / "newer" / path.name
    shutil.copytree(path.parent, newer.parent)
    with Database(newer) as database:
        end(Store(database), begun, 2.0)
        end(Store(database), Store(database).begin(CONDITIONS), 3.0)
        Jobs(database).event(1, "told", {})
        database.back_up(DAY)
    with Database(path) as database:
        if other == "an event":
            Jobs(database).event(1, "told", {})
        else:
            end(Store(database), Store(database).begin(CONDITIONS) if other == "a run" else begun, 4.0)
    shutil.copy(backup_of(newer), backup_of(path))
    stored = named(path)
    checked = check_copies(path)
    with Database(path) as database:
        found = database.examine()

    (line,) = found.lines
    assert checked.lines == (line,)
    assert line.endswith(
        " transactions that the backup of 2026-01-31 has, and has gone on without them:"
        f" `tuner db merge {backup_of(path)}` takes over their finished runs"
    )
    assert named(path) == named(mirror_of(path)) == stored
    assert check_copies(path).whole
    assert "2 runs added" in tuner("db", "merge", backup_of(path), "--database", path).stdout


def test_spending_that_went_on_is_not_replaced(tmp_path: Path) -> None:
    """A row that any transaction changes shows no branch: the last transaction has to be in both."""
    day, path, newer = "2026-01-05", tmp_path / "a" / "tuner.db", tmp_path / "b" / "tuner.db"
    path.parent.mkdir()

    def spend(file: Path, times: int, seconds: float) -> None:
        for _ in range(times):
            with Database(file) as database:
                Ledger(database).spend(day, "GPU-1", seconds, 10.0 * seconds)

    spend(path, 3, 10.0)
    shutil.copytree(path.parent, newer.parent)
    spend(newer, 4, 1.0)
    with Database(newer) as database:
        database.back_up(DAY)
    spend(path, 2, 500.0)
    shutil.copy(backup_of(newer), backup_of(path))
    with Database(path) as database:
        (line,) = database.examine().lines
        assert Ledger(database).spent(day, "GPU-1") == (1030.0, 10300.0)
    assert "has gone on without them" in line


def test_a_damaged_count_of_a_backup_takes_nothing_back(model: Model, tmp_path: Path) -> None:
    """The count has no checksum; a backup is ahead by its rows only."""
    path = model.copy(tmp_path / "copy", backup=True)
    with Database(path) as database:
        Ledger(database).add_uses({"use 1": 1.0})
    with closing(sqlite3.connect(backup_of(path))) as connection, connection:
        connection.execute("UPDATE writes SET count = count + 4096")
    stored = named(path)
    assert check_copies(path).whole
    with Database(path) as database:
        assert database.examine().whole
    assert named(path) == stored


def test_three_backups_are_kept(model: Model, tmp_path: Path) -> None:
    """Those of the latest transactions, none of another database; one of a day, for its user alone."""
    path = model.copy(tmp_path / "copy", backup=True)
    other = path.with_name("other.db")
    with Database(other) as database:
        for number in range(500):
            Ledger(database).add_uses({f"{number}": 1.0})
        assert database.back_up(DAY)
    backup_of(other).replace(path.with_name("tuner.db.backup-2099-01-01"))
    days = [date(2099, 1, 2), date(2026, 2, 1), date(1970, 1, 1), date(1970, 1, 1)]
    with Database(path) as database:
        for day in days:
            Ledger(database).add_uses({"more": 1.0})
            assert database.back_up(day)

    kept = {file.name: file for file in path.parent.glob("tuner.db.backup-*")}
    assert set(kept) == {f"tuner.db.backup-{day}" for day in days}
    assert {file.stat().st_mode & 0o777 for file in kept.values()} == {0o600}
    assert not list(path.parent.glob("*.new*"))


def test_no_backup_is_made_of_files_that_are_not_whole(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mirror, or with no room, nothing is written; damage is put right before."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = model.copy(tmp_path / "copy")
    mirror_of(path).unlink()
    with monkeypatch.context() as patches:
        patches.setattr("tuner.database.files.make_like", no_room)
        with Database(path) as database, pytest.raises(StoreError):
            database.back_up(DAY)
        assert not backup_of(path).exists()
    with monkeypatch.context() as patches:
        free = 2 * path.stat().st_size - 1
        patches.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        with Database(path) as database, pytest.raises(StoreFullError, match="nearly full"):
            database.back_up(DAY)
        assert not backup_of(path).exists()
    with Database(path) as database:
        content = path.read_bytes()
        path.write_bytes(content[:20_000] + b"\xa5" * 4096 + content[24_096:])
        assert database.back_up(DAY)

    assert named(backup_of(path)) == model.rows


# --- Rows that are sound nowhere are kept aside; what else may be damaged beside rows is worked out again.

ORDER = JobSpec(("scan-lf:N=4",))


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
