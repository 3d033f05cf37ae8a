"""The table of `joint_search.py`: printed, and put into a page without modelled spaces."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from show_applications import marked

MARKER = "joint"
RECORDED = "recorded"  # the label of what a GPU has run
STARTS = ("kernel defaults", "drawn at random")
BUDGETS = ("10", "20", "30")
HEAD = (
    *("space", "for", "search", "trials: median (most)", "to 2 %", "to 1 %"),
    *("% above the least after 10", "20", "30", "from drawn defaults: after 10", "20", "30"),
    "within 2 % in 30",
)
Row = Mapping[str, Any]


def table(rows: Sequence[Row], page: Path | None) -> None:
    """Print the table, and put its recorded spaces between the marks of a page where one is given.

    Args:
        rows: of the result.
        page: Markdown, with the lines of ``MARKER``.

    Raises:
        SystemExit: the page has no such lines.
    """
    print("\n".join(_lines(rows)))
    if page is not None:
        text = "\n".join(_lines([row for row in rows if row["label"] == RECORDED]))
        page.write_text(marked(page.read_text(), MARKER, text, page))


def _lines(rows: Sequence[Row]) -> list[str]:
    """A line for every space, objective and search; columns for both starts."""
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    found: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        kept_out = ", kept out" if row["kept_out"] else ""
        space = f"{row['space']} ({row['label']}{kept_out})"
        found.setdefault((space, row["objective"], row["search"]), {})[row["start"]] = row
    before = ("", "")
    for (space, objective, search), by_start in found.items():
        shown = ["" if space == before[0] else space, "" if (space, objective) == before else objective]
        before = space, objective
        name = search if search == "solo bests" else f"`{search}`"
        lines.append(_line([*shown, name, *_cells(*map(by_start.get, STARTS))]))
    return lines


def _cells(defaults: Row | None, drawn: Row | None) -> list[str]:
    """The numbers of a search from both starts; solo bests have no drawn ones."""
    first = drawn if defaults is None else defaults
    if first is None:
        raise ValueError("a search without a row")
    shares = [f"{100 * row['to']['0.02']['within_30']:.0f} %" for row in (defaults, drawn) if row is not None]
    return [
        f"{first['trials']['median']:g} ({first['trials']['most']:g})",
        *(
            "–" if first["to"][close]["trials"] is None else f"{first['to'][close]['trials']:g}"
            for close in ("0.02", "0.01")
        ),
        *(_above(defaults, budget) for budget in BUDGETS),
        *(_above(drawn, budget) for budget in BUDGETS),
        ", ".join(shares),
    ]


def _above(row: Row | None, budget: str) -> str:
    if row is None:
        return "–"
    spread = row["above"][budget]
    return f"{100 * spread['mean']:.2f} ± {100 * spread['deviation']:.2f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
