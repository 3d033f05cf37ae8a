"""What stands in the way of a database: no room, locks, file systems, users, other programs and versions."""

import errno
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from cli_process import tuner
from mirrored import ENTRIES, content, filled
from test_power_ownership import nobody

from tuner.database.connection import Database
from tuner.database.files import damaged, mirror_of, translated
from tuner.database.integrity.check import check_database
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.migrations import MIGRATIONS
from tuner.database.runs import Store
from tuner.model.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)

PATIENCE_S = 60.0


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Makes a database with its mirror, closed."""

    def make() -> Path:
        filled(tmp_path / "tuner.db")
        return tmp_path / "tuner.db"

    return make


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
                Ledger(database).remember_analytical("big", {"rule": "x" * 100_000})
            assert Ledger(database).analytical() == before
            connection.execute("PRAGMA max_page_count = 1000000")
        Ledger(database).remember_analytical("big", {"rule": "x" * 100_000})

    assert content(path) == content(mirror_of(path))
    assert not list(path.parent.glob("*.damaged-*"))


FULL = """
import resource, sys
from pathlib import Path
from tuner.database.connection import Database; from tuner.database.ledger import Ledger
from tuner.model.errors import StoreError, StoreFullError

with Database(Path(sys.argv[1])) as database:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    try:
        for number in range(10_000):
            Ledger(database).remember_analytical(f"entry {number}", {"rule": "x" * 3000})
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
        patches.setattr("tuner.database.files.make_like", no_room)
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
    monkeypatch.setattr("tuner.database.files.BUSY_TIMEOUT_S", 0.01)
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


def test_a_directory_that_cannot_be_written_is_named(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a read-only file system: the message has the command that gets at the runs."""
    path = fresh()
    unable = sqlite3.OperationalError("unable to open database file")
    monkeypatch.setattr("tuner.database.files.os.access", lambda *_: False)
    found = translated(unable, path)

    assert isinstance(found, StoreReadOnlyError)
    assert f"{path.parent} cannot be written" in str(found)
    assert f"`tuner db copy --database {path} --output FILE`" in str(found)


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
from tuner.database.connection import Database; from tuner.database.ledger import Ledger

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


CONDITIONS = (
    '{"workloads": [["scan-lf:N=4", 1]], "sources": {}, "objective": "time", "policy": "auto", "seed": 0,'
    ' "clocks": "off", "settings": {}, "device": {"spec": "cuda:0", "name": "GPU", "uuid": "GPU-1",'
    ' "driver": "1", "runtime": "", "modelled": false}}'
)


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
                " (?, 'f', '[\"scan-lf:N=4\"]', 'time', 'GPU-1', 'finished', 'o', ?, ?, ?, NULL)",
                (number, started, ended, CONDITIONS),
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(
    "words",
    [
        "history",
        "best scan-lf:N=4 --device sim:h200",
        "db check",
        "db repair",
        "db merge",
        "db copy --output -",
    ],
)
def test_a_folder_of_another_user_is_told(words: str) -> None:
    """Whatever reads a database names the file that this user may not open."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file, path = Path(folder, "other.db"), Path(folder, "theirs", "tuner.db")
        path.parent.mkdir(mode=0o700)
        filled(path)
        shutil.copy(path, file)
        file.chmod(0o644)
        further = [file] if words == "db merge" else []
        call = partial(tuner, *words.split(), *further, "--database", path)
        call()  # imports what another user may not read
        with nobody():
            result = call()
    assert f"{path}: Permission denied; name a file of yours with --database" in result.stderr


HERE = Path(__file__).parent


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_no_locks_of_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Where flock does not work, the message says so and what to do."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"has no file locks.*local disk with --database.*--state") as told:
        Database(tmp_path / "tuner.db")
    assert not isinstance(told.value, StoreDamagedError)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="SQLite's errors have names from Python 3.11 on")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SQLITE_IOERR_LOCK", "no file locks"),
        ("SQLITE_IOERR_SHMLOCK", "no file locks"),
        ("SQLITE_PROTOCOL", "no file locks"),
        ("SQLITE_IOERR_SHMMAP", "no shared memory"),
        ("SQLITE_IOERR_SHMOPEN", "no shared memory"),
    ],
)
def test_errors_of_the_file_system_are_no_damage(tmp_path: Path, name: str, said: str) -> None:
    """What SQLite calls an I/O error is told as what the file system lacks."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = name

    assert not damaged(error)
    assert said in str(translated(error, tmp_path / "tuner.db"))
    assert "corrupted" not in str(translated(error, tmp_path / "tuner.db"))


LOGGING_WRITER = """
import logging, sys
from pathlib import Path
from tuner.database.connection import Database; from tuner.database.ledger import Ledger

logging.basicConfig()
with Database(Path(sys.argv[1])) as database:
    for number in range(int(sys.argv[2])):
        Ledger(database).add_uses({"shared": 1, sys.argv[3]: 1})
        assert Ledger(database).uses()[sys.argv[3]] == number + 1
"""


@pytest.fixture(scope="module")
def no_shared_memory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a process in which the indexes of logs cannot be mapped."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the file system with")
    target = tmp_path_factory.mktemp("preloaded") / "no_shared_memory.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    source = str(HERE / "no_shared_memory.c")
    subprocess.run([compiler, *flags, "-o", str(target), source, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(target)}


@pytest.mark.parametrize("there", [False, True])
def test_no_shared_memory_is_slower_and_told(
    tmp_path: Path, no_shared_memory: dict[str, str], *, there: bool
) -> None:
    """Without shared memory a journal does, for several processes, also for a database from elsewhere."""
    path = tmp_path / "tuner.db"
    if there:
        filled(path)
    command = [sys.executable, "-c", LOGGING_WRITER, str(path)]
    first = subprocess.run(
        [*command, "1", "first"], check=True, env=no_shared_memory, stderr=subprocess.PIPE, text=True
    )
    pair = [subprocess.Popen([*command, "20", name], env=no_shared_memory) for name in ("a", "b")]

    assert [process.wait(60) for process in pair] == [0, 0]
    assert "no shared memory, so that storing is slower" in first.stderr
    assert "damaged" not in first.stderr
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Database(path) as database:
        assert Ledger(database).uses()["shared"] == 41
        assert database.examine().rows >= 4 + ENTRIES * there
