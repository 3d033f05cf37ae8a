"""The answer of a search: contenders measured again, fronts, ties, and neighbours in clock."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, cast

from tuner.measurement.paired import (
    ASSUMED_REPEATABILITY,
    LEAST_REPEATS,
    LEAST_TURNS,
    MOST_REPEATS,
    CoRunComparison,
    PairedRepeats,
    Ratio,
    Repeatability,
    repeatability,
)
from tuner.measurement.race import ASSUMED_REPEATABILITY as TIME_REPEATABILITY
from tuner.measurement.race import clearly_higher
from tuner.measurement.window import MOST_S
from tuner.model.objective import COVERAGE, TIE, TIMED, Objective, Rank, choose, tied, within
from tuner.model.plan import Configuration, Plan, shown_values
from tuner.model.records import RunStatus
from tuner.model.run_document import Changes, PriorityChanges, RunDocument
from tuner.model.trial import (
    ASSUMED,
    FlagKind,
    Measurement,
    Part,
    Trial,
    WindowScatter,
    non_dominated,
    of_window,
    stated,
)
from tuner.model.units import percent_with_interval, si
from tuner.power.base import SpentEnergy
from tuner.search.candidates import PreparedWorkload, rank_in
from tuner.search.option_checks import LimitReachedError
from tuner.search.plan import SearchPlan
from tuner.system.marks import mark

# --- Contenders measured again, turn by turn; in a search of clocks with the neighbours of the best in clock.

_DECIDED = 2  # repeats that tell who cannot be the lowest
_ROUNDS = 3  # of paired repeats, each where a neighbour in clock turned out to cost less

Trials = tuple[Trial, ...]


class ContenderRepeats:
    """Measures contenders again in paired repeats, so that a drift meets all of them.

    What the search measured is left out: the best of many noisy values is too good to be true. Trials that
    were named before anything was measured have been through one turn already, as no chance has chosen them:
    that turn is the first repeat, unless a killed run made a part of it.

    Args:
        plan: of the search.
        objective: whose cost is compared, with the slowdown limit in force.
        searched: what the search measured.
        recalled: those of it that a killed run measured.
        measure: measures a trial for the repeat of that number.
        out_of_time: True once the time limit is reached: no repeat is begun or ended then.
        rank: the order of trials that tie.
        kept: the stored answer, as for ``by_rule``.
        expected: takes trials and returns their costs without noise; None where readings are sure enough.
    """

    def __init__(
        self,
        plan: SearchPlan,
        objective: Objective,
        searched: Mapping[Trial, Measurement],
        *,
        recalled: Collection[Trial],
        measure: Callable[[Trial, int], Measurement],
        out_of_time: Callable[[], bool],
        rank: Rank,
        kept: Trial | None,
        expected: Callable[[Mapping[Trial, Measurement]], Mapping[Trial, float] | None],
    ) -> None:
        self._plan, self._objective = plan, objective
        self._rank, self._kept, self._expected = rank, kept, expected
        self._searched, self._recalled = searched, recalled
        self._measure, self._out_of_time = measure, out_of_time

    def run(self, default: Trial, solo_bests: Trial | None) -> PairedRepeats | None:
        """Measure the trials again whose cost may be the lowest, and those that the answer is held against.

        These are the default, the fastest, the solo bests, the stored answer and what the plan names, as far
        as they are valid. Of a front, every point is measured three times: a point need not be the lowest.

        Args:
            default: the default trial.
            solo_bests: every workload at its solo best, at the best priorities; None where that is not known.

        Returns:
            The paired repeats; None where no trial was valid.
        """
        time = Objective("time")
        valid = {
            trial: measurement
            for trial, measurement in self._searched.items()
            if math.isfinite(time.cost(measurement)) and measurement.estimated_j is None
        }
        if not valid:
            return None
        fastest = min(valid, key=lambda trial: time.cost(valid[trial]))
        references = (default, fastest, solo_bests, self._kept, *self._plan.named)
        beside = tuple(dict.fromkeys(trial for trial in references if trial in valid))
        if self._objective.is_front:
            return self._repeat((), tuple(dict.fromkeys((*points_to_confirm(valid), *beside))), math.inf)
        precision, expected = self._plan.request.energy_precision, self._expected(valid)
        chosen = to_confirm(self._objective, valid, precision, self._rank, expected)
        if self._plan.steers_clocks and chosen and not self._plan.named:
            return confirm_neighbours(
                self._repeat,
                lambda: not self._out_of_time(),
                self._objective,
                valid,
                (chosen, beside),
            )
        return self._repeat(chosen, beside)

    def _repeat(self, chosen: Trials, beside: Trials, precision: float | None = None) -> PairedRepeats:
        """Repeat contenders, and trials beside them that need not be the lowest.

        After two repeats only those go on that may yet be the lowest, up to nine, until that is known to the
        precision; those beside them get three, or two of trials that were named, where they decide. Every
        other repeat goes in reverse order: a steady drift then cancels, and no trial always follows the same.

        Args:
            chosen: the contenders.
            beside: those that the answer is held against.
            precision: half-width of the 95 % interval of a cost, relative to the lowest one; None for that
                of the request.
        """
        precision = self._plan.request.energy_precision if precision is None else precision
        named = self._plan.named
        order = list(dict.fromkeys((*beside, *chosen)))
        paired = PairedRepeats()
        if named and not any(trial in self._recalled for trial in order):
            paired = PairedRepeats(({trial: self._searched[trial] for trial in order},))
            order.reverse()
        mark("contenders again")
        for number in range(1 + len(paired.repeats), MOST_REPEATS + 1):
            repeat = {}
            for trial in order:
                if self._out_of_time():
                    return paired
                repeat[trial] = self._measure(trial, number)
            paired = PairedRepeats((*paired.repeats, repeat))
            going_on: Iterable[Trial] = order
            if number >= (LEAST_TURNS if named else LEAST_REPEATS):
                going_on = paired.undecided(self._objective, precision)
            elif number == _DECIDED:
                tied = paired.tied(self._objective, precision)
                going_on = {*paired.rivals(self._objective), *tied, *beside}
            order = [trial for trial in reversed(order) if trial in going_on]
            if not order:
                break
        return paired


def confirm_neighbours(
    confirm: Callable[[Trials, Trials], PairedRepeats],
    may_go_on: Callable[[], bool],
    objective: Objective,
    valid: Mapping[Trial, Measurement],
    contenders: tuple[Trials, Trials],
) -> PairedRepeats:
    """Confirm contenders until the neighbours of the best in clock are among them.

    Args:
        confirm: measures contenders, and trials beside them, in paired repeats.
        may_go_on: tells whether there is time left.
        objective: whose cost is compared.
        valid: what the search measured.
        contenders: the trials that may cost least, the lowest first, and those beside them.
    """
    chosen, beside = contenders
    paired = PairedRepeats()
    best, missing = chosen[0], clock_neighbours(objective, valid, chosen[0])
    for _ in range(_ROUNDS):
        again = confirm(chosen, tuple(dict.fromkeys((*beside, *missing))))
        paired = PairedRepeats((*paired.repeats, *again.repeats))
        best = next(iter(paired.rivals(objective)), best)
        neighbours = clock_neighbours(objective, valid, best)
        missing = tuple(trial for trial in neighbours if trial not in paired.joined())
        if not missing or not may_go_on():
            break
        chosen, beside = (best,), ()
    return paired


def clock_neighbours(objective: Objective, trials: Mapping[Trial, Measurement], best: Trial) -> Trials:
    """The trials next to one in clock, above and below, that differ in nothing else and may be the answer."""
    clocks = {
        trial.clock_mhz: trial
        for trial, measurement in trials.items()
        if replace(trial, clock_mhz=best.clock_mhz) == best and math.isfinite(objective.known(measurement))
    }
    present = best.clock_mhz or 0
    above = min((mhz for mhz in clocks if mhz is not None and mhz > present), default=None)
    below = max((mhz for mhz in clocks if mhz is not None and mhz < present), default=None)
    return tuple(clocks[mhz] for mhz in (above, below) if mhz is not None)


PAIRS = 2
"""Turns of a program's best trial with its default: there and back, so that a steady drift cancels."""

TIMES_SCATTER = 0.006
"""Twice the relative standard deviation that times of whole runs have."""


def in_turn_with_default(
    default: Trial,
    searched: Mapping[Trial, Measurement],
    objective_of: Callable[[float], Objective],
    measure: Callable[[Trial, int], Measurement],
    *,
    most: int,
    precision: float,
) -> PairedRepeats:
    """Run the best trial of a program in turn with its default; trials that are whole runs have no other end.

    One that turns out too slow leaves what turns there are to the next best that was faster, and one that
    cannot be told from the default has them all. What the search measured of them counts as a turn: runs are
    few, and chance has chosen among few.

    Args:
        default: the default trial.
        searched: what the search measured.
        objective_of: what is minimised, where the default takes so many seconds.
        measure: measures a trial for the turn of that number.
        most: turns there may be.
        precision: to which costs are told apart, relative.

    Returns:
        The turns; what the search measured of the default alone where nothing costs less.
    """
    cost = objective_of(searched[default].makespan_s or math.inf).known
    left = [trial for trial in searched if cost(searched[trial]) < cost(searched[default])]
    left.sort(key=lambda trial: cost(searched[trial]))
    if not left:
        return PairedRepeats(({default: searched[default]},))
    assumed, held = Part(2.0 * ASSUMED_REPEATABILITY**2), 0
    first, turns = {default: searched[default]}, list[Mapping[Trial, Measurement]]()
    while True:
        best, number = left[0], len(turns) + 1
        first[best] = searched[best]
        order = (default, best) if number % 2 else (best, default)
        try:
            turns.append({trial: measure(trial, number) for trial in order})
        except LimitReachedError:  # the program has ended, in whose run they were to take turns
            return PairedRepeats((first, *turns), assumed=assumed)
        paired, held = PairedRepeats((first, *turns), assumed=assumed), held + 1
        joined = paired.joined()
        objective = objective_of(joined[default].makespan_s or math.inf)
        if math.isinf(objective.known(joined[best])):
            longest_s = (joined[best].makespan_s or math.inf) / (1.0 + TIMES_SCATTER)
            left, held = [each for each in left if (searched[each].makespan_s or math.inf) <= longest_s], 0
            left = [each for each in left if each != best]
            if left and len(turns) >= most:  # no turn is left for it
                first[left[0]] = searched[left[0]]
        told = held >= PAIRS and default not in paired.tied(objective, precision)
        if len(turns) >= most or told or not left:
            return replace(paired, repeats=(first, *turns))


# --- The Pareto front of a run: which trials are measured again, and which of them are on it.

MOST_POINTS = 12  # of a front that are measured again: each takes three windows for joules

_TIME, _ENERGY = Objective("time"), Objective("energy")
_REPEATABILITY = {_TIME: TIME_REPEATABILITY, _ENERGY: ASSUMED_REPEATABILITY}


class Comparison(NamedTuple):
    """Measurements by which two trials are compared.

    Attributes:
        trials: with their measurements.
        paired: their repeats, as far as they were measured again.
    """

    trials: Mapping[Trial, Measurement]
    paired: PairedRepeats

    def is_lower(self, trial: Trial, other: Trial, objective: Objective) -> bool:
        """True where a cost of one trial is below that of another by more than the 95 % interval."""
        ratio = self.paired.ratio(trial, other, objective) or self._of_single_windows(trial, other, objective)
        return ratio.value + ratio.interval < 1.0

    def _of_single_windows(self, trial: Trial, other: Trial, objective: Objective) -> Ratio:
        measurements = [self.trials[each] for each in (trial, other)]
        repeats = _REPEATABILITY[objective]
        relative = math.hypot(*map(objective.relative_uncertainty, measurements), repeats, repeats)
        value = objective.known(measurements[0]) / objective.known(measurements[1])
        return Ratio(value, COVERAGE * relative * value)


def points_to_confirm(trials: Mapping[Trial, Measurement]) -> tuple[Trial, ...]:
    """The trials that are measured again, turn by turn: the front as the search has seen it.

    Points that one window cannot tell apart are among them, as turns may. Of a long front they are taken
    evenly, with both ends.

    Args:
        trials: valid ones with their measurements.
    """
    front = _non_dominated(trials)
    if len(front) <= MOST_POINTS:
        return tuple(front)
    step = (len(front) - 1) / (MOST_POINTS - 1)
    return tuple(front[round(i * step)] for i in range(MOST_POINTS))


def front_of(trials: Mapping[Trial, Measurement], paired: PairedRepeats) -> tuple[Trial, ...]:
    """The Pareto front of time and joules among trials, fastest first.

    No trial of it takes less time and fewer joules than another. Beside its neighbour, each is surely
    slower and takes surely fewer joules: of two whose times cannot be told apart by their 95 % intervals,
    the one of fewer joules counts; of two whose joules cannot be told apart, the faster.

    Args:
        trials: with their measurements; failed ones and those without joules are on no front.
        paired: their repeats; those that were measured once are compared as windows at different times.
    """
    return tuple(_told_apart(_non_dominated(trials), Comparison(trials, paired)))


def _non_dominated(trials: Mapping[Trial, Measurement]) -> list[Trial]:
    """The front by the costs alone, fastest first."""
    order = list(trials)
    costs = [(_TIME.known(trials[trial]), _ENERGY.known(trials[trial])) for trial in order]
    return [order[i] for i in non_dominated(costs)]


def _told_apart(front: Sequence[Trial], comparison: Comparison) -> list[Trial]:
    """The points of a front, fastest first, that can be told from their neighbours."""
    apart: list[Trial] = []
    for trial in front:
        if apart and not comparison.is_lower(trial, apart[-1], _ENERGY):
            continue
        while apart and not comparison.is_lower(apart[-1], trial, _TIME):
            apart.pop()
        apart.append(trial)
    return apart


# --- The contenders, and the outcome of a run with its notices.

_CONTENDERS = 3  # confirmed at most, those of lowest cost; and as many that the rule would choose if they tie
_BRIEF_CONTENDERS = 8  # where a repeat takes some hundredths of a second
_HELD_BACK = 4  # beside them, of those that were spoilt and tie with the lowest as far as is known
UNSURE = 0.02  # relative standard uncertainty of a cost, above which the surrogate says what is confirmed
_NOTABLY = 1.05  # times what was asked for: less would be the same in two digits


@dataclass
class Outcome:
    """Result of a run.

    Attributes:
        status: how it ended.
        trials: all trials in the order they were measured; contenders with their fresh repeats. Joules carry
            the uncertainty that covers minutes.
        measurements: every measurement of this process.
        searched: of each trial, what the search saw.
        windows_s: measuring windows of this process, those repeated for a throttled GPU too.
        joules: what the trials cost, in a killed run too.
        spent: what the whole run cost, compiling and gaps included; None where nobody tells.
        answer: index of the answer in ``trials``; None when no trial was valid.
        default: index of the default trial; None when it was not reached.
        fastest: index of the trial with the shortest makespan; None when no trial was valid.
        objective: with the slowdown limit in force.
        resumed: trials that came from an earlier, killed run.
        wall_s: wall-clock time of the search.
        paired: the paired repeats of the contenders.
        tied: indices of the trials whose cost cannot be told from the lowest: of contenders, or of all where
            none was repeated.
        scatter: of joules from window to window, which is part of all their uncertainties.
        repeatability: how well trials repeat, by the name of an objective; without those not known.
        co_run: the answer against its workloads one after another; None where that was not measured.
        front: indices of the points of the Pareto front, fastest first; empty for other objectives.
        solo_bests: index of the trial with every workload at its solo best, at the priorities that suit these
            best where priorities are searched; None where it was not measured.
        equal_solo_bests: index of the same at equal priorities; None where no others were tried.
        priorities_tried: combinations of priorities that solo bests were measured at.
        priorities: what priorities and configurations bring each alone; None where that was not measured.
        solo_best_runs: numbers of the runs that these are from, in the order of the workloads.
        limited_solo_bests: workloads whose search alone a budget or a time limit has ended.
        no_solo_bests: why it was not measured; empty where it was, and for a lone workload.
        notices: what the user should know.
        run: its number in the database; None where it is not stored.
        told: what the search said of itself, sentence by sentence.
        prepare_s: wall-clock time of enumerating, and of compiling what the search began with.
        document: the run as ``--json`` has it, with its trials.
    """

    status: RunStatus
    trials: list[tuple[Trial, Measurement]]
    answer: int | None
    default: int | None
    fastest: int | None
    objective: Objective
    measurements: tuple[Measurement, ...] = ()
    windows_s: float = 0.0
    joules: float = 0.0
    spent: SpentEnergy | None = None
    resumed: int = 0
    wall_s: float = 0.0
    paired: PairedRepeats = field(default_factory=PairedRepeats)
    tied: tuple[int, ...] = ()
    scatter: WindowScatter = ASSUMED
    repeatability: Mapping[str, Repeatability] = field(default_factory=dict)
    co_run: CoRunComparison | None = None
    searched: tuple[Measurement, ...] = ()
    front: tuple[int, ...] = ()
    solo_bests: int | None = None
    equal_solo_bests: int | None = None
    priorities_tried: int = 0
    priorities: PriorityChanges | None = None
    solo_best_runs: tuple[int, ...] = ()
    limited_solo_bests: tuple[str, ...] = ()
    no_solo_bests: str = ""
    notices: list[str] = field(default_factory=list)
    run: int | None = None
    told: list[str] = field(default_factory=list)
    prepare_s: float = 0.0
    document: RunDocument = field(default_factory=lambda: cast("RunDocument", {}))  # made last, of all else

    @property
    def no_answer(self) -> str:
        """The reason that there is no best trial; empty if there is one."""
        if self.answer is not None:
            return ""
        if all(not measurement.ok for _, measurement in self.trials):
            return "no trial was valid; the lines above name what failed"
        settings = self.document["settings"]
        return (
            f"no valid trial has an energy: the sensor {settings['sensor']} gave too little for a window"
            f" of {settings['window_s']:g} s; choose a longer --window, or --objective time"
        )


class Confirmation(NamedTuple):
    """The end of a search.

    Attributes:
        paired: the paired repeats of the contenders.
        measurements: of the contenders, their repeats joined.
        scatter: of joules, as these repeats show it.
    """

    paired: PairedRepeats
    measurements: Mapping[Trial, Measurement]
    scatter: WindowScatter


def to_confirm(
    objective: Objective,
    trials: Mapping[Trial, Measurement],
    precision: float,
    rank: Rank,
    expected: Mapping[Trial, float] | None = None,
) -> tuple[Trial, ...]:
    """The lowest contenders, those that the rule would choose, and some whose windows were spoilt.

    Of many that tie, chance says which read lowest; the first by the rule are the same on GPUs of a kind.
    Of unsure readings chance says it, too: there more are confirmed, those of the lowest expected costs.

    Args:
        objective: whose cost.
        trials: with their measurements.
        precision: of joules, as it was asked for.
        rank: the order of trials that tie.
        expected: costs without noise, where readings are unsure; None where these are sure enough.
    """
    costs = _known(objective, trials) if expected is None else expected
    by_cost = contenders(objective, trials, costs)
    if not by_cost:
        return ()
    most = _CONTENDERS if objective.needs_energy else _BRIEF_CONTENDERS
    held_back = [trial for trial in by_cost[most:] if trials[trial].spoilt - trials[by_cost[0]].spoilt]
    edge = 1.0 + objective.margin(precision) + 2.0 * TIME_REPEATABILITY
    most_cost = edge * costs[by_cost[0]]
    near = {trial: trials[trial] for trial, cost in costs.items() if cost <= most_cost}
    if objective.needs_energy:
        near = dict(within([*near.items()], TIE))
    first = sorted(near, key=rank)[:most]
    lowest = by_cost[: _CONTENDERS if expected is None else most]
    return tuple(dict.fromkeys((*lowest, *first, *held_back[:_HELD_BACK])))


def _known(objective: Objective, trials: Mapping[Trial, Measurement]) -> dict[Trial, float]:
    """Costs as they were read."""
    return {trial: objective.known(measurement) for trial, measurement in trials.items()}


def contenders(
    objective: Objective, trials: Mapping[Trial, Measurement], costs: Mapping[Trial, float] | None = None
) -> tuple[Trial, ...]:
    """Trials whose cost may be the lowest, lowest first.

    For joules those whose 95 % interval of the difference from the lowest holds zero. For times those that
    pass the last test of the race (``tuner.measurement.race``). A trial of which only spoilt windows are
    known may be better than they show.

    Args:
        objective: whose cost.
        trials: with their measurements.
        costs: theirs; None as they were read.
    """
    costs = _known(objective, trials) if costs is None else costs
    by_cost = sorted((trial for trial, cost in costs.items() if math.isfinite(cost)), key=costs.__getitem__)
    if not by_cost:
        return ()
    lowest = trials[by_cost[0]]

    def may_be_lowest(trial: Trial) -> bool:
        measurement = trials[trial]
        difference = costs[trial] / costs[by_cost[0]] - 1.0
        own = [objective.relative_uncertainty(each) ** 2 for each in (measurement, lowest)]
        if objective.needs_energy:
            between = 2 * ASSUMED_REPEATABILITY**2
            return difference <= COVERAGE * math.sqrt(math.fsum((*own, between)))
        parts = [Part(variance) for variance in (*own, 2 * TIME_REPEATABILITY**2)]
        return bool(measurement.spoilt - lowest.spoilt) or not clearly_higher(difference, parts, len(costs))

    return tuple(trial for trial in by_cost if may_be_lowest(trial))


def outcome_of(
    plan: SearchPlan,
    spaces: Sequence[PreparedWorkload],
    trials: Sequence[tuple[Trial, Measurement]],
    confirmation: Confirmation,
    objective: Objective,
    *,
    assumed: WindowScatter,
    status: RunStatus,
    kept: Trial | None,
) -> Outcome:
    """Choose the answer among the confirmed trials; among all where the run was stopped before.

    Args:
        plan: of the search.
        spaces: of its workloads.
        trials: as the search measured them, in that order.
        confirmation: of the contenders.
        objective: with the slowdown limit in force.
        assumed: scatter of joules that the search assumed.
        status: how the run ended.
        kept: the stored answer, as for ``by_rule``.
    """
    precision = plan.request.energy_precision
    paired, confirmed, scatter = confirmation
    searched = dict(trials)
    at_end = [(trial, stated(confirmed.get(trial, measurement), scatter)) for trial, measurement in trials]
    places = {trial: index for index, (trial, _) in enumerate(at_end)}
    repeats = {name: repeatability(searched, paired, Objective(name)) for name in ("energy", "time")}

    once = [] if paired.repeats else [(trial, of_window(measurement)) for trial, measurement in trials]
    ties = [] if objective.is_front else tied(objective, once, ASSUMED_REPEATABILITY, precision)

    time = Objective("time")
    measured = paired.joined() or dict(once)
    valid = [trial for trial, known in measured.items() if math.isfinite(time.cost(known))]
    fastest = min(valid, key=lambda trial: time.cost(measured[trial]), default=None)
    front: tuple[int, ...] = ()
    if objective.is_front:
        front = tuple(places[trial] for trial in front_of(paired.joined() or dict(once), paired))
        answer = min(front, key=lambda i: objective.known(at_end[i][1]), default=None)
        alike: tuple[int, ...] = ()
    else:
        if paired.repeats:
            chosen = paired.answer(objective, precision, rank_in(spaces), kept)
            answer = None if chosen is None else places[chosen]
        else:
            rank = None if plan.conditions.device.recorded else rank_in(spaces)
            answer = choose(objective, once, ASSUMED_REPEATABILITY, precision, rank=rank, kept=kept)
        alike = tuple(places[trial] for trial in paired.tied(objective, precision)) or tuple(ties)
    best = None if answer is None else at_end[answer][1]
    return Outcome(
        status=status,
        trials=at_end,
        answer=answer,
        default=places.get(plan.default_trial(spaces)),
        fastest=None if fastest is None else places[fastest],
        objective=objective,
        tied=alike,
        front=front,
        searched=tuple(stated(measurement, assumed) for _, measurement in trials),
        paired=paired,
        scatter=scatter,
        repeatability={name: again for name, again in repeats.items() if again is not None},
        notices=[
            *_power_limited(at_end),
            *_spared(objective, at_end),
            *_without_joules(objective, at_end),
            *_apart(at_end),
            *_imprecise(plan, spaces, best, scatter),
            *_unreferenced(spaces),
            *_restoring(spaces, best),
            *_uncounted_cpu(spaces, best),
        ],
    )


def _spared(objective: Objective, trials: Sequence[tuple[Trial, Measurement]]) -> list[str]:
    """A notice of the trials without joules."""
    pruned = sum(measurement.estimated_j is not None for _, measurement in trials)
    if not objective.needs_energy or not pruned:
        return []
    notice = (
        f"spared: {pruned} of {len(trials)} trials had no window for joules: by their times, idle power and"
        " the lowest net joules of the run they cost more than the best (--joules measures them too)"
    )
    return [notice]


def _without_joules(objective: Objective, trials: Sequence[tuple[Trial, Measurement]]) -> list[str]:
    """A notice of the trials of which joules were wanted and the sensor gave none."""
    missing = [
        measurement
        for _, measurement in trials
        if measurement.ok and measurement.energy is None and measurement.estimated_j is None
    ]
    if not objective.needs_energy or not missing:
        return []
    whys = (
        flag.detail
        for measurement in missing
        for flag in measurement.flags
        if flag.kind is FlagKind.NO_ENERGY
    )
    why = next(whys, "the sensor gave none")
    return [f"no joules of {len(missing)} of {len(trials)} trials, which cannot be the answer: {why}"]


def _apart(trials: Sequence[tuple[Trial, Measurement]]) -> list[str]:
    """A notice of the windows in which two readings of the same power differ."""
    told = [
        next(flag.detail for flag in measurement.flags if flag.kind is FlagKind.SENSORS_DIFFER)
        for _, measurement in trials
        if FlagKind.SENSORS_DIFFER in measurement.flag_kinds
    ]
    if not told:
        return []
    notice = (
        f"the power sensors differ in {len(told)} of {len(trials)} trials, whose ± holds both: {told[0]};"
        " tuner power calibrate finds what each of them sees"
    )
    return [notice]


def _unreferenced(spaces: Sequence[PreparedWorkload]) -> list[str]:
    """A notice for every workload whose answers nothing but other answers is compared with."""
    plans = (next(iter(item.plans.values()), None) for item in spaces if not item.recorded)
    return [
        f"{plan.workload}: {plan.problem.caution}"
        for plan in plans
        if plan is not None and plan.problem.caution
    ]


def _uncounted_cpu(spaces: Sequence[PreparedWorkload], answer: Measurement | None) -> list[str]:
    """A notice of the workloads that the CPU computes a part of, where only joules of the GPU are counted."""
    if answer is None or answer.energy is None or answer.energy.scope != "gpu":
        return []
    plans = (next(iter(item.plans.values()), None) for item in spaces if not item.recorded)
    names = [str(plan.workload) for plan in plans if plan is not None and plan.has_host_stage]
    if not names:
        return []
    notice = (
        f"cpu: it computes a part of {', '.join(names)}, and its joules are not counted;"
        " --scope gpu+cpu counts them where the host tells them"
    )
    return [notice]


def _restoring(spaces: Sequence[PreparedWorkload], answer: Measurement | None) -> list[str]:
    """A notice for every workload whose arrays are restored behind each run."""
    results = () if answer is None else answer.results
    return [
        f"restored: of the {si(result.time_s, 's')} of {item.workload}, copies of its input take"
        f" {si(result.restore_s, 's', 3)}; times and joules include them"
        for item, result in zip(spaces, results, strict=False)
        if result.restore_s and result.time_s
    ]


def _imprecise(
    plan: SearchPlan, spaces: Sequence[PreparedWorkload], answer: Measurement | None, scatter: WindowScatter
) -> list[str]:
    """A notice where the answer's joules are less sure than was asked for."""
    energy = None if answer is None else answer.energy
    if energy is None or energy.joules <= 0 or not Objective(plan.request.objective).needs_energy:
        return []
    if any(item.recorded for item in spaces):
        return []  # no longer window can be had
    reached = COVERAGE * energy.uncertainty_j / energy.joules
    if reached <= _NOTABLY * plan.request.energy_precision:
        return []
    why = f"windows are {MOST_S:g} s at most, longer ones only by --window"
    if scatter.interval > (energy.window_uncertainty_j or 0.0) * COVERAGE / energy.joules:
        how = "as this run shows" if scatter.learnt else "assumed"
        why = f"the same work differs by ± {100 * scatter.interval:.2g} % over minutes ({how})"
        if scatter.drift >= scatter.deviation:
            why += ", as the GPU may still warm; a run of more than a minute knows better"
    notice = (
        f"precision: asked for ± {100 * plan.request.energy_precision:.2g} % of the answer's joules, reached"
        f" ± {100 * reached:.2g} %; {why}"
    )
    return [notice]


def _power_limited(trials: Sequence[tuple[Trial, Measurement]]) -> list[str]:
    """A notice where most trials ran into the power limit as found: there, energy follows time."""
    valid = [measurement for trial, measurement in trials if measurement.ok and trial.power_limit_w is None]
    capped = [measurement for measurement in valid if measurement.at_power_limit]
    if len(capped) * 2 <= len(valid):
        return []
    notice = (
        f"power-limited: {len(capped)} of {len(valid)} trials ran at the GPU's power limit, where energy is"
        " little more than limit times time; lower clocks (--clocks) or limits (--power-limits) may save some"
    )
    return [notice]


# --- Whether the other timing has another winner.

LONGEST_TIMED_S = 2e-3
"""Of longer rounds start and cold L2 are less than a hundredth: timings do not differ."""

_TIMED_AGAIN = 12  # trials, for some hundredths of a second in all
_LEAST_GAIN = 0.01  # that is worth a line


def other_winner(
    answer: Trial,
    known: Mapping[Trial, Measurement],
    measure: Callable[[Trial], Measurement],
    may_go_on: Callable[[], bool],
) -> tuple[Trial, Measurement, Ratio] | None:
    """The trial that takes less time than the answer by the other timing, by more than the interval.

    A dozen trials of lowest time are measured once. The lowest of them and the answer then take turns of
    their own, as the lowest of a dozen values is too low by selection.

    Args:
        answer: by the timing of the run.
        known: trials with their measurements by that.
        measure: a trial by the other timing.
        may_go_on: tells whether there is time left.

    Returns:
        The trial, what it gave, and its time by the answer's; None where the answer may be the lowest.
    """
    time = Objective("time")
    by_time = sorted(known, key=lambda trial: time.cost(known[trial]))[:_TIMED_AGAIN]
    once: dict[Trial, Measurement] = {}
    for trial in dict.fromkeys((answer, *(one for one in by_time if known[one].ok))):
        if not may_go_on():
            return None
        once[trial] = measure(trial)
    lowest = min(once, key=lambda trial: time.cost(once[trial]))
    if lowest == answer:
        return None
    turns = ((answer, lowest), (lowest, answer), (answer, lowest))
    paired = PairedRepeats(tuple({trial: measure(trial) for trial in turn} for turn in turns))
    ratio, joined = paired.ratio(lowest, answer, time), paired.joined()
    if ratio is None or joined[lowest].spoilt | joined[answer].spoilt:
        return None
    between = COVERAGE * math.sqrt(2) * TIME_REPEATABILITY * ratio.value
    ratio = replace(ratio, interval=math.hypot(ratio.interval, between))
    if ratio.value + max(ratio.interval, _LEAST_GAIN) >= 1.0:
        return None
    return lowest, joined[lowest], ratio


def told_of_other(timing: str, winner: tuple[Trial, Measurement, Ratio], label: str) -> str:
    """The winner by a timing that is not the run's, as a notice."""
    trial, measurement, ratio = winner
    values = "; ".join(shown_values(one) for one in trial.configurations)
    clock = "" if trial.clock_mhz is None else f" at {trial.clock_mhz} MHz"
    less = percent_with_interval(ratio.value - 1.0, ratio.interval)
    return (
        f"timing: {TIMED[timing]} have another winner{label and f' ({label})'}: {values}{clock} takes"
        f" {si(measurement.makespan_s, 's')}, {less} against the answer; --timing {timing} looks for it"
    )


# --- Joules depend on the values that a kernel computes with: the user's own against random ones.

_OWN, _RANDOM = (Trial((Configuration({"inputs": name}),)) for name in ("own", "random"))
_DRAWN = ("float", "bfloat", "complex")  # whole numbers may be places, which random ones would miss


def with_random_inputs(plan: Plan) -> Plan:
    """The plan with random numbers in place of those of files; itself where it reads none."""
    return replace(
        plan,
        buffers=tuple(
            replace(buffer, input=None)
            if buffer.input is not None and buffer.input.file and buffer.dtype.startswith(_DRAWN)
            else buffer
            for buffer in plan.buffers
        ),
    )


def against_random_inputs(
    plans: Sequence[Plan],
    measure: Callable[[Sequence[Plan]], Measurement],
    may_go_on: Callable[[], bool],
) -> str:
    """A notice where joules with inputs of files differ from those with random ones, beyond the interval.

    Args:
        plans: of the answer.
        measure: plans, with joules.
        may_go_on: tells whether there is time left.

    Returns:
        The notice; empty where no difference is known.
    """
    sides = {_OWN: [*plans], _RANDOM: [*map(with_random_inputs, plans)]}
    if sides[_OWN] == sides[_RANDOM]:
        return ""
    repeats: list[dict[Trial, Measurement]] = []
    for turn in ((_OWN, _RANDOM), (_RANDOM, _OWN), (_OWN, _RANDOM)):
        if not may_go_on():
            return ""
        repeats.append({side: measure(sides[side]) for side in turn})
    ratio = PairedRepeats(tuple(repeats)).ratio(_OWN, _RANDOM, Objective("energy"))
    if ratio is None or abs(ratio.value - 1.0) <= ratio.interval:
        return ""
    files = {Path(b.input.file.path).name for plan in plans for b in plan.buffers if b.input and b.input.file}
    more = percent_with_interval(ratio.value - 1.0, ratio.interval)
    return f"inputs: with {', '.join(sorted(files))} a round takes {more} joules against random numbers"


def against(outcome: Outcome, index: int | None, other: int | None) -> Changes | None:
    """Return the slowdown and the energy saving of a trial against another one; None if one has failed.

    The answer against the trial with the shortest makespan is table IV of the multi-kernel paper. Savings
    carry a 95 % interval: of paired repeats where both have them, else of two single windows.
    """
    if index is None or other is None:
        return None
    (trial, answer), (reference, measured) = outcome.trials[index], outcome.trials[other]
    if answer.makespan_s is None or measured.makespan_s is None:
        return None
    slowdown = answer.makespan_s / measured.makespan_s - 1
    against: Changes = {"slowdown": slowdown, "slowdown_interval": _time_interval(outcome, index, other)}
    if answer.energy is None or measured.energy is None:
        return against
    paired = None if index == other else outcome.paired.ratio(trial, reference, Objective("energy"))
    ratio = paired or _of_single_windows(answer, measured, outcome.scatter)
    if index == other:
        ratio = Ratio(1.0, 0.0)
    return {
        **against,
        "energy_saving": 1 - ratio.value,
        "energy_saving_interval": ratio.interval,
        "turn_by_turn": None if index == other else paired is not None,
    }


def _time_interval(outcome: Outcome, index: int, other: int) -> float:
    """Half of the 95 % interval of the slowdown of a valid trial against another one."""
    if index == other:
        return 0.0
    time = Objective("time")
    (trial, answer), (reference, measured) = outcome.trials[index], outcome.trials[other]
    paired = outcome.paired.ratio(trial, reference, time)
    if paired is not None:
        return paired.interval
    own = (time.relative_uncertainty(measurement) for measurement in (answer, measured))
    relative = math.hypot(*own, ASSUMED_REPEATABILITY, ASSUMED_REPEATABILITY)
    return COVERAGE * relative * time.cost(answer) / time.cost(measured)


def _of_single_windows(first: Measurement, second: Measurement, scatter: WindowScatter) -> Ratio:
    """A ratio of joules that were measured at different times; what the GPU still warms by is in both."""
    energy, scatter = Objective("energy"), replace(scatter, drift=0.0)
    value = energy.cost(first) / energy.cost(second)
    relative = math.hypot(*(energy.relative_uncertainty(stated(each, scatter)) for each in (first, second)))
    return Ratio(value, COVERAGE * value * relative)
