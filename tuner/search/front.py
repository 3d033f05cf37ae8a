"""The Pareto front of a run: which trials are measured again, and which of them are on it."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tuner.measurement.paired import ASSUMED_REPEATABILITY, PairedRepeats, Ratio
from tuner.measurement.race import ASSUMED_REPEATABILITY as TIME_REPEATABILITY
from tuner.model.objective import COVERAGE, Objective
from tuner.model.pareto import non_dominated
from tuner.model.trial import Measurement, Trial

MOST_POINTS = 12  # of a front that are measured again: each takes three windows for joules

_TIME, _ENERGY = Objective("time"), Objective("energy")
_REPEATABILITY = {_TIME: TIME_REPEATABILITY, _ENERGY: ASSUMED_REPEATABILITY}


class Comparison(NamedTuple):
    """What two trials are compared by.

    Attributes:
        trials: with their measurements.
        paired: their repeats, as far as they were measured again.
    """

    trials: Mapping[Trial, Measurement]
    paired: PairedRepeats

    def is_lower(self, one: Trial, other: Trial, objective: Objective) -> bool:
        """True where a cost of one trial is below that of another by more than the 95 % interval."""
        ratio = self.paired.ratio(one, other, objective) or self._of_single_windows(one, other, objective)
        return ratio.value + ratio.interval < 1.0

    def _of_single_windows(self, one: Trial, other: Trial, objective: Objective) -> Ratio:
        measurements = [self.trials[trial] for trial in (one, other)]
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
    known = list(trials)
    costs = [(_TIME.known(trials[trial]), _ENERGY.known(trials[trial])) for trial in known]
    return [known[i] for i in non_dominated(costs)]


def _told_apart(front: Sequence[Trial], comparison: Comparison) -> list[Trial]:
    """The points of a front, fastest first, that can be told from their neighbours."""
    kept: list[Trial] = []
    for trial in front:
        if kept and not comparison.is_lower(trial, kept[-1], _ENERGY):
            continue
        while kept and not comparison.is_lower(kept[-1], trial, _TIME):
            kept.pop()
        kept.append(trial)
    return kept
