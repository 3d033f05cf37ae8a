"""Two trials of a run compared: slowdown and energy saved, each with its 95 % interval."""

import math
from dataclasses import replace

from tuner.measurement.paired import ASSUMED_REPEATABILITY, Ratio
from tuner.model.long_run import WindowScatter, stated
from tuner.model.objective import COVERAGE, Objective
from tuner.model.run_document import Changes
from tuner.model.trial import Measurement
from tuner.search.answer import SearchOutcome


def against(outcome: SearchOutcome, one: int | None, other: int | None) -> Changes | None:
    """What a trial costs in time and saves in energy against another one; None where one has failed.

    The answer against the trial with the shortest makespan is table IV of the multi-kernel paper. Savings
    carry a 95 % interval: of paired repeats where both have them, else of two single windows.
    """
    if one is None or other is None:
        return None
    (trial, answer), (reference, measured) = outcome.trials[one], outcome.trials[other]
    if answer.makespan_s is None or measured.makespan_s is None:
        return None
    slowdown = answer.makespan_s / measured.makespan_s - 1
    against: Changes = {"slowdown": slowdown, "slowdown_interval": _time_interval(outcome, one, other)}
    if answer.energy is None or measured.energy is None:
        return against
    paired = None if one == other else outcome.paired.ratio(trial, reference, Objective("energy"))
    ratio = paired or _of_single_windows(answer, measured, outcome.scatter)
    if one == other:
        ratio = Ratio(1.0, 0.0)
    return {
        **against,
        "energy_saving": 1 - ratio.value,
        "energy_saving_interval": ratio.interval,
        "turn_by_turn": None if one == other else paired is not None,
    }


def _time_interval(outcome: SearchOutcome, one: int, other: int) -> float:
    """Half of the 95 % interval of the slowdown of a valid trial against another one."""
    if one == other:
        return 0.0
    time = Objective("time")
    (trial, answer), (reference, measured) = outcome.trials[one], outcome.trials[other]
    paired = outcome.paired.ratio(trial, reference, time)
    if paired is not None:
        return paired.interval
    own = (time.relative_uncertainty(measurement) for measurement in (answer, measured))
    relative = math.hypot(*own, ASSUMED_REPEATABILITY, ASSUMED_REPEATABILITY)
    return COVERAGE * relative * time.cost(answer) / time.cost(measured)


def _of_single_windows(one: Measurement, other: Measurement, scatter: WindowScatter) -> Ratio:
    """A ratio of joules that were measured at different times; what the GPU still warms by is in both."""
    energy, scatter = Objective("energy"), replace(scatter, drift=0.0)
    value = energy.cost(one) / energy.cost(other)
    relative = math.hypot(*(energy.relative_uncertainty(stated(both, scatter)) for both in (one, other)))
    return Ratio(value, COVERAGE * value * relative)
