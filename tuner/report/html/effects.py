"""What each value of a tunable does, as far as the trials of a run can tell.

A search changes many tunables at a time, and those that it likes most often: means over trials confound them.
Told is therefore only what trials say that differ in one tunable alone; a complete space has all such groups.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.model.run_document import RunDocument
from tuner.report.ranked_trials import RankedTrial
from tuner.report.selection import tunables_of

Key = tuple[Any, ...]
_MOST_ROWS = 120  # of values with an effect: as many as one chart has room for


@dataclass(frozen=True)
class ValueEffect:
    """The cost of one value against the best value of the same tunable, all else equal.

    Attributes:
        workload: it is of.
        tunable: its name.
        value: of the tunable.
        median: of the relative excess over the groups; 0 where it is always the best.
        least: the smallest.
        most: the largest.
        groups: of trials that differ in this tunable alone and contain the value.
    """

    workload: str
    tunable: str
    value: Any
    median: float
    least: float
    most: float
    groups: int


@dataclass(frozen=True)
class Effects:
    """What is known of all tunables.

    Attributes:
        known: effects, tunable by tunable.
        tried: of tunables without such groups a sentence each: values with how often they were tried.
        complete: every configuration that may be chosen was measured.
    """

    known: list[ValueEffect]
    tried: list[str]
    complete: bool


def effects_of(document: RunDocument, ranked: Sequence[RankedTrial]) -> Effects:
    """Effects of the tunables of a run.

    Args:
        document: of the run.
        ranked: its trials; those without a cost tell nothing.
    """
    trials = [one for one in ranked if one.cost]
    names = tunables_of(document)
    columns = [
        (workload["name"], tunable)
        for workload, tunables in zip(document["workloads"], names, strict=True)
        for tunable in tunables
    ]
    keys = [_key(one, columns) for one in trials]
    costs = [one.cost or 0.0 for one in trials]
    known: list[ValueEffect] = []
    tried: list[str] = []
    for place, (workload, tunable) in enumerate(columns):
        values = [key[place] for key in keys]
        if len(set(map(_typed, values))) <= 1:
            continue
        found = _of_one(workload, tunable, place, keys, costs)
        if found and len(known) + len(found) <= _MOST_ROWS:
            known += found
        else:
            tried.append(_tried(workload, tunable, values, alone=len(names) == 1))
    space = document["space"]
    pruned = space.get("pruned")
    complete = pruned is not None and space["measured"] >= pruned
    return Effects(known, tried, complete)


def _key(one: RankedTrial, columns: Sequence[tuple[str, str]]) -> Key:
    trial = one.trial
    values = tuple(trial["configurations"][workload].get(tunable) for workload, tunable in columns)
    return (*values, trial["clock_mhz"], trial.get("power_limit_w"))


def _of_one(
    workload: str, tunable: str, place: int, keys: Sequence[Key], costs: Sequence[float]
) -> list[ValueEffect]:
    """Effects of one tunable's values, from groups of trials that are alike but for it."""
    groups: dict[Key, dict[tuple[type, Any], float]] = {}
    for key, cost in zip(keys, costs, strict=True):
        rest = (*key[:place], *key[place + 1 :])
        groups.setdefault(rest, {})[_typed(key[place])] = cost
    excess: dict[tuple[type, Any], list[float]] = {}
    for group in groups.values():
        if len(group) > 1:
            best = min(group.values())
            for value, cost in group.items():
                excess.setdefault(value, []).append(cost / best - 1.0)
    return [
        ValueEffect(workload, tunable, value[1], statistics.median(found), min(found), max(found), len(found))
        for value, found in sorted(excess.items(), key=lambda item: _order(item[0][1]))
    ]


def _tried(workload: str, tunable: str, values: Sequence[Any], *, alone: bool) -> str:
    counts = Counter(map(_typed, values))
    shown = ", ".join(
        f"{shown_value(value)} ({count:,})"
        for (_, value), count in sorted(counts.items(), key=lambda item: _order(item[0][1]))
    )
    return f"{tunable if alone else f'{workload} {tunable}'}: {shown}"


def _typed(value: Any) -> tuple[type, Any]:  # noqa: ANN401 - of a tunable; 1 is not True
    return type(value), value


def shown_value(value: Any) -> str:  # noqa: ANN401 - of a tunable
    """A value of a tunable as pages have it; a dash where it has none."""
    return "–" if value is None else str(int(value) if isinstance(value, bool) else value)


def _order(value: Any) -> tuple[int, Any]:  # noqa: ANN401 - of a tunable
    return (1, value) if isinstance(value, str) else (0, -1 if value is None else value)
