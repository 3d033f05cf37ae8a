"""Verdicts of ``tuner gate`` as lines, as JSON, as JUnit XML, and as Markdown for pull requests."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree as ET

from tuner.measurement.paired import NO_WORSE, SURE, UNDECIDED, WORSE
from tuner.model.run_document import Device
from tuner.model.units import lasting, percent_with_interval, si
from tuner.search.gate import NEW, UNCHANGED, CostChange, Gated
from tuner.system.untrusted.reading import plain

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
        f"{cost.objective} {_change(cost)}, {_both(cost, ' to ')}"
        for cost in one.costs
        if cost.change is not None
    ]
    turns = [f"{one.turns} turns in {lasting(one.device_s)}"] if one.turns else []
    return "; ".join([one.why, *costs, *turns, *one.notes])


def _change(cost: CostChange) -> str:
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
    return ["", ""] if cost is None or cost.change is None else [_both(cost, " → "), _change(cost)]
