"""Tables and lines of power readings and power traces."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tuner.joules.trace_result import ProgramTrace, ReadingResult, corrected
from tuner.model.objective import COVERAGE
from tuner.power.base import ProgramEnergy
from tuner.report.power_plot import Picture
from tuner.report.words import is_corrected, percent, response_words, si, with_uncertainty
from tuner.tracing.watching import PowerSnapshot, ReadingRow

_TENTHS_S = 10.0  # from here on a tenth of a second is a third digit
_COMMAND_CHARACTERS = 90


def table(snapshot: PowerSnapshot, name: str) -> Table:
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
    """What it came to; intervals are 95 %."""
    for row in snapshot.rows:
        end = f"; {_end(row)}" if row.failure else ""
        yield f"{row.info.name} ({row.info.scope}): {_since(row)}, mean {si(row.mean_w, 'W')}{end}"
    if snapshot.throttled:
        yield f"throttled meanwhile: {', '.join(snapshot.throttled)}"
    yield "± is 95 %, of noise and timing; a sensor's own calibration error is not in it"


def _end(row: ReadingRow) -> str:
    """Why there will be no more; empty while there may be."""
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
    """What a trace found, a line at a time; intervals are 95 %."""
    line = trace.outcome.timeline
    yield f"{shortened(trace.command)}: exit code {trace.outcome.exit_code}, {si(line.duration_s, 's')}"
    energy = trace.energy
    if energy is None:
        yield "no joules: no reading gave enough"
    else:
        idle = with_uncertainty(energy.idle_w, COVERAGE * energy.idle_sigma_w, "W")
        when = "before and after" if line.idle_after_s > 0 else "before"
        of = f" of {trace.scope}" if trace.host else ""
        yield f"energy {_total(energy)}{of}, mean {si(energy.mean_w, 'W')}"
        yield f"net of idle {_net(energy)}; idle {idle}, measured {when}"
    if len(trace.counted) > 1:
        for part in trace.counted:
            yield f"  {part.info.scope} {joules(part)}, net of idle {net_joules(part)}"
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


def joules(reading: ReadingResult) -> str:
    """The command's joules with their interval."""
    return "–" if reading.energy is None else _total(reading.energy)


def net_joules(reading: ReadingResult) -> str:
    """The command's joules beyond idle with their interval."""
    return "–" if reading.energy is None else _net(reading.energy)


def _total(energy: ProgramEnergy) -> str:
    return with_uncertainty(energy.total_j, COVERAGE * energy.total_sigma_j, "J")


def _net(energy: ProgramEnergy) -> str:
    return with_uncertainty(energy.net_j, COVERAGE * energy.net_sigma_j, "J")


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
    text += f", {joules(reading)}"
    best = trace.best
    if best is not None and best.energy is not None and best is not reading and reading not in trace.host:
        text += f" ({percent(energy.total_j / best.energy.total_j - 1.0)})"
    if energy.peak_w is not None:
        text += f", peak {si(energy.peak_w, 'W')} over {si(energy.peak_window_s, 's', 2)}"
    return text


def _reference(trace: ProgramTrace, reference: ReadingResult) -> Iterator[str]:
    """What another meter of the same power says, and how the best reading compares."""
    yield f"{reference.info.name} (reference): {joules(reference)}, net of idle {net_joules(reference)}"
    gain, best = trace.gain, trace.best
    if best is None or best.energy is None or reference.energy is None:
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
    power = corrected(reading)
    line, best, response = trace.outcome.timeline, trace.best, reading.info.response
    counter = None
    if best is not None and best.energy is not None and best is not reading:
        counter = (best.energy.mean_w, f"{best.info.name}: mean of {joules(best)}")
    found = f": {joules(best)}" if best is not None else ""
    return Picture(
        title=f"{shortened(trace.command)}{found}\n{_origin(trace, reading)}",
        times_s=power.times_s - line.started_s,
        raw_w=power.shown_w,
        corrected_w=power.corrected_w if is_corrected(response) else None,
        correction=response_words(response),
        age_s=power.age_s,
        duration_s=line.duration_s,
        idle_w=None if best is None or best.energy is None else best.energy.idle_w,
        net="" if best is None or best.energy is None else net_joules(best),
        counter=counter,
        marks=[(time_s - line.started_s, label) for time_s, label in trace.outcome.marks],
    )


def _origin(trace: ProgramTrace, reading: ReadingResult) -> str:
    """Where a picture comes from, in a line."""
    origin = trace.provenance()
    driver = f", driver {origin['driver']}" if origin["driver"] else ""
    date = str(origin["date"]).partition("+")[0].replace("T", " ")
    where = f"{origin['gpu']} in {origin['host']}{driver}"
    return f"{reading.info.name} ({reading.info.scope}) of {where}, {date} UTC; ± is 95 %"
