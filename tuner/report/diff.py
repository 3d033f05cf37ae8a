"""Two runs side by side: answers, times, joules, what differs in their making; verdicts of ``tuner gate``."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from rich.console import Group

from tuner.measurement.paired import ASSUMED_REPEATABILITY, NO_WORSE, SURE, UNDECIDED, WORSE, decided
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE, TIME_EXPONENT, Objective
from tuner.model.run_document import Device, RunDocument, TrialDocument, WorkloadDocument
from tuner.model.units import lasting, moment, percent_with_interval, si, with_uncertainty
from tuner.report.layout import (
    LEAST_WIDTH,
    ReportLine,
    field_words,
    label,
    lines_of,
    rendered,
    table_lines,
    wrapped,
)
from tuner.report.rows import CLOCK, POWER_LIMIT, Column, Table, filled, interval
from tuner.report.trials_table import differences, goal
from tuner.search.gate import NEW, UNCHANGED, CostChange, Gated
from tuner.system.untrusted.reading import plain

_INDENT = "  "
_UNKNOWN = "–"


def diff_report(one: RunDocument, other: RunDocument, titles: tuple[str, str], width: int) -> Group:
    """Return the differences of the second run from the first, for rich to print.

    Args:
        one: document of a run.
        other: document of another one.
        titles: what they are called.
        width: characters of a line, 40 at least.
    """
    width = max(width, LEAST_WIDTH)
    compared = differences_of(one, other, titles)
    lines = [line for title in compared.titles for line in lines_of(title, width, "bold")]
    lines.append(ReportLine(""))
    lines += table_lines(compared.numbers, width, indent=_INDENT)
    for heading, sentences in (("answers", compared.answers), (compared.heading, compared.conditions)):
        lines.append(ReportLine(heading))
        for text in sentences:
            lines += map(ReportLine, wrapped(text, width, _INDENT, _INDENT * 3))
    return rendered(lines)


class _Compared(NamedTuple):
    """A number of two runs."""

    name: str
    a: str
    b: str
    change: str = ""


@dataclass(frozen=True)
class RunDifferences:
    """Differences of run B from run A.

    Attributes:
        titles: of both.
        numbers: of both; with changes where the workloads are the same.
        answers: a sentence for each workload.
        conditions: a sentence for each that differs.
    """

    titles: list[str]
    numbers: Table[_Compared]
    answers: list[str]
    conditions: list[str]

    @property
    def heading(self) -> str:
        """Heading above the conditions."""
        return "conditions that differ" if self.conditions else "the conditions are the same"


def differences_of(one: RunDocument, other: RunDocument, titles: tuple[str, str]) -> RunDifferences:
    """Return the differences of the second run from the first; arguments as of ``diff_report``."""
    rows = list(_numbers(one, other))
    columns: list[Column[_Compared]] = [
        Column("", lambda row: row.name),
        Column("A", lambda row: row.a, number=True),
        Column("B", lambda row: row.b, number=True),
        *filled([Column[_Compared]("B against A", lambda row: row.change, number=True)], rows),
    ]
    named = zip("AB", titles, (one, other), strict=True)
    return RunDifferences(
        titles=[f"{letter}: {_title(title, document)}" for letter, title, document in named],
        numbers=Table(columns, rows),
        answers=list(_answers(one, other)),
        conditions=list(_conditions(one, other)),
    )


def _title(title: str, document: RunDocument) -> str:
    names = " + ".join(workload["name"] for workload in document["workloads"])
    parts = [title]
    if document.get("started_at"):
        parts.append(moment(document["started_at"]))
    kind = label(document)
    device = document["device"]["name"]
    mark = f" ({kind})" if kind and kind not in device else ""
    return " · ".join([*parts, names, f"{device}{mark}", goal(document)])


def _numbers(one: RunDocument, other: RunDocument) -> Iterator[_Compared]:
    """Numbers of the answers and of the runs, with changes where the workloads are the same."""
    a, b = one["best"], other["best"]
    alike = {w["name"] for w in one["workloads"]} == {w["name"] for w in other["workloads"]}

    for name, unit, before, after in quantities(a, b):
        first, second = (
            with_uncertainty(x, interval(u), unit) if name == "energy" else si(x, unit)
            for x, u in (before, after)
        )
        # of other work a change would say nothing
        yield _Compared(name, first, second, _change(before, after) if alike else "")
    for setting in (CLOCK, *filled([POWER_LIMIT], [trial for trial in (a, b) if trial is not None])):
        yield _Compared(
            setting.name, *(_UNKNOWN if trial is None else setting.text(trial) for trial in (a, b))
        )
    yield _Compared("trials", *(f"{document['space']['measured']:,}" for document in (one, other)))
    yield _Compared("wall time", *(si(document.get("wall_s"), "s", 3) for document in (one, other)))
    yield _Compared("status", one["status"], other["status"])


Quantity = tuple[float | None, float | None]
"""A value and its standard uncertainty."""


def quantities(
    a: TrialDocument | None, b: TrialDocument | None
) -> Iterator[tuple[str, str, Quantity, Quantity]]:
    """Name and unit of what two answers are compared by, with what it is in both."""
    numbers: list[list[Quantity]] = [
        [(None, None)] * 3
        if trial is None
        else [
            (trial["time_s"], trial.get("time_s_uncertainty")),
            (trial["energy_j"], trial.get("energy_j_uncertainty")),
            (trial.get("power_w"), None),
        ]
        for trial in (a, b)
    ]
    yield from zip(("time", "energy", "power"), ("s", "J", "W"), *numbers, strict=True)


def _change(before: Quantity, after: Quantity) -> str:
    """A change in words."""
    change = change_of(before, after)
    return _UNKNOWN if change is None else percent_with_interval(*change)


def change_of(a: Quantity, b: Quantity) -> tuple[float, float | None] | None:
    """A relative change from one value to another, with half of its 95 % interval.

    Returns:
        None where a value is not known; the interval is None where an uncertainty is not.
    """
    (before, before_sigma), (after, after_sigma) = a, b
    if not before or after is None:
        return None
    half = None
    if before_sigma is not None and after_sigma is not None and after:
        half = COVERAGE * math.hypot(before_sigma / before, after_sigma / after) * after / before
    return after / before - 1, half or None


def verdict_on(one: RunDocument, other: RunDocument, margin: float) -> tuple[str, str]:
    """The verdict on the answer of the second run by the cost of its objective, and why.

    Both were measured at different times: how well a trial repeats over minutes is in the interval.

    Args:
        one: document of a run.
        other: document of another one.
        margin: that the cost may be higher by, relative.

    Raises:
        InputError: the runs are of different work, GPUs or objectives, or one has no answer.
    """
    name = one["objective"].partition(" ")[0]
    kinds = (
        ("objective", *(each["objective"] for each in (one, other))),
        ("device", *(each["device"]["name"] for each in (one, other))),
        ("work", *(", ".join(sorted(map(_work, each["workloads"]))) for each in (one, other))),
    )
    for word, first, second in kinds:
        if first != second:
            raise InputError(f"--fail-above: the {word} is {first} in A and {second} in B; compare like runs")
    costs = []
    for letter, each in zip("AB", (one, other), strict=True):
        best, needs_energy = each["best"], Objective(name).needs_energy
        if best is None or not best["time_s"] or (needs_energy and not best["energy_j"]):
            raise InputError(f"--fail-above: run {letter} has no answer with its {name}")
        joules, exponent = best["energy_j"] if needs_energy else 1.0, TIME_EXPONENT[name]
        unsure = [exponent * (best.get("time_s_uncertainty") or 0.0) / best["time_s"], ASSUMED_REPEATABILITY]
        unsure += [(best.get("energy_j_uncertainty") or 0.0) / (joules or 1.0)] if needs_energy else []
        cost = (joules or 1.0) * best["time_s"] ** exponent
        costs.append((cost, math.hypot(*unsure) * cost))
    change, half = change_of(*costs) or (0.0, None)
    verdict = decided(change, half or 0.0, margin)
    return (
        verdict,
        f"{name} of B against A: {percent_with_interval(change, half)} (margin {100 * margin:g} %)",
    )


def _work(workload: WorkloadDocument) -> str:
    return f"{workload['name']} at a batch of {workload['batch']}"


def _answers(one: RunDocument, other: RunDocument) -> Iterator[str]:
    """For each workload what its configuration is in both, or what differs."""
    a, b = (best["configurations"] if (best := document["best"]) else {} for document in (one, other))
    for name in dict.fromkeys((*a, *b)):
        if name not in a or name not in b:
            yield f"{name}: only in {'A' if name in a else 'B'}"
            continue
        of_a, of_b = differences(a[name], b[name]), differences(b[name], a[name])
        yield f"{name}: A {of_a}; B {of_b}; else the same" if of_a else f"{name}: the same configuration"
    if not a and not b:
        yield "neither run has an answer"


def _conditions(one: RunDocument, other: RunDocument) -> Iterator[str]:
    """Yield differences in device, sources, batches and options; values of only one document are left out."""
    yield from _differing("objective", one["objective"], other["objective"])
    yield from _differing("policy", one.get("policy"), other.get("policy"))
    yield from _differing("seed", one.get("seed"), other.get("seed"))
    yield from _differing("clocks", one.get("clocks"), other.get("clocks"))
    yield from _parts("device", one["device"], other["device"])
    batches = [{w["name"]: w.get("batch") for w in document["workloads"]} for document in (one, other)]
    yield from _parts("batch of", batches[0], batches[1])
    sources, theirs = one.get("sources") or {}, other.get("sources") or {}
    for name in sources:
        if name in theirs and sources[name] != theirs[name]:
            yield f"source of {name}: its files or options have changed"
    if "settings" in one and "settings" in other:
        yield from _parts("option", one["settings"], other["settings"])


def _parts(words: str, a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[str]:
    for name in dict.fromkeys((*a, *b)):
        if (name in a and name in b) or words == "option":
            yield from _differing(name, a.get(name), b.get(name), f"{words} ")


def _differing(field: str, a: object, b: object, of: str = "") -> Iterator[str]:
    """Yield both values of a field, as far as they differ when written."""
    (words, first), (others, second) = field_words(field, a), field_words(field, b)
    if first != second:
        yield f"{of}{min(words, others, key=len)}: A {first}; B {second}"


# --- Verdicts of ``tuner gate`` as lines, as JSON, as JUnit XML, and as Markdown for pull requests.

_UNITS = {"time": "s", "energy": "J"}


def overall(verdicts: Sequence[Gated]) -> str:
    """The worst verdict; what was not measured is no worse."""
    found = {one.verdict for one in verdicts}
    return next((verdict for verdict in (WORSE, UNDECIDED) if verdict in found), NO_WORSE)


def line_of(one: Gated) -> str:
    """A verdict in one line, its notes behind it."""
    return f"{one.workload}: {one.verdict}: {_told(one)}"


def _told(one: Gated) -> str:
    """All that is said of a verdict."""
    costs = [
        f"{cost.objective} {_relative_change(cost)}, {_both(cost, ' to ')}"
        for cost in one.costs
        if cost.change is not None
    ]
    turns = [f"{one.turns} turns in {lasting(one.device_s)}"] if one.turns else []
    return "; ".join([one.why, *costs, *turns, *one.notes])


def _relative_change(cost: CostChange) -> str:
    return f"{percent_with_interval(cost.change or 0.0, cost.interval)} (margin {100 * cost.margin:g} %)"


def _both(cost: CostChange, between: str) -> str:
    return between.join(si(value, _UNITS[cost.objective]) for value in (cost.old, cost.new))


def summary(verdicts: Sequence[Gated], label: str) -> str:
    """The last line: how many of each verdict there are."""
    counts = {verdict: sum(one.verdict == verdict for one in verdicts) for verdict in _ORDER}
    parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    return f"gate: {overall(verdicts)} ({', '.join(parts)}){label and f', {label}'}"


_ORDER = (WORSE, UNDECIDED, NO_WORSE, UNCHANGED, NEW)


def gate_document(verdicts: Sequence[Gated], device: Device) -> dict[str, Any]:
    """The verdicts as a JSON object."""
    return {
        "verdict": overall(verdicts),
        "device": device,
        "modelled": device.get("modelled", False),
        "workloads": [asdict(one) for one in verdicts],
    }


def junit(verdicts: Sequence[Gated]) -> str:
    """The verdicts as JUnit XML: worse is a failure, undecided an error, and new is skipped."""
    kinds = {WORSE: "failure", UNDECIDED: "error", NEW: "skipped"}
    counts = {
        word: str(sum(kinds.get(one.verdict) == kind for one in verdicts))
        for kind, word in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped"))
    }
    suite = ET.Element("testsuite", {"name": "tuner gate", "tests": str(len(verdicts)), **counts})
    for one in verdicts:
        case = ET.SubElement(
            suite,
            "testcase",
            classname="tuner.gate",
            name=plain(one.workload),
            time=f"{one.device_s:.3f}",
        )
        if one.verdict in kinds:
            ET.SubElement(case, kinds[one.verdict], message=plain(f"{one.verdict}: {_told(one)}"))
        ET.SubElement(case, "system-out").text = plain(line_of(one))
    ET.indent(suite)
    text: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text.decode() + "\n"


def markdown(verdicts: Sequence[Gated], device: str) -> str:
    """The verdicts as a table for a pull request, what is worse first."""
    names = list(dict.fromkeys(cost.objective for one in verdicts for cost in one.costs))
    lines = [
        f"### tuner gate: {overall(verdicts)}",
        "",
        f"On {device}, old and new in turn; intervals cover {100 - 100 * SURE:g} % at all looks together.",
        "",
        f"| workload | verdict | {''.join(f'{name} | change | ' for name in names)}why |",
        f"| --- | --- | {'--- | --- | ' * len(names)}--- |",
    ]
    for one in sorted(verdicts, key=lambda one: _ORDER.index(one.verdict)):
        cells = [
            f"`{one.workload}`",
            f"**{one.verdict}**" if one.verdict in (WORSE, UNDECIDED) else one.verdict,
        ]
        costs = {cost.objective: cost for cost in one.costs}
        for name in names:
            cells += _cost_cells(costs.get(name))
        cells.append("; ".join([one.why, *one.notes]))
        lines.append(f"| {' | '.join(plain(cell).replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _cost_cells(cost: CostChange | None) -> list[str]:
    return ["", ""] if cost is None or cost.change is None else [_both(cost, " → "), _relative_change(cost)]
