"""After how many runs a tuning has paid for itself."""

import math
from typing import Literal

from tuner.model.objective import COVERAGE, Objective
from tuner.model.run_document import BreakEven, RunDocument


def break_even(document: RunDocument, objective: str, runs_per_day: float | None) -> BreakEven | None:
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
    against, default = document.get("against_default"), document["default"]
    energy = Objective(objective).needs_energy
    if against is None or default is None or (energy and "energy_saving" not in against):
        return None
    unit: Literal["J", "s"] = "J" if energy else "s"
    if energy:
        cost, known = document.get("tuning_energy_j"), document.get("tuning_energy_j_uncertainty")
        saving, half = against["energy_saving"], against["energy_saving_interval"]
        per_run = default["energy_j"]
    else:
        cost, known = _seconds(document), 0.0
        saving, half = -against["slowdown"], against.get("slowdown_interval") or 0.0
        per_run = default["time_s"]
    if cost is None or per_run is None:
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


def _seconds(document: RunDocument) -> float | None:
    wall = document.get("wall")
    if not (document["modelled"] or document.get("recorded")):  # old documents lack the latter
        return document.get("wall_s")
    return None if wall is None else math.fsum((wall["prepare_s"], wall["windows_s"], wall["checks_s"]))
