"""Power readings and traces as tables, lines and pictures."""

import shlex
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.joules.trace_result import ProgramTrace, ReadingResult
from tuner.joules.watching import PowerSnapshot, ReadingRow
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.model.units import percent, si, with_uncertainty
from tuner.power.base import ProgramEnergy
from tuner.power.energy.programs import corrected_power
from tuner.report.layout import is_corrected, response_words, ruled
from tuner.report.rows import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table as RichTable


# --- The picture of a power trace: watts over time, as read and corrected, with the marks of the program.

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
    """Contents of a plot of power; all times in seconds since the command started.

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


def check_picture(path: Path, option: str = "--plot") -> None:
    """Find out early whether a picture can be drawn into a file.

    Raises:
        InputError: its name ends in none of ``FORMATS``, or matplotlib is not installed.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{option} {path}: the name must end in one of {', '.join(FORMATS)}")
    need_matplotlib(option)


def need_matplotlib(option: str = "--plot") -> None:
    """Find out early whether a picture can be drawn at all.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - heavy, and optional
    except ImportError as error:
        raise InputError(f"{option} needs matplotlib: pip install 'gpu-tuner[plot]'") from error


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
        save_figure(figure, path)


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


def save_figure(figure: "Figure", path: Path, option: str = "--plot") -> None:
    """Write a picture to a file; the same numbers give the same file.

    Raises:
        InputError: it cannot be written.
    """
    metadata = {"Date": None} if path.suffix == ".svg" else None
    try:
        figure.savefig(path, metadata=metadata)
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written: {error.strerror or error}") from error


# --- Readings and traces as tables and lines.

_TENTHS_S = 10.0  # from here on a tenth of a second is a third digit
_COMMAND_CHARACTERS = 90


def table(snapshot: PowerSnapshot, name: str) -> "RichTable":
    """The readings as they stand, with the state of the GPU below."""
    columns: list[Column[ReadingRow]] = [
        Column("reading", lambda row: row.info.name, whole=True),
        Column("sees", lambda row: row.info.scope),
        Column("now", lambda row: _end(row) or si(row.watts, "W"), number=True),
        Column("as shown", lambda row: row.shown_w, "W"),
        Column("mean", lambda row: row.mean_w, "W"),
        Column("since the start", _since, number=True),
    ]
    shown = ruled(Table(columns, snapshot.rows, title=f"{name}, {snapshot.time_s:.0f} s"))
    shown.caption = _state(snapshot)
    return shown


def lines(snapshot: PowerSnapshot) -> Iterator[str]:
    """The same, a line for each reading."""
    for row in snapshot.rows:
        head = f"{snapshot.time_s:8.1f} s  {row.info.name} ({row.info.scope}): "
        if row.failure:
            yield f"{head}{_end(row)}"
            continue
        shown = f" (shows {si(row.shown_w, 'W')})" if row.shown_w is not None else ""
        since = f"mean {si(row.mean_w, 'W')}, {_since(row)}"
        yield f"{head}{si(row.watts, 'W')}{shown}, {since}; {_state(snapshot)}"


def summary_lines(snapshot: PowerSnapshot) -> Iterator[str]:
    """Yield a summary of the readings; intervals are 95 %."""
    for row in snapshot.rows:
        end = f"; {_end(row)}" if row.failure else ""
        yield f"{row.info.name} ({row.info.scope}): {_since(row)}, mean {si(row.mean_w, 'W')}{end}"
    if snapshot.throttled:
        yield f"throttled meanwhile: {', '.join(snapshot.throttled)}"
    yield "± is 95 %, of noise and timing; a sensor's own calibration error is not in it"


def _end(row: ReadingRow) -> str:
    """Return the reason that there will be no more samples; empty while there may be."""
    return row.failure if row.ended or not row.failure else f"failed: {row.failure}"


def _since(row: ReadingRow) -> str:
    """Joules, and the time they are of: a reading begins with its first sample."""
    if row.joules is None or row.joules_sigma is None:
        return "–"
    return f"{with_uncertainty(row.joules, COVERAGE * row.joules_sigma, 'J')} in {_duration(row.seconds)}"


def _duration(seconds: float) -> str:
    """Seconds to a tenth, or to three digits: joules by seconds are then the watts beside them."""
    return f"{seconds:,.1f} s" if seconds >= _TENTHS_S else si(seconds, "s", 3)


def _state(snapshot: PowerSnapshot) -> str:
    """Clock, what holds it back, and temperature, as far as they can be read."""
    clock = snapshot.clock
    parts = [] if clock.mhz is None else [f"{clock.mhz:.0f} MHz"]
    if clock.throttle_reasons:
        parts.append(f"held back by {', '.join(clock.throttle_reasons)}")
    if snapshot.temperature_c is not None:
        parts.append(f"{snapshot.temperature_c:.0f} °C")
    return ", ".join(parts) or "no clock to read"


def trace_lines(trace: ProgramTrace) -> Iterator[str]:
    """Yield the results of a trace, a line at a time; intervals are 95 %."""
    line = trace.outcome.timeline
    yield f"{shortened(trace.command)}: exit code {trace.outcome.exit_code}, {si(line.duration_s, 's')}"
    energy = trace.energy
    if energy is None:
        yield "no joules: no reading gave enough"
    else:
        idle = with_uncertainty(energy.idle_w, COVERAGE * energy.idle_sigma_w, "W")
        when = "before and after" if line.idle_after_s > 0 else "before"
        of = f" of {trace.scope}" if trace.host else ""
        yield f"energy {joules(energy)}{of}, mean {si(energy.mean_w, 'W')}"
        yield f"net of idle {net_joules(energy)}; idle {idle}, measured {when}"
    if len(trace.counted) > 1:
        for part in trace.counted:
            yield f"  {part.info.scope} {joules(part.energy)}, net of idle {net_joules(part.energy)}"
    for reading in (*trace.readings, *trace.host):
        yield _reading(trace, reading)
    if trace.gpu.uuid:
        yield f"read of {trace.gpu.name}, {trace.gpu.uuid}"
    if trace.reference is not None:
        yield from _reference(trace, trace.reference)
    clock = trace.clock
    if clock.mhz is not None:
        yield f"clock {clock.mhz:.0f} MHz"
    if trace.outcome.marks:
        yield f"marks {len(trace.outcome.marks)}"
    yield f"overhead {100 * trace.outcome.overhead:.2g} % of one core while the command ran"
    yield "± is 95 %, of noise and timing; a sensor's own calibration error is not in it"
    yield from (f"beware: {note}" for note in trace.notes())


def joules(energy: ProgramEnergy | None) -> str:
    """The command's joules with their interval."""
    return "–" if energy is None else with_uncertainty(energy.total_j, COVERAGE * energy.total_sigma_j, "J")


def net_joules(energy: ProgramEnergy | None) -> str:
    """The command's joules beyond idle with their interval."""
    return "–" if energy is None else with_uncertainty(energy.net_j, COVERAGE * energy.net_sigma_j, "J")


def shortened(command: Sequence[str]) -> str:
    """A command that fits a line: its program without the folder, no more words than there is room for.

    Nothing is left in it that a terminal would obey.
    """
    words = shlex.join((PurePath(command[0]).name or command[0], *command[1:]))
    words = "".join(letter if letter.isprintable() else " " for letter in words)
    if len(words) <= _COMMAND_CHARACTERS:
        return words
    kept = words[: _COMMAND_CHARACTERS - 1]
    whole, _, _ = kept.rpartition(" ")
    return f"{whole} …" if len(whole) > _COMMAND_CHARACTERS / 2 else f"{kept}…"


def _reading(trace: ProgramTrace, reading: ReadingResult) -> str:
    info, energy = reading.info, reading.energy
    follows = "counts joules" if info.kind == "counter" else response_words(info.response)
    text = f"{info.name} ({info.scope}; {follows}): {len(reading.samples)} samples"
    if energy is None:
        return text
    text += f", {joules(reading.energy)}"
    best = trace.best
    if best is not None and best.energy is not None and best is not reading and reading not in trace.host:
        text += f" ({percent(energy.total_j / best.energy.total_j - 1.0)})"
    if energy.peak_w is not None:
        text += f", peak {si(energy.peak_w, 'W')} over {si(energy.peak_window_s, 's', 2)}"
    return text


def _reference(trace: ProgramTrace, reference: ReadingResult) -> Iterator[str]:
    """Yield values of another meter of the same power, and the gain of the best reading against it."""
    energy = reference.energy
    yield f"{reference.info.name} (reference): {joules(energy)}, net of idle {net_joules(energy)}"
    gain, best = trace.gain, trace.best
    if best is None or best.energy is None or energy is None:
        return
    if gain is not None and COVERAGE * gain[1] < gain[0]:
        yield f"{best.info.name} shows {with_uncertainty(gain[0], COVERAGE * gain[1], '')} of it, net of idle"
    else:
        yield (
            f"no gain of {best.info.name} can be told: net of idle, joules of the command do not differ"
            " from zero"
        )


def trace_picture(trace: ProgramTrace) -> Picture | None:
    """The picture of a trace; None where no reading shows power over time."""
    reading = trace.curve
    if reading is None or not reading.samples:
        return None
    power = corrected_power(reading.samples, reading.info)
    line, best, response = trace.outcome.timeline, trace.best, reading.info.response
    counter = None
    if best is not None and best.energy is not None and best is not reading:
        counter = (best.energy.mean_w, f"{best.info.name}: mean of {joules(best.energy)}")
    found = f": {joules(best.energy)}" if best is not None else ""
    return Picture(
        title=f"{shortened(trace.command)}{found}\n{_origin(trace, reading)}",
        times_s=power.times_s - line.started_s,
        raw_w=power.shown_w,
        corrected_w=power.corrected_w if is_corrected(response) else None,
        correction=response_words(response),
        age_s=power.age_s,
        duration_s=line.duration_s,
        idle_w=None if best is None or best.energy is None else best.energy.idle_w,
        net="" if best is None or best.energy is None else net_joules(best.energy),
        counter=counter,
        marks=[(time_s - line.started_s, label) for time_s, label in trace.outcome.marks],
    )


def _origin(trace: ProgramTrace, reading: ReadingResult) -> str:
    """Return the origin of a picture in a line."""
    origin = trace.provenance()
    driver = f", driver {origin['driver']}" if origin["driver"] else ""
    date = str(origin["date"]).partition("+")[0].replace("T", " ")
    where = f"{origin['gpu']} in {origin['host']}{driver}"
    return f"{reading.info.name} ({reading.info.scope}) of {where}, {date} UTC; ± is 95 %"
