"""Paired repeats of the contenders for the answer: how they compare, and how well trials repeat.

A GPU's power drifts by some tenths of a percent within minutes, as it warms up. The contenders of one paired
repeat share that drift, so the ratio of two is known far better than either. Trials of a search were measured
once, minutes apart. How much that may mean is learnt from the contenders, which were measured both times.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tuner.measurement.pooling import join, joined_mean, scaled_energy
from tuner.measurement.scatter import RATIO_DRIFT, ratio_scatter
from tuner.model.objective import COVERAGE, Objective
from tuner.model.trial import Measurement, Trial
from tuner.model.uncertainty import Part, contracted, expanded, student_factor

LEAST_REPEATS = 3
"""Of each contender for the answer."""

LEAST_TURNS = 2
"""Of trials that were named before anything was measured: no chance has chosen them."""

MOST_REPEATS = 9
"""Of a contender that may cost least and is not known to the wanted precision by then: that is a tie."""

ASSUMED_REPEATABILITY = 0.005
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
    """How well trials repeat.

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
    """

    repeats: tuple[Mapping[Trial, Measurement], ...] = ()
    end: Mapping[Trial, Measurement] = field(default_factory=dict)

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
        before = [(joined[trial].energy, last.energy) for trial, last in self.end.items() if trial in joined]
        pairs = [(one, last) for one, last in before if one is not None and last is not None and one.joules]
        if not pairs:
            return joined
        factor = statistics.fmean(last.joules / one.joules for one, last in pairs)
        own = (energy.uncertainty_j / energy.joules for pair in pairs for energy in pair if energy.joules)
        unsure = math.hypot(*own) / len(pairs)
        if abs(factor - 1.0) <= COVERAGE * unsure:
            factor, unsure = 1.0, 0.0
        celsius = [one.temperature_c for one in self.end.values() if one.temperature_c is not None]
        return {
            trial: replace(
                one,
                energy=None if one.energy is None else scaled_energy(one.energy, factor, unsure),
                temperature_c=statistics.fmean(celsius) if celsius else None,
            )
            for trial, one in joined.items()
        }

    def ratio(self, trial: Trial, other: Trial, objective: Objective) -> Ratio | None:
        """Cost of one contender by another's in the repeats that have both; None without one.

        What is common to a repeat is in neither the ratio nor its interval. How ratios scatter from turn to
        turn is learnt from all contenders together, so that no trial gains or loses by the chance of its few.
        """
        plain = Objective(objective.name)  # a limit applies to the joined repeats
        ratios = []
        for repeat in self.repeats:
            both = [repeat[one] for one in (trial, other) if one in repeat]
            costs = [plain.cost(measurement) for measurement in both]
            if len(both) < _BOTH or not all(map(math.isfinite, costs)):
                continue
            unsure = math.hypot(*(plain.uncertainty(m) / cost for m, cost in zip(both, costs, strict=True)))
            ratios.append((costs[0] / costs[1], costs[0] / costs[1] * unsure, None))
        if not ratios:
            return None
        scatter = ratio_scatter(self.repeats, plain) if plain.needs_energy else None
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

        One margin is fair to all: joules within the wanted precision are the same, and so are those within
        the interval that ratios of this run have in the middle. A trial known more surely, or less, gains
        nothing by that. For times those that may be lowest.
        """
        rivals = self.rivals(objective)
        if not rivals or not objective.needs_energy:
            return rivals
        lowest = next(iter(rivals))
        ratios = {
            trial: self.ratio(trial, lowest, objective)
            for trial, measurement in self.joined().items()
            if trial != lowest and math.isfinite(objective.cost(measurement))
        }
        known = {trial: ratio for trial, ratio in ratios.items() if ratio is not None}
        usual = statistics.median(ratio.interval for ratio in known.values()) if known else 0.0
        margin = 1.0 + max(precision, usual)
        return {lowest: rivals[lowest]} | {
            trial: ratio for trial, ratio in known.items() if ratio.value <= margin
        }

    def answer(self, objective: Objective, precision: float) -> Trial | None:
        """The fastest contender that ties with the lowest; None where all failed."""
        joined = self.joined()
        rivals = self.tied(objective, precision)
        return min(rivals, key=lambda trial: joined[trial].makespan_s or 0.0, default=None)

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
    """How well trials repeat, from contenders in the search and later; None where too few tell.

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


def near(
    searched: Mapping[Trial, Measurement], paired: PairedRepeats, objective: Objective, again: Repeatability
) -> int:
    """How many trials that were measured once may cost less than all contenders, by how they repeat."""
    joined = paired.joined()
    lowest = min(map(objective.cost, joined.values()))
    others = (objective.known(measurement) for trial, measurement in searched.items() if trial not in joined)
    return sum(cost * (1.0 - again.interval) <= lowest for cost in others if math.isfinite(cost))
