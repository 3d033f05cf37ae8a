"""Files that take the place of damaged ones: each is there whole or not at all.

A file is made under another name and then gets that of the old one. Connections that are open to the old one
notice (``pair``); SQLite leaves the log of a file alone that has another's name.
"""

import errno
import logging
import os
from contextlib import closing, suppress
from pathlib import Path

from tuner.database.faults import SuspectError, advice
from tuner.database.files import SIDE_FILES, connect, make_like, side_file
from tuner.database.integrity.copy_state import inspected
from tuner.model.errors import StoreError, StoreFullError, StoreReadOnlyError

_LOG = logging.getLogger(__name__)
_KEPT = 3  # damaged files of one name, the oldest going first: a disk must not fill with them


def rebuild(path: Path, source: Path, why: str) -> str:
    """Put a copy of a whole file, which the caller holds, in the place of another.

    Args:
        path: the file to replace.
        source: the whole one.
        why: what was wrong, for people; empty where the file is nothing that anybody could miss.

    Returns:
        What was done, for people; empty where nobody needs to know.

    Raises:
        SuspectError: the source is not whole.
    """
    fresh = new_file(path, source)
    try:
        with closing(connect(source)) as reading, closing(connect(fresh)) as writing:
            reading.backup(writing)
        copied = inspected(fresh)
        if not copied.whole and copied.changes == 0:  # the source was damaged since it was looked at
            raise SuspectError(f"{source.name} was damaged while it was copied", source)
        return put_in_place(fresh, path, f"rebuilt from {source.name}: {why}" if why else "")
    finally:
        remove(fresh)


def new_file(path: Path, model: Path) -> Path:
    """An empty file beside one that it is to replace, with the mode and owner of a model."""
    fresh = side_file(path, ".new")
    remove(fresh)
    make_like(fresh, model)
    return fresh


def put_in_place(fresh: Path, path: Path, what: str) -> str:
    """Give a file the name of another, which is kept under a third name where something was wrong with it.

    Args:
        fresh: the new one, closed.
        path: the name.
        what: was done and why, for people; empty where the old one is nothing that anybody could miss.

    Returns:
        The same with the names; it is logged, too.
    """
    kept = _set_aside(path) if what else None
    remove_side_files(path)
    fresh.replace(path)
    _sync(path.parent)
    if not what:
        return ""
    told = f"{path} was {what}" + (f"; it is kept as {kept.name}" if kept else "")
    _LOG.warning("%s", told)
    return told


def remove(path: Path) -> None:
    """Remove a file and what SQLite keeps beside it."""
    path.unlink(missing_ok=True)
    remove_side_files(path)


def remove_side_files(path: Path) -> None:
    """What SQLite kept beside a file that is no more would be taken for part of the next one."""
    for suffix in SIDE_FILES:
        side_file(path, suffix).unlink(missing_ok=True)


def of_the_system(error: OSError, path: Path) -> StoreError:
    """The error of this package for one of the system's."""
    kind = StoreError
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        kind = StoreFullError
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind = StoreReadOnlyError
    return kind(f"{path}: {error.strerror}; {advice(path)}")


def _set_aside(path: Path) -> Path | None:
    """Give a file and its log another name; None where there is nothing in it."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    places = [side_file(path, f".damaged-{number}") for number in range(1, _KEPT + 1)]
    free = [place for place in places if not place.exists()]
    place = free[0] if free else min(places, key=lambda kept: kept.stat().st_mtime)
    remove(place)
    path.replace(place)
    with suppress(FileNotFoundError):
        side_file(path, "-wal").replace(side_file(place, "-wal"))
    return place


def _sync(directory: Path) -> None:
    """Make a new name last through a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
