"""The report of a run, made from its document: the answer first, on one screen, and no column lost."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group

from tuner.model.plan import shown_values
from tuner.model.run_document import RunDocument, WorkloadDocument
from tuner.report.answer import comparisons, totals, workloads_table
from tuner.report.clock_curve import curve_lines
from tuner.report.cost import cost_line
from tuner.report.details import detail_lines
from tuner.report.flags import header_command, use_of
from tuner.report.front import front_lines, point_words
from tuner.report.layout import GAP, LEAST_WIDTH, ReportLine, lines_of, rendered, tied, wrapped
from tuner.report.left_out import dropped_lines, failure_lines
from tuner.report.notices import notices_of, stand_in, warnings
from tuner.report.power_limit_curve import limit_lines
from tuner.report.ranked_trials import RankedTrial, goal, ranked_trials, top
from tuner.report.trials_table import trials_table
from tuner.report.words import label, lasting, note, origin_words

_SHOWN_ALONE, _SHOWN_OF_SET = 5, 3  # trials, beside those that are known for something
_NAMED_IN_HEAD = 3  # workloads; of more the table has the names
_WARNING, _QUIET = "yellow", "dim"


def show_run(
    document: RunDocument,
    console: Console,
    *,
    verbose: bool = False,
    seen: Collection[str] = (),
    trials: Sequence[RankedTrial] | None = None,
    database: Path | None = None,
) -> None:
    """Print the report of a run.

    Args:
        document: of the run.
        console: where to print; lines are as wide as it is at most.
        verbose: with everything that the document tells besides its list of trials.
        seen: notices that stand above already, and are not repeated.
        trials: to show, with number, status and flags; None for the top, and what is known for something.
        database: that commands must name which read more of the run; None for the user's own.
    """
    report = run_report(document, console.width, verbose=verbose, seen=seen, trials=trials, database=database)
    console.print(report)


def run_report(
    document: RunDocument,
    width: int,
    verbose: bool = False,
    *,
    seen: Collection[str] = (),
    trials: Sequence[RankedTrial] | None = None,
    database: Path | None = None,
) -> Group:
    """The report of a run, as rich prints it.

    Args:
        document: of a run, as ``--json`` writes it or the database keeps it.
        width: characters of a line, 40 at least.
        verbose: see ``show_run``.
        seen: see ``show_run``.
        trials: see ``show_run``.
        database: see ``show_run``.
    """
    width = max(width, LEAST_WIDTH)
    lines = report_lines(document, width, verbose=verbose, seen=seen, trials=trials, database=database)
    return rendered(list(lines))


def report_lines(
    document: RunDocument,
    width: int,
    *,
    verbose: bool = False,
    seen: Collection[str] = (),
    trials: Sequence[RankedTrial] | None = None,
    database: Path | None = None,
) -> Iterator[ReportLine]:
    """The lines of a report; arguments as of ``show_run``."""
    ranked = ranked_trials(document)
    best_of = top(ranked, _SHOWN_ALONE if len(document["workloads"]) == 1 else _SHOWN_OF_SET)
    lower = any(one.cost is not None and one.cost < (ranked[0].cost or 0.0) for one in best_of)
    yield from head_lines(document, width)
    for notice in stand_in(document, seen):
        yield from lines_of(notice, width, _WARNING)
    yield from _answer(document, width)
    yield from front_lines(document, width, database_words(database))
    yield from curve_lines(document, width)
    yield from limit_lines(document, width)
    for notice in warnings(document, seen, of_ties=lower):
        yield from lines_of(notice, width, _WARNING)
    if ranked:
        shown = best_of if trials is None else trials
        yield ReportLine("")
        yield from trial_lines(document, shown, len(ranked), width, numbered=trials is not None)
        yield ReportLine("")
    for line in (
        *dropped_lines(document, verbose=verbose),
        *failure_lines(document, verbose=verbose),
        cost_line(document),
    ):
        yield from lines_of(line, width)
    yield from _use(document, width, database_words(database), more=trials is None)
    if verbose:
        yield ReportLine("")
        for line in (*detail_lines(document), *notices_of(document, seen, of_ties=not lower)):
            yield from lines_of(line, width)


def head_lines(document: RunDocument, width: int) -> Iterator[ReportLine]:
    """What was tuned, where and for what, how long it took, and what kind of numbers these are."""
    workloads = document["workloads"]
    names = " + ".join(tied(_named(document, workload)) for workload in workloads)
    if len(workloads) > _NAMED_IN_HEAD:
        names = f"{len(workloads)} workloads"
    device = document["device"]
    where = f"{device['name']} ({device['spec']})" if device.get("spec") else device["name"]
    run = [f"run {document['run']}"] if document.get("run") is not None else []
    merged_from = document.get("merged_from")
    if merged_from:
        run.append(origin_words(merged_from))
    parts = [names, *map(tied, (where, goal(document), _measured(document), *run))]
    yield from lines_of(" · ".join(parts), width, "bold")
    if note(document):
        yield from lines_of(note(document), width, _WARNING)


def _named(document: RunDocument, workload: WorkloadDocument) -> str:
    """A workload, with its batch where no table tells it."""
    name, batch = str(workload["name"]), workload.get("batch")
    told = len(document["workloads"]) > 1 and document["best"] is not None
    return name if told or batch in (None, 1) else f"{name}, batch {batch:,}"


def _measured(document: RunDocument) -> str:
    space, status = document["space"], document["status"]
    of = f" of {space['pruned']:,}" if space.get("pruned") is not None else ""
    wall_s = document.get("wall_s")
    lasted = f" in {lasting(wall_s)}" if wall_s is not None else ""
    did = "replayed" if document.get("recorded") else "measured"
    ended = "" if status == "finished" else f"{status}: "
    resumed = f", {document['resumed']} before it was resumed" if document.get("resumed") else ""
    return f"{ended}{space['measured']:,}{of} {did}{lasted}{resumed}"


def _answer(document: RunDocument, width: int) -> Iterator[ReportLine]:
    """The answer: its configuration and numbers, and what it gains."""
    best = document["best"]
    if best is None:
        yield from lines_of(no_answer(document), width, _WARNING)
        return
    if len(document["workloads"]) == 1:
        (configuration,) = best["configurations"].values()
        for line in wrapped(shown_values(configuration) or "no tunables", width, GAP, GAP * 2):
            yield ReportLine(line, "bold")
    for line in wrapped((GAP + " ").join(map(tied, totals(document))), width, GAP):
        yield ReportLine(line, "bold")
    if len(document["workloads"]) > 1:
        yield ReportLine("")
        yield ReportLine(f"workloads ({label(document)})" if label(document) else "workloads")
        head, *rows = workloads_table(document, width)
        yield ReportLine(head, _QUIET)
        yield from map(ReportLine, rows)
        yield ReportLine("")
    yield from map(ReportLine, comparisons(document, width))


def no_answer(document: RunDocument) -> str:
    """Why there is no answer."""
    if document["status"] in ("running", "killed"):
        return f"no answer: the run is {document['status']}"
    return "no valid trial: there is no answer"


def trial_lines(
    document: RunDocument,
    trials: Sequence[RankedTrial],
    total: int,
    width: int,
    *,
    numbered: bool = False,
) -> Iterator[ReportLine]:
    """The table of some trials below its title, which says of how many they are."""
    words = label(document)
    which = f"{total:,}" if len(trials) == total else f"{len(trials):,} of {total:,}"
    mark = f"{words}; " if words else ""
    yield from lines_of(f"trials ({mark}{which}; ± is 95 %)", width)
    if trials:
        head, *rows = trials_table(document, trials, width, numbered=numbered)
        yield ReportLine(head, _QUIET)
        yield from map(ReportLine, rows)


def database_words(database: Path | None) -> str:
    """What a command must say to read this database; empty for the user's own."""
    return "" if database is None else f" --database {shlex.quote(str(database))}"


def _use(document: RunDocument, width: int, named: str, *, more: bool) -> Iterator[ReportLine]:
    """What to paste into a build, and where there is more."""
    best, run, named = document["best"], document.get("run"), f"{point_words(document)}{named}"
    if best is None:
        pass
    elif len(document["workloads"]) == 1:
        use, further = use_of(best, document["workloads"][0], run, named)
        for line in ([f"use: {use}"] if use else []) + further:
            yield from lines_of(line, width)
    elif run is not None:
        yield from lines_of(f"use: {header_command(run, named)}", width)
    if more and run is not None:
        yield from lines_of(f"more: tuner show {run}{named}", width)
