"""Jobs of a sweep on the workers of a pool: each a whole run there, taken over when it has ended."""

import contextlib
import logging
import math
import platform
import tempfile
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.database.connection import default_path, holds_something
from tuner.database.merging import merge_file
from tuner.database.runs import Store
from tuner.devices.choice import identify
from tuner.devices.kinds import PREFIX
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import ChildError, InputError, PoolError, PoolLostError, TunerError, WorkerLostError
from tuner.model.jobs import DeviceChoice, DeviceIdentity
from tuner.model.records import Conditions, WorkloadName
from tuner.pool.worker import EndedJob, WorkOrder, ask_child, own_device, run_job, stop_work
from tuner.pool.worker_calls import Workers, open_workers
from tuner.studies.sweep import (
    JobConditions,
    JobResult,
    JobStarted,
    answers_under,
    attempt_at,
    complaint,
    conditions_of,
    refuse,
    request_of,
    result_of,
)
from tuner.studies.sweep_file import SweepJob

# --- What a worker tells a sweep of itself, in a child: devices may hang.

SERVER = "tuner.studies.sweep_pool:LaneQuestions"
"""For ``ask_child``."""

_SIMULATED = "sim:"


def asked_device(device: str) -> str:
    """Return the device that a worker is to open for a job's device; empty for its own GPU."""
    return device if device.startswith(_SIMULATED) else ""


@dataclass(frozen=True)
class LaneFacts:
    """Facts about a worker for a sweep.

    Attributes:
        host: its name.
        missing: kernel files of the sweep that it does not have.
        unusable: why it cannot use others, such as for a file of data that it does not have.
        sources: fingerprints of the sweep's kernels that it has, by their names.
        identities: who the devices are that were asked for.
    """

    host: str
    missing: Sequence[Path]
    sources: Mapping[str, str]
    identities: Mapping[str, DeviceIdentity]
    unusable: Sequence[str] = ()


class LaneQuestions:
    """Answers what a sweep asks of a pool worker; the server of a child process."""

    def __init__(self, kernel_files: Sequence[Path]) -> None:
        self._missing = [path for path in kernel_files if not path.is_file()]
        there = [path for path in kernel_files if path not in self._missing]
        reasons = {path: complaint(partial(load_kernel_file, path)) for path in there}
        self._unusable = [reason for reason in reasons.values() if reason]
        self._catalog = Catalog.load(path for path, reason in reasons.items() if not reason)

    def facts(self, kernels: Collection[str], devices: Collection[str]) -> LaneFacts:
        """Return the facts about this worker.

        Raises:
            TunerError: a device cannot be opened.
        """
        here = {name: self._catalog.kernels[name] for name in kernels if name in self._catalog.kernels}
        return LaneFacts(
            host=platform.node(),
            missing=self._missing,
            sources={name: kernel.fingerprint for name, kernel in here.items()},
            identities={device: identify(own_device(device)) for device in devices},
            unusable=self._unusable,
        )

    def conditions(self, jobs: Sequence[SweepJob]) -> JobConditions:
        """Return the conditions that answers of jobs are bound to here."""
        own = {job.key: replace(job, device=own_device(asked_device(job.device))) for job in jobs}
        told = conditions_of(own.values(), self._catalog)
        bound = {job.key: conditions for job, conditions in told.conditions}
        pairs = [(job, bound[own[job.key].key]) for job in jobs if own[job.key].key in bound]
        return JobConditions(pairs, told.refused)


# --- The workers of a pool as a sweep sees them: which are met, and which of its jobs each may take.

_LOG = logging.getLogger(__name__)
_POLL_S = 0.5


class SweepWorkers:
    """The workers that may run jobs of a sweep: same package, same sources, a device that opens."""

    def __init__(
        self,
        pool: Workers,
        kernel_files: Sequence[Path],
        sources: Mapping[str, str],
        devices: Collection[str],
    ) -> None:
        self._pool = pool
        self._sources = sources
        self._devices = tuple(devices)
        self._run = f"{pool.name}/{uuid.uuid4().hex}"
        self._order = WorkOrder(self._run)
        self._kernel_files = tuple(kernel_files)
        self._asked: dict[str, Future[LaneFacts]] = {}
        self._facts: dict[str, LaneFacts] = {}
        self._told: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    @property
    def present(self) -> Mapping[str, LaneFacts]:
        """Workers that may run jobs, by address."""
        return {address: one for address, one in self._facts.items() if address in self._pool.present}

    def meet(self) -> None:
        """Wait until every worker that is there has told what it is.

        Raises:
            InputError: a worker has another source of a kernel, or has no such kernel or kernel file.
            PoolError: none may run jobs.
            PoolLostError: the scheduler does not answer.
        """
        self.look()
        while self._asked:
            wait(self._asked.values(), timeout=_POLL_S)
            self.look()
        for facts in self._facts.values():
            if why := self._other_sources(facts):
                raise InputError(why)
        if not self.present:
            reasons = "; ".join((*self.left_out.values(), *self._told.values()))
            raise PoolError(f"no worker of the pool can run jobs{reasons and f': {reasons}'}")

    def look(self) -> None:
        """Ask new workers what they are, and hear those that have said so; does not wait.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        self._pool.refresh()
        for address, why in self._pool.left_out.items():
            if self._told.get(address) != why:
                self._told[address] = why
                _LOG.warning("pool: a worker is left out: %s: %s", address, why)
        for address in self._pool.present:
            if not ({address} & (self._asked.keys() | self._facts.keys() | self.left_out.keys())):
                self._asked[address] = self.ask(address, "facts", tuple(self._sources), self._devices)
        for address, answer in list(self._asked.items()):
            if answer.done():
                del self._asked[address]
                self._hear(address, answer)

    def fitting(self) -> list[str]:
        """Addresses of the workers that may run jobs now."""
        return [address for address, facts in self.present.items() if not self._other_sources(facts)]

    def identity(self, address: str, job: SweepJob) -> DeviceIdentity:
        """Return the identity of the device that a worker has for a job."""
        return self._facts[address].identities[asked_device(job.device)]

    def allows(self, address: str, job: SweepJob) -> bool:
        """Return True if a worker may take a job."""
        return bool(asked_device(job.device)) or DeviceChoice.parse(job.device).allows(
            self.identity(address, job)
        )

    def host(self, address: str) -> str:
        """The host of a worker."""
        return self._facts[address].host

    def ask(self, address: str, method: str, *args: object) -> Future[Any]:
        """Call a method of ``LaneQuestions`` in a worker.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        living, server = self._pool.living(), (SERVER, self._kernel_files)
        return self._pool.submit(ask_child, self._order, living, server, method, *args, worker=address)

    def run(self, address: str, job: SweepJob) -> Future[EndedJob]:
        """Run a job in a worker.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        spec = attempt_at(job, asked_device(job.device), Path(), self._kernel_files)
        return self._pool.submit(run_job, self._order, self._pool.living(), spec, worker=address)

    def gather(self, calls: Collection[Future[Any]], timeout_s: float = math.inf) -> None:
        """Wait until calls have ended, or the time is over.

        Raises:
            PoolLostError: the scheduler does not answer.
        """
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and not all(call.done() for call in calls):
            wait(calls, timeout=_POLL_S)
            self._pool.refresh()

    def stop(self) -> None:
        """Have all workers end what they do for this sweep, in order; does not wait."""
        self._pool.run_everywhere(stop_work, self._run)

    def _hear(self, address: str, answer: Future[LaneFacts]) -> None:
        try:
            facts = answer.result()
        except WorkerLostError:
            return
        except TunerError as error:
            self._leave_out(address, f"{address}: {error}")
            return
        if why := self._same_gpu(facts):
            self._leave_out(address, f"{facts.host} ({address}): {why}")
            return
        self._facts[address] = facts
        if why := self._other_sources(facts):
            _LOG.warning("pool: a worker takes no jobs: %s", why)

    def _same_gpu(self, facts: LaneFacts) -> str:
        """Which worker has the same GPU; empty where none has."""
        own = facts.identities.get("")
        if own is None or own.modelled:
            return ""
        for address, other in self.present.items():
            if other.identities[""].uuid == own.uuid:
                return f"its GPU {own.uuid} is that of {address} too"
        return ""

    def _leave_out(self, address: str, why: str) -> None:
        self.left_out[address] = why
        _LOG.warning("pool: a worker is left out: %s", why)

    def _other_sources(self, facts: LaneFacts) -> str:
        """Return the reason why a worker's kernels are not those here; empty if they are."""
        if facts.missing:
            return (
                f"host {facts.host} has no kernel file {facts.missing[0]};"
                " kernel files do not travel: put it there under the same path"
            )
        if facts.unusable:
            return (
                f"host {facts.host} cannot use a kernel file: {facts.unusable[0]};"
                " files do not travel: put them there under the same paths"
            )
        for name, source in self._sources.items():
            there = facts.sources.get(name)
            if there is None:
                return f"host {facts.host} has no kernel {name}; put its files there too"
            if there != source:
                return (
                    f"host {facts.host} has another source of kernel {name}"
                    f" ({there[:12]} there, {source[:12]} here); make its files the same"
                )
        return ""


# --- What is asked before jobs run on a pool: whether they can be, and what answers are bound to there.


def check_jobs(jobs: Sequence[SweepJob]) -> None:
    """Refuse what no pool runs.

    Raises:
        RefusedJobsError: options or devices that cannot be.
    """
    devices = {device: _misfit(device) for device in {job.device for job in jobs}}
    refuse((job, why) for job in jobs for why in (devices[job.device], complaint(request_of(job).check)))


def sources_of(jobs: Iterable[SweepJob], catalog: Catalog) -> dict[str, str]:
    """Fingerprints of the kernels of jobs, by their names.

    Raises:
        RefusedJobsError: kernels that are not there.
    """

    def kernel(workload: str) -> KernelFile:
        return catalog.kernel(WorkloadName.parse(workload).kernel)

    first = {workload: job for job in jobs for workload in job.workloads}
    refuse((job, complaint(partial(kernel, workload))) for workload, job in first.items())
    return {found.name: found.fingerprint for found in map(kernel, first)}


def conditions_on(
    workers: SweepWorkers, jobs: Sequence[SweepJob], on: str
) -> list[tuple[SweepJob, Conditions]]:
    """The conditions of jobs, as one worker of each kind that may run them tells.

    Raises:
        RefusedJobsError: jobs that no worker has a device for, or workloads or options that cannot be there.
        PoolError: a worker was lost.
    """
    of_device: dict[str, list[SweepJob]] = defaultdict(list)
    for job in jobs:
        of_device[job.device].append(job)
    asked: dict[str, list[SweepJob]] = defaultdict(list)
    for device, alike in of_device.items():
        chosen = _one_of_each_kind(workers, alike[0])
        if not chosen:
            refuse((job, f"no worker of {on} is a {DeviceChoice.parse(device)}") for job in alike)
        for address in chosen:
            asked[address] += alike
    answers = [workers.ask(address, "conditions", some) for address, some in asked.items()]
    workers.gather(answers)
    told: list[JobConditions] = [answer.result() for answer in answers]
    refuse(reason for some in told for reason in some.refused)
    return [pair for some in told for pair in some.conditions]


def _one_of_each_kind(workers: SweepWorkers, job: SweepJob) -> list[str]:
    """A worker of each kind that may take a job."""
    found: dict[tuple[str, str, str], str] = {}
    for address in workers.fitting():
        if workers.allows(address, job):
            identity = workers.identity(address, job)
            found.setdefault((identity.name, identity.driver, identity.runtime), address)
    return list(found.values())


def _misfit(device: str) -> str:
    """Return the reason why a device is none of a pool's; empty if it may be."""
    if device.startswith(PREFIX):
        return f"{device} was measured already; leave it out, or use --on local"
    if asked_device(device):
        return complaint(partial(identify, device))
    if DeviceChoice.parse(device).one:
        return f"device {device}: each worker has its own GPU; leave devices out, or write kind:MODEL"
    return ""


# --- The lanes.

_LOOK_S = 0.5
_ABSENT_S = 120.0  # without a worker that takes a job, until a sweep gives up
_GRACE_S = 40.0  # for jobs to end in order, more than workers give them
_MOST_LOST = 3  # workers that one job may take with it


@contextlib.contextmanager
def open_pool_lanes(
    on: str, database: Path | None, kernel_files: Sequence[Path] = ()
) -> Iterator["PoolLanes"]:
    """Open the workers of a pool for a sweep.

    Args:
        on: ``dask://HOST:PORT`` or ``slurm``.
        database: where runs are taken over to; None for the user's own.
        kernel_files: beside the catalogue.

    Raises:
        InputError: as of ``open_workers``.
        PoolError: no worker came in time.
    """
    with open_workers(on) as pool:
        yield PoolLanes(pool, on, database, kernel_files)


@dataclass
class _Task:
    """A job that waits for a worker or runs on one.

    Attributes:
        worker: address, while it runs.
        begun_s: when it was first handed to a worker; None before.
        lost: workers that were lost with it.
        crashed_on: the worker where it crashed; empty while it did not.
    """

    job: SweepJob
    worker: str = ""
    begun_s: float | None = None
    lost: int = 0
    crashed_on: str = ""

    @property
    def seconds(self) -> float:
        """Time since it was first handed to a worker."""
        return 0.0 if self.begun_s is None else time.monotonic() - self.begun_s

    def failed(self, reason: str) -> JobResult:
        """It has no answer."""
        return JobResult(self.job, "failed", reason=reason, seconds=self.seconds)


class PoolLanes:
    """Runs jobs of a sweep on the workers of a pool, one at a time on each.

    Args:
        pool: its workers.
        on: what messages call it.
        database: where runs are taken over to; None for the user's own.
        kernel_files: beside the catalogue; every worker has them under the same paths.
    """

    def __init__(
        self, pool: Workers, on: str, database: Path | None, kernel_files: Sequence[Path] = ()
    ) -> None:
        count = len(pool.present)
        self.where = f"{on}, {count} worker{'s' if count > 1 else ''}"
        self._pool = pool
        self._on = on
        self._database = database
        self._kernel_files = [path.absolute() for path in kernel_files]
        self._workers: SweepWorkers | None = None

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """See ``Backend.known``; a run on any GPU of a kind that the pool has counts.

        Raises:
            RefusedJobsError: workloads, devices or options that cannot be.
            InputError: a worker has other sources of kernels.
            PoolError: no worker may run jobs.
        """
        told = conditions_on(self._met(jobs), jobs, self._on)
        path = self._database or default_path()
        if not holds_something(path):
            return {}
        with Store(path) as store:
            return answers_under(told, store, same_kind=True)

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """See ``Backend.run``."""
        workers = self._met(jobs)
        tasks = _Tasks(jobs, workers)
        with Store(self._database) as store:
            try:
                yield from self._run(tasks, workers, store)
            except PoolLostError as error:
                raise PoolError(str(error)) from error
            finally:
                workers.stop()
                tasks.wait(_GRACE_S)

    def _met(self, jobs: Sequence[SweepJob]) -> SweepWorkers:
        """The workers, once they have told what they are."""
        if self._workers is None:
            check_jobs(jobs)
            sources = sources_of(jobs, Catalog.load(self._kernel_files))
            devices = sorted({asked_device(job.device) for job in jobs})
            workers = SweepWorkers(self._pool, self._kernel_files, sources, devices)
            workers.meet()
            self._workers = workers
        return self._workers

    def _run(self, tasks: "_Tasks", workers: SweepWorkers, store: Store) -> Iterator[JobStarted | JobResult]:
        useful_s = time.monotonic()
        while tasks.left:
            workers.look()
            for job in tasks.start():
                yield JobStarted(job)
            if tasks.running:
                useful_s = time.monotonic()
                done, _ = wait(tasks.running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for answer in done:
                    result = tasks.ended(answer, store)
                    if result is not None:
                        yield result
            elif time.monotonic() - useful_s > _ABSENT_S:
                raise PoolError(
                    f"--on {self._on}: for {_ABSENT_S:g} s no worker took one of the jobs that are left"
                )
            else:
                time.sleep(_LOOK_S)


class _Tasks:
    """Jobs that wait for a worker or run on one; a job that is lost with its worker waits again."""

    def __init__(self, jobs: Sequence[SweepJob], workers: SweepWorkers) -> None:
        self._waiting = deque(map(_Task, jobs))
        self._workers = workers
        self.running: dict[Future[EndedJob], _Task] = {}

    @property
    def left(self) -> bool:
        """True if any job has not ended."""
        return bool(self._waiting or self.running)

    def start(self) -> Iterator[SweepJob]:
        """Give jobs to idle workers; yields those that begin for the first time."""
        busy = {task.worker for task in self.running.values()}
        fitting = self._workers.fitting()
        for address in fitting:
            if address in busy:
                continue
            task = next((one for one in self._waiting if self._may_take(address, one, fitting)), None)
            if task is None:
                continue
            self._waiting.remove(task)
            self.running[self._workers.run(address, task.job)] = task
            task.worker = address
            if task.begun_s is None:
                task.begun_s = time.monotonic()
                yield task.job

    def ended(self, answer: Future[EndedJob], store: Store) -> JobResult | None:
        """The result of a job whose call has ended; None where it waits again.

        Raises:
            PoolLostError: the scheduler does not answer.
            StoreError: the run cannot be stored.
        """
        task = self.running.pop(answer)
        try:
            ended = answer.result()
        except WorkerLostError as error:
            task.lost += 1
            return self._again(task, str(error), may=task.lost < _MOST_LOST)
        except (ChildError, PoolError) as error:
            return self._elsewhere(task, str(error))
        except PoolLostError:
            raise
        except TunerError as error:
            return task.failed(str(error))
        if ended.result.status == "interrupted":  # and not by this sweep
            return self._elsewhere(task, "it was stopped on its worker")
        if not ended.result.whole:  # such as of a GPU that fell off: all jobs of its worker would fail
            return self._elsewhere(task, ended.result.message)
        return _taken_over(task, ended, store, self._workers.host(task.worker))

    def wait(self, seconds: float) -> None:
        """Wait until what runs has ended, some time at most."""
        with contextlib.suppress(PoolLostError):  # then nobody answers
            self._workers.gather(self.running, seconds)

    def _elsewhere(self, task: _Task, reason: str) -> JobResult | None:
        """Have a job that a worker could not do run on another, once."""
        may = not task.crashed_on
        task.crashed_on = task.worker
        return self._again(task, reason, may=may)

    def _again(self, task: _Task, reason: str, *, may: bool) -> JobResult | None:
        if not may:
            return task.failed(reason)
        _LOG.warning("pool: %s runs again: %s", task.job.title, reason)
        self._waiting.appendleft(task)
        return None

    def _may_take(self, address: str, task: _Task, fitting: Sequence[str]) -> bool:
        """Return True if a worker may take a job: not the one where it crashed, unless there is no other."""
        if not self._workers.allows(address, task.job):
            return False
        others = (other for other in fitting if other != address)
        return address != task.crashed_on or not any(self._workers.allows(one, task.job) for one in others)


def _taken_over(task: _Task, ended: EndedJob, store: Store, host: str) -> JobResult:
    """The result of a job whose run is stored here now."""
    with tempfile.TemporaryDirectory(prefix="tuner-sweep-") as folder:
        path = Path(folder) / "job.db"
        path.write_bytes(ended.database)
        try:
            report = merge_file(store.database, path, source=f"a sweep's job on {host}", limited=True)
        except InputError as error:
            return task.failed(f"the database file that {host} sent cannot be read: {error}")
    if report.newest_run is None and not ended.result.message:
        why = report.refused[0] if report.refused else "it has no run that is not here already"
        return task.failed(f"the database file that {host} sent is of no use: {why}")
    try:
        result = result_of(task.job, replace(ended.result, run=report.newest_run), store)
    except InputError as error:
        return task.failed(f"its answer cannot be read: {error}")
    return replace(result, seconds=task.seconds)
