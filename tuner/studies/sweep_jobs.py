"""Jobs of a sweep: in processes of this machine, at most one on a GPU, or in the daemon's queue."""

import logging
import queue
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.database.connection import default_path, holds_something
from tuner.database.runs import RESUMABLE, Store
from tuner.devices.choice import AUTO, list_gpus, why_nothing_stands_in
from tuner.devices.cuda.probe import driver_problem
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import (
    ChildError,
    DaemonError,
    DaemonRefusedError,
    DaemonUnavailableError,
    InputError,
    TunerError,
)
from tuner.model.jobs import ACTIVE, DeviceChoice, DeviceIdentity, wrong_choice
from tuner.model.options import JOB_OPTIONS
from tuner.model.records import Conditions, WorkloadName
from tuner.search.job_launcher import AttemptProcess, BlockingLauncher
from tuner.search.job_messages import AttemptResult
from tuner.studies.sweep import (
    AGAIN_S,
    OWN_FIELDS,
    JobResult,
    JobStarted,
    PlacedJob,
    WaitingJobs,
    answer_of,
    answers_under,
    attempt_at,
    check_options,
    conditions_of,
    of_kind,
    refuse,
    result_of,
)
from tuner.studies.sweep_file import SweepJob

if TYPE_CHECKING:
    from tuner.client.client import Client
    from tuner.model.jobs import Job
    from tuner.model.run_document import Best


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


# --- Jobs of a sweep in the daemon's queue.

AHEAD = 5  # jobs that run and wait for each device: enough that none is idle between two looks
LOOK_S = 0.25  # between two looks at the jobs
_SELDOM = 4  # times as long while further jobs wait here, and enough of them there
_PATIENCE_S = 60.0  # for a daemon that went away; a service manager starts it again within seconds
_PAGE = 500  # jobs in one answer of the daemon
_NEWEST = 50  # jobs among which one is looked for whose submission got no answer
_LOG = logging.getLogger(__name__)
_FILLED = frozenset(name for name, option in JOB_OPTIONS.items() if option.table == "tuning")
_BOUND = ("uuid", "name", "driver", "runtime")


class DaemonQueues:
    """Runs jobs of a sweep as jobs of the daemon, some ahead of each device.

    A job of the daemon that asks for the same is taken for that of the sweep: one that waits or runs is
    followed, one that has finished counts while its answer is fresh.

    Raises:
        DaemonUnavailableError: none answers.
    """

    def __init__(self, client: "Client", look_s: float = LOOK_S) -> None:
        self._client = client
        self._look_s = look_s
        devices = client.status().get("devices", [])
        count = f"{len(devices)} device{'s' if len(devices) > 1 else ''}"
        self.where = f"the daemon at {client.address}, {count}"
        self._devices = devices
        self._followed: dict[str, int] = {}
        self._uncertain: set[str] = set()  # keys of jobs whose submission got no answer
        self._told = ""

    def check(self, jobs: Sequence[SweepJob]) -> None:
        """Ask the daemon whether it has what jobs name.

        Raises:
            RefusedJobsError: workloads, devices or options that it does not have.
        """
        self._checked(jobs)

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """See ``Backend.known``."""
        named = self._checked(jobs)
        stored: dict[str, list[Job]] = {}
        for one in self._listed():
            stored.setdefault(_question(one.workloads, one.objective, one.wanted_device), []).append(one)
        found: dict[str, JobResult] = {}
        taken: set[int] = set()  # a job of the daemon is that of one of the sweep's
        for job in jobs:
            best = named.get(job.key)
            if best is None:
                continue
            # the daemon names workloads in one way, with a batch that is not the kernel file's
            alike = stored.get(_question(tuple(best.workloads), job.objective, job.device), [])
            for one in (other for other in alike if _asks_for(job, other)):
                if not one.ended and one.id not in taken and job.key not in self._followed:
                    self._followed[job.key] = one.id
                    taken.add(one.id)
                elif one.state == "finished" and job.key not in found:
                    found |= self._fresh(job, one, best)
        return found

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """See ``Backend.run``. Jobs that are queued when this is closed stay in the daemon's queue."""
        waiting: dict[str, deque[SweepJob]] = {}
        for job in jobs:
            waiting.setdefault(job.device, deque()).append(job)
        queued: dict[int, SweepJob] = {}
        begun_s: dict[int, float] = {}
        well_s = time.monotonic()
        while queued or any(waiting.values()):
            try:
                yield from self._look(queued, begun_s)
                yield from self._fill(waiting, queued)
                well_s = time.monotonic()
            except DaemonRefusedError as error:  # the queue is full, or no device answers
                well_s = time.monotonic()
                self._tell(str(error))
            except DaemonUnavailableError as error:
                if time.monotonic() - well_s > _PATIENCE_S:
                    raise
                self._tell(str(error))
            time.sleep(self._look_s * (_SELDOM if any(waiting.values()) else 1))

    def _tell(self, reason: str) -> None:
        """Say what is waited for, once while it is the same."""
        if reason != self._told:
            self._told = reason
            _LOG.warning("waiting for the daemon: %s", reason)

    # --- what is there -------------------------------------------------------------------------------

    def _checked(self, jobs: Sequence[SweepJob]) -> dict[str, "Best"]:
        """Return the daemon's present answer for each job, by key; omit jobs without answer or default."""
        asked: dict[tuple[Any, ...], Best] = {}
        named: dict[str, Best] = {}
        refused: list[tuple[SweepJob, str]] = []
        for job in jobs:
            for option in job.options:
                if option not in (*JOB_OPTIONS, *OWN_FIELDS):
                    why = f"jobs of the daemon have no option {option}; leave it out, or use --on local"
                    refused.append((job, why))
            chosen: dict[str, Any] = {name: job.options.get(name) for name in ("max_slowdown", "timing")}
            question = (job.workloads, job.objective, job.device, *chosen.values())
            try:
                if question not in asked:
                    asked[question] = self._client.best(
                        *job.workloads,
                        objective=job.objective,
                        device=self._one_of(job.device),
                        **chosen,
                        count=0.0,  # looked at, not used
                    )
                named[job.key] = asked[question]
            except InputError as error:
                refused.append((job, str(error)))
            except DaemonRefusedError:  # no answer yet of a kernel without a default
                continue
        refuse(refused)
        return named

    def _listed(self) -> Iterator["Job"]:
        """All searches that the daemon lists, newest first."""
        before: int | None = None
        while page := self._client.jobs(limit=_PAGE, before=before):
            yield from (job for job in page if job.kind == "tune")
            before = page[-1].id

    def _allowed(self, device: str) -> list[Mapping[str, Any]]:
        """The daemon's devices that a choice of devices means."""
        choice = DeviceChoice.parse(device)
        return [one for one in self._devices if _allows(choice, one)]

    def _one_of(self, device: str) -> str:
        """One device of a choice; the choice itself, which the daemon then refuses, where there is none."""
        return next((str(one.get("spec", "")) for one in self._allowed(device)), device)

    def _fresh(self, job: SweepJob, ended: "Job", best: "Best") -> dict[str, JobResult]:
        """The result of a finished job by the key of the sweep's, if its answer still holds."""
        if ended.run is None or (best.run == ended.run and best.stale):
            return {}
        document = self._client.archive.run(ended.run)
        bound = document.get("device", {})
        present = any(
            all(bound.get(name) == one.get(name) for name in _BOUND) for one in self._allowed(job.device)
        )
        sources = {WorkloadName.parse(name).kernel: one.source for name, one in best.workloads.items()}
        if not present or document.get("sources") != sources:
            return {}
        answer = answer_of(document)
        return {} if answer is None else {job.key: JobResult(job, "known", run=ended.run, answer=answer)}

    # --- running -------------------------------------------------------------------------------------

    def _look(
        self, queued: dict[int, SweepJob], begun_s: dict[int, float]
    ) -> Iterator[JobStarted | JobResult]:
        """Yield the events of queued jobs; jobs that have ended are taken out."""
        for number, job in self._present(queued).items():
            if job.state != "queued" and number not in begun_s:
                begun_s[number] = time.monotonic()
                yield JobStarted(queued[number])
            if job.ended:
                yield self._result(queued[number], job, begun_s[number])
                del queued[number]

    def _fill(
        self, waiting: "Mapping[str, deque[SweepJob]]", queued: dict[int, SweepJob]
    ) -> Iterator[JobResult]:
        """Keep some jobs waiting for each device; yields those that the daemon refuses for good.

        Raises:
            DaemonRefusedError: it takes no more just now.
            DaemonUnavailableError: it does not answer.
        """
        ahead = Counter(job.device for job in queued.values())
        for device, jobs in waiting.items():
            lanes = max(1, len(self._allowed(device)))
            while jobs and ahead[device] < AHEAD * lanes:
                try:
                    queued[self._number(jobs[0], queued)] = jobs[0]
                    ahead[device] += 1
                except InputError as error:
                    yield JobResult(jobs[0], "failed", reason=str(error))
                jobs.popleft()

    def _number(self, job: SweepJob, queued: Mapping[int, SweepJob]) -> int:
        """The number of the daemon's job for one of the sweep; it is submitted where there is none."""
        number = self._followed.pop(job.key, None)
        if number is None and job.key in self._uncertain:
            newest = (one for one in self._client.jobs(limit=_NEWEST) if one.id not in queued)
            number = next((one.id for one in newest if not one.ended and _is_for(job, one)), None)
        if number is None:
            self._uncertain.add(job.key)  # until there is an answer
            number = self._submitted(job)
        self._uncertain.discard(job.key)
        return number

    def _submitted(self, job: SweepJob) -> int:
        options = dict(job.options)
        named = {name: options.pop(name, None) for name in OWN_FIELDS}
        queued = self._client.submit(
            *job.workloads, objective=job.objective, device=job.device, **named, **options
        )
        return queued.id

    def _present(self, queued: Mapping[int, SweepJob]) -> dict[int, "Job"]:
        """Jobs as they are now, by their numbers: those that have not ended are few, and listed at once."""
        if not queued:
            return {}
        active = {job.id: job for job in self._client.jobs(ACTIVE, limit=_PAGE)}
        return {number: active.get(number) or self._client.job(number) for number in queued}

    def _result(self, job: SweepJob, ended: "Job", begun_s: float) -> JobResult:
        """The result of a job that has ended."""
        seconds = _lasted_s(ended, time.monotonic() - begun_s)
        if ended.state != "finished" or ended.run is None:
            reason = ended.reason or f"job {ended.id} was {ended.state}"
            return JobResult(job, "failed", reason=reason, run=ended.run, seconds=seconds)
        try:
            answer = answer_of(self._client.archive.run(ended.run))
        except (DaemonError, InputError) as error:
            return JobResult(job, "failed", f"its answer cannot be read: {error}", ended.run, seconds)
        if answer is None:
            reason = ended.reason or "no trial was valid"
            return JobResult(job, "failed", reason=reason, run=ended.run, seconds=seconds)
        return JobResult(job, "finished", run=ended.run, seconds=seconds, answer=answer)


def _lasted_s(job: "Job", seen_s: float) -> float:
    """Return the duration of a job in s by the daemon's clock; ``seen_s`` without its times."""
    try:
        began, ended = (datetime.fromisoformat(at or "") for at in (job.started_at, job.ended_at))
        return (ended - began).total_seconds()
    except (ValueError, TypeError):  # not told, or by no daemon of this version
        return seen_s


def _allows(choice: DeviceChoice, device: Mapping[str, Any]) -> bool:
    """True for a device of the daemon's status that a choice means."""
    if choice.one:
        return bool(device.get("spec") == choice.device)
    return choice.model in ("", device.get("name")) and choice.driver in ("", device.get("driver"))


def _question(workloads: Sequence[str], objective: str, device: str) -> str:
    """The same text for jobs that may have the same answer."""
    return " ".join([*sorted(workloads), objective, str(DeviceChoice.parse(device))])


def _is_for(job: SweepJob, other: "Job") -> bool:
    """True where a job of the daemon, submitted just now, is that of the sweep's."""
    same = _question(other.workloads, other.objective, other.wanted_device)
    return same == _question(job.workloads, job.objective, job.device) and _asks_for(job, other)


def _asks_for(job: SweepJob, other: "Job") -> bool:
    """True where a job of the daemon asks for what one of a sweep does.

    What the sweep leaves open is the daemon's to choose: policy, clocks, and options of ``[tuning]``.
    """
    options = dict(job.options)
    own = {name: options.pop(name) for name in OWN_FIELDS if name in options}
    return (
        all(getattr(other, name) == value for name, value in own.items())
        and all(other.options.get(name) == value for name, value in options.items())
        and set(other.options) - set(options) <= _FILLED
    )
