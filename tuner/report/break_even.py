"""The break-even of a run in words."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.report.words import label, significant, with_uncertainty

_LARGE = 100.0  # from here on fractions are of no interest
_DAY_H = 24
_HOUR_MIN = 60


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
