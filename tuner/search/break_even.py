"""After how many runs a tuning has paid for itself."""

import math
from collections.abc import Mapping
from typing import Any

from tuner.model.objective import COVERAGE, Objective
from tuner.model.records import Record


def break_even(document: Mapping[str, Any], objective: str, runs_per_day: float | None) -> Record | None:
    """What the tuning cost, what its answer saves per run against the default, and when the two are even.

    In joules where the objective has joules in it, else in seconds. The seconds are the wall time of the
    run; of a simulated device or a recording those of preparing, and the modelled or recorded ones of
    windows and checks. The interval of the runs goes from the least cost and the largest saving to the
    most and the smallest.

    Args:
        document: of the run, up to here.
        objective: its name.
        runs_per_day: how often the answer will be run; None where nobody said.

    Returns:
        None where there is no answer, or no default to compare it with.
    """
    against, default = document["against_default"], document["default"]
    energy = Objective(objective).needs_energy
    if against is None or (energy and "energy_saving" not in against):
        return None
    if energy:
        unit, cost, known = "J", document["tuning_energy_j"], document["tuning_energy_j_uncertainty"]
        saving, half = against["energy_saving"], against["energy_saving_interval"]
        per_run = default["energy_j"]
    else:
        unit, cost, known = "s", _seconds(document), 0.0
        saving, half = -against["slowdown"], against["slowdown_interval"]
        per_run = default["time_s"]
    if cost is None:
        return None
    cost_half = COVERAGE * (known or 0.0)
    saved, saved_half = per_run * saving, per_run * half
    runs = cost / saved if saved > 0 else None
    return {
        "unit": unit,
        "cost": cost,
        "cost_interval": cost_half,
        "saving_per_run": saved,
        "saving_interval": saved_half,
        "runs": runs,
        "runs_least": max(0.0, cost - cost_half) / (saved + saved_half) if saved + saved_half > 0 else None,
        "runs_most": (cost + cost_half) / (saved - saved_half) if saved > saved_half else None,
        "runs_per_day": runs_per_day,
        "days": runs / runs_per_day if runs is not None and runs_per_day is not None else None,
    }


def _seconds(document: Mapping[str, Any]) -> float:
    wall = document["wall"]
    if not (document["modelled"] or document.get("recorded")):  # old documents lack the latter
        return float(document["wall_s"])
    return math.fsum(wall[part] for part in ("prepare_s", "windows_s", "checks_s"))
