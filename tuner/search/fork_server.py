"""The fork server: a process that has imported the search, and forks a process for each job.

Importing takes a second and more, which is long beside a job of seconds. The fork server has one thread,
opens no GPU and measures nothing. It ends with the process that started it (``tuner.search.job_launcher``),
and after some time without work.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

from tuner.kernel_files.catalog import ReadFolder
from tuner.kernel_files.source_folder import kernels_root, own_build
from tuner.model import registry
from tuner.search import job_process
from tuner.search.job_messages import FORK
from tuner.system.processes import die_with_parent

_DESCRIPTORS = 4
_IDLE_S = 60.0  # without a job and without an order
_CHOSEN = ("policy", "front", "readings")
_IMPORTED_LATER = (  # by a search on its way
    *("scipy.special", "scipy.linalg", "scipy.optimize", "pynvml"),
    *("tuner.policies.steering", "tuner.power.energy.meter", "tuner.power.response.calibrations"),
)


def main(orders: int, lifeline: int) -> NoReturn:
    """Import, and fork what is ordered until the starting process closes its end, or orders nothing.

    Args:
        orders: descriptor of a socket, from which orders come.
        lifeline: descriptor of a pipe whose other end only the starting process holds.
    """
    die_with_parent(lifeline)
    gc.disable()  # all that is imported stays
    choices = [(kind, name) for kind in _CHOSEN for name in registry.names(kind)]
    imports: list[Callable[[], object]] = [partial(registry.load, *choice) for choice in choices]
    imports += [partial(importlib.import_module, name) for name in _IMPORTED_LATER]
    for load in imports:  # nothing of it opens a GPU
        with contextlib.suppress(ImportError):  # a job says what is missing
            load()
    shipped = ReadFolder.read(kernels_root())
    own_build()  # which every run states
    gc.collect()
    gc.freeze()  # so that collections in the forks do not copy what they share
    gc.enable()
    _ForkServer(socket.socket(fileno=orders), shipped).serve()
    os._exit(0)


class _ForkServer:
    """Forks processes, and reports their ends."""

    def __init__(self, orders: socket.socket, shipped: ReadFolder) -> None:
        self._orders = orders
        self._shipped = shipped
        self._running: dict[int, int] = {}  # process -> descriptor that its end is reported to
        self._wakes, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Return when the starting process has gone, or has ordered nothing in a while."""
        watch = select.poll()
        watch.register(self._orders, select.POLLIN)
        watch.register(self._wakes, select.POLLIN)
        used_s = time.monotonic()
        while self._running or time.monotonic() - used_s < _IDLE_S:
            ready = {descriptor for descriptor, _ in watch.poll(1000.0 * _IDLE_S)}
            if self._wakes in ready:
                self._reap()
                used_s = time.monotonic()
            if self._orders.fileno() in ready:
                used_s = time.monotonic()
                if not self._fork():
                    return

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wakes, 4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = self._running.pop(ended[0], None)
                if status is not None:
                    _report(status, f"ended {os.waitstatus_to_exitcode(ended[1])}")
                    os.close(status)

    def _fork(self) -> bool:
        """Fork for an order; False where the starting process has gone."""
        order, descriptors, _, _ = socket.recv_fds(self._orders, len(FORK), _DESCRIPTORS)
        if not order or len(descriptors) < _DESCRIPTORS:
            return False
        *theirs, status = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            _report(status, f"error {error}")
            os.close(status)
        else:
            if not pid:
                self._become_job(*theirs)
            self._running[pid] = status
            _report(status, f"begun {pid}")
        for descriptor in theirs:
            os.close(descriptor)
        return True

    def _become_job(self, spec: int, lines: int, lifeline: int) -> NoReturn:
        """In the new process: leave all that is the fork server's, and do the job."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(spec, 0)
            for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
                if int(name) not in {0, 1, 2, lines, lifeline}:
                    with contextlib.suppress(OSError):
                        os.close(int(name))
            job_process.main(lines, lifeline, (self._shipped,))
        except BaseException:  # noqa: BLE001 - nothing of this process may go on as the fork server
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)


def _report(status: int, line: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(status, f"{line}\n".encode(errors="replace"))
