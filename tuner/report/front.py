"""The Pareto front of a run: its points as a table, and the choice of one by a time budget."""

from collections.abc import Iterator

from tuner.model.errors import InputError
from tuner.model.plan import shown_values
from tuner.model.run_document import FrontPoint, RunDocument, TrialDocument
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


def within_slowdown(document: RunDocument, max_slowdown: float | None) -> RunDocument:
    """The document of a front whose answer is the point of least energy within a time budget.

    Args:
        document: of a run with the objective ``pareto``.
        max_slowdown: against the fastest point, e.g. 0.05; None leaves the answer, which is the point of the
            least energy-delay product.

    Raises:
        InputError: the run has no front, or a file says what no run has written.
    """
    if max_slowdown is None:
        return document
    if objective_name(document) != "pareto" or not document.get("front"):
        raise InputError(
            f"--max-slowdown {100 * max_slowdown:g}%: chooses a point of a Pareto front, and this run has"
            " none; tune with --objective pareto"
        )
    return _with_point(document, max_slowdown)


def _with_point(document: RunDocument, max_slowdown: float) -> RunDocument:
    """The document with the point of least energy within a slowdown in the place of its answer."""
    points = document["front"]
    limit_s = _time_s(points[0]) * (1 + max_slowdown)
    point = min(
        (one for one in points if _time_s(one) <= limit_s), key=lambda one: one["trial"]["energy_j"] or 0.0
    )
    changed = document.copy()
    changed["best"] = point["trial"]
    changed["front_slowdown"] = max_slowdown
    changed["against_default"] = point.get("against_default")
    changed["trade_off"] = point.get("trade_off")
    changed["against_solo_bests"] = point.get("against_solo_bests")
    changed["energy_trade_off"] = point.get("energy_trade_off")
    changed["workloads"] = [
        {**workload, "best": part, "expanded": expanded}
        for workload, part, expanded in zip(
            document["workloads"], point["parts"], point["expanded"], strict=True
        )
    ]
    even = document.get("break_even")
    changed["break_even"] = break_even(changed, "pareto", None if even is None else even["runs_per_day"])
    return changed


def _time_s(point: FrontPoint) -> float:
    """Time of a point, which every one has."""
    return point["trial"]["time_s"] or 0.0


def point_words(document: RunDocument) -> str:
    """What a command must say to name the same point of the front; empty for the run's own answer."""
    chosen = document.get("front_slowdown")
    return "" if chosen is None else f" --max-slowdown {100 * chosen:g}%"


def front_lines(document: RunDocument, width: int, named: str = "") -> Iterator[ReportLine]:
    """The points of the front as lines; nothing where the run has none."""
    found = front_table(document, named)
    return iter(()) if found is None else setting_lines(found, width)


def front_table(document: RunDocument, named: str = "") -> SettingTable | None:
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
    clocks = [point["trial"]["clock_mhz"] for point in points]
    limits = [point["trial"].get("power_limit_w") for point in points]
    for head, values, unit in (("clock", clocks, "MHz"), ("power limit", limits, "W")):
        if any(value is not None for value in values):
            cells[head] = ["as found" if value is None else f"{value:g} {unit}" for value in values]
    notes = [_note(document, point) for point in points]
    rows = [list(cells), *map(list, zip(*cells.values(), strict=True))]
    return SettingTable(title, rows, ["configuration", *notes], [_sentence(document, named)])


def _sentence(document: RunDocument, named: str) -> str:
    """Which point the answer is, and how to take another one."""
    chosen, run = document.get("front_slowdown"), document.get("run")
    if chosen is not None:
        return _WHICH_CHOSEN.format(slower=f"{100 * chosen:g}")
    if run is None or len(document["front"]) == 1:
        return _WHICH
    return f"{_WHICH}; {_HOW_TO_CHOOSE.format(run=run, named=named)}"


def _time(trial: TrialDocument) -> str:
    return with_uncertainty(trial["time_s"], interval(trial.get("time_s_uncertainty")), "s")


def _saving(point: FrontPoint) -> str:
    """Energy against the default, with its interval."""
    changes = point.get("against_default")
    if changes is None or "energy_saving" not in changes:
        return "–"
    return percent_with_interval(-changes["energy_saving"], changes["energy_saving_interval"])


def _note(document: RunDocument, point: FrontPoint) -> str:
    configurations = "; ".join(shown_values(one) for one in point["trial"]["configurations"].values())
    marks = ["the answer"] if same(document["best"], point["trial"]) else []
    return ", ".join([*marks, *filter(None, [configurations])])
