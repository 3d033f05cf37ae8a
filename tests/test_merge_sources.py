"""Files that are not what they should be: refused with the reason, or merged as far as they are sound."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from damaging import CONDITIONS, Damage
from mirrored import rows
from test_merging import add_run, stored_run

from tuner.database import merging
from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import TABLES, row_checksum
from tuner.database.merging import MergeReport, merge_file
from tuner.database.migrations import MIGRATIONS
from tuner.database.runs import Store
from tuner.database.transaction import Transaction
from tuner.model.errors import InputError
from tuner.model.records import StoredRun

NAMES = CONDITIONS.names


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "here.db"
    Database(path).close()
    return path


@pytest.fixture
def here(empty: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty database to merge into."""
    with Database(copied(empty, tmp_path)) as database:
        yield database


@pytest.fixture(scope="module")
def of_few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("few") / "there.db"
    with Store(path) as store:
        for trials in (2, 3, 4):
            stored_run(store, trials)
    return path


@pytest.fixture(scope="module")
def of_many(of_few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = copied(of_few, tmp_path_factory.mktemp("many"))
    with Store(path) as store:
        for trials in range(5, 30, 2):
            stored_run(store, trials)
    return path


@pytest.fixture(scope="module")
def measured(of_many: Path) -> dict[str, StoredRun]:
    """The runs of the large file, by their beginning."""
    with Store(of_many) as store:
        return {run.started_at: run for run in store.history()}


def copied(path: Path, folder: Path) -> Path:
    """A copy of a database with its mirror."""
    for one in (path, mirror_of(path)):
        shutil.copy(one, folder)
    return folder / path.name


@pytest.fixture
def file(of_few: Path, tmp_path: Path) -> Path:
    """A file with three runs."""
    return copied(of_few, tmp_path)


@pytest.fixture
def large_file(of_many: Path, tmp_path: Path) -> Path:
    """A file with 16 runs."""
    return copied(of_many, tmp_path)


def change(path: Path, *statements: str) -> None:
    """Change a file behind the back of this program."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def set_sound(path: Path, table: str, key: str, **values: object) -> None:
    """Change a row and give it the checksum of what it says now, as a hostile file has it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute(f"SELECT * FROM {table} WHERE {key}").fetchone())  # noqa: S608
        columns = TABLES[table].all_columns
        row |= values
        row["checksum"] = row_checksum(table, *(row[name] for name in columns[:-1]))
        names = ", ".join(f'"{name}" = ?' for name in row)
        connection.execute(f"UPDATE {table} SET {names} WHERE {key}", [*row.values()])  # noqa: S608


def known_trials(database: Database) -> list[int]:
    """How many trials each run has."""
    return [run.trials for run in reversed(Store(database).history())]


# --- the whole file -------------------------------------------------------------------------------


def newer(path: Path) -> None:
    add_run(path)
    change(path, "INSERT INTO migrations VALUES ('holograms', '')")


def with_trigger(path: Path) -> None:
    add_run(path)
    change(path, "CREATE TRIGGER t AFTER INSERT ON runs BEGIN SELECT 1; END")


def with_view(path: Path) -> None:
    add_run(path)
    change(path, "DROP TABLE trials", "CREATE VIEW trials AS SELECT * FROM runs")


def cut_in_the_middle(path: Path) -> None:
    add_run(path)
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (newer, "newer version of tuner (it has holograms); update tuner here"),
        (with_trigger, "its tables are not as tuner makes them"),
        (with_view, "its tables are not as tuner makes them"),
        (cut_in_the_middle, "damaged"),
        (lambda path: path.write_text("runs\n" * 400), "is damaged, or no database"),
        (lambda path: path.write_bytes(b""), "is no database of tuner"),
        (lambda path: change(path, "CREATE TABLE songs (id)"), "is no database of tuner"),
        (Path.mkdir, "is not a file"),
        (Path.exists, "No such file"),
    ],
    ids=["newer", "trigger", "view", "cut", "text", "empty", "other program", "directory", "missing"],
)
def test_a_file_that_cannot_be_merged_is_refused(
    here: Database, tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    """What is no database of this version or an earlier one changes nothing, and the message says why."""
    path = tmp_path / "other.db"
    make(path)
    with pytest.raises(InputError) as refused:
        merge_file(here, path)
    assert why in str(refused.value)
    assert str(path) in str(refused.value)
    assert known_trials(here) == []


def test_a_file_from_elsewhere_is_named_by_its_address(here: Database, tmp_path: Path) -> None:
    """The path of a temporary file tells nobody what is wrong."""
    path = tmp_path / "pulled.db"
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"^ssh:host-b is no database"):
        merge_file(here, path, source="ssh:host-b")


def test_a_file_that_is_too_large_is_refused(
    here: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size is looked at before anything is read."""
    monkeypatch.setattr(merging, "DATABASE_BYTES", 4096)
    with pytest.raises(InputError, match="larger than 4 KiB"):
        merge_file(here, file)


@pytest.mark.parametrize("changes", range(1, len(MIGRATIONS)))
def test_files_of_earlier_versions_are_merged(
    here: Database, file: Path, tmp_path: Path, changes: int
) -> None:
    """Every earlier version of the tables is read, with or without checksums; the file stays as it is."""
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, applied TEXT)")
        for name, statements in MIGRATIONS[:changes]:
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, '')", (name,))
        connection.execute("ATTACH ? AS new", (str(file),))
        for table in ("runs", "trials"):
            columns = [f'"{row[1]}"' for row in connection.execute(f"PRAGMA main.table_info({table})")]
            listed = ", ".join(columns)
            connection.execute(
                f"INSERT INTO main.{table} ({listed}) SELECT {listed} FROM new.{table}"  # noqa: S608
            )
    before = old.read_bytes()
    assert merge_file(here, old).runs_added == 3
    assert merge_file(here, file).runs_known == 3
    assert old.read_bytes() == before


# --- runs of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE trials SET measurement = '{}' WHERE run_id = 2 AND number = 2", "its trial 2 is damaged"),
        ("DELETE FROM trials WHERE run_id = 2 AND number = 2", "its trial 2 is gone"),
        ("DELETE FROM trials WHERE run_id = 2 AND number = 3", "1 of its 3 trials are gone"),
        ("UPDATE runs SET owner = 'x' WHERE id = 2", "its row of runs is damaged"),
        ("UPDATE runs SET checksum = NULL WHERE id = 2", "its row of runs is damaged"),
    ],
)
def test_a_damaged_row_costs_its_run(here: Database, file: Path, statement: str, why: str) -> None:
    """The run is left out and named with the reason; the others are merged."""
    change(file, statement)
    report = merge_file(here, file)
    assert report.refused == [f"run 2: {why}"]
    assert known_trials(here) == [2, 4]


def test_a_run_of_an_unknown_status_is_named(here: Database, file: Path) -> None:
    """What no version writes is no search that merely has not finished."""
    set_sound(file, "runs", "id = 2", status="odd")
    report = merge_file(here, file)
    assert (report.runs_unfinished, report.refused) == (0, ["run 2: its status is 'odd', which is not known"])


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("trials", {"measurement": b"\x80\x81"}),
        ("trials", {"ended_at": 5}),
        ("trials", {"trial": "{}\0"}),
        ("trials", {"status": "splendid"}),
        ("trials", {"makespan_s": "soon"}),
        ("runs", {"conditions": "{"}),
        ("runs", {"conditions": "[" * 100_000}),
        ("runs", {"conditions": '{"workloads": [["a", 1]]}'}),
        ("runs", {"answer": '{"best": {"configurations": 3}}'}),
        ("runs", {"answer": '{"best": {"time_s": 1e999}}'}),
        ("runs", {"answer": json.dumps({"best": None, "space": {"measured": 99}})}),
        ("runs", {"owner": "x" * 1000}),
        ("runs", {"objective": "splendour"}),
    ],
    ids=str,
)
def test_a_row_that_makes_no_sense_costs_its_run(
    here: Database, file: Path, table: str, values: dict[str, object]
) -> None:
    """A right checksum is no proof: who makes a file can make those too."""
    set_sound(file, table, "run_id = 2 AND number = 2" if table == "trials" else "id = 2", **values)
    report = merge_file(here, file)
    assert report.runs_refused == len(report.refused) == 1
    assert known_trials(here) == [2, 4]
    assert here.examine().whole


def test_a_run_that_is_too_large_is_left_out(
    here: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run takes more memory than a bound, however many trials a file says that it has."""
    monkeypatch.setattr(merging, "RUN_BYTES", 2560)
    report = merge_file(here, file)
    assert report.refused == ["run 3: it is larger than 2 KiB"]
    assert known_trials(here) == [2, 3]


def test_what_a_row_says_beside_its_conditions_is_not_believed(here: Database, file: Path) -> None:
    """Fingerprint, set and GPU are made of the conditions anew: a run is found as what it was."""
    set_sound(file, "runs", "id = 2", fingerprint="f", workload_key='["other:N=1"]', device_uuid="GPU-9")
    merge_file(here, file)
    assert len(list(Store(here).answered(NAMES, "time", CONDITIONS.device.uuid))) == 3


@pytest.mark.parametrize("how", ["bits", "zeroes", "garbage", "cut off"])
@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.7, 0.9])
def test_damage_anywhere_adds_nothing_that_was_not_there(
    here: Database, large_file: Path, measured: dict[str, StoredRun], how: str, place: float
) -> None:
    """Whatever bytes are wrong: a file is refused, or every run that is merged is one that was measured."""
    Damage(mirror=False, how=how, place=place, length=700).do(large_file)
    try:
        report = merge_file(here, large_file)
    except InputError:
        report = MergeReport()
    found = Store(here).history()
    assert len(found) == report.runs_added
    for run in found:
        whole = measured[run.started_at]
        assert (run.conditions, run.answer, run.trials) == (whole.conditions, whole.answer, whole.trials)
    assert here.examine().whole


# --- interrupted, or at the same time -------------------------------------------------------------


def test_an_interrupted_merge_leaves_whole_runs(here: Database, file: Path) -> None:
    """A run is there with all its trials or not at all; the next merge adds the rest."""
    write, added = here.write, 0

    def interrupted(change: Callable[[Transaction], Any]) -> Any:
        nonlocal added
        added += 1

        def in_its_middle(transaction: Transaction) -> None:
            change(transaction)
            raise KeyboardInterrupt

        return write(in_its_middle if added == 2 else change)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            merge_file(here, file, batch_bytes=1)
    assert known_trials(here) == [2]
    assert here.examine().whole
    assert merge_file(here, file).runs_added == 2
    assert known_trials(here) == [2, 3, 4]


def test_two_merges_at_once_add_a_run_once(
    here: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another merge has added since this one looked is seen when it is stored."""
    is_known = merging._is_known

    def late(*arguments: object) -> bool:
        found = is_known(*arguments)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(merging, "_is_known", is_known)
            with Database(here.path) as other:
                merge_file(other, file)
        return found

    monkeypatch.setattr(merging, "_is_known", late)
    report = merge_file(here, file)
    assert (report.runs_added, report.runs_known) == (0, 3)
    assert len(rows(here.path)["runs"]) == 3
