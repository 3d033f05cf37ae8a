"""Jobs of a sweep in the daemon's queue."""

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tuner.model.errors import DaemonError, DaemonRefusedError, DaemonUnavailableError, InputError
from tuner.model.jobs import ACTIVE, DeviceChoice
from tuner.model.options import JOB_OPTIONS
from tuner.model.records import WorkloadName
from tuner.studies.sweep import OWN_FIELDS, JobResult, JobStarted, answer_of, refuse
from tuner.studies.sweep_file import SweepJob

if TYPE_CHECKING:
    from tuner.client.client import Client
    from tuner.model.jobs import Job
    from tuner.model.run_document import Best


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
        """Return the daemon's present answer for each job, by key; omit jobs without an answer or a default.

        Raises:
            RefusedJobsError: workloads, devices or options that the daemon does not have.
        """
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
