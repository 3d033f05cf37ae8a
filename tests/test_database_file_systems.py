"""File systems without locks or shared memory: told as such, or worked around; never called damage."""

import errno
import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from mirrored import ENTRIES, filled

from tuner.database.connection import Database
from tuner.database.files import damaged, translated
from tuner.database.ledger import Ledger
from tuner.model.errors import StoreDamagedError, StoreError

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


WRITER = """
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
    command = [sys.executable, "-c", WRITER, str(path)]
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
