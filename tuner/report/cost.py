"""One line on what the tuning cost, and after how many runs it has paid for itself."""

import math

from tuner.model.run_document import RunDocument
from tuner.report.trials_table import interval
from tuner.report.words import label, lasting, significant, with_uncertainty

_LARGE = 100.0  # from here on fractions are of no interest
_DAY_H = 24
_HOUR_MIN = 60


def cost_line(document: RunDocument) -> str:
    """The break-even with the cost, or the cost alone where there is no default to compare with."""
    even = document.get("break_even")
    if even is None:
        return f"tuning took {_spent(document)}"
    words = label(document)
    mark = f", {words}" if words else ""
    cost = f"tuning took {with_uncertainty(even['cost'], even['cost_interval'], even['unit'])}"
    runs, least, most = even["runs"], even["runs_least"], even["runs_most"]
    certain = even["saving_per_run"] > even["saving_interval"]
    if not certain or runs is None or least is None or most is None:
        why = "it is not certain (95 %) that the answer saves anything against the default"
        if even["saving_per_run"] == even["saving_interval"] == 0:
            why = "the answer is the default"
        return f"does not pay for itself: {why}; {cost}{f' ({words})' if words else ''}"
    saving = with_uncertainty(even["saving_per_run"], even["saving_interval"], even["unit"])
    days = ""
    if even["days"] is not None and even["runs_per_day"] is not None:
        days = f", which is {_days(even['days'])} at {_plain(even['runs_per_day'])} runs a day"
    return (
        f"pays for itself after {_count(runs)} runs ({_count(least)} to {_count(most)}, 95 %{mark}){days}:"
        f" {cost}, a run saves {saving} against the default"
    )


def _spent(document: RunDocument) -> str:
    joules = document.get("tuning_energy_j")
    words = f" ({label(document)})" if label(document) else ""
    seconds = document.get("wall_s")
    wall = document.get("wall")
    if document.get("recorded") and wall:
        seconds = wall["windows_s"]  # what was recorded took; the rest is that of a replay
    parts = [] if seconds is None else [lasting(seconds)]
    if joules is not None:
        spread = interval(document.get("tuning_energy_j_uncertainty"))
        parts.append(with_uncertainty(joules, spread, "J") + words)
    return ", ".join(parts) or "a time that is not known"


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
