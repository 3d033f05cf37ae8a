"""Ownership of a run, a clock or a GPU by a process."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.model.errors import DeviceUnavailableError, StoreError
from tuner.system.lock_files import open_lock, try_lock

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
