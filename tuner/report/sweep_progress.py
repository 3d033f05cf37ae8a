"""Live progress of a sweep: jobs that ended, what runs now, time left."""

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tuner.report.console import PlainConsole
from tuner.report.progress import is_live
from tuner.report.words import lasting, percent_with_interval
from tuner.sweep.results import change_of, label_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from tuner.sweep.jobs import SweepJob
    from tuner.sweep.results import JobResult, SweepReport


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        self._console.print(text, markup=False, highlight=False, soft_wrap=not self._console.is_terminal)


def _ended(result: "JobResult") -> str:
    change = change_of(result)
    against = ""
    if change is not None:
        words = f"{percent_with_interval(*change)} against the default {label_of(result.kind)}"
        against = f", {words.rstrip()}"
    return f"{result.job.title} in {lasting(result.seconds)}{against}"
