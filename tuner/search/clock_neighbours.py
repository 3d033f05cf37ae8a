"""The end of a search of clocks: the best is held against its neighbours in clock, turn by turn."""

import math
from collections.abc import Mapping
from dataclasses import replace

from tuner.measurement.paired import PairedRepeats
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Trial
from tuner.search.driver import Driver

_ROUNDS = 3  # of paired repeats, each where a neighbour turned out to cost less

Trials = tuple[Trial, ...]


def confirm_neighbours(
    driver: Driver,
    objective: Objective,
    precision: float,
    valid: Mapping[Trial, Measurement],
    contenders: tuple[Trials, Trials],
) -> PairedRepeats:
    """Confirm contenders, and the neighbours of the best, until the neighbours of the best are among them.

    Args:
        driver: measures them.
        objective: whose cost is compared.
        precision: wanted of a cost.
        valid: what the search measured.
        contenders: the trials that may cost least, the lowest first, and those that are kept beside them.

    Returns:
        The paired repeats.
    """
    chosen, kept = contenders
    paired = PairedRepeats()
    best, missing = chosen[0], clock_neighbours(objective, valid, chosen[0])
    for _ in range(_ROUNDS):
        beside = tuple(dict.fromkeys((*kept, *missing)))
        again = driver.confirm(chosen, beside, objective, precision)
        paired = PairedRepeats((*paired.repeats, *again.repeats))
        best = next(iter(paired.rivals(objective)), best)
        neighbours = clock_neighbours(objective, valid, best)
        missing = tuple(trial for trial in neighbours if trial not in paired.joined())
        if not missing or driver.out_of_time:
            break
        chosen, kept = (best,), ()
    return paired


def clock_neighbours(objective: Objective, trials: Mapping[Trial, Measurement], one: Trial) -> Trials:
    """The trials next to one in clock, above and below, that differ in nothing else and may be the answer."""
    clocks = {
        trial.clock_mhz: trial
        for trial, measurement in trials.items()
        if replace(trial, clock_mhz=one.clock_mhz) == one and math.isfinite(objective.known(measurement))
    }
    present = one.clock_mhz or 0
    above = min((mhz for mhz in clocks if mhz is not None and mhz > present), default=None)
    below = max((mhz for mhz in clocks if mhz is not None and mhz < present), default=None)
    return tuple(clocks[mhz] for mhz in (above, below) if mhz is not None)
