"""Ownership across processes: of runs, clocks, GPUs, folders and a daemon's state, by locked files."""

import contextlib
import errno
import fcntl
import glob
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tuner.model.errors import DeviceUnavailableError, InputError, StoreError, StoreFullError, TunerError
from tuner.system.user_folders import make_folder

# --- Files whose lock (flock) is the ownership of something; the kernel unlocks them when their holder dies.

_HOW = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def open_lock(path: Path) -> int:
    """Open a lock file for those who may write beside it, and make it if it is missing.

    Raises:
        OSError: it cannot be opened or made.
    """
    try:
        return open_made_lock(path)
    except FileNotFoundError:
        os.close(os.open(path, _HOW | os.O_CREAT, 0o600))
        return open_made_lock(path)


def open_made_lock(path: Path) -> int:
    """Open a lock file that is there, as ``open_lock`` does.

    Raises:
        OSError: it is missing, or cannot be opened.
    """
    file = os.open(path, _HOW)
    with contextlib.suppress(OSError):  # a file system without owners or modes, or another user's file
        _close_to_strangers(file, path.parent)
    return file


def _close_to_strangers(file: int, folder: Path) -> None:
    """Leave a lock to its owner and, where the folder is its group's to write, to that group."""
    there, around = os.fstat(file), folder.stat()
    shared = bool(around.st_mode & stat.S_IWGRP)
    # Who can open a file can lock it, whatever he may do with what is in it.
    mode = 0o660 if shared else 0o600
    if stat.S_IMODE(there.st_mode) != mode:
        os.fchmod(file, mode)
    if os.geteuid() == 0 and there.st_uid != around.st_uid:
        os.fchown(file, around.st_uid, around.st_gid)  # what root makes stays usable for the service's user
    elif shared and there.st_gid != around.st_gid:
        os.fchown(file, -1, around.st_gid)  # not the maker's own group, which a new file has


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Hold a folder for the block, without a file in it; others that hold it so wait."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no such folder, or no locks, and nobody else gets one either
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def try_lock(file: int, path: Path, how: int = fcntl.LOCK_EX) -> bool:
    """Lock a file unless another process has.

    Returns:
        False where another process has it.

    Raises:
        StoreError: its file system has no locks.
    """
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"{path}: its file system has no file locks (flock: {error.strerror}), as some network file"
            " systems; name a file on a local disk with --database (of the daemon: a directory with --state,"
            " or [service] state of daemon.toml)"
        ) from error
    return True


# --- Turns of processes that measure on GPUs of one host, where load on one disturbs the joules of another.
#
# Two locks of files. Who wants a turn holds the first, ``next``, while it waits for the second, ``board``: so
# a process that has just ended its turn does not take the next one before those that wait. The kernel
# releases both when a process dies.

_POLL_S = 0.02


class BoardTurns(AbstractContextManager["BoardTurns"]):
    """Turns on the GPUs of this host. A context manager.

    Args:
        folder: of the files, which all that take turns have in common; that of the database.
        wait: waits some seconds; may raise to end the waiting.

    Raises:
        StoreError: the files cannot be opened or locked.
    """

    def __init__(self, folder: Path, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait
        self._stack = contextlib.ExitStack()
        self._paths = (folder / "board-next.lock", folder / "board.lock")
        try:
            make_folder(folder)
            self._next, self._board = (self._open(path) for path in self._paths)
        except OSError as error:
            self._stack.close()
            raise StoreError(f"{folder}: GPUs cannot take turns: {error.strerror}") from error

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """A turn for the block.

        Args:
            alone: nothing may run on another GPU meanwhile; else others that need not be alone may.
        """
        self._lock(self._next, self._paths[0], fcntl.LOCK_EX)
        try:
            self._lock(self._board, self._paths[1], fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._board, fcntl.LOCK_UN)

    def _open(self, path: Path) -> int:
        file = open_lock(path)
        self._stack.callback(os.close, file)
        return file

    def _lock(self, file: int, path: Path, how: int) -> None:
        while not try_lock(file, path, how):
            self._wait(_POLL_S)


# --- Ownership of a run, a clock or a GPU by a process.

GPU_LOCK_WAIT_S = 5.0
"""The owner of an earlier attempt may be dying."""

_PROC = Path("/proc")
_START_FIELD = 19  # "starttime" is field 22 of proc_pid_stat(5); the name, field 2, ends with the last ")"
_LOCK_POLL_S = 0.05
_IDENTITY_BYTES = 256  # of an identity at most
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")
_DEAD = ("Z", "X", "x")  # states, field 3: it has let go of all it held, and waits for its parent to notice


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None when there is no such process any more."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")  # its name may be any bytes
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in _DEAD else fields[_START_FIELD - 1]


def boot_id() -> str:
    """The kernel's id of this boot; a container may show another one. Empty where there is none."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def this_process() -> str:
    """An identity no other process has, before or after a reboot: ``boot:pid:start``."""
    return identity_of(os.getpid())


def identity_of(pid: int) -> str:
    """The identity of the process that has a number now."""
    return f"{boot_id()}:{pid}:{_start_time(pid) or ''}"


def is_alive(owner: str) -> bool:
    """True while the process of an identity runs; False for a text that is none."""
    boot, _, rest = owner.partition(":")
    pid, _, start = rest.partition(":")
    return boot == boot_id() and pid.isdecimal() and _start_time(int(pid)) == start


def pid_of(owner: str) -> int | None:
    """The process number of an identity."""
    pid = owner.split(":")[1] if owner.count(":") == 2 else ""  # noqa: PLR2004 - boot:pid:start
    return int(pid) if pid.isdecimal() else None


def gpu_lock_file(folder: Path, uuid: str) -> Path:
    """The file whose lock is the ownership of a GPU; it is never removed."""
    return folder / f"gpu-{_UNFIT.sub('-', uuid)}.lock"


@contextlib.contextmanager
def owned_gpu(
    folder: Path,
    uuid: str,
    *,
    wait_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Own a GPU in the block: one job per GPU. The kernel unlocks the file when its owner dies.

    Args:
        folder: of the database.
        uuid: of the GPU.
        wait_s: longest wait in seconds for an owner that may be about to leave; None for the usual.
        sleep: waits.

    Raises:
        DeviceUnavailableError: another process owns it.
        StoreError: the file cannot be opened.
    """
    path = gpu_lock_file(folder, uuid)
    try:
        file = open_lock(path)
    except OSError as error:
        raise StoreError(f"{path}: the GPU cannot be taken: {error.strerror}") from error
    try:
        _lock_gpu(file, path, GPU_LOCK_WAIT_S if wait_s is None else wait_s, sleep)
        yield
    finally:
        os.close(file)


def _lock_gpu(file: int, path: Path, wait_s: float, sleep: Callable[[float], None]) -> None:
    deadline_s = time.monotonic() + wait_s
    while not try_lock(file, path):
        if time.monotonic() >= deadline_s:
            owner = pid_of(os.pread(file, _IDENTITY_BYTES, 0).decode(errors="replace"))
            raise DeviceUnavailableError(f"process {owner or 'unknown'} tunes this GPU; {path} says so")
        sleep(_LOCK_POLL_S)
    with contextlib.suppress(OSError):  # the owner's name only helps people; the lock decides
        os.ftruncate(file, 0)
        os.pwrite(file, this_process().encode(), 0)


# --- Whether the machine was rebooted since something was written.
#
# The boot id alone does not tell: a container may show one of its own, on the same kernel.

_INITIAL = {"pid": 0xEFFFFFFC, "time": 0xEFFFFFFA}
"""Inode numbers of the namespaces that the kernel starts with (include/linux/proc_ns.h)."""


@dataclass(frozen=True)
class BootRecord:
    """When and where something was written, by clock and kernel.

    Attributes:
        boot_id: as the writer saw it.
        on_host: the writer was in the pid and time namespaces of the machine itself, in no container.
        since_boot_s: time since the boot, suspends included.
        at_s: wall clock, seconds since 1970 (UTC).
    """

    boot_id: str
    on_host: bool
    since_boot_s: float
    at_s: float

    @classmethod
    def present(cls) -> "BootRecord":
        """Of this process, now."""
        on_host = all(_namespace(name) in (inode, None) for name, inode in _INITIAL.items())
        return cls(boot_id(), on_host, time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def was_rebooted(since: BootRecord, now: BootRecord | None = None) -> bool | None:
    """Return True if the machine was rebooted.

    Args:
        since: then.
        now: the present; read here if None.

    Returns:
        None where it cannot be told: the boot ids differ, and one of the two was seen in a container, or
        neither clock shows a boot in between.
    """
    now = now or BootRecord.present()
    if since.boot_id and since.boot_id == now.boot_id:
        return False
    if not (since.on_host and now.on_host):
        return None
    runs_for_less = now.since_boot_s < since.since_boot_s
    booted_later = now.at_s - now.since_boot_s > since.at_s
    return True if runs_for_less or booted_later else None


def _namespace(name: str) -> int | None:
    """Inode number of a namespace of this process; None where the kernel has none of that kind."""
    try:
        return Path("/proc/self/ns", name).stat().st_ino
    except FileNotFoundError:  # time: before Linux 5.6
        return None
    except OSError:
        return 0


# --- Folders that go when their process has ended.

_OWNER = "owner"  # a file of the folder: who made it


@contextmanager
def owned_folder(prefix: str) -> Iterator[str]:
    """A new temporary folder, removed at the end.

    Before, folders of this name are removed that processes of this user left on this host since it booted,
    and that have ended.

    Args:
        prefix: what the names of all such folders begin with.
    """
    for earlier in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if _was_left(earlier):
            shutil.rmtree(earlier, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        Path(folder, _OWNER).write_text(this_process(), encoding="utf-8")
        yield folder


def _was_left(folder: Path) -> bool:
    """True for a folder of this user whose process ran under this boot, and has ended."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            with (folder / _OWNER).open("rb") as file:
                owner = file.read(_IDENTITY_BYTES).decode()
            return bool(boot_id()) and owner.startswith(f"{boot_id()}:") and not is_alive(owner)
    return False


# --- The state directory of a daemon.

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_PID_BYTES = 32


class StateLock:
    """Holds the state directory.

    Args:
        directory: made if it is not there.

    Raises:
        InputError: another daemon has it, it cannot be made, or its file system has no locks.
        StoreFullError: there is no room for it on the disk.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "daemon.lock"
        self._file = -1
        try:
            make_folder(directory)
            self._file = open_lock(self._path)
        except OSError as error:
            if error.errno in _NO_ROOM:
                why = "no state can be kept there: no room is left on the disk"
                raise StoreFullError(f"{directory}: {why}") from error
            why = f"cannot keep state there: {error.strerror}; name another"
            raise InputError(f"{directory}: {why}") from error
        try:
            self._take()
        except TunerError:
            self.close()
            raise
        self._place = _place(os.fstat(self._file))
        with contextlib.suppress(OSError):  # the number only helps people; a disk may be full
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> None:
        try:
            locked = try_lock(self._file, self.directory)
        except StoreError as error:
            raise InputError(str(error)) from error
        if not locked:
            owner = os.read(self._file, _PID_BYTES).decode("ascii", "replace").strip()
            raise InputError(
                f"{self.directory}: another daemon works there (process {owner or 'unknown'});"
                " stop it, or name another directory with --state"
            )

    def trouble(self) -> str:
        """Return the problem with the locked directory; empty if there is none. It takes microseconds."""
        if self._file < 0:
            return ""
        gone = self._gone()
        if not gone and not os.access(self.directory, os.W_OK):
            return f"{self.directory} cannot be written any more; nothing can be stored"
        return gone

    def check(self) -> None:
        """See that the directory is the one that was taken.

        Raises:
            StoreError: it is not.
        """
        gone = self._gone()
        if gone:
            raise StoreError(gone)

    @property
    def replaced(self) -> bool:
        """True where another directory is there, or what was in it is gone, and it can be written."""
        return bool(self._gone()) and self.directory.is_dir() and os.access(self.directory, os.W_OK)

    @property
    def hidden(self) -> bool:
        """True where the directory is there, or another one, and only a new process can write to it.

        A sandbox lets a process into a directory by mounting it; once that was moved away, what comes in its
        place is as read-only as all around it.
        """
        with contextlib.suppress(OSError):
            by_name, by_file = os.statvfs(self.directory), os.statvfs(self._file)
            return bool(by_name.f_flag & os.ST_RDONLY and not by_file.f_flag & os.ST_RDONLY)
        return False

    def _gone(self) -> str:
        if self._file < 0:
            return ""
        try:
            there = _place(self._path.lstat()) == self._place
        except OSError:
            there = False
        if there:
            return ""
        happened = "was emptied or replaced" if self.directory.is_dir() else "was removed"
        return f"{self.directory} {happened} while the daemon ran; nothing can be stored"

    def close(self) -> None:
        """Release the directory."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextmanager
def without_daemon(directory: Path) -> Iterator[None]:
    """Keep a daemon from a state directory for the block; one that is started meanwhile waits.

    Raises:
        InputError: one works there, or its lock cannot be had.
    """
    path = directory / "daemon.lock"
    try:
        file = open_made_lock(path)
    except FileNotFoundError:  # none ever worked there
        yield
        return
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        if not try_lock(file, directory):
            owner = os.read(file, _PID_BYTES).decode("ascii", "replace").strip()
            raise InputError(
                f"{directory}: a daemon works there (process {owner or 'unknown'}); `sudo tuner stop"
                " --until-told` stops that of a service, and `sudo tuner start` starts it again"
            )
        yield
    finally:
        os.close(file)


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# --- Small files that are there whole or not at all, and results that nobody else may change.

_MODE = 0o600
_RESULT_MODE = 0o644


def open_result(path: Path, how: str, buffering: int = -1) -> IO[Any]:
    """Open a file that is a result: read by whom the user's umask lets, and changed by nobody else.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, how, buffering, opener=_opened)


def _opened(name: str, flags: int) -> int:
    return os.open(name, flags, _RESULT_MODE)


def replace_file(path: Path, text: str) -> None:
    """Write a small file for this user alone, and put it in the place of an earlier one.

    Raises:
        OSError: it cannot be written; the earlier one stays.
    """
    with replacing_file(path, text):
        pass


@contextmanager
def replacing_file(path: Path, text: str) -> Iterator[None]:
    """Write a small file beside an earlier one, and put it in its place when the block has ended well.

    It keeps owner and mode of the earlier one; else it is for this user alone. What root writes belongs to
    the owner of the folder, so that a service's user can read it.

    Raises:
        OSError: it cannot be written; the earlier one stays.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*"):  # by one who was killed
        if not Path("/proc", left.suffix[1:]).exists():
            left.unlink(missing_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        like = path.stat() if path.is_file() and not path.is_symlink() else None
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        with os.fdopen(file, "w", encoding="utf-8") as writing:
            owner = like or path.parent.stat()
            if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()) and (like or os.geteuid() == 0):
                os.fchown(file, owner.st_uid, owner.st_gid)
            if like is not None:
                os.fchmod(file, stat.S_IMODE(like.st_mode))
            writing.write(text)
            writing.flush()
            os.fsync(writing.fileno())
        yield
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def signature(path: Path | None) -> tuple[int, ...]:
    """Return values that change when a file does; empty if there is no file."""
    try:
        status = None if path is None else path.stat()
    except OSError:
        status = None
    if status is None:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
