"""Tables of the view as plain values: rows, in an order, through a filter, and fitted to a width."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from tuner.untrusted.text import plain, plain_line

_CUT = "…"
_ROOMY = 100  # characters: from here on columns stand two spaces apart

Value = float | str | None
"""What a row is sorted by in a column; None stands last."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its head.
        right: aligned to the right.
        least: of the one column that is cut where the line is too long, its characters at least, as long
            as others can be left out instead; 0 for a column that is never cut.
        rank: 0 for a column that is always shown; else those of the highest rank are left out first.
    """

    title: str
    right: bool = False
    least: int = 0
    rank: int = 0


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        key: what it is of, so that it is found again.
        cells: a text per column.
        values: what it is sorted by, per column.
        details: what the cells have no room for.
        style: ``best``, ``bad`` or empty.
    """

    key: str
    cells: tuple[str, ...]
    values: tuple[Value, ...]
    details: str = ""
    style: str = ""


@dataclass(frozen=True)
class Listing:
    """A table, and what is said about it.

    Attributes:
        title: of the table.
        columns: of equally many cells as each row has.
        rows: in the order in which they are shown unless the user chooses another.
        caption: what stands below.
        empty: what is said where there is no row.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Arrangement:
    """The order and the filter that the user has chosen for a table.

    Attributes:
        column: that rows are sorted by; None for their own order.
        descending: the highest first.
        text: that a row must contain, in any case.
    """

    column: int | None = None
    descending: bool = False
    text: str = ""

    def sorted_by_next(self, count: int) -> "Arrangement":
        """The order of the next of so many columns; after the last, that of the rows themselves."""
        following = 0 if self.column is None else self.column + 1
        return Arrangement(None if following >= count else following, descending=False, text=self.text)

    def turned(self) -> "Arrangement":
        """The opposite order."""
        return Arrangement(self.column, not self.descending, self.text)

    def filtered_by(self, text: str) -> "Arrangement":
        """The same order with another filter."""
        return Arrangement(self.column, self.descending, text.strip())

    def words(self, columns: Sequence[Column]) -> str:
        """Order and filter, for the title; empty for none."""
        parts = []
        if self.column is not None and self.column < len(columns):
            parts.append(f"by {columns[self.column].title} {'↓' if self.descending else '↑'}")
        elif self.descending:
            parts.append("in reverse")
        return ", ".join([*parts, *([f"with “{self.text}”"] if self.text else [])])


def row(
    key: object, cells: Sequence[str], values: Sequence[Value], details: str = "", style: str = ""
) -> Row:
    """A row of texts from outside: what a terminal would act on is replaced."""
    return Row(str(key), tuple(map(plain_line, cells)), tuple(values), plain(details), style)


def arranged(rows: Sequence[Row], arrangement: Arrangement) -> list[Row]:
    """The rows that pass the filter, in the order chosen; values that are not known stand last."""
    text = arrangement.text.casefold()
    kept = list(rows)
    if text:
        kept = [row for row in rows if text in "\n".join((*row.cells, row.details)).casefold()]
    if arrangement.column is None:
        return kept[::-1] if arrangement.descending else kept
    place = arrangement.column
    known = [row for row in kept if row.values[place] is not None]
    known.sort(key=lambda row: _ordered(row.values[place]), reverse=arrangement.descending)
    return known + [row for row in kept if row.values[place] is None]


def _ordered(value: Value) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def gap(width: int) -> int:
    """Spaces between two columns."""
    return 2 if width >= _ROOMY else 1


def fitted(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[tuple[int, int]]:
    """Number and width of each column that is shown.

    Args:
        columns: of the table.
        rows: that are shown.
        width: characters of a line.
    """
    natural = [
        max([cell_len(column.title), *(cell_len(row.cells[place]) for row in rows)])
        for place, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while True:
        fixed = sum(natural[place] for place in kept if not columns[place].least)
        room = width - fixed - gap(width) * (len(kept) - 1)
        enough = room >= sum(min(columns[place].least, natural[place]) for place in kept)
        spare = [place for place in kept if columns[place].rank]
        if enough or not spare:
            break
        kept.remove(max(spare, key=lambda place: columns[place].rank))
    return [
        (place, min(natural[place], max(room, 1)) if columns[place].least else natural[place])
        for place in kept
    ]


def line(row: Row, columns: Sequence[Column], widths: Sequence[tuple[int, int]]) -> list[str]:
    """The cells of a row, each as wide as its column."""
    return [aligned(row.cells[place], size, right=columns[place].right) for place, size in widths]


def aligned(text: str, size: int, *, right: bool = False) -> str:
    """A text of this width: filled with spaces, or cut."""
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, max(size - 1, 0)) + _CUT if size else ""
    return " " * (size - length) + text if right else text + " " * (size - length)
