"""A sweep as a whole: what was found in each group, every job of a short one, and what failed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tuner.report.run_report import database_words
from tuner.report.words import lasting, percent, percent_with_interval, with_uncertainty
from tuner.sweep.results import JobResult, SweepReport, change_of, median_change, suffix_of

MOST_ROWS = 60
"""Jobs that are shown one by one; more are in ``--json``."""

_MOST_FAILED = 20
_NO_VALUE = "–"


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
            out.print(_jobs(results))
        out.print(_groups(results))
    _show_failed(report.failed, out)
    for line in _summary(report, database_words(database)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _jobs(results: Sequence[JobResult]) -> Table:
    table = _table("workloads", "device", "objective")
    for title in ("time", "energy", "against the default", "trials", "run"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in results:
        table.add_row(
            "\n".join(one.job.workloads),
            one.device or one.job.device or _NO_VALUE,
            one.job.objective,
            *_amounts(one.answer),
            _change(one),
            _NO_VALUE if one.answer is None else str(one.answer["trials"]),
            _NO_VALUE if one.run is None else f"{one.run}{' (before)' if one.end == 'known' else ''}",
        )
    return table


def _groups(results: Sequence[JobResult]) -> Table:
    """One row for each group, device and objective."""
    table = _table("group", "device", "objective")
    for title in ("jobs", "answered before", "failed", "median change", "tuning took"):
        table.add_column(title, justify="right", no_wrap=True)
    rows: dict[tuple[str, str, str], list[JobResult]] = {}
    for one in results:
        rows.setdefault((one.job.group, one.job.device, one.job.objective), []).append(one)
    for (group, device, objective), members in rows.items():
        ends = [one.end for one in members]
        table.add_row(
            group,
            device or _NO_VALUE,
            objective,
            str(len(members)),
            str(ends.count("known")),
            str(ends.count("failed")),
            f"{percent(median_change(members))}{suffix_of(members)}",
            lasting(sum(one.seconds for one in members)),
        )
    return table


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


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _amounts(answer: Mapping[str, Any] | None) -> tuple[str, str]:
    if answer is None:
        return _NO_VALUE, _NO_VALUE
    return (
        with_uncertainty(answer["time_s"], answer["time_s_uncertainty"], "s"),
        with_uncertainty(answer["energy_j"], answer["energy_j_uncertainty"], "J"),
    )


def _change(one: JobResult) -> str:
    change = change_of(one)
    return _NO_VALUE if change is None else f"{percent_with_interval(*change)}{suffix_of([one])}"
