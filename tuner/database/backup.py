"""Backups: everything that is stored, in one file that tells whether it is whole; and the way back from one.

A backup is a database of SQLite with one line of JSON behind its last page, the manifest. SQLite reads the
file as any other, as the number of pages is in the first one:

    {"format": 1, "tuner": VERSION, "at": ..., "size_bytes": of the database, "sha256": of the same,
     "rows": {"runs": 12, ...}, "calibrations": {...}, "checksum": of the manifest}

A restored database has an identity of its own, as it goes on from an earlier state: later backups of the
first are those of another database then, and nothing of them comes back by itself.
"""

import errno
import glob
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from tuner.database.files import (
    MAGIC,
    Progress,
    SuspectError,
    connect,
    connect_to_read,
    copy_pages,
    damaged,
    locked,
    mirror_of,
    new_file,
    no_room,
    now,
    remove,
    source_of,
    sync,
    translated,
    unreadable,
    use_log,
)
from tuner.database.integrity.checksums import TABLES, named
from tuner.database.integrity.copy_state import (
    CopyState,
    VerifiedRows,
    differences,
    inspected,
    refuse_newer,
    text_or_bytes,
)
from tuner.database.integrity.repair import put_in_place, rebuild
from tuner.database.integrity.repair_plan import backups, dated_files
from tuner.database.pair import Pair
from tuner.database.transaction import standing
from tuner.model.errors import InputError, StoreDamagedError, StoreError, StoreFullError
from tuner.model.typed import sealed, unsealed
from tuner.model.version import VERSION
from tuner.power.response import calibrations
from tuner.system.ownership import held_folder, without_daemon
from tuner.system.untrusted.reading import shown_bytes
from tuner.system.user_folders import make_folder

_FORMAT = 1
_KEYS = ("format", "tuner", "at", "size_bytes", "sha256", "rows", "calibrations")
_MANIFEST_BYTES = 2**24  # a calibration has some hundred
_PIECE_BYTES = 2**20
_HEAD_BYTES = 100  # of a database of SQLite (https://sqlite.org/fileformat2.html, 1.3)
_LARGEST_PAGE = 65536
_PAGES = [2**power for power in range(9, 17)]  # sizes in bytes
CALIBRATIONS = "sensors.json"
"""Name of the file of calibrations, beside the database."""
MOST_BYTES = 4 * 2**30
"""Of all dated backups of a database together."""
_KEPT = 3
_UNFINISHED = ".tuner-unfinished"  # behind a name until the file is whole
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ROOM = 2  # times the database, to leave some for what is stored next


def _untold(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Manifest:
    """Description of a backup, in it.

    Attributes:
        tuner: version of the program that wrote it.
        at: when; UTC, ISO 8601.
        size_bytes: of the database in it.
        sha256: of the same, hexadecimal.
        rows: how many, by table.
        calibrations: document of the calibrations of power sensors; empty without any.
    """

    tuner: str
    at: str
    size_bytes: int
    sha256: str
    rows: Mapping[str, int]
    calibrations: Mapping[str, Any]

    def line(self) -> bytes:
        """As it stands behind the database."""
        return json.dumps(sealed({"format": _FORMAT, **asdict(self)})).encode() + b"\n"


# --- Written: online, whole or not at all.


def back_up(path: Path, target: Path, *, progress: Progress = _untold) -> Manifest:
    """Write a backup of a database, of this version or an earlier one; others may go on with it meanwhile.

    Args:
        path: of the database, which is not changed; its mirror is read where it is gone.
        target: the file; one that is there is replaced once the backup is whole and on the disk.
        progress: told how much is done.

    Raises:
        InputError: there is no database.
        StoreDamagedError: rows of it are not sound: repair it first.
        StoreFullError: there is no room for the backup.
        StoreError: it is of a newer version, or cannot be read or written.
    """
    try:
        with held_folder(target.absolute().parent):  # two at a time would write to one file
            fresh = new_file(target, None, _UNFINISHED)
            try:
                with source_of(path, target) as connection:
                    manifest = _write(connection, path, fresh, progress, verifies=True)
                fresh.replace(target)
                sync(target.absolute().parent)
            finally:
                remove(fresh)
    except SuspectError as error:
        raise StoreDamagedError(f"{path}: {error}; `tuner db repair` puts it right") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise no_room(target, error) from error
        raise InputError(f"{target}: cannot be written: {error.strerror}") from error
    return manifest


def back_up_day(pair: Pair, path: Path, day: date) -> bool:
    """Write the backup of a day beside an open database unless there is one, and keep the last three.

    Together they take ``MOST_BYTES`` at most, but that the newest stays however large it is. Those of the
    database that was there before it count, too: a restored one does not take their place at once.

    Returns:
        False where the mirror is missing or behind: nothing was written.

    Raises:
        SuspectError: the database is damaged.
        StoreFullError: there is hardly room for it.
    """
    target = path.with_name(f"{path.name}.backup-{day.isoformat()}")
    if target.exists():
        return True
    if shutil.disk_usage(path.parent).free < _ROOM * path.stat().st_size:
        raise StoreFullError(f"{path.parent}: the disk is nearly full")
    fresh = new_file(target, path)
    try:
        with pair.snapshot() as view:
            if not view.mirrored:
                return False
            identity, _ = standing(pair.main)
            _write(pair.main, path, fresh, _untold, verifies=False)  # the scrub reads every row
        fresh.replace(target)
        sync(path.parent)
    finally:
        remove(fresh)
    ours = [each.path for each in backups(path, identity)]
    for left in path.parent.glob(f"{glob.escape(path.name)}.backup-????-??-??.new*"):
        left.unlink(missing_ok=True)  # of a day on which the daemon was killed meanwhile
    others = sorted((file for file in dated_files(path) if file not in ours), reverse=True)
    left_bytes, newest = MOST_BYTES, [*ours, *others]
    for place, file in enumerate(newest):
        left_bytes -= file.stat().st_size
        if place >= _KEPT or (place and left_bytes < 0):
            file.unlink(missing_ok=True)
    return True


def _write(
    connection: sqlite3.Connection, path: Path, fresh: Path, progress: Progress, *, verifies: bool
) -> Manifest:
    """Copy a database into an empty file, and seal it."""
    copy_pages(connection, fresh, progress)
    copied = inspected(fresh)
    refuse_newer(copied)
    if copied.form not in (CopyState.WHOLE, CopyState.EARLIER):
        raise SuspectError(f"a copy of it is not whole: {copied.trouble or 'nothing is in it'}")
    with closing(connect_to_read(fresh)) as reading:
        reading.text_factory = text_or_bytes
        unsound = differences(reading, None, VerifiedRows()) if verifies and copied.whole else iter(())
        if (first := next(unsound, None)) is not None:
            more = sum(1 for _ in unsound)
            also = f", and {more} more rows" if more else ""
            raise SuspectError(f"{first.table.name} {named(first.key)} is damaged{also}")
        tables = {name for (name,) in reading.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        rows = {
            name: reading.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608 - a name of ours
            for name in TABLES
            if name in tables
        }
    with fresh.open("r+b") as file:
        digest = hashlib.sha256()
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        there = calibrations.document(path.with_name(CALIBRATIONS))
        manifest = Manifest(VERSION, now(), file.tell(), digest.hexdigest(), rows, there)
        file.write(manifest.line())
        file.flush()
        os.fsync(file.fileno())
    return manifest


# --- Restored: the state of before is in force, or that of the backup, whenever the process is killed.


def restore(
    source: BinaryIO,
    name: str,
    path: Path,
    *,
    replace: bool = False,
    held: bool = False,
    progress: Progress = _untold,
) -> Manifest:
    """Put a backup in the place of a database; calibrations of power sensors are added to those beside it.

    One of an earlier version is brought up by who opens it next.

    Args:
        source: the backup, read once from its beginning.
        name: of it, for messages.
        path: of the database. It belongs to the owner of its folder then.
        replace: also where something is stored there, which is gone then.
        held: the caller has the database by ``without_daemon`` already.
        progress: told how many bytes were read, and of how many.

    Raises:
        InputError: it is no backup, not whole, or was changed since; something is stored at the path; or a
            daemon works there.
        StoreFullError: there is no room for it.
        StoreError: it is of a newer version, or cannot be put there.
    """
    folder = path.absolute().parent
    try:
        make_folder(folder)
        with nullcontext() if held else without_daemon(folder), held_folder(folder):
            there = [file.stat() for file in (path, mirror_of(path)) if file.exists()]
            if any(os.path.samestat(os.fstat(source.fileno()), status) for status in there):
                raise InputError(f"{name}: this is the database itself; name a backup of it")
            if not replace and any(status.st_size for status in there):
                raise InputError(
                    f"{path}: a database is there already; `tuner db backup --database {path} --output FILE`"
                    " keeps it, and --replace puts the other in its place"
                )
            same_owner = path.exists() and path.stat().st_uid == folder.stat().st_uid
            fresh = new_file(path, path if same_owner else None, _UNFINISHED)
            try:
                manifest = _received(source, name, fresh, mirror_of(path), progress)
                whole = _begin_anew(fresh, name)
                calibrations.add(path.with_name(CALIBRATIONS), manifest.calibrations)
                _replace(fresh, path, mirrored=whole)
            finally:
                remove(fresh)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise no_room(path, error) from error
        raise unreadable(error, path) from error
    return manifest


def _received(source: BinaryIO, name: str, fresh: Path, mirror: Path, progress: Progress) -> Manifest:
    """Write the database of a backup to a file, and verify all of it."""
    head = source.read(_HEAD_BYTES)
    length = _length(head)
    if not length:
        raise InputError(f"{name}: is no backup; name a file that `tuner db backup` wrote")
    makes_room = mirror.stat().st_size if mirror.exists() else 0  # it goes before the new one is made
    needed, free = length + max(0, length - makes_room), shutil.disk_usage(fresh.parent).free
    if free < needed:
        room = f"{shown_bytes(needed)} are needed, and {shown_bytes(free)} are free"
        raise StoreFullError(f"{mirror.parent}: no room to restore {name}: {room}; nothing was changed")
    digest, done = hashlib.sha256(), 0
    with fresh.open("r+b") as file:
        piece = head
        while piece:
            file.write(piece)
            digest.update(piece)
            done += len(piece)
            progress(done, length)
            piece = source.read(min(_PIECE_BYTES, length - done))
        file.flush()
        os.fsync(file.fileno())
    if done < length:
        raise InputError(f"{name}: is cut off: {done:,} of {length:,} bytes are there; nothing was changed")
    manifest = _manifest(source.read(_MANIFEST_BYTES), name)
    if (manifest.size_bytes, manifest.sha256) != (length, digest.hexdigest()):
        raise InputError(f"{name}: has changed since it was written (SHA-256); nothing was changed here")
    return manifest


def _length(head: bytes) -> int:
    """Bytes of a database by its first ones; 0 where it is none."""
    if len(head) < _HEAD_BYTES or not head.startswith(MAGIC):
        return 0
    page = int.from_bytes(head[16:18], "big")
    size = _LARGEST_PAGE if page == 1 else page
    return size * int.from_bytes(head[28:32], "big") if size in _PAGES else 0


def _manifest(line: bytes, name: str) -> Manifest:
    if not line:
        raise InputError(
            f"{name}: ends without the manifest of a backup: it is cut off, or a plain database, of which"
            f" `tuner db backup --database {name} --output FILE` makes a backup"
        )
    try:
        document = json.loads(line)
        if isinstance(document, dict) and document.get("format", 0) > _FORMAT:
            newer = f"was written by tuner {document.get('tuner', '')!s:.40}, which is newer"
            raise StoreError(f"{name}: {newer}; upgrade tuner on this host first")
        content = unsealed(document, _KEYS)
        del content["format"]
        return Manifest(**content)
    except (ValueError, TypeError, RecursionError) as error:
        why = f"the manifest behind the database is cut off or has changed ({error})"
        raise InputError(f"{name}: {why}; nothing was changed here") from error


def _begin_anew(fresh: Path, name: str) -> bool:
    """Refuse what this program cannot use, and give the rest an identity of its own, and a log.

    Returns:
        True where it is of this version, False where it is of an earlier one.
    """
    copied = inspected(fresh)
    if copied.form is CopyState.NEWER:
        raise StoreError(
            f"{name}: is of a newer tuner (migrations {copied.trouble}); upgrade tuner on this host first"
        )
    if copied.form not in (CopyState.WHOLE, CopyState.EARLIER):
        raise InputError(f"{name}: {copied.trouble or 'nothing is in it'}; nothing was changed here")
    with closing(connect(fresh)) as connection:
        if copied.identity is not None:
            connection.execute("UPDATE writes SET identity = ?", (token_hex(16),))
        use_log(fresh, connection)
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    return copied.whole


def _replace(fresh: Path, path: Path, *, mirrored: bool) -> None:
    """Put a file in the place of a database and its mirror.

    The one step that counts is the renaming of the file. Until then the mirror has all that is stored, also
    where the log of the database is gone already. After it the mirror is that of another database.
    """
    second = mirror_of(path)
    with locked(path, alone=True), ExitStack() as held:
        for file in (path, second):
            held.enter_context(_held(file))
        put_in_place(fresh, path, "")
        remove(second)
        sync(path.absolute().parent)
        if mirrored:  # of an earlier version, who brings it up makes the mirror
            rebuild(second, path, "")


@contextmanager
def _held(file: Path) -> Iterator[None]:
    """Keep who has a file open from writing to it, as far as it is a database."""
    if not file.exists() or not file.stat().st_size:
        yield
        return
    with closing(connect(file)) as connection:
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if not damaged(error):
                raise
        yield
