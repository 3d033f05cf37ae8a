"""The running of a sweep: jobs without a fresh answer, and what became of them."""

import statistics
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

from tuner.database.runs import Store
from tuner.devices.kinds import PREFIX
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, RunInterrupted, TunerError
from tuner.model.jobs import JobSpec
from tuner.model.options import LIMITS
from tuner.model.records import Conditions, RunStatus, StoredRun, binding
from tuner.model.typed import canonical
from tuner.search.job_messages import AttemptResult, AttemptSpec
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.stored import stored_document
from tuner.studies.sweep_file import SweepJob

# --- What became of the jobs of a sweep.

End = Literal["finished", "known", "failed"]
_COPIED = ("time_s", "time_s_uncertainty", "energy_j", "energy_j_uncertainty", "clock_mhz", "power_limit_w")
_AGAINST = ("slowdown", "slowdown_interval", "energy_saving", "energy_saving_interval")
_NOT_MEASURED = ("recorded", "modelled")
_MEASURED = "measured"


@dataclass(frozen=True)
class JobResult:
    """Result of a job of a sweep.

    Attributes:
        end: ``finished`` now; ``known``: an answer under the same conditions was there; ``failed``.
        reason: why it failed, for people.
        run: its run in the database.
        seconds: for which it held a lane in this sweep.
        answer: see ``answer_of``; None without one.
        device: of this machine where it ran, or the model of another GPU; empty where the job names it.
    """

    job: SweepJob
    end: End
    reason: str = ""
    run: int | None = None
    seconds: float = 0.0
    answer: Mapping[str, Any] | None = None
    device: str = ""

    @property
    def kind(self) -> str:
        """Provenance of its numbers: ``modelled``, ``recorded``, both, ``measured``; empty if no answer."""
        if self.answer is None:
            return ""
        return ", ".join(word for word in _NOT_MEASURED if self.answer.get(word)) or _MEASURED


@dataclass
class SweepReport:
    """A sweep as a whole.

    Attributes:
        path: of the file, as it was named.
        where: jobs ran, for people.
        jobs: of the file.
        results: of jobs that have ended, in that order.
        wall_s: from the first job's start to the end.
        interrupted: whether jobs are left because the user stopped it.
        trouble: why else jobs are left; empty where none are.
    """

    path: str
    where: str
    jobs: Sequence[SweepJob]
    results: list[JobResult] = field(default_factory=list)
    wall_s: float = 0.0
    interrupted: bool = False
    trouble: str = ""

    @property
    def counts(self) -> Counter[str]:
        """Number of jobs by the way they ended."""
        return Counter(result.end for result in self.results)

    @property
    def failed(self) -> list[JobResult]:
        """Jobs without an answer, in the order of the file."""
        return [result for result in self.in_order() if result.end == "failed"]

    @property
    def left(self) -> int:
        """Jobs that have not ended."""
        return len(self.jobs) - len(self.results)

    def in_order(self) -> list[JobResult]:
        """The results in the order of the file."""
        by_key = {result.job.key: result for result in self.results}
        return [by_key[job.key] for job in self.jobs if job.key in by_key]

    def document(self) -> dict[str, Any]:
        """The report as ``--json`` writes it."""
        return {
            "sweep": self.path,
            "where": self.where,
            "jobs": len(self.jobs),
            **{end: self.counts[end] for end in ("finished", "known", "failed")},
            "left": self.left,
            "interrupted": self.interrupted,
            "trouble": self.trouble,
            "wall_s": self.wall_s,
            "results": [_row(result) for result in self.in_order()],
        }


def answer_of(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a run's document for a sweep: its answer, its savings, the cost of its search.

    Args:
        document: as ``tuner run --json`` writes it.

    Returns:
        None where nothing valid was measured.
    """
    best = document.get("best")
    if not best:
        return None
    against = document.get("against_default") or {}
    return {
        "configurations": best["configurations"],
        **{name: best.get(name) for name in _COPIED},
        **{name: against.get(name) for name in _AGAINST},
        "trials": document["space"]["measured"],
        "device": document.get("device"),
        "tuning_energy_j": document.get("tuning_energy_j"),
        "tuning_energy_j_uncertainty": document.get("tuning_energy_j_uncertainty"),
        "search_s": document.get("wall_s"),
        "modelled": document["modelled"],
        "recorded": document.get("recorded"),
    }


def change_of(result: JobResult) -> tuple[float, float | None] | None:
    """Return the change of an answer against the default, and half its 95 % interval; None if unknown.

    Of the objective ``time`` the change of the time, of the others that of the joules; less is better.
    """
    if result.answer is None:
        return None
    name, sign = ("slowdown", 1.0) if result.job.objective == "time" else ("energy_saving", -1.0)
    value = result.answer[name]
    return None if value is None else (sign * value, result.answer[f"{name}_interval"])


def median_change(results: Sequence[JobResult]) -> float | None:
    """The median of ``change_of``; None where no result has one."""
    changes = [change[0] for change in map(change_of, results) if change is not None]
    return statistics.median(changes) if changes else None


def kinds_of(results: Sequence[JobResult]) -> list[str]:
    """Return the kinds of the numbers of results, each once; see ``JobResult.kind``."""
    return list(dict.fromkeys(result.kind for result in results if result.kind))


def label_of(kind: str) -> str:
    """Return the label behind numbers of a kind, such as ``(modelled)``; empty for those measured."""
    return "" if kind in ("", _MEASURED) else f"({kind})"


def _row(result: JobResult) -> dict[str, Any]:
    job = result.job
    return {
        "group": job.group,
        "workloads": list(job.workloads),
        "objective": job.objective,
        "device": job.device,
        "ran_on": result.device or job.device,
        "options": dict(job.options),
        "end": result.end,
        "reason": result.reason,
        "run": result.run,
        "seconds": result.seconds,
        "answer": result.answer,
    }


# --- Jobs that are answered already, or cannot be.

_OF_SETUP = frozenset(
    {"sensor", "scope", "joules", "window_s", "energy_precision", "trial_timeout_s", "power_limits"}
)
"""Options that a setup is opened for."""

OWN_FIELDS = ("policy", "clocks")
"""Options that the spec of a job has beside its options."""


class RefusedJobsError(InputError):
    """Jobs that cannot be, each with the reason.

    Attributes:
        refused: what is wrong, by the places of the jobs' groups.
    """

    def __init__(self, refused: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(f"{place}: {reason}" for place, reason in refused))
        self.refused = list(refused)


def refuse(reasons: Iterable[tuple[SweepJob, str]]) -> None:
    """Refuse jobs for these reasons, each told once for a group; an empty one is none.

    Raises:
        RefusedJobsError: there is a reason.
    """
    refused = dict.fromkeys((job.place, reason) for job, reason in reasons if reason)
    if refused:
        raise RefusedJobsError(list(refused))


def complaint(check: Callable[[], object]) -> str:
    """Return the reason why something cannot be, as its check tells; empty if it can."""
    try:
        check()
    except InputError as error:
        return str(error)
    return ""


def check_options(jobs: Iterable[SweepJob]) -> None:
    """Refuse jobs whose options contradict each other; no device is opened.

    Raises:
        RefusedJobsError: says which.
    """
    refuse((job, complaint(request_of(job).check)) for job in jobs)


def check_workloads(jobs: Iterable[SweepJob], catalog: Catalog) -> None:
    """Refuse jobs whose workloads a catalogue does not have; no device is opened.

    Raises:
        RefusedJobsError: unknown kernels or sizes.
    """
    refuse((job, complaint(partial(catalog.workloads, job.workloads))) for job in jobs)


def request_of(job: SweepJob) -> SearchRequest:
    """The request of a job."""
    return SearchRequest(workloads=job.workloads, objective=job.objective, **job.options)


def attempt_at(job: SweepJob, device: str, database: Path, kernel_files: Sequence[Path] = ()) -> AttemptSpec:
    """The attempt at a job on a device, for its process."""
    options = dict(job.options)
    own = {name: options.pop(name) for name in OWN_FIELDS if name in options}
    job_spec = JobSpec(job.workloads, job.objective, **own, device=device, options=options)
    return AttemptSpec(None, job_spec, database, tuple(kernel_files), idle_test=False)


def result_of(job: SweepJob, ended: AttemptResult, store: Store) -> JobResult:
    """The result of a job whose process has ended, with the answer that its run has stored."""
    if not ended.whole:
        return JobResult(job, "failed", ended.message)
    run = None if ended.run is None else store.run(ended.run)
    answer = None if run is None else answer_of(stored_document(store, run))
    end: End = "failed" if ended.message else "finished"
    return JobResult(job, end, ended.message, ended.run, answer=answer)


@dataclass(frozen=True)
class JobConditions:
    """Conditions that the answers of jobs are bound to where a machine's devices run them."""

    conditions: Sequence[tuple[SweepJob, Conditions]]
    refused: Sequence[tuple[SweepJob, str]]


def conditions_of(jobs: Iterable[SweepJob], catalog: Catalog) -> JobConditions:
    """The conditions of jobs on this machine's devices.

    The device of jobs with the same options is opened once, and closed again. One that cannot be opened, or
    whose clocks cannot be set, has none: its jobs say so when they run.
    """
    conditions: list[tuple[SweepJob, Conditions]] = []
    refused: list[tuple[SweepJob, str]] = []

    @contextmanager
    def refusing(job: SweepJob) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            refused.append((job, str(error)))
        except TunerError:  # such as of a device that may answer later
            pass

    alike: dict[str, list[SweepJob]] = defaultdict(list)
    for job in jobs:
        with refusing(job):
            request_of(job).check()
            # The same text for jobs that are measured on the same setup; a recording has its workloads.
            recorded = job.workloads if job.device.startswith(PREFIX) else ()
            chosen = {name: value for name, value in job.options.items() if name in _OF_SETUP}
            alike[canonical([job.device, job.objective, chosen, recorded])].append(job)
    for group in alike.values():
        with (
            refusing(group[0]),
            open_setup(group[0].device or None, request_of(group[0])) as setup,
        ):
            for job in group:
                with refusing(job):
                    conditions.append((job, plan_search(request_of(job), catalog, setup).conditions))
    return JobConditions(conditions, refused)


def answers_under(
    conditions: Iterable[tuple[SweepJob, Conditions]], store: Store, *, same_kind: bool = False
) -> dict[str, JobResult]:
    """Results of jobs that a stored run has answered, by their keys.

    Args:
        conditions: of the jobs.
        store: with stored runs.
        same_kind: a run on another GPU of the kind answers too.
    """
    results: dict[str, JobResult] = {}
    for job, bound in conditions:
        runs = store.answered(bound.names, None) if same_kind else store.answered_under(bound)
        kind = of_kind(bound.record())
        for run in runs:
            if (not same_kind or of_kind(run.conditions) == kind) and _is_whole(run, request_of(job)):
                answer = answer_of(stored_document(store, run))
                results[job.key] = JobResult(job, "known", run=run.id, answer=answer)
                break
    return results


def of_kind(record: Mapping[str, Any]) -> str:
    """Conditions as text, without what tells GPUs of a kind apart."""
    device = {name: value for name, value in record["device"].items() if name not in ("spec", "uuid")}
    return canonical({**binding(record), "device": device})


def _is_whole(run: StoredRun, request: SearchRequest) -> bool:
    """True for a run that ended by itself, or by limits that the request has too."""
    if run.status is RunStatus.FINISHED:
        return True
    enough = request.budget is not None and run.trials >= request.budget
    return run.status is RunStatus.LIMITED and (enough or request.time_limit_s is not None)


# --- Runs the jobs of a sweep where there is no fresh answer, and gathers what became of them.


@dataclass(frozen=True)
class JobStarted:
    """A job has got a lane."""

    job: SweepJob


class Backend(Protocol):
    """Executor of the jobs of a sweep.

    Attributes:
        where: for people, such as ``local, 4 lanes``.
    """

    where: str

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        """Results that are there already, by the keys of their jobs.

        Raises:
            InputError: a job names a workload or device that is not there, or an option that cannot be.
        """

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        """Run jobs, and yield what happens; closing the iterator stops in order."""


class SweepObserver(Protocol):
    """Hears how a sweep comes on."""

    def begun(self, report: SweepReport) -> None:
        """Results that were there are in the report; the others run now."""

    def started(self, job: SweepJob) -> None:
        """A job has got a lane."""

    def ended(self, result: JobResult) -> None:
        """A job has ended."""


def run_sweep(jobs: Sequence[SweepJob], backend: Backend, observer: SweepObserver, path: str) -> SweepReport:
    """Run all jobs that have no fresh answer; a job that fails does not stop the others.

    Returns:
        The report, also where the user interrupted the sweep, or nothing can run any more.

    Raises:
        InputError: as of ``Backend.known``; nothing has run then.
    """
    known = backend.known(jobs)
    report = SweepReport(path, backend.where, jobs, [known[job.key] for job in jobs if job.key in known])
    observer.begun(report)
    missing = [job for job in jobs if job.key not in known]
    begun_s = time.monotonic()
    try:
        with closing(backend.run(missing)) as happening:  # type: ignore[type-var]  # a generator
            for event in happening:
                if isinstance(event, JobStarted):
                    observer.started(event.job)
                else:
                    report.results.append(event)
                    observer.ended(event)
    except (KeyboardInterrupt, RunInterrupted):
        report.interrupted = True
    except TunerError as error:
        report.trouble = str(error)
    report.wall_s = time.monotonic() - begun_s
    return report


# --- Jobs of a sweep that wait for a lane of this machine, and the devices that jobs which run hold.

AGAIN_S = 2.0  # until a job is tried again whose run another process is measuring
_LOOKED_AT = 64  # jobs of each choice of devices, for one that may run


@dataclass(frozen=True)
class PlacedJob:
    """A job with the device that it runs on."""

    job: SweepJob
    device: str

    @cached_property
    def held(self) -> frozenset[str]:
        """Names that only one job at a time may lock; simulated GPUs and recordings take any number."""
        chosen = {name: value for name, value in self.job.options.items() if name not in LIMITS}
        search = replace(self.job, options=chosen).key
        if self.device == self.job.device and self.device.startswith(("sim:", "replay:")):
            return frozenset({search})
        return frozenset({search, self.device if ":" in self.device else "cuda:0"})


def own_device(job: SweepJob) -> Sequence[str]:
    """The device that a job names."""
    return (job.device,)


class WaitingJobs:
    """Jobs that wait, and what jobs that run hold; for several threads.

    A job holds its GPU, and its search: jobs that differ in limits alone go on with each other's runs. One
    whose run another process is measuring is put back, and comes after all others. Jobs that name a device
    come first, as the others may take any.

    Args:
        jobs: of the sweep.
        devices: those that a job may run on.
        again_s: until a job is tried again that was put back.
    """

    def __init__(
        self,
        jobs: Sequence[SweepJob],
        devices: Callable[[SweepJob], Sequence[str]] = own_device,
        again_s: float = AGAIN_S,
    ) -> None:
        self._devices = devices
        self._again_s = again_s
        self._by_choice: dict[str, deque[SweepJob]] = {}
        for job in sorted(jobs, key=lambda job: len(devices(job))):
            self._by_choice.setdefault(job.device, deque()).append(job)
        self._busy: frozenset[str] = frozenset()
        self._stays: dict[str, str] = {}  # devices of jobs that have begun there, by their keys
        self._failed_on: dict[str, str] = {}  # devices where jobs could not begin, by their keys
        self._put_back: list[tuple[float, PlacedJob]] = []  # with the time from which each may be taken
        self._were_put_back: set[str] = set()  # keys
        self._changed = threading.Condition()

    def take(self) -> PlacedJob | None:
        """The next job that may run, waited for; None where no job is left."""
        with self._changed:
            while any(self._by_choice.values()) or self._put_back:
                placed = self._free() or self._due()
                if placed is not None:
                    self._busy |= placed.held
                    return placed
                now_s = time.monotonic()
                self._changed.wait(
                    min((at_s - now_s for at_s, _ in self._put_back if at_s > now_s), default=None)
                )
            return None

    def put_back(self, placed: PlacedJob) -> None:
        """Another process measures the run of a job, which waits for it."""
        with self._changed:
            self._put_back.append((time.monotonic() + self._again_s, placed))
            self._were_put_back.add(placed.job.key)
            self._free_again(placed)

    def was_put_back(self, job: SweepJob) -> bool:
        """True for a job that has been put back before."""
        return job.key in self._were_put_back

    def move(self, placed: PlacedJob, device: str) -> bool:
        """Have a job wait for the device on which it has begun; False where it could not go on there."""
        with self._changed:
            if self._failed_on.get(placed.job.key) == device:
                return False
            self._stays[placed.job.key] = device
            self._wait_first(placed)
            return True

    def try_elsewhere(self, placed: PlacedJob) -> bool:
        """Have a job that could not begin wait for another device, once; False where there is none."""
        key = placed.job.key
        with self._changed:
            if key in self._failed_on or len(self._devices(placed.job)) == 1:
                return False
            self._failed_on[key] = placed.device
            self._stays.pop(key, None)
            self._wait_first(placed)
            return True

    def release(self, placed: PlacedJob) -> None:
        """A job has ended."""
        with self._changed:
            self._free_again(placed)

    def close(self) -> None:
        """No job waits any more."""
        with self._changed:
            self._by_choice.clear()
            self._put_back.clear()
            self._changed.notify_all()

    def _wait_first(self, placed: PlacedJob) -> None:
        self._by_choice.setdefault(placed.job.device, deque()).appendleft(placed.job)
        self._free_again(placed)

    def _free_again(self, placed: PlacedJob) -> None:
        self._busy -= placed.held
        self._changed.notify_all()

    def _free(self) -> PlacedJob | None:
        first = (job for jobs in self._by_choice.values() for job in islice(jobs, _LOOKED_AT))
        choices = (placed for job in first for placed in self._choices(job))
        free = next((placed for placed in choices if self._busy.isdisjoint(placed.held)), None)
        if free is not None:
            self._by_choice[free.job.device].remove(free.job)
        return free

    def _choices(self, job: SweepJob) -> Iterator[PlacedJob]:
        """A job on each device that it may run on now."""
        stays, failed_on = self._stays.get(job.key), self._failed_on.get(job.key)
        for device in self._devices(job) if stays is None else (stays,):
            if device != failed_on:
                yield PlacedJob(job, device)

    def _due(self) -> PlacedJob | None:
        now_s = time.monotonic()
        for at_s, placed in self._put_back:
            if at_s <= now_s and self._busy.isdisjoint(placed.held):
                self._put_back.remove((at_s, placed))
                return placed
        return None
