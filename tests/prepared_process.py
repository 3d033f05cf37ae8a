"""Processes of daemons that need not import anything: forked from one that has imported it for all tests.

A daemon imports for a second, and most tests are about what it does then. This file, run as a program,
imports, and forks twice for each order. The new process is an orphan, and comes to the process of the
tests, its subreaper: it is waited for and killed like any child.
"""

import atexit
import ctypes
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
from typing import IO, Any

_PR_SET_CHILD_SUBREAPER = 36
_ORDER_BYTES = 2**20
_PID_BYTES = 16


class PreparedProcess(subprocess.Popen[str]):
    """What ``python -c CODE WORDS`` would be, the imports of a daemon done.

    Args:
        code: Python.
        words: behind the code.
        stderr: where its standard error goes; standard output is that of the tests.
        environment: of the process.
    """

    def __init__(
        self, code: str, words: Sequence[str], stderr: IO[str], environment: Mapping[str, str]
    ) -> None:
        order = {"code": code, "words": [*words], "environment": dict(environment), "folder": str(Path.cwd())}
        self._order = json.dumps(order)
        self._log = stderr
        super().__init__(["-c", code, *words], stderr=stderr, text=True)

    def _execute_child(self, *given: Any) -> None:
        """In place of what forks in ``subprocess``."""
        del given
        orders = _orders()
        socket.send_fds(orders, [self._order.encode()], [1, self._log.fileno()])
        self.pid = int(orders.recv(_PID_BYTES))
        self._child_created = True


@functools.cache
def _orders() -> socket.socket:
    """Where the process that imports for all waits for orders; it ends with this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        waits = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    atexit.register(waits.wait)
    atexit.register(ours.close)
    return ours


def _await_order(orders: socket.socket) -> dict[str, Any]:
    """Returns in every process that was ordered, with the order; the one that waits goes on to wait."""
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 2)
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
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
    os.closerange(3, max(orders.detach(), tells, *descriptors) + 1)
    return dict(json.loads(order))


if __name__ == "__main__":
    from tuner.config.catalog import Catalog, kernels_root

    sys.path[0] = ""  # as of -c
    for name in ("tuner.cli.daemon", "tuner.daemon.process.start"):
        importlib.import_module(name)
    Catalog.load(search_path=[kernels_root()])
    gc.collect()
    gc.freeze()
    found = _await_order(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(found["folder"])
    os.environ.clear()
    os.environ.update(found["environment"])
    sys.argv = ["-c", *found["words"]]
    exec(found["code"], {"__name__": "__main__"})  # noqa: S102 - of a test
