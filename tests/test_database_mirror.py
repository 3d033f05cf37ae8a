"""The mirror: whatever happens to one of the two files, everything that was stored is still there."""

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from mirrored import ENTRIES, content, filled, rows

from tuner.database.connection import Database
from tuner.database.files import make_like, mirror_of, side_file
from tuner.database.integrity.check import check_mirror
from tuner.database.integrity.repair import repair
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.model.errors import StoreDamagedError, StoreFullError
from tuner.model.jobs import JobSpec, JobState, Origin


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its mirror, closed."""
    path = tmp_path_factory.mktemp("model") / "tuner.db"
    filled(path)
    return path


@pytest.fixture
def fresh(model: Path, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Makes a copy of the model, in the place of the last one."""
    folder = tmp_path / "copy"

    def copy() -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(model.parent, folder)
        return folder / model.name

    return copy  # type: ignore[return-value]


def spoil(file: Path, how: str, share: float) -> None:
    size = file.stat().st_size
    if how == "cut off":
        os.truncate(file, int(share * size))
    elif how == "gone":
        file.unlink()
    elif how == "garbage":
        file.write_bytes(bytes(range(7, 256)) * int(1 + share * 200))
    else:
        with file.open("r+b") as there:
            there.seek(int(share * (size - 8192)))
            there.write(b"\xa5" * 8192)


spoilt = st.tuples(st.sampled_from(["cut off", "gone", "garbage"]), st.floats(0, 1, exclude_max=True))


@FEW
@given(spoilt, st.booleans())
def test_nothing_is_lost_with_one_file(
    fresh: Callable[[], Path], model: Path, spoilt: tuple[str, float], mirror: bool
) -> None:
    """Cut off anywhere, gone or garbage: opened and read, either file is as it was, and the other too."""
    path = fresh()
    spoil(mirror_of(path) if mirror else path, *spoilt)
    with Database(path) as database:
        assert len(Ledger(database).analytical()) == ENTRIES
        assert len(Ledger(database).uses()) == ENTRIES
        Ledger(database).add_uses({})

    assert content(path) == content(mirror_of(path)) == content(model)
    assert check_mirror(path) == ""


@FEW
@given(spoilt, st.booleans())
def test_nothing_is_lost_under_a_connection(
    fresh: Callable[[], Path], spoilt: tuple[str, float], mirror: bool
) -> None:
    """A file that is spoilt while it is open costs neither what was stored nor what is stored next."""
    path = fresh()
    with Database(path) as database, Database(path) as other:
        ledger = Ledger(database)
        ledger.add_uses({"before": 1})
        spoil(mirror_of(path) if mirror else path, *spoilt)
        ledger.add_uses({"after": 1})
        Ledger(other).add_uses({"other": 1})
        for each in (Ledger(other), ledger):
            assert set(each.uses()) >= {"before", "after", "other"}
            assert len(each.uses()) == ENTRIES + 3
            assert len(each.analytical()) == ENTRIES

    with Database(path) as database:
        database.examine()
        assert len(Ledger(database).uses()) == ENTRIES + 3
    assert content(path) == content(mirror_of(path))


@FEW
@given(st.floats(0, 1), st.booleans())
def test_what_only_reading_all_tells_is_found_by_examining(
    fresh: Callable[[], Path], model: Path, share: float, mirror: bool
) -> None:
    """Two pages overwritten in the middle of either file: examining both puts it right."""
    path = fresh()
    spoil(mirror_of(path) if mirror else path, "overwritten", share)
    with Database(path) as database:
        database.examine()

    assert content(path) == content(mirror_of(path)) == content(model)


@pytest.mark.parametrize("mirror", [False, True])
def test_log_that_is_cut_off_under_a_connection_loses_nothing(
    fresh: Callable[[], Path], mirror: bool
) -> None:
    """What only the write-ahead log of a file held is in the other one."""
    path = fresh()
    with Database(path) as database:
        Ledger(database).add_uses({"before": 1})
        log = side_file(mirror_of(path) if mirror else path, "-wal")
        assert log.stat().st_size > 0
        os.truncate(log, 0)
        Ledger(database).add_uses({"after": 1})
        assert {"before", "after"} <= set(Ledger(database).uses())

    assert content(path) == content(mirror_of(path))


def test_damaged_file_is_kept_and_told(fresh: Callable[[], Path], caplog: pytest.LogCaptureFixture) -> None:
    """A file that is replaced is kept under another name, three of them at most, and the log names it."""
    path = fresh()
    for number in range(5):
        path.write_bytes(b"garbage %d" % number)
        os.utime(path, (number, number))
        with caplog.at_level(logging.WARNING):
            Database(path).close()

    kept = {file.read_bytes() for file in path.parent.glob("tuner.db.damaged-*")}
    assert kept == {b"garbage 2", b"garbage 3", b"garbage 4"}
    assert "tuner.db was rebuilt from tuner.db.mirror" in caplog.text
    assert "is kept as tuner.db.damaged-1" in caplog.text


def test_both_damaged_is_an_error_and_nothing_is_touched(fresh: Callable[[], Path]) -> None:
    """Where no file is whole, none is replaced."""
    path = fresh()
    for file in (path, mirror_of(path)):
        file.write_bytes(b"garbage")

    with pytest.raises(StoreDamagedError, match="and its mirror"):
        Database(path)
    path.write_bytes(b"")
    with pytest.raises(StoreDamagedError, match="is empty, and its mirror"):
        Database(path)
    assert mirror_of(path).read_bytes() == b"garbage"


@pytest.mark.parametrize("behind", ["database", "mirror"])
def test_file_that_lacks_a_transaction_catches_up(fresh: Callable[[], Path], behind: str) -> None:
    """Killed between the two commits, or an old copy: the file that knows more wins."""
    path = fresh()
    late = path if behind == "database" else mirror_of(path)
    old = late.read_bytes()
    with Database(path) as database:
        Ledger(database).add_uses({"new": 1})
    late.write_bytes(old)
    with Database(path) as database:
        Ledger(database).add_uses({"newer": 1})
        assert {"new", "newer"} <= set(Ledger(database).uses())

    assert content(path) == content(mirror_of(path))


def test_copy_of_damage_replaces_nothing(
    fresh: Callable[[], Path], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is damaged while it is copied does not take what the other file still holds."""

    def damaged_meanwhile(place: Path, model: Path) -> None:
        make_like(place, model)
        if not spoilt:
            spoilt.append(place)
            spoil(path, "overwritten", 0.75)

    path, spoilt = fresh(), list[Path]()
    spoil(mirror_of(path), "overwritten", 0.25)
    with monkeypatch.context() as patches:
        patches.setattr("tuner.database.files.make_like", damaged_meanwhile)
        Database(path).examine()

    assert rows(path) == rows(mirror_of(path)) == rows(model)
    assert spoilt == [side_file(mirror_of(path), ".new")]


def test_mirror_of_another_database_is_set_aside(fresh: Callable[[], Path], tmp_path: Path) -> None:
    """Whoever puts another database in the place of one gets that one."""
    path = fresh()
    other = tmp_path / "other.db"
    with Database(other) as database:
        Ledger(database).add_uses({"other": 1})
    shutil.copy(other, path)
    with Database(path) as database:
        Ledger(database).add_uses({"other": 1})
        assert Ledger(database).uses() == {"other": 2}

    assert content(path) == content(mirror_of(path))
    assert mirror_of(path).with_name("tuner.db.mirror.damaged-1").exists()


def test_record_that_makes_no_sense_is_taken_from_the_mirror(fresh: Callable[[], Path]) -> None:
    """Damage inside a record, which SQLite cannot see, is seen by who reads it, and put right."""
    path = fresh()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE analytical SET document = '{' WHERE key = '7'")
    with Database(path) as database:
        assert Ledger(database).analytical()["7"] == {"v": "x" * 97 * 7}

    assert content(path) == content(mirror_of(path))


def test_files_that_differ_are_made_the_same(fresh: Callable[[], Path]) -> None:
    """A mirror in which a statement does something else is rebuilt, and the transaction is stored once."""
    path = fresh()
    with closing(sqlite3.connect(mirror_of(path))) as connection, connection:
        connection.execute("DELETE FROM sqlite_sequence")
    with Database(path) as database:
        Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT)
        with closing(sqlite3.connect(mirror_of(path))) as connection, connection:
            connection.execute("UPDATE sqlite_sequence SET seq = 90")
        Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT)
        assert [job.id for job in Jobs(database).jobs()] == [91, 2, 1]  # a number is never given twice

    assert content(path) == content(mirror_of(path))


def test_transaction_that_failed_leaves_no_difference(
    fresh: Callable[[], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """An insertion that one file alone had taken before it was undone is no sign of damage."""
    path = fresh()
    order = JobSpec(("x" * 100_000,))
    with Database(path) as database:
        pair = database._pair
        assert pair is not None
        assert pair._mirror is not None
        mirror = pair._mirror.connection
        (pages,) = mirror.execute("PRAGMA page_count").fetchone()
        mirror.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFullError):
            Jobs(database).add(order, origin=Origin.CLIENT)
        Ledger(database).add_uses({"after": 1})
        Jobs(database).change(1, JobState.CANCELLED)
        assert database._pair is pair

    assert content(path) == content(mirror_of(path))
    assert not caplog.records


def test_a_full_disk_is_told_once(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each attempt to store fails; the log has a line when it begins, and one when it begins again."""
    room = [False, False, True, False]

    def attempt(*given: Any) -> Any:
        if room.pop(0):
            return repair(*given)
        raise StoreFullError("the disk is full")

    with Database(fresh()) as database:
        monkeypatch.setattr("tuner.database.integrity.repair.repair", attempt)
        for lines in (1, 1, 1, 2):
            database.examine()
            assert [record.message for record in caplog.records] == [
                "nothing can be stored: the disk is full"
            ] * lines


def test_stale_log_does_not_enter_the_rebuilt_file(fresh: Callable[[], Path]) -> None:
    """A connection to the replaced file that closes late takes nothing with it."""
    path = fresh()
    with closing(sqlite3.connect(path)) as stale:
        stale.execute("INSERT INTO uses (key, count) VALUES ('stale', 1)")
        stale.commit()
        os.truncate(path, 4096)
        with Database(path) as database:
            Ledger(database).add_uses({"fresh": 1})
            stale.close()
            assert "fresh" in Ledger(database).uses()
    with Database(path) as database:
        assert "fresh" in Ledger(database).uses()
        assert "stale" not in Ledger(database).uses()  # it passed the mirror by


def test_repair_command_reads_both_whole(fresh: Callable[[], Path], model: Path) -> None:
    """`tuner db repair` finds damage that nobody has met yet."""
    path = fresh()
    spoil(mirror_of(path), "overwritten", 0.5)
    result = tuner("db", "repair", "--database", path)

    assert result.exit_code == 0
    assert result.stdout.endswith(f"{path} and its mirror are whole\n")
    assert "was rebuilt from tuner.db" in result.stdout
    assert content(path) == content(mirror_of(path)) == content(model)
