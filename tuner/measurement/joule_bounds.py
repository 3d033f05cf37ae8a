"""Joules that a trial cannot be below, from its time alone: who is above the best needs no window for joules.

Two bounds for a round of t seconds at a clock:

- *certain*: idle power x t. No kernel draws less than the idle GPU at the same clock.
- *plausible*: idle power x t + the lowest net joules that any trial of the run has had there, on whatever GPU
  of a pool. Net joules move the data and do the arithmetic, which is the same work in all trials: a slower
  kernel draws less power, but hardly spends fewer net joules.

The risk of the second is a trial with net joules below all measured ones. On the spaces that were recorded
on an H200, played in random order, 11 % of trials were spared by it; most of the others are within some
percent of the best time. Of 3,354 spared ones none had less than its bound, and none of 160 searches lost its
best trial (``benchmarks/racing.py``).

Times are those of windows of some milliseconds. They read up to `SHORT_EXCESS` longer, which is taken off; a
GPU that would run into its power limit in longer windows is faster in them: the bounds are lower for it.
"""

import math
import statistics
from dataclasses import dataclass

from tuner.measurement.base import Contest
from tuner.measurement.race import ASSUMED_REPEATABILITY, SHORT_EXCESS, clearly_higher
from tuner.model.objective import COVERAGE, Objective
from tuner.model.trial import Energy, GpuSetting, Measurement
from tuner.model.uncertainty import Part, contracted

LEAST_TRIALS = 5
"""Trials with joules at a clock from which the plausible bound is drawn."""

REPEATABILITY = 0.005
"""Relative standard deviation of joules over minutes: see ``paired.ASSUMED_REPEATABILITY``."""


SWING = 0.04
"""Relative standard deviation of joules of a brief window at the power limit, where power swings.

Windows of 0.2 s scattered so on an H200.
"""


@dataclass(frozen=True)
class JouleBound:
    """Joules of a round of a trial that was not measured for joules.

    Attributes:
        least_j: it cannot be below them.
        estimate_j: what it may be, at the median power of the run.
        certain: True where idle power alone shows it.
    """

    least_j: float
    estimate_j: float
    certain: bool


class JouleBounds:
    """What a run has shown of power, by clock and power limit."""

    def __init__(self) -> None:
        self._seen: dict[GpuSetting, list[Energy]] = {}

    def add(self, setting: GpuSetting, measurement: Measurement) -> None:
        """Learn from a trial with joules."""
        if measurement.energy is not None and measurement.energy.watts > 0:
            self._seen.setdefault(setting, []).append(measurement.energy)

    def rules_out(
        self, measurement: Measurement, setting: GpuSetting, idle: tuple[float, float], contest: Contest
    ) -> JouleBound | None:
        """The bound of a trial that cannot be the best; None where it may be.

        Args:
            measurement: its time.
            setting: its clock and power limit.
            idle: power of the idle GPU at that clock and its standard uncertainty, in W.
            contest: the best trial so far, under an objective that needs energy.
        """
        makespan_s = measurement.makespan_s or 0.0
        unsure_s = math.hypot(measurement.makespan_uncertainty_s, ASSUMED_REPEATABILITY * makespan_s)
        least_s = max(0.0, (1.0 - SHORT_EXCESS) * makespan_s - COVERAGE * unsure_s)
        idle_w = max(0.0, idle[0] - COVERAGE * idle[1])
        certain_j = idle_w * least_s
        seen = self._seen.get(setting)
        if not seen or contest.best is None:
            return None
        least_net_j = min(one.joules * (1.0 - idle[0] / one.watts) for one in (*seen, *contest.elsewhere))
        net_j = max(0.0, least_net_j) if len(seen) >= LEAST_TRIALS else 0.0
        plausible_j = certain_j + net_j
        ceiling = _ceiling(contest.objective, contest.best[1])
        factor = least_s**contest.objective.time_exponent
        if plausible_j * factor <= ceiling:
            return None
        estimate_j = max(plausible_j, statistics.median(one.watts for one in seen) * makespan_s)
        return JouleBound(plausible_j, estimate_j, certain_j * factor > ceiling)


def is_clearly_worse(measurement: Measurement, contest: Contest) -> bool:
    """True for a trial whose joules, of a brief window, are clearly above the best's.

    The test of a race, with the repeatability of joules; at the power limit with that of brief windows there.
    A window that was spoilt by anything else proves nothing.
    """
    if contest.best is None:
        return False
    plain, best = Objective(contest.objective.name), contest.best[1]
    lowest, cost = plain.known(best), plain.known(measurement)
    if not (math.isfinite(lowest) and math.isfinite(cost)) or measurement.passing:
        return False
    parts = [
        contracted(plain.relative_uncertainty(one), None if one.energy is None else one.energy.degrees)
        for one in (measurement, best)
    ]
    limited = measurement.spoilt or measurement.at_power_limit
    between = 2 * REPEATABILITY**2 + (SWING**2 if limited else 0.0)
    return clearly_higher(cost / lowest - 1.0, [*parts, Part(between)], contest.measured)


def _ceiling(objective: Objective, best: Measurement) -> float:
    """The upper end of the 95 % interval of the lowest cost so far."""
    plain = Objective(objective.name)
    cost = plain.known(best)
    return cost * (1.0 + COVERAGE * math.hypot(plain.relative_uncertainty(best), REPEATABILITY))
