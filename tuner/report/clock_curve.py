"""The answer's configuration at other clocks: sentences, a table, and a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.model.run_document import ClockPointDocument, RunDocument, SettingPoint
from tuner.model.units import MODELLED, percent_with_interval, significant
from tuner.report.layout import ReportLine, label, lines_of, table_lines
from tuner.report.rows import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_ALLOWED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # slowdowns, each with the clock of least energy within it
_FLAT = 0.01  # of the time: a slowdown that is no reason to keep a clock
_LOWER = 0.95  # of the highest clock: from there on, that it may be lowered is worth a sentence
_LEAST = 3  # points of a curve worth a table
_INDENT = "  "

Point = ClockPointDocument


def setting_lines(table: Table[Any] | None, width: int) -> Iterator[ReportLine]:
    """A table below an empty line, with its title and its sentences; nothing without a table."""
    if table is None:
        return
    yield ReportLine("")
    yield from lines_of(table.title, width)
    yield from table_lines(table, width, indent=_INDENT, head="dim")
    for sentence in table.sentences:
        yield from lines_of(_INDENT + sentence, width, hanging=_INDENT * 2)


def clock_table(document: RunDocument) -> Table[Point] | None:
    """The clocks worth a row, and what they bring; None where the clock was not searched."""
    points = document.get("clock_curve") or ()
    best = document["best"]
    if len(points) < _LEAST or best is None or best["clock_mhz"] is None:
        return None
    answer_mhz = best["clock_mhz"]
    mark = label(document, "{}; ")
    whose = "this configuration"
    if document.get("clock_curve_of") != best["configurations"]:
        whose = "the cheapest configuration that was measured at several clocks"
    return Table(
        [Column("clock", _mhz, number=True), *ratio_columns(points)],
        _rows(points, answer_mhz),
        Column("", lambda point: _note(point, points, answer_mhz)),
        title=f"clocks of {whose} ({mark}against {_mhz(reference_of(points))}; ± is 95 %)",
        sentences=list(sentences(points, answer_mhz)),
    )


def sentences(points: Sequence[Point], answer_mhz: float) -> Iterator[str]:
    """Yield sentences on the effect of a lower clock.

    Args:
        points: of the curve, highest clock first.
        answer_mhz: clock of the answer.
    """
    reference = reference_of(points)
    flat = None  # the lowest clock down to which no round is slower than allowed
    for point in points:
        if point["time_ratio"] > 1 + _FLAT:
            break
        flat = point
    if flat is not None and flat["clock_mhz"] < _LOWER * reference["clock_mhz"]:
        yield (
            f"down to {_mhz(flat)} a round takes at most {100 * _FLAT:g} % longer than at {_mhz(reference)}"
            f" ({flat['kind']})"
        )
    answer = next((point for point in points if point["clock_mhz"] == answer_mhz), None)
    lower = [point for point in points if point["clock_mhz"] < answer_mhz]
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
    metered = [one for one in points if one["joules"] is not None and one["joules_ratio"] is not None]
    return min(metered, key=lambda point: point["joules"] or 0.0, default=None)


def reference_of(points: Sequence[Point]) -> Point:
    """The point that ratios are against."""
    return next(point for point in points if _is_reference(point))


def _is_reference(point: SettingPoint) -> bool:
    return point["kind"] != MODELLED and point["time_ratio_interval"] == 0.0


def _rows(points: Sequence[Point], answer_mhz: float) -> list[Point]:
    """The clock of least energy for every slowdown that may be allowed, and that of the answer."""
    chosen = [point for point in points if point["clock_mhz"] == answer_mhz]
    for allowed in _ALLOWED:
        within = [point for point in points if point["time_ratio"] <= 1 + allowed]
        least = _of_least_energy(within)
        if within:
            chosen.append(least or within[-1])
    clocks = {point["clock_mhz"] for point in chosen}
    return [point for point in points if point["clock_mhz"] in clocks]


def ratio_columns(points: Sequence[SettingPoint]) -> list[Column[SettingPoint]]:
    """Columns of the changes of energy and time, and of what is saved per percent of slowdown."""
    changes = _TIME.of(_changed)
    if all(point["joules"] is None for point in points):
        return [changes]
    saved = Column[SettingPoint]("per % slower", _saved, number=True)
    return [_ENERGY.of(_changed), changes, saved.of(_changed)]


def _saved(point: SettingPoint) -> str | None:
    saved = point["saving_per_slowdown"]
    return None if saved is None else f"{significant(saved, 2)} %"


def _changed(point: SettingPoint) -> SettingPoint | None:
    """The point; None for the one that the others are against."""
    return None if _is_reference(point) else point


_TIME = Column[SettingPoint](
    "time", lambda point: point["time_ratio"] - 1, "%", half=lambda point: point["time_ratio_interval"]
)
_ENERGY = Column[SettingPoint](
    "energy",
    lambda point: None if point["joules_ratio"] is None else point["joules_ratio"] - 1,
    "%",
    half=lambda point: point["joules_ratio_interval"],
)


def _note(point: Point, points: Sequence[Point], answer_mhz: float) -> str:
    """Return the note of a row: modelled, the answer's clock, least energy."""
    notes: list[str] = [MODELLED] if point["kind"] == MODELLED else []
    notes += ["answer"] if point["clock_mhz"] == answer_mhz else []
    notes += ["least energy"] if point is _of_least_energy(points) else []
    return ", ".join(notes)


def _mhz(point: Point) -> str:
    return f"{point['clock_mhz']:,} MHz"


_OPTION = "--clock-curve"
_SIZE_INCHES = (8.0, 6.0)
_DPI = 120
_SCALES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def draw_curve(document: RunDocument, path: Path) -> None:
    """Draw the clock curve of a run into a file.

    Raises:
        InputError: the run has none, or the picture cannot be drawn.
    """
    points = document.get("clock_curve") or ()
    if not points:
        raise InputError(
            f"{_OPTION} {path}: the run has no clock curve: its answer was measured at one clock;"
            " `tuner run --clocks auto` searches clocks"
        )
    from tuner.report.power_tables import check_picture, save_figure  # noqa: PLC0415 - heavy, and only for this

    check_picture(path, _OPTION)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy, and optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    curves = [
        _Curve(
            "energy of a round",
            "J",
            [(one, one["joules"], one["joules_uncertainty"]) for one in points if one["joules"]],
        ),
        _Curve(
            "time of a round",
            "s",
            [(one, one["time_s"], one["time_s_uncertainty"]) for one in points if one["time_s"]],
        ),
    ]
    curves = [curve for curve in curves if curve.points]
    best = document["best"]
    for number, curve in enumerate(curves, start=1):
        axes = figure.add_subplot(len(curves), 1, number)
        _draw(axes, curve, None if best is None else best["clock_mhz"])
    axes.set_xlabel("GPU clock (MHz)")
    figure.axes[0].legend(fontsize="small", frameon=False)
    figure.suptitle(_title(document), fontsize="medium", x=0.01, ha="left", parse_math=False)
    save_figure(figure, path, _OPTION)


class _Curve(NamedTuple):
    """A quantity, its unit, and points with its values and their standard uncertainties."""

    words: str
    unit: str
    points: list[tuple[ClockPointDocument, float, float | None]]


def _draw(axes: "Axes", curve: _Curve, answer_mhz: float | None) -> None:
    """Measured points with their intervals, and a line through the modelled ones with its interval."""
    settings = [point for point, _, _ in curve.points]
    least = min(value for _, value, _ in curve.points)
    scale, prefix = next(((s, p) for s, p in _SCALES if least >= s), _SCALES[-1])
    clocks = [float(point["clock_mhz"] or 0) for point in settings]
    values = [value / scale for _, value, _ in curve.points]
    halves = [COVERAGE * (unsure or 0.0) / scale for _, _, unsure in curve.points]
    if any(point["kind"] == MODELLED for point in settings):
        axes.plot(clocks, values, color="0.5", ls="--", lw=1.0, label="modelled: fitted to the points")
        low = [value - half for value, half in zip(values, halves, strict=True)]
        high = [value + half for value, half in zip(values, halves, strict=True)]
        axes.fill_between(clocks, low, high, color="0.5", alpha=0.2, lw=0, label="modelled, 95 %")
    measured = [place for place, point in enumerate(settings) if point["kind"] != MODELLED]
    axes.errorbar(
        [clocks[place] for place in measured],
        [values[place] for place in measured],
        yerr=[halves[place] for place in measured],
        fmt="o",
        ms=4,
        color="tab:blue",
        label="measured, 95 %",
    )
    if answer_mhz is not None:
        axes.axvline(answer_mhz, color="tab:orange", lw=1.0, label=f"answer, {answer_mhz:,} MHz")
    axes.set_ylabel(f"{curve.words} ({prefix}{curve.unit})")
    axes.grid(alpha=0.3)


def _title(document: RunDocument) -> str:
    names = " + ".join(workload["name"] for workload in document["workloads"])
    words = label(document)
    kind = "" if MODELLED not in words else ": a simulated device made these numbers, no GPU ran"
    return f"{names} on {document['device']['name']}" + (f"\n{words}{kind}" if words else "")
