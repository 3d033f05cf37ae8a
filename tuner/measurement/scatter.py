"""How windows scatter and drift over minutes, as a run shows it; ``model.long_run`` makes intervals of it.

The uncertainty of a window is about that window. The same work a minute later takes joules that differ by 0.2
to 0.5 % on an H200, ten times what a good counter's window is uncertain of. Whoever pays for joules pays for
the mean over minutes: what is printed, stored and compared contains the scatter between windows.

It is learnt from the contenders of a run, measured in the search and again in paired repeats, all pooled:
with I trials in J columns (the search, and each repeat), MS_c the mean square between columns and MS_r that
of what neither trial nor column explains, one window varies by ``MS_r (I - 1) / I + MS_c / I``, with degrees
of freedom by Welch and Satterthwaite, less what its own uncertainty explains. Repeats are seconds apart and
share what takes minutes: their scatter is not divided by their number.

*Drift*: a GPU that is still warming takes more later. What is left of that when the run ends is taken to be
at most what its slope makes in another minute, where a trial was measured again a minute later or more: so it
is of any rise that has a time constant below 87 s. A shorter run cannot tell: ± 1.2 % are assumed, or what
the repeats have changed by since the first, if that is more. No thermometer tells it: an H200 took 0.8 % more
within half a minute in which its chip stayed at 44 °C.

*Assumed*: 0.4 % (standard deviation) where a run has too few repeats, or they span less than a minute, unless
they scatter by more. Less than 0.2 % is never believed: no run lasts as long as its answer is used. A ratio
of two trials, turn by turn, is taken to drift by 0.3 % in minutes; three configurations of an H200 drifted by
-0.10, -0.12 and -0.41 % in three.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.model.long_run import ASSUMED, ASSUMED_DRIFT, WindowScatter
from tuner.model.objective import COVERAGE, Objective
from tuner.model.trial import Measurement, Trial
from tuner.model.uncertainty import Part, contracted, expanded

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
        return max(assumed, learnt or assumed, key=lambda one: one.interval)
    return replace(learnt, drift=drift)


def _drift(searched: Mapping[Trial, Measurement], again: Repeats) -> float:
    """What is left of the drift behind the last time that trials were measured again."""
    minutes, seconds = [], [0.0]
    for trial, last in again[-1].items() if again else ():
        repeats = [repeat[trial] for repeat in again[:-1] if trial in repeat]
        first = [searched[trial]] if trial in searched and searched[trial] is not last else []
        known = [(one, _change(one, last)) for one in (*first, *repeats)]
        long = [
            change * LONG_S / (last.ended_s - one.ended_s)
            for one, change in known
            if change is not None and last.ended_s - one.ended_s >= LONG_S and _alike(one, last)
        ]
        minutes += long[-1:]
        if not long:  # what the search measured may be of a cold GPU
            seconds += [abs(change) for _, change in known[len(first) :][:1] if change is not None]
    if minutes:
        return abs(statistics.fmean(minutes)) / COVERAGE
    return max(ASSUMED_DRIFT, max(seconds) / COVERAGE)


def _change(one: Measurement, other: Measurement) -> float | None:
    """Logarithm of the joules of another window by those of the one; None where one has none."""
    first, second = _ENERGY.known(one), _ENERGY.known(other)
    return math.log(second / first) if 0 < first < math.inf and 0 < second < math.inf else None


def _scatter(searched: Mapping[Trial, Measurement], repeats: Repeats) -> tuple[WindowScatter | None, float]:
    """The scatter that a run has shown, and the seconds that its repeats span; None where too few tell."""
    again = repeats[0] if repeats else {}
    alike = {
        trial: one
        for trial, one in searched.items()
        if trial in again and one is not again[trial] and _alike(one, again[trial])
    }
    columns = [alike, *repeats] if alike else list(repeats)
    found = _components([_logarithms(column, _ENERGY) for column in columns])
    if found is None:
        return None, 0.0
    trials, count, between, rest = found
    own = statistics.fmean(_own_variance(column[trial]) for column in columns[:count] for trial in trials)
    parts = [Part(between.variance / len(trials), between.degrees)]
    if rest is not None:
        parts.append(Part(rest.variance * (len(trials) - 1) / len(trials), rest.degrees))
    variance = math.fsum(part.variance for part in parts)
    degrees = _degrees(parts) or math.fsum(part.degrees or 0.0 for part in parts)
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
    found = _components([_logarithms(repeat, objective) for repeat in repeats])
    if found is None or found[3] is None or (found[3].degrees or 0.0) < _ENOUGH:
        return None
    return Part(2.0 * found[3].variance, found[3].degrees)


def _alike(one: Measurement, again: Measurement) -> bool:
    """False for a window that is no other one of the same work.

    It is so short that its joules may be others, as at a power limit, or hardly known, or another GPU's.
    """
    return one.window_s >= _SHORT * again.window_s and not one.scaled


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
        statistics.fmean(row[place] - mean for row, mean in zip(rows, means, strict=True))
        for place in range(count)
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


def _own_variance(measurement: Measurement) -> float:
    """Relative variance of joules that the window itself explains."""
    energy = measurement.energy
    if energy is None or not energy.joules:
        return 0.0
    return contracted(energy.uncertainty_j, energy.degrees).variance / energy.joules**2


def _degrees(parts: Sequence[Part]) -> float | None:
    """Effective degrees of freedom of a sum of variances; None where it is nothing."""
    return expanded(parts)[1]
