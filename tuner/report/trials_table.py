"""The table of trials: ranked, selected, and with their configurations or what differs."""

import csv
import io
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.model.errors import ExpressionError, InputError, suggestion
from tuner.model.expressions.callables import Expression
from tuner.model.objective import NAMES, TIMED, UNITS, Objective, timing_of
from tuner.model.options import SINGLE
from tuner.model.plan import TunableValue
from tuner.model.run_document import (
    PARTS,
    Changes,
    Part,
    ProgramDocument,
    RunDocument,
    TrialDocument,
    WorkloadDocument,
    program_of,
)
from tuner.model.trial import Status
from tuner.recordings.exchange.exported_run import build_of
from tuner.report.layout import GAP, ReportLine, rows_in, table_lines
from tuner.report.rows import BRIEF_TIME, CLOCK, ENERGY, POWER, POWER_LIMIT, Column, Table, filled

if TYPE_CHECKING:
    from tuner.client.answer_values import TrialData

# --- What stands behind ``use:``: options of the compiler, else the command that writes a header.


def use_of(
    best: TrialDocument,
    workload: WorkloadDocument,
    run: int | None,
    named: str = "",
    program: ProgramDocument | None = None,
) -> tuple[str, list[str]]:
    """Return the options that build the answer of a workload; of a program the command that runs it.

    Args:
        best: the answer.
        workload: one of its workloads.
        run: number of the run; None of one that is not stored.
        named: what a command must say to read the run's database.
        program: that was tuned; None of kernels.

    Returns:
        Options or a command for a shell, empty where the compiler is told nothing; and lines about the source
        and the launches, for people.
    """
    if program is not None:
        return f"tuner program exec --use {run}{named} -- {shlex.join(program['command'])}", []
    build = build_of(best["configurations"][workload["name"]], workload.get("expanded"))
    lines = []
    try:
        use = build.pasted()
    except InputError as error:
        use = "" if run is None else header_command(run, named)
        lines = [f"no options: {error}"] if run is None else []
    if build.macros and build.source is not None:
        lines.append(f"source: what tuner kernels expand {shlex.quote(build.source)} writes")
    if launches := build.launches():
        lines.append(f"launch: {'; '.join(launches)}")
    return use, lines


def header_command(run: int, named: str = "") -> str:
    """The command that writes the answer of a stored run as a header, which takes any value and workloads."""
    return f"tuner export {run} --format header{named} --output tuned.h"


# --- The trials of a run's document, best first, and what each of them is known for.

KNOWN_AS: dict[Part, str] = {
    "best": "answer",
    "fastest": "fastest",
    "least_energy": "least energy",
    "default": "default",
    "solo_bests": "solo bests",
}
"""Words for the trials that a document names."""

GOALS = {
    "time": "least time",
    "energy": "least energy",
    "edp": "least energy × time",
    "ed2p": "least energy × time²",
    "pareto": "Pareto front of time and energy",
}


@dataclass(frozen=True)
class RankedTrial:
    """A trial with its place among the others.

    Attributes:
        number: in the order of measuring, from 1; 0 where the document has no list of trials.
        rank: by cost, from 1; None for a trial without a cost. The answer is 1.
        cost: what the objective counts, in its unit; None where it has none.
        marks: what it is: ``answer``, ``front``, ``fastest``, ``least energy``, ``default``, ``solo bests``,
            ``too slow``, ``tie``.
        trial: as the document has it.
    """

    number: int
    rank: int | None
    cost: float | None
    marks: tuple[str, ...]
    trial: TrialDocument


def objective_name(document: RunDocument) -> str:
    """The name of a document's objective, without its slowdown limit."""
    name = str(document["objective"]).split(" ", 1)[0]
    return name if name in NAMES else "time"


def goal(document: RunDocument) -> str:
    """Return the goal of the run, in words."""
    limit = document.get("max_slowdown")
    bound = "the fastest" if program_of(document) is None else "the default"
    within = "" if limit is None else f" within {100 * limit:g} % of {bound}"
    singles = f" of {TIMED[SINGLE]}" if timing_of(str(document["objective"])) == SINGLE else ""
    return GOALS[objective_name(document)] + singles + within


def unit_of_cost(document: RunDocument) -> str:
    """The unit of what the objective counts."""
    return UNITS[objective_name(document)]


def same(trial: TrialDocument | None, other: TrialDocument | None) -> bool:
    """True for the same configurations at the same clock and power limit."""
    if trial is None or other is None:
        return False
    return all(trial.get(key) == other.get(key) for key in ("configurations", "clock_mhz", "power_limit_w"))


def ranked_trials(document: RunDocument) -> list[RankedTrial]:
    """All trials of a document, the answer first, then by cost; those without a cost last."""
    listed = document.get("trials")
    numbered = [(0, trial) for trial in _named(document)]
    if listed:  # trials that `tuner show` wrote know their numbers
        numbered = [(trial.get("number", position), trial) for position, trial in enumerate(listed, 1)]
    best, limit_s, objective = document["best"], longest_s(document), objective_name(document)
    is_front = Objective(objective).is_front
    costs = {
        id(trial): None if (trial["time_s"] or 0.0) > limit_s else cost_of(trial, objective)
        for _, trial in numbered
    }

    def order(pair: tuple[int, TrialDocument]) -> tuple[bool, float]:
        cost = costs[id(pair[1])]
        return (not same(best, pair[1]), math.inf if cost is None else cost)

    ranked, tied, tie = list[RankedTrial](), document.get("tied") or (), 0.0
    for rank, (number, trial) in enumerate(sorted(numbered, key=order), 1):
        cost = costs[id(trial)]
        if rank == 1 and best is not None and not is_front:
            tie = _tie_cost(document, cost)
        marks = [*_marks(document, trial, limit_s)]
        if cost is not None and "answer" not in marks and (number in tied or cost <= tie):
            marks.append("tie")
        ranked.append(RankedTrial(number, None if cost is None else rank, cost, tuple(marks), trial))
    return ranked


def _tie_cost(document: RunDocument, lowest: float | None) -> float:
    """The cost up to which a trial cannot be told from the answer, by how well trials repeat."""
    again, objective = document.get("repeatability") or {}, Objective(objective_name(document))
    time, energy = again.get("time_interval") or 0.0, again.get("energy_interval") or 0.0
    half = math.hypot(objective.time_exponent * time, energy if objective.needs_energy else 0.0)
    return 0.0 if lowest is None else lowest * (1 + half)


def top(trials: Sequence[RankedTrial], count: int) -> list[RankedTrial]:
    """The first so many, and all others that are known for something."""
    head = [trial for trial in trials[:count] if trial.cost is not None]
    return head + [trial for trial in trials if trial not in head and set(trial.marks) - {"too slow"}]


def _named(document: RunDocument) -> Iterator[TrialDocument]:
    """The trials that a stored answer names, each once."""
    seen: list[TrialDocument] = []
    for part in PARTS:
        trial = document.get(part)
        if trial is not None and not any(same(trial, other) for other in seen):
            seen.append(trial)
            yield trial


def cost_change(document: RunDocument, changes: Changes) -> tuple[float, float]:
    """Change of the cost of a trial against another one, and half of its 95 % interval; both relative.

    Args:
        document: whose objective counts.
        changes: a comparison of the document, such as ``against_default``.
    """
    name = objective_name(document)
    half = changes.get("slowdown_interval") or 0.0
    if name == "time" or "energy_saving" not in changes:
        return changes["slowdown"], half
    power = Objective(name).time_exponent
    ratio = math.pow(1 + changes["slowdown"], power) * (1 - changes["energy_saving"])
    return ratio - 1, math.hypot(power * half, changes["energy_saving_interval"])


def longest_s(document: RunDocument) -> float:
    """The longest time that the answer may take."""
    slowdown, fastest = document.get("max_slowdown"), document.get("fastest")
    if slowdown is None or fastest is None or not fastest["time_s"]:
        return math.inf
    return float(fastest["time_s"] * (1 + slowdown))


def cost_of(trial: "TrialDocument | TrialData", objective: str) -> float | None:
    """The cost of a trial; None where it failed, or where joules are needed and not known."""
    time_s, energy_j = trial.get("time_s"), trial.get("energy_j")
    if trial.get("status") != "ok" or time_s is None:
        return None
    if objective == "time":
        return time_s
    return None if energy_j is None else energy_j * math.pow(time_s, Objective(objective).time_exponent)


def _marks(document: RunDocument, trial: TrialDocument, limit_s: float) -> Iterator[str]:
    for part in PARTS:
        if same(document.get(part), trial) and not (
            part == "least_energy" and objective_name(document) == "energy"
        ):
            yield KNOWN_AS[part]
        if part == "best" and any(same(point["trial"], trial) for point in document.get("front") or ()):
            yield "front"
    if trial["status"] == "ok" and trial["time_s"] and trial["time_s"] > limit_s:
        yield "too slow"


# --- Which trials of a run are shown: sorted, filtered by an expression, and written as CSV.

_STATUSES = tuple(one.value for one in Status if one is not Status.PRUNED)  # those that are stored
Values = dict[str, TunableValue | None]
SHORT_NAMES = {
    "trial": "number",
    "time": "time_s",
    "energy": "energy_j",
    "power": "power_w",
    "clock": "clock_mhz",
    "power_limit": "power_limit_w",
}
"""Names that conditions and orders may use instead; a tunable of this name goes first in a condition."""


def values_of(document: RunDocument, one: RankedTrial) -> Values:
    """Return values of a trial by name: ``time_s``, ``energy_j``, its tunables, those of a set as ``P_2``.

    A tunable that only one workload of a set has goes by its own name too, and numbers by ``SHORT_NAMES``.
    What is not known is None.
    """
    trial = one.trial
    values: Values = {
        "number": one.number,
        "rank": one.rank,
        "time_s": trial["time_s"],
        "energy_j": trial.get("energy_j"),
        "energy_j_uncertainty": trial.get("energy_j_uncertainty"),
        "power_w": trial.get("power_w"),
        "clock_mhz": trial["clock_mhz"],
        "power_limit_w": trial.get("power_limit_w"),
        "status": trial["status"],
    }
    names = tunables_of(document)
    for place, workload in enumerate(document["workloads"], 1):
        configuration = trial["configurations"][workload["name"]]
        for tunable in names[place - 1]:
            value = configuration.get(tunable)
            if len(names) > 1:
                values[f"{tunable}_{place}"] = value
            if sum(tunable in other for other in names) == 1:
                values.setdefault(tunable, value)
    for short, name in SHORT_NAMES.items():
        values.setdefault(short, values[name])
    return values


def tunables_of(document: RunDocument) -> list[list[str]]:
    """The names of the tunables of each workload, as its trials have them."""
    trials = document.get("trials") or list(filter(None, (document["best"], document["default"])))
    return [
        list(dict.fromkeys(name for trial in trials for name in trial["configurations"][workload["name"]]))
        for workload in document["workloads"]
    ]


def selected(
    document: RunDocument,
    trials: Sequence[RankedTrial],
    *,
    sort: str = "rank",
    where: str | None = None,
    status: str | None = None,
) -> list[RankedTrial]:
    """Trials that fulfil a condition, in an order.

    Args:
        document: they are of.
        trials: to choose from.
        sort: a name of ``values_of``; what has no value comes last.
        where: an expression over the names of ``values_of``; a trial without a value that it needs is out.
        status: that they ended with, such as ``ok``; None for any.

    Raises:
        InputError: the condition is none, or names what no trial has; no trial ends with this status.
    """
    if status not in (None, *_STATUSES):
        near = suggestion(str(status), _STATUSES)
        raise InputError(f"--status {status}: no trial ends so; choose from {', '.join(_STATUSES)}{near}")
    rows = [(one, values_of(document, one)) for one in trials]
    names = [name for name in (rows[0][1] if rows else ()) if name not in SHORT_NAMES]
    if status is not None:
        rows = [(one, values) for one, values in rows if values["status"] == status]
    if where is not None:
        condition = _condition(where, names)
        rows = [(one, values) for one, values in rows if _holds(condition, values)]
    key = SHORT_NAMES.get(sort, sort)
    if names and key not in names:
        raise InputError(f"--sort {sort}: no trial has this; {_choices(sort, names)}")
    rows.sort(key=lambda row: _order(row[1][key]))
    return [one for one, _ in rows]


def _condition(text: str, names: Sequence[str]) -> Expression:
    try:
        condition = Expression(text)
    except ExpressionError as error:
        raise InputError(f"--where: {error}") from None
    for name in sorted(condition.names):
        if names and name not in (*names, *SHORT_NAMES):
            raise InputError(f"--where: no trial has {name!r}; {_choices(name, names)}")
    return condition


def _choices(name: str, names: Sequence[str]) -> str:
    return f"choose from {', '.join(names)}{suggestion(name, names)}"


def _holds(condition: Expression, values: Values) -> bool:
    needed = {name: value for name in condition.names if (value := values[name]) is not None}
    try:
        return len(needed) == len(condition.names) and bool(condition.evaluate(needed))
    except ExpressionError as error:
        raise InputError(f"--where: {error}") from None


def _order(value: TunableValue | None) -> tuple[int, float | str]:
    """Numbers in their order, then texts, then what is not known."""
    if value is None:
        return (2, 0)
    return (1, value) if isinstance(value, str) else (0, value)


def csv_of(document: RunDocument, trials: Sequence[RankedTrial]) -> str:
    """Trials as CSV with a head: numbers in SI units, tunables, marks and flags."""
    text = io.StringIO()
    rows = [values_of(document, one) for one in trials]
    several = len(document["workloads"]) > 1
    tunables = [
        f"{tunable}_{number}" if several else tunable
        for number, names in enumerate(tunables_of(document), 1)
        for tunable in names
    ]
    numbers = ("time_s", "energy_j", "energy_j_uncertainty", "power_w", "clock_mhz", "power_limit_w")
    head = ["number", "rank", "status", *tunables, *numbers]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, "marks", "flags"])
    for one, values in zip(trials, rows, strict=True):
        cells = [int(value) if isinstance(value, bool) else value for value in map(values.get, head)]
        writer.writerow([*cells, "; ".join(one.marks), "; ".join(one.trial.get("flags", ()))])
    return text.getvalue()


# --- The table.

_INDENT = "  "


def trials_table(document: RunDocument, trials: Sequence[RankedTrial], width: int) -> list[ReportLine]:
    """Trials as lines: tunables that differ as columns, else what differs from the answer; without power.

    The first of these that fits; where none does, what differs stands below its row.

    Args:
        document: they are of.
        trials: in the order they are shown in; one at least.
        width: characters of a line.
    """
    numbers: list[Column[RankedTrial]] = [
        Column("rank", lambda one: one.rank, number=True),
        Column("trial", lambda one: one.number, number=True),
        BRIEF_TIME.of(_trial),
        *filled([ENERGY.of(_trial), POWER.of(_trial), CLOCK.of(_trial), POWER_LIMIT.of(_trial)], trials),
    ]
    marks = Column[RankedTrial]("", _marked)
    deltas = Column[RankedTrial]("against the answer", lambda one: _deltas(document, one.trial))
    both = Column[RankedTrial]("", lambda one: GAP.join(filter(None, (_marked(one), deltas.text(one)))))
    brief = [column for column in numbers if column.name != POWER.name]
    widths = [[*numbers, *filled([marks, deltas], trials)], [*numbers, both], [*brief, both]]
    if len(document["workloads"]) == 1:
        name = document["workloads"][0]["name"]
        names = _differing([one.trial["configurations"][name] for one in trials])
        tunables = [_tunable(name, tunable) for tunable in names]
        widths.insert(0, [*numbers[:2], *tunables, *numbers[2:], *filled([marks], trials)])
    for columns in widths:
        lines = rows_in(Table(columns, trials), width, indent=_INDENT, head="dim")
        if lines is not None:
            return lines
    noted = Table([*numbers, *filled([marks], trials)], trials, deltas)
    if rows_in(noted, width, indent=_INDENT) is None:
        noted = Table(numbers, trials, both)
    return table_lines(noted, width, indent=_INDENT, head="dim")


def _marked(one: RankedTrial) -> str:
    """Return the marks of a trial, the status of one that failed, and the kinds of its flags."""
    status = one.trial["status"]
    flags = [flag.partition(":")[0] for flag in one.trial.get("flags", ())]
    return ", ".join((*one.marks, *([] if status == "ok" else [status]), *flags))


def _trial(one: RankedTrial) -> TrialDocument:
    return one.trial


def _tunable(workload: str, name: str) -> Column[RankedTrial]:
    return Column(name, lambda one: shown_value(one.trial["configurations"][workload].get(name)), number=True)


def _differing(configurations: Sequence[Mapping[str, TunableValue]]) -> list[str]:
    """The tunables that do not have one value in all, in the order of declaration."""
    names = dict.fromkeys(name for one in configurations for name in one)
    return [name for name in names if len({shown_value(one.get(name)) for one in configurations}) > 1]


def shown_value(value: TunableValue | None) -> str:
    """A value of a tunable as kernels get it; a dash where a configuration has none."""
    return "–" if value is None else str(int(value) if isinstance(value, bool) else value)


def differences(configuration: Mapping[str, TunableValue], reference: Mapping[str, TunableValue]) -> str:
    """The tunables of a configuration that are not those of another: ``L=64 r=8``; empty where none are."""
    names = dict.fromkeys((*configuration, *reference))
    return " ".join(
        f"{name}={shown_value(configuration.get(name))}"
        for name in names
        if shown_value(configuration.get(name)) != shown_value(reference.get(name))
    )


def _deltas(document: RunDocument, trial: TrialDocument) -> str:
    """Return the differences from the answer, by workload; whole configurations if there is no answer."""
    best = document["best"]
    parts = {
        name: differences(configuration, {} if best is None else best["configurations"].get(name, {}))
        for name, configuration in trial["configurations"].items()
    }
    if len(parts) == 1:
        return "".join(parts.values())
    return "; ".join(f"{name}: {words}" for name, words in parts.items() if words)
