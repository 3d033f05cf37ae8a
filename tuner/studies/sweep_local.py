"""Jobs of a sweep on this machine, without a daemon: lanes in processes of their own."""

import contextlib
import os
import queue
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.database.connection import default_path, holds_something
from tuner.database.runs import RESUMABLE, Store
from tuner.devices.choice import AUTO, list_gpus, why_nothing_stands_in
from tuner.devices.cuda.probe import driver_problem
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildError, RunBusyError, RunInterrupted, TunerError
from tuner.model.jobs import DeviceChoice, DeviceIdentity, wrong_choice
from tuner.model.records import Conditions, RunStatus
from tuner.search.session import TrialEvent
from tuner.search.tuning import run_request
from tuner.studies.sweep import (
    JobResult,
    JobStarted,
    PlacedJob,
    RefusedJobsError,
    WaitingJobs,
    answer_of,
    answers_under,
    check_options,
    known_results,
    of_kind,
    request_of,
    told_conditions,
)
from tuner.studies.sweep_file import SweepJob
from tuner.system.processes import Child
from tuner.system.signals import raised_as_interrupts

_LOOKED_AT = 64  # newest runs of a job's workloads, for one that it goes on with
_NO_GPU = ("sim:", "replay:")  # devices that take any number of jobs at once


class LocalDevices:
    """Which devices of this machine a job may run on: the one it names, those of a kind, or any GPU.

    Args:
        listed: tells who the GPUs are; asked once, where a job names none.
    """

    def __init__(self, listed: Callable[[], Sequence[DeviceIdentity]] = list_gpus) -> None:
        self._listed = listed
        self._conditions: dict[str, list[Conditions]] = {}  # by the keys of jobs that name no device

    @property
    def gpus(self) -> Sequence[DeviceIdentity]:
        """The GPUs, by index; none where no driver answers."""
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[Sequence[DeviceIdentity], str]:
        """The GPUs, and why there are none."""
        try:
            gpus = self._listed()
        except TunerError as error:
            return (), str(error)
        return gpus, "" if gpus else driver_problem() or "CUDA shows none"

    def check(self, jobs: Sequence[SweepJob]) -> None:
        """Refuse jobs that name a GPU or a kind which is not here.

        Raises:
            RefusedJobsError: says which there are.
        """
        refused = dict.fromkeys((job.place, why) for job in jobs if (why := self._misfit(job)))
        if refused:
            raise RefusedJobsError(list(refused))

    def check_all(self, jobs: Sequence[SweepJob], catalog: Catalog) -> None:
        """Refuse jobs as ``known`` does, as far as that can be told without opening a GPU.

        Raises:
            RefusedJobsError: devices or options that cannot be, or what a simulated or recorded device says.
        """
        self.check(jobs)
        check_options(jobs)
        refused = told_conditions([job for job in jobs if job.device.startswith(_NO_GPU)], catalog).refused
        if refused:
            raise RefusedJobsError(refused)

    def of(self, job: SweepJob) -> tuple[str, ...]:
        """The devices that a job may run on; where none is to choose from, what opening it says why."""
        choice = _choice(job)
        if choice.one:
            return (job.device,)
        found = tuple(gpu.spec for gpu in self.gpus if choice.allows(gpu))
        return found or (str(choice),)

    def gpus_for(self, jobs: Iterable[SweepJob]) -> tuple[str, ...]:
        """The GPUs that jobs may run on; none of jobs whose devices are simulated or recorded."""
        by_device = {job.device: job for job in jobs if not job.device.startswith(_NO_GPU)}
        return tuple(dict.fromkeys(gpu for job in by_device.values() for gpu in self.of(job)))

    def known(self, jobs: Sequence[SweepJob], catalog: Catalog, database: Path) -> Mapping[str, JobResult]:
        """Results of jobs that a finished run has answered, by their keys.

        A run on another GPU of a kind that is here answers a job that names no device.

        Raises:
            RefusedJobsError: workloads, devices or options that cannot be.
        """
        told = self._told(jobs, catalog)
        named = [(job, bound) for job, bound in told if _choice(job).one]
        free = [(job, bound) for job, bound in told if not _choice(job).one]
        self._conditions = defaultdict(list)
        for job, bound in free:
            self._conditions[job.key].append(bound)
        if not holds_something(database):
            return {}
        with Store(database) as store:
            found = answers_under(named, store) | answers_under(free, store, same_kind=True)
        return {key: replace(one, device=self._where(one)) for key, one in found.items()}

    def begun_on(self, job: SweepJob, database: Path) -> str:
        """The GPU here on which a job that may run on several has begun; empty where it has not."""
        conditions = self._conditions.get(job.key, ())
        if len(self.of(job)) < 2 or not conditions or not holds_something(database):  # noqa: PLR2004 - several
            return ""
        kinds = {of_kind(bound.record()) for bound in conditions}
        here = {(gpu.spec, gpu.uuid) for gpu in self.gpus}
        with Store(database) as store:
            for run in store.page(_LOOKED_AT, names=conditions[0].names):
                device = run.conditions["device"]
                own = run.origin is None and (device["spec"], device["uuid"]) in here
                if own and run.status in RESUMABLE and of_kind(run.conditions) in kinds:
                    return str(device["spec"])
        return ""

    def _told(self, jobs: Sequence[SweepJob], catalog: Catalog) -> list[tuple[SweepJob, Conditions]]:
        """Return the conditions of the jobs' answers, on a GPU of each kind that they may run on."""
        self.check(jobs)
        asked: dict[str, SweepJob] = {}
        meant: dict[str, list[SweepJob]] = defaultdict(list)
        for job in jobs:
            for device in self._one_of_each_kind(job):
                one = replace(job, device=device)
                asked.setdefault(one.key, one)
                meant[one.key].append(job)
        told = told_conditions(asked.values(), catalog)
        if told.refused:
            raise RefusedJobsError(told.refused)
        return [(job, bound) for one, bound in told.conditions for job in meant[one.key]]

    def _one_of_each_kind(self, job: SweepJob) -> list[str]:
        """Devices for a job, the first of each kind; GPUs of a machine have one driver."""
        names = {gpu.spec: gpu.name for gpu in self.gpus} if not _choice(job).one else {}
        first: dict[str, str] = {}
        for device in self.of(job):
            first.setdefault(names.get(device, device), device)
        return list(first.values())

    def _misfit(self, job: SweepJob) -> str:
        """Return the reason why a choice of devices matches none here; empty if it matches any."""
        wrong, choice = wrong_choice(job.device), _choice(job)
        if wrong or job.device.startswith(_NO_GPU):
            return wrong
        if choice.model:
            known = any(choice.allows(gpu) for gpu in self.gpus)
            return "" if known else self._none_of(choice.words, [f"kind:{gpu.name}" for gpu in self.gpus])
        if choice.device.startswith("cuda"):
            here = [gpu.spec for gpu in self.gpus]
            return "" if _indexed(choice.device) in here else self._none_of(choice.device, here)
        return "" if choice.one or self.gpus else why_nothing_stands_in(self._found[1])

    def _none_of(self, wanted: str, here: Sequence[str]) -> str:
        """That a device is not here, and what is."""
        if here:
            return f"no {wanted} is here; choose from {', '.join(dict.fromkeys(here))}"
        return f"no {wanted} is here: {self._found[1]}; for modelled numbers name a device such as sim:h200"

    def _where(self, result: JobResult) -> str:
        """The device of a stored answer: by its name here, or the model of a GPU that is not here."""
        if _choice(result.job).one:
            return result.job.device
        measured = (result.answer or {}).get("device") or {"uuid": "", "name": ""}
        here = {gpu.uuid: gpu.spec for gpu in self.gpus}
        return here.get(measured["uuid"]) or str(measured["name"])


def _choice(job: SweepJob) -> DeviceChoice:
    return DeviceChoice() if job.device == AUTO else DeviceChoice.parse(job.device)


def _indexed(device: str) -> str:
    """A GPU with its number: ``cuda`` is the first."""
    return "cuda:0" if device == "cuda" else device


INTERRUPTED = "interrupted"
"""The end of a job that was told to stop; what it measured is stored."""

BUSY = "busy"
"""The end of a job whose run another process is measuring."""


class Lane:
    """Runs jobs of a sweep; the server of a child process.

    Args:
        kernel_files: beside the catalogue.
        database: where runs are stored; None for the user's own.

    Attributes:
        catalog: where kernels are.
    """

    def __init__(self, kernel_files: Sequence[Path], database: Path | None) -> None:
        self.catalog = Catalog.load(kernel_files)
        self._kernel_files = kernel_files
        self._database = database

    def run_again(self, job: SweepJob) -> Mapping[str, Any]:
        """Take the answer of another process that measured the run of a job; without one, run it.

        Returns:
            As ``run``; ``end`` is ``known`` where there was an answer.
        """
        with Store(self._database or default_path()) as store:
            known = known_results([job], store, self.catalog).get(job.key)
        return (
            self.run(job) if known is None else {"end": known.end, "run": known.run, "answer": known.answer}
        )

    def run(self, job: SweepJob, database: Path | None = None) -> Mapping[str, Any]:
        """Run a job, or go on with its unfinished run.

        Args:
            job: of a sweep.
            database: in the place of the lane's; None for that.

        Returns:
            ``end``: ``finished``, ``failed``, ``busy`` or ``interrupted``, with ``reason``, ``run`` and
            ``answer``.
        """
        try:
            with raised_as_interrupts([signal.SIGTERM]):  # clocks are restored, ended trials stored
                outcome = run_request(
                    request_of(job, self._kernel_files),
                    self.catalog,
                    _Silent(),
                    device=job.device or None,
                    database=database or self._database,
                    resume=True,
                    insisted=False,
                )
        except (KeyboardInterrupt, RunInterrupted):
            return {"end": INTERRUPTED}
        except RunBusyError as error:
            return {"end": BUSY, "reason": str(error)}
        except TunerError as error:
            return {"end": "failed", "reason": str(error)}
        if outcome.status is RunStatus.INTERRUPTED:
            return {"end": INTERRUPTED}
        found = {"run": outcome.run, "answer": answer_of(outcome.document)}
        why = outcome.no_answer
        return {"end": "failed", "reason": why, **found} if why else {"end": "finished", **found}


class _Silent:
    """Hears how a run comes on, and says nothing: many run at once."""

    def compiled(self, done: int, total: int) -> None:
        """Configurations are compiled."""

    def warming(self, watts: float, seconds: float) -> None:
        """A window of the warm-up has ended."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended."""

    def told(self, sentence: str) -> None:
        """The policy says something."""


_LANE = "tuner.studies.sweep_local:Lane"
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
