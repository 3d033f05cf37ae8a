"""One tuning run, from workloads to an answer: resume, search, store, choose."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tuner import registry
from tuner.errors import RunInterrupted
from tuner.interfaces import Device, Measurer, Policy, TrialStore
from tuner.measurement.paired import ASSUMED_REPEATABILITY, PairedRepeats, Repeatability, near, repeatability
from tuner.measurement.window import MOST_S
from tuner.model import Measurement, RunStatus, Trial
from tuner.model.objective import COVERAGE, Objective, choose
from tuner.model.records import Conditions
from tuner.search.driver import Driver, LimitReachedError, Observer
from tuner.search.prior_runs import knowledge
from tuner.search.task import SearchContext, Task, default_configuration

_CONTENDERS = 4  # of lowest cost, confirmed beside the default trial and the fastest
_NOTABLY = 1.05  # times what was asked for: less would be the same in two digits
_WHOLE_SPACE = ("exhaustive", "random")  # policies that end when every trial is measured


@dataclass
class SearchOutcome:
    """What a run found.

    Attributes:
        status: how it ended.
        trials: all trials in the order they were measured; contenders with their fresh repeats.
        measurements: every measurement of this process.
        windows_s: measuring windows of this process, those repeated for a throttled GPU too.
        joules: what the tuning cost, in a killed run too.
        answer: index of the answer in ``trials``; None when no trial was valid.
        default: index of the default trial; None when it was not reached.
        fastest: index of the trial with the shortest makespan; None when no trial was valid.
        objective: with the slowdown limit in force.
        resumed: trials that came from an earlier, killed run.
        wall_s: wall-clock time of the search.
        paired: the paired repeats of the contenders.
        repeatability: how well trials repeat, by the name of an objective; without those not known.
        notices: what the user should know.
    """

    status: RunStatus
    trials: list[tuple[Trial, Measurement]]
    measurements: tuple[Measurement, ...]
    windows_s: float
    joules: float
    answer: int | None
    default: int | None
    fastest: int | None
    objective: Objective
    resumed: int = 0
    wall_s: float = 0.0
    paired: PairedRepeats = field(default_factory=PairedRepeats)
    repeatability: Mapping[str, Repeatability] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


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
    document: Callable[[SearchOutcome], dict[str, Any]],
) -> SearchOutcome:
    """Search, store and choose.

    The default trial is measured first, then the policy's. Under ``max_slowdown`` a time search comes
    before and fixes the reference; its measurements serve the second search too.

    Args:
        task: what to do.
        device: where trials run.
        measurer: measures one trial; closed by the caller.
        store: every trial goes there as it ends.
        conditions: what the answer is bound to.
        observer: told after every trial.
        tell: hears at once what the policy says of itself; each sentence is a notice of the outcome too.
        resume: continue the newest unfinished run under the same conditions.
        document: makes the stored answer from the outcome.

    Returns:
        The outcome; also after Ctrl-C, with status ``interrupted``.
    """
    begun = time.monotonic()
    notices: list[str] = []
    told: dict[str, None] = {}
    run_id = store.resume(conditions) if resume else None
    if resume and run_id is None:
        notices.append("nothing to resume under these conditions: this is a new run")
    known = [] if run_id is None else store.trials(run_id, conditions.names)
    run_id = store.begin(conditions) if run_id is None else run_id
    driver = Driver(
        prepared=task.prepared,
        device=device,
        measurer=measurer,
        store=store,
        run_id=run_id,
        limits=task.limits,
        observer=observer,
    )

    def tell_once(sentence: str) -> None:
        if sentence not in told:
            told[sentence] = None
            tell(sentence)

    context = SearchContext(
        device.identity,
        device.limits,
        lambda name: knowledge(store, run_id, task.prepared, device.identity, name),
        tell_once,
    )
    status = RunStatus.FAILED
    paired, confirmed = PairedRepeats(), dict[Trial, Measurement]()
    try:
        driver.recall(known)
        limit = _search(task, driver, context)
        if not device.identity.recorded and (limit is None or not limit.out_of_time):
            paired, confirmed = _confirm(task, driver)
        if limit is not None:
            notices.append(f"stopped: {limit}")
        status = RunStatus.FINISHED if limit is None else RunStatus.LIMITED
    except (KeyboardInterrupt, RunInterrupted):
        status = RunStatus.INTERRUPTED
        driver.reload()
        notices.append("interrupted: this is what was known; --resume goes on from here")
    finally:
        outcome = _outcome(status, task, driver, paired, confirmed)
        outcome.notices[:0] = [*told, *notices, *driver.notices]
        outcome.resumed = len(known)
        outcome.wall_s = time.monotonic() - begun
        store.end(run_id, status, None if outcome.answer is None else document(outcome))
    return outcome


def _search(task: Task, driver: Driver, context: SearchContext) -> LimitReachedError | None:
    """Run the search or searches of a task; returns the limit that ended them early."""
    policy: Policy = partial(registry.load("policy", task.policy), **task.options)
    objective = Objective("time" if task.max_slowdown is not None else task.objective)
    search = task.search(objective, {}, context)
    expected = search.size if task.policy in _WHOLE_SPACE else None
    try:
        driver.measure(_default_trial(task), objective, expected)
        driver.search(policy, search, objective, expected)
        if task.max_slowdown is not None:
            driver.reference_s = driver.fastest_s()
            objective = _final_objective(task, driver)
            search = task.search(objective, driver.asked, context)
            driver.search(policy, search, objective, expected)
    except LimitReachedError as limit:
        return limit
    return None


def _final_objective(task: Task, driver: Driver) -> Objective:
    """The task's objective, limited to the allowed slowdown against the reference (or the fastest so far)."""
    if task.max_slowdown is None:
        return Objective(task.objective)
    reference_s = driver.fastest_s() if driver.reference_s is None else driver.reference_s
    return Objective(task.objective, limit_s=reference_s * (1 + task.max_slowdown))


def _default_trial(task: Task) -> Trial:
    clock = task.clocks_mhz[0] if task.clocks_mhz else None
    return Trial(tuple(default_configuration(item) for item in task.prepared), clock)


def _confirm(task: Task, driver: Driver) -> tuple[PairedRepeats, dict[Trial, Measurement]]:
    """Fresh repeats for the contenders: the default trial, the fastest, and those of lowest cost."""
    objective = _final_objective(task, driver)
    valid = [(trial, m) for trial, m in driver.trials if math.isfinite(Objective("time").cost(m))]
    if not valid:
        return PairedRepeats(), {}
    by_cost = sorted(valid, key=lambda pair: objective.cost(pair[1]))
    fastest = min(valid, key=lambda pair: Objective("time").cost(pair[1]))
    default = [pair for pair in valid if pair[0] == _default_trial(task)]
    contenders = dict([*default, fastest, *by_cost[:_CONTENDERS]])
    return driver.confirm(tuple(contenders), objective, task.precision)


def _outcome(
    status: RunStatus,
    task: Task,
    driver: Driver,
    paired: PairedRepeats,
    confirmed: Mapping[Trial, Measurement],
) -> SearchOutcome:
    """The answer among the confirmed trials; among all where the run was stopped before."""
    trials = [(trial, confirmed.get(trial, measurement)) for trial, measurement in driver.trials]
    places = {trial: place for place, (trial, _) in enumerate(trials)}
    objective = _final_objective(task, driver)
    searched = dict(driver.trials)
    found = {name: repeatability(searched, paired, Objective(name)) for name in ("energy", "time")}

    def chosen(objective: Objective) -> int | None:
        if not paired.repeats:
            return choose(objective, trials, ASSUMED_REPEATABILITY)
        rivals = [places[trial] for trial in paired.rivals(objective)]
        return min(rivals, key=lambda i: trials[i][1].makespan_s or 0.0, default=None)

    answer = chosen(objective)
    return SearchOutcome(
        status=status,
        trials=trials,
        measurements=driver.measurements,
        windows_s=driver.windows_s,
        joules=driver.joules,
        answer=answer,
        default=places.get(_default_trial(task)),
        fastest=chosen(Objective("time")),
        objective=objective,
        paired=paired,
        repeatability={name: one for name, one in found.items() if one is not None},
        notices=[
            *_power_limited(trials),
            *_tie(objective, searched, paired),
            *_imprecise(task, None if answer is None else trials[answer][1]),
        ],
    )


def _tie(objective: Objective, searched: Mapping[Trial, Measurement], paired: PairedRepeats) -> list[str]:
    """A notice where more than one trial may have the lowest cost, contenders and others apart."""
    rivals = paired.rivals(objective)
    if not objective.needs_energy or not rivals:
        return []
    notices = []
    if len(rivals) > 1:
        notices.append(
            f"tie: {len(rivals)} contenders may cost least, by 95 % intervals of their costs turn by turn;"
            " the answer is the fastest of them"
        )
    again = repeatability(searched, paired, objective)
    others = 0 if again is None else near(searched, paired, objective, again)
    if again is not None and others:
        notices.append(
            f"near: {others} trials that were measured once are so close to the lowest cost that they may be"
            f" below it: trials repeat to ± {100 * again.interval:.2g} %"
        )
    return notices


def _imprecise(task: Task, answer: Measurement | None) -> list[str]:
    """A notice where the answer's joules are less sure than was asked for."""
    energy = None if answer is None else answer.energy
    if energy is None or energy.joules <= 0 or not Objective(task.objective).needs_energy:
        return []
    if any(item.recorded for item in task.prepared):
        return []  # no longer window can be had
    reached = COVERAGE * energy.uncertainty_j / energy.joules
    if reached <= _NOTABLY * task.precision:
        return []
    notice = (
        f"precision: asked for ± {100 * task.precision:.2g} % of the answer's joules, reached"
        f" ± {100 * reached:.2g} %; windows are {MOST_S:g} s at most, longer ones only by --window"
    )
    return [notice]


def _power_limited(trials: Sequence[tuple[Trial, Measurement]]) -> list[str]:
    """A notice where most trials ran into the power limit: there, energy follows time."""
    valid = [measurement for _, measurement in trials if measurement.ok]
    capped = [measurement for measurement in valid if measurement.at_power_limit]
    if len(capped) * 2 <= len(valid):
        return []
    notice = (
        f"power-limited: {len(capped)} of {len(valid)} trials ran at the GPU's power limit, where energy is"
        " little more than limit times time; lower clocks (--clocks) leave the limit"
    )
    return [notice]
