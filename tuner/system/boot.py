"""Whether the machine was rebooted since something was written.

The boot id alone does not tell: a container may show one of its own, on the same kernel.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from tuner.system.owner import boot_id

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
        return cls(boot_id(), _is_on_host(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def was_rebooted(since: BootRecord, now: BootRecord | None = None) -> bool | None:
    """Whether the machine was rebooted.

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


def _is_on_host() -> bool:
    return all(_namespace(name) in (inode, None) for name, inode in _INITIAL.items())


def _namespace(name: str) -> int | None:
    """Inode number of a namespace of this process; None where the kernel has none of that kind."""
    try:
        return Path("/proc/self/ns", name).stat().st_ino
    except FileNotFoundError:  # time: before Linux 5.6
        return None
    except OSError:
        return 0
