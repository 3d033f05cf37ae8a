"""The charts of a run: which there are, the effects of values, and the data that scripts draw."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.model.objective import Objective
from tuner.model.run_document import PARTS, RunDocument, TrialDocument, WorkloadPart
from tuner.report.html.markup import Markup, element, joined, listed, paragraphs, trial_columns
from tuner.report.layout import label
from tuner.report.rows import BRIEF_TIME, CLOCK, ENERGY, POWER, POWER_LIMIT, Column
from tuner.report.trials_table import (
    KNOWN_AS,
    SHORT_NAMES,
    RankedTrial,
    longest_s,
    objective_name,
    ranked_trials,
    same,
    shown_value,
    tunables_of,
    unit_of_cost,
)

# --- What each value of a tunable does, as far as the trials of a run can tell.
#
# A search changes many tunables at a time, and those that it likes most often: means over trials confound
# them. Told is therefore only what trials say that differ in one tunable alone; a complete space has all such
# groups.

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
    """Effects of all tunables.

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
        effects = _of_one(workload, tunable, place, keys, costs)
        if effects and len(known) + len(effects) <= _MOST_ROWS:
            known += effects
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
        ValueEffect(workload, tunable, value, statistics.median(over), min(over), max(over), len(over))
        for (_, value), over in sorted(excess.items(), key=lambda item: _order(item[0][1]))
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


def _order(value: Any) -> tuple[int, Any]:  # noqa: ANN401 - of a tunable
    return (1, value) if isinstance(value, str) else (0, -1 if value is None else value)


# --- Panels of a page: a title, a sentence, and a chart that the scripts draw, or text.


def panel(
    title: str, *content: "str | Markup | None", sub: str = "", wide: bool = False, id_: str = ""
) -> Markup:
    """A panel of a page: a heading, a sentence below it, and its content."""
    return element(
        "section",
        element("h3", title, dir="auto"),
        element("p", sub, class_="sub", dir="auto") if sub else None,
        *content,
        class_="panel wide" if wide else "panel",
        data_panel=id_ or None,
    )


def chart(kind: str, label: str, *, height: int = 320, **options: "str | int") -> Markup:
    """Room for a chart, with room above it for its controls.

    Args:
        kind: which function of the scripts draws it.
        label: what a screen reader says of it.
        height: in CSS pixels: one of those that the style knows.
        options: that the function takes, by name.
    """
    named = {f"data_{name}": value for name, value in options.items()}
    shape = f"chart h{height}"
    box = element("div", class_=shape, role="img", aria_label=label, data_chart=kind, **named)
    return joined((element("div", class_="controls"), element("div", box, class_="scroll")))


def copyable(text: str) -> Markup:
    """Text to paste, whose lines break between words only, with a button that copies it."""
    words = [element("span", word) for word in text.split(" ")]
    spaced = [part for word in words for part in (" ", word)][1:]
    button = element("button", "copy", type="button", class_="copy", hidden=True)
    return element("div", element("code", *spaced), button, class_="paste")


# --- What the scripts draw of a run, as plain values.

Record = dict[str, Any]


_TRIALS: dict[str, Column[TrialDocument]] = {
    "time": BRIEF_TIME,
    "energy": ENERGY,
    "power": POWER,
    "clock": CLOCK,
    "limit": POWER_LIMIT,
}
"""Columns of numbers in the table of all trials, by the names of their values in the scripts."""


def run_data(document: RunDocument, effects: Effects) -> Record:
    """The data of one run; keys are in camel case, as the scripts have them."""
    trials = document.get("trials") or []
    limit_s, name = longest_s(document), objective_name(document)
    return {
        "label": label(document),
        "objective": name,
        "exponent": Objective(name).time_exponent,
        "needsEnergy": name != "time",
        "unit": unit_of_cost(document),
        "limit": limit_s if limit_s < float("inf") else None,
        "trials": trial_columns(document, trials) if trials else None,
        "named": _named(document, trials),
        "contenders": contenders_of(document, trials),
        "shortNames": SHORT_NAMES,
        "columns": [
            {
                "key": key,
                "title": column.name,
                "unit": column.unit,
                "digits": column.digits,
                "unknown": column.unknown,
                "interval": column.half is not None,
            }
            for key, column in _TRIALS.items()
        ],
        "tied": _places(document.get("tied"), trials),
        "ties": _places([one.number for one in ranked_trials(document) if "tie" in one.marks], trials),
        "searched": _searched(trials),
        "repeats": _repeats(document, name),
        "effects": [asdict(one) for one in effects.known],
        "curves": {
            "clock": {"key": "clock_mhz", "unit": "MHz", "points": document.get("clock_curve") or []},
            "limit": {"key": "power_limit_w", "unit": "W", "points": document.get("power_limit_curve") or []},
        },
        "coRun": _co_run_record(document),
        "power": _power_records(document, trials),
    }


def _named(document: RunDocument, trials: Sequence[TrialDocument]) -> dict[str, int]:
    """Return the places of the notable trials, such as the answer and the default, by label."""
    places = {}
    for part in PARTS:
        trial = document.get(part)
        place = next((i for i, other in enumerate(trials) if same(other, trial)), None)
        if place is not None:
            places[KNOWN_AS[part]] = place
    return places


def _places(numbers: Any, trials: Sequence[TrialDocument]) -> list[int]:  # noqa: ANN401 - of a document
    chosen = set(numbers or ())
    return [i for i, trial in enumerate(trials) if trial.get("number", i + 1) in chosen]


def contenders_of(document: RunDocument, trials: Sequence[TrialDocument]) -> list[int]:
    """Places of the trials that were measured again; documents of earlier versions tell by their windows."""
    if "contenders" in document:
        return _places(document["contenders"], trials)
    return [i for i, trial in enumerate(trials) if (trial.get("bursts") or 1) > 1]


def _searched(trials: Sequence[TrialDocument]) -> dict[str, Record]:
    """Return the search's values of the trials that were measured again, by place."""
    return {
        str(i): {"time": searched.get("time_s"), "energy": searched.get("energy_j")}
        for i, trial in enumerate(trials)
        if trial.get("confirmed") and (searched := trial.get("searched"))
    }


def _repeats(document: RunDocument, objective: str) -> Record | None:
    """Return the repeatability of trials in the cost: measured, or assumed for joules; None without it."""
    again, scatter = document.get("repeatability"), document.get("window_scatter")
    if again is not None:
        interval = again.get("time_interval") if objective == "time" else again.get("energy_interval")
        if interval:
            return {"interval": interval, "assumed": False}
    if objective != "time" and scatter is not None and scatter["energy_interval"]:
        return {"interval": scatter["energy_interval"], "assumed": scatter["assumed"]}
    return None


def _co_run_record(document: RunDocument) -> Record | None:
    """Own times and shares of joules of the workloads, in the answer, the default and each alone."""
    workloads = document["workloads"]
    if len(workloads) == 1 or document["best"] is None:
        return None
    alone = document.get("one_after_another")

    def shares(part: WorkloadPart | None) -> Record | None:
        return part and {"time": part["time_s"], "share": part["energy_share_j"]}

    rows = [
        {
            "name": workload["name"],
            "answer": shares(workload["best"]),
            "default": shares(workload["default"]),
            "alone": None if alone is None else alone["workloads"].get(workload["name"]),
        }
        for workload in workloads
    ]
    together, in_turn = (None, None) if alone is None else (alone["together"], alone["in_turn"])
    return {"rows": rows, "together": together, "inTurn": in_turn}


def _power_records(document: RunDocument, trials: Sequence[TrialDocument]) -> list[Record]:
    named = _named(document, trials)
    records = []
    for place, trial in enumerate(trials):
        if trial.get("power_series"):
            number = trial.get("number", place + 1)
            marks = ", ".join(word for word, at in named.items() if at == place)
            title = f"trial {number}{f': {marks}' if marks else ''}"
            records.append({"name": title, "mean": trial.get("power_w"), "series": trial["power_series"]})
    return records


_LEAST_CURVE = 2  # points
_MOST_WHISKERS = 400  # trials whose intervals are all drawn


def chart_panels(document: RunDocument, ranked: Sequence[RankedTrial], effects: Effects) -> Iterator[Markup]:
    """Panels with room for charts; a chart without data has its reason instead."""
    trials = document.get("trials") or ()
    if not trials:
        why = "No trial is stored with this run." if not ranked else "The document has no list of trials."
        yield panel("Trials", paragraphs((why,), "sub"), wide=True, id_="trials")
        return
    yield panel(
        "The search",
        chart("convergence", "cost of each trial in the order of measuring"),
        sub=" ".join(_convergence_words(document)),
        id_="convergence",
    )
    yield _time_energy(ranked)
    yield from _curves(document)
    yield from _co_run_panel(document, wide=not document.get("clock_curve"))
    yield _effects(effects, document)
    yield from _of_tunables(document)
    yield _power_panel(trials)
    yield panel(
        "All trials",
        element("div", class_="controls"),
        element("div", class_="trials", data_chart="trials"),
        sub=(
            f"{len(trials):,} trials. A head sorts; the filter takes words, and conditions as"
            " `tuner show --where` does, in seconds, joules and watts: P>=16 and time<2e-3."
        ),
        wide=True,
        id_="trials",
    )


def _convergence_words(document: RunDocument) -> Iterator[str]:
    """Yield the meaning of each kind of mark that is drawn."""
    trials = document["trials"]
    yield f"What the search saw of each trial, in {unit_of_cost(document)}, and the best so far."
    if any(trial.get("time_s_uncertainty") or trial.get("energy_j_uncertainty") for trial in trials):
        yield (
            "The shaded band cannot be told from the lowest cost, by its own interval or by how trials"
            " repeat."
        )
    if document["best"] is not None:
        yield "Diamond: the answer."
    repeated, tied = contenders_of(document, trials), _places(document.get("tied"), trials)
    if len(tied) > 1:
        yield f"Filled: the {len(tied):,} that tie; a rule chooses the answer."
    if set(repeated) - set(tied if len(tied) > 1 else ()):
        yield "Rings: contenders, measured again in turn."
    if any(trial["status"] != "ok" for trial in trials):
        yield "Triangles: failed trials."


def _time_energy(ranked: Sequence[RankedTrial]) -> Markup:
    title, id_ = "Time against energy", "time-energy"
    if all(one.trial.get("energy_j") is None for one in ranked):
        return panel(title, paragraphs(("No joules were measured: --joules does.",), "sub"), id_=id_)
    valid = [one.trial for one in ranked if one.trial["status"] == "ok" and one.trial.get("energy_j")]
    line = "the line joins those that no other beats in both"
    sub = f"Each valid trial with its 95 % intervals; {line}."
    if len(valid) > _MOST_WHISKERS:
        sub = f"Each valid trial; {line}. These and the named ones have their 95 % intervals."
    drawing = chart("timeEnergy", "energy of each trial over its time", whiskers=_MOST_WHISKERS)
    return panel(title, drawing, sub=sub, id_=id_)


def _curves(document: RunDocument) -> Iterator[Markup]:
    known = [
        (points, kind, title, setting)
        for points, kind, title, setting in (
            (document.get("clock_curve") or [], "clock", "Over the clock", "GPU clocks"),
            (document.get("power_limit_curve") or [], "limit", "Over the power limit", "power limits"),
        )
        if len(points) >= _LEAST_CURVE
    ]
    alone = len(known) == 1 and len(document["workloads"]) == 1
    for points, kind, title, setting in known:
        modelled = sum(point["kind"] == "modelled" for point in points)
        sub = (
            f"Energy and time of a round of the same configuration at {len(points)} {setting}, with 95 %"
            f" intervals{f'; hollow: modelled ({modelled})' if modelled else ''}."
        )
        drawing = chart("setting", f"energy and time over {setting}", of=kind)
        yield panel(title, drawing, sub=sub, wide=alone, id_=kind)


def _co_run_panel(document: RunDocument, *, wide: bool) -> Iterator[Markup]:
    if len(document["workloads"]) < 2 or document["best"] is None:  # noqa: PLR2004 - a co-run has two
        return
    alone = document.get("one_after_another")
    against = "" if alone else " They were not measured one after another."
    sub = (
        "Each workload's own time in a round, in which all start together. Shares of joules are by these"
        f" times: modelled.{against}"
    )
    height = 320 if len(document["workloads"]) <= 4 else 480  # noqa: PLR2004 - rows
    drawing = chart("coRun", "time of each workload", height=height)
    yield panel("Running together", drawing, sub=sub, wide=wide, id_="co-run")


def _effects(effects: Effects, document: RunDocument) -> Markup:
    title, id_ = "What each tunable does", "effects"
    mark = label(document, " ({})")
    tried = element("details", element("summary", "Tried how often"), listed(effects.tried, "quiet"))
    if not effects.known:
        why = (
            "No two trials differ in one tunable alone: what a value does cannot be told apart from the"
            " others, and no importance is shown."
        )
        return panel(title, paragraphs((why,), "sub"), listed(effects.tried), id_=id_)
    which = "Every configuration was measured. " if effects.complete else ""
    sub = (
        f"{which}What a value costs more than the best value of its tunable, from trials that differ in"
        f" nothing else{mark}. Dot: median; line: range; in brackets: number of such groups; shaded: two"
        " trials may differ so by chance."
    )
    rows = len(effects.known)
    height = next((h for h in (320, 480, 720, 1080, 1600) if h >= 70 + 19 * rows), 2400)
    return panel(
        title,
        chart("effects", "excess cost of each value of each tunable", height=height),
        tried if effects.tried else None,
        sub=sub,
        wide=True,
        id_=id_,
    )


def _of_tunables(document: RunDocument) -> Iterator[Markup]:
    yield panel(
        "Two tunables",
        chart("heatMap", "lowest cost for each pair of values", height=480),
        sub="Lowest cost that was found for each pair of values, in % above the lowest; empty: not measured.",
        wide=True,
        id_="heat-map",
    )
    for place, workload in enumerate(document["workloads"]):
        yield panel(
            "Configurations" if len(document["workloads"]) == 1 else f"Configurations of {workload['name']}",
            chart("parallel", f"values of the tunables of {workload['name']} by cost", workload=place),
            sub="Trials up to 1.5 times the lowest cost, at most 1,500; drag along an axis to select.",
            wide=True,
            id_="parallel",
        )


def _power_panel(trials: Sequence[TrialDocument]) -> Markup:
    title, id_ = "Power over time", "power"
    if not any(trial.get("power_series") for trial in trials):
        why = "No power over time is stored with this run: a recording and earlier versions have none."
        return panel(title, paragraphs((why,), "sub"), wide=True, id_=id_)
    sub = (
        "Measurement windows of the default and of the contenders, as the sensor shows them: its lag and"
        " averaging are in the curve, and corrected in the joules."
    )
    return panel(title, chart("power", "power over time in windows"), sub=sub, wide=True, id_=id_)
