"""After how many runs a tuning has paid for itself."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.objective import COVERAGE, Objective
from tuner.report.labels import label
from tuner.report.units import significant, with_uncertainty

Record = dict[str, Any]
_LARGE = 100.0  # from here on fractions are of no interest
_DAY_H = 24
_HOUR_MIN = 60


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
    if not label(document):
        return float(document["wall_s"])
    return math.fsum(wall[part] for part in ("prepare_s", "windows_s", "checks_s"))


def shown(document: Mapping[str, Any]) -> Iterator[str]:
    """The break-even as a sentence; answers stored before there was one lack it."""
    even = document.get("break_even")
    if even is None:
        return
    words = label(document)
    modelled = f", {words}" if words else ""
    cost = with_uncertainty(even["cost"], even["cost_interval"], even["unit"])
    if even["saving_per_run"] <= even["saving_interval"]:
        why = "it is not certain (95 %) that the answer saves anything"
        if even["saving_per_run"] == even["saving_interval"] == 0:
            why = "the answer saves nothing: it is the default"
        yield f"break-even: none; the tuning cost {cost}{f' ({words})' if words else ''}, and {why}"
        return
    saving = with_uncertainty(even["saving_per_run"], even["saving_interval"], even["unit"])
    days = ""
    if even["days"] is not None:
        days = f", which is {_days(even['days'])} at {_plain(even['runs_per_day'])} a day"
    yield (
        f"break-even: the tuning has paid for itself after {_count(even['runs'])} runs"
        f" ({_count(even['runs_least'])} to {_count(even['runs_most'])}, 95 %{modelled}){days}:"
        f" it cost {cost}, and each run saves {saving} against the default"
    )


def _plain(number: float) -> str:
    """A number a user gave, never in exponent form where it is large."""
    return f"{number:,.0f}" if number >= _LARGE else f"{number:g}"


def _days(days: float) -> str:
    """A span in the unit that gives it a readable number."""
    if days >= 1:
        return f"{significant(float(f'{days:.3g}'), 2)} days"
    hours = days * _DAY_H
    return f"{significant(hours, 2)} hours" if hours >= 1 else f"{significant(hours * _HOUR_MIN, 2)} minutes"


def _count(runs: float) -> str:
    """A number of runs to three digits, at least one."""
    rounded = float(f"{max(1.0, runs):.3g}")
    return f"{math.ceil(rounded):,}"
