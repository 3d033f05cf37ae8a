"""Stored answers that jobs of a sweep need not be run for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tuner.config.catalog import Catalog
from tuner.database import Store
from tuner.devices.replay import PREFIX
from tuner.errors import InputError, TunerError
from tuner.model import RunStatus
from tuner.model.records import StoredRun, canonical
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
from tuner.sweep.lane import request_of
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
    refused = _Refused()
    alike: dict[str, list[SweepJob]] = defaultdict(list)
    for job in jobs:
        if refused.allows(job, request_of(job).check):
            alike[_setup_key(job)].append(job)
    found: dict[str, JobResult] = {}
    for group in alike.values():
        refused.allows(group[0], partial(_search, group, store, catalog, refused, found))
    if refused.reasons:
        raise RefusedJobsError(list(refused.reasons))
    return found


class _Refused:
    """Collects why jobs cannot be, each reason once."""

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], None] = {}

    def allows(self, job: SweepJob, check: Callable[[], None]) -> bool:
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


def _search(
    jobs: Sequence[SweepJob],
    store: Store | None,
    catalog: Catalog,
    refused: _Refused,
    found: dict[str, JobResult],
) -> None:
    """Find the results of jobs that are measured on the same setup."""
    with open_setup(jobs[0].device or None, request_of(jobs[0])) as setup:
        for job in jobs:
            refused.allows(job, partial(_find, job, setup, store, catalog, found))


def _find(
    job: SweepJob,
    setup: MeasurementSetup,
    store: Store | None,
    catalog: Catalog,
    found: dict[str, JobResult],
) -> None:
    """Find the result of a job, where there is one."""
    if store is None:
        resolve(catalog, job.workloads, setup.device)
        return
    run = stored_run(job, setup, store, catalog)
    if run is not None:
        answer = answer_of(stored_document(store, run))
        found[job.key] = JobResult(job, "known", run=run.id, answer=answer)


def stored_run(job: SweepJob, setup: MeasurementSetup, store: Store, catalog: Catalog) -> StoredRun | None:
    """The newest run that answers a job as a new one would: same conditions, and not cut short before.

    Args:
        job: of a sweep.
        setup: opened for its options.
        store: with stored runs.
        catalog: where its kernels are.

    Raises:
        InputError: a workload or an option that cannot be.
    """
    request = request_of(job)
    pairs, _ = resolve(catalog, request.workloads, setup.device)
    pairs = prioritised(request, pairs, setup.device)
    conditions = conditions_of(
        request,
        pairs,
        setup.device,
        choose_run_clocks(request, setup.clocks, setup.no_clocks),
        asked=asked_batches(catalog, request.workloads, setup.device),
        measuring=setup.measuring,
        power_limits_w=choose_run_limits(request, setup.power_limits, setup.no_power_limits),
    )
    return next((run for run in store.answered_under(conditions) if _is_whole(run, request)), None)


def _is_whole(run: StoredRun, request: Request) -> bool:
    """True for a run that ended by itself, or by limits that the request has too."""
    if run.status is RunStatus.FINISHED:
        return True
    enough = request.budget is not None and run.trials >= request.budget
    return run.status is RunStatus.LIMITED and (enough or request.time_limit_s is not None)
