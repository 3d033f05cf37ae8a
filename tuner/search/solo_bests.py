"""Every workload at its solo best, as one trial: what tuning the workloads together is held against."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tuner.database.answers import StoredAnswer, stored_answer
from tuner.database.ranking import AnswerQuery, served_answer
from tuner.measurement.base import TrialStore
from tuner.model.plan import STREAM_PRIORITY, Configuration, Workload, with_priority
from tuner.model.records import Conditions, RunStatus, StoredRun
from tuner.model.trial import Trial
from tuner.search.answer import SearchOutcome, default_trial
from tuner.search.task import Task


@dataclass(frozen=True)
class SoloBests:
    """The solo bests of workloads that run together.

    Attributes:
        trial: all of them together; None where one is missing, and for a lone workload.
        runs: numbers of the runs that they are from, in the order of the workloads.
        limited: workloads whose search alone a budget or a time limit has ended.
        missing: why there is no such trial; empty where there is one, and for a lone workload.
    """

    trial: Trial | None = None
    runs: tuple[int, ...] = ()
    limited: tuple[str, ...] = ()
    missing: str = ""


def solo_best(
    store: TrialStore, workload: Workload, conditions: Conditions, *, least_trials: int = 1
) -> StoredAnswer | None:
    """The stored answer of a workload alone under the conditions of a run with others; None without one.

    Objective, batch, choice of clocks and power limits, GPU, driver and sources are those of that run. Of
    several answers the one is taken that ``tuner best`` serves.

    Args:
        store: the database.
        workload: with its batch in the run.
        conditions: of the run.
        least_trials: that a search must have measured which a budget or a time limit has ended.
    """
    query = AnswerQuery((workload,), {}, conditions.sources, conditions.objective, conditions.device)
    runs = store.answered([str(workload)], conditions.objective, conditions.device.uuid)
    served = served_answer(query, _answers(runs, workload, conditions, least_trials), fresh=True)
    return None if served is None else served.answer


def _answers(
    runs: Iterable[StoredRun], workload: Workload, conditions: Conditions, least_trials: int
) -> Iterator[StoredAnswer]:
    for run in runs:
        limited = run.status is RunStatus.LIMITED and run.trials >= least_trials
        answer = stored_answer(run) if limited or run.status is RunStatus.FINISHED else None
        if answer is None or answer.batches[str(workload)] != workload.batch:
            continue
        limits = run.conditions.get("settings", {}).get("power_limits_w")
        if answer.conditions["clocks"] == conditions.clocks and limits == conditions.settings.get(
            "power_limits_w"
        ):
            yield answer


def find_solo_bests(task: Task, conditions: Conditions, store: TrialStore) -> SoloBests:
    """The trial of the stored solo bests; together they run at the highest clock and power limit of them.

    The priorities of their streams are alike.

    Args:
        task: what is searched.
        conditions: of the run.
        store: the database.
    """
    if len(task.prepared) == 1 or conditions.device.recorded:
        return SoloBests()
    found = {item.workload: solo_best(store, item.workload, conditions) for item in task.prepared}
    without = [workload for workload, answer in found.items() if answer is None]
    if without:
        return SoloBests(missing=_not_tuned_alone(without, len(found)))
    answers = [answer for answer in found.values() if answer is not None]
    configurations: list[Configuration] = []
    for item, answer in zip(task.prepared, answers, strict=True):
        configuration = Configuration(answer.configurations[str(item.workload)])
        if STREAM_PRIORITY in item.space.tunables:
            configuration = with_priority(configuration, 0)
        plan = item.plan(configuration)
        if plan is None:
            missing = f"the solo best of {item.workload} (run {answer.run}) is not in the space of this run"
            return SoloBests(missing=missing)
        configurations.append(plan.configuration)
    default = default_trial(task)
    clocks = [answer.clock_mhz for answer in answers if answer.clock_mhz in task.clocks_mhz]
    limits = [answer.power_limit_w for answer in answers if answer.power_limit_w in task.power_limits_w]
    trial = Trial(
        tuple(configurations),
        max(filter(None, clocks), default=default.clock_mhz),
        max(filter(None, limits), default=default.power_limit_w),
    )
    limited = tuple(str(workload) for workload, answer in found.items() if answer and not answer.finished)
    return SoloBests(trial, tuple(answer.run for answer in answers), limited)


def _not_tuned_alone(without: Sequence[Workload], count: int) -> str:
    names = "any workload" if len(without) == count else ", ".join(map(str, without))
    return (
        f"no answer of {names} alone is stored for this batch and these conditions; --solo-bests N finds one"
    )


def note_solo_bests(outcome: SearchOutcome, solo: SoloBests) -> None:
    """Put into an outcome which trial has the solo bests, or why none has.

    Args:
        outcome: of the run.
        solo: what was to be measured.
    """
    places = {trial: place for place, (trial, _) in enumerate(outcome.trials)}
    outcome.solo_best_runs, outcome.no_solo_bests = solo.runs, solo.missing
    outcome.limited_solo_bests = solo.limited
    if solo.trial is None:
        return
    outcome.solo_bests = places.get(solo.trial)
    if outcome.solo_bests is None and len(outcome.trials) > 1:  # they come after the default
        outcome.no_solo_bests = "compiled resources rule out one of them in this run"
    elif outcome.solo_bests is None:
        outcome.no_solo_bests = "the run ended before they were measured"
