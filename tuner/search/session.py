"""One tuning run, from a request or open setup to a stored answer."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tuner import registry
from tuner.database.runs import Store, TrialStore
from tuner.devices.base import Device
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import Measurer, TrialPool
from tuner.measurement.paired import PairedRepeats
from tuner.model.errors import InputError, PoolLostError, RunInterrupted, StoreError
from tuner.model.objective import Objective
from tuner.model.plan import Workload
from tuner.model.records import Conditions, RunStatus, WorkloadName, fingerprint
from tuner.model.run_document import RunDocument
from tuner.model.trial import Measurement, Trial
from tuner.power.base import SpentEnergy
from tuner.search import verification
from tuner.search.answer import (
    SearchOutcome,
    confirm_contenders,
    default_trial,
    final_objective,
    finish_early,
    outcome_of,
)
from tuner.search.document import WallTime, document, with_series
from tuner.search.driver import Driver, Observer, TrialEvent
from tuner.search.option_checks import LimitReachedError
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
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.task import SearchContext, Task, knowledge
from tuner.search.together import SoloBests, compare_answer, find_solo_bests, note_solo_bests, solo_best
from tuner.search.verification import NOTHING_TO_VERIFY, verdict, verifiable_answer
from tuner.space.search_view import Policy
from tuner.system.marks import mark
from tuner.system.ownership import BoardTurns

_WHOLE_SPACE = ("exhaustive", "random")  # policies that end when every trial is measured
_ANALYTICAL_FIRST = ("analytical", "auto", "bayesian")  # policies that begin with the analytical answer


def run_task(
    task: Task,
    conditions: Conditions,
    *,
    device: Device,
    measurer: Measurer,
    store: TrialStore,
    observer: Observer,
    tell: Callable[[str], None] = lambda _: None,
    resume: bool = False,
    insisted: bool = False,
    confirm: bool = True,
    spent_before: SpentEnergy | None = None,
    pool: TrialPool | None = None,
    document: Callable[[SearchOutcome], RunDocument],
) -> SearchOutcome:
    """Search, store and choose.

    The default trial is measured first, then every workload at its solo best, then the policy's trials. Under
    ``max_slowdown`` a time search comes before and fixes the reference; its measurements serve the second
    search too.

    Args:
        task: what to do.
        device: where trials run.
        measurer: measures one trial; closed by the caller.
        store: every trial goes there as it ends.
        conditions: what the answer is bound to.
        observer: told after every trial.
        tell: hears at once what the policy says of itself; each sentence is a notice of the outcome too.
        resume: continue the newest unfinished run under the same conditions.
        insisted: whether a user asked to resume: what has finished is not begun again, and a new run is told.
        confirm: whether contenders are measured again, and the answer compared.
        spent_before: what runs before this one cost on the same open meter.
        pool: measures lists of trials on several GPUs; None where the device is all there is.
        document: makes the stored answer from the outcome.

    Returns:
        The outcome; also after Ctrl-C, with status ``interrupted``.

    Raises:
        InputError: the run to resume has finished, or another process is measuring it.
    """
    with _ended_in_any_case(store) as taken:
        begun = time.monotonic()
        notices: list[str] = []
        told: dict[str, None] = {}
        run_id = store.resume(conditions, taken.append) if resume else None
        new = resume and insisted and run_id is None
        if new:
            _refuse_finished(store, conditions, task)
        known = [] if run_id is None else store.trials(run_id, conditions.names)
        run_id = store.begin(conditions, taken.append) if run_id is None else run_id
        driver = Driver(
            prepared=task.prepared,
            compilation=task.compilation,
            default=default_trial(task),
            device=device,
            measurer=measurer,
            store=store,
            run_id=run_id,
            limits=task.limits,
            observer=observer,
            pool=pool,
            measures_end=confirm and not device.identity.recorded and Objective(task.objective).needs_energy,
        )

        def tell_once(sentence: str) -> None:
            if sentence not in told:
                told[sentence] = None
                tell(sentence)

        if new:
            tell_once(
                "--resume: no unfinished run has these workloads, options, driver and sources on this GPU"
                " (`tuner history` lists runs): this is a new one"
            )
        context = SearchContext(
            device.identity,
            device.limits,
            lambda name: knowledge(store, run_id, task.prepared, device.identity, name),
            tell_once,
        )
        status = RunStatus.FAILED
        paired, confirmed, co_run = PairedRepeats(), dict[Trial, Measurement](), None
        solo = SoloBests()
        try:
            driver.recall(known)
            solo = find_solo_bests(task, conditions, store)
            limit = _search(task, driver, context, solo.trial)
            if confirm and not device.identity.recorded:
                limit, paired, confirmed = _confirm(task, driver, solo.trial, limit)
                co_run = compare_answer(task, driver, paired, confirmed)
            if limit is not None:
                notices.append(f"stopped: {limit}")
            status = RunStatus.FINISHED if limit is None else RunStatus.LIMITED
        except (KeyboardInterrupt, RunInterrupted) as order:
            status = RunStatus.INTERRUPTED
            driver.reload()
            notices += [str(order)] if isinstance(order, PoolLostError) else []
            notices.append("interrupted: this is what was known; --resume goes on from here")
        finally:
            task.compilation.close()
            outcome = outcome_of(status, task, driver, paired, confirmed)
            outcome.notices[:0] = [*told, *notices, *driver.notices]
            note_solo_bests(outcome, solo)
            outcome.resumed, outcome.co_run, outcome.run = len(known), co_run, run_id
            outcome.wall_s = time.monotonic() - begun
            spent = driver.spent()
            outcome.spent = spent if spent is None or spent_before is None else spent.since(spent_before)
            store.end(run_id, status, None if outcome.answer is None else document(outcome))
            taken.clear()
        return outcome


@contextmanager
def _ended_in_any_case(store: TrialStore) -> Iterator[list[int]]:
    """Numbers of runs that were taken; one that is still there when an interrupt comes through is ended."""
    taken: list[int] = []
    try:
        yield taken
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | RunInterrupted)
        for number in taken[-1:]:
            with suppress(StoreError):  # what came before is told
                store.end(number, RunStatus.INTERRUPTED if stopped else RunStatus.FAILED, None)
        raise


def _refuse_finished(store: TrialStore, conditions: Conditions, task: Task) -> None:
    runs = store.answered(conditions.names, conditions.objective, conditions.device.uuid)
    wanted = fingerprint(conditions.record())
    same = (run for run in runs if fingerprint(run.conditions) == wanted)
    ended = next((run for run in same if run.status is RunStatus.FINISHED), None)
    if ended is not None:
        task.compilation.close()
        raise InputError(
            f"--resume: there is nothing to resume: run {ended.id} has finished under these conditions"
            f" (`tuner show {ended.id}`); leave --resume out to measure again"
        )


def _search(
    task: Task, driver: Driver, context: SearchContext, solo_bests: Trial | None
) -> LimitReachedError | None:
    """Run the search or searches of a task; returns the limit that ended them early."""
    kind = "front" if Objective(task.objective).is_front else "policy"
    policy = task.strategy or partial(registry.load(kind, task.policy), **task.options)
    if task.steers_clocks and not task.kept:
        policy = partial(registry.load("clocks", "steered"), inner=policy)
    whole = task.policy in _WHOLE_SPACE and not task.steers_clocks
    if task.power_limits_w and not whole and not task.kept and kind == "policy":
        policy = partial(registry.load("power-limits", "limited"), inner=policy)
    objective = Objective("time" if task.max_slowdown is not None else task.objective)
    search = task.search(objective, {}, context)
    expected = search.listed if whole else None
    if task.policy in _ANALYTICAL_FIRST and task.strategy is None:
        search.expect(registry.load("explain", "first")(search))
    try:
        driver.prepare_pool()
        driver.measure(default_trial(task), objective, expected)
        with task.compilation.within(task.limits):
            if solo_bests is not None:
                driver.measure(solo_bests, objective, expected, whole=True)  # the answer is held against it
            driver.search(policy, search, objective, expected)
            if task.max_slowdown is not None:
                driver.reference_s = driver.fastest_s()
                objective = final_objective(task, driver)
                search = task.search(objective, driver.asked, context)
                driver.search(policy, search, objective, expected)
    except LimitReachedError as limit:
        return limit
    return None


def _confirm(
    task: Task, driver: Driver, solo_bests: Trial | None, limit: LimitReachedError | None
) -> tuple[LimitReachedError | None, PairedRepeats, dict[Trial, Measurement]]:
    """Repeat the contenders while there is time for it; returns the limit that ended search or repeats."""
    if limit is None or not limit.out_of_time:
        try:
            return limit, *confirm_contenders(task, driver, solo_bests)
        except LimitReachedError as reached:
            limit = reached
    return limit, *finish_early(task, driver)


# --- From an open setup to a stored answer: what ``tuner run`` and the daemon's jobs have in common.


class ProgressListener(Protocol):
    """Hears how a run comes on."""

    def compiled(self, done: int, total: int) -> None:
        """So many of the configurations are compiled that were asked for so far; more may be."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended."""

    def told(self, sentence: str) -> None:
        """Take a message of the policy on itself."""


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
    outcome = run_task(
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
    """Return the reason that a run has no best trial; empty if it has one."""
    if tuned.outcome.answer is not None:
        return ""
    if all(not measurement.ok for _, measurement in tuned.outcome.trials):
        return "no trial was valid; the lines above name what failed"
    return (
        f"no valid trial has an energy: the sensor {tuned.measuring['sensor']} gave too little for a window"
        f" of {tuned.measuring['window_s']:g} s; choose a longer --window, or --objective time"
    )


# --- A run from a request to its result, with all that it opens: what ``tuner run`` and ``tuner.tune`` do.


class SetupOpener(Protocol):
    """Opens what a run measures with, as ``open_setup`` does."""

    def __call__(
        self,
        device_spec: str | None,
        request: Request,
        warming: Callable[[float, float], None] | None = None,
        *,
        allow_simulated: bool = False,
        turns: BoardTurns | None = None,
    ) -> AbstractContextManager[MeasurementSetup]:
        """See ``open_setup``."""


class RunListener(ProgressListener, Protocol):
    """Hears how a run comes on, its warm-up too."""

    def warming(self, watts: float, seconds: float) -> None:
        """A window of the warm-up has ended: its mean power, and seconds since the warm-up began."""


def run_request(
    request: Request,
    catalog: Catalog,
    listener: RunListener,
    *,
    device: str | None = None,
    database: Path | None = None,
    resume: bool = False,
    insisted: bool = True,
    allow_simulated: bool = False,
    exclusive_board: bool = False,
    opened: Callable[[MeasurementSetup], None] = lambda _: None,
    opener: SetupOpener = open_setup,
) -> TuningResult:
    """Open the database and the device, tune, and close them on every way out, clocks first.

    What the user should know of the device is told before anything is searched.

    Args:
        request: what is asked for; checked here.
        catalog: where its kernels are.
        listener: hears how it comes on.
        device: see ``open_device``.
        database: None for the user's own.
        resume: continue the newest unfinished run under the same conditions.
        insisted: whether it is a user who wants to resume, see ``session.run``.
        allow_simulated: see ``open_device``.
        exclusive_board: take turns with runs on other GPUs of this host with a database in this folder.
        opened: is handed the open device before the search begins.
        opener: opens it; that of a pool where trials are measured on several GPUs.

    Raises:
        InputError: kernels, sizes or options that cannot be, or the run to resume has finished.
        DeviceUnavailableError: the device cannot be opened.
        ClockError: clocks were asked for that cannot be set.
        KeyboardInterrupt, RunInterrupted: it was interrupted before it had a result.
    """
    request.check()
    ended: list[TuningResult] = []
    try:
        with ExitStack() as stack:
            store = stack.enter_context(Store(database))
            turns = stack.enter_context(BoardTurns(store.path.parent)) if exclusive_board else None
            setup = stack.enter_context(
                opener(device, request, listener.warming, allow_simulated=allow_simulated, turns=turns)
            )
            for notice in setup.notices:
                listener.told(notice)
            opened(setup)
            tuned = tune(setup, request, catalog, store, listener, resume=resume, insisted=insisted)
            ended.append(replace(tuned, told=[*setup.notices, *tuned.told]))
    except (KeyboardInterrupt, RunInterrupted):
        if not ended:  # else only the closing was interrupted
            raise
    return ended[0]
