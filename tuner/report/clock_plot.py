"""The picture of a clock curve: energy and time of a round over the GPU clock, measured and modelled."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.report.words import MODELLED, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
"""File names end in one of these."""

_OPTION = "--clock-curve"
_SIZE_INCHES = (8.0, 6.0)
_DPI = 120
_SCALES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))

Point = Mapping[str, Any]


def draw_curve(document: Mapping[str, Any], path: Path) -> None:
    """Draw the clock curve of a run into a file, whose name ends in one of ``FORMATS``.

    Raises:
        InputError: the run has none, matplotlib is missing, or the file cannot be written.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{_OPTION} {path}: the name must end in one of {', '.join(FORMATS)}")
    points: Sequence[Point] = document.get("clock_curve") or ()
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
    kinds = [("joules", "energy of a round", "J"), ("time_s", "time of a round", "s")]
    kinds = [kind for kind in kinds if any(point[kind[0]] is not None for point in points)]
    for number, kind in enumerate(kinds, start=1):
        axes = figure.add_subplot(len(kinds), 1, number)
        _draw(axes, points, kind, (document["best"] or {}).get("clock_mhz"))
    axes.set_xlabel("GPU clock (MHz)")
    figure.axes[0].legend(fontsize="small", frameon=False)
    figure.suptitle(_title(document), fontsize="medium", x=0.01, ha="left", parse_math=False)
    metadata = {"Date": None} if path.suffix == ".svg" else None  # the same run, the same file
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise InputError(f"{_OPTION} {path}: cannot be written: {error.strerror or error}") from error


def _draw(
    axes: "Axes", points: Sequence[Point], kind: tuple[str, str, str], answer_mhz: float | None
) -> None:
    """Measured points with their intervals, and a line through the modelled ones with its interval."""
    key, words, unit = kind
    known = [point for point in points if point[key] is not None]
    scale, prefix = next(((s, p) for s, p in _SCALES if min(one[key] for one in known) >= s), _SCALES[-1])
    unsure = f"{key}_uncertainty"
    clocks = [point["clock_mhz"] for point in known]
    values = [point[key] / scale for point in known]
    halves = [COVERAGE * point[unsure] / scale for point in known]
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
    axes.set_ylabel(f"{words} ({prefix}{unit})")
    axes.grid(alpha=0.3)


def _title(document: Mapping[str, Any]) -> str:
    names = " + ".join(workload["name"] for workload in document["workloads"])
    words = label(document)
    kind = "" if MODELLED not in words else ": a simulated device made these numbers, no GPU ran"
    return f"{names} on {document['device']['name']}" + (f"\n{words}{kind}" if words else "")
