"""What can go wrong around a daemon, each as a block in which it is wrong."""

import contextlib
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from functools import partial

from daemon_fault import LONGEST_S, Fault, FaultReport, filled, last
from daemon_gpu import KERNEL_FAULTS, forgive, next_kernel
from daemon_hardships import HARDSHIPS
from daemon_scene import PATIENCE_S, Scene
from fake_nvml_state import NO_PERMISSION

APPEARS_S = 10.0  # within which a role that is to be killed appears, if it does
LONG_LOCK_S = 7.0  # longer than anybody waits for a locked database
_PAGE_BYTES = 4096
_DAYS_S = 40 * 86_400.0


@contextlib.contextmanager
def _killed_daemon(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """Killed; what is left of it is killed too, as systemd does, or left alone, as in a container's shell."""
    scene.stop(signal.SIGKILL)
    if rng.random() < 0.5:
        scene.sweep()
    yield FaultReport(fatal=True)


@contextlib.contextmanager
def _killed(role: str, scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """One of the daemon's processes is killed soon after it appears."""
    found: list[int] = []

    def appears() -> bool:
        found[:] = [one.pid for one in scene.processes(role) if one.state != "Z"]
        return bool(found)

    hit = scene.until(appears, APPEARS_S)
    if hit:
        time.sleep(rng.uniform(0.0, 0.3))  # the instant is the point
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
    yield FaultReport(hit)


@contextlib.contextmanager
def _killed_all(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """Everything at once, as by the kernel when memory is short, or by a power cut."""
    del rng
    for one in scene.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    scene.stop(signal.SIGKILL)
    yield FaultReport(fatal=True)


@contextlib.contextmanager
def _disk_full(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """No room for a while."""
    with filled(scene):
        yield last(rng)


@contextlib.contextmanager
def _locked(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """Another process writes, and does not end."""
    with contextlib.closing(
        sqlite3.connect(scene.database, timeout=PATIENCE_S, isolation_level=None)
    ) as other:
        try:
            other.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            yield FaultReport(hit=False)
            return
        time.sleep(LONG_LOCK_S if rng.random() < 0.1 else rng.uniform(0.0, LONGEST_S))
        yield FaultReport()
        other.execute("ROLLBACK")


@contextlib.contextmanager
def _damaged(how: str, scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """The file is written by who should not."""
    size = scene.database.stat().st_size
    with scene.database.open("r+b") as file:
        if how == "emptied":
            file.truncate(0)
        elif how == "truncated":
            file.truncate(rng.randrange(size))
        else:
            file.seek(0 if rng.random() < 0.5 else rng.randrange(0, size, _PAGE_BYTES))
            file.write(rng.randbytes(_PAGE_BYTES))
    yield FaultReport()


@contextlib.contextmanager
def _socket_removed(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """Somebody cleans up where the socket is."""
    del rng
    scene.socket.unlink(missing_ok=True)
    yield FaultReport()


@contextlib.contextmanager
def _clock_refused(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """The driver does not set clocks for a while; half the time it does not give them back either."""
    scene.nvml.set = NO_PERMISSION
    if rng.random() < 0.5:
        scene.nvml.reset_failures_left = rng.randrange(1, 4)
    try:
        yield last(rng)
    finally:
        scene.nvml.set = 0
        scene.nvml.reset_failures_left = 0


@contextlib.contextmanager
def _gpu_lost(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """The GPU falls off the bus, and comes back."""
    scene.nvml.lost_from = scene.nvml.calls + rng.randrange(1, 200)
    try:
        yield last(rng)
    finally:
        scene.nvml.lost_from = 0


@contextlib.contextmanager
def _bad_kernel(fault: str, scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """A kernel hangs, takes its process down, or computes what is wrong."""
    del rng
    next_kernel(scene.folder, fault)
    taken = scene.until(lambda: not (scene.folder / "kernel-fault").exists(), APPEARS_S)
    forgive(scene.folder)
    yield FaultReport(hit=taken)


@contextlib.contextmanager
def _time_jump(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """Somebody sets the system's time, forwards or backwards."""
    there_s = rng.uniform(-_DAYS_S, _DAYS_S)
    scene.clocks.jump(there_s - scene.clocks.system_s)
    yield last(rng)


FAULTS: dict[str, Fault] = {
    "kill-daemon": _killed_daemon,
    "kill-runner": partial(_killed, "runner"),
    "kill-worker": partial(_killed, "worker"),
    "kill-guardian": partial(_killed, "guardian"),
    "kill-all": _killed_all,
    "disk-full": _disk_full,
    "database-locked": _locked,
    "database-truncated": partial(_damaged, "truncated"),
    "database-emptied": partial(_damaged, "emptied"),
    "database-garbage": partial(_damaged, "garbage"),
    "socket-removed": _socket_removed,
    "clock-refused": _clock_refused,
    "gpu-lost": _gpu_lost,
    **{f"kernel-{fault}": partial(_bad_kernel, fault) for fault in KERNEL_FAULTS},
    "time-jump": _time_jump,
    **HARDSHIPS,
}
"""Each begins to be wrong before the block, has been so for a while in it, and is right again after it."""

OF_THE_PLAYED_GPU = (
    *("kill-worker", "kill-guardian", "clock-refused", "gpu-lost"),
    *(f"kernel-{fault}" for fault in KERNEL_FAULTS),
)
"""Faults that meet only a search on the played GPU."""


def plan(count: int, seed: int, kinds: tuple[str, ...] = ()) -> list[str]:
    """Random order of faults in which every kind comes up before one comes up again."""
    rng = random.Random(seed)  # noqa: S311 - no secrets
    chosen = list(kinds or FAULTS)
    planned: list[str] = []
    while len(planned) < count:
        rng.shuffle(chosen)
        planned += chosen
    return planned[:count]
