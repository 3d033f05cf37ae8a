"""The mirror: whatever happens to one of the two files, everything that was stored is still there."""

import errno
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import tuner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.database import MIGRATIONS, Database, Jobs, Ledger, Store
from tuner.database.files import side_file
from tuner.database.pair import Transaction
from tuner.database_check import check_database, check_mirror, mirror_of
from tuner.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)
from tuner.jobs import Order, Origin, State

ENTRIES = 120  # some hundred thousand bytes: pages of all kinds, and records that need several
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PATIENCE_S = 60.0


def filled(path: Path) -> None:
    with Database(path) as database:

        def fill(change: Transaction) -> None:
            for number in range(ENTRIES):
                change.execute(
                    "INSERT INTO analytical VALUES (?, ?)",
                    (f"{number}", json.dumps({"v": "x" * 97 * (number % 60)})),
                )

        database.write(fill)
        Ledger(database).add_uses({f"use {number}": 1 + number for number in range(ENTRIES)})
        Jobs(database).add(Order(("scan-lf:N=4",)), origin=Origin.CLIENT)


def content(path: Path) -> list[str]:
    """All that a file says."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


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


@QUICK
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


@QUICK
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


@QUICK
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
        Jobs(database).add(Order(("scan-lf:N=4",)), origin=Origin.CLIENT)
        with closing(sqlite3.connect(mirror_of(path))) as connection, connection:
            connection.execute("UPDATE sqlite_sequence SET seq = 90")
        Jobs(database).add(Order(("scan-lf:N=4",)), origin=Origin.CLIENT)
        assert [job.id for job in Jobs(database).jobs()] == [3, 2, 1]

    assert content(path) == content(mirror_of(path))


def test_transaction_that_failed_leaves_no_difference(
    fresh: Callable[[], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """An insertion that one file alone had taken before it was undone is no sign of damage."""
    path = fresh()
    order = Order(("x" * 100_000,))
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
        Jobs(database).change(1, State.CANCELLED)
        assert database._pair is pair

    assert content(path) == content(mirror_of(path))
    assert not caplog.records


def test_stale_log_does_not_enter_the_rebuilt_file(fresh: Callable[[], Path]) -> None:
    """A connection to the replaced file that closes late takes nothing with it."""
    path = fresh()
    with closing(sqlite3.connect(path)) as stale:
        stale.execute("INSERT INTO uses VALUES ('stale', 1)")
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
    assert result.stdout == f"{path} and its mirror are whole\n"
    assert content(path) == content(mirror_of(path)) == content(model)


# --- errors that callers tell apart ---------------------------------------------------------------


def test_no_room_in_either_file_stores_nothing(fresh: Callable[[], Path]) -> None:
    """A transaction that one of the files has no room for is in neither, and is no damage."""
    path = fresh()
    with Database(path) as database:
        before = Ledger(database).analytical()
        pair = database._pair
        assert pair is not None
        assert pair._mirror is not None
        for connection in (pair.main, pair._mirror.connection):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(StoreFullError, match="full"):
                Ledger(database).remember_analytical("big", {"v": "x" * 100_000})
            assert Ledger(database).analytical() == before
            connection.execute("PRAGMA max_page_count = 1000000")
        Ledger(database).remember_analytical("big", {"v": "x" * 100_000})

    assert content(path) == content(mirror_of(path))
    assert not list(path.parent.glob("*.damaged-*"))


FULL = """
import resource, sys
from pathlib import Path
from tuner.database import Database, Ledger
from tuner.errors import StoreError, StoreFullError

with Database(Path(sys.argv[1])) as database:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    try:
        for number in range(10_000):
            Ledger(database).remember_analytical(f"entry {number}", {"v": "x" * 3000})
    except StoreError as error:
        # before Python 3.11, SQLite's error is a text, the same for reading and writing
        assert isinstance(error, StoreFullError) or sys.version_info < (3, 11)
        print(number)
"""


def test_file_that_may_not_grow_keeps_what_was_stored(tmp_path: Path) -> None:
    """When the system refuses to write more, that is told as such, and all that was stored is there."""
    path = tmp_path / "tuner.db"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    stored = int(done.stdout)
    with Database(path) as database:
        assert 0 < stored == len(Ledger(database).analytical())
        Ledger(database).remember_analytical("more", {})

    assert content(path) == content(mirror_of(path))


def test_answers_are_read_where_the_mirror_has_no_room(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that cannot be rebuilt keeps nobody from reading; storing says why it cannot be done."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = fresh()
    mirror_of(path).unlink()
    with monkeypatch.context() as patches:
        patches.setattr("tuner.database.mirror.make_like", no_room)
        with Database(path) as database:
            assert len(Ledger(database).uses()) == ENTRIES
            with pytest.raises(StoreFullError, match="No space"):
                Ledger(database).add_uses({"more": 1})
            patches.undo()
            Ledger(database).add_uses({"more": 1})  # room again

    assert content(path) == content(mirror_of(path))


def test_lock_that_is_held_for_too_long_is_told(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that keeps either file, or the lock of their names, is a busy database and no damage."""
    monkeypatch.setattr("tuner.database.faults.BUSY_TIMEOUT_S", 0.01)
    path = fresh()
    with Database(path) as database:
        for file in (path, mirror_of(path)):
            with closing(sqlite3.connect(file, isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreBusyError, match="locked"):
                    Ledger(database).add_uses({"one": 1})
                assert len(Ledger(database).uses()) == ENTRIES
        Ledger(database).add_uses({"one": 1})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_file_of_somebody_else_is_read_and_not_written(fresh: Callable[[], Path]) -> None:
    """Who may read a database but not write it gets its answers, and an error that says so when storing."""
    path = fresh()
    for file in (path, mirror_of(path)):
        file.chmod(0o444)
    with Database(path) as database:
        assert len(Ledger(database).uses()) == ENTRIES
        with pytest.raises(StoreReadOnlyError):
            Ledger(database).add_uses({"one": 1})


def test_other_programs_database_is_refused(tmp_path: Path) -> None:
    """No table is made in a database of another program."""
    path = tmp_path / "tuner.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()

    with pytest.raises(StoreDamagedError, match="no database of tuner"):
        Database(path)
    assert path.read_bytes() == before


# --- several processes ----------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tuner.database import Database, Ledger

with Database(Path(sys.argv[1])) as database:
    for _ in range(int(sys.argv[2])):
        Ledger(database).add_uses({"shared": 1, sys.argv[3]: 1})
"""


def test_processes_write_at_once(tmp_path: Path) -> None:
    """Two processes that make, fill and lose the same file at once store everything once, in both files."""
    path = tmp_path / "tuner.db"
    command = [sys.executable, "-c", WRITER, str(path), "300"]
    processes = [subprocess.Popen([*command, name]) for name in ("a", "b")]
    with Database(path) as database:
        Ledger(database).add_uses({"shared": 1})
        os.truncate(path, 5000)
        Ledger(database).add_uses({"shared": 1})
        assert [process.wait(PATIENCE_S) for process in processes] == [0, 0]
        assert Ledger(database).uses() == {"shared": 602, "a": 300, "b": 300}

    assert content(path) == content(mirror_of(path))


# --- versions -------------------------------------------------------------------------------------


def earlier(path: Path) -> None:
    """A database as the first version left it: three runs; the second ended after the third began."""
    name, statements = MIGRATIONS[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, applied TEXT)")
        connection.execute("INSERT INTO migrations VALUES (?, '')", (name,))
        for statement in statements:
            connection.execute(statement)
        for number, (started, ended) in enumerate([("10", "20"), ("30", "60"), ("40", "70")], 1):
            connection.execute(
                "INSERT INTO runs VALUES"
                " (?, 'f', '[\"scan-lf:N=4\"]', 'time', 'GPU-1', 'finished', 'o', ?, ?, '{}', NULL)",
                (number, started, ended),
            )


def test_earlier_database_is_brought_up(tmp_path: Path) -> None:
    """Runs of the version before are all there, in their order in time, and get a mirror."""
    path = tmp_path / "tuner.db"
    earlier(path)
    with Store(path) as store:
        assert [run.id for run in store.history()] == [3, 2, 1]
        assert [run.id for run in store.finished_before(3, "scan-lf", "time")] == [1]
        assert Jobs(store.database).jobs() == []

    assert content(path) == content(mirror_of(path))
    assert check_database(path) == 3


def test_newer_database_is_refused_by_its_mirror_too(fresh: Callable[[], Path]) -> None:
    """A mirror of a newer version replaces nothing that this version could then write to."""
    path = fresh()
    for file in (path, mirror_of(path)):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("INSERT INTO migrations VALUES ('from-the-future', '')")
    path.unlink()

    with pytest.raises(StoreError, match="newer tuner"):
        Database(path)
