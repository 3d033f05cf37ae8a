"""The charts of a run: which there are, and why others are not."""

from collections.abc import Iterator, Sequence

from tuner.model.run_document import RunDocument, TrialDocument
from tuner.report.html.effects import Effects
from tuner.report.html.elements import Markup, element, listed, paragraphs
from tuner.report.html.panels import chart, panel
from tuner.report.html.run_data import contenders_of, tied_of
from tuner.report.ranked_trials import RankedTrial, unit_of_cost
from tuner.report.words import label

_LEAST_CURVE = 2  # points
_MOST_WHISKERS = 400  # trials whose intervals are all drawn


def chart_panels(document: RunDocument, ranked: Sequence[RankedTrial], effects: Effects) -> Iterator[Markup]:
    """Panels with room for charts; a chart without data has its reason instead."""
    trials = document.get("trials") or ()
    if not trials:
        why = "No trial is stored with this run." if not ranked else "The document has no list of trials."
        yield panel("Trials", paragraphs((why,), "sub"), wide=True, id_="trials")
        return
    yield _convergence(document)
    yield _time_energy(ranked)
    yield from _curves(document)
    yield from _co_run(document, wide=not document.get("clock_curve"))
    yield _effects(effects, document)
    yield from _of_tunables(document)
    yield _power(trials)
    yield _trials(len(trials))


def _convergence(document: RunDocument) -> Markup:
    return panel(
        "The search",
        chart("convergence", "cost of each trial in the order of measuring"),
        sub=" ".join(_convergence_words(document)),
        id_="convergence",
    )


def _convergence_words(document: RunDocument) -> Iterator[str]:
    """What each kind of mark is, of those that are drawn."""
    trials = document["trials"]
    yield f"What the search saw of each trial, in {unit_of_cost(document)}, and the best so far."
    if any(trial.get("time_s_uncertainty") or trial.get("energy_j_uncertainty") for trial in trials):
        yield (
            "The shaded band cannot be told from the lowest cost, by its own interval or by how trials"
            " repeat."
        )
    if document["best"] is not None:
        yield "Diamond: the answer."
    repeated, tied = contenders_of(document, trials), tied_of(document, trials)
    if len(tied) > 1:
        yield f"Filled: the {len(tied):,} that tie; the answer is the fastest of them."
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


def _co_run(document: RunDocument, *, wide: bool) -> Iterator[Markup]:
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
    words = label(document)
    mark = f" ({words})" if words else ""
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


def _power(trials: Sequence[TrialDocument]) -> Markup:
    title, id_ = "Power over time", "power"
    if not any(trial.get("power_series") for trial in trials):
        why = "No power over time is stored with this run: a recording and earlier versions have none."
        return panel(title, paragraphs((why,), "sub"), wide=True, id_=id_)
    sub = (
        "Measurement windows of the default and of the contenders, as the sensor shows them: its lag and"
        " averaging are in the curve, and corrected in the joules."
    )
    return panel(title, chart("power", "power over time in windows"), sub=sub, wide=True, id_=id_)


def _trials(count: int) -> Markup:
    return panel(
        "All trials",
        element("div", class_="controls"),
        element("div", class_="trials", data_chart="trials"),
        sub=(
            f"{count:,} trials. A head sorts; the filter takes words, and conditions as `tuner show --where`"
            " does, in seconds, joules and watts: P>=16 and time<2e-3."
        ),
        wide=True,
        id_="trials",
    )
