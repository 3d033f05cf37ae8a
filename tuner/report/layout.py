"""Lines that fit a console: sentences wrapped at spaces, and tables that never lose a column."""

import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

LEAST_WIDTH = 40  # characters: a console that claims to be narrower gets lines of this width
GAP = "  "
_NO_BREAK = "\u00a0"
_IN_QUANTITY = re.compile(r"(?<=\d) (?=(?:[mµn]?[sJW]|%|MHz|min|h|×|±)(?!\w))|(?<=±) (?=\d)")


@dataclass(frozen=True)
class ReportLine:
    """A line of a report.

    Attributes:
        text: what it says, no wider than the console.
        style: of rich; empty for none.
    """

    text: str
    style: str = ""


def tied(text: str) -> str:
    """Text that is never broken, such as a number and its unit; ``wrapped`` makes it plain again."""
    return text.replace(" ", _NO_BREAK)


def wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """A sentence in lines no wider than ``width``; only a word that is wider than a line is broken.

    A number stays with its interval and its unit.

    Args:
        text: of one or several lines, each wrapped by itself.
        width: characters of a line.
        indent: what the first line begins with.
        hanging: what the others begin with; None for ``indent``.
    """
    rest = indent if hanging is None else hanging
    lines: list[str] = []
    room = max(width, LEAST_WIDTH) - len(rest)
    for paragraph in _IN_QUANTITY.sub(_NO_BREAK, text).splitlines() or [""]:
        words = paragraph.split(" ")
        lines += textwrap.wrap(
            " ".join(word if len(word) <= room else word.replace(_NO_BREAK, " ") for word in words),
            max(width, LEAST_WIDTH),
            initial_indent=rest if lines else indent,
            subsequent_indent=rest,
            break_on_hyphens=False,
            tabsize=4,
        ) or [""]
    return [line.replace(_NO_BREAK, " ").rstrip() for line in lines]


def lines_of(text: str, width: int, style: str = "", hanging: str = GAP) -> list[ReportLine]:
    """A sentence as lines of a report."""
    return [ReportLine(line, style) for line in wrapped(text, width, "", hanging)]


def rows_in(
    rows: Sequence[Sequence[str]], width: int, *, right: Collection[int] = (), indent: str = ""
) -> list[str] | None:
    """Rows as aligned columns; None where they are wider than the console.

    Args:
        rows: of equally many cells, the heads first if there are any.
        width: characters of a line.
        right: numbers of the columns that are aligned to the right.
        indent: what each line begins with.
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if len(indent) + sum(widths) + len(GAP) * (len(widths) - 1) > width:
        return None
    lines = []
    for row in rows:
        cells = []
        for place, (cell, size) in enumerate(zip(row, widths, strict=True)):
            space = " " * (size - cell_len(cell))
            cells.append(space + cell if place in right else cell + space)
        lines.append((indent + GAP.join(cells)).rstrip())
    return lines


def table(
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    width: int,
    *,
    right: Collection[int] = (),
    indent: str = "",
) -> list[str]:
    """A table whose last column is long text: beside its row where all fits, else wrapped below it.

    Where not even the other columns fit, the cells of a row follow each other, each with its head.

    Args:
        rows: cells; the first row is the heads.
        notes: the long text of each row; the first is its head.
        width: characters of a line.
        right: numbers of the columns that are aligned to the right.
        indent: what each line begins with.
    """
    beside = rows_in(
        [[*row, note] for row, note in zip(rows, notes, strict=True)], width, right=right, indent=indent
    )
    if beside is not None:
        return beside
    lines = rows_in(rows, width, right=right, indent=indent)
    below = f"{indent}    "
    if lines is None:
        heads, *cells = rows
        lines = [""] + [_as_words(heads, row) for row in cells]
    found = []
    for number, (line, note) in enumerate(zip(lines, notes, strict=True)):
        if number == 0:
            found += [line] if line else []
            continue
        found += wrapped(line, width, "", below)
        if note:
            found += wrapped(note, width, below)
    return found


def _as_words(heads: Sequence[str], row: Sequence[str]) -> str:
    """A row whose table is too wide: each number with the head of its column."""
    parts = [tied(f"{head} {cell}".strip()) for head, cell in zip(heads, row, strict=True) if cell]
    return GAP.join(parts)


def rendered(lines: Sequence[ReportLine]) -> Group:
    """Lines as rich prints them, as they are: neither wrapped again nor marked up."""
    return Group(
        *(Text(line.text, style=line.style, no_wrap=True, overflow="ignore", end="\n") for line in lines)
    )
