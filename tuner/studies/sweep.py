"""Stored answers that jobs of a sweep need not be run for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuner.database.runs import Store
from tuner.devices.replay import PREFIX
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, TunerError
from tuner.model.records import Conditions, RunStatus, StoredRun, binding, canonical
from tuner.search.request import (
    Request,
    asked_batches,
    choose_run_clocks,
    choose_run_limits,
    conditions_of,
    prioritised,
    resolve,
)
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.stored import stored_document
from tuner.sweep.jobs import SweepJob
from tuner.sweep.results import JobResult, answer_of

_OF_SETUP = frozenset(
    {"sensor", "scope", "joules", "window_s", "energy_precision", "trial_timeout_s", "power_limits"}
)
"""Options that a setup is opened for."""


class RefusedJobsError(InputError):
    """Jobs that cannot be, each with the reason.

    Attributes:
        refused: what is wrong, by the places of the jobs' groups.
    """

    def __init__(self, refused: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(f"{place}: {reason}" for place, reason in refused))
        self.refused = list(refused)


def known_results(jobs: Iterable[SweepJob], store: Store | None, catalog: Catalog) -> dict[str, JobResult]:
    """Results of jobs that a finished run under exactly their conditions has answered, by their keys.

    The device of jobs with the same options is opened once, and closed again.

    A device that cannot be opened, or whose clocks cannot be set, has none: its jobs say so when they run.

    Args:
        jobs: of the sweep.
        store: with stored runs; None where there is no database yet.
        catalog: where their kernels are.

    Raises:
        RefusedJobsError: workloads or devices that are not there, or options that cannot be.
    """
    told = told_conditions(jobs, catalog)
    if told.refused:
        raise RefusedJobsError(told.refused)
    return {} if store is None else answers_under(told.conditions, store)


def request_of(job: SweepJob, kernel_files: Sequence[Path] = ()) -> Request:
    """The request of a job."""
    return Request(workloads=job.workloads, kernel_files=kernel_files, objective=job.objective, **job.options)


def check_options(jobs: Iterable[SweepJob]) -> None:
    """Refuse jobs whose options contradict each other; no device is opened.

    Raises:
        RefusedJobsError: says which.
    """
    refused = _Refusals()
    for job in jobs:
        refused.allows(job, request_of(job).check)
    if refused.reasons:
        raise RefusedJobsError(list(refused.reasons))


def check_workloads(jobs: Iterable[SweepJob], catalog: Catalog) -> None:
    """Refuse jobs whose workloads a catalogue does not have; no device is opened.

    Raises:
        RefusedJobsError: unknown kernels or sizes.
    """
    refused = _Refusals()
    for job in jobs:
        refused.allows(job, partial(catalog.workloads, job.workloads))
    if refused.reasons:
        raise RefusedJobsError(list(refused.reasons))


@dataclass(frozen=True)
class ToldConditions:
    """What the answers of jobs are bound to where a machine's devices run them.

    Attributes:
        conditions: of each job whose device can be opened.
        refused: what cannot be, with the places of the jobs' groups.
    """

    conditions: Sequence[tuple[SweepJob, Conditions]]
    refused: Sequence[tuple[str, str]]


def told_conditions(jobs: Iterable[SweepJob], catalog: Catalog) -> ToldConditions:
    """The conditions of jobs on this machine's devices; see ``known_results``.

    Args:
        jobs: of a sweep.
        catalog: where their kernels are.
    """
    refused = _Refusals()
    found: list[tuple[SweepJob, Conditions]] = []
    alike: dict[str, list[SweepJob]] = defaultdict(list)
    for job in jobs:
        if refused.allows(job, request_of(job).check):
            alike[_setup_key(job)].append(job)
    for group in alike.values():
        refused.allows(group[0], partial(_tell, group, catalog, refused, found))
    return ToldConditions(found, list(refused.reasons))


def answers_under(
    conditions: Iterable[tuple[SweepJob, Conditions]], store: Store, *, same_kind: bool = False
) -> dict[str, JobResult]:
    """Results of jobs that a stored run has answered, by their keys.

    Args:
        conditions: of the jobs.
        store: with stored runs.
        same_kind: a run on another GPU of the kind answers too.
    """
    found: dict[str, JobResult] = {}
    for job, bound in conditions:
        runs = _answered_on_kind(bound, store) if same_kind else store.answered_under(bound)
        run = next((run for run in runs if _is_whole(run, request_of(job))), None)
        if run is not None:
            found[job.key] = JobResult(
                job, "known", run=run.id, answer=answer_of(stored_document(store, run))
            )
    return found


def _answered_on_kind(conditions: Conditions, store: Store) -> Iterator[StoredRun]:
    """Runs with an answer under these conditions on any GPU of the kind, newest first."""
    wanted = of_kind(conditions.record())
    return (run for run in store.answered(conditions.names, None) if of_kind(run.conditions) == wanted)


def of_kind(record: Mapping[str, Any]) -> str:
    """Conditions as text, without what tells GPUs of a kind apart."""
    device = {name: value for name, value in record["device"].items() if name not in ("spec", "uuid")}
    return canonical({**binding(record), "device": device})


class _Refusals:
    """Collects why jobs cannot be, each reason once."""

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], None] = {}

    def allows(self, job: SweepJob, check: Callable[[], object]) -> bool:
        """False where a check of a job fails; ``InputError`` is a reason to refuse it."""
        try:
            check()
        except InputError as error:
            self.reasons[job.place, str(error)] = None
            return False
        except TunerError:  # such as of a device that may answer later
            return False
        return True


def _setup_key(job: SweepJob) -> str:
    """The same text for jobs that are measured on the same setup; a recording has its workloads."""
    recorded = job.workloads if job.device.startswith(PREFIX) else ()
    chosen = {name: value for name, value in job.options.items() if name in _OF_SETUP}
    return canonical([job.device, job.objective, chosen, recorded])


def _tell(
    jobs: Sequence[SweepJob],
    catalog: Catalog,
    refused: _Refusals,
    found: list[tuple[SweepJob, Conditions]],
) -> None:
    """Add the conditions of jobs that are measured on the same setup."""
    with open_setup(jobs[0].device or None, request_of(jobs[0])) as setup:
        for job in jobs:
            refused.allows(job, partial(_add, job, setup, catalog, found))


def _add(
    job: SweepJob, setup: MeasurementSetup, catalog: Catalog, found: list[tuple[SweepJob, Conditions]]
) -> None:
    """Add the conditions of a job on a setup that was opened for its options."""
    request = request_of(job)
    pairs, _ = resolve(catalog, request.workloads, setup.device)
    conditions = conditions_of(
        request,
        prioritised(request, pairs, setup.device),
        setup.device,
        choose_run_clocks(request, setup.clocks, setup.no_clocks),
        asked=asked_batches(catalog, request.workloads, setup.device),
        measuring=setup.measuring,
        power_limits_w=choose_run_limits(request, setup.power_limits, setup.no_power_limits),
    )
    found.append((job, conditions))


def _is_whole(run: StoredRun, request: Request) -> bool:
    """True for a run that ended by itself, or by limits that the request has too."""
    if run.status is RunStatus.FINISHED:
        return True
    enough = request.budget is not None and run.trials >= request.budget
    return run.status is RunStatus.LIMITED and (enough or request.time_limit_s is not None)
