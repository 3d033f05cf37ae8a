"""Two runs side by side: their answers, times and joules, and what differs in how they were made."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group

from tuner.report.layout import LEAST_WIDTH, ReportLine, lines_of, rendered, table, wrapped
from tuner.report.ranked_trials import goal
from tuner.report.trials_table import differences, energy_of
from tuner.report.words import label, moment, percent_with_interval, si

_COVERAGE = 1.96
_INDENT = "  "
_UNKNOWN = "–"


def diff_report(
    one: Mapping[str, Any], other: Mapping[str, Any], titles: tuple[str, str], width: int
) -> Group:
    """How the second run differs from the first, as rich prints it.

    Args:
        one: document of a run.
        other: document of another one.
        titles: what they are called.
        width: characters of a line, 40 at least.
    """
    width = max(width, LEAST_WIDTH)
    found = differences_of(one, other, titles)
    lines = [line for title in found.titles for line in lines_of(title, width, "bold")]
    lines.append(ReportLine(""))
    cells = found.cells
    lines += map(ReportLine, table(cells, [""] * len(cells), width, right={1, 2, 3}, indent=_INDENT))
    lines.append(ReportLine("answers"))
    lines += [ReportLine(line) for text in found.answers for line in _indented(text, width)]
    lines.append(ReportLine(found.heading))
    lines += [ReportLine(line) for text in found.conditions for line in _indented(text, width)]
    return rendered(lines)


@dataclass(frozen=True)
class RunDifferences:
    """How run B differs from run A.

    Attributes:
        titles: of both.
        cells: numbers of both below the heads; with changes where the workloads are the same.
        answers: a sentence for each workload.
        conditions: a sentence for each that differs.
    """

    titles: list[str]
    cells: list[list[str]]
    answers: list[str]
    conditions: list[str]

    @property
    def heading(self) -> str:
        """What stands above the conditions."""
        return "conditions that differ" if self.conditions else "the conditions are the same"


def differences_of(
    one: Mapping[str, Any], other: Mapping[str, Any], titles: tuple[str, str]
) -> RunDifferences:
    """How the second run differs from the first; arguments as of ``diff_report``."""
    rows = [["", "A", "B", "B against A"], *_numbers(one, other)]
    if not any(row[3] for row in rows[1:]):
        rows = [row[:3] for row in rows]
    named = zip("AB", titles, (one, other), strict=True)
    return RunDifferences(
        titles=[f"{letter}: {_title(title, document)}" for letter, title, document in named],
        cells=rows,
        answers=list(_answers(one, other)),
        conditions=list(_conditions(one, other)),
    )


def _indented(text: str, width: int) -> list[str]:
    return wrapped(text, width, _INDENT, _INDENT * 3)


def _title(title: str, document: Mapping[str, Any]) -> str:
    names = " + ".join(workload["name"] for workload in document["workloads"])
    parts = [title]
    if document.get("started_at"):
        parts.append(moment(document["started_at"]))
    kind = label(document)
    device = document["device"]["name"]
    mark = f" ({kind})" if kind and kind not in device else ""
    return " · ".join([*parts, names, f"{device}{mark}", goal(document)])


def _numbers(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[list[str]]:
    """Rows of numbers of the answers and of the runs, with changes where the workloads are the same."""
    a, b = one["best"] or {}, other["best"] or {}
    alike = {w["name"] for w in one["workloads"]} == {w["name"] for w in other["workloads"]}

    def change(key: str) -> str:
        return _change(a, b, key) if alike else ""  # of other work a change would say nothing

    yield ["time", si(a.get("time_s"), "s"), si(b.get("time_s"), "s"), change("time_s")]
    yield ["energy", energy_of(a), energy_of(b), change("energy_j")]
    yield ["power", si(a.get("power_w"), "W"), si(b.get("power_w"), "W"), change("power_w")]
    yield ["clock", _setting(a, "clock_mhz", "MHz"), _setting(b, "clock_mhz", "MHz"), ""]
    if any(one.get("power_limit_w") is not None for one in (a, b)):
        limits = [_setting(one, "power_limit_w", "W") for one in (a, b)]
        yield ["power limit", *limits, ""]
    yield ["trials", *(f"{document['space']['measured']:,}" for document in (one, other)), ""]
    walls = [si(document.get("wall_s"), "s", 3) for document in (one, other)]
    yield ["wall time", *walls, ""]
    yield ["status", one["status"], other["status"], ""]


def _change(a: Mapping[str, Any], b: Mapping[str, Any], key: str) -> str:
    """A change in words."""
    found = change_of(a, b, key)
    return _UNKNOWN if found is None else percent_with_interval(*found)


def change_of(a: Mapping[str, Any], b: Mapping[str, Any], key: str) -> tuple[float, float | None] | None:
    """A change from one trial to another, with half of the 95 % interval that its two values have.

    Returns:
        None where a value is not known; the interval is None where an uncertainty is not.
    """
    before, after = a.get(key), b.get(key)
    if not before or after is None:
        return None
    known = [part.get(f"{key}_uncertainty") for part in (a, b)]
    half = None
    if known[0] is not None and known[1] is not None and after:
        relative = math.hypot(known[0] / before, known[1] / after)
        half = _COVERAGE * relative * after / before
    return after / before - 1, half or None


def _setting(trial: Mapping[str, Any], key: str, unit: str) -> str:
    if not trial:
        return _UNKNOWN
    return "as found" if trial.get(key) is None else f"{trial[key]:g} {unit}"


def _answers(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """For each workload what its configuration is in both, or what differs."""
    found = [(document["best"] or {}).get("configurations", {}) for document in (one, other)]
    for name in dict.fromkeys((*found[0], *found[1])):
        if name not in found[0] or name not in found[1]:
            yield f"{name}: only in {'A' if name in found[0] else 'B'}"
            continue
        mine, theirs = (differences(found[i][name], found[1 - i][name]) for i in (0, 1))
        yield f"{name}: A {mine}; B {theirs}; else the same" if mine else f"{name}: the same configuration"
    if not any(found):
        yield "neither run has an answer"


def _conditions(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """What differs in device, sources, batches and options; what only one document knows is not compared."""
    for key, words in (
        ("objective", "objective"),
        ("policy", "policy"),
        ("seed", "seed"),
        ("clocks", "clocks"),
    ):
        yield from _differing(words, one.get(key), other.get(key))
    yield from _parts("device", one["device"], other["device"])
    batches = [{w["name"]: w.get("batch") for w in document["workloads"]} for document in (one, other)]
    yield from _parts("batch of", *batches)
    for name in _common(one, other, "sources"):
        if one["sources"].get(name) != other["sources"].get(name):
            yield f"source of {name}: its files or options have changed"
    if "settings" in one and "settings" in other:
        yield from _parts("option", one["settings"], other["settings"])


def _known(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return document.get(key) or {}


def _common(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> Sequence[str]:
    return [name for name in _known(one, key) if name in _known(other, key)]


def _parts(words: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*a, *b)):
        if (name in a and name in b) or words == "option":
            yield from _differing(f"{words} {name}", a.get(name), b.get(name))


def _differing(words: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{words}: A {_shown(a)}; B {_shown(b)}"


def _shown(value: object) -> str:
    return _UNKNOWN if value in (None, "", {}) else str(value)
