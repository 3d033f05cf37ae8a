"""Text that fits a console: wrapped sentences, whole tables, and labels for people."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

from tuner.model import registry
from tuner.model.units import MODELLED, RECORDED, moment, si
from tuner.system.untrusted.reading import plain

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from tuner.model.run_document import MergedFrom, RunDocument, RunRow
    from tuner.power.base import Response
    from tuner.report.rows import Row, Table


class PlainConsole(Console):
    """A console of rich that replaces control characters of texts, and marks nothing up in them.

    What rich itself sends to a terminal (colours, the cursor) is untouched.

    Args:
        attributes: of ``rich.console.Console``.
    """

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - rich's own
        super().__init__(markup=False, emoji=False, highlight=False, **attributes)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render; every piece of text that comes out is plain."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                yield Segment(plain(segment.text), segment.style)
            else:
                yield segment


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


def rows_in(table: "Table[Row]", width: int, *, indent: str = "", head: str = "") -> list[ReportLine] | None:
    """The rows of a table without their notes, as aligned columns; None if they are wider than the console.

    Arguments as of ``table_lines``.
    """
    lines = _aligned(table.cells, [column.right for column in table.columns], width, indent)
    return None if lines is None else _styled(lines, head)


def table_lines(table: "Table[Row]", width: int, *, indent: str = "", head: str = "") -> list[ReportLine]:
    """A table whose notes stand beside their rows where all fits, else wrapped below them.

    Where not even the other columns fit, those with a rank are left out, the highest first; then texts stand
    below their rows, the widest first; then the cells of a row follow each other, each with its head.
    """
    cells, notes = table.cells, table.notes
    right = [column.right for column in table.columns]
    with_notes = [[*row, note] for row, note in zip(cells, notes, strict=True)]
    beside = _aligned(with_notes, [*right, False], width, indent)
    if beside is not None:
        return _styled(beside, head)
    lines = _aligned(cells, right, width, indent)
    rank = max((column.rank for column in table.columns), default=0)
    if lines is None and rank:
        fewer = [column for column in table.columns if column.rank < rank]
        return table_lines(replace(table, columns=fewer), width, indent=indent, head=head)
    if lines is None and not all(right):
        return table_lines(_widest_below(table), width, indent=indent, head=head)
    below = f"{indent}    "
    if lines is None:
        heads, *rows = cells
        lines = [""] + [_as_words(heads, row) for row in rows]
    painted = []
    for number, (line, note) in enumerate(zip(lines, notes, strict=True)):
        if number == 0:
            painted += [line] if line else []
            continue
        painted += wrapped(line, width, "", below)
        if note:
            painted += wrapped(note, width, below)
    return _styled(painted, head)


def _widest_below(table: "Table[Row]") -> "Table[Row]":
    """The table with its widest column of texts in front of the notes."""
    sizes = [
        0 if column.right else max(map(cell_len, cells))
        for column, cells in zip(table.columns, zip(*table.cells, strict=True), strict=True)
    ]
    place = sizes.index(max(sizes))
    widest, note = table.columns[place], table.note
    columns = [*table.columns[:place], *table.columns[place + 1 :]]

    def text(row: "Row") -> str:
        return GAP.join(filter(None, (widest.text(row), "" if note is None else note.text(row))))

    return replace(table, columns=columns, note=replace(widest, value=text, half=None))


def _aligned(
    cells: Sequence[Sequence[str]], right: Sequence[bool], width: int, indent: str
) -> list[str] | None:
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    if len(indent) + sum(widths) + len(GAP) * (len(widths) - 1) > width:
        return None
    lines = []
    for row in cells:
        padded = []
        for cell, size, is_right in zip(row, widths, right, strict=True):
            space = " " * (size - cell_len(cell))
            padded.append(space + cell if is_right else cell + space)
        lines.append((indent + GAP.join(padded)).rstrip())
    return lines


def _styled(lines: Sequence[str], head: str) -> list[ReportLine]:
    return [ReportLine(line, "" if number else head) for number, line in enumerate(lines)]


def _as_words(heads: Sequence[str], row: Sequence[str]) -> str:
    """A row whose table is too wide: each number with the head of its column."""
    parts = [tied(f"{head} {cell}".strip()) for head, cell in zip(heads, row, strict=True) if cell]
    return GAP.join(parts)


def rendered(lines: Sequence[ReportLine]) -> Group:
    """Lines as rich prints them, as they are: neither wrapped again nor marked up."""
    return Group(
        *(Text(line.text, style=line.style, no_wrap=True, overflow="ignore", end="\n") for line in lines)
    )


def ruled(table: "Table[Row]") -> "RichTable":
    """A table as rich prints it, with a rule below the heads: cells fold before any of a whole column is cut.

    Its title stands above; notes and sentences are left to the caller.
    """
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - reports of runs have no rules
    from rich.table import Table as RichTable  # noqa: PLC0415 - same

    painted = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title=table.title or None)
    for column in table.columns:
        painted.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=column.whole,
            overflow="ellipsis" if column.whole else "fold",
            min_width=column.width or None,
        )
    for cells in table.cells[1:]:
        painted.add_row(*cells)
    return painted


# --- Formats numbers with units, times, labels and sensor responses for people; which sentences wait for -v.

_REASON = re.compile(
    r"(precision|spared|break-even|clocks auto|power limits):|.*: batch capped from|.* rule \("
)


def is_reason(sentence: str) -> bool:
    """True for a sentence that says why the search went as it did: which rule chose, what statistics said.

    It changes nothing of how the numbers are read, so that only ``--verbose`` shows it.
    """
    said = sentence.partition(":")[0] in registry.names("policy")
    return said or _REASON.match(sentence) is not None


def label(document: "RunDocument | RunRow | Mapping[str, Any]", form: str = "{}") -> str:
    """``modelled``, ``recorded``, both, or nothing for numbers that were measured now.

    Args:
        document: of a run; those stored before there were recordings lack the key.
        form: of a label within a sentence, such as ``{}; ``.
    """
    words = [RECORDED] if document.get("recorded") else []
    words += [MODELLED] if document["modelled"] else []
    return form.format(", ".join(words)) if words else ""


def note(document: "RunDocument") -> str:
    """Return the note beside the name of the GPU; empty for numbers that were measured now."""
    modelled = f"{MODELLED}: a simulated device made these numbers, no GPU ran"
    if not document.get("recorded"):
        return modelled if document["modelled"] else ""
    recorded = f"{RECORDED} ({document['recorded']}): nothing ran now, and no contender was measured again"
    return f"{recorded}; {modelled}" if document["modelled"] else recorded


def origin_words(merged_from: "MergedFrom") -> str:
    """Return the origin of a merged run: ``merged: run 12 of host-b``.

    Args:
        merged_from: as documents of runs have it.
    """
    return f"merged: run {merged_from['number']} of {merged_from['source'] or 'another database'}"


_UNITS = {"s": "s", "j": "J", "w": "W", "mhz": "MHz", "bytes": "bytes"}
_NAMES = {"runtime": "CUDA", "state_directory": "state"}  # where a field's own name says too little


def field_words(field: str, value: object) -> tuple[str, str]:
    """The name and the value of a field, with the unit that its name ends in: ``window``, ``15.00 ms``."""
    *words, last = _NAMES.get(field, field).split("_")
    if field.endswith("_at") and isinstance(value, str):
        return " ".join((*words, last)), moment(value)
    if field == "uptime_s" and isinstance(value, int | float):
        return "up for", _lasting(value)
    if words and last in _UNITS and isinstance(value, int | float):
        return " ".join(words), si(float(value), _UNITS[last])
    return " ".join((*words, last)), _value_text(value)


def _lasting(seconds: float) -> str:
    """A duration in days, hours, minutes and seconds, from the largest that there is."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest_s, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def _value_text(value: object) -> str:
    if isinstance(value, dict) and "summary" in value:
        return str(value["summary"])
    if isinstance(value, dict):
        quantities: dict[str, list[str]] = {}  # one may be in several units
        for name, one in value.items():
            if one is not None:
                words, shown = field_words(str(name), one)
                quantities.setdefault(words, []).append(shown)
        return ", ".join(" ".join((words, ", ".join(shown))) for words, shown in quantities.items()) or "–"
    if isinstance(value, list):
        return "; ".join(map(_value_text, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "–" if value is None or value == "" else str(value)


def response_words(response: "Response") -> str:
    """A response with its constant and where that comes from, e.g. ``lag, C = 13.0 ms, assumed``."""
    words = {
        "identity": "shows power as it is",
        "lag": f"lag, C = {si(response.capacitance_s, 's', 3)}",
        "boxcar": f"mean over {si(response.window_s, 's', 3)}",
        "ramp": f"running mean over {si(response.window_s, 's', 3)}",
    }[response.kind]
    return f"{words}, {response.origin}"


def is_corrected(response: "Response") -> bool:
    """True where correction changes what a reading shows."""
    return response.kind in ("lag", "ramp")
