"""The picture of a clock curve: energy and time of a round over the GPU clock, measured and modelled."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.model.run_document import ClockPointDocument, RunDocument
from tuner.report.words import MODELLED, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FORMATS = (".png", ".svg", ".pdf")
"""File names end in one of these."""

_OPTION = "--clock-curve"
_SIZE_INCHES = (8.0, 6.0)
_DPI = 120
_SCALES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def draw_curve(document: RunDocument, path: Path) -> None:
    """Draw the clock curve of a run into a file, whose name ends in one of ``FORMATS``.

    Raises:
        InputError: the run has none, matplotlib is missing, or the file cannot be written.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{_OPTION} {path}: the name must end in one of {', '.join(FORMATS)}")
    points = document.get("clock_curve") or ()
    if not points:
        raise InputError(
            f"{_OPTION} {path}: the run has no clock curve: its answer was measured at one clock;"
            " `tuner run --clocks auto` searches clocks"
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - heavy, and optional
        from matplotlib.figure import Figure  # noqa: PLC0415 - as above
    except ImportError as error:
        raise InputError(f"{_OPTION} needs matplotlib: pip install '.[plot]' in tuner's checkout") from error
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
    metadata = {"Date": None} if path.suffix == ".svg" else None  # the same run, the same file
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise InputError(f"{_OPTION} {path}: cannot be written: {error.strerror or error}") from error


class _Curve(NamedTuple):
    """A quantity, its unit, and points with its values and their standard uncertainties."""

    words: str
    unit: str
    points: list[tuple[ClockPointDocument, float, float | None]]


def _draw(axes: "Axes", curve: _Curve, answer_mhz: float | None) -> None:
    """Measured points with their intervals, and a line through the modelled ones with its interval."""
    known = [point for point, _, _ in curve.points]
    least = min(value for _, value, _ in curve.points)
    scale, prefix = next(((s, p) for s, p in _SCALES if least >= s), _SCALES[-1])
    clocks = [float(point["clock_mhz"] or 0) for point in known]
    values = [value / scale for _, value, _ in curve.points]
    halves = [COVERAGE * (unsure or 0.0) / scale for _, _, unsure in curve.points]
    if any(point["kind"] == MODELLED for point in known):
        axes.plot(clocks, values, color="0.5", ls="--", lw=1.0, label="modelled: fitted to the points")
        low = [value - half for value, half in zip(values, halves, strict=True)]
        high = [value + half for value, half in zip(values, halves, strict=True)]
        axes.fill_between(clocks, low, high, color="0.5", alpha=0.2, lw=0, label="modelled, 95 %")
    measured = [place for place, point in enumerate(known) if point["kind"] != MODELLED]
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
