"""The files of a database: names, locks, file systems, and SQLite's faults in the words of this package."""

import fcntl
import grp
import logging
import mmap
import os
import pwd
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from tuner.database.integrity import checksums
from tuner.model.errors import (
    InputError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
)
from tuner.system.ownership import open_lock, open_made_lock, try_lock

# --- SQLite's faults in the words of this package, and whether a database and its mirror are whole.

BUSY_TIMEOUT_S = 5.0  # of waiting for another process; a transaction takes less than a millisecond

ELSEWHERE = "name a file on a local disk with --database (of the daemon: a directory with --state)"
NO_LOCKS = "its file system has no file locks, which keep processes apart"
_CANNOT_OPEN = "cannot be opened"
NO_SHARED_MEMORY = "its file system has no shared memory, which SQLite needs"

# Begin of SQLite's name of the error; what it says; the error here; what that means.
_KNOWN = (
    ("SQLITE_BUSY", "is locked", StoreBusyError, "locked by another process for more than {s:g} s"),
    ("SQLITE_NOTADB", "not a database", StoreDamagedError, "not a database"),
    ("SQLITE_CORRUPT", "malformed", StoreDamagedError, "the database is corrupted"),
    ("SQLITE_FULL", "is full", StoreFullError, "the disk is full"),
    # a quota or the largest size of a file is reached
    ("SQLITE_IOERR_WRITE", "no text of its own", StoreFullError, "the disk takes no more"),
    ("SQLITE_IOERR_SHMSIZE", "no text of its own", StoreFullError, "the disk takes no more"),
    *(
        (f"SQLITE_IOERR_SHM{part}", "no text of its own", StoreError, NO_SHARED_MEMORY)
        for part in ("MAP", "OPEN")
    ),
    *(
        (f"SQLITE_IOERR_{part}", "no text of its own", StoreError, NO_LOCKS)
        for part in ("LOCK", "RDLOCK", "UNLOCK", "CHECKRESERVEDLOCK", "SHMLOCK")
    ),
    ("SQLITE_PROTOCOL", "locking protocol", StoreError, NO_LOCKS),
    ("SQLITE_READONLY", "readonly", StoreReadOnlyError, "not writable by this user"),
    ("SQLITE_CANTOPEN", "unable to open", StoreError, _CANNOT_OPEN),
)
# What may come from damage: a table that is gone is an error like any other to SQLite.
_DAMAGE = (
    *(("SQLITE_NOTADB", "not a database"), ("SQLITE_CORRUPT", "malformed"), ("SQLITE_IOERR", "I/O error")),
    *(("SQLITE_ERROR", "no such table"), ("SQLITE_FORMAT", "format")),
    # said by Python: a text that is none, a row that is not what its checksum says, columns that are gone
    *(("no name", "Could not decode to UTF-8"), ("no name", "user-defined function raised exception")),
    ("SQLITE_ERROR", "no such column"),
)


def mirror_of(path: Path) -> Path:
    """The second file that every transaction goes to."""
    return path.with_name(f"{path.name}.mirror")


class SuspectError(Exception):
    """The files may be damaged, or one of them is behind: they are to be looked at and put right.

    Args:
        why: what was seen.
        distrusted: the file that is not believed, even if nothing can be seen on it.
    """

    def __init__(self, why: str, distrusted: Path | None = None) -> None:
        super().__init__(why)
        self.distrusted = distrusted


class MovedError(Exception):
    """Error for an open file that no longer has its name: the name is to be opened again."""


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """The error of this package for one of SQLite's."""
    translation = _translation(error)
    if translation is None:
        return StoreError(f"{path}: {error}; {advice(path)}")
    kind, meaning = translation
    if meaning == _CANNOT_OPEN and path.is_file() and not os.access(path.absolute().parent, os.W_OK):
        return StoreReadOnlyError(
            f"{path}: {path.absolute().parent} cannot be written, as SQLite needs also to read ({error});"
            f" `tuner db copy --database {path} --output FILE` copies it to a directory that can be written"
        )
    if kind is StoreReadOnlyError or meaning == _CANNOT_OPEN:
        meaning += refusal(path)
    what = ELSEWHERE if meaning in (NO_LOCKS, NO_SHARED_MEMORY) else advice(path)
    if kind is StoreFullError:
        what = f"make room on it; {what}"
    return kind(f"{path}: {meaning.format(s=BUSY_TIMEOUT_S)} ({error}); {what}")


def unreadable(error: OSError, path: Path) -> StoreError:
    """The error of this package where the system refuses a file, as in a folder of another user."""
    return StoreError(f"{path}: {error.strerror}{refusal(path)}; name a file of yours with --database")


def refusal(path: Path) -> str:
    """Owner and mode of what keeps this user from a database, and what changes that; empty without such."""
    files = [path, mirror_of(path)]
    files += [side_file(file, suffix) for file in files for suffix in SIDE_FILES]
    folder = path.absolute().parent
    needed = dict.fromkeys(reversed(folder.parents), os.X_OK)
    needed |= {folder: os.W_OK | os.X_OK, **dict.fromkeys(files, os.R_OK | os.W_OK)}
    for file, rights in needed.items():
        with suppress(OSError):
            there, around = file.stat(), folder.stat()
            if os.access(file, rights):
                continue
            owner, mode = _user(there.st_uid), stat.S_IMODE(there.st_mode)
            whose = f"{owner}:{_group(there.st_gid)}, mode {mode:04o}"
            said = f": {file} is of {whose}; this is {_user(os.geteuid())}"
            if file not in files or there.st_uid == around.st_uid:
                return f"{said}; run it as that user: `sudo -u {owner} tuner ...`"
            to = f"{_user(around.st_uid)}:{_group(around.st_gid)}"
            return f"{said}; `sudo chown {to} {file}` gives it to the owner of its directory"
    return ""


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def damaged(error: sqlite3.Error) -> bool:
    """True where an error may come from a damaged file."""
    translation = _translation(error)
    kind, meaning = translation or (None, "")
    if kind is StoreFullError or meaning in (NO_LOCKS, NO_SHARED_MEMORY):
        return False  # some errors of writing have a name of reading's
    name = getattr(error, "sqlite_errorname", "")
    return any(name.startswith(code) if name else text in str(error) for code, text in _DAMAGE)


def _translation(error: sqlite3.Error) -> tuple[type[StoreError], str] | None:
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on; below, the text is all there is
    for code, text, kind, meaning in _KNOWN:
        if name.startswith(code) if name else text in str(error):
            return kind, meaning
    return None


def advice(path: Path) -> str:
    """Return advice on a database that cannot be used; following it loses none of the content."""
    return (
        f"keep {path.name} and {mirror_of(path).name}, and name another file with --database"
        " (of the daemon: a directory with --state) until they can be used"
    )


# --- Names, locks, and files that are made.

SIDE_FILES = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite creates beside a database."""

_LOOK_AGAIN_S = 0.01  # flock has no time-out


def now() -> str:
    """UTC, ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def side_file(path: Path, suffix: str) -> Path:
    """A file that SQLite keeps beside one."""
    return path.with_name(path.name + suffix)


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open a file; it is not made unless asked for, nor read yet. A new one is for this user alone.

    SQLite gives what it keeps beside a file the same mode. Who can read them can lock them.
    """
    if create:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return _connection(path, "mode=rwc" if create else "mode=rw")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a file without leaving a trace."""
    # Without a log nobody has it open; then it is read as it is, and not even its shared memory file appears.
    return _connection(path, "mode=ro" if side_file(path, "-wal").exists() else "immutable=1")


def _connection(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,  # transactions are begun by hand
    )
    checksums.teach(connection)
    connection.execute("PRAGMA trusted_schema = OFF")  # a file of another hand calls no function
    return connection


def cut_off(path: Path, connection: sqlite3.Connection) -> bool:
    """True where an open file is shorter than it says; of free pages, SQLite itself does not miss the end."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    with suppress(FileNotFoundError):
        if side_file(path, "-wal").stat().st_size > 0:
            return False  # the end may still be in the log
    return bool(path.stat().st_size < pages * page_bytes)


@contextmanager
def locked(path: Path, *, alone: bool) -> Iterator[None]:
    """Hold the lock of the files' names: shared to open them, alone to make or replace them.

    Transactions do not need it. Without it, a connection could open the log of a file that is being replaced.

    Raises:
        StoreBusyError: it is held for too long.
        StoreReadOnlyError: it is needed alone, and this user may not make or open it.
        StoreError: the file system has no locks.
    """
    with ExitStack() as stack:
        lock = _lock_file(side_file(path, ".lock"), make=alone)
        if lock is not None:  # who is not kept out by it cannot replace files either
            stack.callback(os.close, lock)
            _wait(lock, path, alone=alone)
        yield


def make_like(path: Path, model: Path) -> None:
    """Make an empty file with the mode and the owner of another."""
    there = model.stat()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(file, stat.S_IMODE(there.st_mode))
        _own(file, there)
    finally:
        os.close(file)


def new_file(path: Path, model: Path | None, suffix: str = ".new") -> Path:
    """An empty file beside one that it is to replace.

    Args:
        path: of the one that it is to replace.
        model: whose mode and owner it gets; without one, it is for the owner of the folder alone.
        suffix: of its name.
    """
    fresh = side_file(path, suffix)
    remove(fresh)
    if model is not None:
        make_like(fresh, model)
        return fresh
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        _own(file, fresh.absolute().parent.stat())
    finally:
        os.close(file)
    return fresh


def remove(path: Path) -> None:
    """Remove a file and what SQLite keeps beside it."""
    path.unlink(missing_ok=True)
    remove_side_files(path)


def remove_side_files(path: Path) -> None:
    """Remove the side files of a removed database, which SQLite would take for part of the next one."""
    for suffix in SIDE_FILES:
        side_file(path, suffix).unlink(missing_ok=True)


def sync(directory: Path) -> None:
    """Make a new name last through a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock_file(name: Path, *, make: bool) -> int | None:
    """The lock, open; None where it was never made, or is not for this user, and need not be."""
    try:
        return open_lock(name) if make else open_made_lock(name)
    except OSError as error:
        if not make:
            return None
        raise StoreReadOnlyError(f"{name} cannot be made or opened: {error.strerror}") from error


def _own(file: int, model: os.stat_result) -> None:
    """Give a new file the owner of another: what root makes must stay usable for the service's user."""
    if os.geteuid() == 0:
        with suppress(OSError):  # a file system without owners
            os.fchown(file, model.st_uid, model.st_gid)


def _wait(lock: int, path: Path, *, alone: bool) -> None:
    patience = time.monotonic() + BUSY_TIMEOUT_S
    while not try_lock(lock, path, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
        if time.monotonic() > patience:
            raise StoreBusyError(f"{path}: being put right for more than {BUSY_TIMEOUT_S:g} s")
        time.sleep(_LOOK_AGAIN_S)


# --- Whole files, copied page by page while others write to them.

MAGIC = b"SQLite format 3\0"
"""The beginning of every database."""
_STEP_PAGES = 2048  # 8 MB, between two looks at signals

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@contextmanager
def source_of(path: Path, copy: Path) -> Iterator[sqlite3.Connection]:
    """A database opened to read, for a copy of it; its mirror where the file itself is gone.

    Args:
        path: of the database.
        copy: the file that is written in the block, for messages.

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
    try:
        with locked(path, alone=False), closing(connect_to_read(there)) as connection:
            yield connection
    except sqlite3.Error as error:
        if damaged(error):
            why = f"{there} is damaged ({error}); `tuner db repair` puts it right"
            raise StoreDamagedError(why) from error
        fault = translated(error, there)
        if isinstance(fault, StoreFullError):  # the database is only read
            raise no_room(copy, error) from error
        raise fault from error


def no_room(copy: Path, error: Exception) -> StoreFullError:
    """The error for a copy that finds no room."""
    return StoreFullError(f"no room for the copy in {copy.parent} ({error})")


def copy_pages(source: sqlite3.Connection, copy: Path, progress: Progress = lambda *_: None) -> None:
    """Copy a database as it is at one moment into an empty file; whoever writes to it meanwhile goes on."""
    own = not source.in_transaction
    if own:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it is one moment
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as target:
            target.execute("PRAGMA synchronous = OFF")  # who keeps the file has it written to the disk
            source.backup(
                target,
                pages=_STEP_PAGES,
                progress=lambda _, remaining, total: progress(total - remaining, total),
            )
            target.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    finally:
        if own:
            source.execute("ROLLBACK")


# --- File systems that lack what a database needs: locks of files, or memory that processes share through
# one.
#
# SQLite's write-ahead log has its index in shared memory. Where there is none, such as on some network file
# systems, a journal does instead: it is slower, and who writes keeps readers waiting for that long.

_LOG = logging.getLogger(__name__)
_NO_MEMORY = ("SQLITE_IOERR_SHMMAP", "SQLITE_IOERR_SHMOPEN")


def lacks_shared_memory(error: sqlite3.Error, path: Path) -> bool:
    """True where an error comes from a file system without shared memory."""
    name = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on
    return name in _NO_MEMORY if name else "I/O error" in str(error) and not _shares_memory(path.parent)


def use_log(path: Path, connection: sqlite3.Connection) -> None:
    """Give a new file a write-ahead log, or a journal where there is no shared memory."""
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        if not lacks_shared_memory(error, path):
            raise
        connection.close()
        use_journal(path)


def use_journal(path: Path) -> None:
    """Give a file a journal instead of its write-ahead log; nobody else may have it open."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the log is in memory of its own
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA journal_mode = DELETE")
    _LOG.warning(
        "%s: its file system has no shared memory, so that storing is slower and readers wait for it;"
        " better name a file on a local disk with --database (of the daemon: a directory with --state)",
        path,
    )


def _shares_memory(folder: Path) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, suffix="-shm") as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
    except (OSError, ValueError):
        return False
    return True
