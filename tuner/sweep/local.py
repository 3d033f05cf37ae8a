"""Jobs of a sweep on this machine, without a daemon: lanes in processes of their own."""

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.database.connection import default_path
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildError, TunerError
from tuner.studies.sweep_local import LocalDevices
from tuner.sweep.jobs import SweepJob
from tuner.sweep.lane import BUSY, INTERRUPTED
from tuner.sweep.results import JobResult
from tuner.sweep.running import JobStarted
from tuner.sweep.waiting_jobs import PlacedJob, WaitingJobs
from tuner.system.processes import Child

_LANE = "tuner.sweep.lane:Lane"
_JOB_S = 366 * 86400.0  # a search ends by itself; its own options limit it
_GRACE_S = 30.0  # for a job to stop: what it measured is stored and its clocks are restored by then


@dataclass(frozen=True)
class _LaneEnd:
    """A lane has nothing to do any more."""


def lanes_for(jobs: Sequence[SweepJob], database: Path | None, kernel_files: Sequence[Path]) -> "LocalLanes":
    """A lane for each GPU of this machine that jobs may run on; one where they run on none.

    Args:
        jobs: of the sweep.
        database: see ``LocalLanes``, as for the others.
        kernel_files: beside the catalogue.
    """
    devices = LocalDevices()
    count = len(devices.gpus_for(jobs))
    lanes = LocalLanes(max(1, count), database, kernel_files, devices)
    if count > 1:
        lanes.where += ", one for each GPU"
    return lanes


class LocalLanes:
    """Runs jobs of a sweep in lanes of this machine. At most one job at a time is on a GPU.

    A job that names no device takes a GPU that is free; one that has begun stays with its GPU.

    Args:
        count: of lanes.
        database: where runs are stored; None for the user's own.
        kernel_files: beside the catalogue.
        devices: of this machine; None to ask which there are.
    """

    def __init__(
        self,
        count: int,
        database: Path | None,
        kernel_files: Sequence[Path] = (),
        devices: LocalDevices | None = None,
    ) -> None:
        self._count = count
        self.where = f"local, {count} lane{'s' if count > 1 else ''}"
        self._database = database
        self._kernel_files = kernel_files
        self._devices = devices or LocalDevices()

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """See ``Backend.known``."""
        path = self._database or default_path()
        return self._devices.known(jobs, Catalog.load(self._kernel_files), path)

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """See ``Backend.run``.

        Raises:
            StoreError: runs cannot be stored; no job has begun.
        """
        Store(self._database).close()  # where that fails, every job would
        waiting = WaitingJobs(jobs, self._devices.of)
        happening: queue.SimpleQueue[JobStarted | JobResult | _LaneEnd] = queue.SimpleQueue()
        lanes = [
            _LaneThread(waiting, happening, self._begun_on, self._kernel_files, self._database)
            for _ in range(min(self._count, len(jobs)))
        ]
        for lane in lanes:
            lane.start()
        left = len(lanes)
        try:
            while left:
                event = happening.get()
                if isinstance(event, _LaneEnd):
                    left -= 1
                else:
                    yield event
        finally:
            waiting.close()
            for lane in lanes:
                lane.stop()
            for lane in lanes:
                lane.join()

    def _begun_on(self, job: SweepJob) -> str:
        """See ``LocalDevices.begun_on``; a database that cannot be read is told by the job when it runs."""
        try:
            return self._devices.begun_on(job, self._database or default_path())
        except TunerError:
            return ""


class _LaneThread(threading.Thread):
    """One lane: a process that runs jobs, started anew where a job has killed it."""

    def __init__(
        self,
        waiting: WaitingJobs,
        happening: "queue.SimpleQueue[JobStarted | JobResult | _LaneEnd]",
        begun_on: Callable[[SweepJob], str],
        kernel_files: Sequence[Path],
        database: Path | None,
    ) -> None:
        super().__init__(daemon=True)
        self._waiting = waiting
        self._happening = happening
        self._begun_on = begun_on
        self._arguments = (tuple(kernel_files), database)
        self._child: Child | None = None
        self._stopped = False

    def run(self) -> None:
        """Take jobs until none is left."""
        try:
            while not self._stopped and (placed := self._waiting.take()) is not None:
                begun_on = self._begun_on(placed.job)
                if begun_on not in ("", placed.device) and self._waiting.move(placed, begun_on):
                    continue
                self._happening.put(JobStarted(placed.job))
                begun_s = time.monotonic()
                self._conclude(placed, self._found(placed), begun_s)
        finally:
            if self._child is not None:
                self._child.close()
            self._happening.put(_LaneEnd())

    def _conclude(self, placed: PlacedJob, found: Mapping[str, Any], begun_s: float) -> None:
        """Tell what became of a job, or have it wait again; one that was stopped is left."""
        if found["end"] == BUSY and not self._stopped:
            self._waiting.put_back(placed)
            return
        could_begin = found["end"] != "failed" or found.get("run") is not None
        if not could_begin and not self._stopped and self._waiting.try_elsewhere(placed):
            return
        self._waiting.release(placed)
        if found["end"] != INTERRUPTED and not self._stopped:
            seconds = time.monotonic() - begun_s
            self._happening.put(JobResult(placed.job, seconds=seconds, device=placed.device, **found))

    def stop(self) -> None:
        """Have the job that runs end in order; one that does not is killed."""
        self._stopped = True
        child = self._child
        if child is not None and self.is_alive() and child.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
            timer = threading.Timer(_GRACE_S, child.kill)
            timer.daemon = True
            timer.start()

    def _found(self, placed: PlacedJob) -> Mapping[str, Any]:
        """Run a job in the process of the lane, see ``Lane.run``."""
        method = "run_again" if self._waiting.was_put_back(placed.job) else "run"
        try:
            if self._child is None or not self._child.alive:
                self._child = Child(_LANE, *self._arguments, name="a lane of the sweep")
            found: Mapping[str, Any] = self._child.call(method, placed.to_run, timeout_s=_JOB_S)
        except ChildError as error:
            return {"end": "failed", "reason": str(error)}
        return found
