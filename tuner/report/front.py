"""The Pareto front of a run: its points as a table, and the choice of one by a time budget."""

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.errors import InputError
from tuner.model import shown_values
from tuner.report.clock_curve import SettingTable, setting_lines
from tuner.report.layout import ReportLine
from tuner.report.ranked_trials import objective_name, same
from tuner.report.trials_table import energy_of, interval
from tuner.report.words import label, percent_with_interval, with_uncertainty
from tuner.search.break_even import break_even

_WHICH = "the answer is the point of least energy × time"
_WHICH_CHOSEN = "the answer is the point of least energy at most {slower} % slower than the fastest"
_HOW_TO_CHOOSE = (
    "of least energy at most 5 % slower than the fastest: tuner show {run} --max-slowdown 5%{named}"
)
_CHANGES = ("against_default", "trade_off", "against_solo_bests", "energy_trade_off")


def within_slowdown(document: Mapping[str, Any], max_slowdown: float | None) -> dict[str, Any]:
    """The document of a front whose answer is the point of least energy within a time budget.

    Args:
        document: of a run with the objective ``pareto``.
        max_slowdown: against the fastest point, e.g. 0.05; None leaves the answer, which is the point of the
            least energy-delay product.

    Raises:
        InputError: the run has no front, or a file says what no run has written.
    """
    if max_slowdown is None:
        return dict(document)
    if objective_name(document) != "pareto" or not document.get("front"):
        raise InputError(
            f"--max-slowdown {100 * max_slowdown:g}%: chooses a point of a Pareto front, and this run has"
            " none; tune with --objective pareto"
        )
    try:
        return _with_point(document, max_slowdown)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError(f"front: its points are not as `tuner run --json` writes them ({found})") from error


def _with_point(document: Mapping[str, Any], max_slowdown: float) -> dict[str, Any]:
    """The document with the point of least energy within a slowdown in the place of its answer."""
    points = document["front"]
    limit_s = points[0]["trial"]["time_s"] * (1 + max_slowdown)
    point = min(
        (one for one in points if one["trial"]["time_s"] <= limit_s), key=lambda one: one["trial"]["energy_j"]
    )
    workloads = [
        {**workload, "best": part, "expanded": expanded}
        for workload, part, expanded in zip(
            document["workloads"], point["parts"], point["expanded"], strict=True
        )
    ]
    changed = {
        **document,
        **{name: point[name] for name in _CHANGES},
        "best": point["trial"],
        "workloads": workloads,
        "front_slowdown": max_slowdown,
    }
    per_day = (document.get("break_even") or {}).get("runs_per_day")
    return {**changed, "break_even": break_even(changed, "pareto", per_day)}


def point_words(document: Mapping[str, Any]) -> str:
    """What a command must say to name the same point of the front; empty for the run's own answer."""
    chosen = document.get("front_slowdown")
    return "" if chosen is None else f" --max-slowdown {100 * chosen:g}%"


def front_lines(document: Mapping[str, Any], width: int, named: str = "") -> Iterator[ReportLine]:
    """The points of the front as lines; nothing where the run has none."""
    found = front_table(document, named)
    return iter(()) if found is None else setting_lines(found, width)


def front_table(document: Mapping[str, Any], named: str = "") -> SettingTable | None:
    """The points of the front, fastest first; None where the run has none.

    Args:
        document: of a run.
        named: what a command must say to read its database.
    """
    points = document.get("front") or ()
    if not points:
        return None
    mark = f"{label(document)}; " if label(document) else ""
    words = "point" if len(points) == 1 else "points"
    title = f"Pareto front of time and energy ({mark}{len(points)} {words}, fastest first; ± is 95 %)"
    cells = {
        "trial": [f"{point['number']:,}" for point in points],
        "time": [_time(point["trial"]) for point in points],
        "energy": [energy_of(point["trial"]) for point in points],
        "against the default": [_saving(point) for point in points],
    }
    for head, key, unit in (("clock", "clock_mhz", "MHz"), ("power limit", "power_limit_w", "W")):
        values = [point["trial"].get(key) for point in points]
        if any(value is not None for value in values):
            cells[head] = ["as found" if value is None else f"{value:g} {unit}" for value in values]
    notes = [_note(document, point) for point in points]
    rows = [list(cells), *map(list, zip(*cells.values(), strict=True))]
    return SettingTable(title, rows, ["configuration", *notes], [_sentence(document, named)])


def _sentence(document: Mapping[str, Any], named: str) -> str:
    """Which point the answer is, and how to take another one."""
    chosen, run = document.get("front_slowdown"), document.get("run")
    if chosen is not None:
        return _WHICH_CHOSEN.format(slower=f"{100 * chosen:g}")
    if run is None or len(document["front"]) == 1:
        return _WHICH
    return f"{_WHICH}; {_HOW_TO_CHOOSE.format(run=run, named=named)}"


def _time(trial: Mapping[str, Any]) -> str:
    return with_uncertainty(trial["time_s"], interval(trial.get("time_s_uncertainty")), "s")


def _saving(point: Mapping[str, Any]) -> str:
    """Energy against the default, with its interval."""
    changes = point.get("against_default") or {}
    if "energy_saving" not in changes:
        return "–"
    return percent_with_interval(-changes["energy_saving"], changes["energy_saving_interval"])


def _note(document: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    configurations = "; ".join(shown_values(one) for one in point["trial"]["configurations"].values())
    marks = ["the answer"] if same(document["best"], point["trial"]) else []
    return ", ".join([*marks, *filter(None, [configurations])])
