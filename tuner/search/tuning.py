"""From an open setup to a stored answer: what ``tuner run`` and the daemon's jobs have in common."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import TrialStore
from tuner.model.errors import InputError, RunInterrupted
from tuner.model.plan import Workload
from tuner.model.records import Conditions, RunStatus
from tuner.model.run_document import RunDocument
from tuner.model.trial import Trial
from tuner.model.workload_name import WorkloadName
from tuner.search import session, verification
from tuner.search.answer import SearchOutcome
from tuner.search.document import WallTime, document
from tuner.search.request import (
    Request,
    asked_batches,
    choose_run_clocks,
    choose_run_limits,
    conditions_of,
    make_task,
    prioritised,
    resolve,
)
from tuner.search.setup import MeasurementSetup
from tuner.search.solo_bests import solo_best
from tuner.search.trial_event import TrialEvent
from tuner.search.trial_series import with_series
from tuner.search.verification import NOTHING_TO_VERIFY, verdict, verifiable_answer
from tuner.space.search_view import Policy
from tuner.system.marks import mark


class ProgressListener(Protocol):
    """Hears how a run comes on."""

    def compiled(self, done: int, total: int) -> None:
        """So many of the configurations are compiled that were asked for so far; more may be."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended."""

    def told(self, sentence: str) -> None:
        """What the policy says of itself."""


@dataclass(frozen=True)
class Strategy:
    """A search strategy of the caller's.

    Attributes:
        name: in the place of a policy's.
        settings: what a run that is gone on with must have the same.
        policy: the strategy.
        named: its trials, where they are named before anything is measured; all are measured again at last.
    """

    name: str
    settings: Mapping[str, Any]
    policy: Policy
    named: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class TuningResult:
    """A run that has ended.

    Attributes:
        document: as ``--json`` has it, with its trials.
        outcome: what was found.
        measuring: sensor and window.
        told: what the policy said of itself.
    """

    document: RunDocument
    outcome: SearchOutcome
    measuring: Mapping[str, Any]
    told: list[str]


def tune(
    setup: MeasurementSetup,
    request: Request,
    catalog: Catalog,
    store: TrialStore,
    listener: ProgressListener,
    *,
    resume: bool,
    insisted: bool = False,
    strategy: Strategy | None = None,
    confirm: bool = True,
) -> TuningResult:
    """Search, compiling what is looked at, store and choose.

    With ``solo_bests`` each workload is tuned alone before, as a run of its own, where no such answer is
    stored.

    Args:
        setup: opened for the request.
        request: what is asked for.
        catalog: where its kernels are.
        store: every trial goes there as it ends, and the answer.
        listener: hears how it comes on.
        resume: continue the newest unfinished run under the same conditions.
        insisted: whether it is a user who wants to resume, see ``session.run``.
        strategy: searches in the place of the request's policy.
        confirm: whether contenders are measured again.

    Raises:
        InputError: kernels, sizes or options that cannot be, or the run to resume has finished.
        ClockError: clocks or power limits were asked for that cannot be set.
        RunInterrupted: it was interrupted while a workload was tuned alone.
    """
    spent_before = setup.measurer.spent() if setup.measurer.windows_s else None  # an earlier run's
    pairs, notices = resolve(catalog, request.workloads, setup.device)
    pairs = prioritised(request, pairs, setup.device)
    clocks_mhz = choose_run_clocks(request, setup.clocks, setup.no_clocks)
    power_limits_w = choose_run_limits(request, setup.power_limits, setup.no_power_limits)
    conditions = conditions_of(
        request,
        pairs,
        setup.device,
        clocks_mhz,
        asked=asked_batches(catalog, request.workloads, setup.device),
        measuring=setup.measuring,
        power_limits_w=power_limits_w,
    )
    verified = verifiable_answer(store, conditions) if request.verify and strategy is None else None
    if verified is not None:
        strategy = Strategy(verification.POLICY, verified.settings, verified.trials, (verified.answer,))
    if strategy is not None:
        settings = {**conditions.settings, **strategy.settings}
        conditions = replace(conditions, policy=strategy.name, settings=settings)
    if request.solo_bests is not None:
        workloads = [workload for _, workload in pairs]
        alone = _tune_alone(
            setup, request, catalog, store, listener, conditions=conditions, workloads=workloads
        )
        spent_before = setup.measurer.spent() if alone else spent_before
    begun = time.monotonic()
    mark("compile")
    task = make_task(
        request, pairs, setup.device, clocks_mhz, listener.compiled, power_limits_w=power_limits_w
    )
    task = replace(task, parallel=1 if setup.pool is None else setup.pool.parallel)
    if strategy is not None:
        task = replace(task, policy=strategy.name, strategy=strategy.policy, kept=strategy.named)
    prepare_s = time.monotonic() - begun

    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        listener.told(sentence)

    def describe(outcome: SearchOutcome, *, with_trials: bool = False) -> RunDocument:
        timing = WallTime(prepare_s, outcome.wall_s)
        made = document(task, conditions, outcome, timing, with_trials=with_trials)
        made["verification"] = None if verified is None else verdict(verified, outcome, task.precision)
        return made

    if request.verify and verified is None:
        tell(NOTHING_TO_VERIFY)
    outcome = session.run(
        task,
        conditions,
        device=setup.device,
        measurer=setup.measurer,
        store=store,
        observer=listener.measured,
        tell=tell,
        resume=resume,
        insisted=insisted,
        confirm=confirm,
        spent_before=spent_before,
        pool=setup.pool,
        document=describe,
    )
    outcome.notices[:0] = [*setup.notices, *notices]
    if verified is not None:
        tell(verdict(verified, outcome, task.precision)["told"])
    return TuningResult(describe(outcome, with_trials=True), outcome, setup.measuring, told)


def _tune_alone(
    setup: MeasurementSetup,
    request: Request,
    catalog: Catalog,
    store: TrialStore,
    listener: ProgressListener,
    *,
    conditions: Conditions,
    workloads: Sequence[Workload],
) -> int:
    """Tune each workload alone that has no stored answer of its own; returns how many were tuned."""
    if conditions.device.recorded:
        raise InputError(f"--solo-bests: {conditions.device.spec} was measured already; leave the option out")
    if len(workloads) == 1:
        raise InputError(f"--solo-bests: {workloads[0]} is alone; name the workloads that run with it")
    most = request.solo_bests or 1
    missing = [one for one in workloads if solo_best(store, one, conditions, least_trials=most) is None]
    for workload in missing:
        spec = str(WorkloadName.parse(str(workload)).with_batch(workload.batch))
        listener.told(f"solo bests: {spec} is tuned alone, within {most} trials")
        alone = replace(request, workloads=(spec,), budget=most, solo_bests=None, stream_priorities=1)
        tuned = tune(setup, alone, catalog, store, listener, resume=True)
        if tuned.outcome.status is RunStatus.INTERRUPTED:
            raise RunInterrupted(
                f"interrupted while {spec} was tuned alone; the same command goes on from here"
            )
    return len(missing)


def with_trial_series(tuned: TuningResult) -> RunDocument:
    """The document of a run, its trials with what the search saw of them and power over time."""
    return with_series(tuned.document, tuned.outcome)


def no_answer(tuned: TuningResult) -> str:
    """Why a run has no best trial; empty where it has one."""
    if tuned.outcome.answer is not None:
        return ""
    if all(not measurement.ok for _, measurement in tuned.outcome.trials):
        return "no trial was valid; the lines above name what failed"
    return (
        f"no valid trial has an energy: the sensor {tuned.measuring['sensor']} gave too little for a window"
        f" of {tuned.measuring['window_s']:g} s; choose a longer --window, or --objective time"
    )
