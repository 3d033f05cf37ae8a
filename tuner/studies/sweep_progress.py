"""Progress and reports of sweeps and trainings."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tuner.model.plan import TunableValue
from tuner.model.run_document import AnswerTrial
from tuner.model.units import lasting, percent, percent_with_interval
from tuner.prediction.model import Accuracy
from tuner.report.layout import (
    GAP,
    LEAST_WIDTH,
    PlainConsole,
    ReportLine,
    lines_of,
    rendered,
    ruled,
    table_lines,
)
from tuner.report.progress import RunProgress, is_live
from tuner.report.rows import BRIEF_TIME, ENERGY, Column, Table, filled
from tuner.report.run_report import database_words
from tuner.report.trials_table import GOALS
from tuner.studies.sweep import JobResult, SweepReport, change_of, kinds_of, label_of, median_change

if TYPE_CHECKING:
    from typing_extensions import Self

    from tuner.search.answer import Outcome
    from tuner.studies.sweep_file import SweepJob
    from tuner.studies.training import Training


_PLAIN_INTERVAL_S = 5.0  # between lines where there is no terminal
_MOST_RUNNING = 8  # lines of jobs that run


class SweepProgress:
    """A progress display on standard error: live on a terminal, occasional lines elsewhere."""

    def __init__(self) -> None:
        self._console = PlainConsole(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._is_live = is_live(self._console)
        self._task = self._bar.add_task("sweep", detail="", start=False)
        self._report: SweepReport | None = None
        self._running: dict[str, tuple[SweepJob, float]] = {}
        self._begun_s = self._told_s = time.monotonic()
        self._known = 0
        self._live = Live(console=self._console, transient=True, get_renderable=self._view)

    def __enter__(self) -> "Self":
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begun(self, report: "SweepReport") -> None:
        """See ``SweepObserver``."""
        self._report, self._known = report, len(report.results)
        self._begun_s = self._told_s = time.monotonic()
        total = len(report.jobs)
        there = f", {self._known} answered before" if self._known else ""
        self._line(f"sweep of {total} job{'s' if total > 1 else ''} on {report.where}{there}")
        self._bar.reset(self._task, total=total, completed=self._known)

    def started(self, job: "SweepJob") -> None:
        """See ``SweepObserver``."""
        self._running[job.key] = (job, time.monotonic())

    def ended(self, result: "JobResult") -> None:
        """See ``SweepObserver``."""
        self._running.pop(result.job.key, None)
        done, total, detail = self._state()
        self._bar.update(self._task, completed=done, detail=detail)
        if result.end == "failed":
            self._line(f"failed: {result.job.title}: {result.reason}")
        now_s = time.monotonic()
        if not self._is_live and (now_s - self._told_s >= _PLAIN_INTERVAL_S or done == total):
            self._told_s = now_s
            self._line(f"{done}/{total} jobs: {detail}; last {_ended(result)}")

    def _state(self) -> tuple[int, int, str]:
        """Jobs that have ended, all jobs, and the rest in words."""
        if self._report is None:
            return 0, 0, ""
        done, total = len(self._report.results), len(self._report.jobs)
        new = done - self._known
        failed = self._report.counts["failed"]
        parts = [f"{len(self._running)} running"]
        parts += [f"{failed} failed"] if failed else []
        if new and done < total:
            left_s = (time.monotonic() - self._begun_s) / new * (total - done)
            parts.append(f"{lasting(left_s)} left")
        return done, total, ", ".join(parts)

    def _view(self) -> Group:
        """The bar, and the jobs that run, the longest first."""
        now_s = time.monotonic()
        running = list(self._running.values())
        lines = [f"  {lasting(now_s - at_s):>8}  {job.title}" for job, at_s in running[:_MOST_RUNNING]]
        lines += [f"  and {len(running) - _MOST_RUNNING} more"] if len(running) > _MOST_RUNNING else []
        return Group(self._bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=not self._console.is_terminal)


def _ended(result: "JobResult") -> str:
    change = change_of(result)
    against = ""
    if change is not None:
        words = f"{percent_with_interval(*change)} against the default {label_of(result.kind)}"
        against = f", {words.rstrip()}"
    return f"{result.job.title} in {lasting(result.seconds)}{against}"


# --- The table of a training: how well each method predicts inputs it has not seen.


class TrainingProgress(RunProgress):
    """The progress of a training: the input, its run, and the inputs that were left out."""

    def __init__(self, objective: str) -> None:
        super().__init__(objective)
        self._input = ""

    def begins(self, number: int, total: int, workload: str) -> None:
        """An input is looked at."""
        self._input = f"{workload} ({number}/{total}): "
        self._compiled, self._measuring = 0, False

    def ended(self, number: int, total: int, outcome: "Outcome") -> None:
        """An input was looked at."""
        self.told(f"input {number} of {total}: {_line(outcome)}")
        self._input = ""

    def judged(self, number: int, total: int) -> None:
        """So many inputs were left out and predicted."""
        self._show("leaving inputs out", number, total, "")

    def _show(self, phase: str, done: int, total: int | None, detail: str) -> None:
        super()._show(f"{self._input}{phase}", done, total, detail)


def _line(outcome: "Outcome") -> str:
    """Return a line on the result of one input."""
    document = outcome.document
    name, measured = document["workloads"][0]["name"], len(outcome.trials)
    best = document["best"]
    if best is None:
        return f"{name}: no valid trial of {measured}"
    return f"{name}: {measured} trials, {_configuration(best['configurations'][name])}"


def show_training(training: "Training", console: Console) -> None:
    """Print what a training learned."""
    model = training.model
    kind = "modelled: a simulated device made the numbers" if model.device.modelled else "measured"
    console.print(Text(f"{model.kernel} on {model.device.name}, {kind}; for {model.objective}", style="bold"))
    console.print(
        Text(
            f"{len(training.data.inputs)} inputs, {training.data.trials} trials in all;"
            f" this training measured {training.looked_at} inputs with {training.evaluations} trials"
            f" in {training.seconds:.1f} s, {training.known} were known"
        )
    )
    accuracies: list[Column[Accuracy]] = [
        Column("inputs", lambda one: str(one.inputs), number=True),
        Column("exact", lambda one: _percent(one.exact), number=True),
        Column("within 2 %", lambda one: _percent(one.within[0]), number=True),
        Column("5 %", lambda one: _percent(one.within[1]), number=True),
        Column("10 %", lambda one: _percent(one.within[2]), number=True),
        Column("mean", lambda one: _factor(one.mean), number=True),
        Column("worst", lambda one: _factor(one.worst), number=True),
        Column("best of 4 within 5 %", lambda one: _percent(one.within_of_first[1]), number=True),
        Column("mean", lambda one: _factor(one.mean_of_first), number=True),
    ]

    def accuracy_of(row: tuple[str, Accuracy]) -> Accuracy:
        return row[1]

    columns: list[Column[tuple[str, Accuracy]]] = [
        Column("method", lambda row: row[0]),
        *(column.of(accuracy_of) for column in accuracies),
    ]
    methods = [(method, Accuracy.of(left_out)) for method, left_out in training.left_out.items()]
    console.print(ruled(Table(columns, methods)))
    console.print(
        Text("each input predicted from the others alone; mean and worst: its cost by that of the best")
    )
    for place, version in enumerate(model.portfolio.versions):
        console.print(Text(f"version {place}: {_configuration(version)}"))
    console.print(Text(f"kept: {model.claim}"))


def _configuration(values: Mapping[str, TunableValue]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _percent(share: float) -> str | None:
    return None if math.isnan(share) else f"{100 * share:.0f} %"


def _factor(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:.3f}"


# --- The report of a sweep.

MOST_ROWS = 60
"""Jobs that are shown one by one; more are in ``--json``."""

_MOST_FAILED = 20


def show_sweep(report: SweepReport, out: Console, database: Path | None = None) -> None:
    """Print the report.

    Args:
        report: of the sweep.
        out: where to print.
        database: that commands must name which read more of its runs; None for the user's own.
    """
    results = report.in_order()
    alike: dict[tuple[str, str, str], list[JobResult]] = {}
    for one in results:
        alike.setdefault((one.job.group, one.job.device, one.job.goal), []).append(one)
    for members in alike.values():
        out.print(_group(members, out.width, one_by_one=len(results) <= MOST_ROWS))
    _show_failed(report.failed, out)
    for line in _summary(report, database_words(database)):
        out.print(line, soft_wrap=True)


def _group(members: Sequence[JobResult], width: int, *, one_by_one: bool) -> Group:
    """The jobs of a group, a device and an objective: a title, a row each, and what they gain together."""
    width, job, kinds = max(width, LEAST_WIDTH), members[0].job, kinds_of(members)
    label = f" {label_of('; '.join(kinds))}".rstrip()
    where = job.device or "any device"
    goal = GOALS.get(job.goal, job.goal)
    lines = lines_of(f"{job.group} · {where} · {goal}{label}", width, "bold")
    elsewhere = any((one.device or job.device) != job.device for one in members)
    columns: list[Column[JobResult]] = [
        Column("workloads", lambda one: " + ".join(one.job.workloads)),
        *([Column[JobResult]("device", lambda one: one.device or None)] if elsewhere else []),
        *([Column[JobResult]("numbers", _kind)] if len(kinds) > 1 else []),
        BRIEF_TIME.of(_answer),
        *filled([ENERGY.of(_answer)], members),
        replace(_CHANGE, name="against default").of(change_of),
        Column("trials", _trials, number=True, rank=1),
        Column("run", _run, number=True),
    ]
    if one_by_one:
        lines += table_lines(Table(columns, members), width, indent=GAP, head="dim")
    median, known = median_change(members), sum(one.end == "known" for one in members)
    failed = sum(one.end == "failed" for one in members)
    parts = [
        f"{len(members)} job{'s' if len(members) > 1 else ''}",
        *([f"{known} answered before"] if known else []),
        *([f"{failed} failed"] if failed else []),
        *([] if median is None else [f"median {percent(median)} against the default{label}"]),
        f"tuning took {lasting(sum(one.seconds for one in members))}",
    ]
    return rendered([*lines, *lines_of(GAP + ", ".join(parts), width), ReportLine("")])


_CHANGE = Column[tuple[float, float | None]]("", lambda change: change[0], "%", half=lambda change: change[1])


def _answer(one: JobResult) -> AnswerTrial | None:
    return cast("AnswerTrial | None", one.answer)  # has the keys of one, see ``answer_of``


def _trials(one: JobResult) -> str | None:
    return None if one.answer is None else str(one.answer["trials"])


def _run(one: JobResult) -> str | None:
    return None if one.run is None else f"{one.run}{' (before)' if one.end == 'known' else ''}"


def _kind(one: JobResult) -> str | None:
    return "; ".join(kinds_of([one])) or None


def _show_failed(failed: Sequence[JobResult], out: Console) -> None:
    """The jobs that failed with their reasons, those of one reason together."""
    reasons: dict[str, list[JobResult]] = {}
    for one in failed:
        reasons.setdefault(one.reason, []).append(one)
    for reason, members in list(reasons.items())[:_MOST_FAILED]:
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        text = f"failed: {members[0].job.title}{more}: {reason}"
        out.print(text, soft_wrap=True)
    if len(reasons) > _MOST_FAILED:
        out.print(f"and {len(reasons) - _MOST_FAILED} more reasons")


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
        lines.append(f"± is 95 %; more of a run: `tuner show RUN{named}`, `tuner report RUN{named}`")
    return lines
