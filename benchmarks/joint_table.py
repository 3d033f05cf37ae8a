"""The table of `joint_search.py`: printed, and put into a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from show_applications import marked

MARKER = "joint"
HEAD = (
    *("space", "for", "start", "search", "trials: median (most)", "above the least after 10", "20", "30"),
    *("within 2 % in 30", "trials to 2 %", "to 1 %"),
)
Row = Mapping[str, Any]


def table(rows: Sequence[Row], page: Path | None) -> None:
    """Print the table, and put it between the marks of a page where one is given.

    Args:
        rows: of the result.
        page: Markdown, with the lines of ``MARKER``.

    Raises:
        SystemExit: the page has no such lines.
    """
    text = "\n".join(_lines(rows))
    print(text)
    if page is not None:
        page.write_text(marked(page.read_text(), MARKER, text, page))


def _lines(rows: Sequence[Row]) -> list[str]:
    lines = [_line(HEAD), _line(["---"] * len(HEAD))]
    before: tuple[str, ...] = ("", "", "")
    for row in rows:
        kept_out = ", kept out" if row["kept_out"] else ""
        groups = (f"{row['space']} ({row['label']}, {row['size']:,} trials{kept_out})", row["objective"])
        here = (*groups, row["start"])
        same = [here[: i + 1] == before[: i + 1] for i in range(len(here))]
        before = here
        shown = ["" if known else text for known, text in zip(same, here, strict=True)]
        lines.append(_line([*shown, *_cells(row)]))
    return lines


def _cells(row: Row) -> list[str]:
    trials, above, to = row["trials"], row["above"], row["to"]
    return [
        row["search"] if row["search"] == "solo bests" else f"`{row['search']}`",
        f"{trials['median']:g} ({trials['most']:g})",
        *(_percent(above[budget]) for budget in ("10", "20", "30")),
        f"{to['0.02']['within_30']:.0%}".replace("%", " %"),
        *("–" if to[close]["trials"] is None else f"{to[close]['trials']:g}" for close in ("0.02", "0.01")),
    ]


def _percent(spread: Mapping[str, float]) -> str:
    return f"{100 * spread['mean']:.2f} ± {100 * spread['deviation']:.2f} %"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
