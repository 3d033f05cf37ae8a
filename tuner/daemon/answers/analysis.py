"""Works out analytical answers of workloads that were never tuned, one at a time, in a child process.

No GPU is opened where its model is known: the limits of ``tuner.devices.gpu_models`` and the compiler are
enough. Another GPU is opened only while ``may_open`` allows it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tuner.database.answers import analytical_key
from tuner.devices.gpu_models import stand_in
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildCrashedError, TunerError, UnknownNameError
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import WorkloadName
from tuner.model.run_document import AnalyticalDocument
from tuner.system.processes import Child
from tuner.system.threads import is_shortage

MOST_QUEUED = 32
"""Workloads that wait; more are not taken, and may be asked for again: a client may ask for any size."""

MOST_FAILED = 1024
"""Workloads that are remembered as failed."""

TIMEOUT_S = 1800.0
"""For one workload; what was compiled by then is in the cache, so that the next try gets further."""

AGAIN_S = 3600.0
"""So long a workload that failed is not tried again."""

BUSY_S = 60.0
"""So long a workload waits whose GPU may not be opened."""

_LOG = logging.getLogger(__name__)

Remember = Callable[[str, AnalyticalDocument], Awaitable[None]]


@dataclass(frozen=True)
class _Task:
    key: str
    workload: str
    device: str  # that the child opens
    opens: bool  # a GPU, in the place of which nothing stands
    kernel_file: Path
    source: str


class Analyst:
    """Works out analytical answers.

    Every method belongs to the event loop.

    Args:
        catalog: the kernels, as they are now.
        remember: is told key and document of every answer.
        may_open: whether a device may be opened now, where its model is not known.
        timeout_s: for one workload.
        again_s: how long one that failed is not tried again.
        server: ``module:callable`` of the child.
        monotonic: seconds.

    Attributes:
        quiet: set while everything that was asked for has been worked out, or has failed.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        remember: Remember,
        *,
        may_open: Callable[[str], bool] = lambda _device: False,
        timeout_s: float = TIMEOUT_S,
        again_s: float = AGAIN_S,
        server: str = "tuner.search.explaining:Explainer",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._remember = remember
        self._may_open = may_open
        self._timeout_s = timeout_s
        self._again_s = again_s
        self._server = server
        self._monotonic = monotonic
        self._tasks: dict[str, _Task] = {}
        self._working: _Task | None = None
        self._not_before: dict[str, float] = {}
        self._news = asyncio.Event()
        self.quiet = asyncio.Event()
        self._child: Child | None = None
        self._closed = False
        self._told_to_leave = False

    def ask(self, workload: str, device: DeviceIdentity) -> None:
        """Have a workload worked out, if it is not already on its way, and did not fail just now.

        Args:
            workload: name without a batch: that of the kernel file counts.
            device: whose answer.
        """
        try:
            kernel = self._catalog().kernel(WorkloadName.parse(workload).kernel)
        except UnknownNameError:  # gone since it was asked for
            return
        key = analytical_key(workload, device, kernel.fingerprint)
        if key in self._tasks or (self._working is not None and key == self._working.key):
            return
        if self._not_before.get(key, 0.0) > self._monotonic() or len(self._tasks) >= MOST_QUEUED:
            return
        stands_in = stand_in(device)
        if stands_in is None and not self._may_open(device.spec):
            self._rest(key, BUSY_S)
            return
        self._tasks[key] = _Task(
            key, workload, stands_in or device.spec, stands_in is None, kernel.path, kernel.fingerprint
        )
        self._news.set()
        self.quiet.clear()

    def leave(self, device: str) -> None:
        """A job wants a GPU: a child that has opened it ends now; what it compiled stays on the disk."""
        working = self._working
        if working is not None and working.opens and working.device == device:
            self._told_to_leave = True
            child = self._child
            if child is not None:  # in a thread: who holds a GPU may take seconds to die
                asyncio.get_running_loop().run_in_executor(None, child.close, 0.0)

    @property
    def waiting(self) -> int:
        """Workloads that are worked out, or will be."""
        return len(self._tasks) + (self._working is not None)

    async def run(self) -> None:
        """Work out what is asked for, until this is cancelled."""
        try:
            while True:
                while not self._tasks:
                    self._news.clear()
                    self.quiet.set()
                    await self._news.wait()
                self._working = self._tasks.pop(next(iter(self._tasks)))
                try:
                    await self._one(self._working)
                except Exception:  # noqa: BLE001 - whatever one workload does, the next is worked out
                    _LOG.exception("%s: no analytical answer", self._working.workload)
                    self._rest(self._working.key, self._again_s)
                finally:
                    self._working = None
        finally:
            self.close()

    def close(self) -> None:
        """Kill the child, if one works; may be called again."""
        self._closed = True
        child = self._child
        if child is not None:
            child.close(grace_s=0.0)

    async def _one(self, task: _Task) -> None:
        begun_s = self._monotonic()
        self._told_to_leave = False
        if task.opens and not self._may_open(task.device):
            self._rest(task.key, BUSY_S)
            return
        try:
            document = await asyncio.to_thread(self._work, task)
            if document["source"] == task.source:  # else the files changed since it was asked for
                await self._remember(task.key, document)
        except TunerError as error:
            if self._told_to_leave:
                self._rest(task.key, BUSY_S)
                return
            _LOG.warning("%s: no analytical answer: %s", task.workload, error)
            short = error.__cause__ is not None and is_shortage(error.__cause__)
            self._rest(task.key, BUSY_S if short else self._again_s)
            return
        _LOG.info("%s: analytical answer after %.1f s", task.workload, self._monotonic() - begun_s)

    def _work(self, task: _Task) -> AnalyticalDocument:
        """In a thread: one child for one workload, so that nothing of it stays in memory."""
        child = Child(self._server, name=f"analysis of {task.workload}")
        self._child = child
        try:
            if self._closed or self._told_to_leave:
                raise ChildCrashedError("told to end")
            document: AnalyticalDocument = child.call(
                "explain", task.workload, task.device, task.kernel_file, timeout_s=self._timeout_s
            )
            return document
        finally:
            self._child = None
            child.close()

    def _rest(self, key: str, seconds: float) -> None:
        self._not_before.pop(key, None)
        self._not_before[key] = self._monotonic() + seconds
        while len(self._not_before) > MOST_FAILED:
            del self._not_before[next(iter(self._not_before))]
