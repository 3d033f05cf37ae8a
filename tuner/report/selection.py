"""Which trials of a run are shown: sorted, filtered by an expression, and written as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.expressions.expression import Expression
from tuner.model.errors import ExpressionError, InputError, suggestion
from tuner.model.run_document import RunDocument
from tuner.model.trial import Status
from tuner.report.ranked_trials import RankedTrial

_STATUSES = tuple(one.value for one in Status if one is not Status.PRUNED)  # those that are stored
_NUMBERS = (
    *("number", "rank", "time_s", "energy_j", "energy_j_uncertainty", "power_w"),
    *("clock_mhz", "power_limit_w"),
)
SHORT_NAMES = {
    "trial": "number",
    "time": "time_s",
    "energy": "energy_j",
    "power": "power_w",
    "clock": "clock_mhz",
    "power_limit": "power_limit_w",
}
"""Names that conditions and orders may use instead; a tunable of this name goes first in a condition."""


def values_of(document: RunDocument, one: RankedTrial) -> dict[str, Any]:
    """What is known of a trial by name: ``time_s``, ``energy_j``, its tunables, those of a set as ``P_2``.

    A tunable that only one workload of a set has goes by its own name too, and numbers by ``SHORT_NAMES``.
    What is not known is None.
    """
    trial = one.trial
    values = {name: trial.get(name) for name in _NUMBERS} | {"number": one.number, "rank": one.rank}
    values["status"] = trial["status"]
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
    known = [name for name in (rows[0][1] if rows else ()) if name not in SHORT_NAMES]
    if status is not None:
        rows = [(one, values) for one, values in rows if values["status"] == status]
    if where is not None:
        condition = _condition(where, known)
        rows = [(one, values) for one, values in rows if _holds(condition, values)]
    key = SHORT_NAMES.get(sort, sort)
    if known and key not in known:
        raise InputError(f"--sort {sort}: no trial has this; {_choices(sort, known)}")
    rows.sort(key=lambda row: _place(row[1][key]))
    return [one for one, _ in rows]


def _condition(text: str, known: Sequence[str]) -> Expression:
    try:
        condition = Expression(text)
    except ExpressionError as error:
        raise InputError(f"--where: {error}") from None
    for name in sorted(condition.names):
        if known and name not in (*known, *SHORT_NAMES):
            raise InputError(f"--where: no trial has {name!r}; {_choices(name, known)}")
    return condition


def _choices(name: str, known: Sequence[str]) -> str:
    return f"choose from {', '.join(known)}{suggestion(name, known)}"


def _holds(condition: Expression, values: Mapping[str, Any]) -> bool:
    if any(values[name] is None for name in condition.names):
        return False
    try:
        return bool(condition.evaluate(values))
    except ExpressionError as error:
        raise InputError(f"--where: {error}") from None


def _place(value: object) -> tuple[int, Any]:
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
        f"{tunable}_{place}" if several else tunable
        for place, names in enumerate(tunables_of(document), 1)
        for tunable in names
    ]
    head = [*_NUMBERS[:2], "status", *tunables, *_NUMBERS[2:]]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, "marks", "flags"])
    for one, values in zip(trials, rows, strict=True):
        shown = [int(value) if isinstance(value, bool) else value for value in map(values.get, head)]
        writer.writerow([*shown, "; ".join(one.marks), "; ".join(one.trial.get("flags", ()))])
    return text.getvalue()
