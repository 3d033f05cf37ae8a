"""One tuning run, from workloads to an answer: resume, search, store, choose."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from tuner import registry
from tuner.devices.base import Device
from tuner.measurement.base import Measurer, TrialPool, TrialStore
from tuner.measurement.paired import PairedRepeats
from tuner.model.errors import InputError, PoolLostError, RunInterrupted, StoreError
from tuner.model.objective import Objective
from tuner.model.records import Conditions, RunStatus, fingerprint
from tuner.model.run_document import RunDocument
from tuner.model.trial import Measurement, Trial
from tuner.power.base import SpentEnergy
from tuner.search.answer import (
    SearchOutcome,
    confirm_contenders,
    default_trial,
    final_objective,
    finish_early,
    outcome_of,
)
from tuner.search.driver import Driver
from tuner.search.limits import LimitReachedError
from tuner.search.prior_runs import knowledge
from tuner.search.solo import compare_answer
from tuner.search.solo_bests import SoloBests, find_solo_bests, note_solo_bests
from tuner.search.task import SearchContext, Task
from tuner.search.trial_event import Observer

_WHOLE_SPACE = ("exhaustive", "random")  # policies that end when every trial is measured
_ANALYTICAL_FIRST = ("analytical", "auto", "bayesian")  # policies that begin with the analytical answer


def run(
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
