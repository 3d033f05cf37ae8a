"""The answer of a run: its numbers, each workload's part, and what it gains against other trials."""

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.model import shown_values
from tuner.report.layout import rows_in, table, tied, wrapped
from tuner.report.ranked_trials import objective_name, same
from tuner.report.trials_table import energy_of, interval
from tuner.report.words import MODELLED, label, percent_with_interval, si, significant, with_uncertainty

_INDENT = "  "


def totals(document: Mapping[str, Any]) -> list[str]:
    """Time, joules, power, rate and clock of the answer; of a round of all workloads."""
    best, workloads = document["best"], document["workloads"]
    parts = [si(best["time_s"], "s")]
    if best["energy_j"] is not None:
        parts += [energy_of(best), si(best["power_w"], "W")]
    if len(workloads) == 1:
        parts += _rates(workloads[0])
    else:
        parts[0] += " per round"
    clock = "clock as found" if best["clock_mhz"] is None else f"clock {best['clock_mhz']:g} MHz"
    if best["clock_mhz"] is None and best.get("clock_seen_mhz") is not None:
        clock += f" ({best['clock_seen_mhz']:.0f} MHz seen)"
    return [*parts, clock, *([f"({label(document)})"] if label(document) else [])]


def _rates(workload: Mapping[str, Any]) -> list[str]:
    value = (workload.get("best") or {}).get("rate")
    return [] if value is None else [_rate(value, workload["rate_name"])]


def _rate(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{significant(value)} {unit}"


def workloads_table(document: Mapping[str, Any], width: int) -> list[str]:
    """A row per workload: batch, own time in the co-run, share of the joules, rate, configuration."""
    words = label(document)
    parts = [workload["best"] for workload in document["workloads"]]
    columns = {
        "workload": [workload["name"] for workload in document["workloads"]],
        "batch": [f"{workload['batch']:,}" for workload in document["workloads"]],
        f"own time ({words})" if words else "own time": [si(part["time_s"], "s") for part in parts],
    }
    if any(part["energy_share_j"] is not None for part in parts):
        columns[f"energy share ({MODELLED})"] = [_share(part) for part in parts]
    if any(part["rate"] is not None for part in parts):
        columns["rate"] = [_rate(w["best"]["rate"], w["rate_name"]) for w in document["workloads"]]
    rows = [list(columns), *(list(row) for row in zip(*columns.values(), strict=True))]
    notes = ["configuration", *(shown_values(part["configuration"]) for part in parts)]
    return table(rows, notes, width, right=set(range(1, len(columns))), indent=_INDENT)


def _share(part: Mapping[str, Any]) -> str:
    return with_uncertainty(part["energy_share_j"], interval(part["energy_share_j_uncertainty"]), "J")


def comparisons(document: Mapping[str, Any], width: int) -> list[str]:
    """The answer against the default, the fastest trial, and its workloads one after another.

    A search for time says what the trial with the least joules would bring, where joules were measured.
    """
    energy_first = objective_name(document) != "time"
    rows: list[list[str]] = []
    sentences: list[str] = []
    for name, other, against in (
        ("default", "the default configuration", document.get("against_default")),
        ("fastest", "the fastest trial", document.get("trade_off")),
    ):
        trial = document.get(name)
        if same(document["best"], trial):
            sentences.append(other)
        elif trial is not None and trial["status"] != "ok":
            rows.append([f"against the {name}", "none: it failed", "", ""])
        elif against is not None:
            rows.append([f"against the {name}", *_changes(against, energy_first)])
    rows += _one_after_another(document, energy_first)
    rows += _least_energy(document)
    lines = [f"{_INDENT}the answer is {' and '.join(sentences)}"] if sentences else []
    found = rows_in(rows, width, indent=_INDENT) if rows else []
    if found is None:
        found = [
            line
            for row in rows
            for line in wrapped(_INDENT.join(map(tied, filter(None, row))), width, _INDENT, _INDENT * 2)
        ]
    return [line for text in lines for line in wrapped(text, width, "", _INDENT * 2)] + found


def _changes(against: Mapping[str, Any], energy_first: bool) -> list[str]:
    """Changes of time and joules, that of the objective first, and how they were measured."""
    time = f"{percent_with_interval(against['slowdown'], against.get('slowdown_interval'))} time"
    if "energy_saving" not in against:
        return [time, "", ""]
    change = percent_with_interval(-against["energy_saving"], against["energy_saving_interval"])
    pair = [f"{change} energy", time]
    once = "measured once each" if against.get("turn_by_turn") is False else ""
    return [*(pair if energy_first else pair[::-1]), once]


def _one_after_another(document: Mapping[str, Any], energy_first: bool) -> Iterator[list[str]]:
    """What running the workloads together brings; answers stored before that was measured lack it."""
    found = document.get("one_after_another")
    if found is None:
        return
    pair = [f"{percent_with_interval(found['time_change'], found['time_change_interval'])} time"]
    if found["energy_change"] is not None:
        energy = percent_with_interval(found["energy_change"], found["energy_change_interval"])
        pair.insert(0 if energy_first else 1, f"{energy} energy")
    yield ["against one after another", *pair, *[""] * (3 - len(pair))]


def _least_energy(document: Mapping[str, Any]) -> Iterator[list[str]]:
    """What a search for energy would save; only a search for time has to say it."""
    least, against = document.get("least_energy"), document.get("energy_trade_off")
    if objective_name(document) != "time" or least is None or against is None:
        return
    if not same(document["best"], least) and against["energy_saving"] > 0:
        changes = _changes(against, energy_first=True)
        yield ["least energy instead", *changes]
