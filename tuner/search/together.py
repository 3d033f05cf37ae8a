"""Workloads alone against together: solo times, solo bests, and balanced batches."""

import math
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypedDict, TypeVar

from tuner.database.answers import StoredAnswer, stored_answer
from tuner.database.ranking import AnswerQuery, served_answer
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.sizes import SizeValues
from tuner.measurement.paired import CoRunComparison, PairedRepeats, Ratio, compared
from tuner.model.errors import DeviceError, InputError
from tuner.model.objective import PARETO, Objective
from tuner.model.plan import PLACE, Configuration, Plan, TunableValue, Workload, with_place
from tuner.model.records import Conditions, RunStatus, StoredRun
from tuner.model.run_document import (
    Changes,
    CoRunDocument,
    CoRunTotals,
    Device,
    PriorityChanges,
    device_document,
)
from tuner.model.trial import ASSUMED, Measurement, Trial, WindowScatter, stated
from tuner.search.answer import Outcome
from tuner.search.candidates import PreparedWorkload, fit_batches
from tuner.search.plan import SearchPlan, resolve
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup

# --- The answer's workloads each alone, in turn with the co-run: what running them together brings.

_REPEATS, _REPEATS_WITH_JOULES = 3, 2  # windows for joules are long


_Item = TypeVar("_Item", bound=Hashable)


def in_turn(
    items: Sequence[_Item], measure: Callable[[_Item], Measurement], may_go_on: Callable[[], bool]
) -> list[dict[_Item, Measurement]]:
    """Paired repeats of some items, measured now.

    Every other repeat goes in reverse order, so that a steady drift cancels. It ends early, with the repeats
    that are complete, when there is no time left.

    Returns:
        The repeats; none where something failed.
    """
    turns: list[dict[_Item, Measurement]] = []
    order, most = list(items), _REPEATS
    while len(turns) < most:
        turn: dict[_Item, Measurement] = {}
        for item in order:
            if not may_go_on():
                return turns
            turn[item] = measure(item)
            if not turn[item].ok:
                return []
        turns.append(turn)
        order.reverse()
        if any(measurement.energy is not None for measurement in turn.values()):
            most = _REPEATS_WITH_JOULES
    return turns


def compare_in_turn(
    trial: Trial, measure: Callable[[int | None], Measurement], may_go_on: Callable[[], bool]
) -> CoRunComparison | None:
    """A co-run against its configurations one after another, measured now in paired repeats.

    Args:
        trial: the answer of a search.
        measure: measures the trial, or one workload of it alone by its place.
        may_go_on: tells whether there is time left.

    Returns:
        The comparison; None where something failed.
    """
    alone = range(len(trial.configurations))
    turns = in_turn([None, *alone], measure, may_go_on)
    return compared(trial, [(turn[None], [turn[index] for index in alone]) for turn in turns])


def record_of(
    comparison: CoRunComparison | None, names: Sequence[str], scatter: WindowScatter = ASSUMED
) -> CoRunDocument | None:
    """The comparison in the document of a run; its keys are described in ``docs/run-json.md``.

    Args:
        comparison: None where there is none.
        names: of the workloads.
        scatter: of joules from window to window.
    """
    if comparison is None:
        return None
    time, energy = comparison.time, comparison.energy
    return {
        "repeats": comparison.together.repeats,
        "together": _totals(comparison.together, scatter),
        "in_turn": _totals(comparison.in_turn, scatter),
        "workloads": {
            name: _totals(measurement, scatter)
            for name, measurement in zip(names, comparison.alone, strict=True)
        },
        "time_change": time.value - 1.0,
        "time_change_interval": time.interval,
        "energy_change": None if energy is None else energy.value - 1.0,
        "energy_change_interval": None if energy is None else energy.interval,
    }


def _totals(measurement: Measurement, scatter: WindowScatter) -> CoRunTotals:
    energy = stated(measurement, scatter).energy
    return {
        "time_s": Objective("time").cost(measurement),
        "time_s_uncertainty": measurement.makespan_uncertainty_s,
        "energy_j": None if energy is None else energy.joules,
        "energy_j_uncertainty": None if energy is None else energy.uncertainty_j,
    }


# --- Every workload at its solo best, as one trial: what tuning the workloads together is held against.


@dataclass(frozen=True)
class SoloBests:
    """The solo bests of workloads that run together.

    Attributes:
        trial: all of them together; None where one is missing, and for a lone workload. The places of
            their streams are equal.
        runs: numbers of the runs that they are from, in the order of the workloads.
        limited: workloads whose search alone a budget or a time limit has ended.
        missing: why there is no such trial; empty where there is one, and for a lone workload.
        placed: the same at other places of their streams; none where these are not searched.
    """

    trial: Trial | None = None
    runs: tuple[int, ...] = ()
    limited: tuple[str, ...] = ()
    missing: str = ""
    placed: tuple[Trial, ...] = ()

    def rival(self, trials: Mapping[Trial, Measurement], objective: Objective) -> Trial | None:
        """Those that cost least, of equals the fastest: what the answer is held against.

        Args:
            trials: what the search measured.
            objective: whose cost counts.
        """
        costs = {
            trial: (objective.known(trials[trial]), Objective("time").cost(trials[trial]))
            for trial in (self.trial, *self.placed)
            if trial is not None and trial in trials
        }
        return min(costs, key=costs.__getitem__, default=None)


def solo_best(
    store: Store, workload: Workload, conditions: Conditions, *, least_trials: int = 1
) -> StoredAnswer | None:
    """The stored answer of a workload alone under the conditions of a run with others: see ``own_answer``."""
    return own_answer(store, (workload,), conditions, least_trials=least_trials)


def own_answer(
    store: Store, workloads: Sequence[Workload], conditions: Conditions, *, least_trials: int = 1
) -> StoredAnswer | None:
    """The stored answer of workloads that run together under the conditions of a run; None without one.

    Objective, batch, choice of clocks and power limits, GPU, driver and sources are those of that run. Of
    several answers the one is taken that ``tuner best`` serves.

    Args:
        store: the database.
        workloads: with their batches in the run.
        conditions: of the run.
        least_trials: that a search must have measured which a budget or a time limit has ended.
    """
    query = AnswerQuery(tuple(workloads), {}, conditions.sources, conditions.objective, conditions.device)
    runs = store.answered([*query.batches], conditions.objective, conditions.device.uuid)
    served = served_answer(query, _answers(runs, query.batches, conditions, least_trials), fresh=True)
    return None if served is None else served.answer


def _answers(
    runs: Iterable[StoredRun], batches: Mapping[str, int], conditions: Conditions, least_trials: int
) -> Iterator[StoredAnswer]:
    for run in runs:
        limited = run.status is RunStatus.LIMITED and run.trials >= least_trials
        answer = stored_answer(run) if limited or run.status is RunStatus.FINISHED else None
        if answer is None or answer.batches != batches:
            continue
        limits = run.conditions.get("settings", {}).get("power_limits_w")
        if answer.conditions["clocks"] == conditions.clocks and limits == conditions.settings.get(
            "power_limits_w"
        ):
            yield answer


def stored_trial(plan: SearchPlan, spaces: Sequence[PreparedWorkload], store: Store) -> Trial | None:
    """The stored answer to what a search looks for, which stays the answer while it ties with the lowest.

    None where there is none, or it is not in the spaces of the search; none either for a front, a recording,
    and a strategy, which names its trials itself.
    """
    if plan.strategy is not None or plan.conditions.device.recorded or plan.request.objective == PARETO:
        return None
    answer = own_answer(store, [item.workload for item in spaces], plan.conditions)
    if answer is None:
        return None
    stored = [(item, Configuration(answer.configurations[str(item.workload)])) for item in spaces]
    plans = [found for item, configuration in stored if (found := item.plan(configuration)) is not None]
    if len(plans) < len(spaces):
        return None
    return Trial(tuple(found.configuration for found in plans), answer.clock_mhz, answer.power_limit_w)


def find_solo_bests(plan: SearchPlan, spaces: Sequence[PreparedWorkload], store: Store) -> SoloBests:
    """The trial of the stored solo bests; together they run at the highest clock and power limit of them."""
    conditions = plan.conditions
    if len(spaces) == 1 or conditions.device.recorded:
        return SoloBests()
    stored = {item.workload: solo_best(store, item.workload, conditions) for item in spaces}
    without = [workload for workload, answer in stored.items() if answer is None]
    if without:
        names = "any workload" if len(without) == len(stored) else ", ".join(map(str, without))
        missing = f"no answer of {names} alone is stored for this batch and these conditions"
        return SoloBests(missing=f"{missing}; --solo-bests N finds one")
    answers = [answer for answer in stored.values() if answer is not None]
    configurations: list[Configuration] = []
    for item, answer in zip(spaces, answers, strict=True):
        configuration = Configuration(answer.configurations[str(item.workload)])
        configuration = with_place(configuration, {name: 0 for name in PLACE if name in item.space.tunables})
        found_plan = item.plan(configuration)
        if found_plan is None:
            missing = f"the solo best of {item.workload} (run {answer.run}) is not in the space of this run"
            return SoloBests(missing=missing)
        configurations.append(found_plan.configuration)
    default = plan.default_trial(spaces)
    clocks = [answer.clock_mhz for answer in answers if answer.clock_mhz in plan.clocks_mhz]
    limits = [answer.power_limit_w for answer in answers if answer.power_limit_w in plan.power_limits_w]
    trial = Trial(
        tuple(configurations),
        max(filter(None, clocks), default=default.clock_mhz),
        max(filter(None, limits), default=default.power_limit_w),
    )
    limited = tuple(str(workload) for workload, answer in stored.items() if answer and not answer.finished)
    placed: tuple[Trial, ...] = ()
    if plan.strategy is None:  # a strategy names its trials itself
        placed = tuple(at_places(trial, spaces, plan.request.seed))
    return SoloBests(trial, tuple(answer.run for answer in answers), limited, placed=placed)


MOST_PLACED = 64
"""Places of solo bests that are trials, at most: of more, those that single rounds show to be fast."""

_MOST_SCREENED = 1024  # of more, these are drawn


def at_places(trial: Trial, spaces: Sequence[PreparedWorkload], seed: int) -> Iterator[Trial]:
    """A trial at the other places that its streams can have, in all combinations or 1,024 drawn ones.

    Args:
        trial: whose configurations these are.
        spaces: of its workloads, of which some have priorities or shares.
        seed: of the draw.
    """
    names = [[name for name in PLACE if name in item.space.tunables] for item in spaces]
    choices = [
        list(product(*(item.space.tunables[name] for name in own)))
        for item, own in zip(spaces, names, strict=True)
    ]
    combinations: Iterable[tuple[tuple[TunableValue, ...], ...]] = product(*choices)
    if math.prod(map(len, choices)) > _MOST_SCREENED:
        draw = random.Random(seed)  # noqa: S311 - which places are tried is no secret
        drawn = (tuple(map(draw.choice, choices)) for _ in range(_MOST_SCREENED))
        combinations = dict.fromkeys(drawn)
    for places in combinations:
        configurations = (
            with_place(configuration, dict(zip(own, place, strict=True)))
            for configuration, own, place in zip(trial.configurations, names, places, strict=True)
        )
        other = replace(trial, configurations=tuple(configurations))
        if other != trial:
            yield other


def compare_places(
    answer: Trial,
    equal: Trial,
    rival: Trial,
    measure: Callable[[Trial], Measurement],
    may_go_on: Callable[[], bool],
) -> PriorityChanges | None:
    """Compare places alone, configurations alone, and both with solo bests that all have the same place.

    Args:
        answer: of a search.
        equal: the solo bests at equal priorities, without shares.
        rival: the solo bests at their best places.
        measure: measures a trial once more.
        may_go_on: tells whether there is time left.

    Returns:
        Changes of paired repeats; None where something failed, or no repeat was complete.
    """
    tuned = at_equal_places(answer)
    turns = in_turn(list(dict.fromkeys((equal, rival, tuned, answer))), measure, may_go_on)
    paired = PairedRepeats(tuple(turns))
    priorities, configurations, both = (_changed(paired, each, equal) for each in (rival, tuned, answer))
    if priorities is None or configurations is None or both is None:
        return None
    return {
        "repeats": len(turns),
        "priorities": priorities,
        "configurations": configurations,
        "both": both,
    }


def at_equal_places(trial: Trial) -> Trial:
    """The trial with all streams at the lowest priority and without shares; itself where they are alike."""
    places = {tuple(configuration.get(name, 0) for name in PLACE) for configuration in trial.configurations}
    if len(places) == 1 and not places.pop()[1]:
        return trial
    configurations = (
        with_place(configuration, {name: 0 for name in PLACE if name in configuration})
        for configuration in trial.configurations
    )
    return replace(trial, configurations=tuple(configurations))


def _changed(paired: PairedRepeats, trial: Trial, reference: Trial) -> Changes | None:
    """A trial against another in the same turns."""
    time, energy = (paired.ratio(trial, reference, Objective(name)) for name in ("time", "energy"))
    if time is None:
        return None
    if trial == reference:
        time, energy = Ratio(1.0, 0.0), energy and Ratio(1.0, 0.0)
    changes: Changes = {
        "slowdown": time.value - 1.0,
        "slowdown_interval": time.interval,
        "turn_by_turn": None if trial == reference else True,
    }
    if energy is not None:
        changes["energy_saving"], changes["energy_saving_interval"] = 1.0 - energy.value, energy.interval
    return changes


def note_solo_bests(outcome: Outcome, solo: SoloBests) -> None:
    """Put into an outcome which trial has the solo bests, or why none has."""
    places = {trial: index for index, (trial, _) in enumerate(outcome.trials)}
    outcome.solo_best_runs, outcome.no_solo_bests = solo.runs, solo.missing
    outcome.limited_solo_bests = solo.limited
    if solo.trial is None:
        return
    searched = {trial: known for (trial, _), known in zip(outcome.trials, outcome.searched, strict=True)}
    rival = solo.rival(searched, outcome.objective)
    outcome.solo_bests = None if rival is None else places[rival]
    tried = sum(trial in places for trial in solo.placed)
    if tried:
        outcome.equal_solo_bests, outcome.priorities_tried = places.get(solo.trial), 1 + tried
    if outcome.solo_bests is None and len(outcome.trials) > 1:  # they come after the default
        outcome.no_solo_bests = "compiled resources rule out one of them in this run"
    elif outcome.solo_bests is None:
        outcome.no_solo_bests = "the run ended before they were measured"


# --- What a workload's time scales with: its batch, or a size that only repeats its launches.

_BATCH = "batch"
_MOST = 2**62  # problems of a batch; memory ends it long before


@dataclass(frozen=True)
class Scale:
    """Setting that makes a workload take longer or shorter without making its problems larger.

    Attributes:
        name: ``batch``, or a size that only repeats launches.
        values: that it may have.
    """

    name: str
    values: SizeValues

    def of(self, workload: Workload) -> int:
        """Its value in a workload."""
        return workload.batch if self.name == _BATCH else int(dict(workload.sizes)[self.name])

    def nearest(self, workload: Workload, factor: float) -> int:
        """The value at which a workload takes about so many times its time."""
        present = self.of(workload)
        target = present * factor
        if isinstance(self.values, range):
            power: int = 2 ** math.floor(math.log2(max(1.0, target)))
            rounded = [present, *(value * power // 2 for value in (2, 3, 4))]
            numbers = [value for value in rounded if value in self.values] or [present]
        else:
            numbers = [value for value in self.values if isinstance(value, int)]
        return min(numbers, key=lambda value: abs(math.log2(value / target)))


def scale_of(kernel: KernelFile, workload: Workload) -> Scale | None:
    """The batch where a kernel has one; else a size that only repeats its launches; else None."""
    here = _default_plan(kernel, workload)
    more = _default_plan(kernel, replace(workload, batch=2 * workload.batch))
    if here is None:
        return None
    if more is not None and (_grids(here), here.work) != (_grids(more), more.work):
        return Scale(_BATCH, range(1, _MOST))
    for name, value in workload.sizes:
        others = (size for size in kernel.sizes[name] if isinstance(size, int) and size > 0 and size != value)
        other = next(others, None)
        if other is None or not isinstance(value, int):
            continue
        there = _default_plan(kernel, changed(kernel, workload, name, other))
        repeats = there is not None and len(there.stages) != len(here.stages)
        if there is not None and repeats and set(_grids(there)) == set(_grids(here)):
            return Scale(name, kernel.sizes[name])
    return None


def _default_plan(kernel: KernelFile, workload: Workload) -> Plan | None:
    try:
        return kernel.plan(workload, kernel.default(workload))
    except InputError:  # a batch or a size that this kernel cannot have
        return None


def _grids(plan: Plan) -> list[tuple[object, ...]]:
    return [(stage.name, stage.grid, stage.block) for stage in plan.stages]


def changed(kernel: KernelFile, workload: Workload, name: str, value: int) -> Workload:
    """The workload with another batch, or another value of a size."""
    if name == _BATCH:
        return replace(workload, batch=value)
    return kernel.workload(dict(workload.sizes) | {name: value}, workload.batch)


# --- ``tuner run --balance``: batches and repeats that bring times together.

MOST_APART = 2.0
"""The longest solo time by the shortest one, at most, of workloads that are balanced."""

_MOST_ROUNDS = 5  # of proposing and measuring: short kernels do not take half as long at half the batch
_CLOSE = 0.3  # doublings from the wanted time: worth no change

_Known = tuple[Configuration, int] | None  # a configuration, and the run that it is from


@dataclass(frozen=True)
class SoloTime:
    """Time that a workload takes alone.

    Attributes:
        workload: with its batch.
        configuration: that was measured.
        run: number of the stored answer that the configuration is from; None for the default.
        time_s: of a round.
        uncertainty_s: standard uncertainty of it.
    """

    workload: Workload
    configuration: Configuration
    run: int | None
    time_s: float
    uncertainty_s: float


def apart(times: Sequence[SoloTime]) -> float:
    """The longest time by the shortest one."""
    return max(each.time_s for each in times) / min(each.time_s for each in times)


def proposal(times: Sequence[SoloTime], scales: Sequence[Scale | None]) -> dict[int, int]:
    """New values of scales, by the places of their workloads; none where nothing helps.

    Wanted is the geometric mean of the longest time and the shortest. Workloads without a scale, or whose
    scale is at its end, stay as they are, and the others come to them.
    """
    stuck = {index for index, scale in enumerate(scales) if scale is None}
    while True:
        fixed_s = [times[index].time_s for index in stuck] or [each.time_s for each in times]
        wanted_s = math.sqrt(min(fixed_s) * max(fixed_s))
        values: dict[int, int] = {}
        ended: set[int] = set()
        for index, scale in enumerate(scales):
            factor = wanted_s / times[index].time_s
            if index in stuck or scale is None or abs(math.log2(factor)) <= _CLOSE:
                continue
            value = scale.nearest(times[index].workload, factor)
            if value != scale.of(times[index].workload):
                values[index] = value
            elif abs(math.log2(factor)) > math.log2(MOST_APART) / 2:
                ended.add(index)
        if not ended:
            return values
        stuck |= ended


@dataclass(frozen=True)
class Balance:
    """Workloads as they are and as they are balanced.

    Attributes:
        kernels: of the workloads.
        before: solo times as asked for.
        after: solo times at the batches and repeats that are proposed; ``before`` where nothing is.
        scales: of the workloads; None where sizes would have to change.
        notices: what the user should know.
    """

    kernels: tuple[KernelFile, ...]
    before: tuple[SoloTime, ...]
    after: tuple[SoloTime, ...]
    scales: tuple[Scale | None, ...]
    notices: tuple[str, ...] = ()

    @property
    def balanced(self) -> bool:
        """True where the times are within ``MOST_APART``."""
        return apart(self.after) <= MOST_APART

    @property
    def specs(self) -> tuple[str, ...]:
        """Proposed workloads, as a command takes them."""
        return tuple(
            kernel.spec_of(each.workload) for kernel, each in zip(self.kernels, self.after, strict=True)
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """Which sizes to change where batches and repeats do not suffice."""
        if self.balanced:
            return ()
        times = [each.time_s for each in self.after]
        ends = {max(times): ("long", "smaller"), min(times): ("briefly", "larger")}
        return tuple(
            f"{each.workload} takes too {ends[each.time_s][0]}, and {_stuck(scale)}: choose"
            f" {_sizes_of(each.workload, scale, ends[each.time_s][1])}"
            for each, scale in zip(self.after, self.scales, strict=True)
            if each.time_s in ends
        )


def _stuck(scale: Scale | None) -> str:
    if scale is None:
        return "it has no batch and no repeats"
    if isinstance(scale.values, range):
        return f"no {scale.name} that fits brings it nearer"
    return f"no {scale.name} of {', '.join(map(str, scale.values))} brings it nearer"


def _sizes_of(workload: Workload, scale: Scale | None, kind: str) -> str:
    name = "" if scale is None else scale.name
    sizes = [size for size, value in workload.sizes if isinstance(value, int) and size != name]
    return f"a {kind} {' or '.join(sizes)}" if sizes else "another workload"


def balance(
    setup: MeasurementSetup,
    request: SearchRequest,
    catalog: Catalog,
    store: Store | None,
    progress: Callable[[str], None] = lambda _: None,
) -> Balance:
    """Measure each workload alone, and look for batches and repeats that bring the times together.

    Each has the configuration of its stored answer alone, or else its default. What is proposed was measured.

    Raises:
        InputError: a lone workload, a recording, or kernels and sizes that cannot be.
        DeviceError: a workload failed.
    """
    if setup.device.identity.recorded:
        raise InputError(f"--balance: {setup.device.identity.spec} was measured already; it runs nothing")
    pairs, notices = resolve(catalog, request.workloads, setup.device)
    if len(pairs) == 1:
        raise InputError(f"--balance: {pairs[0][1]} is alone; name the workloads that run with it")
    kernels = tuple(kernel for kernel, _ in pairs if isinstance(kernel, KernelFile))
    workloads = [workload for _, workload in pairs]
    stored = [_known(setup, request, store, *pair) for pair in zip(kernels, workloads, strict=True)]

    def measured(index: int, workload: Workload) -> SoloTime:
        progress(f"balance: {kernels[index].spec_of(workload)} is measured alone")
        return _measured(setup, kernels[index], workload, stored[index])

    before = tuple(measured(index, workload) for index, workload in enumerate(workloads))
    scales = tuple(scale_of(*pair) for pair in zip(kernels, workloads, strict=True))
    present = best = before
    for _ in range(_MOST_ROUNDS):
        values = {} if apart(best) <= MOST_APART else proposal(present, scales)
        proposed = _fitting(setup, kernels, present, scales, values)
        if proposed is None:
            break
        present = tuple(
            present_time if present_time.workload == workload else measured(index, workload)
            for index, (present_time, workload) in enumerate(zip(present, proposed, strict=True))
        )
        best = min(best, present, key=apart)
    return Balance(kernels, before, best, scales, (*setup.notices, *notices))


def _fitting(
    setup: MeasurementSetup,
    kernels: Sequence[KernelFile],
    times: Sequence[SoloTime],
    scales: Sequence[Scale | None],
    values: dict[int, int],
) -> list[Workload] | None:
    """The workloads with new values, in batches that fit the memory together; None where nothing changes."""
    workloads = [each.workload for each in times]
    for index, value in values.items():
        scale = scales[index]
        if scale is not None:
            workloads[index] = changed(kernels[index], workloads[index], scale.name, value)
    try:
        fitted, _ = fit_batches(list(zip(kernels, workloads, strict=True)), setup.device.free_memory_bytes())
    except InputError:  # such repeats need more arrays than there is memory
        return None
    return None if fitted == [each.workload for each in times] else fitted


def _known(
    setup: MeasurementSetup,
    request: SearchRequest,
    store: Store | None,
    kernel: KernelFile,
    workload: Workload,
) -> _Known:
    """The configuration of the stored answer of a workload alone, with the number of its run; or nothing."""
    if store is None:
        return None
    device = setup.device
    objective = request.stored_objective
    sources = {kernel.name: kernel.fingerprint}
    query = AnswerQuery(
        (workload,), {kernel.name: kernel}, sources, objective, device.identity, device.limits
    )
    runs = store.answered([str(workload)], objective, device.identity.uuid)
    answers = [answer for run in runs if (answer := stored_answer(run)) is not None]
    served = served_answer(query, answers, fresh=True)
    return None if served is None else (served.configurations[str(workload)], served.answer.run)


def _measured(setup: MeasurementSetup, kernel: KernelFile, workload: Workload, stored: _Known) -> SoloTime:
    best = None if stored is None else kernel.allowed(workload, stored[0])
    configuration, run = (
        (kernel.default(workload), None) if stored is None or best is None else (best, stored[1])
    )
    measurement = setup.measurer.measure(Trial((configuration,)), [kernel.plan(workload, configuration)])
    if not measurement.ok or not measurement.makespan_s:
        detail = measurement.results[0].detail
        raise DeviceError(
            f"--balance: {workload} [{configuration}] failed alone: {measurement.status.value}"
            + (f": {detail}" if detail else "")
        )
    return SoloTime(workload, configuration, run, measurement.makespan_s, measurement.makespan_uncertainty_s)


class SoloTimeDocument(TypedDict):
    """A workload alone."""

    name: str
    batch: int
    configuration: dict[str, TunableValue]
    run: int | None
    time_s: float
    time_s_uncertainty: float


class BalanceDocument(TypedDict):
    """The result of balancing; its keys are described in ``docs/run-json.md``."""

    device: Device
    modelled: bool
    most_apart: float
    workloads: list[SoloTimeDocument]
    apart: float
    proposed: list[SoloTimeDocument] | None
    proposed_apart: float | None
    balanced: bool
    advice: list[str]
    specs: list[str]
    notices: list[str]


def balance_document(setup: MeasurementSetup, balanced: Balance) -> BalanceDocument:
    """The result as a JSON object."""
    same = balanced.after == balanced.before
    return {
        "device": device_document(setup.device.identity),
        "modelled": setup.device.identity.modelled,
        "most_apart": MOST_APART,
        "workloads": [_time_record(each) for each in balanced.before],
        "apart": apart(balanced.before),
        "proposed": None if same else [_time_record(each) for each in balanced.after],
        "proposed_apart": None if same else apart(balanced.after),
        "balanced": balanced.balanced,
        "advice": list(balanced.advice),
        "specs": list(balanced.specs),
        "notices": list(balanced.notices),
    }


def _time_record(solo: SoloTime) -> SoloTimeDocument:
    return {
        "name": str(solo.workload),
        "batch": solo.workload.batch,
        "configuration": dict(solo.configuration),
        "run": solo.run,
        "time_s": solo.time_s,
        "time_s_uncertainty": solo.uncertainty_s,
    }
