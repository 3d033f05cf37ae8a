"""A sweep as a whole: what was found in each group, every job of a short one, and what failed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group

from tuner.report.layout import LEAST_WIDTH, ReportLine, rendered, table
from tuner.report.run_report import database_words
from tuner.report.trials_table import energy_of, interval
from tuner.report.words import lasting, percent, percent_with_interval, with_uncertainty
from tuner.sweep.results import JobResult, SweepReport, change_of, kinds_of, label_of, median_change

MOST_ROWS = 60
"""Jobs that are shown one by one; more are in ``--json``."""

_MOST_FAILED = 20
_NO_VALUE = "–"
_INTERVALS = "± is 95 %"


def show_sweep(report: SweepReport, out: Console, database: Path | None = None) -> None:
    """Print the report.

    Args:
        report: of the sweep.
        out: where to print.
        database: that commands must name which read more of its runs; None for the user's own.
    """
    results = report.in_order()
    if results:
        if len(results) <= MOST_ROWS:
            out.print(_jobs(results, out.width))
        out.print(_groups(results, out.width))
    _show_failed(report.failed, out)
    if len(results) <= MOST_ROWS and any(one.answer is not None for one in results):
        out.print(_INTERVALS, markup=False, highlight=False)
    for line in _summary(report, database_words(database)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _jobs(results: Sequence[JobResult], width: int) -> Group:
    kinds = kinds_of(results)
    label = _head_label(kinds)
    numbers = [f"{name}{label}" for name in ("time", "energy", "against the default")]
    heads = ["workloads", "device", "objective", *_kind_head(kinds), *numbers, "trials", "run"]
    rows = [_job(one, kinds) for one in results]
    return _table([heads, *rows], width, texts=3 + len(_kind_head(kinds)))


def _job(one: JobResult, kinds: Sequence[str]) -> list[str]:
    return [
        " + ".join(one.job.workloads),
        one.device or one.job.device or _NO_VALUE,
        one.job.objective,
        *_kind_cell(kinds, [one]),
        *_amounts(one.answer),
        _change(one),
        _NO_VALUE if one.answer is None else str(one.answer["trials"]),
        _NO_VALUE if one.run is None else f"{one.run}{' (before)' if one.end == 'known' else ''}",
    ]


def _groups(results: Sequence[JobResult], width: int) -> Group:
    """One row for each group, device and objective; what tuning took is measured on simulated devices too."""
    kinds = kinds_of(results)
    numbers = [f"median change{_head_label(kinds)}", "tuning took (wall time)"]
    counts = ["jobs", "answered before", "failed"]
    rows = [["group", "device", "objective", *_kind_head(kinds), *counts, *numbers]]
    alike: dict[tuple[str, str, str], list[JobResult]] = {}
    for one in results:
        alike.setdefault((one.job.group, one.job.device, one.job.objective), []).append(one)
    for (group, device, objective), members in alike.items():
        ends = [one.end for one in members]
        rows.append(
            [
                group,
                device or _NO_VALUE,
                objective,
                *_kind_cell(kinds, members),
                str(len(members)),
                str(ends.count("known")),
                str(ends.count("failed")),
                percent(median_change(members)),
                lasting(sum(one.seconds for one in members)),
            ]
        )
    return _table(rows, width, texts=3 + len(_kind_head(kinds)))


def _show_failed(failed: Sequence[JobResult], out: Console) -> None:
    """The jobs that failed with their reasons, those of one reason together."""
    reasons: dict[str, list[JobResult]] = {}
    for one in failed:
        reasons.setdefault(one.reason, []).append(one)
    for reason, members in list(reasons.items())[:_MOST_FAILED]:
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        text = f"failed: {members[0].job.title}{more}: {reason}"
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    if len(reasons) > _MOST_FAILED:
        out.print(f"and {len(reasons) - _MOST_FAILED} more reasons", markup=False, highlight=False)


def _summary(report: SweepReport, named: str) -> list[str]:
    counts = report.counts
    ended = f"{len(report.results)} of {len(report.jobs)} jobs have an end"
    parts = [
        f"{counts['finished']} finished",
        f"{counts['known']} answered before",
        f"{counts['failed']} failed",
    ]
    lines = [f"{ended}: {', '.join(parts)}; {lasting(report.wall_s)} on {report.where}"]
    if report.left:
        lines.append(f"{report.left} left; the same command goes on from here")
    elif report.failed:
        lines.append("the same command tries those again that failed")
    if any(one.run is not None for one in report.results):
        lines.append(f"more of a run: `tuner show RUN{named}`, `tuner report RUN{named}`")
    return lines


def _table(rows: Sequence[Sequence[str]], width: int, *, texts: int) -> Group:
    """Rows below their heads; where they are too wide, each cell behind its head.

    Args:
        rows: the heads first.
        width: of the console.
        texts: how many columns are text; the others are numbers.
    """
    lines = table(rows, [""] * len(rows), max(width, LEAST_WIDTH), right=range(texts, len(rows[0])))
    return rendered([*map(ReportLine, lines), ReportLine("")])


def _head_label(kinds: Sequence[str]) -> str:
    """What stands behind the heads of numbers that are all of one kind."""
    return f" {label_of(kinds[0])}".rstrip() if len(kinds) == 1 else ""


def _kind_head(kinds: Sequence[str]) -> list[str]:
    """The head of a column that says what numbers of each row are; none where the other heads do."""
    return ["numbers"] if len(kinds) > 1 else []


def _kind_cell(kinds: Sequence[str], results: Sequence[JobResult]) -> list[str]:
    """The cell of that column."""
    return ["; ".join(kinds_of(results)) or _NO_VALUE] if len(kinds) > 1 else []


def _amounts(answer: Mapping[str, Any] | None) -> tuple[str, str]:
    if answer is None:
        return _NO_VALUE, _NO_VALUE
    return (
        with_uncertainty(answer["time_s"], interval(answer["time_s_uncertainty"]), "s"),
        energy_of(answer),
    )


def _change(one: JobResult) -> str:
    change = change_of(one)
    return _NO_VALUE if change is None else percent_with_interval(*change)
