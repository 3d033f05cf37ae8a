"""What a lower power limit brings: time and joules of the answer's configurations over the limit."""

from dataclasses import replace

from tuner.model.records import Record
from tuner.search.answer import SearchOutcome
from tuner.search.comparison import against

_LEAST = 2  # points: one has no slope


def power_limit_curve(outcome: SearchOutcome) -> list[Record]:
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
    return [_point(outcome, line[limit_w], line[limits_w[0]]) for limit_w in limits_w]


def _point(outcome: SearchOutcome, place: int, reference: int) -> Record:
    trial, measurement = outcome.trials[place]
    ratios = against(outcome, place, reference) or {}
    slowdown, saving = ratios.get("slowdown"), ratios.get("energy_saving")
    per_slowdown = None
    if slowdown is not None and saving is not None and slowdown > ratios["slowdown_interval"]:
        per_slowdown = saving / slowdown
    energy = measurement.energy
    return {
        "power_limit_w": trial.power_limit_w,
        "clock_mhz": trial.clock_mhz,
        "clock_seen_mhz": measurement.clock_mhz,
        "time_s": measurement.makespan_s,
        "time_s_uncertainty": measurement.makespan_uncertainty_s,
        "time_ratio": None if slowdown is None else 1.0 + slowdown,
        "time_ratio_interval": ratios.get("slowdown_interval"),
        "joules": None if energy is None else energy.joules,
        "joules_uncertainty": None if energy is None else energy.uncertainty_j,
        "joules_ratio": None if saving is None else 1.0 - saving,
        "joules_ratio_interval": ratios.get("energy_saving_interval"),
        "saving_per_slowdown": per_slowdown,
        "kind": "measured",
    }
