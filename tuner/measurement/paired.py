"""Paired repeats of the contenders for the answer: pooled windows, scatter, gain of co-running.

A GPU's power drifts by some tenths of a percent within minutes, as it warms up. The contenders of one paired
repeat share that drift, so the ratio of two is known far better than either. Trials of a search were measured
once, minutes apart. How much that may mean is learnt from the contenders, which were measured both times.
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from tuner.model.distributions import fisher_quantile
from tuner.model.objective import COVERAGE, Objective, Rank, by_rule
from tuner.model.trial import (
    ASSUMED,
    ASSUMED_DRIFT,
    Energy,
    FlagKind,
    Measurement,
    Part,
    Trial,
    WindowScatter,
    WorkloadResult,
    contracted,
    expanded,
    student_factor,
)

# --- Several measuring windows of one trial, joined into one measurement.

# Repeats are taken to differ by more than their own uncertainties explain where chance would make them so in
# 40 % of cases. Were it rarer, intervals of three repeats that do differ a little would cover less than 93 %;
# were it less rare, those of repeats that do not would cover 98 % and more.
_LIKELY = 0.6
_SURELY = 0.99  # of repeats that scatter by more than those of other trials
_KEPT_SERIES = 3  # of power, of the first repeats
_NUMBER = re.compile(r"[-+]?\d[\d.]*")
_MANY = 1e6  # degrees of freedom of an uncertainty that is known


def join(repeats: Sequence[Measurement]) -> Measurement:
    """Means over repeats, with the uncertainty within them, or that between them where it is larger.

    Within: the repeats' own uncertainties, as of independent values. Between: the standard error of the mean,
    with Student's t for so few repeats; it takes the place of the other where the repeats differ by more than
    that explains, as when a GPU warms up.

    Returns:
        The joined measurement; the first failed repeat where one failed.
    """
    failed = next((repeat for repeat in repeats if not repeat.ok or repeat.makespan_s is None), None)
    if failed is not None:
        return failed
    makespans = [(repeat.makespan_s or 0.0, repeat.makespan_uncertainty_s, None) for repeat in repeats]
    makespan_s, makespan_u, _ = joined_mean(makespans)
    flags = {_NUMBER.sub("", str(flag)): flag for repeat in repeats for flag in repeat.flags}
    clocks = [repeat.clock_mhz for repeat in repeats if repeat.clock_mhz is not None]
    warm = [repeat.temperature_c for repeat in repeats if repeat.temperature_c is not None]
    return replace(
        repeats[-1],
        results=tuple(map(_result, zip(*(repeat.results for repeat in repeats), strict=True))),
        makespan_s=makespan_s,
        makespan_spread_s=statistics.fmean(repeat.makespan_spread_s for repeat in repeats),
        makespan_uncertainty_s=makespan_u,
        repeats=sum(repeat.repeats for repeat in repeats),
        energy=_pooled_energy(repeats),
        rounds=sum(repeat.rounds for repeat in repeats),
        window_s=math.fsum(repeat.window_s for repeat in repeats),
        clock_mhz=statistics.median(clocks) if clocks else None,
        temperature_c=statistics.fmean(warm) if warm else None,
        flags=tuple(flags.values()),  # of those that differ in numbers alone the last
        check_s=math.fsum(repeat.check_s for repeat in repeats),
        energy_total_j=math.fsum(repeat.energy_total_j for repeat in repeats),
        power=tuple(series for repeat in repeats for series in repeat.power)[:_KEPT_SERIES],
    )


def _result(same: Sequence[WorkloadResult]) -> WorkloadResult:
    """One workload's part in all repeats."""
    times = [result.time_s for result in same if result.time_s is not None]
    spread_s = statistics.fmean(result.spread_s for result in same)
    return replace(same[-1], time_s=statistics.fmean(times) if times else None, spread_s=spread_s)


def _pooled_energy(repeats: Sequence[Measurement]) -> Energy | None:
    measured = [repeat.energy for repeat in repeats if repeat.energy is not None]
    if len(measured) < len(repeats):
        return None
    joules, uncertainty_j, degrees = joined_mean([(e.joules, e.uncertainty_j, e.degrees) for e in measured])
    # What sensors differ by in all windows is no smaller in their mean.
    common_j = statistics.fmean(
        energy.uncertainty_j if FlagKind.SENSORS_DIFFER in repeat.flag_kinds else 0.0
        for repeat, energy in zip(repeats, measured, strict=True)
    )
    if common_j > uncertainty_j:
        uncertainty_j, degrees = common_j, None
    watts = statistics.fmean(energy.watts for energy in measured)
    return replace(measured[-1], joules=joules, uncertainty_j=uncertainty_j, degrees=degrees, watts=watts)


def joined_mean(
    values: Sequence[tuple[float, float, float | None]], scatter: Part | None = None
) -> tuple[float, float, float | None]:
    """Mean of (value, uncertainty, degrees of freedom) with its own, see ``join``.

    Args:
        values: at least one.
        scatter: relative variance of one value from one repeat to another, where many tell of it. It takes
            the place of these few's own scatter, unless that is larger by more than chance.
    """
    count = len(values)
    mean = statistics.fmean(value for value, _, _ in values)
    own = [contracted(uncertainty, degrees) for _, uncertainty, degrees in values]
    within = [Part(part.variance / count**2, part.degrees) for part in own]
    uncertainty, degrees = expanded(within)
    if count == 1 and scatter is None:
        return mean, uncertainty, degrees
    own_scatter = None
    if count > 1:  # statistics.variance is exact in fractions, which takes a tenth of a search's time
        squares = math.fsum((value - mean) ** 2 for value, _, _ in values)
        own_scatter = Part(squares / (count - 1), count - 1)
    single = None if scatter is None else Part(scatter.variance * mean**2, scatter.degrees)
    if single is None or (
        own_scatter is not None
        and own_scatter.variance
        > single.variance * fisher_quantile(count - 1, single.degrees or _MANY, _SURELY)
    ):
        single = own_scatter
    if single is None:
        return mean, uncertainty, degrees
    between = Part(single.variance / count, single.degrees)
    sure = math.fsum(part.variance for part in within)
    chance = fisher_quantile(between.degrees or _MANY, _MANY if degrees is None else degrees, _LIKELY)
    if between.variance > sure * chance:
        return mean, *expanded([between])
    return mean, uncertainty, degrees


def scaled_energy(energy: Energy, factor: float, uncertainty: float, time_factor: float = 1.0) -> Energy:
    """Joules scaled; watts are scaled so that the time of a round is.

    Args:
        energy: with the uncertainty of its windows.
        factor: of joules.
        uncertainty: of the factor, relative; it is added to that of the joules.
        time_factor: of the time of a round.
    """
    joules, power = energy.joules * factor, factor / time_factor
    own = contracted(energy.uncertainty_j * factor, energy.degrees)
    uncertainty_j, degrees = expanded([own, Part((joules * uncertainty) ** 2)])
    if energy.uncertainty_j * factor > uncertainty_j:  # few degrees, which a known part makes seem more
        uncertainty_j, degrees = energy.uncertainty_j * factor, energy.degrees
    return replace(
        energy,
        joules=joules,
        uncertainty_j=uncertainty_j,
        degrees=degrees,
        watts=energy.watts * power,
        idle_watts=None if energy.idle_watts is None else energy.idle_watts * power,
        idle_uncertainty_w=energy.idle_uncertainty_w * power,
    )


# --- How windows scatter and drift over minutes, as a run shows it; ``trial.stated`` makes intervals of it.
#
# The uncertainty of a window is about that window. The same work a minute later takes joules that differ by
# 0.2 to 0.5 % on an H200, ten times what a good counter's window is uncertain of. Whoever pays for joules
# pays for the mean over minutes: what is printed, stored and compared contains the scatter between windows.
#
# It is learnt from the contenders of a run, measured in the search and again in paired repeats, all pooled:
# with I trials in J columns (the search, and each repeat), MS_c the mean square between columns and MS_r that
# of what neither trial nor column explains, one window varies by ``MS_r (I - 1) / I + MS_c / I``, with
# degrees of freedom by Welch and Satterthwaite, less what its own uncertainty explains. Repeats are seconds
# apart and share what takes minutes: their scatter is not divided by their number.
#
# *Drift*: a GPU that is still warming takes more later. What is left of that when the run ends is taken to be
# at most what its slope makes in another minute, where a trial was measured again a minute later or more: so
# it is of any rise that has a time constant below 87 s. A shorter run cannot tell: ± 1.2 % are assumed, or
# what the repeats have changed by since the first, if that is more. No thermometer tells it: an H200 took 0.8
# % more within half a minute in which its chip stayed at 44 °C.
#
# *Assumed*: 0.4 % (standard deviation) where a run has too few repeats, or they span less than a minute,
# unless they scatter by more. Less than 0.2 % is never believed: no run lasts as long as its answer is used.
# A ratio of two trials, turn by turn, is taken to drift by 0.3 % in minutes; three configurations of an H200
# drifted by -0.10, -0.12 and -0.41 % in three.

LEAST_SCATTER = 0.002
"""The least that a run is believed."""

RATIO_DRIFT = 0.003
"""Relative standard deviation over minutes of a ratio of joules that was measured turn by turn."""

LONG_S = 60.0
"""Repeats that span less tell nothing of minutes, unless they scatter by more than is assumed."""

_ENOUGH = 4.0  # degrees of freedom from which a run's own scatter is believed
_TWO = 2
_SHORT = 0.6  # of a repeat's window
_ENERGY = Objective("energy")

Repeats = Sequence[Mapping[Trial, Measurement]]


def window_scatter(
    searched: Mapping[Trial, Measurement], repeats: Repeats, end: Mapping[Trial, Measurement] | None = None
) -> WindowScatter:
    """The scatter and the drift that a run has shown, or the assumed ones.

    Args:
        searched: what the search measured; it may itself be the first of the repeats.
        repeats: the paired repeats of the contenders.
        end: what was measured once more at the end of the run.
    """
    drift = _drift(searched, [*repeats, *([end] if end else [])])
    assumed = replace(ASSUMED, drift=drift)
    learnt, span_s = _scatter(searched, repeats)
    if learnt is None or span_s < LONG_S:  # what seconds show has the drift of these seconds in it
        return max(assumed, learnt or assumed, key=lambda scatter: scatter.interval)
    return replace(learnt, drift=drift)


def _drift(searched: Mapping[Trial, Measurement], again: Repeats) -> float:
    """Return the drift that remains since trials were last measured again."""
    minutes, seconds = [], [0.0]
    for trial, last in again[-1].items() if again else ():
        repeats = [repeat[trial] for repeat in again[:-1] if trial in repeat]
        first = [searched[trial]] if trial in searched and searched[trial] is not last else []
        changes = [(earlier, _change(earlier, last)) for earlier in (*first, *repeats)]
        long = [
            change * LONG_S / (last.ended_s - earlier.ended_s)
            for earlier, change in changes
            if change is not None and last.ended_s - earlier.ended_s >= LONG_S and _alike(earlier, last)
        ]
        minutes += long[-1:]
        if not long:  # what the search measured may be of a cold GPU
            seconds += [abs(change) for _, change in changes[len(first) :][:1] if change is not None]
    if minutes:
        return abs(statistics.fmean(minutes)) / COVERAGE
    return max(ASSUMED_DRIFT, max(seconds) / COVERAGE)


def _change(earlier: Measurement, later: Measurement) -> float | None:
    """Logarithm of the joules of another window by those of the one; None where one has none."""
    first, second = _ENERGY.known(earlier), _ENERGY.known(later)
    return math.log(second / first) if 0 < first < math.inf and 0 < second < math.inf else None


def _scatter(searched: Mapping[Trial, Measurement], repeats: Repeats) -> tuple[WindowScatter | None, float]:
    """The scatter that a run has shown, and the seconds that its repeats span; None where too few tell."""
    again = repeats[0] if repeats else {}
    alike = {
        trial: measurement
        for trial, measurement in searched.items()
        if trial in again and measurement is not again[trial] and _alike(measurement, again[trial])
    }
    columns = [alike, *repeats] if alike else list(repeats)
    components = _components([_logarithms(column, _ENERGY) for column in columns])
    if components is None:
        return None, 0.0
    trials, count, between, rest = components
    energies = [column[trial].energy for column in columns[:count] for trial in trials]
    own = statistics.fmean(  # what the windows themselves explain
        contracted(energy.uncertainty_j, energy.degrees).variance / energy.joules**2
        if energy is not None and energy.joules
        else 0.0
        for energy in energies
    )
    parts = [Part(between.variance / len(trials), between.degrees)]
    if rest is not None:
        parts.append(Part(rest.variance * (len(trials) - 1) / len(trials), rest.degrees))
    variance = math.fsum(part.variance for part in parts)
    degrees = expanded(parts)[1] or math.fsum(part.degrees or 0.0 for part in parts)
    if degrees < _ENOUGH:
        return None, 0.0
    ended = [column[trial].ended_s for column in columns[:count] for trial in trials]
    learnt = WindowScatter(math.sqrt(max(variance - own, LEAST_SCATTER**2)), degrees, 0.0)
    return learnt, max(ended) - min(ended)


def ratio_scatter(repeats: Repeats, objective: Objective) -> Part | None:
    """Relative variance of the ratio of two trials in one repeat, pooled; None where too few tell.

    Args:
        repeats: paired repeats.
        objective: whose costs are compared.
    """
    components = _components([_logarithms(repeat, objective) for repeat in repeats])
    if components is None or components[3] is None or (components[3].degrees or 0.0) < _ENOUGH:
        return None
    return Part(2.0 * components[3].variance, components[3].degrees)


def _learnt(assumed: Part, ratios: Sequence[float]) -> Part:
    """An assumed relative variance, which counts as so many degrees, joined with that of a few ratios.

    What is assumed alone makes an interval that is too narrow for whatever scatters more, and the few alone
    one that is far too wide for what scatters less.
    """
    own = len(ratios) - 1
    if own < 1:
        return assumed
    variance = statistics.variance(map(math.log, ratios))
    degrees = _ASSUMED_DEGREES + own
    return Part((_ASSUMED_DEGREES * assumed.variance + own * variance) / degrees, degrees)


def _alike(measurement: Measurement, again: Measurement) -> bool:
    """False for a window that is no other one of the same work.

    It is so short that its joules may be others, as at a power limit, or hardly known, or another GPU's.
    """
    return measurement.window_s >= _SHORT * again.window_s and not measurement.scaled


def _logarithms(column: Mapping[Trial, Measurement], objective: Objective) -> dict[Trial, float]:
    """Logarithms of the costs that were measured."""
    plain = Objective(objective.name)
    costs = {trial: plain.known(measurement) for trial, measurement in column.items()}
    return {trial: math.log(cost) for trial, cost in costs.items() if math.isfinite(cost) and cost > 0}


def _components(
    columns: Sequence[Mapping[Trial, float]],
) -> tuple[list[Trial], int, Part, Part | None] | None:
    """Mean squares between columns and of the rest, of the largest block of trials that are in all columns.

    Contenders leave, and none comes back: a block is some first columns.

    Returns:
        Trials and number of columns of the block, the two mean squares with their degrees; None for the rest
        of a single trial; None where there is no block of two columns.
    """
    blocks = [
        ([trial for trial in columns[0] if all(trial in column for column in columns[:count])], count)
        for count in range(_TWO, len(columns) + 1)
    ]
    trials, count = max(blocks, key=lambda block: len(block[0]) * (block[1] - 1), default=([], 0))
    if not trials:
        return None
    rows = [[column[trial] for column in columns[:count]] for trial in trials]
    means = [statistics.fmean(row) for row in rows]
    shared = [
        statistics.fmean(row[column] - mean for row, mean in zip(rows, means, strict=True))
        for column in range(count)
    ]
    between = Part(len(trials) * math.fsum(part**2 for part in shared) / (count - 1), float(count - 1))
    degrees = (len(trials) - 1) * (count - 1)
    if not degrees:
        return trials, count, between, None
    squares = math.fsum(
        (value - mean - part) ** 2
        for row, mean in zip(rows, means, strict=True)
        for value, part in zip(row, shared, strict=True)
    )
    return trials, count, between, Part(squares / degrees, float(degrees))


# --- Repeats turn by turn: ratios of costs, rivals and ties.

LEAST_REPEATS = 3
"""Of each contender for the answer."""

LEAST_TURNS = 2
"""Of trials that were named before anything was measured: no chance has chosen them."""

MOST_REPEATS = 9
"""Of a contender that may cost least and is not known to the wanted precision by then: that is a tie."""

ASSUMED_REPEATABILITY = 0.005
_ASSUMED_DEGREES = 0.5  # of three ratios, intervals hold 92 to 99 % at scatters of 0.3 to 5 % (simulated)
"""Relative standard deviation of a trial's joules over minutes, where nothing was measured twice.

Windows of the same work on an H200, spread over two minutes, had 0.36 to 0.49 %.
"""

_BOTH = 2
_FEW = 3  # of fewer contenders nobody learns how well trials repeat


@dataclass(frozen=True)
class Ratio:
    """The cost of one trial by that of another.

    Attributes:
        value: the ratio.
        interval: half its 95 % interval, about the ratio over minutes.
        turns_interval: the same about the turns that were measured: what more of them make smaller.
    """

    value: float
    interval: float
    turns_interval: float = 0.0

    @property
    def may_be_lower(self) -> bool:
        """True where the one may cost less than the other, or as much."""
        return self.value - self.interval <= 1.0


@dataclass(frozen=True)
class Repeatability:
    """Repeatability of trials.

    Attributes:
        interval: half the 95 % interval of a trial's cost when it is measured again later, by the cost.
        trials: that were measured again.
    """

    interval: float
    trials: int


@dataclass(frozen=True)
class PairedRepeats:
    """Repeats of the contenders: each measures every contender once, and later ones leave some out.

    Attributes:
        repeats: the paired repeats.
        end: default and answer once more, when the GPU was warmest; empty where that was not measured.
        assumed: relative variance of the ratio of two trials in one repeat, where too few tell of it; None
            for what these few show.
    """

    repeats: tuple[Mapping[Trial, Measurement], ...] = ()
    end: Mapping[Trial, Measurement] = field(default_factory=dict)
    assumed: Part | None = None

    def joined(self) -> dict[Trial, Measurement]:
        """Each contender's repeats in one measurement."""
        trials = dict.fromkeys(trial for repeat in self.repeats for trial in repeat)
        return {
            trial: join([repeat[trial] for repeat in self.repeats if trial in repeat]) for trial in trials
        }

    def at_end(self) -> dict[Trial, Measurement]:
        """Each contender's repeats in one measurement, with the joules of the end of the run.

        How the joules of default and answer have changed since their repeats is common to all contenders, as
        is what the GPU has warmed by. A change that the windows' own uncertainties explain is none.
        """
        joined = self.joined()
        if not joined:
            return dict(self.end)
        both = [(joined[trial].energy, last.energy) for trial, last in self.end.items() if trial in joined]
        pairs = [(before, last) for before, last in both if before is not None and last and before.joules]
        if not pairs:
            return joined
        factor = statistics.fmean(last.joules / before.joules for before, last in pairs)
        own = (energy.uncertainty_j / energy.joules for pair in pairs for energy in pair if energy.joules)
        unsure = math.hypot(*own) / len(pairs)
        if abs(factor - 1.0) <= COVERAGE * unsure:
            factor, unsure = 1.0, 0.0
        celsius = [last.temperature_c for last in self.end.values() if last.temperature_c is not None]
        return {
            trial: replace(
                mean,
                energy=None if mean.energy is None else scaled_energy(mean.energy, factor, unsure),
                temperature_c=statistics.fmean(celsius) if celsius else None,
            )
            for trial, mean in joined.items()
        }

    def ratio(self, trial: Trial, other: Trial, objective: Objective) -> Ratio | None:
        """Cost of one contender by another's in the repeats that have both; None without one.

        What is common to a repeat is in neither the ratio nor its interval. How ratios scatter from turn to
        turn is learnt from all contenders together, so that no trial gains or loses by the chance of its few.
        """
        plain = Objective(objective.name)  # a limit applies to the joined repeats
        ratios = []
        for repeat in self.repeats:
            both = [repeat[contender] for contender in (trial, other) if contender in repeat]
            costs = [plain.cost(measurement) for measurement in both]
            if len(both) < _BOTH or not all(map(math.isfinite, costs)):
                continue
            unsure = math.hypot(*(plain.uncertainty(m) / cost for m, cost in zip(both, costs, strict=True)))
            ratios.append((costs[0] / costs[1], costs[0] / costs[1] * unsure, None))
        if not ratios:
            return None
        scatter = ratio_scatter(self.repeats, plain) if plain.needs_energy else None
        if scatter is None and self.assumed is not None:
            scatter = _learnt(self.assumed, [value for value, *_ in ratios])
        value, uncertainty, degrees = joined_mean(ratios, scatter)
        turns = COVERAGE * uncertainty
        if not plain.needs_energy:
            return Ratio(value, turns, turns)
        unsure, _ = expanded([contracted(uncertainty, degrees), Part((RATIO_DRIFT * value) ** 2)])
        return Ratio(value, max(turns, COVERAGE * unsure), turns)

    def rivals(self, objective: Objective) -> dict[Trial, Ratio]:
        """Contenders that may cost least, by their costs against the lowest one's; empty where all failed."""
        costs = {trial: objective.cost(measurement) for trial, measurement in self.joined().items()}
        finite = [trial for trial, cost in costs.items() if math.isfinite(cost)]
        if not finite:
            return {}
        lowest = min(finite, key=costs.__getitem__)
        ratios = {trial: self.ratio(trial, lowest, objective) for trial in finite if trial != lowest}
        tied = {trial: ratio for trial, ratio in ratios.items() if ratio is not None and ratio.may_be_lower}
        return {lowest: Ratio(1.0, 0.0), **tied}

    def tied(self, objective: Objective, precision: float) -> dict[Trial, Ratio]:
        """Contenders that cost as much as the lowest, by their costs against it; empty where all failed.

        One margin is fair to all: costs within that of the objective are the same, and so are those within
        the interval that ratios of this run have in the middle. A trial known more surely, or less, gains
        nothing by that.
        """
        rivals = self.rivals(objective)
        if not rivals:
            return rivals
        lowest = next(iter(rivals))
        ratios = {
            trial: self.ratio(trial, lowest, objective)
            for trial, measurement in self.joined().items()
            if trial != lowest and math.isfinite(objective.cost(measurement))
        }
        compared = {trial: ratio for trial, ratio in ratios.items() if ratio is not None}
        usual = statistics.median(ratio.interval for ratio in compared.values()) if compared else 0.0
        margin = 1.0 + max(objective.margin(precision), usual)
        return {lowest: rivals[lowest]} | {
            trial: ratio for trial, ratio in compared.items() if ratio.value <= margin
        }

    def answer(
        self, objective: Objective, precision: float, rank: Rank, kept: Trial | None = None
    ) -> Trial | None:
        """Of the contenders that tie with the lowest that of ``by_rule``; None where all failed."""
        joined = self.joined()
        ties = {trial: joined[trial] for trial in self.tied(objective, precision)}
        return by_rule(objective, ties, rank, kept)

    def undecided(self, objective: Objective, precision: float) -> list[Trial]:
        """Contenders to measure further: those that may cost least, where that is not known to ``precision``.

        Args:
            objective: whose cost is compared.
            precision: wanted half-width of the 95 % interval of a contender's cost by the lowest one's.
        """
        rivals = self.rivals(objective)
        unsure = [trial for trial, ratio in rivals.items() if ratio.turns_interval > precision]
        return [next(iter(rivals)), *unsure] if unsure else []  # the lowest one's interval is nothing


def repeatability(
    searched: Mapping[Trial, Measurement], paired: PairedRepeats, objective: Objective
) -> Repeatability | None:
    """Return the repeatability of trials, from contenders in the search and later; None with too few.

    The search's measurement of a contender, one window, is held against the mean of its later repeats. That
    the contenders are those the search liked best makes the difference seem larger, never smaller.
    """
    plain = Objective(objective.name)
    again = {trial: plain.cost(measurement) for trial, measurement in paired.joined().items()}
    first = paired.repeats[0] if paired.repeats else {}
    squares = [
        (plain.known(searched[trial]) / cost - 1.0) ** 2
        for trial, cost in again.items()
        if math.isfinite(cost)
        and math.isfinite(plain.known(searched[trial]))
        and searched[trial] is not first.get(trial)  # of a repeat itself there is nothing to learn
    ]
    if len(squares) < _FEW:
        return None
    deviation = math.sqrt(statistics.fmean(squares))
    return Repeatability(COVERAGE * student_factor(len(squares)) * deviation, len(squares))


# --- A ratio that is looked at after every turn: its interval holds at all looks at once.
#
# Whoever looks at an ordinary interval after each turn, and stops where it pleases, is wrong far more often
# than its level says. Here a t test is a bet: the likelihood of all values under normal effects of any size,
# by that under none, whatever their scatter. If there is no effect, it is ever above 1 / SURE with a chance
# of SURE at most (Ville's inequality). So the means that it does not rule out hold the true one at all looks
# together: Lai, "On confidence sequences", Annals of Statistics 4 (1976); Wang and Ramdas, "Anytime-valid
# t-tests and confidence sequences for Gaussian means with unknown variance" (arXiv:2310.03722).

SURE = 0.01
"""Chance that the interval misses at any look."""

NO_WORSE, WORSE, UNDECIDED = "no worse", "worse", "undecided"
EXIT_CODES = {NO_WORSE: 0, WORSE: 1, UNDECIDED: 3}
"""Verdicts on a cost, and the exit codes of commands that end with one."""

_USUAL_EFFECT = 0.05  # inverse square of the effects bet on, in standard deviations


def decided(change: float, interval: float, margin: float) -> str:
    """The verdict on a relative change, by the side of the margin that its interval is on."""
    if change - interval > margin:
        return WORSE
    return NO_WORSE if change + interval < margin else UNDECIDED


def anytime_ratio(turns: Sequence[tuple[Measurement, Measurement]], objective: Objective) -> Ratio | None:
    """Cost of the second measurement of each turn by that of the first; None without two turns of both costs.

    Two turns one after another, there and back, are one value, in which a steady drift cancels. What a ratio
    drifts by over minutes is added to the interval.

    Args:
        turns: in their order; every other was measured in reverse.
        objective: whose cost.

    Returns:
        The ratio; halves of intervals that hold it at all looks with a chance of ``1 - SURE``, infinite for
        less than four values.
    """
    plain = Objective(objective.name)
    logs = [[plain.known(measurement) for measurement in turn] for turn in turns]
    changes = [
        math.log(new / old) if 0 < old < math.inf and 0 < new < math.inf else None for old, new in logs
    ]
    values = [
        (there + back) / 2
        for there, back in zip(changes[::2], changes[1::2], strict=False)
        if there is not None and back is not None
    ]
    if not values:
        return None
    mean, half = statistics.fmean(values), _anytime_half(values)
    drift = NormalDist().inv_cdf(1.0 - SURE / 2.0) * RATIO_DRIFT
    value = math.exp(mean)
    return Ratio(value, value * math.expm1(math.hypot(half, drift)), value * math.expm1(half))


def _anytime_half(values: Sequence[float]) -> float:
    """Half of the interval of the mean of values, see above; infinite of too few."""
    count, prior = len(values), _USUAL_EFFECT
    bound = ((count + prior) / prior) ** (1.0 / count) * SURE ** (-2.0 / count)
    spared = 1.0 - bound * prior / (count + prior)
    if spared <= 0.0:
        return math.inf
    mean = statistics.fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt((bound - 1.0) * squares / (count * spared))


# --- What co-running brings: workloads run together, against the same ones run one after another.

_IN_TURN = Trial(())  # stands for the sum of the lone runs among paired repeats


@dataclass(frozen=True)
class CoRunComparison:
    """A trial, against its workloads one after another.

    Attributes:
        together: the trial.
        in_turn: sums over the workloads, each alone in a round of its own.
        alone: per workload, in the order of the trial.
        time: makespan of a round together, by the sum of the lone ones.
        energy: the same of joules; None without them.
    """

    together: Measurement
    in_turn: Measurement
    alone: tuple[Measurement, ...]
    time: Ratio
    energy: Ratio | None


def compared(
    trial: Trial, repeats: Sequence[tuple[Measurement, Sequence[Measurement]]]
) -> CoRunComparison | None:
    """The comparison from paired repeats.

    Args:
        trial: what was run together.
        repeats: of each, the trial and its workloads alone, measured soon after one another.

    Returns:
        The comparison; None where something failed.
    """
    parts = [measurement for together, alone in repeats for measurement in (together, *alone)]
    if not parts or any(not measurement.ok or measurement.makespan_s is None for measurement in parts):
        return None
    paired = PairedRepeats(tuple({trial: together, _IN_TURN: summed(alone)} for together, alone in repeats))
    time = paired.ratio(trial, _IN_TURN, Objective("time"))
    if time is None:
        return None
    joined = paired.joined()
    return CoRunComparison(
        together=joined[trial],
        in_turn=joined[_IN_TURN],
        alone=tuple(join(same) for same in zip(*(alone for _, alone in repeats), strict=True)),
        time=time,
        energy=paired.ratio(trial, _IN_TURN, Objective("energy")),
    )


def summed(alone: Sequence[Measurement]) -> Measurement:
    """Rounds of lone workloads one after another: sums of times and joules, of which none may have failed."""
    energies = [measurement.energy for measurement in alone if measurement.energy is not None]
    return replace(
        alone[0],
        results=tuple(result for measurement in alone for result in measurement.results),
        makespan_s=math.fsum(measurement.makespan_s or 0.0 for measurement in alone),
        makespan_spread_s=math.hypot(*(measurement.makespan_spread_s for measurement in alone)),
        makespan_uncertainty_s=math.hypot(*(measurement.makespan_uncertainty_s for measurement in alone)),
        energy=_summed_energy(energies) if len(energies) == len(alone) else None,
        rounds=min(measurement.rounds for measurement in alone),
        window_s=math.fsum(measurement.window_s for measurement in alone),
        flags=tuple(dict.fromkeys(flag for measurement in alone for flag in measurement.flags)),
        check_s=math.fsum(measurement.check_s for measurement in alone),
        energy_total_j=math.fsum(measurement.energy_total_j for measurement in alone),
    )


def _summed_energy(energies: Sequence[Energy]) -> Energy:
    joules = math.fsum(energy.joules for energy in energies)
    uncertainty_j, degrees = expanded([contracted(part.uncertainty_j, part.degrees) for part in energies])
    seconds = math.fsum(energy.joules / energy.watts for energy in energies if energy.watts)
    return replace(
        energies[0],
        joules=joules,
        uncertainty_j=uncertainty_j,
        watts=joules / seconds if seconds else 0.0,
        degrees=degrees,
    )
