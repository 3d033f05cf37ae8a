"""Who owns something that outlives a process: a run in the database, a clock in a journal."""

import os
from pathlib import Path

_PROC = Path("/proc")
_START_FIELD = 19  # "starttime" is field 22 of proc_pid_stat(5); the name, field 2, ends with the last ")"
_DEAD = ("Z", "X", "x")  # states, field 3: it has let go of all it held, and waits for its parent to notice


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None when there is no such process any more."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")  # its name may be any bytes
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in _DEAD else fields[_START_FIELD - 1]


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def this_process() -> str:
    """An identity no other process has, before or after a reboot: ``boot:pid:start``."""
    pid = os.getpid()
    return f"{_boot_id()}:{pid}:{_start_time(pid) or ''}"


def is_alive(owner: str) -> bool:
    """True while the process of an identity runs; False for a text that is none."""
    boot, _, rest = owner.partition(":")
    pid, _, start = rest.partition(":")
    return boot == _boot_id() and pid.isdecimal() and _start_time(int(pid)) == start


def is_of_this_boot(owner: str) -> bool:
    """True when the process of an identity was started since the machine was."""
    return owner.partition(":")[0] == _boot_id()


def pid_of(owner: str) -> int | None:
    """The process number of an identity."""
    pid = owner.split(":")[1] if owner.count(":") == 2 else ""  # noqa: PLR2004 - boot:pid:start
    return int(pid) if pid.isdecimal() else None
