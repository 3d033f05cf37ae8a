"""The picture of a power trace: watts over time, as read and corrected, with the marks of the program."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.model.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Array = npt.NDArray[np.float64]

FORMATS = (".png", ".svg", ".pdf")
"""File names end in one of these."""

_SIZE_INCHES = (10.0, 5.0)
_DPI = 120
_ROWS = 4  # of labels above the curves; what fits in none keeps its line and loses its label
_ROW_HEIGHT = 0.055  # of the height of the axes
_GAP_PIXELS = 8.0  # between two labels of a row
_MANY = 20_000  # points of a curve, from which on a drawing with one stroke each is as large as a picture
_LABEL: dict[str, Any] = {
    "fontsize": "x-small",
    "va": "bottom",
    # lines of other marks pass below it
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8},
}
_MOST_MARKS = 400  # more lines would be a grey area
_BEYOND = 1.0  # of the range that was read: corrected samples further off, which have more noise, lie outside


@dataclass(frozen=True)
class Picture:
    """What is drawn; all times in seconds since the command started.

    Attributes:
        title: reading, response, provenance; may have several lines.
        times_s: of the samples, shape (n,).
        raw_w: power as the sensor shows it, shape (n,).
        corrected_w: power corrected for the sensor's response, shape (n,); None where that changes nothing.
            A single sample may overshoot at a step.
        correction: how, e.g. ``lag, C = 17 ms``.
        age_s: how much older the corrected power is than its samples.
        duration_s: how long the command ran.
        idle_w: idle power; None where it is not known.
        net: energy above idle power, e.g. ``152.3 ± 1.1 J``.
        counter: (mean watts, text) of an energy counter; None where there is none.
        marks: (time, label).
    """

    title: str
    times_s: Array
    raw_w: Array
    corrected_w: Array | None
    correction: str
    age_s: float
    duration_s: float
    idle_w: float | None = None
    net: str = ""
    counter: tuple[float, str] | None = None
    marks: Sequence[tuple[float, str]] = ()


def need_matplotlib() -> None:
    """Find out early whether a picture can be drawn at all.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - heavy, and optional
    except ImportError as error:
        raise InputError("--plot needs matplotlib: pip install '.[plot]' in tuner's checkout") from error


def draw(picture: Picture, path: Path) -> None:
    """Draw a picture into a file, whose name ends in one of ``FORMATS``.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see above
    from matplotlib.figure import Figure  # noqa: PLC0415 - see above

    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _curves(axes, picture)
    axes.set_xlabel("time since the command started (s)")
    axes.set_ylabel("power (W)")
    axes.grid(alpha=0.3)
    axes.margins(x=0.01)
    axes.set_ylim(*_limits(picture))
    figure.legend(loc="outside lower left", ncols=3, fontsize="small", frameon=False)
    figure.suptitle(picture.title, fontsize="medium", x=0.01, ha="left", parse_math=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
        _marks(axes, canvas, picture.marks)
        _save(figure, path)


def _curves(axes: "Axes", picture: Picture) -> None:
    dense = len(picture.times_s) > _MANY
    axes.axvspan(0.0, picture.duration_s, color="tab:blue", alpha=0.07, lw=0, label="the command runs")
    corrected = picture.corrected_w is not None
    axes.plot(
        picture.times_s,
        picture.raw_w,
        color="0.6" if corrected else "tab:blue",
        lw=1.0,
        label="as the sensor shows it" if corrected else f"as the sensor shows it ({picture.correction})",
        rasterized=dense,
    )
    if picture.corrected_w is not None:
        axes.plot(
            picture.times_s - picture.age_s,
            picture.corrected_w,
            color="tab:blue",
            lw=1.0,
            label=f"corrected ({picture.correction}; overshoots at steps)",
            rasterized=dense,
        )
    if picture.idle_w is not None:
        _above_idle(axes, picture, picture.idle_w)
        axes.axhline(picture.idle_w, color="tab:green", ls=":", lw=1.2, label=f"idle, {picture.idle_w:.4g} W")
    if picture.counter is not None:
        watts, text = picture.counter
        axes.plot((0.0, picture.duration_s), (watts, watts), color="tab:red", ls="--", lw=1.2, label=text)


def _above_idle(axes: "Axes", picture: Picture, idle_w: float) -> None:
    """Shade what the command's net joules are."""
    corrected = picture.corrected_w is not None
    times_s = picture.times_s - (picture.age_s if corrected else 0.0)
    watts = picture.raw_w if picture.corrected_w is None else picture.corrected_w
    meanwhile = (times_s >= 0.0) & (times_s <= picture.duration_s)
    if picture.net and meanwhile.any():
        axes.fill_between(
            times_s[meanwhile],
            idle_w,
            watts[meanwhile],
            color="tab:orange",
            alpha=0.25,
            lw=0,
            label=f"above idle: {picture.net}",
            rasterized=len(times_s) > _MANY,
        )


def _limits(picture: Picture) -> tuple[float, float]:
    """Lowest and highest power shown: all that was read, and the corrected curve without its spikes."""
    low, high = float(np.min(picture.raw_w)), float(np.max(picture.raw_w))
    beyond = _BEYOND * (high - low)
    shown = [low, high, *(picture.counter or ())[:1]]
    if picture.corrected_w is not None:
        shown += np.clip(picture.corrected_w, low - beyond, high + beyond).tolist()
    low, high = min(0.0, *shown), max(shown)
    room = 0.05 * max(high - low, 1e-9)
    return low - (room if low < 0 else 0.0), high + room


def _marks(axes: "Axes", canvas: Any, marks: Sequence[tuple[float, str]]) -> None:  # noqa: ANN401 - no types
    """Draw a line for each mark, up to its label where there is room for one."""
    renderer = canvas.get_renderer()
    canvas.draw()  # lays the axes out, which the places of labels depend on
    frame = axes.get_window_extent(renderer)
    ends = [frame.x0 - _GAP_PIXELS] * _ROWS
    across = axes.get_xaxis_transform()
    for time_s, label in marks[:_MOST_MARKS]:
        (line,) = axes.plot(
            (time_s, time_s), (0.0, 1.0), transform=across, color="0.45", lw=0.5, clip_on=False
        )
        text = axes.text(time_s, 1.0, label, transform=across, parse_math=False, **_LABEL)
        box = text.get_window_extent(renderer)
        row = _row(ends, box.x0, box.width, frame.x1)
        if row is None:
            text.remove()
            continue
        left = max(min(box.x0, frame.x1 - box.width), ends[row] + _GAP_PIXELS)
        ends[row] = left + box.width
        place_s = float(axes.transData.inverted().transform((left, 0.0))[0])
        height = 1.0 + 0.01 + row * _ROW_HEIGHT
        text.set_position((place_s, height))
        line.set_ydata((0.0, height + _ROW_HEIGHT / 2.0))


def _row(ends: Sequence[float], left: float, width: float, right: float) -> int | None:
    """The first row with room for a label at its mark, or before it at the right edge of the picture."""
    start = min(left, right - width)
    return next((row for row, end in enumerate(ends) if start >= end + _GAP_PIXELS), None)


def _save(figure: "Figure", path: Path) -> None:
    metadata = {"Date": None} if path.suffix == ".svg" else None  # the same trace, the same file
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise InputError(f"--plot {path}: cannot be written: {error.strerror or error}") from error
