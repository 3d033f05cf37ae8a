"""Live progress of runs, comparisons and jobs."""

import math
import pwd
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tuner.model.jobs import OWN, Job, Origin
from tuner.model.objective import OF_SINGLES, UNITS
from tuner.model.options import SINGLE
from tuner.model.units import lasting, si
from tuner.report.layout import PlainConsole, is_reason

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from typing_extensions import Self

    from tuner.search.session import TrialEvent


# --- What a job of the daemon is, in words.

_ASKED_BY = {
    Origin.CLIENT: "submitted",
    Origin.SET: "a set of daemon.toml",
    Origin.STALE: "the daemon, as an answer went stale",
    Origin.DRIFT: "the daemon, as a sample drifted",
    Origin.REQUEST: "the daemon, after a question",
    Origin.CHECK: "the daemon, to check an answer",
}


def asked_for(job: Job) -> str:
    """Return the origin of a job in words; an origin of a newer daemon is not changed."""
    who = _ASKED_BY.get(job.origin, job.origin)
    return who if job.submitter is None else f"{who}, {_user(job.submitter)}"


def _user(uid: int | str) -> str:
    if isinstance(uid, str):
        return uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def priority_of(job: Job) -> str:
    """The daemon's own work has one that only says what of it goes first."""
    return "own" if job.origin in OWN else f"{job.priority:g}"


def search_of(job: Job) -> str:
    """Objective, limit and clocks of a job, as far as they were chosen."""
    slower = job.options.get("max_slowdown")
    limit = "" if slower is None else f", at most {100 * slower:g} % slower"
    clocks = "" if job.clocks == "off" else f", clocks {job.clocks}"
    how = f"verify, else {job.policy}" if job.options.get("verify") else job.policy
    singles = OF_SINGLES if job.options.get("timing") == SINGLE else ""
    return f"{job.objective}{singles}{limit}, {how}{clocks}"


# --- Bars of runs and comparisons.

_HOUR_S = 3600.0
_ROOM_FOR_BAR = 130  # characters: on fewer the numbers are what is wanted
_PLAIN_INTERVAL_S = 5.0  # between lines where there is no terminal
_TOLD_EVERY = 10  # trials


def is_live(console: "Console") -> bool:
    """Return True if a display can be redrawn: on a terminal, and in a notebook that has ``ipywidgets``."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


class RunProgress:
    """A progress display on standard error: live on a terminal, occasional lines elsewhere.

    Args:
        objective: whose costs are shown.
        label: of what the numbers are, such as modelled.
        tells_trials: on what is no terminal, a line for every new best and every tenth trial.
        verbose: with the reasons that a policy has for its choices.
        beside: a program prints to the terminal, too: lines alone.
        compiles: tell how many configurations are compiled; a program needs none.
    """

    def __init__(
        self,
        objective: str,
        label: str = "",
        *,
        tells_trials: bool = False,
        verbose: bool = False,
        beside: bool = False,
        compiles: bool = True,
    ) -> None:
        self._unit = UNITS[objective]
        self._label = f" ({label})" if label else ""
        self._tells_trials = tells_trials
        self._verbose = verbose
        self._compiles = compiles
        self._lowest = math.inf
        self._compiled = 0
        self._measuring = False
        self._console = PlainConsole(stderr=True)
        self._display = _bars(self._console) if is_live(self._console) and not beside else None
        self._task: TaskID | None = None
        self._phase = ""
        self._begun_s = time.monotonic()
        self._told_s = self._begun_s

    def __enter__(self) -> "Self":
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def compiled(self, done: int, total: int) -> None:
        """Called while configurations are compiled: so many of those asked for so far.

        Once trials are measured, the number stands beside them.
        """
        self._compiled = done if self._compiles else 0
        if self._compiles and not self._measuring:
            self._show("compiling", done, total, "")

    def warming(self, watts: float, seconds: float) -> None:
        """Called after every window of the warm-up."""
        self._show("warming up", round(seconds), None, f"s, {si(watts, 'W')}")

    def measured(self, event: "TrialEvent") -> None:
        """Called by the session after every trial."""
        self._label = f" ({event.label})" if event.label else ""
        self.trial(
            number=event.number,
            status=event.measurement.status.value,
            cost=event.cost,
            best=event.best_cost,
            joules=event.joules,
            expected=event.expected,
            confirming=event.confirming,
            unit=UNITS.get(event.objective, ""),
            gpus=event.gpus,
        )

    def trial(
        self,
        *,
        number: int,
        status: str,
        cost: float | None,
        best: float | None,
        joules: float | None,
        expected: int | None,
        confirming: bool,
        unit: str = "",
        gpus: int = 1,
    ) -> None:
        """A trial has ended; costs that are no number are none. No unit means that of the objective."""
        if unit and unit != self._unit:  # the search for the fastest, or the one after it
            self._unit, self._lowest = unit, math.inf
        lowest = self._cost(best) or "none yet"
        spent = f"{si(joules, 'J')} spent" if joules else ""
        compiled = f"{self._compiled} compiled" if self._compiled else ""
        self._measuring = True
        left = self._left(number, expected, confirming=confirming)
        several = f"on {gpus} GPUs" if gpus > 1 else ""
        parts = (
            f"trial {self._cost(cost) or ('without joules' if status == 'ok' else status)}",
            f"best {lowest}{self._label}",
            spent,
            compiled,
            several,
            left,
        )
        detail = ", ".join(part for part in parts if part)
        if number == 1 and not confirming:  # of the next search: one run may come after another
            self._lowest = math.inf
        better = best is not None and best < self._lowest
        self._lowest = best if best is not None and better else self._lowest
        if self._tells_trials and (better or (number % _TOLD_EVERY == 0 and not confirming)):
            self._told_s = -math.inf
        self._show("confirming" if confirming else "measuring", number, expected, detail)

    def told(self, sentence: str) -> None:
        """Called with what is worth knowing before the report, which says itself how the search ended."""
        shown_besides = ("done: ",) if self._display is None else ("done: ", "first answer: ")
        if sentence.startswith(shown_besides) or (is_reason(sentence) and not self._verbose):
            return
        whole = not self._console.is_terminal  # a file or a pipe gets whole lines
        self._console.print(sentence, soft_wrap=whole)

    def _cost(self, value: float | None) -> str:
        return si(value, self._unit) if value is not None and math.isfinite(value) else ""

    def _left(self, number: int, expected: int | None, *, confirming: bool) -> str:
        """Time left by the pace so far; empty where a policy ends its search by itself."""
        if expected is None:
            return "" if confirming else "until more does not pay"
        left_s = (time.monotonic() - self._begun_s) / number * max(0, expected - number)
        return f"{left_s:.0f} s left" if left_s < _HOUR_S else f"{left_s / _HOUR_S:.1f} h left"

    def _show(self, phase: str, done: int, total: int | None, detail: str) -> None:
        count = f"{done}" if total is None else f"{done}/{total}"
        if phase != self._phase:
            self._phase, self._begun_s = phase, time.monotonic()
            if self._display is not None and self._task is not None:
                self._display.remove_task(self._task)
            self._task = None
        if self._display is not None:
            if self._task is None:
                self._task = self._display.add_task(phase, total=total, detail=detail, count=count)
            self._display.update(self._task, completed=done, total=total, detail=detail, count=count)
        elif (now_s := time.monotonic()) - self._told_s >= _PLAIN_INTERVAL_S:
            self._told_s = now_s
            line = f"{phase} {count}: {detail}" if detail else f"{phase} {count}"
            self._console.print(line, soft_wrap=True)


def _bars(console: "Console") -> "Progress":
    """The display of a terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - where one is
    from rich.table import Column  # noqa: PLC0415 - same

    bar = [BarColumn(bar_width=24)] if console.width >= _ROOM_FOR_BAR else []
    return Progress(
        TextColumn("{task.description}", markup=False),
        *bar,
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        expand=True,  # so that the details are what a narrow terminal cuts
        transient=True,
    )


class CompareProgress(RunProgress):
    """The progress of a comparison: the space that is measured, then the searches of all spaces."""

    def __init__(self, objective: str) -> None:
        super().__init__(objective)
        self._space = ""
        self._trials: Sequence[int] = ()
        self._each = 1
        self._searches = 0
        self._work = 0  # of a search: the trials of its space, which its duration grows with
        self._first = 0.0, 0  # when the first search ended, and its work

    def space(self, name: str, number: int, total: int) -> None:
        """Called before each ground truth is taken."""
        self._space = f"{name} (space {number}/{total}): "
        self._compiled, self._measuring = 0, False

    def searches(self, trials: Sequence[int], each: int) -> None:
        """Called before the first search: the trials of every space, and the searches on each."""
        self._space = ""
        self._trials, self._each = trials, each

    def searched(self, space: int, detail: str) -> None:
        """Called after every search: the place of its space, and which it was."""
        self._searches += 1
        self._work += self._trials[space]
        if self._searches == 1:  # processes that start are not the pace
            self._first = time.monotonic(), self._work
        parts = (f"space {space + 1}/{len(self._trials)}", self._left_of_all(), detail)
        total = len(self._trials) * self._each
        self._show("searching", self._searches, total, ", ".join(part for part in parts if part))

    def _left_of_all(self) -> str:
        """Time left for all searches; empty until each policy has been seen on a space."""
        begun_s, begun = self._first
        work = sum(self._trials) * self._each
        if self._searches <= self._each or self._work == work:
            return ""
        left_s = (time.monotonic() - begun_s) / (self._work - begun) * (work - self._work)
        return f"about {lasting(left_s)} left for all"

    def _left(self, number: int, expected: int | None, *, confirming: bool) -> str:
        left = super()._left(number, expected, confirming=confirming)
        return left if expected is None else f"{left} for this space"  # nobody knows that of the next ones

    def _show(self, phase: str, done: int, total: int | None, detail: str) -> None:
        super()._show(f"{self._space}{phase}", done, total, detail)
