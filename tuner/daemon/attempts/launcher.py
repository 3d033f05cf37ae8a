"""The launcher: a process that has imported the search, and forks a process for each attempt.

Importing takes a second and more, which is long beside a job of seconds. The launcher has one thread, opens
no GPU and measures nothing. It ends when its daemon does, and after some time without work.
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

from tuner.daemon.attempts import attempt
from tuner.kernel_files.catalog import ReadFolder
from tuner.kernel_files.source_folder import kernels_root
from tuner.model import registry
from tuner.system.processes import die_with_parent

ORDER = b"fork"
"""The message that comes with the descriptors of a process: spec, lines, lifeline, status."""

_DESCRIPTORS = 4
_IDLE_S = 60.0  # without an attempt and without an order
_CHOSEN = ("policy", "explain", "clocks", "power-limits", "readings")
_IMPORTED_LATER = ("scipy.special", "scipy.linalg", "scipy.optimize", "pynvml")  # by a search on its way


def main(orders: int, lifeline: int) -> NoReturn:
    """Import, and fork what is ordered until the daemon closes its end, or nothing is asked for.

    Args:
        orders: descriptor of a socket, from which orders come.
        lifeline: descriptor of a pipe whose other end only the daemon holds.
    """
    die_with_parent(lifeline)
    gc.disable()  # all that is imported stays
    _import_all()
    known = ReadFolder.read(kernels_root())
    gc.collect()
    gc.freeze()  # so that collections in the forks do not copy what they share
    gc.enable()
    _Launcher(socket.socket(fileno=orders), known).serve()
    os._exit(0)


def _import_all() -> None:
    """Import what attempts use; nothing of it opens a GPU. An attempt says what is missing."""
    choices = [(kind, name) for kind in _CHOSEN for name in registry.names(kind)]
    imports: list[Callable[[], object]] = [partial(registry.load, *choice) for choice in choices]
    imports += [partial(importlib.import_module, name) for name in _IMPORTED_LATER]
    for one in imports:
        with contextlib.suppress(ImportError):
            one()


class _Launcher:
    """Forks processes, and reports their ends.

    Args:
        orders: where orders come from.
        known: the shipped kernels.
    """

    def __init__(self, orders: socket.socket, known: ReadFolder) -> None:
        self._orders = orders
        self._known = known
        self._running: dict[int, int] = {}  # process -> descriptor that its end is reported to
        self._woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Return when the daemon has gone, or nothing was asked for in a while."""
        watch = select.poll()
        watch.register(self._orders, select.POLLIN)
        watch.register(self._woken, select.POLLIN)
        used_s = time.monotonic()
        while self._running or time.monotonic() - used_s < _IDLE_S:
            ready = {descriptor for descriptor, _ in watch.poll(1000.0 * _IDLE_S)}
            if self._woken in ready:
                self._reap()
                used_s = time.monotonic()
            if self._orders.fileno() in ready:
                used_s = time.monotonic()
                if not self._fork():
                    return

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                descriptor = self._running.pop(ended[0], None)
                if descriptor is not None:
                    _report(descriptor, f"ended {os.waitstatus_to_exitcode(ended[1])}")
                    os.close(descriptor)

    def _fork(self) -> bool:
        """Fork for an order; False where the daemon has gone."""
        order, descriptors, _, _ = socket.recv_fds(self._orders, len(ORDER), _DESCRIPTORS)
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
                self._become_attempt(*theirs)
            self._running[pid] = status
            _report(status, f"begun {pid}")
        for descriptor in theirs:
            os.close(descriptor)
        return True

    def _become_attempt(self, spec: int, lines: int, lifeline: int) -> NoReturn:
        """In the new process: leave all that is the launcher's, and make the attempt."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(spec, 0)
            _close_all_but({0, 1, 2, lines, lifeline})
            attempt.main(lines, lifeline, (self._known,))
        except BaseException:  # noqa: BLE001 - nothing of this process may go on as the launcher
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)


def _report(descriptor: int, line: str) -> None:
    with contextlib.suppress(OSError):  # the daemon does not listen any more
        os.write(descriptor, f"{line}\n".encode(errors="replace"))


def _close_all_but(kept: set[int]) -> None:
    for name in [one.name for one in Path("/proc/self/fd").iterdir()]:
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
