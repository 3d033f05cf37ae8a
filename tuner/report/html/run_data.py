"""What the scripts draw of a run, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.report.html.effects import Effects
from tuner.report.html.trial_columns import trial_columns
from tuner.report.ranked_trials import PARTS, longest_s, objective_name, same, unit_of_cost
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


def run_data(document: Mapping[str, Any], effects: Effects) -> Record:
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


def _named(document: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What trials are known for, with their places."""
    found = {}
    for part in PARTS:
        trial = document.get(part)
        place = next((i for i, one in enumerate(trials) if same(one, trial)), None)
        if place is not None:
            found[_WORDS[part]] = place
    return found


def _places(numbers: Any, trials: Sequence[Mapping[str, Any]]) -> list[int]:  # noqa: ANN401 - of a document
    wanted = set(numbers or ())
    return [i for i, trial in enumerate(trials) if trial.get("number", i + 1) in wanted]


def tied_of(document: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the trials whose cost cannot be told from the lowest."""
    return _places(document.get("tied"), trials)


def contenders_of(document: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of the trials that were measured again; documents of earlier versions tell by their windows."""
    if "contenders" in document:
        return _places(document["contenders"], trials)
    return [i for i, trial in enumerate(trials) if (trial.get("bursts") or 1) > 1]


def _searched(trials: Sequence[Mapping[str, Any]]) -> dict[str, Record]:
    """What the search saw of the trials that were measured again."""
    return {
        str(i): {"time": trial["searched"]["time_s"], "energy": trial["searched"]["energy_j"]}
        for i, trial in enumerate(trials)
        if trial.get("confirmed") and trial.get("searched")
    }


def _repeats(document: Mapping[str, Any], objective: str) -> Record | None:
    """How well trials repeat in the cost, as the run has shown, or as is assumed of joules."""
    key = "time_interval" if objective == "time" else "energy_interval"
    known = (document.get("repeatability") or {}).get(key)
    if known:
        return {"interval": known, "assumed": False}
    scatter = document.get("window_scatter") or {}
    if objective != "time" and scatter.get("energy_interval"):
        return {"interval": scatter["energy_interval"], "assumed": bool(scatter.get("assumed"))}
    return None


def _co_run(document: Mapping[str, Any]) -> Record | None:
    """Own times and shares of joules of the workloads, in the answer, the default and each alone."""
    workloads = document["workloads"]
    if len(workloads) == 1 or document["best"] is None:
        return None
    alone = document.get("one_after_another") or {}

    def part(workload: Mapping[str, Any], key: str) -> Record | None:
        found = workload.get(key)
        return found and {"time": found["time_s"], "share": found.get("energy_share_j")}

    rows = [
        {
            "name": workload["name"],
            "answer": part(workload, "best"),
            "default": part(workload, "default"),
            "alone": (alone.get("workloads") or {}).get(workload["name"]),
        }
        for workload in workloads
    ]
    return {"rows": rows, "together": alone.get("together"), "inTurn": alone.get("in_turn")}


def _power(document: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> list[Record]:
    named = _named(document, trials)
    found = []
    for place, trial in enumerate(trials):
        if trial.get("power_series"):
            number = trial.get("number", place + 1)
            marks = ", ".join(word for word, at in named.items() if at == place)
            title = f"trial {number}{f': {marks}' if marks else ''}"
            found.append({"name": title, "mean": trial.get("power_w"), "series": trial["power_series"]})
    return found
