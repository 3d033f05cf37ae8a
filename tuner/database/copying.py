"""A copy of a database for another host: its runs at one transaction, in one file."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tuner.database.faults import damaged, mirror_of, translated, unreadable
from tuner.database.files import connect_to_read, locked
from tuner.database.integrity.checksums import TABLES
from tuner.database.merge_source import RUN_TABLES
from tuner.model.errors import InputError, StoreDamagedError, StoreFullError

_NAME = "tuner.db"
_MAGIC = b"SQLite format 3\0"  # at the beginning of every database


@contextmanager
def copied(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A file with the runs and trials of a database, and nothing else that it holds; it is gone afterwards.

    Jobs, users, uses, samples and models stay behind. Others may write to the database meanwhile. Rows keep
    their checksums, so that who merges the copy sees damage of the original.

    Args:
        path: of the database; its mirror is copied where the file itself is gone.
        folder: where the copy is made; None for the directory of temporary files.

    Raises:
        InputError: there is no database.
        StoreError: it cannot be read, or there is no room for the copy.
    """
    try:
        there = next((file for file in (path, mirror_of(path)) if file.is_file()), None)
    except OSError as error:
        raise unreadable(error, path) from error
    if there is None:
        raise InputError(f"{path}: no results are there; name the file that `tuner run` wrote")
    with tempfile.TemporaryDirectory(prefix=".tuner-copy-", dir=folder) as made:
        copy = Path(made) / _NAME
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with locked(path, alone=False), closing(connect_to_read(there)) as connection:
                _copy(connection, copy)
        except sqlite3.Error as error:
            if damaged(error):
                why = f"{there} is damaged ({error}); `tuner db repair` puts it right"
                raise StoreDamagedError(why) from error
            fault = translated(error, there)
            if isinstance(fault, StoreFullError):  # the database is only read
                raise StoreFullError(f"no room for the copy in {copy.parent.parent} ({error})") from error
            raise fault from error
        yield copy


def check_target(target: Path, path: Path) -> None:
    """Refuse to replace a database that is in use by a copy, which holds less, or a file that is no database.

    Args:
        target: where a copy is to be.
        path: of the database that is copied.

    Raises:
        InputError: the target is that database, its mirror, another database with one, or no copy.
    """
    own = [file.resolve() for file in (path, mirror_of(path))]
    if target.resolve() in own or mirror_of(target).exists():
        raise InputError(
            f"--output {target}: this is a database in use, and a copy holds less; name another file"
        )
    if target.exists() and not target.is_file():
        raise InputError(f"--output {target}: is a device or a pipe; name a file, or - for standard output")
    if target.is_file() and not _may_be_a_copy(target):
        raise InputError(f"--output {target}: is there already, and is no database; name another file")


def _may_be_a_copy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) in (b"", _MAGIC)


def _copy(source: sqlite3.Connection, copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        target.execute("PRAGMA secure_delete = ON")
        tables = {name for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name in TABLES.keys() & tables - set(RUN_TABLES):
            target.execute(f"DELETE FROM {name}")  # noqa: S608 - a name of ours
