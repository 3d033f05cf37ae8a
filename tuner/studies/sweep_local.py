"""Jobs of a sweep on this machine, without a daemon: each in a process of its own, at most one on a GPU."""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tuner.database.connection import default_path, holds_something
from tuner.database.runs import RESUMABLE, Store
from tuner.devices.choice import AUTO, list_gpus, why_nothing_stands_in
from tuner.devices.cuda.probe import driver_problem
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildError, TunerError
from tuner.model.jobs import DeviceChoice, DeviceIdentity, wrong_choice
from tuner.model.records import Conditions
from tuner.search.job_launcher import AttemptProcess, BlockingLauncher
from tuner.search.job_messages import AttemptResult
from tuner.studies.sweep import (
    AGAIN_S,
    JobResult,
    JobStarted,
    PlacedJob,
    WaitingJobs,
    answers_under,
    attempt_at,
    check_options,
    conditions_of,
    of_kind,
    refuse,
    result_of,
)
from tuner.studies.sweep_file import SweepJob

_LOOKED_AT = 64  # newest runs of a job's workloads, for one that it goes on with
_NO_GPU = ("sim:", "replay:")  # devices that take any number of jobs at once


class LocalDevices:
    """Which devices of this machine a job may run on: the one it names, those of a kind, or any GPU.

    Args:
        listed: tells who the GPUs are; asked once, where a job names none.
    """

    def __init__(self, listed: Callable[[], Sequence[DeviceIdentity]] = list_gpus) -> None:
        self._listed = listed
        self._conditions: dict[str, list[Conditions]] = {}  # of each kind of device, by the keys of jobs

    @property
    def gpus(self) -> Sequence[DeviceIdentity]:
        """The GPUs, by index; none where no driver answers."""
        return self._listing[0]

    @cached_property
    def _listing(self) -> tuple[Sequence[DeviceIdentity], str]:
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
        refuse((job, self._misfit(job)) for job in jobs)

    def check_all(self, jobs: Sequence[SweepJob], catalog: Catalog) -> None:
        """Refuse jobs as ``known`` does, as far as that can be told without opening a GPU.

        Raises:
            RefusedJobsError: devices or options that cannot be, or what a simulated or recorded device says.
        """
        self.check(jobs)
        check_options(jobs)
        refuse(conditions_of([job for job in jobs if job.device.startswith(_NO_GPU)], catalog).refused)

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
        self._conditions = defaultdict(list)
        for job, conditions in self._conditions_of(jobs, catalog):
            self._conditions[job.key].append(conditions)
        return self.answered(jobs, database)

    def answered(self, jobs: Sequence[SweepJob], database: Path) -> Mapping[str, JobResult]:
        """Results that are there by now of jobs whose conditions were told before, see ``known``."""
        if not holds_something(database):
            return {}
        bound = [(job, conditions) for job in jobs for conditions in self._conditions.get(job.key, ())]
        named = [pair for pair in bound if _choice(pair[0]).one]
        free = [pair for pair in bound if not _choice(pair[0]).one]
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

    def _conditions_of(self, jobs: Sequence[SweepJob], catalog: Catalog) -> list[tuple[SweepJob, Conditions]]:
        """Return the conditions of the jobs' answers, on a GPU of each kind that they may run on."""
        self.check(jobs)
        placed: dict[str, SweepJob] = {}
        meant: dict[str, list[SweepJob]] = defaultdict(list)
        for job in jobs:
            for device in self._one_of_each_kind(job):
                on_device = replace(job, device=device)
                placed.setdefault(on_device.key, on_device)
                meant[on_device.key].append(job)
        bound = conditions_of(placed.values(), catalog)
        refuse(bound.refused)
        return [(job, conditions) for one, conditions in bound.conditions for job in meant[one.key]]

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
            if any(map(choice.allows, self.gpus)):
                return ""
            return self._none_of(choice.words, [f"kind:{gpu.name}" for gpu in self.gpus])
        if choice.device.startswith("cuda"):
            here = [gpu.spec for gpu in self.gpus]
            indexed = "cuda:0" if choice.device == "cuda" else choice.device
            return "" if indexed in here else self._none_of(choice.device, here)
        return "" if choice.one or self.gpus else why_nothing_stands_in(self._listing[1])

    def _none_of(self, wanted: str, here: Sequence[str]) -> str:
        """That a device is not here, and what is."""
        if here:
            return f"no {wanted} is here; choose from {', '.join(dict.fromkeys(here))}"
        return f"no {wanted} is here: {self._listing[1]}; for modelled numbers name a device such as sim:h200"

    def _where(self, result: JobResult) -> str:
        """The device of a stored answer: by its name here, or the model of a GPU that is not here."""
        if _choice(result.job).one:
            return result.job.device
        measured = (result.answer or {}).get("device") or {"uuid": "", "name": ""}
        here = {gpu.uuid: gpu.spec for gpu in self.gpus}
        return here.get(measured["uuid"]) or str(measured["name"])


def _choice(job: SweepJob) -> DeviceChoice:
    return DeviceChoice() if job.device == AUTO else DeviceChoice.parse(job.device)


_GRACE_S = 30.0  # for a job to stop: what it measured is stored and its clocks are restored by then


def lanes_for(jobs: Sequence[SweepJob], database: Path | None, kernel_files: Sequence[Path]) -> "LocalLanes":
    """A lane for each GPU of this machine that jobs may run on; one where they run on none."""
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
        again_s: see ``WaitingJobs``.
    """

    def __init__(
        self,
        count: int,
        database: Path | None,
        kernel_files: Sequence[Path] = (),
        devices: LocalDevices | None = None,
        again_s: float = AGAIN_S,
    ) -> None:
        self._count = count
        self.where = f"local, {count} lane{'s' if count > 1 else ''}"
        self._database = database
        self._kernel_files = kernel_files
        self._devices = devices or LocalDevices()
        self._again_s = again_s

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """See ``Backend.known``."""
        return self._devices.known(jobs, Catalog.load(self._kernel_files), self._database or default_path())

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """See ``Backend.run``.

        Raises:
            StoreError: runs cannot be stored; no job has begun.
        """
        with Store(self._database) as store:  # where that fails, every job would
            database = store.path
        waiting = WaitingJobs(jobs, self._devices.of, self._again_s)
        happening: queue.SimpleQueue[JobStarted | JobResult | None] = queue.SimpleQueue()
        launcher = BlockingLauncher()
        lanes = [
            _Lane(
                waiting,
                happening,
                launcher,
                self._devices,
                database=database,
                kernel_files=self._kernel_files,
            )
            for _ in range(min(self._count, len(jobs)))
        ]
        for lane in lanes:
            lane.start()
        left = len(lanes)
        try:
            while left:
                event = happening.get()
                if event is None:  # a lane has no more to do
                    left -= 1
                else:
                    yield event
        finally:
            waiting.close()
            for lane in lanes:
                lane.stop()
            for lane in lanes:
                lane.join()
            launcher.close()


class _Lane(threading.Thread):
    """Runs one job after the other, each in a process of its own."""

    def __init__(
        self,
        waiting: WaitingJobs,
        happening: "queue.SimpleQueue[JobStarted | JobResult | None]",
        launcher: BlockingLauncher,
        devices: LocalDevices,
        *,
        database: Path,
        kernel_files: Sequence[Path],
    ) -> None:
        super().__init__(daemon=True)
        self._waiting = waiting
        self._happening = happening
        self._launcher = launcher
        self._devices = devices
        self._database = database
        self._kernel_files = kernel_files
        self._process: AttemptProcess | None = None
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
                result = self._answered(placed) or self._result(placed)
                if result is not None and not self._stopped:
                    seconds = time.monotonic() - begun_s
                    self._happening.put(replace(result, seconds=seconds, device=placed.device))
        finally:
            self._happening.put(None)

    def stop(self) -> None:
        """Have the job that runs end in order; one that does not is killed."""
        self._stopped = True
        if self._process is not None:
            self._launcher.stop(self._process, _GRACE_S)

    def _begun_on(self, job: SweepJob) -> str:
        """See ``LocalDevices.begun_on``; a database that cannot be read is told by the job when it runs."""
        try:
            return self._devices.begun_on(job, self._database)
        except TunerError:
            return ""

    def _answered(self, placed: PlacedJob) -> JobResult | None:
        """The answer of another process that measured the run of a job; None where there is none."""
        if not self._waiting.was_put_back(placed.job):
            return None
        try:
            result = self._devices.answered([placed.job], self._database).get(placed.job.key)
        except TunerError:  # the job itself says why
            return None
        if result is not None:
            self._waiting.release(placed)
        return result

    def _result(self, placed: PlacedJob) -> JobResult | None:
        """Run a job, or go on with its unfinished run; None where it waits again, or was stopped."""
        spec = attempt_at(placed.job, placed.device, self._database, self._kernel_files)
        try:
            self._process = self._launcher.start(spec)
            if self._stopped:  # meanwhile
                self.stop()
            ended = self._launcher.result(self._process)
        except ChildError as error:
            ended = AttemptResult("unavailable", str(error))
        if ended.status == "busy" and not self._stopped:  # another process is measuring its run
            self._waiting.put_back(placed)
            return None
        failed = not ended.whole and ended.status != "interrupted"
        if failed and not self._stopped and self._waiting.try_elsewhere(placed):
            return None
        self._waiting.release(placed)
        if ended.status == "interrupted":
            return None
        try:
            with Store(self._database) as store:
                return result_of(placed.job, ended, store)
        except TunerError as error:
            return JobResult(placed.job, "failed", f"its answer cannot be read: {error}", ended.run)
