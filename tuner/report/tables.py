"""The tables and sentences at the end of a run, made from its document."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.model import shown_values
from tuner.model.objective import COVERAGE
from tuner.report.words import MODELLED, label, note, percent, si, significant, with_uncertainty

_LARGE = 100.0  # from here on fractions are of no interest
_DAY_H = 24
_HOUR_MIN = 60
_FAILURES_SHOWN = 10
_ROOM_FOR_RATES = 90  # characters
_ROOM_FOR_ALL = 115
_A_TENTH = 0.001  # of a percent: smaller intervals get another digit


def break_even_line(document: Mapping[str, Any]) -> Iterator[str]:
    """The break-even as a sentence; answers stored before there was one lack it."""
    even = document.get("break_even")
    if even is None:
        return
    words = label(document)
    modelled = f", {words}" if words else ""
    cost = with_uncertainty(even["cost"], even["cost_interval"], even["unit"])
    if even["saving_per_run"] <= even["saving_interval"]:
        why = "it is not certain (95 %) that the answer saves anything"
        if even["saving_per_run"] == even["saving_interval"] == 0:
            why = "the answer saves nothing: it is the default"
        yield f"break-even: none; the tuning cost {cost}{f' ({words})' if words else ''}, and {why}"
        return
    saving = with_uncertainty(even["saving_per_run"], even["saving_interval"], even["unit"])
    days = ""
    if even["days"] is not None:
        days = f", which is {_days(even['days'])} at {_plain(even['runs_per_day'])} a day"
    yield (
        f"break-even: the tuning has paid for itself after {_count(even['runs'])} runs"
        f" ({_count(even['runs_least'])} to {_count(even['runs_most'])}, 95 %{modelled}){days}:"
        f" it cost {cost}, and each run saves {saving} against the default"
    )


def _plain(number: float) -> str:
    """A number a user gave, never in exponent form where it is large."""
    return f"{number:,.0f}" if number >= _LARGE else f"{number:g}"


def _days(days: float) -> str:
    """A span in the unit that gives it a readable number."""
    if days >= 1:
        return f"{significant(float(f'{days:.3g}'), 2)} days"
    hours = days * _DAY_H
    return f"{significant(hours, 2)} hours" if hours >= 1 else f"{significant(hours * _HOUR_MIN, 2)} minutes"


def _count(runs: float) -> str:
    """A number of runs to three digits, at least one."""
    rounded = float(f"{max(1.0, runs):.3g}")
    return f"{math.ceil(rounded):,}"


def show_run(document: Mapping[str, Any], console: Console, *, seen: Collection[str] = ()) -> None:
    """Print the result of a run: per workload, the answer as a whole, and what it cost to find.

    Args:
        document: of the run.
        console: where to print.
        seen: notices that stand above already, and are not repeated.
    """
    device = document["device"]
    beside = f" – {note(document)}" if note(document) else ""
    console.print(Text(f"{device['name']} ({device['spec']}){beside}", style="bold"))
    if document["best"] is None:
        console.print("no valid trial: there is no answer")
    else:
        console.print(_workloads(document, console.width))
        for line in _answer(document):
            console.print(Text(line))
    for line in (
        *_space(document),
        *_cost(document),
        *break_even_line(document),
        *_failures(document),
        *(notice for notice in document["notices"] if notice not in seen),
    ):
        console.print(Text(line))


def _workloads(document: Mapping[str, Any], width: int) -> Table:
    """A row per workload; on a narrow console the columns of least use are left out, never the answer."""
    words = label(document).replace(", ", ",\n")  # columns are narrow
    mark = f"\n({words})" if words else ""
    columns: dict[str, list[str]] = {f"time{mark}": [], "against\ndefault": []}
    if width >= _ROOM_FOR_RATES:
        columns[f"rate{mark}"] = []
    if width >= _ROOM_FOR_ALL:
        columns |= {f"energy share\n({MODELLED})": [], f"rate per watt\n({MODELLED})": []}
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("batch", justify="right", no_wrap=True)
    rows = [_cells(workload)[: len(columns) + 3] for workload in document["workloads"]]
    table.add_column("configuration", min_width=max(len(word) for row in rows for word in row[2].split()))
    for title in columns:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _cells(workload: Mapping[str, Any]) -> list[str]:
    best = workload["best"]
    return [
        workload["name"],
        f"{workload['batch']:,}",
        shown_values(best["configuration"]),
        si(best["time_s"], "s"),
        _change(best, workload["default"], "time_s"),
        _rate(best["rate"], workload["rate_name"]),
        with_uncertainty(best["energy_share_j"], _interval(best["energy_share_j_uncertainty"]), "J"),
        _rate(best["rate_per_watt"], f"{workload['rate_name']}/W"),
    ]


def _rate(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{significant(value)} {unit}"


def _change(best: Mapping[str, Any], default: Mapping[str, Any] | None, key: str) -> str:
    if default is None or not default[key] or not best[key]:
        return "–"
    return percent(best[key] / default[key] - 1)


def _answer(document: Mapping[str, Any]) -> Iterator[str]:
    best, default = document["best"], document["default"]
    modelled = f", {label(document)}" if label(document) else ""
    clock = "as found" if best["clock_mhz"] is None else f"{best['clock_mhz']} MHz"
    if best["clock_mhz"] is None and best["clock_seen_mhz"] is not None:
        clock += f" ({best['clock_seen_mhz']:.0f} MHz seen)"
    yield f"answer ({document['objective']}{modelled}): {_totals(best)} per round, clock {clock}"
    yield from _comparisons(document)
    yield from _net(best, default)
    if best["sensor"]:
        yield f"energy: {best['sensor']}, scope {best['scope']}; intervals are 95 %, the sensor's gain apart"
    spilling = [f"{w['name']} spills registers" for w in document["workloads"] if w["best"].get("spills")]
    if best["flags"] or spilling:
        yield f"beware: {'; '.join([*best['flags'], *spilling])}"


def _comparisons(document: Mapping[str, Any]) -> Iterator[str]:
    """The answer against the default and the fastest trial, and how well trials repeat."""
    default = document.get("against_default")  # answers stored before there was one lack it
    if default is not None and _same(document["best"], document["default"]):
        yield "the answer is the default configuration"
    elif default is not None:
        energy = f", energy {_saving(default, -1)}" if "energy_saving" in default else ""
        yield (
            f"against the default configuration ({_totals(document['default'])}):"
            f" time {percent(default['slowdown'])}{energy}"
        )
    fastest = document["trade_off"]
    if fastest is not None and _same(document["best"], document["fastest"]):
        yield "the answer is the fastest trial"
    elif fastest is not None and "energy_saving" in fastest:
        yield (
            f"against the fastest trial ({_totals(document['fastest'])}):"
            f" slowdown {percent(fastest['slowdown'])}, energy saving {_saving(fastest)}"
        )
    again = document.get("repeatability")
    if again is not None and again["energy_interval"] is not None:
        modelled = f", {label(document)}" if label(document) else ""
        yield (
            f"trials repeat to ± {100 * again['energy_interval']:.2g} % in energy (95 %{modelled}):"
            f" {again['trials']} contenders, measured again after the search"
        )


def _same(trial: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True for a trial and itself, of which no comparison tells anything."""
    return all(trial[key] == other[key] for key in ("configurations", "clock_mhz"))


def _saving(against: Mapping[str, Any], sign: int = 1) -> str:
    """A saving, or with sign -1 a change, with its 95 % interval."""
    change, half = sign * against["energy_saving"] + 0.0, against["energy_saving_interval"]
    digits = 1 if half == 0 or half >= _A_TENTH else 2
    paired = against.get("turn_by_turn")  # null where the answer is held against itself
    how = "" if paired is None else ", turn by turn" if paired else ", of single windows"
    return f"{percent(change, digits)} ± {100 * half:.{digits}f} % (95 %{how})"


def _net(best: Mapping[str, Any], default: Mapping[str, Any] | None) -> Iterator[str]:
    """Joules above idle, where idle power was measured; answers stored before that was done lack it."""
    if best.get("energy_net_j") is None:
        return
    net_j, idle_w = best["energy_net_j"], best["idle_w"]
    shown = with_uncertainty(net_j, _interval(best["energy_net_j_uncertainty"]), "J")
    idle = with_uncertainty(idle_w, _interval(best["idle_w_uncertainty"]), "W")
    before = default.get("energy_net_j") if default is not None else None
    another = before and before > 0 and not _same(best, default or best)
    change = f", {percent(net_j / before - 1)} against the default" if another else ""
    yield f"net of idle ({idle} at its clock): {shown} per round{change}"


def _totals(trial: Mapping[str, Any]) -> str:
    parts = [si(trial["time_s"], "s")]
    if trial["energy_j"] is not None:
        parts.append(with_uncertainty(trial["energy_j"], _interval(trial["energy_j_uncertainty"]), "J"))
        parts.append(si(trial["power_w"], "W"))
    return ", ".join(parts)


def _interval(uncertainty: float | None) -> float | None:
    """Half a 95 % interval from a standard uncertainty."""
    return None if uncertainty is None else COVERAGE * uncertainty


def _space(document: Mapping[str, Any]) -> Iterator[str]:
    space = document["space"]
    failed = f", {space['failed']} of them failed" if space["failed"] else ""
    resumed = f", {document['resumed']} from the resumed run" if document["resumed"] else ""
    yield (
        f"trials: {space['measured']:,} measured of {space['size']:,} ({space['pruned']:,} after pruning)"
        f"{failed}{resumed}; policy {document['policy']}, status {document['status']}"
    )
    for workload in document["workloads"]:
        reasons = [
            f"{count:,} × {reason}"
            for reason, count in workload["space"]["dropped"].items()
            if not reason.startswith("occupancy")
        ]
        if reasons:
            yield f"left out of {workload['name']}: {', '.join(reasons)}"
    unseen = [
        f"{workload['space']['uncompiled']:,} of {workload['name']}"
        for workload in document["workloads"]
        if workload["space"].get("uncompiled")
    ]
    if unseen:
        yield f"not looked at, so not compiled or only ahead: {', '.join(unseen)}"


def _cost(document: Mapping[str, Any]) -> Iterator[str]:
    wall = document["wall"]
    joules, interval = document["tuning_energy_j"], _interval(document["tuning_energy_j_uncertainty"])
    modelled = f" ({label(document)})" if label(document) else ""
    spent = "" if joules is None else f"{with_uncertainty(joules, interval, 'J')}{modelled}, "
    yield (
        f"tuning cost: {spent}{document['wall_s']:,.1f} s:"
        f" preparing and compiling {wall['prepare_s']:,.1f} s, searching {wall['search_s']:,.1f} s"
    )
    yield f"measuring windows {wall['windows_s']:,.1f} s, answer checks {wall['checks_s']:,.1f} s{modelled}"


def _failures(document: Mapping[str, Any]) -> Iterator[str]:
    """Which configurations failed and why, each once."""
    seen: dict[str, None] = {}
    for trial in document.get("trials", ()):
        for name, result in trial["workloads"].items():
            if result["status"] != "ok" and result["detail"]:
                configuration = shown_values(trial["configurations"][name])
                seen[f"{result['status']}: {name} [{configuration}]: {result['detail']}"] = None
    for workload in document["workloads"]:
        for message in workload["compile_errors"]:
            seen[f"compile-error: {message}"] = None
    lines = list(seen)
    yield from lines[:_FAILURES_SHOWN]
    if len(lines) > _FAILURES_SHOWN:
        yield f"... and {len(lines) - _FAILURES_SHOWN} more failures (--json lists all)"
