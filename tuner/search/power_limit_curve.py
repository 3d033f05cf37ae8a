"""What a lower power limit brings: time and joules of the answer's configurations over the limit."""

from dataclasses import replace

from tuner.model.run_document import PowerLimitPoint
from tuner.search.answer import SearchOutcome
from tuner.search.comparison import against

_LEAST = 2  # points: one has no slope


def power_limit_curve(outcome: SearchOutcome) -> list[PowerLimitPoint]:
    """Trials that differ from the answer in the power limit alone, the highest limit first.

    Ratios are against the highest limit, with halves of their 95 % intervals.

    Returns:
        Points as ``docs/run.md`` describes them; none where the answer was measured at one limit.
    """
    if outcome.answer is None:
        return []
    answer = outcome.trials[outcome.answer][0]
    line = {
        trial.power_limit_w: place
        for place, (trial, measurement) in enumerate(outcome.trials)
        if trial.power_limit_w is not None
        and replace(trial, power_limit_w=answer.power_limit_w) == answer
        and measurement.ok
    }
    limits_w = sorted(line, reverse=True)
    if len(limits_w) < _LEAST:
        return []
    points = (_point(outcome, line[limit_w], line[limits_w[0]]) for limit_w in limits_w)
    return [point for point in points if point is not None]


def _point(outcome: SearchOutcome, place: int, reference: int) -> PowerLimitPoint | None:
    """A point; None of a trial without a time or a limit."""
    trial, measurement = outcome.trials[place]
    ratios = against(outcome, place, reference)
    if ratios is None or measurement.makespan_s is None or trial.power_limit_w is None:
        return None
    slowdown, half = ratios["slowdown"], ratios.get("slowdown_interval") or 0.0
    saving, energy = ratios.get("energy_saving"), measurement.energy
    return {
        "power_limit_w": trial.power_limit_w,
        "clock_mhz": trial.clock_mhz,
        "clock_seen_mhz": measurement.clock_mhz,
        "time_s": measurement.makespan_s,
        "time_s_uncertainty": measurement.makespan_uncertainty_s,
        "time_ratio": 1.0 + slowdown,
        "time_ratio_interval": half,
        "joules": None if energy is None else energy.joules,
        "joules_uncertainty": None if energy is None else energy.uncertainty_j,
        "joules_ratio": None if saving is None else 1.0 - saving,
        "joules_ratio_interval": ratios.get("energy_saving_interval"),
        "saving_per_slowdown": saving / slowdown if saving is not None and slowdown > half else None,
        "kind": "measured",
    }
