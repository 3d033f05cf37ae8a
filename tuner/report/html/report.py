"""``tuner report``: one run, or two side by side, as one HTML file."""

from datetime import datetime

from tuner.model.run_document import RunDocument
from tuner.report.diff import RunDifferences, change_of, differences_of, quantities
from tuner.report.html.effects import effects_of
from tuner.report.html.elements import Markup, cells_table, element, joined, listed
from tuner.report.html.frame import framed
from tuner.report.html.panels import chart, panel
from tuner.report.html.run_data import Record, run_data
from tuner.report.html.run_section import run_section
from tuner.report.html.word_links import words_panel
from tuner.report.ranked_trials import ranked_trials

_NO_RATIOS = "The runs did not tune the same workloads, or one has no answer: ratios would say nothing."


def run_page(document: RunDocument, made_at: datetime) -> str:
    """The report of a run.

    Args:
        document: of the run, with its trials; with their series where these are known.
        made_at: when the page is made.
    """
    section, data = _run(document, 0)
    title = " + ".join(workload["name"] for workload in document["workloads"])
    return framed(f"{title} – tuner", joined((section, _words())), {"runs": [data], "ratios": []}, made_at)


def pair_page(one: RunDocument, other: RunDocument, titles: tuple[str, str], made_at: datetime) -> str:
    """The report of two runs side by side.

    Args:
        one: document of a run, which is A.
        other: of another one, B, which is held against it.
        titles: what they are called.
        made_at: when the page is made.
    """
    found = differences_of(one, other, titles)
    both = [_run(document, place, name) for place, (document, name) in enumerate(((one, "A"), (other, "B")))]
    comparison = _comparison(found)
    data = [data for _, data in both]
    ratios = _ratios(one, other)
    side = element("div", *(section for section, _ in both), class_="pair")
    shown = {"runs": data, "ratios": ratios}
    return framed(
        f"{titles[0]} and {titles[1]} – tuner", joined((comparison, side, _words())), shown, made_at
    )


def _words() -> Markup:
    return element("div", words_panel(), class_="grid")


def _run(document: RunDocument, place: int, name: str = "") -> tuple[Markup, Record]:
    ranked = ranked_trials(document)
    effects = effects_of(document, ranked)
    return run_section(document, ranked, effects, place, name), run_data(document, effects)


def _comparison(found: RunDifferences) -> Markup:
    titles = joined(element("p", title, dir="auto") for title in found.titles)
    return element(
        "div",
        panel("Two runs side by side", titles, cells_table(found.cells), id_="comparison"),
        panel(
            "B against A",
            chart(
                "ratios",
                "changes of time, energy and power from A to B",
                title="B against A, %; line: 95 %",
                without=_NO_RATIOS,
            ),
            sub="Changes of the answers, with 95 % intervals; drift between the runs is not in them.",
            id_="ratios",
        ),
        panel("The answers", listed(found.answers), id_="answers"),
        panel(found.heading.capitalize(), listed(found.conditions), id_="conditions"),
        class_="grid",
    )


def _ratios(one: RunDocument, other: RunDocument) -> list[Record]:
    """Changes of the answers with half of their 95 % intervals; none where the work is not the same."""
    if {w["name"] for w in one["workloads"]} != {w["name"] for w in other["workloads"]}:
        return []
    found = []
    for name, _, before, after in quantities(one["best"], other["best"]):
        change = change_of(before, after)
        if change is not None:
            found.append({"name": name, "change": change[0], "interval": change[1]})
    return found
