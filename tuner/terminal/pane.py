"""A part of the view: a table with the details of its chosen row."""

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.markup import escape
from textual.widgets import DataTable, Static

from tuner.terminal.listing import Arrangement, Listing, Row, aligned, arranged, fitted, gap, line

MOST_ROWS = 200
"""Rows of a table: those first in its order."""

_STYLES = {"best": "bold green", "bad": "red"}


class RowTable(DataTable[Text]):
    """A table that is moved through by the keys of `less`, too."""

    BINDINGS = [  # noqa: RUF012 - textual's own
        Binding("j", "cursor_down", "down", show=False),
        Binding("k", "cursor_up", "up", show=False),
        Binding("g", "scroll_top", "first", show=False),
        Binding("G", "scroll_bottom", "last", show=False),
    ]

    def on_focus(self) -> None:
        """The keys come here: the cursor is shown."""
        self.show_cursor = True

    def on_blur(self) -> None:
        """They go elsewhere: the row has its own colour again."""
        self.show_cursor = False


class Pane(Vertical):
    """A titled table of rows, and below it the details of the row under the cursor.

    Args:
        name: of the pane, which is its id, too.
        number: the key that leads to it.
    """

    def __init__(self, name: str, number: int) -> None:
        super().__init__(id=name, classes="pane")
        self.number = number
        self.arrangement = Arrangement()
        self._listing = Listing(name, (), ())
        self._rows: list[Row] = []
        self._drawn: object = None

    def compose(self) -> ComposeResult:
        """The table, and the details."""
        yield RowTable(cursor_type="row", cell_padding=0, show_cursor=False)
        yield Static("", classes="details", markup=False)

    @property
    def table(self) -> RowTable:
        """The table."""
        return self.query_one(RowTable)

    @property
    def columns(self) -> int:
        """Characters of a line of the table."""
        return max(self.table.size.width - 1, 1)  # the scroll bar

    @property
    def listed_columns(self) -> int:
        """Number of columns of the table, shown or left out."""
        return len(self._listing.columns)

    @property
    def chosen(self) -> Row | None:
        """The row under the cursor; None where there is none."""
        place = self.table.cursor_row
        return self._rows[place] if 0 <= place < len(self._rows) else None

    def show(self, listing: Listing) -> None:
        """Draw a listing in the chosen arrangement; the cursor stays on its row, or on the first."""
        self._listing = listing
        rows = arranged(listing.rows, self.arrangement)
        shown = rows[:MOST_ROWS]
        self._entitle(len(rows), len(shown))
        drawn = (listing.columns, shown, self.columns, bool(rows))
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw(listing, shown)
        self._tell()

    def _entitle(self, rows: int, shown: int) -> None:
        first = f"first {shown} of {rows:,}" if shown < rows else ""
        chosen = ", ".join(filter(None, (self.arrangement.words(self._listing.columns), first)))
        self.border_title = escape(f"{self.number} {f'({chosen}) ' if chosen else ''}{self._listing.title}")
        self.border_subtitle = escape(self._listing.caption)

    def _draw(self, listing: Listing, rows: list[Row]) -> None:
        table, width = self.table, self.columns
        chosen, place = self.chosen, table.cursor_row
        at_first, above = place <= 0, table.scroll_y
        self._rows = rows
        widths = fitted(listing.columns, rows, width)
        table.clear(columns=True)
        for column, size in widths:
            head = aligned(listing.columns[column].title, size, right=listing.columns[column].right)
            table.add_column(Text(head), width=size + gap(width))
        for row in rows:
            style = _STYLES.get(row.style, "")
            table.add_row(*(Text(cell, style) for cell in line(row, listing.columns, widths)))
        if chosen is not None and not at_first:  # who is at the first row sees what comes
            found = next((number for number, row in enumerate(rows) if row.key == chosen.key), place)
            table.move_cursor(row=found, scroll=False)
            table.scroll_to(y=above + found - place, animate=False, immediate=True)

    def _tell(self) -> None:
        filtered = "no row has it; / and enter show all" if self.arrangement.text else ""
        chosen = self.chosen
        words = chosen.details if chosen is not None else filtered or self._listing.empty
        self.query_one(".details", Static).update(words)

    def on_data_table_row_highlighted(self) -> None:
        """Another row is under the cursor."""
        self._tell()
