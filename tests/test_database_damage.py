"""Damage anywhere: what one file has soundly is served as it was written, and nothing else."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from damaging import CONDITIONS, Damage, Model, Place, everything, named
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st

from tuner.database.connection import Database
from tuner.database.files import mirror_of, side_file
from tuner.database.integrity.check import check_copies
from tuner.database.integrity.checksums import is_sound
from tuner.database.integrity.salvage import salvaged
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.jobs import JobSpec, Origin

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
    made = Model.made(tmp_path_factory.mktemp("model") / "tuner.db")
    assert set(made.rows) == set(made.places[False]) == set(made.places[True])
    return made


def spoilt(path: Path, some: list[Damage]) -> dict[bool, list[Place]]:
    places: dict[bool, list[Place]] = {False: [], True: []}
    for damage in some:
        places[damage.mirror] += damage.do(path)
    return places


@FEW
@given(st.lists(damages, min_size=1, max_size=3))
def test_what_one_file_has_is_there_and_nothing_else(
    model: Model, tmp_path: Path, some: list[Damage]
) -> None:
    """Both files damaged at any places: the rows that one of them still has are in both again, unchanged."""
    path = model.copy(tmp_path / "copy")
    left = model.left(spoilt(path, some))
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
@given(st.lists(damages, min_size=1, max_size=2))
def test_readers_are_given_what_was_written(model: Model, tmp_path: Path, some: list[Damage]) -> None:
    """Whoever just reads is given the rows as they were, and can store more under numbers never given."""
    truth = served(model.copy(tmp_path / "whole"))
    path = model.copy(tmp_path / "copy")
    left = model.left(spoilt(path, some))
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
def test_garbage_is_searched_without_an_error(tmp_path: Path, file: bytes, log: bytes, magic: bytes) -> None:
    """Any bytes: no rows are found in them, and it ends."""
    path = tmp_path / "tuner.db"
    path.write_bytes(magic + file)

    assert not [
        found
        for found in salvaged(path, log)
        if found.sound and found.table not in ("writes", "sqlite_sequence")
    ]


@FEW
@given(st.integers(0, 255), st.sampled_from([2, 10, 13]), st.integers(0, 2**16 - 1))
def test_pages_full_of_cells_end(tmp_path: Path, byte: int, kind: int, count: int) -> None:
    """Pages that claim thousands of records, each of a million bytes, cost no time."""
    page = (bytes([kind, 0, 0, *count.to_bytes(2, "big")]) + bytes([byte]) * 4096)[:4096]
    (tmp_path / "tuner.db").write_bytes(page * 20)

    assert not [found for found in salvaged(tmp_path / "tuner.db", b"") if found.sound]


def test_all_rows_are_found_without_sqlite(tmp_path: Path) -> None:
    """The pages of a whole file give every row, with those that need several pages."""
    path = tmp_path / "tuner.db"
    everything(path)
    found = {(each.table, each.row) for each in salvaged(path, b"") if each.sound}

    assert {(name[0], row) for name, row in named(path).items()} <= found
    assert all(is_sound(table, row) for table, row in found if table not in ("writes", "sqlite_sequence"))
