"""One run as a part of a page: what it found in words and tables, and room for its charts."""

from collections.abc import Iterator, Sequence
from itertools import islice

from tuner.model.run_document import RunDocument
from tuner.report.answer import Gains, changes_of, gains_of, rates, workload_cells
from tuner.report.clock_curve import SettingTable, clock_table
from tuner.report.cost import cost_line
from tuner.report.details import detail_lines
from tuner.report.front import front_table
from tuner.report.html.build_panel import build_panel
from tuner.report.html.charts import chart_panels
from tuner.report.html.effects import Effects
from tuner.report.html.elements import Markup, cells_table, element, facts, joined, listed, paragraphs
from tuner.report.html.panels import copyable, panel
from tuner.report.html.provenance import conditions_of, source_facts
from tuner.report.html.word_links import with_links
from tuner.report.left_out import dropped_lines, failure_lines
from tuner.report.notices import notices_of, stand_in, warnings
from tuner.report.power_limit_curve import limit_table
from tuner.report.ranked_trials import RankedTrial
from tuner.report.repeating import clocks_command, repeating_command
from tuner.report.run_report import head_lines, no_answer
from tuner.report.trials_table import energy_of
from tuner.report.words import label, note, si
from tuner.untrusted.text import shortened

_WIDE = 10_000  # characters: sentences are not wrapped
_SIGNS = {-1: "less", 0: None, 1: "more"}  # classes of changes: what is certain has a colour
_MOST_FAILURES = 200  # that are told in full


def run_section(
    document: RunDocument, ranked: Sequence[RankedTrial], effects: Effects, place: int, name: str = ""
) -> Markup:
    """The part of a page that shows one run.

    Args:
        document: of the run, with its trials and their series as far as they are known.
        ranked: its trials.
        effects: of its tunables.
        place: among the runs of the page, by which the scripts find its data.
        name: ``A`` or ``B`` beside another run; empty alone.
    """
    panels = (
        _answer(document),
        *_front(document),
        build_panel(document),
        _sureness(document),
        _settings(document),
        _left_out(document),
        *chart_panels(document, ranked, effects),
        _repeating(document),
        _provenance(document),
    )
    return element(
        "article",
        _head(document, name),
        element("div", *panels, class_="grid"),
        class_="run",
        data_run=place,
        aria_label=f"run {name}".strip(),
    )


def _head(document: RunDocument, name: str) -> Markup:
    """What was tuned, where and for what, and what kind of numbers these are."""
    title = " + ".join(workload["name"] for workload in document["workloads"])
    letter = element("span", name, class_="letter") if name else None
    return element(
        "header",
        element("h2", letter, element("bdi", title)),
        paragraphs((_circumstances(document),), "sub"),
        element("p", note(document), class_="kind", dir="auto") if label(document) else None,
        joined(element("p", one, class_="warning", dir="auto") for one in stand_in(document)),
    )


def _circumstances(document: RunDocument) -> str:
    """The first line of the report without the names of the workloads, which stand above."""
    return next(head_lines(document, _WIDE)).text.partition(" · ")[2]


def _answer(document: RunDocument) -> Markup:
    best = document["best"]
    if best is None:
        return panel("The answer", paragraphs((no_answer(document),), "warning"), wide=True, id_="answer")
    gains = gains_of(document)
    content = [
        element("div", *_figures(document), class_="figures"),
        element("div", _gains_table(gains), _workloads_table(document), class_="tables"),
        paragraphs(gains.sentences),
        paragraphs((cost_line(document),)),
        listed(with_links(warnings(document)), "warnings"),
    ]
    return panel("The answer, and what it gains", *content, wide=True, id_="answer")


def _front(document: RunDocument) -> Iterator[Markup]:
    """The points of the Pareto front, where the run has one."""
    found = front_table(document)
    if found is not None:
        rows = [[*cells, note] for cells, note in zip(found.cells, found.notes, strict=True)]
        yield panel(
            "The Pareto front",
            paragraphs((found.title,), "sub"),
            cells_table(rows),
            paragraphs(found.sentences),
            wide=True,
            id_="front",
        )


def _gains_table(gains: Gains) -> Markup | None:
    return cells_table(gains.cells) if gains.cells else None


def _figures(document: RunDocument) -> Iterator[Markup]:
    """What the answer gains; its time, joules, power, clock and power limit."""
    best = document["best"]
    if best is None:
        return
    mark = f" ({label(document)})" if label(document) else ""
    for change in changes_of(document):
        yield _figure(change.shown, f"{change.of} against the default, 95 %{mark}", _SIGNS[change.sign])
    yield _figure(si(best["time_s"], "s"), f"time of a round{mark}")
    if best["energy_j"] is not None:
        yield _figure(energy_of(best), f"energy of a round, 95 %{mark}")
        yield _figure(si(best.get("power_w"), "W"), f"mean power{mark}")
    if len(document["workloads"]) == 1:
        yield from (_figure(rate, f"rate{mark}") for rate in rates(document["workloads"][0]))
    clock = "as found" if best["clock_mhz"] is None else f"{best['clock_mhz']:g} MHz"
    seen = best.get("clock_seen_mhz")
    yield _figure(clock, "GPU clock" if seen is None else f"GPU clock, {seen:.0f} MHz seen")
    if best.get("temperature_c") is not None:
        yield _figure(f"{best['temperature_c']:.0f} °C", f"temperature of the GPU{mark}")
    if best.get("power_limit_w") is not None:
        yield _figure(f"{best['power_limit_w']:g} W", "power limit")
    space = document["space"]
    of = f" of {space['pruned']:,}" if space.get("pruned") is not None else ""
    yield _figure(f"{space['measured']:,}{of}", "trials")


def _figure(value: str, caption: str, class_: str | None = None) -> Markup:
    return element("div", element("b", value, class_=class_), element("span", caption), class_="figure")


def _workloads_table(document: RunDocument) -> Markup | None:
    return cells_table(workload_cells(document)) if len(document["workloads"]) > 1 else None


def _sureness(document: RunDocument) -> Markup:
    """How sure the numbers are, and where time and joules went."""
    sentences = with_links(detail_lines(document))
    calm = _folded("What the search said of itself", list(notices_of(document)), "quiet")
    return panel("How sure, and what it took", listed(sentences, "columns"), calm, wide=True, id_="sure")


def _folded(title: str, sentences: Sequence[str], class_: str) -> Markup | None:
    """A list that opens when its title is clicked; None for an empty one."""
    if not sentences:
        return None
    return element("details", element("summary", title), listed(sentences, class_))


def _settings(document: RunDocument) -> Markup:
    """What other clocks and power limits bring, in words and rows; or what would tell."""
    title = "Other clocks and power limits"
    tables = [one for one in (clock_table(document), limit_table(document)) if one is not None]
    if tables:
        return panel(title, *map(_setting_table, tables), wide=True, id_="settings")
    which = "recorded" if document.get("recorded") else "measured"
    why = (
        f"These configurations were {which} at one clock and power limit. On the GPU this command measures"
        " what lower clocks save; --power-limits all does so for power limits:"
    )
    return panel(title, paragraphs((why,), "sub"), copyable(clocks_command(document)), id_="settings")


def _setting_table(found: SettingTable) -> Markup:
    return joined(
        (
            element("p", found.title, class_="sub"),
            cells_table(found.cells, found.notes, texts=()),
            paragraphs(found.sentences),
        )
    )


def _left_out(document: RunDocument) -> Markup:
    dropped = list(dropped_lines(document)) or ["nothing was left out"]
    failed = list(failure_lines(document))
    every = [shortened(line) for line in islice(failure_lines(document, verbose=True), _MOST_FAILURES)]
    more = every if every != failed else []
    content = paragraphs(dropped), listed(failed, "failures"), _folded("Every failure", more, "failures")
    alone = bool(document.get("clock_curve") or document.get("power_limit_curve"))
    return panel("What was left out, and why", *content, wide=alone, id_="left-out")


def _repeating(document: RunDocument) -> Markup:
    command = repeating_command(document)
    hint = (
        "Kernels outside the catalogue need their file: --kernel FILE. Sources, driver and GPU below tell"
        " whether it is the same work."
    )
    return panel(
        "How to repeat it", copyable(command), element("p", hint, class_="sub"), wide=True, id_="repeat"
    )


def _provenance(document: RunDocument) -> Markup:
    content = facts(conditions_of(document)), element("h4", "Sources"), facts(source_facts(document))
    return panel("Where the numbers come from", *content, wide=True, id_="provenance")
