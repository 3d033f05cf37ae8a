"""Processes that need not import anything: forked from one that has imported it for all tests.

A daemon or an attempt at a job imports for a second, and most tests are about what it does then. This file,
run as a program, imports, and forks twice for each order. The new process is an orphan, and comes to the
process of the tests, its subreaper: it is waited for and killed like any child.
"""

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_ORDER_BYTES = 2**20
_PID_BYTES = 16
_MOST_DESCRIPTORS = 8
_OUT_OF_THE_WAY = 512  # above the numbers of descriptors of the processes here

IMPORTS = (
    *("tuner.cli.daemon", "tuner.daemon.start"),  # of a daemon
    *("tuner.search.fork_server", "tuner.policies.bayesian", "scipy.special"),  # of an attempt
    *(
        "tuner.cli.run",
        "tuner.cli.history",
        "tuner.pool.opening",
        "tuner.studies.sweep_jobs",
    ),  # of a command
    *("tuner.report.run_report", "tuner.report.progress", "tuner.devices.simulated"),
    *("tuner.power.sensors.simulated", "tuner.power.energy.meter", "pynvml"),
    "tuner.power.clocks.clockd",  # of the helper that sets clocks
    *("tuner.policies.analytical", "tuner.policies.auto", "tuner.policies.steering"),
)
"""What has been imported: one process for all takes less than one for each kind."""


class PreparedProcess(subprocess.Popen[str]):
    """What ``python -c CODE WORDS`` would be, its imports done.

    Args:
        code: Python.
        words: behind the code.
        descriptors: number in the process -> descriptor here; standard error and output among them.
        environment: of the process.
        session: it leads a session of its own.
        imports: what has been imported; all processes of the same imports come from one.
    """

    def __init__(
        self,
        code: str,
        words: Sequence[str],
        descriptors: Mapping[int, int],
        environment: Mapping[str, str],
        *,
        session: bool = False,
        imports: tuple[str, ...] = IMPORTS,
    ) -> None:
        order = {"code": code, "words": [*words], "environment": dict(environment), "folder": str(Path.cwd())}
        self._order = json.dumps({**order, "numbers": [*descriptors], "session": session})
        self._descriptors = [*descriptors.values()]
        self._imports = imports
        super().__init__(["-c", code, *words], text=True)

    def _execute_child(self, *given: Any) -> None:
        """In place of what forks in ``subprocess``."""
        del given
        orders = _orders(self._imports)
        socket.send_fds(orders, [self._order.encode()], self._descriptors)
        self.pid = int(orders.recv(_PID_BYTES))
        self._child_created = True


@functools.cache
def _orders(imports: tuple[str, ...]) -> socket.socket:
    """Where the process that imports for all waits for orders; it ends with this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, __file__, str(theirs.fileno()), *imports]
        waits = subprocess.Popen(words, pass_fds=[theirs.fileno()])
    atexit.register(waits.wait)
    atexit.register(ours.close)
    return ours


def _await_order(orders: socket.socket) -> dict[str, Any]:
    """Returns in every process that was ordered, with the order; the one that waits goes on to wait."""
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, _MOST_DESCRIPTORS)
        if not order:
            sys.exit()
        told, tells = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if not pid:
                break
            os.write(tells, str(pid).encode())
            os._exit(0)
        os.waitpid(between, 0)  # its child is an orphan now
        orders.send(os.read(told, _PID_BYTES))
        for descriptor in (told, tells, *descriptors):
            os.close(descriptor)
    orders.detach()
    found = dict(json.loads(order))
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _OUT_OF_THE_WAY) for descriptor in descriptors]
    os.closerange(3, _OUT_OF_THE_WAY)
    for descriptor, number in zip(moved, found["numbers"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if found["session"]:
        os.setsid()
    _open_standard_streams()
    return found


def _open_standard_streams() -> None:
    """Standard output and error anew: those of the process that waited may have been files, or closed."""
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - descriptors
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


if __name__ == "__main__":
    from kept_kernels import keep_shipped_kernels

    from tuner.kernel_files.catalog import ReadFolder
    from tuner.kernel_files.source_folder import kernels_root, own_build

    sys.path[0] = ""  # as of -c
    gc.disable()
    keep_shipped_kernels()
    for name in sys.argv[2:]:
        importlib.import_module(name)
    ReadFolder.read(kernels_root())
    own_build()
    gc.collect()
    gc.freeze()
    gc.enable()
    found = _await_order(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(found["folder"])
    os.environ.clear()
    os.environ.update(found["environment"])
    sys.argv = ["-c", *found["words"]]
    exec(found["code"], {"__name__": "__main__"})  # noqa: S102 - of a test
