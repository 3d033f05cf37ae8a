"""What other power limits bring, as a table."""

from collections.abc import Iterator

from tuner.model.run_document import PowerLimitPoint, RunDocument
from tuner.report.clock_curve import SettingTable, heads_of, ratio_cells, setting_lines
from tuner.report.layout import ReportLine
from tuner.report.words import label


def limit_lines(document: RunDocument, width: int) -> Iterator[ReportLine]:
    """The table as lines; nothing where the answer was measured at one power limit."""
    found = limit_table(document)
    return iter(()) if found is None else setting_lines(found, width)


def limit_table(document: RunDocument) -> SettingTable | None:
    """The answer's configurations at every power limit they were measured at; None where that is one."""
    points, best = document.get("power_limit_curve") or (), document["best"]
    if not points or best is None:
        return None
    words = label(document)
    mark = f"{words}; " if words else ""
    title = f"power limits of this configuration ({mark}against {points[0]['power_limit_w']:g} W; ± is 95 %)"
    joules = any(point["joules"] is not None for point in points)
    heads = ["power limit", "clock seen", *heads_of(joules=joules)]
    cells = [
        [f"{point['power_limit_w']:g} W", _seen(point), *ratio_cells(point, joules=joules)]
        for point in points
    ]
    notes = ["the answer's" if point["power_limit_w"] == best["power_limit_w"] else "" for point in points]
    return SettingTable(title, [heads, *cells], ["", *notes], [])


def _seen(point: PowerLimitPoint) -> str:
    return "–" if point["clock_seen_mhz"] is None else f"{point['clock_seen_mhz']:,.0f} MHz"
