"""Jobs of a sweep on this machine, without a daemon: lanes in processes of their own."""

import contextlib
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tuner.config.catalog import Catalog
from tuner.database import Store
from tuner.database.connection import default_path, holds_something
from tuner.errors import ChildError
from tuner.options import LIMITS
from tuner.sweep.jobs import SweepJob
from tuner.sweep.known import known_results
from tuner.sweep.lane import BUSY, INTERRUPTED
from tuner.sweep.results import JobResult
from tuner.sweep.running import JobStarted
from tuner.system.process import Child

_LANE = "tuner.sweep.lane:Lane"
_JOB_S = 366 * 86400.0  # a search ends by itself; its own options limit it
_AGAIN_S = 2.0  # until a job is tried again whose run another process is measuring
_LOOKED_AT = 64  # jobs of each device, for one that may run
_GRACE_S = 30.0  # for a job to stop: what it measured is stored and its clocks are restored by then


@dataclass(frozen=True)
class _Left:
    """A lane has nothing to do any more."""


class LocalLanes:
    """Runs jobs of a sweep in lanes of this machine. At most one job at a time is on a GPU.

    Args:
        count: of lanes.
        database: where runs are stored; None for the user's own.
        kernel_files: beside the catalogue.
    """

    def __init__(self, count: int, database: Path | None, kernel_files: Sequence[Path] = ()) -> None:
        self._count = count
        self.where = f"local, {count} lane{'s' if count > 1 else ''}"
        self._database = database
        self._kernel_files = kernel_files

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """See ``Backend.known``."""
        catalog = Catalog.load(self._kernel_files)
        path = self._database or default_path()
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(Store(path)) if holds_something(path) else None
            return known_results(jobs, store, catalog)

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """See ``Backend.run``."""
        waiting = _WaitingJobs(jobs)
        happening: queue.SimpleQueue[JobStarted | JobResult | _Left] = queue.SimpleQueue()
        lanes = [
            _LaneThread(waiting, happening, self._kernel_files, self._database)
            for _ in range(min(self._count, len(jobs)))
        ]
        for lane in lanes:
            lane.start()
        left = len(lanes)
        try:
            while left:
                event = happening.get()
                if isinstance(event, _Left):
                    left -= 1
                else:
                    yield event
        finally:
            waiting.close()
            for lane in lanes:
                lane.stop()
            for lane in lanes:
                lane.join()


class _WaitingJobs:
    """Jobs that wait, and what jobs that run hold; for several threads.

    A job holds its GPU, and its search: jobs that differ in limits alone go on with each other's runs. One
    whose run another process is measuring is put back, and comes after all others.
    """

    def __init__(self, jobs: Sequence[SweepJob]) -> None:
        self._by_device: dict[str, deque[SweepJob]] = {}
        for job in jobs:
            self._by_device.setdefault(job.device, deque()).append(job)
        self._busy: set[str] = set()
        self._put_back: list[tuple[float, SweepJob]] = []  # with the time from which each may be taken
        self._were_put_back: set[str] = set()  # keys
        self._changed = threading.Condition()

    def take(self) -> SweepJob | None:
        """The next job that may run, waited for; None where no job is left."""
        with self._changed:
            while any(self._by_device.values()) or self._put_back:
                job = self._free() or self._due()
                if job is not None:
                    self._busy |= _held(job)
                    return job
                now_s = time.monotonic()
                self._changed.wait(
                    min((at_s - now_s for at_s, _ in self._put_back if at_s > now_s), default=None)
                )
            return None

    def put_back(self, job: SweepJob) -> None:
        """Another process measures the run of a job, which waits for it."""
        with self._changed:
            self._put_back.append((time.monotonic() + _AGAIN_S, job))
            self._were_put_back.add(job.key)
            self._busy -= _held(job)
            self._changed.notify_all()

    def was_put_back(self, job: SweepJob) -> bool:
        """True for a job that has been put back before."""
        return job.key in self._were_put_back

    def release(self, job: SweepJob) -> None:
        """A job has ended."""
        with self._changed:
            self._busy -= _held(job)
            self._changed.notify_all()

    def _free(self) -> SweepJob | None:
        first = (job for jobs in self._by_device.values() for job in islice(jobs, _LOOKED_AT))
        job = next((job for job in first if self._busy.isdisjoint(_held(job))), None)
        if job is not None:
            self._by_device[job.device].remove(job)
        return job

    def _due(self) -> SweepJob | None:
        now_s = time.monotonic()
        due = (one for one in self._put_back if one[0] <= now_s and self._busy.isdisjoint(_held(one[1])))
        found = next(due, None)
        if found is None:
            return None
        self._put_back.remove(found)
        return found[1]

    def close(self) -> None:
        """No job waits any more."""
        with self._changed:
            self._by_device.clear()
            self._put_back.clear()
            self._changed.notify_all()


def _held(job: SweepJob) -> set[str]:
    """What only one job at a time may hold; simulated GPUs and recordings take any number."""
    chosen = {name: value for name, value in job.options.items() if name not in LIMITS}
    search = replace(job, options=chosen).key
    modelled = job.device.startswith(("sim:", "replay:"))
    return {search} if modelled else {search, job.device or "cuda:0"}


class _LaneThread(threading.Thread):
    """One lane: a process that runs jobs, started anew where a job has killed it."""

    def __init__(
        self,
        waiting: _WaitingJobs,
        happening: "queue.SimpleQueue[JobStarted | JobResult | _Left]",
        kernel_files: Sequence[Path],
        database: Path | None,
    ) -> None:
        super().__init__(daemon=True)
        self._waiting = waiting
        self._happening = happening
        self._arguments = (tuple(kernel_files), database)
        self._child: Child | None = None
        self._stopped = False

    def run(self) -> None:
        """Take jobs until none is left."""
        try:
            while not self._stopped and (job := self._waiting.take()) is not None:
                self._happening.put(JobStarted(job))
                begun_s = time.monotonic()
                self._conclude(job, self._found(job), begun_s)
        finally:
            if self._child is not None:
                self._child.close()
            self._happening.put(_Left())

    def _conclude(self, job: SweepJob, found: Mapping[str, Any], begun_s: float) -> None:
        """Tell what became of a job, or put it back; one that was stopped is left."""
        if found["end"] == BUSY and not self._stopped:
            self._waiting.put_back(job)
            return
        self._waiting.release(job)
        if found["end"] != INTERRUPTED and not self._stopped:
            self._happening.put(JobResult(job, seconds=time.monotonic() - begun_s, **found))

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

    def _found(self, job: SweepJob) -> Mapping[str, Any]:
        """Run a job in the process of the lane, see ``Lane.run``."""
        method = "run_again" if self._waiting.was_put_back(job) else "run"
        try:
            if self._child is None or not self._child.alive:
                self._child = Child(_LANE, *self._arguments, name="a lane of the sweep")
            found: Mapping[str, Any] = self._child.call(method, job, timeout_s=_JOB_S)
        except ChildError as error:
            return {"end": "failed", "reason": str(error)}
        return found
