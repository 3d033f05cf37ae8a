"""The trials of a run's document, best first, and what each of them is known for."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.model.objective import NAMES, UNITS
from tuner.model.run_document import PARTS, Changes, RunDocument, TrialDocument

_TIME_EXPONENT = {"energy": 0, "edp": 1, "ed2p": 2, "pareto": 1}
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
            ``too slow``.
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
    """What the run looked for, in words."""
    limit = document.get("max_slowdown")
    within = "" if limit is None else f" within {100 * limit:g} % of the fastest"
    return GOALS[objective_name(document)] + within


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
        numbered = [(trial.get("number", place), trial) for place, trial in enumerate(listed, 1)]
    best, limit_s = document["best"], longest_s(document)
    costs = {id(trial): _cost(document, trial, limit_s) for _, trial in numbered}

    def place(pair: tuple[int, TrialDocument]) -> tuple[bool, float]:
        cost = costs[id(pair[1])]
        return (not same(best, pair[1]), math.inf if cost is None else cost)

    found = []
    for rank, (number, trial) in enumerate(sorted(numbered, key=place), 1):
        cost = costs[id(trial)]
        marks = tuple(_marks(document, trial, limit_s))
        found.append(RankedTrial(number, None if cost is None else rank, cost, marks, trial))
    return found


def top(trials: Sequence[RankedTrial], count: int) -> list[RankedTrial]:
    """The first so many, and all others that are known for something."""
    head = [one for one in trials[:count] if one.cost is not None]
    return head + [one for one in trials if one not in head and set(one.marks) - {"too slow"}]


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
    power = _TIME_EXPONENT[name]
    ratio = math.pow(1 + changes["slowdown"], power) * (1 - changes["energy_saving"])
    return ratio - 1, math.hypot(power * half, changes["energy_saving_interval"])


def longest_s(document: RunDocument) -> float:
    """The longest time that the answer may take."""
    slowdown, fastest = document.get("max_slowdown"), document.get("fastest")
    if slowdown is None or fastest is None or not fastest["time_s"]:
        return math.inf
    return float(fastest["time_s"] * (1 + slowdown))


def _cost(document: RunDocument, trial: TrialDocument, limit_s: float) -> float | None:
    time_s: float | None = trial["time_s"]
    energy_j: float | None = trial["energy_j"]
    if trial["status"] != "ok" or time_s is None or time_s > limit_s:
        return None
    name = objective_name(document)
    if name == "time":
        return float(time_s)
    return None if energy_j is None else energy_j * math.pow(time_s, _TIME_EXPONENT[name])


def _marks(document: RunDocument, trial: TrialDocument, limit_s: float) -> Iterator[str]:
    words = {
        "best": "answer",
        "fastest": "fastest",
        "least_energy": "least energy",
        "default": "default",
        "solo_bests": "solo bests",
    }
    for part in PARTS:
        if same(document.get(part), trial) and not (
            part == "least_energy" and objective_name(document) == "energy"
        ):
            yield words[part]
        if part == "best" and any(same(point["trial"], trial) for point in document.get("front") or ()):
            yield "front"
    if trial["status"] == "ok" and trial["time_s"] and trial["time_s"] > limit_s:
        yield "too slow"
