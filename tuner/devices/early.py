"""The worker of a GPU, started while the command that will want it is still imported and read."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tuner.model.errors import ChildError
from tuner.system.processes import Child

CUDA = re.compile(r"cuda(?::([0-9]{1,4}))?")  # a C int wraps: cuda:4294967296 would be cuda:0
TARGET = "tuner.devices.cuda.opening:opened"
DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvhost-gpu")
"""One is there where a driver may answer; the last on Jetsons."""

_started: dict[tuple[object, ...], Child] = {}
_ended: list[Child] = []  # killed; the driver may hold them for a while, for which nobody waits


@contextmanager
def worker_ahead(spec: str | None) -> Iterator[None]:
    """Start the worker of the GPU that a run takes; it is killed on the way out if nobody has taken it.

    What goes wrong is told when the GPU is opened.

    Args:
        spec: device of the run; None for the choice, which falls on the first GPU where a driver answers.
    """
    match = CUDA.fullmatch(spec or "cuda")
    if match is None or not any(map(os.path.exists, DRIVER_NODES)):
        yield
        return
    index = int(match[1] or 0)
    with suppress(ChildError):  # then none can be started when the GPU is opened, either
        _started[TARGET, index] = Child(TARGET, index, name=f"worker of cuda:{index}")
    try:
        yield
    finally:
        if (child := taken(TARGET, index)) is not None:
            child.kill()
            _ended.append(child)


def taken(*server: object) -> Child | None:
    """The child that was started for a server and its arguments, once; None where there is none."""
    return _started.pop(server, None)
