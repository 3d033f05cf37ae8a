"""The table of trials: numbers, what each trial is known for, and its configuration or what differs."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.model.objective import COVERAGE
from tuner.model.plan import TunableValue
from tuner.model.run_document import HasEnergy, RunDocument, TrialDocument
from tuner.report.layout import rows_in, table
from tuner.report.ranked_trials import RankedTrial, same
from tuner.report.words import si, with_uncertainty

_INDENT = "  "


def interval(uncertainty: float | None) -> float | None:
    """Half a 95 % interval from a standard uncertainty."""
    return None if uncertainty is None else COVERAGE * uncertainty


def energy_of(trial: HasEnergy | Mapping[str, Any]) -> str:
    """Joules of a round with their interval; a dash where there are none."""
    return with_uncertainty(trial.get("energy_j"), interval(trial.get("energy_j_uncertainty")), "J")


def trials_table(
    document: RunDocument, trials: Sequence[RankedTrial], width: int, *, numbered: bool = False
) -> list[str]:
    """Trials as lines: tunables that differ as columns where there is room, else beside or below the rows.

    Trials of several workloads say what differs from the answer.

    Args:
        document: they are of.
        trials: in the order they are shown in; one at least.
        width: characters of a line.
        numbered: with the number, status and flags of each trial.
    """
    heads, rows = _numbers(trials, numbered=numbered)
    right = {place for place, head in enumerate(heads) if head not in ("", "status")}
    if len(document["workloads"]) == 1:
        name = document["workloads"][0]["name"]
        configurations = [one.trial["configurations"][name] for one in trials]
        names = _differing(configurations)
        values = [names, *([_value(one, name) for name in names] for one in configurations)]
        whole = [[row[0], *cells, *row[1:]] for row, cells in zip([heads, *rows], values, strict=True)]
        shifted = {0} | {place + len(names) for place in right} | set(range(1, len(names) + 1))
        found = rows_in(whole, width, right=shifted, indent=_INDENT) if names else None
        if found is not None:
            return found
        notes = ["configuration", *(_words(c, names) for c in configurations)]
    else:
        notes = ["against the answer", *(_deltas(document, one.trial) for one in trials)]
    if not any(notes[1:]):
        notes = [""] * len(notes)
    return table([heads, *rows], notes, width, right=right, indent=_INDENT)


def _numbers(trials: Sequence[RankedTrial], *, numbered: bool) -> tuple[list[str], list[list[str]]]:
    """Heads and cells; columns that would be empty are left out."""
    columns: dict[str, list[str]] = {"rank": ["–" if t.rank is None else f"{t.rank:,}" for t in trials]}
    if numbered:
        columns["trial"] = [f"{one.number:,}" for one in trials]
        columns["status"] = [one.trial["status"] for one in trials]
    columns["time"] = [si(one.trial["time_s"], "s") for one in trials]
    if any(one.trial.get("energy_j") is not None for one in trials):
        columns["energy"] = [energy_of(one.trial) for one in trials]
        columns["power"] = [si(one.trial.get("power_w"), "W") for one in trials]
    if any(one.trial["clock_mhz"] is not None for one in trials):
        columns["clock"] = [_setting(one.trial["clock_mhz"], "MHz") for one in trials]
    if any(one.trial.get("power_limit_w") is not None for one in trials):
        columns["power limit"] = [_setting(one.trial.get("power_limit_w"), "W") for one in trials]
    marks = [", ".join((*one.marks, *(_flags(one.trial) if numbered else ()))) for one in trials]
    if any(marks):
        columns[""] = marks
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _flags(trial: TrialDocument) -> list[str]:
    """That it was repeated, and the kinds of its flags; details are in the document."""
    repeated = [f"{trial['bursts']} repeats"] if trial.get("confirmed") else []
    return repeated + [flag.partition(":")[0] for flag in trial.get("flags", ())]


def _setting(value: float | None, unit: str) -> str:
    return "as found" if value is None else f"{value:g} {unit}"


def _differing(configurations: Sequence[Mapping[str, TunableValue]]) -> list[str]:
    """The tunables that do not have one value in all, in the order of declaration."""
    names = dict.fromkeys(name for one in configurations for name in one)
    return [name for name in names if len({_value(one, name) for one in configurations}) > 1]


def _value(configuration: Mapping[str, TunableValue], name: str) -> str:
    """A value as kernels get it; a dash for a tunable that the configuration does not have."""
    if name not in configuration:
        return "–"
    value = configuration[name]
    return str(int(value) if isinstance(value, bool) else value)


def _words(configuration: Mapping[str, TunableValue], names: Sequence[str]) -> str:
    return " ".join(f"{name}={_value(configuration, name)}" for name in names if name in configuration)


def differences(configuration: Mapping[str, TunableValue], reference: Mapping[str, TunableValue]) -> str:
    """The tunables of a configuration that are not those of another: ``L=64 r=8``; empty where none are."""
    names = dict.fromkeys((*configuration, *reference))
    return " ".join(
        f"{name}={_value(configuration, name)}"
        for name in names
        if _value(configuration, name) != _value(reference, name)
    )


def _deltas(document: RunDocument, trial: TrialDocument) -> str:
    """What differs from the answer, by workload; whole configurations where there is no answer."""
    best = document["best"]
    if best is None:
        parts = {name: _words(one, list(one)) for name, one in trial["configurations"].items()}
    elif same(best, trial):
        return ""
    else:
        parts = {
            name: differences(configuration, best["configurations"].get(name, {}))
            for name, configuration in trial["configurations"].items()
        }
    return "; ".join(f"{name}: {words}" for name, words in parts.items() if words) or "only the clock"
