"""Watched readings as a table, as lines, and as the lines they end with."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tuner.model.objective import COVERAGE
from tuner.report.units import si, with_uncertainty
from tuner.tracing.watching import Row, Snapshot

_TENTHS_S = 10.0  # from here on a tenth of a second is a third digit


def table(snapshot: Snapshot, name: str) -> Table:
    """The readings as they stand, with the state of the GPU below."""
    title = f"{name}, {snapshot.time_s:.0f} s"
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, caption=_state(snapshot))
    for column in ("reading", "sees", "now", "as shown", "mean", "since the start"):
        shown.add_column(column, no_wrap=column == "reading", justify="left" if column == "sees" else "right")
    shown.columns[0].justify = "left"
    for row in snapshot.rows:
        now = _end(row) or si(row.watts, "W")
        shown.add_row(
            row.info.name, row.info.scope, now, si(row.shown_w, "W"), si(row.mean_w, "W"), _since(row)
        )
    return shown


def lines(snapshot: Snapshot) -> Iterator[str]:
    """The same, a line for each reading."""
    for row in snapshot.rows:
        head = f"{snapshot.time_s:8.1f} s  {row.info.name} ({row.info.scope}): "
        if row.failure:
            yield f"{head}{_end(row)}"
            continue
        shown = f" (shows {si(row.shown_w, 'W')})" if row.shown_w is not None else ""
        since = f"mean {si(row.mean_w, 'W')}, {_since(row)}"
        yield f"{head}{si(row.watts, 'W')}{shown}, {since}; {_state(snapshot)}"


def summary_lines(snapshot: Snapshot) -> Iterator[str]:
    """What it came to; intervals are 95 %."""
    for row in snapshot.rows:
        end = f"; {_end(row)}" if row.failure else ""
        yield f"{row.info.name} ({row.info.scope}): {_since(row)}, mean {si(row.mean_w, 'W')}{end}"
    if snapshot.throttled:
        yield f"throttled meanwhile: {', '.join(snapshot.throttled)}"
    yield "± is 95 %, of noise and timing; a sensor's own calibration error is not in it"


def _end(row: Row) -> str:
    """Why there will be no more; empty while there may be."""
    return row.failure if row.ended or not row.failure else f"failed: {row.failure}"


def _since(row: Row) -> str:
    """Joules, and the time they are of: a reading begins with its first sample."""
    if row.joules is None or row.joules_sigma is None:
        return "–"
    return f"{with_uncertainty(row.joules, COVERAGE * row.joules_sigma, 'J')} in {_duration(row.seconds)}"


def _duration(seconds: float) -> str:
    """Seconds to a tenth, or to three digits: joules by seconds are then the watts beside them."""
    return f"{seconds:,.1f} s" if seconds >= _TENTHS_S else si(seconds, "s", 3)


def _state(snapshot: Snapshot) -> str:
    """Clock, what holds it back, and temperature, as far as they can be read."""
    clock = snapshot.clock
    parts = [] if clock.mhz is None else [f"{clock.mhz:.0f} MHz"]
    if clock.throttle_reasons:
        parts.append(f"held back by {', '.join(clock.throttle_reasons)}")
    if snapshot.temperature_c is not None:
        parts.append(f"{snapshot.temperature_c:.0f} °C")
    return ", ".join(parts) or "no clock to read"
