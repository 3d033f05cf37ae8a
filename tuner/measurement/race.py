"""A race: trials are measured in short windows, and in longer ones while they may be the best.

*The test.* A trial takes up to three looks, windows of 3, 12 and 48 ms. After each it is held against the
best trial so far at the same look. It has lost where the relative difference d of their costs is above::

    d > t(nu; 1 - p) sqrt(u^2 + u_best^2 + 2 r^2),    p = ERROR / (TESTS n)

u and u_best are the relative standard uncertainties within the windows, r is the repeatability from one
window to another, t is Student's quantile, nu the degrees of freedom of the sum by the formula of Welch and
Satterthwaite, and n the number of trials measured before. Windows of one look are equally long and equally
soon after idling, so what a GPU does differently in longer windows is in both and cancels.

A trial that has not lost takes the next look only where that can tell more: once the variance within the
windows is a quarter of that between them, longer windows would not.

*The error.* The trial that is truly best is thrown away only if one of its tests errs: one at each look, and
one against the final best, which chooses whose costs are confirmed: TESTS in all. The best so far is the
lowest of n measured values, too low by selection. The test would err against it only if it erred against at
least one of the n, and against each of those it errs with a probability of at most p, as d is then a
difference of two unselected values whose expectation is not above zero. By Bonferroni's inequality, whatever
depends on what, the error of the whole race is at most TESTS n ERROR / (TESTS n) = 5 %.

*Assumed.* Errors are about normal. Repeatability, drift of the GPU between two trials included, is 0.2 %
(one standard deviation). On an H200, windows of 160 scans repeated to 0.07 % (3 and 12 ms) and 0.05 % (48 ms)
a pass over the space apart. Where the looks of a run scatter by more
than is assumed, the larger value is taken, with its degrees of freedom. The contenders are measured again at
the end: what they show of repeatability is printed, with the number of other trials that may then be below
the lowest.

``benchmarks/racing.py`` simulates races: with windows of that H200 and 0.05 to 0.4 % of noise on 63 recorded
spaces, the best was thrown away in none of 5,240. At most twelve contenders are confirmed: of more that tie,
the best one may be left out, which cost 0.03 % on average and 0.5 % at most.
"""

import math
from collections.abc import Sequence

from tuner.measurement.base import Contest
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Trial
from tuner.model.uncertainty import Part, contracted, expanded

LOOKS_S = (0.003, 0.012, 0.048)
"""Windows of a trial for its time, one after another while it may be the best."""

ERROR = 0.05
"""Probability, at most, that a race throws away the trial that is truly best."""

TESTS = len(LOOKS_S) + 1
"""Of a trial: at its looks, and in the choice of the contenders."""

ASSUMED_REPEATABILITY = 0.002
"""Relative standard deviation of a trial's time from one window to another, unless a run shows more."""

SHORT_EXCESS = 0.015
"""Windows of some milliseconds read a time longer than others, by so much at most (see ``docs/run.md``)."""

_BLOCKS_DEGREES = 4.0  # of uncertainties within a window: a device makes at least five rounds
_ENOUGH = 8.0  # degrees of freedom from which a run's own scatter is believed
_LONGER = 2.0  # times a window: of another look
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
    from scipy.special import stdtrit  # noqa: PLC0415 - takes 0.2 s, which the first trial need not wait for

    return difference > -float(stdtrit(_MANY if degrees is None else degrees, level)) * deviation


def _within(*windows: Measurement) -> list[Part]:
    """Relative variances of makespans within their windows."""
    return [Part(_TIME.relative_uncertainty(one) ** 2, _BLOCKS_DEGREES) for one in windows]


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


class Race:
    """The looks of a run's trials, and which trial has lost."""

    def __init__(self) -> None:
        self._looks: dict[Trial, tuple[Measurement, ...]] = {}
        self._steps = [_Scatter() for _ in LOOKS_S[1:]]

    def lost(self, looks: Sequence[Measurement], contest: Contest) -> bool:
        """True where a trial is clearly worse than the best so far.

        A window in which the GPU was held back, or rounds were uneven, is no proof unless the best trial's
        was such a window too. Nor is one without an uncertainty, unless it is modelled.

        Args:
            looks: the trial's windows so far, valid ones.
            contest: the best trial so far.
        """
        if contest.best is None:
            return False
        last, best = looks[-1], self._opponent(looks, contest.best)
        if last.spoilt - best.spoilt or not (last.makespan_uncertainty_s or last.modelled):
            return False
        difference = _TIME.cost(last) / _TIME.cost(best) - 1.0
        if best.window_s > _LONGER * last.window_s:
            difference -= SHORT_EXCESS
        return clearly_higher(difference, [*_within(last, best), self._between()], contest.measured)

    def tells_more(self, looks: Sequence[Measurement], contest: Contest) -> bool:
        """True where a longer window may tell more of a trial that has not lost.

        Args:
            looks: the trial's windows so far, valid ones.
            contest: the best trial so far.
        """
        last = looks[-1]
        if contest.best is None or last.spoilt or len(last.results) > 1:
            return True
        best = self._opponent(looks, contest.best)
        if _TIME.cost(last) < _TIME.cost(best):
            return True
        within = math.fsum(part.variance for part in _within(last, best))
        return within > _SMALL * self._between().variance

    def _opponent(self, looks: Sequence[Measurement], best: tuple[Trial, Measurement]) -> Measurement:
        """The best trial's window at the same look, or its longest."""
        same = self._looks.get(best[0], best[1:])
        return same[min(len(looks), len(same)) - 1]

    def add(self, trial: Trial, looks: Sequence[Measurement]) -> None:
        """Keep the looks of a trial, and learn from those behind the first how windows repeat."""
        self._looks[trial] = tuple(looks)
        for step, before, after in zip(self._steps, looks, looks[1:], strict=False):
            if before.makespan_s and after.makespan_s and not before.spoilt | after.spoilt:
                step.add(math.log(after.makespan_s / before.makespan_s))

    def honest(self, measurement: Measurement) -> float:
        """Standard uncertainty of a makespan in s: within its window, and from one window to another."""
        between_s = math.sqrt(self._between().variance / 2) * (measurement.makespan_s or 0.0)
        return math.hypot(measurement.makespan_uncertainty_s, between_s)

    def _between(self) -> Part:
        """Relative variance of the difference of two windows beyond what is within them.

        Learnt from the steps between the looks of one trial. What is common to all trials in a step, such
        as a GPU that throttles in longer windows, is not scatter.
        """
        degrees = float(sum(max(0, step.count - 1) for step in self._steps))
        assumed = Part(2 * ASSUMED_REPEATABILITY**2)
        if degrees < _ENOUGH:
            return assumed
        learnt = Part(math.fsum(step.squares for step in self._steps) / degrees, degrees)
        return max(assumed, learnt, key=lambda part: part.variance)
