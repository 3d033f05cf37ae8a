"""Tables of the daemon's answers and of its state."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from tuner.client.values import Best
from tuner.model.plan import shown_values
from tuner.model.run_document import AnswerTrial
from tuner.report.layout import LEAST_WIDTH, ReportLine, lines_of, rendered, table
from tuner.report.trials_table import energy_of
from tuner.report.words import MODELLED, moment, si, with_moments

_UNITS = {"s": "s", "j": "J", "w": "W", "mhz": "MHz", "bytes": "bytes"}
_NAMES = {"runtime": "CUDA", "state_directory": "state"}  # where a field's own name says too little


def show_best(best: Best, console: Console) -> None:
    """Print the best known configurations with their origins, and the answer for all together."""
    device = best.device
    modelled = f" – {MODELLED}" if device.get("modelled") else ""
    width = max(console.width, LEAST_WIDTH)
    lines = lines_of(f"{device.get('name')} ({device.get('spec')}){modelled}", width, "bold")
    rows = [["workload", "origin"]]
    notes = ["configuration"]
    for name, placed in best.workloads.items():
        details = f": {with_moments(placed.details)}" if placed.details else ""
        rows.append([name, f"{placed.origin}{details}"])
        notes.append(shown_values(placed.configuration))
    lines += map(ReportLine, table(rows, notes, width))
    lines += [line for sentence in _lines(best) for line in lines_of(sentence, width)]
    console.print(rendered(lines))


def _lines(best: Best) -> Iterator[str]:
    clock = "as found" if best.clock_mhz is None else f"{best.clock_mhz} MHz"
    modelled = f", {MODELLED}" if best.device.get("modelled") else ""
    trial = None if best.answer is None else best.answer["best"]
    stored = trial if best.origin == "stored" else None
    numbers = f"{_totals(stored)} per round, " if stored else "nothing was measured, "
    limit = "" if best.power_limit_w is None else f", power limit {best.power_limit_w} W"
    yield f"answer ({best.objective}{modelled}): {numbers}clock {clock}{limit}"
    yield from (f"stale: {with_moments(reason)}" for reason in best.stale)
    if best.refinement is not None:
        yield f"job {best.refinement} is refining this answer: `tuner follow {best.refinement}`"
    yield from best.notices


def _totals(trial: AnswerTrial) -> str:
    parts = [si(trial.get("time_s"), "s")]
    if trial.get("energy_j") is not None:
        parts += [energy_of(trial), si(trial.get("power_w"), "W")]
    celsius = trial.get("temperature_c")
    if celsius is not None:
        parts.append(f"at {celsius:.0f} °C")
    return ", ".join(parts)


def show_status(document: Mapping[str, Any], console: Console) -> None:
    """Print the state of the daemon: troubles first, a paragraph per user and device, a line per fact."""
    troubles = document.get("troubles") or ()
    if troubles:
        console.print(Text("troubles", style="bold"))
    for trouble in troubles:
        console.print(Text("  " + str(trouble).replace("\n", "\n    ")))
    for name, value in document.items():
        if name == "troubles" and troubles:
            continue
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            _rows(name, value, console)
        else:
            console.print(Text(_named(name, value)))


def _rows(name: str, rows: list[dict[str, Any]], console: Console) -> None:
    """A paragraph per row; whatever fields a daemon has are shown, with the units of their names."""
    for row in rows:
        title = row.get("spec") or row.get("name") or name
        console.print(Text(f"{name.removesuffix('s')} {title}", style="bold"))
        lines: dict[str, list[str]] = {}
        for field, value in row.items():
            if value not in (None, "", [], {}) and value != title:
                words, _, shown = _named(field, value).partition(": ")
                if field == "spent_today_j":
                    shown += f" ({MODELLED if row.get('modelled') else 'as metered, sum of trials'})"
                lines.setdefault(words, []).append(shown)  # of a quantity in several units, one line
        for words, values in lines.items():
            console.print(Text(f"  {words}: {', '.join(values)}"))


def _named(field: str, value: object) -> str:
    """A field and its value, with the unit that the field's name ends in."""
    *words, last = _NAMES.get(field, field).split("_")
    if field.endswith("_at") and isinstance(value, str):
        return f"{' '.join((*words, last))}: {moment(value)}"
    if field == "uptime_s" and isinstance(value, int | float):
        return f"up for: {_lasting(value)}"
    if words and last in _UNITS and isinstance(value, int | float):
        return f"{' '.join(words)}: {si(float(value), _UNITS[last])}"
    return f"{' '.join((*words, last))}: {_shown(value)}"


def _lasting(seconds: float) -> str:
    """A duration in days, hours, minutes and seconds, from the largest that there is."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest_s, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def _shown(value: object) -> str:
    if isinstance(value, dict) and "summary" in value:
        return str(value["summary"])
    if isinstance(value, dict):
        known = {str(name): one for name, one in value.items() if one is not None}
        return ", ".join(_named(name, one).replace(": ", " ", 1) for name, one in known.items()) or "–"
    if isinstance(value, list):
        return "; ".join(map(_shown, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "–" if value is None or value == "" else str(value)
