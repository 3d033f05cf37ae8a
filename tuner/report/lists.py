"""Lists for people: runs, merges, balances, examinations, fleets, and the daemon's answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from rich.console import Console, Group
from rich.text import Text

from tuner.database.integrity.checksums import Examination, IsolatedRow, RowRepair, named
from tuner.database.merging import MergeReport
from tuner.model.plan import TunableValue, shown_values
from tuner.model.records import RunStatus
from tuner.model.run_document import AnswerTrial, Best, RunRow, TrialDocument, WorkloadAnswer
from tuner.model.units import MODELLED, moment, significant, with_moments
from tuner.report.layout import (
    GAP,
    LEAST_WIDTH,
    ReportLine,
    field_words,
    label,
    lines_of,
    origin_words,
    rendered,
    rows_in,
    table_lines,
)
from tuner.report.rows import BRIEF_TIME, ENERGY, TIME, Column, Table, amounts
from tuner.search.verification import OUTLIER, Amount, FleetGroup, GpuAnswer

_INDENT = "  "


class _Balanced(AnswerTrial):
    """A workload of a balance: its own time, and the run that it is of."""

    name: str
    batch: int
    run: int | None
    configuration: dict[str, TunableValue]


def balance_lines(document: Mapping[str, Any], command: str, width: int) -> Iterator[ReportLine]:
    """The lines of a balance.

    Args:
        document: see ``tuner.search.together.balance_document``.
        command: that tunes what is proposed.
        width: characters of a line.
    """
    proposed, most = document["proposed"], document["most_apart"]
    yield from _times(document, document["workloads"], document["apart"], "solo times as asked for", width)
    if proposed is not None:
        yield ReportLine("")
        title = "solo times as proposed"
        yield from _times(document, proposed, document["proposed_apart"], title, width)
    yield ReportLine("")
    if proposed is None and document["balanced"]:
        yield from lines_of(f"solo times are within a factor of {most:g}: there is nothing to balance", width)
    for sentence in document["advice"]:
        yield from lines_of(f"not within a factor of {most:g}: {sentence}", width, "yellow")
    if proposed is not None:
        yield from lines_of(f"{'use' if document['balanced'] else 'nearest'}: {command}", width)


def _times(
    document: Mapping[str, Any],
    workloads: Sequence[_Balanced],
    apart: float,
    title: str,
    width: int,
) -> Iterator[ReportLine]:
    """A table of workloads under its title."""
    mark = label(document, "{}; ")
    yield from lines_of(
        f"{title} ({mark}± is 95 %): the longest is {significant(apart, 3)} times the shortest", width
    )
    shown = Table[_Balanced](
        [
            Column("workload", lambda one: one["name"]),
            Column("batch", lambda one: one["batch"], number=True),
            replace(TIME, name="alone"),
            Column("from", lambda one: "default" if one["run"] is None else f"run {one['run']}"),
        ],
        workloads,
        Column("configuration", lambda one: shown_values(one["configuration"])),
    )
    yield from table_lines(shown, width, indent=_INDENT, head="dim")


# --- What a check or a repair of the database found, for people and as JSON.

_ONE_BY_ONE = 5  # rows of a table from one place that are named; of more, how many


def joined(parts: Sequence[Examination], rows: int) -> Examination:
    """Several examinations of one database as one, which verified so many rows."""
    return Examination(
        rows,
        tuple(repair for part in parts for repair in part.repaired),
        tuple(row for part in parts for row in part.isolated),
        tuple(line for part in parts for line in part.rebuilt),
    )


def sentences(examination: Examination) -> list[str]:
    """Return the errors and repairs: row by row, or in sums where that would be long."""
    lines = list(examination.rebuilt)
    alike: dict[tuple[str, str], list[RowRepair]] = {}
    for repair in examination.repaired:
        alike.setdefault((repair.table, repair.source), []).append(repair)
    for (name, source), rows in alike.items():
        if len(rows) <= _ONE_BY_ONE:
            lines += map(str, rows)
        else:
            ends = f"from {named(rows[0].key)} to {named(rows[-1].key)}"
            lines.append(f"{name}: {len(rows):,} rows, {ends}, taken from the {source}")
    lines += map(str, examination.isolated)
    if examination.isolated:
        lines.append("what is left of a row that is kept aside: `tuner db isolated --output FILE`")
    return lines


class IsolatedRowDocument(TypedDict):
    """A row that was kept aside, as JSON has it, with what is left of it in each file."""

    id: int
    table: str
    key: list[int | str]
    why: str
    found_at: str
    database: object
    mirror: object


class RepairDocument(TypedDict):
    """A row that was put right, as JSON has it."""

    table: str
    key: list[int | str]
    source: str


class ExaminationDocument(TypedDict):
    """An examination as JSON has it."""

    whole: bool
    rows: int
    repaired: list[RepairDocument]
    isolated: list[IsolatedRowDocument]
    rebuilt: list[str]


def examination_document(examination: Examination) -> ExaminationDocument:
    """An examination as JSON has it."""
    return {
        "whole": examination.whole,
        "rows": examination.rows,
        "repaired": [
            {"table": repair.table, "key": list(repair.key), "source": repair.source}
            for repair in examination.repaired
        ],
        "isolated": list(map(isolated_document, examination.isolated)),
        "rebuilt": list(examination.rebuilt),
    }


def isolated_document(row: IsolatedRow) -> IsolatedRowDocument:
    """A row that was kept aside, as JSON has it."""
    return {
        "id": row.id,
        "table": row.table,
        "key": list(row.key),
        "why": row.why,
        "found_at": row.found_at,
        "database": _columns(row.main),
        "mirror": _columns(row.mirror),
    }


def _columns(stored: bytes | None) -> object:
    if stored is None:
        return None
    try:
        return json.loads(stored)
    except ValueError:
        return {"hex": stored.hex()}


# --- ``tuner fleet``: how the GPUs of a kind differ.

_NONE = (
    "no workload has answers of two GPUs of a kind here: `tuner run --verify` on another GPU of the kind"
    " gives the second"
)
_SENSORS = "the gain of a GPU's power sensor, which may be some percent off, is in no interval"


def fleet_report(groups: Sequence[FleetGroup], width: int) -> Group:
    """Groups as rich prints them.

    Args:
        groups: of ``tuner.search.verification.fleet``.
        width: characters of a line, 40 at least.
    """
    width = max(width, LEAST_WIDTH)
    if not groups:
        return rendered(lines_of(_NONE, width))
    lines: list[ReportLine] = []
    for group in groups:
        lines += [*_group(group, width), ReportLine("")]
    return rendered([*lines, *lines_of(f"± is 95 %; {_SENSORS}", width)])


def _group(group: FleetGroup, width: int) -> Iterator[ReportLine]:
    modelled = " (modelled)" if group.modelled else ""
    named = " + ".join(f"{name}, batch {batch:,}" for name, batch in group.workloads.items())
    clocks = "clocks as found" if group.clocks == "off" else f"clocks {group.clocks}"
    yield from lines_of(f"{named} · {group.objective}, {clocks}", width, "bold")
    yield from lines_of(f"{group.model}, driver {group.driver}: {len(group.gpus)} GPUs", width)
    gpus = Table[GpuAnswer](
        [
            Column("GPU", lambda gpu: gpu.uuid),
            Column("where", _host_and_device),
            Column("run", lambda gpu: str(gpu.run), number=True),
            replace(_AMOUNT, name=f"time{modelled}", unit="s").of(lambda gpu: gpu.time),
            replace(_AMOUNT, name=f"energy{modelled}", unit="J").of(lambda gpu: gpu.energy),
            Column("answer", _kind),
        ],
        group.gpus,
    )
    yield from table_lines(gpus, width, indent=GAP)
    spreads = (("time", group.time_spread), ("energy", group.energy_spread))
    parts = [
        f"{name} by {100 * spread.value:.1f} ± {100 * spread.interval:.1f} %"
        for name, spread in spreads
        if spread is not None
    ]
    if parts:
        yield from lines_of(f"the GPUs differ in {' and in '.join(parts)}{modelled}", width)
    named_on = {gpu.uuid: _host_and_device(gpu) for gpu in group.gpus}
    for outlier in group.outliers:
        more = f"{100 * outlier.excess:.1f} ± {100 * outlier.interval:.1f} %"
        yield from lines_of(
            f"outlier: {outlier.uuid} ({named_on[outlier.uuid]}) needs {more} more joules than the median of"
            f" the others{modelled}; from {100 * OUTLIER:g} % on a GPU is named",
            width,
            "bold",
        )


_AMOUNT = Column[Amount]("", lambda amount: amount.value, half=lambda amount: amount.interval, number=True)


def _kind(gpu: GpuAnswer) -> str:
    return "refuted: not the best here" if gpu.refuted else "verified" if gpu.verified else "searched"


def _host_and_device(gpu: GpuAnswer) -> str:
    """The host of a GPU and its name there."""
    return f"{gpu.host or 'this host'} {gpu.device}".rstrip()


# --- ``tuner best`` and ``tuner status``, and what a merge has taken over.


def show_best(best: Best, console: Console) -> None:
    """Print the best known configurations with their origins, and the answer for all together."""
    device = best.device
    width = max(console.width, LEAST_WIDTH)
    lines = lines_of(f"{device.get('name')} ({device.get('spec')})", width, "bold")
    workloads = Table(
        [Column("workload", lambda one: one[0]), Column("origin", lambda one: _origin(one[1]))],
        list(best.workloads.items()),
        Column("configuration", lambda one: shown_values(one[1].configuration)),
    )
    lines += table_lines(workloads, width)
    lines += [line for sentence in _lines(best) for line in lines_of(sentence, width)]
    console.print(rendered(lines))


def _origin(placed: WorkloadAnswer) -> str:
    return f"{placed.origin}: {with_moments(placed.details)}" if placed.details else placed.origin


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
    celsius = trial.get("temperature_c")
    return ", ".join([*amounts(trial), *([] if celsius is None else [f"at {celsius:.0f} °C"])])


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
            _print_rows(name, value, console)
        else:
            console.print(Text(": ".join(field_words(name, value))))


def _print_rows(name: str, rows: list[dict[str, Any]], console: Console) -> None:
    """A paragraph per row; whatever fields a daemon has are shown, with the units of their names."""
    for row in rows:
        title = row.get("spec") or row.get("name") or name
        console.print(Text(f"{name.removesuffix('s')} {title}", style="bold"))
        lines: dict[str, list[str]] = {}
        for field, value in row.items():
            if field == "spent_today_j" and not value:  # trials of times alone have no joules
                continue
            if value not in (None, "", [], {}) and value != title:
                words, shown = field_words(field, value)
                if field == "spent_today_j":
                    shown += f" ({MODELLED if row.get('modelled') else 'as metered, sum of trials'})"
                lines.setdefault(words, []).append(shown)  # of a quantity in several units, one line
        for words, values in lines.items():
            console.print(Text(f"  {words}: {', '.join(values)}"))


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def merge_lines(report: MergeReport, source: str) -> Iterator[str]:
    """Sentences for people."""
    added = f"{_counted(report.runs_added, 'run')} added, with {_counted(report.trials_added, 'trial')}"
    yield f"{source}: {added}; {_counted(report.runs_known, 'run')} known already"
    if report.runs_unfinished:
        of_each = ", ".join(f"{count:,} {status}" for status, count in report.unfinished.items())
        how = (
            "; --limited takes what a limit has ended" if RunStatus.LIMITED.value in report.unfinished else ""
        )
        yield f"{_counted(report.runs_unfinished, 'run')} left out: no finished search ({of_each}){how}"
    yield from (f"left out: {why}" for why in report.refused)
    if more := report.runs_refused - len(report.refused):
        yield f"left out: {_counted(more, 'more run')}, damaged or not understood"


# --- ``tuner history``.

_UTC = " UTC"


def runs_report(runs: Sequence[RunRow], width: int) -> Group:
    """Stored runs as rich prints them; what has no room beside the numbers stands below them.

    Args:
        runs: as ``tuner history --json`` writes them.
        width: characters of a line, 40 at least.
    """
    if not runs:
        return rendered([ReportLine("no run is stored")])
    width = max(width, LEAST_WIDTH)
    for brief in (False, True):
        shown = _runs(runs, brief=brief)
        if rows_in(shown, width) is not None:
            break
    return rendered(table_lines(shown, width))


def _runs(runs: Sequence[RunRow], *, brief: bool) -> Table[RunRow]:
    of_all = [] if brief else [Column[RunRow]("status", lambda run: run["status"]), _TRIALS]
    return Table(
        [
            Column("run", lambda run: str(run["run"]), number=True),
            Column("started (UTC)", lambda run: moment(run["started_at"]).removesuffix(_UTC)),
            *of_all,
            BRIEF_TIME.of(_best),
            ENERGY.of(_best),
        ],
        runs,
        Column("workloads · device · search", lambda run: _note(run, brief=brief)),
    )


_TRIALS = Column[RunRow]("trials", lambda run: run["trials"], number=True)


def _best(run: RunRow) -> TrialDocument | None:
    return run["best"]


def _note(run: RunRow, *, brief: bool) -> str:
    parts = [
        " + ".join(run["workloads"]),
        f"{run['device']}{label(run, ' ({})')}",
        f"{run['objective']}, {run['policy']}",
    ]
    if run["merged_from"] is not None:
        parts.append(origin_words(run["merged_from"]))
    if brief:
        parts.append(f"{run['status']}, {_TRIALS.text(run)} trials")
    return " · ".join(parts)
