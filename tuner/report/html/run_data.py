"""What the scripts draw of a run, as plain values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tuner.model.run_document import PARTS, RunDocument, TrialDocument, WorkloadPart
from tuner.report.html.effects import Effects
from tuner.report.html.trial_columns import trial_columns
from tuner.report.ranked_trials import longest_s, objective_name, same, unit_of_cost
from tuner.report.selection import SHORT_NAMES
from tuner.report.words import label

Record = dict[str, Any]

_EXPONENT = {"time": 1, "energy": 0, "edp": 1, "ed2p": 2, "pareto": 1}
_WORDS = {
    "best": "answer",
    "fastest": "fastest",
    "least_energy": "least energy",
    "default": "default",
    "solo_bests": "solo bests",
}


def run_data(document: RunDocument, effects: Effects) -> Record:
    """The data of one run; keys are in camel case, as the scripts have them."""
    trials = document.get("trials") or []
    limit_s, name = longest_s(document), objective_name(document)
    return {
        "label": label(document),
        "objective": name,
        "exponent": _EXPONENT[name],
        "needsEnergy": name != "time",
        "unit": unit_of_cost(document),
        "limit": limit_s if limit_s < float("inf") else None,
        "trials": trial_columns(document, trials) if trials else None,
        "named": _named(document, trials),
        "contenders": contenders_of(document, trials),
        "shortNames": SHORT_NAMES,
        "tied": tied_of(document, trials),
        "searched": _searched(trials),
        "repeats": _repeats(document, name),
        "effects": [asdict(one) for one in effects.known],
        "curves": {
            "clock": {"key": "clock_mhz", "unit": "MHz", "points": document.get("clock_curve") or []},
            "limit": {"key": "power_limit_w", "unit": "W", "points": document.get("power_limit_curve") or []},
        },
        "coRun": _co_run(document),
        "power": _power(document, trials),
    }


def _named(document: RunDocument, trials: Sequence[TrialDocument]) -> dict[str, int]:
    """What trials are known for, with their places."""
    found = {}
    for part in PARTS:
        trial = document.get(part)
        place = next((i for i, one in enumerate(trials) if same(one, trial)), None)
        if place is not None:
            found[_WORDS[part]] = place
    return found


def _places(numbers: Any, trials: Sequence[TrialDocument]) -> list[int]:  # noqa: ANN401 - of a document
    wanted = set(numbers or ())
    return [i for i, trial in enumerate(trials) if trial.get("number", i + 1) in wanted]


def tied_of(document: RunDocument, trials: Sequence[TrialDocument]) -> list[int]:
    """Places of the trials whose cost cannot be told from the lowest."""
    return _places(document.get("tied"), trials)


def contenders_of(document: RunDocument, trials: Sequence[TrialDocument]) -> list[int]:
    """Places of the trials that were measured again; documents of earlier versions tell by their windows."""
    if "contenders" in document:
        return _places(document["contenders"], trials)
    return [i for i, trial in enumerate(trials) if (trial.get("bursts") or 1) > 1]


def _searched(trials: Sequence[TrialDocument]) -> dict[str, Record]:
    """What the search saw of the trials that were measured again."""
    return {
        str(i): {"time": searched.get("time_s"), "energy": searched.get("energy_j")}
        for i, trial in enumerate(trials)
        if trial.get("confirmed") and (searched := trial.get("searched"))
    }


def _repeats(document: RunDocument, objective: str) -> Record | None:
    """How well trials repeat in the cost, as the run has shown, or as is assumed of joules."""
    again, scatter = document.get("repeatability"), document.get("window_scatter")
    if again is not None:
        known = again.get("time_interval") if objective == "time" else again.get("energy_interval")
        if known:
            return {"interval": known, "assumed": False}
    if objective != "time" and scatter is not None and scatter["energy_interval"]:
        return {"interval": scatter["energy_interval"], "assumed": scatter["assumed"]}
    return None


def _co_run(document: RunDocument) -> Record | None:
    """Own times and shares of joules of the workloads, in the answer, the default and each alone."""
    workloads = document["workloads"]
    if len(workloads) == 1 or document["best"] is None:
        return None
    alone = document.get("one_after_another")

    def part(found: WorkloadPart | None) -> Record | None:
        return found and {"time": found["time_s"], "share": found["energy_share_j"]}

    rows = [
        {
            "name": workload["name"],
            "answer": part(workload["best"]),
            "default": part(workload["default"]),
            "alone": None if alone is None else alone["workloads"].get(workload["name"]),
        }
        for workload in workloads
    ]
    together, in_turn = (None, None) if alone is None else (alone["together"], alone["in_turn"])
    return {"rows": rows, "together": together, "inTurn": in_turn}


def _power(document: RunDocument, trials: Sequence[TrialDocument]) -> list[Record]:
    named = _named(document, trials)
    found = []
    for place, trial in enumerate(trials):
        if trial.get("power_series"):
            number = trial.get("number", place + 1)
            marks = ", ".join(word for word, at in named.items() if at == place)
            title = f"trial {number}{f': {marks}' if marks else ''}"
            found.append({"name": title, "mean": trial.get("power_w"), "series": trial["power_series"]})
    return found
