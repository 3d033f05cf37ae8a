"""What other clocks would bring, as sentences and a table: the answer's configuration over the clock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.model.run_document import ClockPointDocument, RunDocument, SettingPoint
from tuner.report.layout import ReportLine, lines_of, table
from tuner.report.words import MODELLED, label, percent_with_interval, significant

_ALLOWED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # slowdowns, each with the clock of least energy within it
_FLAT = 0.01  # of the time: a slowdown that is no reason to keep a clock
_LOWER = 0.95  # of the highest clock: from there on, that it may be lowered is worth a sentence
_LEAST = 3  # points of a curve worth a table
_INDENT = "  "

Point = ClockPointDocument


@dataclass(frozen=True)
class SettingTable:
    """What other clocks or power limits bring.

    Attributes:
        title: of what, and what ratios are against.
        cells: a row for each setting below the heads.
        notes: of each row, with an empty one of the heads.
        sentences: what the table amounts to.
    """

    title: str
    cells: list[list[str]]
    notes: list[str]
    sentences: list[str]


def curve_lines(document: RunDocument, width: int) -> Iterator[ReportLine]:
    """Sentences and the table; nothing where the clock was not searched."""
    found = clock_table(document)
    return iter(()) if found is None else setting_lines(found, width)


def setting_lines(found: SettingTable, width: int) -> Iterator[ReportLine]:
    """A table of settings as lines, below an empty one."""
    yield ReportLine("")
    yield from lines_of(found.title, width)
    right = set(range(len(found.cells[0])))
    head, *lines = table(found.cells, found.notes, width, right=right, indent=_INDENT)
    yield ReportLine(head, "dim")
    yield from map(ReportLine, lines)
    for sentence in found.sentences:
        yield from lines_of(_INDENT + sentence, width, hanging=_INDENT * 2)


def clock_table(document: RunDocument) -> SettingTable | None:
    """The clocks worth a row, and what they bring; None where the clock was not searched."""
    points = document.get("clock_curve") or ()
    best = document["best"]
    if len(points) < _LEAST or best is None or best["clock_mhz"] is None:
        return None
    reference = reference_of(points)
    words = label(document)
    mark = f"{words}; " if words else ""
    whose = "this configuration"
    if document.get("clock_curve_of") != best["configurations"]:
        whose = "the cheapest configuration that was measured at several clocks"
    title = f"clocks of {whose} ({mark}against {_mhz(reference)}; ± is 95 %)"
    rows = _rows(points, best["clock_mhz"])
    joules = any(point["joules"] is not None for point in points)
    heads = ["clock", *heads_of(joules=joules)]
    cells = [[_mhz(point), *ratio_cells(point, joules=joules)] for point in rows]
    notes = [_note(point, points, best["clock_mhz"]) for point in rows]
    told = list(sentences(points, best["clock_mhz"]))
    return SettingTable(title, [heads, *cells], ["", *notes], told)


def sentences(points: Sequence[Point], answer_mhz: float) -> Iterator[str]:
    """What a lower clock brings.

    Args:
        points: of the curve, highest clock first.
        answer_mhz: clock of the answer.
    """
    reference = reference_of(points)
    flat = _lowest_within(points, _FLAT)
    if flat is not None and flat["clock_mhz"] < _LOWER * reference["clock_mhz"]:
        yield (
            f"down to {_mhz(flat)} a round takes at most {100 * _FLAT:g} % longer than at {_mhz(reference)}"
            f" ({flat['kind']})"
        )
    answer = next((point for point in points if point["clock_mhz"] == answer_mhz), None)
    lower = [one for one in points if one["clock_mhz"] < answer_mhz]
    least = _of_least_energy(lower)
    if answer is None or not answer["joules"] or least is None:
        return
    saving, slower = 1 - (least["joules"] or 0.0) / answer["joules"], least["time_s"] / answer["time_s"] - 1
    unsure = (1 - saving) * (least["joules_ratio_interval"] or 0.0) / (least["joules_ratio"] or 1.0)
    if saving <= unsure:
        yield f"no clock below {_mhz(answer)} is seen to save energy, down to {_mhz(points[-1])}"
        return
    unsure_time = (1 + slower) * least["time_ratio_interval"] / least["time_ratio"]
    each = f", {significant(saving / slower, 2)} % per percent of slowdown" if slower > unsure_time else ""
    yield (
        f"from the answer's {_mhz(answer)} down to {_mhz(least)}:"
        f" {percent_with_interval(-saving, unsure)} energy for"
        f" {percent_with_interval(slower, unsure_time)} time{each}"
        f" ({least['kind']})"
    )


def _of_least_energy(points: Sequence[Point]) -> Point | None:
    """The point of the fewest joules; None where none are known."""
    known = [one for one in points if one["joules"] is not None and one["joules_ratio"] is not None]
    return min(known, key=lambda one: one["joules"] or 0.0, default=None)


def reference_of(points: Sequence[Point]) -> Point:
    """The point that ratios are against."""
    return next(one for one in points if one["kind"] != MODELLED and one["time_ratio_interval"] == 0.0)


def _rows(points: Sequence[Point], answer_mhz: float) -> list[Point]:
    """The clock of least energy for every slowdown that may be allowed, and that of the answer."""
    chosen = [one for one in points if one["clock_mhz"] == answer_mhz]
    for allowed in _ALLOWED:
        within = [one for one in points if one["time_ratio"] <= 1 + allowed]
        least = _of_least_energy(within)
        if within:
            chosen.append(least or within[-1])
    clocks = dict.fromkeys(one["clock_mhz"] for one in chosen)
    return [one for one in points if one["clock_mhz"] in clocks]


def _lowest_within(points: Sequence[Point], allowed: float) -> Point | None:
    """The lowest clock down to which no round is slower than allowed."""
    found = None
    for one in points:
        if one["time_ratio"] > 1 + allowed:
            break
        found = one
    return found


def heads_of(*, joules: bool) -> list[str]:
    """Heads of ``ratio_cells``."""
    return ["energy", "time", "saved per % slower"] if joules else ["time"]


def ratio_cells(point: SettingPoint, *, joules: bool) -> list[str]:
    """Change of energy, change of time, and what is saved per percent of slowdown."""
    if point["kind"] != MODELLED and point["time_ratio_interval"] == 0.0:  # what the others are against
        return ["–"] * (3 if joules else 1)
    time = percent_with_interval(point["time_ratio"] - 1, point["time_ratio_interval"])
    if not joules:
        return [time]
    ratio, saved = point["joules_ratio"], point["saving_per_slowdown"]
    energy = "–" if ratio is None else percent_with_interval(ratio - 1, point["joules_ratio_interval"])
    return [energy, time, "–" if saved is None else f"{significant(saved, 2)} %"]


def _note(point: Point, points: Sequence[Point], answer_mhz: float) -> str:
    """What a row is known for, and whether it was measured."""
    notes = ["the answer's clock"] if point["clock_mhz"] == answer_mhz else []
    if point is _of_least_energy(points):
        notes.append("least energy")
    return ", ".join([point["kind"], *notes])


def _mhz(point: Point) -> str:
    return f"{point['clock_mhz']:,} MHz"
