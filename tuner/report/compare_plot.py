"""The picture of a comparison: Φ of every policy, and how it grows with the evaluations."""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.comparing.choices import TOGETHER
from tuner.errors import InputError
from tuner.report.compare import provenance_word
from tuner.report.power_plot import need_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3  # of small pictures
_WIDTH_INCHES, _BARS_INCHES, _ROW_INCHES = 10.0, 2.6, 2.1
_DPI = 80
_GROUP = 0.84  # of the room of an operation, for its bars
_FIRST = 2  # points of a curve that may lie below the picture: the first trials are anybody's guess
_ROOM = 0.1  # below the lowest value shown, by the range to 1
_LEAST_RANGE = 0.02  # of Φ shown: less is noise of the measurements


def draw_comparison(document: Mapping[str, Any], path: Path) -> None:
    """Draw a comparison into a file: bars of Φ above, below Φ over evaluations for every operation.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    need_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    operations = [operation for operation in document["operations"] if operation["policies"]]
    rows = math.ceil(len(operations) / _COLUMNS)
    figure = Figure(
        figsize=(_WIDTH_INCHES, _BARS_INCHES + rows * _ROW_INCHES + 0.6), dpi=_DPI, layout="constrained"
    )
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[_BARS_INCHES, *[_ROW_INCHES] * rows])
    colours = {policy: f"C{number}" for number, policy in enumerate(document["policies"])}
    bars = figure.add_subplot(grid[0, :])
    _bars(bars, operations, colours)
    for place, operation in enumerate(operations):
        axes = figure.add_subplot(grid[1 + place // _COLUMNS, place % _COLUMNS])
        _curves(axes, operation, colours)
        if place + _COLUMNS >= len(operations):  # the lowest of its column
            axes.set_xlabel("evaluations", fontsize="small")
    handles, labels = bars.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    figure.suptitle(_title(document), fontsize="medium", parse_math=False)
    _save(figure, path)


def _title(document: Mapping[str, Any]) -> str:
    device = document["device"]
    return (
        f"Φ by policy on {device['name']} ({provenance_word(document)}), objective {document['objective']},"
        f" {document['seeds']} seeds; bands hold two of three seeds"
    )


def _bars(axes: "Axes", operations: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    """Φ of every policy by operation, with the range over seeds."""
    width = _GROUP / len(colours)
    for number, (policy, colour) in enumerate(colours.items()):
        rows = [
            (place, o["policies"][policy]) for place, o in enumerate(operations) if policy in o["policies"]
        ]
        middles = [row["phi"] for _, row in rows]
        axes.bar(
            [place + (number + 0.5) * width - _GROUP / 2 for place, _ in rows],
            middles,
            width,
            color=colour,
            label=policy,
            yerr=[
                [max(0.0, phi - row["phi_lowest"]) for phi, (_, row) in zip(middles, rows, strict=True)],
                [max(0.0, row["phi_highest"] - phi) for phi, (_, row) in zip(middles, rows, strict=True)],
            ],
            error_kw={"lw": 0.8, "ecolor": "0.3"},
        )
    every = [row["phi_lowest"] for o in operations for row in o["policies"].values()]
    axes.set_ylim(*_limits(every))
    axes.set_xticks(range(len(operations)), [_short(o["operation"], 1) for o in operations], fontsize="small")
    axes.set_ylabel("Φ")
    axes.grid(axis="y", alpha=0.3)


def _curves(axes: "Axes", operation: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """Φ over evaluations: median and band over seeds, dotted from the end of the last play on."""
    last = max(row["curve"]["evaluations"][-1] for row in operation["policies"].values())
    lows: list[float] = []
    for policy, row in operation["policies"].items():
        curve, colour = row["curve"], colours[policy]
        counts, median = curve["evaluations"], curve["median"]
        axes.plot(counts, median, color=colour, lw=1.2)
        axes.plot(counts[-1], median[-1], "o", ms=3.0, color=colour)
        axes.plot((counts[-1], last), (median[-1], median[-1]), ":", color=colour, lw=1.0)
        axes.fill_between(counts, curve["low"], curve["high"], color=colour, alpha=0.15, lw=0)
        lows += median[_FIRST:] or median[-1:]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(*_limits(lows))
    axes.set_title(_short(operation["operation"], 2), fontsize="small", parse_math=False)
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Of the axis of Φ: from a little below the lowest value to 1; where all plays failed, it is left out."""
    span = max(_LEAST_RANGE, 1.0 - min((value for value in values if value > 0.0), default=0.0))
    return max(0.0, 1.0 - (1.0 + _ROOM) * span), 1.0 + 0.03 * span


def _short(operation: str, kernels: int) -> str:
    """A name that has room: so many kernels of a co-run in a line."""
    parts = operation.split(TOGETHER)
    lines = [TOGETHER.join(parts[i : i + kernels]) for i in range(0, len(parts), kernels)]
    return f"{TOGETHER}\n".join(lines)


def _save(figure: "Figure", path: Path) -> None:
    metadata = {"Date": None} if path.suffix == ".svg" else None  # the same comparison, the same file
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
            figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise InputError(f"--plot {path}: cannot be written: {error.strerror or error}") from error
