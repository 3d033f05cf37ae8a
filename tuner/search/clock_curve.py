"""What other clocks would bring: the answer's configurations over the clock, and its neighbours there."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner import registry
from tuner.measurement.race import ASSUMED_REPEATABILITY as TIME_REPEATABILITY
from tuner.model.long_run import of_window
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration
from tuner.model.records import trial_record
from tuner.model.run_document import ClockCurve, ClockPointDocument
from tuner.model.trial import Measurement, Trial
from tuner.search.answer import SearchOutcome
from tuner.space.search_view import ClockPoint

_ENOUGH = 3  # clocks of a curve, from which on the others are modelled


def clock_curve(outcome: SearchOutcome, clocks_mhz: Sequence[int], names: Sequence[str]) -> ClockCurve:
    """Time and joules of the answer's configurations over the clock, highest clock first.

    Where they were measured at too few clocks, as when they tie with others whose clocks were searched, it
    is the curve of the cheapest ones that were measured at enough. Ratios are against the highest clock at
    which they were measured, for joules where any were. ``kind`` says whether a point was measured, or
    comes from the model of time and power that is fitted to the measured ones.

    Args:
        outcome: with its answer.
        clocks_mhz: that the run could set.
        names: of the workloads.

    Returns:
        ``clock_curve`` and ``clock_curve_of`` as ``docs/run.md`` describes them; an empty list and null where
        the clock was not searched.
    """
    nothing: ClockCurve = {"clock_curve": [], "clock_curve_of": None}
    if outcome.answer is None:
        return nothing
    trials = dict(outcome.trials)
    answer = _shown(outcome, trials)
    line = clock_line(trials, answer)
    points = _points(line, clocks_mhz)
    measured = [point for point in points if point.measured]
    if len(measured) < 2:  # noqa: PLR2004 - one has no slope
        return nothing
    reference = next((point for point in measured if point.joules), measured[0])
    return {
        "clock_curve": [_record(outcome, answer, point, reference) for point in points],
        "clock_curve_of": trial_record(answer, names)["configurations"],
    }


def _points(line: Mapping[int, Measurement], clocks_mhz: Sequence[int]) -> list[ClockPoint]:
    """Points of a line, highest clock first; joules of the measured ones with the uncertainty that is stated.

    The model is fitted to the windows: it knows of the scatter between them.
    """
    windows = {mhz: of_window(measurement) for mhz, measurement in line.items()}
    points: list[ClockPoint] = registry.load("clocks", "curve")(windows, clocks_mhz)
    return [_stated(point, line[point.clock_mhz]) if point.measured else point for point in points]


def _stated(point: ClockPoint, measurement: Measurement) -> ClockPoint:
    energy = measurement.energy
    return point if energy is None else replace(point, joules_uncertainty=energy.uncertainty_j)


def _shown(outcome: SearchOutcome, trials: Mapping[Trial, Measurement]) -> Trial:
    """The answer, or the cheapest trial whose configurations were measured at enough clocks."""
    answer = outcome.trials[outcome.answer or 0][0]
    cost = outcome.objective.known
    costs = sorted(
        (trial for trial in trials if math.isfinite(cost(trials[trial]))), key=lambda t: cost(trials[t])
    )
    clocks = Counter(_but_clock(trial) for trial in trials if trial.clock_mhz is not None)
    wide = (trial for trial in (answer, *costs) if clocks[_but_clock(trial)] >= _ENOUGH)
    return next(wide, answer)


def clock_line(trials: Mapping[Trial, Measurement], one: Trial) -> dict[int, Measurement]:
    """Trials that differ from one in the clock only, itself among them, by their clocks."""
    sought = _but_clock(one)
    return {
        trial.clock_mhz: found
        for trial, found in trials.items()
        if trial.clock_mhz is not None and _but_clock(trial) == sought
    }


def _but_clock(trial: Trial) -> tuple[tuple[Configuration, ...], int | None]:
    """All of a trial but its clock."""
    return trial.configurations, trial.power_limit_w


def _record(
    outcome: SearchOutcome, answer: Trial, point: ClockPoint, reference: ClockPoint
) -> ClockPointDocument:
    time_ratio, time_interval = _time_ratio(outcome, answer, point, reference)
    joules_ratio, joules_interval = _joules_ratio(outcome, answer, point, reference)
    slower = time_ratio - 1.0
    saving = None
    if joules_ratio is not None and slower > time_interval:
        saving = (1.0 - joules_ratio) / slower
    return {
        "clock_mhz": point.clock_mhz,
        "power_limit_w": answer.power_limit_w,
        "time_s": point.time_s,
        "time_s_uncertainty": point.time_uncertainty_s,
        "time_ratio": time_ratio,
        "time_ratio_interval": time_interval,
        "joules": point.joules,
        "joules_uncertainty": point.joules_uncertainty,
        "joules_ratio": joules_ratio,
        "joules_ratio_interval": joules_interval,
        "saving_per_slowdown": saving,
        "kind": "measured" if point.measured else "modelled",
    }


def _time_ratio(
    outcome: SearchOutcome, answer: Trial, point: ClockPoint, reference: ClockPoint
) -> tuple[float, float]:
    """A point's time by the reference's, and half of its 95 % interval."""
    if point == reference:
        return 1.0, 0.0
    paired = _paired(outcome, answer, point, reference, "time")
    if paired is not None:
        return paired
    ratio = point.time_s / reference.time_s
    own = [one.time_uncertainty_s / one.time_s for one in (point, reference)]
    again = [TIME_REPEATABILITY for one in (point, reference) if one.measured]
    return ratio, COVERAGE * ratio * math.hypot(*own, *again)


def _joules_ratio(
    outcome: SearchOutcome, answer: Trial, point: ClockPoint, reference: ClockPoint
) -> tuple[float | None, float | None]:
    """The same of joules; None where they are not known."""
    if point.joules is None or not reference.joules:
        return None, None
    if point == reference:
        return 1.0, 0.0
    paired = _paired(outcome, answer, point, reference, "energy")
    if paired is not None:
        return paired
    ratio = point.joules / reference.joules
    own = [(one.joules_uncertainty or 0.0) / (one.joules or 1.0) for one in (point, reference)]
    return ratio, COVERAGE * ratio * math.hypot(*own)


def _paired(
    outcome: SearchOutcome, answer: Trial, point: ClockPoint, reference: ClockPoint, objective: str
) -> tuple[float, float] | None:
    """A ratio of paired repeats; None where the two were not repeated in turn."""
    if not (point.measured and reference.measured):
        return None
    one, other = (replace(answer, clock_mhz=at.clock_mhz) for at in (point, reference))
    ratio = outcome.paired.ratio(one, other, Objective(objective))
    return None if ratio is None else (ratio.value, ratio.interval)
