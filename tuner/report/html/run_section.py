"""One run as a part of a page: its answer, build settings and provenance."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from tuner.model.plan import PLACE, TunableValue
from tuner.model.run_document import RunDocument, TrialDocument, program_of
from tuner.model.units import moment, si
from tuner.report.answer import changes_of, cost_line, front_table, gains_of, rate_of, workloads_of, year_line
from tuner.report.details import (
    clock_table,
    clocks_command,
    detail_lines,
    limit_table,
    repeating_command,
    repeating_hint,
)
from tuner.report.html.charts import Effects, chart_panels, copyable, panel
from tuner.report.html.markup import Markup, element, facts, html_table, joined, listed, paragraphs
from tuner.report.layout import field_words, label, note, origin_words
from tuner.report.rows import ENERGY, POWER, Column, Row, Table
from tuner.report.run_report import (
    done_line,
    dropped_lines,
    failure_lines,
    head_lines,
    holding,
    inputs,
    no_answer,
    notices_of,
    stand_in,
    ties,
    warnings,
)
from tuner.report.trials_table import RankedTrial, goal, header_command, shown_value, use_of
from tuner.system.untrusted.reading import shortened

Configuration = Mapping[str, TunableValue]


def build_panel(document: RunDocument) -> Markup | None:
    """Compiler flags of each workload, with what differs from the default marked; None without an answer."""
    best, default = document["best"], document.get("default")
    if best is None:
        return None
    program = program_of(document)
    run = document.get("run")
    uses = [use_of(best, workload, run, program=program) for workload in document["workloads"]]
    parts = [
        _workload(best, str(workload["name"]), use, None if default is None else default["configurations"])
        for workload, use in zip(document["workloads"], uses, strict=True)
    ]
    marked = " What differs from the default is marked." if default is not None else ""
    if program is not None:
        settings = paragraphs(_build_settings(best, default))
        return panel("What to run", element("div", *parts, class_="builds"), settings, wide=True, id_="build")
    return panel(
        "What to build with",
        element("div", *parts, class_="builds"),
        paragraphs(_build_settings(best, default)),
        _exported(document),
        sub=f"What the compiler is told or, of templates, what is launched.{marked}",
        wide=True,
        id_="build",
    )


def _workload(
    best: TrialDocument,
    name: str,
    pasted: tuple[str, Sequence[str]],
    defaults: Mapping[str, Configuration] | None,
) -> Markup:
    configuration, (use, further) = best["configurations"][name], pasted
    return element(
        "div",
        element("h4", name, dir="auto"),
        copyable(use) if use else None,
        paragraphs(further or (() if use else ("no tunables",))),
        _table(configuration, None if defaults is None else defaults[name]) if configuration else None,
    )


def _table(answer: Configuration, default: Configuration | None) -> Markup:
    """The answer's values above the default's, a column for each tunable."""

    def value(row: tuple[str, Configuration], name: str) -> str:
        text = shown_value(row[1].get(name))
        changed = row[1] is answer and default is not None and default.get(name) != answer[name]
        return element("mark", text) if changed else text

    columns = [Column[tuple[str, Configuration]]("", lambda row: row[0])]
    columns += [Column(name, partial(value, name=name), number=True) for name in answer]
    rows = [("answer", answer)] if default is None else [("answer", answer), ("default", default)]
    return html_table(Table(columns, rows))


def _build_settings(best: TrialDocument, default: TrialDocument | None) -> Iterator[str]:
    """Yield settings of the answer that are no flags: clock, power limit, priorities of streams."""
    for called, unit, value, known in (
        ("GPU clock", "MHz", best["clock_mhz"], None if default is None else default["clock_mhz"]),
        (
            "power limit",
            "W",
            best.get("power_limit_w"),
            None if default is None else default.get("power_limit_w"),
        ),
    ):
        if value is not None:
            before = f", by default {known:g} {unit}" if known not in (None, value) else ""
            yield f"{called}: {value:g} {unit}{before}"
    for name in PLACE:
        if any(name in one for one in best["configurations"].values()):
            yield f"{name}: of the stream that the workload is launched into; no macro of its source"


def _exported(document: RunDocument) -> Markup | None:
    """The command that writes the same for a build, where the run is stored."""
    run = document.get("run")
    if run is None:
        return None
    several = len(document["workloads"]) > 1
    command = header_command(run) if several else f"tuner export {run}"
    form = "a header with all of them" if several else "it for a build"
    where = f"Where run {run} is stored, this command writes {form}:"
    return joined((element("p", where, class_="sub"), copyable(command)))


# --- What a run was made with: GPU, driver, options, sources, and who wrote the page.

_DEVICE = {"name": "GPU", "spec": "device", "uuid": "UUID", "driver": "driver", "runtime": "CUDA"}


def conditions_of(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Names and values of all that the answer is bound to."""
    yield from _of_run(document)
    device = dict(document["device"])
    for key, words in _DEVICE.items():
        if device.get(key):
            yield words, str(device[key])
    if document.get("recorded"):
        yield "recorded on", str(document["recorded"])
    yield "objective", goal(document)
    if holding(document):
        yield "answer holds for", holding(document)
    bound = {key: document.get(key) for key in ("policy", "seed", "clocks", "energy_precision")}
    for key, value in bound.items():
        if value is not None:
            yield key.replace("_", " "), str(value)
    for workload in document["workloads"]:
        if workload.get("batch") is not None:
            yield f"batch of {workload['name']}", f"{workload['batch']:,}"
    for key, value in (document.get("settings") or {}).items():
        if value is not None and key not in ("energy_precision", "program"):
            words, text = field_words(key, value)
            yield f"option {words}", text


def _of_run(document: RunDocument) -> Iterator[tuple[str, str]]:
    if document.get("run") is not None:
        yield "run", str(document["run"])
    merged_from = document.get("merged_from")
    if merged_from:
        yield "merged", f"{origin_words(merged_from)}, {moment(merged_from['at'])}"
    for words, at in (("started", document.get("started_at")), ("ended", document.get("ended_at"))):
        if at:
            yield words, moment(at)
    yield "status", str(document["status"])


# --- Words of reports that need an explanation: links in sentences, and a panel that explains them.

MEANINGS = {
    "round": "every workload of a trial once, all started together; a trial's time is that of a round",
    "contender": "a trial that may have the lowest cost when the search has ended; it is measured again",
    "tie": (
        "contenders, or trials that were measured once, whose costs differ by less than 1 % or their"
        " interval; a rule chooses"
    ),
    "net of idle": (
        "of joules: without those that the idle GPU would have taken at the same clock in the same time"
    ),
    "sensor's gain": (
        "the factor between what a sensor shows and the true power, some percent on every board; intervals do"
        " not contain it, and ratios on one board are free of it"
    ),
    "restored": (
        "of an array that a kernel changes in place: its input is copied back behind every run, and times and"
        " joules include the copies"
    ),
    "modelled": "computed by a model; no GPU was measured",
    "recorded": "measured earlier, and replayed from a file",
}
"""As in ``docs/glossary.md``."""
_LINKED = re.compile(r"^(tie(?= of)|restored(?=:))|\b(net of idle|sensor's gain)\b")


def with_links(sentences: Iterable[str]) -> list[Markup]:
    """Sentences in which the first word that is not everybody's leads to its explanation."""
    linked = []
    for sentence in sentences:
        word = _LINKED.search(sentence)
        if word is None:
            linked.append(joined((sentence,)))
            continue
        link = element("a", word.group(), href=f"#{_anchor(word.group())}")
        linked.append(joined((sentence[: word.start()], link, sentence[word.end() :])))
    return linked


def _anchor(word: str) -> str:
    return f"word-{re.sub('[^a-z]+', '-', word)}"


def words_panel() -> Markup:
    """Return the glossary."""
    rows = [
        joined((element("dt", word, id=_anchor(word)), element("dd", meaning)))
        for word, meaning in MEANINGS.items()
    ]
    return element("div", panel("Words", element("dl", *rows), wide=True, id_="words"), class_="grid")


# --- The section of a run, panel by panel.

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
    front = front_table(document)
    panels = (
        _answer(document),
        panel("The Pareto front", _titled_table(front), wide=True, id_="front")
        if front is not None
        else None,
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
    """Return the header: workloads, device, goal, and kind of the numbers."""
    title = " + ".join(workload["name"] for workload in document["workloads"])
    letter = element("span", name, class_="letter") if name else None
    # the first line of the report without the names of the workloads, which stand above
    circumstances = next(head_lines(document, _WIDE)).text.partition(" · ")[2]
    return element(
        "header",
        element("h2", letter, element("bdi", title)),
        paragraphs((circumstances,), "sub"),
        element("p", note(document), class_="kind", dir="auto") if label(document) else None,
        joined(element("p", one, class_="warning", dir="auto") for one in stand_in(document)),
    )


def _answer(document: RunDocument) -> Markup:
    best = document["best"]
    if best is None:
        return panel("The answer", paragraphs((no_answer(document),), "warning"), wide=True, id_="answer")
    gains = gains_of(document)
    tables = [html_table(gains)] if gains.rows else []
    tables += [html_table(workloads_of(document))] if len(document["workloads"]) > 1 else []
    content = [
        element("div", *_figures(document), class_="figures"),
        element("div", *tables, class_="tables"),
        paragraphs(gains.sentences),
        paragraphs(filter(None, (cost_line(document, verbose=True), year_line(document)))),
        listed(with_links([*ties(document), *inputs(document), *warnings(document)]), "warnings"),
    ]
    return panel("The answer, and what it gains", *content, wide=True, id_="answer")


def _figures(document: RunDocument) -> Iterator[Markup]:
    """Yield time, joules, gains, power, clock and power limit of the answer: what a phone shows first."""
    best = document["best"]
    if best is None:
        return
    mark = label(document, " ({})")
    yield _figure(si(best["time_s"], "s"), f"time of a round{mark}")
    if best["energy_j"] is not None:
        yield _figure(ENERGY.text(best), f"energy of a round, 95 %{mark}")
    for change in changes_of(document):
        yield _figure(change.shown, f"{change.of} against the default, 95 %{mark}", _SIGNS[change.sign])
    if best["energy_j"] is not None:
        yield _figure(POWER.text(best), f"mean power{mark}")
    if len(document["workloads"]) == 1 and (rate := rate_of(document["workloads"][0])):
        yield _figure(rate, f"rate{mark}")
    clock = "as found" if best["clock_mhz"] is None else f"{best['clock_mhz']:g} MHz"
    seen = best.get("clock_seen_mhz")
    yield _figure(clock, "GPU clock" if seen is None else f"GPU clock, {seen:.0f} MHz seen")
    if best.get("temperature_c") is not None:
        yield _figure(f"{best['temperature_c']:.0f} °C", f"temperature of the GPU{mark}")
    if best.get("power_limit_w") is not None:
        yield _figure(f"{best['power_limit_w']:g} W", "power limit")


def _figure(value: str, caption: str, class_: str | None = None) -> Markup:
    return element("div", element("b", value, class_=class_), element("span", caption), class_="figure")


def _sureness(document: RunDocument) -> Markup:
    """Return the panel on the uncertainty of the numbers, and the use of time and joules."""
    sentences = with_links([done_line(document), *detail_lines(document)])
    calm = _folded("What the search said of itself", list(notices_of(document)), "quiet")
    return panel("How sure, and what it took", listed(sentences, "columns"), calm, wide=True, id_="sure")


def _folded(title: str, sentences: Sequence[str], class_: str) -> Markup | None:
    """A list that opens when its title is clicked; None for an empty one."""
    if not sentences:
        return None
    return element("details", element("summary", title), listed(sentences, class_))


def _settings(document: RunDocument) -> Markup:
    """Return the panel on other clocks and power limits, or on the command that measures them."""
    title = "Other clocks and power limits"
    curves = clock_table(document), limit_table(document)
    tables: list[Table[Any]] = [table for table in curves if table is not None]
    if tables:
        return panel(title, *map(_titled_table, tables), wide=True, id_="settings")
    which = "recorded" if document.get("recorded") else "measured"
    why = (
        f"These configurations were {which} at one clock and power limit. On the GPU this command measures"
        " what lower clocks save; --power-limits all does so for power limits:"
    )
    return panel(title, paragraphs((why,), "sub"), copyable(clocks_command(document)), id_="settings")


def _titled_table(table: Table[Row]) -> Markup:
    title = element("p", table.title, class_="sub")
    return joined((title, html_table(table), paragraphs(table.sentences)))


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
    hint = element("p", repeating_hint(document), class_="sub")
    return panel("How to repeat it", copyable(command), hint, wide=True, id_="repeat")


def _provenance(document: RunDocument) -> Markup:
    content = (
        facts(conditions_of(document)),
        element("h4", "Sources"),
        facts((document.get("sources") or {}).items()),
    )
    return panel("Where the numbers come from", *content, wide=True, id_="provenance")
