"""What to build with: flags of the answer for each workload, beside the default's configuration."""

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.model.plan import STREAM_PRIORITY
from tuner.model.run_document import RunDocument, TrialDocument, WorkloadDocument
from tuner.report.flags import header_command, use_of
from tuner.report.html.effects import shown_value
from tuner.report.html.elements import Markup, cells_table, element, joined, paragraphs
from tuner.report.html.panels import copyable, panel

Configuration = Mapping[str, Any]


def build_panel(document: RunDocument) -> Markup | None:
    """Compiler flags of each workload, with what differs from the default marked; None without an answer."""
    best, default = document["best"], document.get("default")
    if best is None:
        return None
    parts = [
        _workload(best, workload, document.get("run"), None if default is None else default["configurations"])
        for workload in document["workloads"]
    ]
    marked = " What differs from the default is marked." if default is not None else ""
    return panel(
        "What to build with",
        element("div", *parts, class_="builds"),
        paragraphs(_settings(best, default)),
        _exported(document),
        sub=f"What the compiler is told or, of templates, what is launched.{marked}",
        wide=True,
        id_="build",
    )


def _workload(
    best: TrialDocument,
    workload: WorkloadDocument,
    run: int | None,
    defaults: Mapping[str, Configuration] | None,
) -> Markup:
    name = str(workload["name"])
    configuration, (use, further) = best["configurations"][name], use_of(best, workload, run)
    return element(
        "div",
        element("h4", name, dir="auto"),
        copyable(use) if use else None,
        paragraphs(further or (() if use else ("no tunables",))),
        _table(configuration, None if defaults is None else defaults[name]) if configuration else None,
    )


def _table(answer: Configuration, default: Configuration | None) -> Markup:
    """The answer's values above the default's, a column for each tunable."""
    rows: list[list[str]] = [["", *answer]]
    if default is None:
        return cells_table([*rows, ["answer", *map(shown_value, answer.values())]])
    changed = {name for name, value in answer.items() if default.get(name) != value}
    marked = [
        element("mark", shown_value(one)) if name in changed else shown_value(one)
        for name, one in answer.items()
    ]
    rows += [["answer", *marked], ["default", *(shown_value(default.get(name)) for name in answer)]]
    return cells_table(rows)


def _settings(best: TrialDocument, default: TrialDocument | None) -> Iterator[str]:
    """What belongs to the answer and is no flag: clock, power limit, priorities of streams."""
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
    if any(STREAM_PRIORITY in one for one in best["configurations"].values()):
        yield f"{STREAM_PRIORITY}: of the stream that the workload is launched into; no macro of its source"


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
