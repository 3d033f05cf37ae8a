"""Races: trials in single rounds, in short windows, in longer ones while they may be the best, by joules.

*The test.* A trial takes up to three rungs, windows of 3, 12 and 48 ms. After each it is held against the
best trial so far at the same rung. It has lost where the relative difference d of their costs is above::

    d > t(nu; 1 - p) sqrt(u^2 + u_best^2 + 2 r^2),    p = ERROR / (TESTS n)

u and u_best are the relative standard uncertainties within the windows, r is the repeatability from one
window to another, t is Student's quantile, nu the degrees of freedom of the sum by the formula of Welch and
Satterthwaite, and n the number of trials measured before. Windows of one rung are equally long and equally
soon after idling, so what a GPU does differently in longer windows is in both and cancels.

A trial that has not lost takes the next rung only where that can tell more: once the variance within the
windows is a quarter of that between them, longer windows would not. A new best takes two rungs in any case,
which later trials are held against.

Before the rungs a lone workload of one launch takes three single rounds, which cost less than the first
window. They are held against the best trial's single rounds, with a repeatability of their own: 1 % until the
run has shown how single rounds agree with the first windows behind them, from then on what it has shown, and
more for a trial whose three rounds differ by more (a moderated t-test, after Smyth 2004). Clocks that are
still coming up show in that scatter, and are no proof; the bound below holds while a round scatters by 2 % at
most. Where the best trial's single rounds do not agree with its windows within `SINGLE_EXCESS`, none are
made: of a round of some microseconds the events around it are a part.

*The error.* The trial that is truly best is thrown away only if one of its tests errs: in single rounds, at
each rung, and against the final best, which chooses whose costs are confirmed: TESTS in all. The best so far
is the lowest of n measured values, too low by selection. The test would err against it only if it erred
against at least one of the n, and against each of those it errs with a probability of at most p, as d is then
a difference of two unselected values whose expectation is not above zero. By Bonferroni's inequality,
whatever depends on what, the error of the whole race is at most TESTS n ERROR / (TESTS n) = 5 %.

*Assumed.* Errors are about normal. Repeatability, drift of the GPU between two trials included, is 0.2 %
(one standard deviation). On an H200, windows of 160 scans repeated to 0.07 % (3 and 12 ms) and 0.05 % (48 ms)
a pass over the space apart. Where the rungs of a run scatter by more
than is assumed, the larger value is taken, with its degrees of freedom. The contenders are measured again at
the end: what they show of repeatability is printed, with the number of other trials that may then be below
the lowest.

``benchmarks/racing.py`` simulates races: with windows of that H200 and 0.05 to 0.4 % of noise on 63 recorded
spaces, the best was thrown away in none of 3,144. At most eight contenders are confirmed: of more that tie,
the best one may be left out, which cost 0.04 % on average and 0.6 % at most.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tuner.measurement.base import ComparisonTarget
from tuner.measurement.settle import FLAT
from tuner.model.distributions import student_quantile
from tuner.model.objective import COVERAGE, Objective
from tuner.model.trial import (
    Energy,
    Flag,
    FlagKind,
    GpuSetting,
    Measurement,
    Part,
    Trial,
    contracted,
    expanded,
)

RUNGS_S = (0.003, 0.012, 0.048)
"""Windows of a trial for its time, one after another while it may be the best."""

ERROR = 0.05
"""Probability, at most, that a race throws away the trial that is truly best."""

TESTS = len(RUNGS_S) + 2
"""Of a trial: in single rounds, at its rungs, and in the choice of the contenders."""

ASSUMED_REPEATABILITY = 0.002
"""Relative standard deviation of a trial's time from one window to another, unless a run shows more."""

SINGLE_REPEATABILITY = 0.01
"""The same of single rounds, until a run shows it: on an H200 0.2 % in the median, and 1.1 % at worst."""

SINGLE_EXCESS = 0.03
"""Single rounds take longer than rounds of windows by so much at most, if they are to tell anything."""

SHORT_EXCESS = 0.015
"""Windows of some milliseconds read a time longer than others, by so much at most (``docs/measuring.md``)."""

_BLOCKS_DEGREES = 4.0  # of uncertainties within a window: a device makes at least five rounds
_SINGLE_DEGREES = 2.0  # of three rounds
_ENOUGH = 8.0  # degrees of freedom from which a run's own scatter is believed
_LONGER = 2.0  # times a window: of another rung
_MANY = 1e6  # degrees of freedom of a variance that is known
_SMALL = 0.25  # of the variance between windows: with less within them, margins shrink by a tenth at most
_TIME = Objective("time")


def clearly_higher(difference: float, parts: Sequence[Part], measured: int) -> bool:
    """True where a relative difference from the lowest cost so far is more than chance explains.

    Args:
        difference: of a trial's cost from the lowest one, relative to it.
        parts: of the relative variance of the difference.
        measured: trials from which the lowest was chosen.
    """
    uncertainty, degrees = expanded(parts)
    deviation = math.sqrt(contracted(uncertainty, degrees).variance)
    level = ERROR / (TESTS * max(1, measured))
    return difference > -student_quantile(_MANY if degrees is None else degrees, level) * deviation


def _within(*windows: Measurement, degrees: float = _BLOCKS_DEGREES) -> list[Part]:
    """Relative variances of makespans within their windows."""
    return [Part(_TIME.relative_uncertainty(window) ** 2, degrees) for window in windows]


class _Scatter:
    """Values of which only number, mean and scatter are kept.

    Attributes:
        count: values so far.
        squares: sum of the squares of their differences from the mean, by Welford's recurrence.
    """

    def __init__(self) -> None:
        self.count = 0
        self.squares = 0.0
        self._mean = 0.0

    def add(self, value: float) -> None:
        """Take in a value."""
        self.count += 1
        before = value - self._mean
        self._mean += before / self.count
        self.squares += before * (value - self._mean)

    def part(self) -> Part | None:
        """The variance of a value with its degrees of freedom; None of too few values."""
        degrees = self.count - 1.0
        return Part(self.squares / degrees, degrees) if degrees >= _ENOUGH else None


class Race:
    """The rungs of a run's trials, and which trial has lost."""

    def __init__(self) -> None:
        self._rungs: dict[Trial, tuple[Measurement, ...]] = {}
        self._singles: dict[Trial, Measurement] = {}
        self._steps = [_Scatter() for _ in RUNGS_S[1:]]
        self._single_steps = _Scatter()  # from single rounds to the first window

    def takes_singles(self, target: ComparisonTarget) -> bool:
        """True unless single rounds of the best so far are known to differ from those in its windows."""
        if target.best is None:
            return True
        trial, measurement = target.best
        singles = self._singles.get(trial)
        return singles is None or abs(_TIME.cost(singles) / _TIME.cost(measurement) - 1.0) <= SINGLE_EXCESS

    def lost_in_singles(self, singles: Measurement, target: ComparisonTarget) -> bool:
        """True where single rounds are clearly longer than those of the best trial so far.

        Args:
            singles: of the trial, valid.
            target: the best trial so far.
        """
        best = None if target.best is None else self._singles.get(target.best[0])
        if best is None or singles.spoilt or not (singles.makespan_uncertainty_s or singles.modelled):
            return False
        difference = _TIME.cost(singles) / _TIME.cost(best) - 1.0
        return clearly_higher(difference, self._of_singles(singles, best), target.measured)

    def _of_singles(self, *singles: Measurement) -> list[Part]:
        """Relative variances of single rounds, within and between them.

        What the run has shown is both. It counts as `_ENOUGH` degrees of freedom beside the two of the
        trial's own rounds, so that one whose rounds scatter far more is not judged by the others.
        """
        within = _within(*singles, degrees=_SINGLE_DEGREES)
        learnt = self._single_steps.part()
        if learnt is None:
            return [*within, Part(len(singles) * SINGLE_REPEATABILITY**2)]
        common = max(learnt.variance, ASSUMED_REPEATABILITY**2)
        degrees = _ENOUGH + _SINGLE_DEGREES
        moderated = ((_ENOUGH * common + _SINGLE_DEGREES * own.variance) / degrees for own in within)
        # Own rounds show only what is within them, so they lower nothing; what is common is known once.
        return [Part(math.fsum(max(common, variance) for variance in moderated), _ENOUGH)]

    def honest_singles(self, singles: Measurement, target: ComparisonTarget) -> Measurement:
        """Single rounds of a trial that lost in them, as they are stored.

        Their uncertainty is that within and between single rounds. The time in which arrays are restored,
        which windows alone tell, is the best trial's: it is that of the same arrays.
        """
        unsure = math.sqrt(math.fsum(part.variance for part in self._of_singles(singles)))
        unsure_s = unsure * (singles.makespan_s or 0.0)
        results = singles.results
        if target.best is not None:
            restored = target.best[1].results
            results = tuple(
                replace(result, restore_s=best.restore_s)
                for result, best in zip(results, restored, strict=True)
            )
        return replace(singles, results=results, makespan_uncertainty_s=unsure_s)

    def lost(self, rungs: Sequence[Measurement], target: ComparisonTarget) -> bool:
        """True where a trial is clearly worse than the best so far.

        A window in which the GPU was held back, or rounds were uneven, is no proof unless the best trial's
        was such a window too. Nor is one without an uncertainty, unless it is modelled.

        Args:
            rungs: the trial's windows so far, valid ones.
            target: the best trial so far.
        """
        if target.best is None:
            return False
        last, best = rungs[-1], self._opponent(rungs, target.best)
        if last.spoilt - best.spoilt or not (last.makespan_uncertainty_s or last.modelled):
            return False
        if last.window_s > _LONGER * best.window_s:  # a GPU may be slower in them
            return False
        difference = _TIME.cost(last) / _TIME.cost(best) - 1.0
        if best.window_s > _LONGER * last.window_s:
            difference -= SHORT_EXCESS
        return clearly_higher(difference, [*_within(last, best), self._between()], target.measured)

    def tells_more(self, rungs: Sequence[Measurement], target: ComparisonTarget) -> bool:
        """True where a longer window may tell more of a trial that has not lost.

        Args:
            rungs: the trial's windows so far, valid ones.
            target: the best trial so far.
        """
        last = rungs[-1]
        if target.best is None or last.spoilt or len(last.results) > 1:
            return True
        best = self._opponent(rungs, target.best)
        if _TIME.cost(last) < _TIME.cost(best) and len(rungs) == 1:
            return True
        within = math.fsum(part.variance for part in _within(last, best))
        return within > _SMALL * self._between().variance

    def _opponent(self, rungs: Sequence[Measurement], best: tuple[Trial, Measurement]) -> Measurement:
        """The best trial's window at the same rung, or its longest."""
        same = self._rungs.get(best[0], best[1:])
        return same[min(len(rungs), len(same)) - 1]

    def add_singles(self, trial: Trial, singles: Measurement) -> None:
        """Keep the single rounds of a trial that goes on to the rungs."""
        self._singles[trial] = singles

    def add(self, trial: Trial, rungs: Sequence[Measurement]) -> None:
        """Keep the rungs of a trial, and learn from them how windows repeat, and single rounds."""
        self._rungs[trial] = tuple(rungs)
        singles = [self._singles[trial]] if trial in self._singles else []
        steps = self._steps[:]
        if singles:
            steps.insert(0, self._single_steps)
        for step, (before, after) in zip(steps, pairwise((*singles, *rungs)), strict=False):
            if before.makespan_s and after.makespan_s and not before.spoilt | after.spoilt:
                step.add(math.log(after.makespan_s / before.makespan_s))

    def honest(self, measurement: Measurement) -> float:
        """Standard uncertainty of a makespan in s: within its window, and from one window to another."""
        between_s = math.sqrt(self._between().variance / 2) * (measurement.makespan_s or 0.0)
        return math.hypot(measurement.makespan_uncertainty_s, between_s)

    def _between(self) -> Part:
        """Relative variance of the difference of two windows beyond what is within them.

        Learnt from the steps between the rungs of one trial. What is common to all trials in a step, such
        as a GPU that throttles in longer windows, is not scatter.
        """
        degrees = float(sum(max(0, step.count - 1) for step in self._steps))
        assumed = Part(2 * ASSUMED_REPEATABILITY**2)
        if degrees < _ENOUGH:
            return assumed
        learnt = Part(math.fsum(step.squares for step in self._steps) / degrees, degrees)
        return max(assumed, learnt, key=lambda part: part.variance)


# --- Joules that a trial cannot be below, from its time alone: above the best, it needs no window for them.
#
# Two bounds for a round of t seconds at a clock:
#
# - *certain*: idle power x t. No kernel draws less than the idle GPU at the same clock.
# - *plausible*: idle power x t + the lowest net joules that any trial of the run has had there, on whatever
#   GPU of a pool. Net joules move the data and do the arithmetic, which is the same work in all trials: a
#   slower kernel draws less power, but hardly spends fewer net joules.
#
# The risk of the second is a trial with net joules below all measured ones. On the spaces that were recorded
# on an H200, played in random order, 11 % of trials were spared by it; most of the others are within some
# percent of the best time. Of 3,354 spared ones none had less than its bound, and none of 160 searches lost
# its best trial (``benchmarks/racing.py``).
#
# Times are those of windows of some milliseconds. They read up to `SHORT_EXCESS` longer, which is taken off;
# a GPU that would run into its power limit in longer windows is faster in them: the bounds are lower for it.

LEAST_TRIALS = 5
"""Trials with joules at a clock from which the plausible bound is drawn."""

_LEAST_HELD = 2  # trials that the power limit held back, from which a bound is drawn

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

    def estimated(self, measurement: Measurement) -> Measurement:
        """A measurement of time, with joules only for whoever searches."""
        sure = "idle power alone" if self.certain else "the lowest net energy so far"
        flag = Flag(FlagKind.ESTIMATED, f"no joules measured: at least {self.least_j:.4g} J by {sure}")
        return replace(
            measurement,
            estimated_j=self.estimate_j,
            energy_total_j=self.estimate_j * measurement.rounds,
            flags=(*measurement.flags, flag),
        )


class JouleBounds:
    """Bounds on joules by the power measured in a run, per clock and power limit."""

    def __init__(self) -> None:
        self._seen: dict[GpuSetting, list[Energy]] = {}
        self._held_w: dict[GpuSetting, list[float]] = {}

    def add_held(self, setting: GpuSetting, measurement: Measurement) -> None:
        """Learn what a GPU draws that its power limit holds back, from a trial in windows long enough."""
        if measurement.energy is not None:
            self._held_w.setdefault(setting, []).append(measurement.energy.watts)

    def costs_more_when_held(
        self, measurement: Measurement, setting: GpuSetting, target: ComparisonTarget
    ) -> bool:
        """True for a trial at the power limit that no longer window can make the best.

        A GPU that is over its limit at first becomes slower, never faster, and then draws what others drew
        that were held back there: the least of them in the time of this window is what it cannot be below.
        """
        held_w = self._held_w.get(setting, [])
        if target.best is None or len(held_w) < _LEAST_HELD:
            return False
        least_s = _least_s(measurement)
        return min(held_w) * least_s ** (1 + target.objective.time_exponent) > _ceiling(
            target.objective, target.best[1]
        )

    def draws_as_held(self, measurement: Measurement, setting: GpuSetting) -> bool:
        """True where a window's mean power is what trials drew that the limit held back, in long windows.

        Power swings about the limit, time hardly: in windows of 0.8 to 3.2 s of an H200 joules were up to
        2.5 % off, and off by what power was to 0.4 %.
        """
        held_w = self._held_w.get(setting, [])
        if measurement.energy is None or len(held_w) < _LEAST_HELD:
            return False
        return abs(measurement.energy.watts / statistics.median(held_w) - 1.0) <= FLAT

    def add(self, setting: GpuSetting, measurement: Measurement) -> None:
        """Learn from a trial with joules."""
        if measurement.energy is not None and measurement.energy.watts > 0:
            self._seen.setdefault(setting, []).append(measurement.energy)

    def rules_out(
        self,
        measurement: Measurement,
        setting: GpuSetting,
        idle: tuple[float, float],
        target: ComparisonTarget,
    ) -> JouleBound | None:
        """The bound of a trial that cannot be the best; None where it may be.

        Args:
            measurement: its time.
            setting: its clock and power limit.
            idle: power of the idle GPU at that clock and its standard uncertainty, in W.
            target: the best trial so far, under an objective that needs energy.
        """
        makespan_s, least_s = measurement.makespan_s or 0.0, _least_s(measurement)
        idle_w = max(0.0, idle[0] - COVERAGE * idle[1])
        certain_j = idle_w * least_s
        seen = self._seen.get(setting)
        if not seen or target.best is None:
            return None
        energies = (*seen, *target.elsewhere)
        least_net_j = min(energy.joules * (1.0 - idle[0] / energy.watts) for energy in energies)
        net_j = max(0.0, least_net_j) if len(seen) >= LEAST_TRIALS else 0.0
        plausible_j = certain_j + net_j
        ceiling = _ceiling(target.objective, target.best[1])
        factor = least_s**target.objective.time_exponent
        if plausible_j * factor <= ceiling:
            return None
        estimate_j = max(plausible_j, statistics.median(energy.watts for energy in seen) * makespan_s)
        return JouleBound(plausible_j, estimate_j, certain_j * factor > ceiling)


def _least_s(measurement: Measurement) -> float:
    """The time that rounds cannot be below, by a short window."""
    makespan_s = measurement.makespan_s or 0.0
    unsure_s = math.hypot(measurement.makespan_uncertainty_s, ASSUMED_REPEATABILITY * makespan_s)
    return max(0.0, (1.0 - SHORT_EXCESS) * makespan_s - COVERAGE * unsure_s)


def is_clearly_worse(measurement: Measurement, target: ComparisonTarget) -> bool:
    """True for a trial whose joules, of a brief window, are clearly above the best's.

    The test of a race, with the repeatability of joules; at the power limit with that of brief windows there.
    A window that was spoilt by anything else proves nothing.
    """
    if target.best is None:
        return False
    plain, best = Objective(target.objective.name), target.best[1]
    lowest, cost = plain.known(best), plain.known(measurement)
    if not (math.isfinite(lowest) and math.isfinite(cost)) or measurement.passing:
        return False
    parts = [
        contracted(plain.relative_uncertainty(each), None if each.energy is None else each.energy.degrees)
        for each in (measurement, best)
    ]
    limited = measurement.spoilt or measurement.at_power_limit
    between = 2 * REPEATABILITY**2 + (SWING**2 if limited else 0.0)
    return clearly_higher(cost / lowest - 1.0, [*parts, Part(between)], target.measured)


def _ceiling(objective: Objective, best: Measurement) -> float:
    """The upper end of the 95 % interval of the lowest cost so far."""
    plain = Objective(objective.name)
    cost = plain.known(best)
    return cost * (1.0 + COVERAGE * math.hypot(plain.relative_uncertainty(best), REPEATABILITY))
