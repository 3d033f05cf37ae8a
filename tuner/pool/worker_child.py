"""A child process of a pool worker, for work that is a whole and not a trial. Runs in the worker.

What may hang or crash ends with the child, and the worker lives on. Each call has a folder of its own; a call
that writes nothing there for long is taken to hang.
"""

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.kernel_files.package_build import PackageBuild, own_build
from tuner.model.errors import ChildCrashedError, ChildTimeoutError, PoolError
from tuner.pool.worker import check_driver, release_setup
from tuner.system.processes import Child

_CALL_S = 366 * 86400.0  # silence ends a call
_LOOK_S = 30.0
_GRACE_S = 30.0  # for a call to end in order: clocks are restored by then
_IDLE_S = 300.0  # without a call, until the child ends: the driver may be gone


@dataclass(frozen=True)
class ChildOrder:
    """Which child a call needs.

    Attributes:
        run: what the work is part of; it can be stopped as a whole.
        server: ``module:callable`` that builds the server in the child.
        args: of the callable.
        silence_s: a call that writes nothing into its folder for so long is killed.
        build: of the driver.
    """

    run: str
    server: str
    args: tuple[object, ...] = ()
    silence_s: float = 3600.0
    build: PackageBuild = field(default_factory=own_build)


class _HeldChild:
    """The child of this process, kept from call to call of the same order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._order: ChildOrder | None = None
        self._busy = False
        self._stopped = ""
        self._timer: threading.Timer | None = None

    def call(self, order: ChildOrder, method: str, args: tuple[object, ...]) -> Any:  # noqa: ANN401 - the server's
        """Call a method of the server; its last argument is the folder."""
        with (
            self._lock,
            tempfile.TemporaryDirectory(prefix="job-", dir=_scratch(), ignore_cleanup_errors=True) as name,
        ):
            folder = Path(name)
            child = self._child_of(order)
            self._busy = True
            try:
                if self._stopped == order.run:
                    raise PoolError("the run was stopped")
                with _watched(child, folder, order.silence_s):
                    return child.call(method, *args, folder, timeout_s=_CALL_S)
            finally:
                self._busy = False
                self._watch_idle()

    def stop(self, run: str) -> None:
        """Have the call of a run end in order, and its idle child at once; does not wait."""
        self._stopped = run
        child, order = self._child, self._order
        if child is None or order is None or order.run != run:
            return
        if not self._busy:
            threading.Thread(target=self._end_idle, daemon=True).start()
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
        _later(_GRACE_S, child.kill)

    def _child_of(self, order: ChildOrder) -> Child:
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None and (self._order != order or not self._child.alive):
            self._child.close()
            self._child = None
        if self._child is None:
            self._child = Child(order.server, *order.args, name="a job of the pool")
        self._order = order
        return self._child

    def _watch_idle(self) -> None:
        self._timer = _later(_IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        if self._lock.acquire(blocking=False):  # else a call has come
            try:
                if self._child is not None:
                    self._child.close()
            finally:
                self._lock.release()


@contextlib.contextmanager
def _watched(child: Child, folder: Path, silence_s: float) -> Iterator[None]:
    """Kill a child that writes nothing into a folder for some time.

    Raises:
        ChildTimeoutError: it was killed.
    """
    ended, killed = threading.Event(), threading.Event()
    begun_s = time.time()  # as the times of files

    def watch() -> None:
        while not ended.wait(min(_LOOK_S, silence_s / 4)):
            if time.time() - max(begun_s, _last_written_s(folder)) > silence_s:
                killed.set()
                child.kill()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except ChildCrashedError as error:
        if killed.is_set():
            raise ChildTimeoutError(f"it stored nothing for {silence_s:g} s; killed") from error
        raise
    finally:
        ended.set()


def _last_written_s(folder: Path) -> float:
    """When the newest file of a folder was written, in seconds since 1970; 0 where there is none."""
    newest = 0.0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # gone since
            newest = max(newest, path.stat().st_mtime)
    return newest


def _scratch() -> str | None:
    """Where this worker keeps files, which go when the pool ends; None outside of a worker."""
    from distributed import get_worker  # noqa: PLC0415 - only where a pool is used

    try:
        return str(get_worker().local_directory)
    except ValueError:
        return None


def _later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


_HELD = _HeldChild()  # a worker process is there to hold it


def call_child(order: ChildOrder, living: Collection[str], method: str, *args: object) -> Any:  # noqa: ANN401
    """Call a method of a server in the child of this process; behind its arguments it gets a folder.

    Args:
        order: which child.
        living: the runs that the scheduler knows; none of them may have this worker's setup open.
        method: of the server.
        args: of the method, picklable.

    Raises:
        PoolError: a run has the worker, this one was stopped, or the driver has another package.
        ChildError: the child crashed, or was killed as it hung.
        TunerError: what the method raised.
    """
    check_driver(vars(order).get("build"))
    release_setup(living)
    return _HELD.call(order, method, args)


def stop_child(run: str) -> None:
    """End what this process does for a run in its child, in order; does not wait for it."""
    _HELD.stop(run)
