"""What all faults around a daemon are made of."""

import contextlib
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from daemon_scene import Scene

LONGEST_S = 1.0  # that something stays wrong, as a rule
_PAGE_BYTES = 4096
_BALLAST_BYTES = 2**20


@dataclass
class FaultReport:
    """What a fault says of itself.

    Attributes:
        hit: it met what it is aimed at; a worker that was not there cannot be killed.
        fatal: the daemon itself is expected to die of it.
        silent: nobody need be answered while it is wrong.
        wiped: what was stored is gone for good.
    """

    hit: bool = True
    fatal: bool = False
    silent: bool = False
    wiped: bool = False


Fault = Callable[[Scene, random.Random], AbstractContextManager[FaultReport]]


def last(rng: random.Random) -> FaultReport:
    """Let it be wrong for a while."""
    time.sleep(rng.uniform(0.0, LONGEST_S))
    return FaultReport()


@contextlib.contextmanager
def filled(scene: Scene) -> Iterator[None]:
    """No room: the disk is filled, or files may not grow where this user has no disk to fill."""
    with _no_room(scene) if scene.own_disk else _no_growth(scene):
        yield


@contextlib.contextmanager
def _no_room(scene: Scene) -> Iterator[None]:
    ballast = scene.disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (_BALLAST_BYTES, _PAGE_BYTES, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    try:
        yield
    finally:
        ballast.unlink()


@contextlib.contextmanager
def _no_growth(scene: Scene) -> Iterator[None]:
    files = (path.stat().st_size for path in scene.state.rglob("*") if path.is_file())
    largest = max(files, default=0)
    limits = {one.pid: (largest, resource.RLIM_INFINITY) for one in scene.processes()}
    free = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    for pid, limit in limits.items():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
    try:
        yield
    finally:
        for one in scene.processes():  # those that were started meanwhile have it too
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(one.pid, resource.RLIMIT_FSIZE, free)
