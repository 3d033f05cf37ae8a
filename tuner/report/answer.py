"""The answer of a run: its numbers, each workload's part, and what it gains against other trials."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tuner.model.plan import shown_values
from tuner.model.run_document import Changes, RunDocument, TrialDocument, WorkloadDocument, WorkloadPart
from tuner.report.layout import rows_in, table, wrapped
from tuner.report.ranked_trials import cost_change, longest_s, objective_name, same
from tuner.report.trials_table import energy_of, interval
from tuner.report.words import MODELLED, label, percent_with_interval, si, significant, with_uncertainty

_INDENT = "  "
_Reference = Literal["default", "fastest", "solo_bests"]
_COMPARED: tuple[
    tuple[_Reference, Literal["against_default", "trade_off", "against_solo_bests"], str], ...
] = (
    ("default", "against_default", "the default"),
    ("fastest", "trade_off", "the fastest"),
    ("solo_bests", "against_solo_bests", "solo bests together"),
)
_ITSELF: dict[_Reference, str] = {
    "default": "the default configuration",
    "fastest": "the fastest trial",
    "solo_bests": "the solo bests together",
}
_HIDING = 0.9  # of a round: a workload that takes as much alone leaves little to the others


def totals(document: RunDocument) -> list[str]:
    """Time, joules, power, rate, clock, temperature and power limit of the answer; of a round of them all."""
    best, workloads = document["best"], document["workloads"]
    if best is None:
        return []
    parts = [si(best["time_s"], "s")]
    if best["energy_j"] is not None:
        parts += [energy_of(best), si(best.get("power_w"), "W")]
    if len(workloads) == 1:
        parts += rates(workloads[0])
    else:
        parts[0] += " per round"
    clock = "clock as found" if best["clock_mhz"] is None else f"clock {best['clock_mhz']:g} MHz"
    seen = best.get("clock_seen_mhz")
    if best["clock_mhz"] is None and seen is not None:
        clock += f" ({seen:.0f} MHz seen)"
    celsius, limit = best.get("temperature_c"), best.get("power_limit_w")
    warm = [] if celsius is None else [f"at {celsius:.0f} °C"]
    limits = [] if limit is None else [f"power limit {limit:g} W"]
    return [*parts, clock, *warm, *limits, *([f"({label(document)})"] if label(document) else [])]


def rates(workload: WorkloadDocument) -> list[str]:
    """What a workload achieves a second, in its own unit; empty where its work is not known."""
    value = None if workload["best"] is None else workload["best"]["rate"]
    return [] if value is None else [_rate(value, workload.get("rate_name", ""))]


def _rate(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{significant(value)} {unit}"


def workload_cells(document: RunDocument) -> list[list[str]]:
    """A row per workload below the heads: batch, own time in the co-run, share of the joules, rate.

    The first cell is its name. Shares are modelled on every device.
    """
    workloads = document["workloads"]
    parts = _parts(document)
    columns = {"batch": [f"{workload['batch']:,}" for workload in workloads]}
    columns["own time"] = [si(part["time_s"], "s") for part in parts]
    if any(part["energy_share_j"] is not None for part in parts):
        columns[f"share ({MODELLED})"] = [_share(part) for part in parts]
    if any(part["rate"] is not None for part in parts):
        columns["rate"] = [
            _rate(part["rate"], one.get("rate_name", "")) for one, part in zip(workloads, parts, strict=True)
        ]
    names = ["workload", *(workload["name"] for workload in workloads)]
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    return [[name, *row] for name, row in zip(names, rows, strict=True)]


def workloads_table(document: RunDocument, width: int) -> list[str]:
    """A row per workload with its configuration; the title above it says what kind of numbers these are."""
    named = workload_cells(document)
    notes = ["configuration", *(shown_values(part["configuration"]) for part in _parts(document))]
    if rows_in(named, width, indent=_INDENT) is not None:
        return table(named, notes, width, right=set(range(1, len(named[0]))), indent=_INDENT)
    notes = [f"{row[0]}: {note}" for row, note in zip(named, notes, strict=True)]
    rows = [row[1:] for row in named]
    return table(rows, notes, width, right=set(range(len(rows[0]))), indent=_INDENT)


def _parts(document: RunDocument) -> list[WorkloadPart]:
    """The workloads' parts of the answer, which every answer has."""
    return [workload["best"] for workload in document["workloads"] if workload["best"] is not None]


def _share(part: WorkloadPart) -> str:
    return with_uncertainty(part["energy_share_j"], interval(part["energy_share_j_uncertainty"]), "J")


@dataclass(frozen=True)
class Gains:
    """What an answer gains.

    Attributes:
        cells: a row for each trial that it is held against, below the heads; empty without one. A column
            that nobody fills is left out.
        sentences: what is no row.
    """

    cells: list[list[str]]
    sentences: list[str]


def comparisons(document: RunDocument, width: int) -> list[str]:
    """What the answer gains, as lines."""
    gains = gains_of(document)
    lines: list[str] = []
    if gains.cells:
        right = {place for place, head in enumerate(gains.cells[0]) if head in ("energy", "time")}
        lines = table(gains.cells, [""] * len(gains.cells), width, right=right, indent=_INDENT)
    return lines + [
        line for text in gains.sentences for line in wrapped(_INDENT + text, width, "", _INDENT * 2)
    ]


def gains_of(document: RunDocument) -> Gains:
    """The answer against the default, the fastest trial, the solo bests together, and one after another.

    A search for time says what the trial with the least joules would bring, where joules were measured.
    """
    energy_first = objective_name(document) != "time"
    rows: list[list[str]] = []
    sentences: list[str] = []
    itself: list[str] = []
    compared: list[TrialDocument | None] = []  # the trial of each row
    for name, against, called in _COMPARED:
        trial, changes = document.get(name), document.get(against)
        before = next((i for i, other in enumerate(compared) if same(trial, other)), None)
        if before is not None:
            rows[before][0] += f", {called}"
        elif same(document["best"], trial):
            itself.append(_ITSELF[name])
        elif trial is not None and trial["status"] != "ok":
            it = "them" if name == "solo_bests" else "it"
            sentences.append(f"{called} failed: there is no comparison with {it}")
        elif trial is not None and changes is not None:
            rows.append([called, *_changes(changes, energy_first)])
            compared.append(trial)
    if itself:
        *others, last = itself
        sentences.insert(0, f"the answer is {' and '.join(filter(None, (', '.join(others), last)))}")
    rows += _one_after_another(document, energy_first)
    sentences += _solo_bests(document)
    sentences += _hidden(document)
    sentences += _least_energy(document)
    return Gains(_compared(rows, energy_first) if rows else [], sentences)


@dataclass(frozen=True)
class Change:
    """A change against the default.

    Attributes:
        of: ``time`` or ``energy``.
        shown: in percent, with half of its 95 % interval.
        sign: -1 for certainly less, 1 for certainly more, 0 for neither.
    """

    of: str
    shown: str
    sign: int


def changes_of(document: RunDocument) -> list[Change]:
    """Time and joules of the answer against the default, that of the objective first; none where it is it."""
    against = document.get("against_default")
    if against is None or same(document["best"], document.get("default")):
        return []
    found = [_change("time", against["slowdown"], against.get("slowdown_interval"))]
    if "energy_saving" in against:
        found.append(_change("energy", -against["energy_saving"], against["energy_saving_interval"]))
    return found if objective_name(document) == "time" else found[::-1]


def _change(of: str, change: float, half: float | None) -> Change:
    sure = abs(change) > (half or 0.0)
    return Change(of, percent_with_interval(change, half), (change > 0) - (change < 0) if sure else 0)


def _compared(rows: list[list[str]], energy_first: bool) -> list[list[str]]:
    """The rows below their heads, without columns that are empty."""
    heads = ["against", *(("energy", "time") if energy_first else ("time", "energy")), ""]
    filled = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    return [[row[place] for place in filled] for row in (heads, *rows)]


def _changes(against: Changes, energy_first: bool) -> list[str]:
    """Changes of time and joules, that of the objective first, and how they were measured."""
    time = percent_with_interval(against["slowdown"], against.get("slowdown_interval"))
    energy, once = "", ""
    if "energy_saving" in against:
        energy = percent_with_interval(-against["energy_saving"], against["energy_saving_interval"])
        once = "measured once each" if against.get("turn_by_turn") is False else ""
    return [energy, time, once] if energy_first else [time, energy, once]


def _one_after_another(document: RunDocument, energy_first: bool) -> Iterator[list[str]]:
    """What running the workloads together brings; answers stored before that was measured lack it."""
    found = document.get("one_after_another")
    if found is None:
        return
    time = percent_with_interval(found["time_change"], found["time_change_interval"])
    energy = ""
    if found["energy_change"] is not None:
        energy = percent_with_interval(found["energy_change"], found["energy_change_interval"])
    yield ["one after another", *((energy, time) if energy_first else (time, energy)), ""]


def _solo_bests(document: RunDocument) -> Iterator[str]:
    """Why the solo bests together are not compared; or that they cost less than the answer, and why."""
    if document.get("no_solo_bests"):
        yield f"solo bests together are not compared: {document['no_solo_bests']}"
    limited = document.get("limited_solo_bests")
    if document.get("solo_bests") and limited:
        yield f"solo bests of searches that a limit ended, better ones may be left: {', '.join(limited)}"
    solo, changes = document.get("solo_bests"), document.get("against_solo_bests")
    if solo is None or changes is None or same(document["best"], solo):
        return
    lower, half = cost_change(document, changes)
    if lower <= half:
        return
    slow = (solo["time_s"] or 0.0) > longest_s(document)
    why = (
        "they are slower than --max-slowdown allows" if slow else "a tie, of which the answer is the fastest"
    )
    yield f"solo bests together cost less: the answer {percent_with_interval(lower, half)}; {why}"


def _hidden(document: RunDocument) -> Iterator[str]:
    """That one workload alone takes most of a round, so that the others hardly count."""
    found = document.get("one_after_another")
    if found is None or not found["workloads"]:
        return
    alone = {name: one["time_s"] for name, one in found["workloads"].items()}
    longest = max(alone, key=lambda name: alone[name])
    share = alone[longest] / found["together"]["time_s"]
    if share >= _HIDING:
        yield (
            f"{longest} alone takes {100 * min(share, 1.0):.0f} % of a round: the others hide behind it, and"
            " their configurations hardly count; sizes or batches of about equal times tell more (`tuner run"
            " --balance`)"
        )


def _least_energy(document: RunDocument) -> Iterator[str]:
    """What a search for energy would save; only a search for time has to say it."""
    least, against = document.get("least_energy"), document.get("energy_trade_off")
    if objective_name(document) != "time" or least is None or against is None:
        return
    if same(document["best"], least):
        yield "the answer takes the least energy, too"
    elif against["energy_saving"] > against["energy_saving_interval"]:
        energy, time, once = _changes(against, energy_first=True)
        how = f", {once}" if once else ""
        yield f"least energy instead: {energy} energy for {time} time{how}"
