"""Puts a database and its mirror right: makes them, brings them up, rebuilds one from the other.

Whoever does it has the lock of the names alone, and the write locks of the files as far as they are whole. A
file is rebuilt under another name and then takes the place of the old one: it is there whole or not at all.
Connections that are open to the old one notice (``pair``); SQLite leaves the log of a file alone that has
another's name.
"""

import errno
import logging
import os
import sqlite3
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.database.faults import advice, damaged, mirror_of, translated
from tuner.database.files import SIDE_FILES, connect, cut_off, locked, make_like, now, side_file
from tuner.database.migrations import MIGRATIONS
from tuner.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError

_LOG = logging.getLogger(__name__)
_KEPT = 3  # damaged files of one name, the oldest going first: a disk must not fill with them
_OURS = {"runs", "trials", "migrations"}
_NAMES = frozenset(name for name, _ in MIGRATIONS)


@dataclass(frozen=True)
class _MirrorState:
    """What a file is.

    Attributes:
        trouble: why it cannot be used; empty for a database of this program that is whole.
        there: false where there is none, or one without any table.
        migrations: by which changes it was made.
    """

    trouble: str = ""
    there: bool = True
    migrations: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """True where it can be used."""
        return self.there and not self.trouble


def put_right(path: Path, distrusted: Path | None = None) -> None:
    """Make, bring up and heal a database and its mirror until both are whole and the same.

    Args:
        path: of the database.
        distrusted: the one of both that is rebuilt even if both seem whole and at the same transaction.

    Raises:
        StoreBusyError: a process holds one of them for too long.
        StoreDamagedError: neither is whole; they are left as they are.
        StoreFullError: there is no room for what has to be rebuilt; the files are left as they are.
        StoreReadOnlyError: this user may not write here.
        StoreError: it was written by a newer version, or cannot be opened.
    """
    second = mirror_of(path)
    with locked(path, alone=True):
        main, mirror = _examined(path), _examined(second)
        if main.there and not main.whole and not mirror.whole:
            also = f", and its mirror: {mirror.trouble}" if mirror.trouble else ""
            raise StoreDamagedError(f"{path}: {main.trouble}{also}; {advice(path)}")
        if not main.there and mirror.trouble:
            raise StoreDamagedError(f"{path} is empty, and its mirror: {mirror.trouble}; {advice(path)}")
        try:
            with ExitStack() as held:
                if not main.whole and mirror.whole:
                    _hold(second, held)
                    _rebuild(path, second, main.trouble or "it was empty or gone")
                    main = mirror
            if main.migrations != _NAMES:
                _bring_up(path, main)
            _match(path, mirror, distrusted)
        except sqlite3.Error as error:
            raise translated(error, path) from error
        except OSError as error:
            raise _of_the_system(error, path) from error


def _examined(path: Path) -> _MirrorState:
    if not path.exists():
        return _MirrorState(there=False)
    try:
        with closing(connect(path)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if not tables:
                return _MirrorState(there=False)
            trouble = _trouble(path, connection, tables)
            names = () if trouble else connection.execute("SELECT name FROM migrations")
            return _MirrorState(trouble, migrations=frozenset(name for (name,) in names))
    except sqlite3.Error as error:
        if damaged(error):
            return _MirrorState(f"the database is corrupted, or none ({error})")
        raise translated(error, path) from error


def _trouble(path: Path, connection: sqlite3.Connection, tables: set[str]) -> str:
    if not tables >= _OURS:
        return "no database of tuner"
    if cut_off(path, connection):
        return "the database is cut off"
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    return "" if verdict == "ok" else f"the database is corrupted ({' '.join(verdict.split())})"


def _bring_up(path: Path, found: _MirrorState) -> None:
    """Make what is missing of the tables, all or nothing."""
    unknown = found.migrations - _NAMES
    if unknown:
        raise StoreError(
            f"{path} was written by a newer tuner (migrations {', '.join(sorted(unknown))});"
            " upgrade tuner or name another file with --database (of the daemon: a directory with --state)"
        )
    if not path.exists():
        _remove_side_files(path)  # of one that was there before
    with closing(connect(path, create=True)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT)")
        for name, statements in MIGRATIONS:
            if name not in found.migrations:
                for statement in statements:
                    connection.execute(statement)
                connection.execute("INSERT INTO migrations VALUES (?, ?)", (name, now()))
        connection.execute("COMMIT")


def _match(path: Path, mirror: _MirrorState, distrusted: Path | None) -> None:
    """Make a whole database and its mirror the same; the one that knows more wins."""
    second = mirror_of(path)
    with ExitStack() as held:
        identity, count = _hold(path, held)
        if not mirror.whole:
            _rebuild(second, path, mirror.trouble)
            return
        of, followed = _hold(second, held)
        if of != identity:
            _rebuild(second, path, "it was the mirror of another database")
        elif followed > count:
            _rebuild(path, second, f"it lacked {followed - count} transactions")
        elif followed < count:
            _rebuild(second, path, "")
        elif distrusted is not None:
            _rebuild(
                distrusted,
                path if distrusted == second else second,
                "it had lost some of it, or held other records",
            )


def _hold(path: Path, held: ExitStack) -> tuple[str, int]:
    """Keep everybody from writing to a whole file; returns its identity and its count of transactions."""
    connection = held.enter_context(closing(connect(path)))
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'writes'").fetchone()[0]:
        return "", 0
    identity, count = connection.execute("SELECT identity, count FROM writes").fetchone()
    return identity, count


def _rebuild(path: Path, source: Path, why: str) -> None:
    """Put a copy of a whole file, which the caller holds, in the place of another.

    Args:
        path: the file to replace.
        source: the whole one.
        why: what was wrong, for people; empty where the file is nothing that anybody could miss.
    """
    fresh = side_file(path, ".new")
    _remove(fresh)
    try:
        make_like(fresh, source)
        with closing(connect(source)) as reading, closing(connect(fresh)) as writing:
            reading.backup(writing)
        copied = _examined(fresh)
        if not copied.whole:  # the source was damaged since it was looked at
            raise StoreDamagedError(f"{source}: {copied.trouble or 'it is empty'}; {advice(path)}")
        kept = _set_aside(path) if why else None
        _remove_side_files(path)
        fresh.replace(path)
        _sync(path.parent)
    finally:
        _remove(fresh)
    if why:
        _LOG.warning(
            "%s was rebuilt from %s: %s%s",
            path,
            source.name,
            why,
            f"; it is kept as {kept.name}" if kept else "",
        )


def _set_aside(path: Path) -> Path | None:
    """Give a file and its log another name; None where there is nothing in it."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    places = [side_file(path, f".damaged-{number}") for number in range(1, _KEPT + 1)]
    free = [place for place in places if not place.exists()]
    place = free[0] if free else min(places, key=lambda kept: kept.stat().st_mtime)
    _remove(place)
    path.replace(place)
    with suppress(FileNotFoundError):
        side_file(path, "-wal").replace(side_file(place, "-wal"))
    return place


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _remove_side_files(path)


def _remove_side_files(path: Path) -> None:
    """What SQLite kept beside a file that is no more would be taken for part of the next one."""
    for suffix in SIDE_FILES:
        side_file(path, suffix).unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """Make a new name last through a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _of_the_system(error: OSError, path: Path) -> StoreError:
    kind = StoreError
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        kind = StoreFullError
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind = StoreReadOnlyError
    return kind(f"{path}: {error.strerror}; {advice(path)}")
