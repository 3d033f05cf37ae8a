"""What other power limits bring, as a table."""

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.report.clock_curve import heads_of, ratio_cells
from tuner.report.layout import ReportLine, lines_of, table
from tuner.report.words import label

_INDENT = "  "


def limit_lines(document: Mapping[str, Any], width: int) -> Iterator[ReportLine]:
    """The answer's configurations at every power limit they were measured at; nothing where that is one."""
    points, best = document.get("power_limit_curve") or (), document["best"]
    if not points or best is None:
        return
    words = label(document)
    mark = f"{words}; " if words else ""
    yield ReportLine("")
    title = f"power limits of this configuration ({mark}against {points[0]['power_limit_w']:g} W; ± is 95 %)"
    yield from lines_of(title, width)
    joules = any(point["joules"] is not None for point in points)
    heads = ["power limit", "clock seen", *heads_of(joules=joules)]
    cells = [
        [f"{point['power_limit_w']:g} W", _seen(point), *ratio_cells(point, joules=joules)]
        for point in points
    ]
    notes = ["the answer's" if point["power_limit_w"] == best["power_limit_w"] else "" for point in points]
    right = set(range(len(heads)))
    head, *lines = table([heads, *cells], ["", *notes], width, right=right, indent=_INDENT)
    yield ReportLine(head, "dim")
    yield from map(ReportLine, lines)


def _seen(point: Mapping[str, Any]) -> str:
    return "–" if point["clock_seen_mhz"] is None else f"{point['clock_seen_mhz']:,.0f} MHz"
