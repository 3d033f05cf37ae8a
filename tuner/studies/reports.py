"""Reports of studies: comparisons as a table and a picture, and the progress of sweeps and trainings."""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from rich.console import Console
from rich.console import Group as Stack
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tuner.model.objective import COVERAGE
from tuner.model.plan import TunableValue
from tuner.model.run_document import AnswerTrial
from tuner.model.units import lasting, percent, percent_with_interval, si, significant, with_uncertainty
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
from tuner.report.power_tables import need_matplotlib, save_figure
from tuner.report.progress import RunProgress, is_live
from tuner.report.rows import BRIEF_TIME, ENERGY, Column, Table, filled
from tuner.report.run_report import database_words
from tuner.report.trials_table import GOALS
from tuner.studies.comparison import CLOSE, TOGETHER, Group, Rules
from tuner.studies.comparison import operation as operation_of
from tuner.studies.scores import ComparisonDocument, Means, OperationDocument
from tuner.studies.sweep import JobResult, SweepReport, change_of, kinds_of, label_of, median_change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table as RichTable
    from typing_extensions import Self

    from tuner.search.answer import Outcome
    from tuner.studies.sweep_file import SweepJob
    from tuner.studies.training import Training


_ROOM_FOR_ALL = 110  # characters
_COLUMNS = 3  # of small pictures
_WIDTH_INCHES, _BARS_INCHES, _ROW_INCHES = 10.0, 2.6, 2.1
_DPI = 80
_GROUP = 0.84  # of the room of an operation, for its bars
_FIRST = 2  # points of a curve that may lie below the picture: the first trials are anybody's guess
_ROOM = 0.1  # below the lowest value shown, by the range to 1
_LEAST_RANGE = 0.02  # of Φ shown: less is noise of the measurements


def show_comparison(document: ComparisonDocument, console: Console) -> None:
    """Print a comparison: per operation the best of all trials, and what every policy made of it."""
    console.print(Text(_title(document), style="bold"))
    if document["operations"]:
        console.print(_table(document, console.width))
    for line in (*_legend(document), *document["notices"]):
        console.print(Text(line))


def plan(groups: Sequence[Group], rules: Rules) -> str:
    """Return a line on the size of a comparison: its policies, spaces, seeds and searches."""
    searches = len(groups) * len(rules.policies) * rules.seeds
    return (
        f"comparing {_counted(len(rules.policies), 'policy', 'policies')}"
        f" on {_counted(len(groups), 'space', 'spaces')}"
        f" of {_counted(len(set(map(operation_of, groups))), 'operation', 'operations')}"
        f" with {_counted(rules.seeds, 'seed', 'seeds')}: {_counted(searches, 'search', 'searches')}"
        + ("" if rules.budget is None else f", each of at most {rules.budget:,} trials")
    )


def provenance_word(document: ComparisonDocument) -> str:
    """Return the provenance of its numbers: ``modelled``, ``recorded`` or ``measured``."""
    if document["modelled"]:
        return "modelled"
    origins = {workload["ground_truth"]["origin"] for workload in document["workloads"]}
    return "recorded" if origins == {"recorded"} else "measured"


def _title(document: ComparisonDocument) -> str:
    device = document["device"]
    if device is None:
        return "nothing to compare yet"
    kind = provenance_word(document)
    note = "modelled: a simulated device made these numbers, no GPU ran" if kind == "modelled" else kind
    stopped = ", interrupted" if document["status"] == "interrupted" else ""
    where = f" ({device['spec']})" if device["spec"] else ""  # spaces of other tuners have none
    return f"{device['name']}{where}, {note}; objective {document['objective']}{stopped}"


class _Row(NamedTuple):
    """Texts of a policy, or of the best of all; dashes for one that an interruption left without figures."""

    operation: str
    policy: str
    phi: str = "–"
    of_seeds: str = "–"
    evaluations: str = "–"
    most: str = "–"
    to_close: str = "–"
    performance: str = "–"
    energy: str = "–"
    search: str = "–"


def _table(document: ComparisonDocument, width: int) -> "RichTable":
    """A row per operation and policy; a narrow console gets what the comparison is about."""
    kind = provenance_word(document)
    columns: list[Column[_Row]] = [
        Column("operation", lambda row: row.operation),
        Column("policy", lambda row: row.policy),
        Column("Φ", lambda row: row.phi, number=True, whole=True),
        Column("Φ of seeds", lambda row: row.of_seeds, number=True, whole=True),
        Column("trials", lambda row: row.evaluations, number=True, whole=True),
        Column("most", lambda row: row.most, number=True, whole=True),
        Column(f"to\n{100 * CLOSE:.0f} %", lambda row: row.to_close, number=True, whole=True),
    ]
    if width >= _ROOM_FOR_ALL:
        columns += [
            Column(f"performance\n({kind})", lambda row: row.performance, number=True, whole=True),
            Column(f"energy\n({kind})", lambda row: row.energy, number=True, whole=True),
            Column("search of\na trial", lambda row: row.search, number=True, whole=True),
        ]
    groups = [list(_rows(operation, document["policies"])) for operation in document["operations"]]
    shown = ruled(Table(columns, [row for group in groups for row in group]))
    shown.collapse_padding = True
    for end in accumulate(map(len, groups)):
        shown.rows[end - 1].end_section = True
    return shown


def _rows(operation: OperationDocument, policies: Sequence[str]) -> Iterator[_Row]:
    """The best, and every policy."""
    best, scores = operation["best"], operation["policies"]
    yield _Row(
        " +".join(operation["operation"].split(TOGETHER)),  # a cell breaks at spaces
        "best of all",
        phi="1",
        of_seeds="",
        evaluations=f"{operation['trials']:,}",
        most="",
        to_close="",
        performance=_rate(best),
        energy=_energy(best),
        search="",
    )
    every, compared = len(operation["workloads"]), len(operation["compared"])
    sizes = _counted(every, "size", "sizes")
    note = f"({sizes})" if compared == every else f"({compared} of {sizes})"
    if not scores:
        yield _Row(note, "no policy yet")
        return
    for number, policy in enumerate(policies):
        beside = note if number == 0 else ""
        if policy not in scores:
            yield _Row(beside, policy)
            continue
        row = scores[policy]
        yield _Row(
            beside,
            policy,
            phi=f"{row['phi']:.4f}",
            of_seeds=f"{row['phi_lowest']:.4f}–{row['phi_highest']:.4f}",
            evaluations=_count(row["evaluations"]),
            most=_count(row["evaluations_most"]),
            to_close=_count(row["evaluations_to_close"]),
            performance=_rate(row),
            energy=_energy(row),
            search=si(row["search_s_per_evaluation"], "s", 2),
        )


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _rate(row: Means) -> str:
    return "–" if row["rate"] is None else f"{significant(row['rate'])} {row['rate_name']}"


def _energy(row: Means) -> str:
    if row["energy_j"] is None or row["energy_j_uncertainty"] is None:
        return "–"
    return with_uncertainty(row["energy_j"], COVERAGE * row["energy_j_uncertainty"], "J")


def _legend(document: ComparisonDocument) -> Iterator[str]:
    if not document["operations"]:
        return
    yield f"best of all: the trials of lowest {document['objective']}, over the same sizes as the policies"
    yield (
        "Φ: harmonic mean over the sizes of the efficiency (best cost / cost of the answer); the median of"
        f" {document['seeds']} seeds, and their lowest – highest"
    )
    yield (
        f"trials: median and maximum of all searches, {document['budget']} allowed;"
        f" to {100 * CLOSE:.0f} %: trials until the answer was so near to the best;"
        " – if most searches never were"
    )
    yield "search of a trial: CPU time of the policy itself for each of them"
    rows = [row for operation in document["operations"] for row in operation["policies"].values()]
    if any(row["energy_j"] is not None for row in rows):
        yield "performance and energy: means over sizes; energy over those with joules, ± is a 95 % interval"


def draw_comparison(document: ComparisonDocument, path: Path) -> None:
    """Draw a comparison into a file: bars of Φ above, below Φ over evaluations for every operation.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    need_matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and optional

    operations = [operation for operation in document["operations"] if operation["policies"]]
    rows = math.ceil(len(operations) / _COLUMNS)
    figure = Figure(
        figsize=(_WIDTH_INCHES, _BARS_INCHES + rows * _ROW_INCHES + 0.6), dpi=_DPI, layout="constrained"
    )
    grid = figure.add_gridspec(1 + rows, _COLUMNS, height_ratios=[_BARS_INCHES, *[_ROW_INCHES] * rows])
    colours = {policy: f"C{number}" for number, policy in enumerate(document["policies"])}
    bars = figure.add_subplot(grid[0, :])
    _bars(bars, operations, colours)
    for place, operation in enumerate(operations):
        axes = figure.add_subplot(grid[1 + place // _COLUMNS, place % _COLUMNS])
        _curves(axes, operation, colours)
        if place + _COLUMNS >= len(operations):  # the lowest of its column
            axes.set_xlabel("trials", fontsize="small")
    handles, labels = bars.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small", frameon=False)
    device = "" if document["device"] is None else document["device"]["name"]
    title = (
        f"Φ by policy on {device} ({provenance_word(document)}), objective {document['objective']},"
        f" {document['seeds']} seeds; bands hold two of three seeds"
    )
    figure.suptitle(title, fontsize="medium", parse_math=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
        save_figure(figure, path)


def _bars(axes: "Axes", operations: Sequence[OperationDocument], colours: Mapping[str, str]) -> None:
    """Φ of every policy by operation, with the range over seeds."""
    width = _GROUP / len(colours)
    for number, (policy, colour) in enumerate(colours.items()):
        rows = [
            (place, o["policies"][policy]) for place, o in enumerate(operations) if policy in o["policies"]
        ]
        middles = [row["phi"] for _, row in rows]
        axes.bar(
            [place + (number + 0.5) * width - _GROUP / 2 for place, _ in rows],
            middles,
            width,
            color=colour,
            label=policy,
            yerr=[
                [max(0.0, phi - row["phi_lowest"]) for phi, (_, row) in zip(middles, rows, strict=True)],
                [max(0.0, row["phi_highest"] - phi) for phi, (_, row) in zip(middles, rows, strict=True)],
            ],
            error_kw={"lw": 0.8, "ecolor": "0.3"},
        )
    every = [row["phi_lowest"] for o in operations for row in o["policies"].values()]
    axes.set_ylim(*_limits(every))
    axes.set_xticks(range(len(operations)), [_short(o["operation"], 1) for o in operations], fontsize="small")
    axes.set_ylabel("Φ")
    axes.grid(axis="y", alpha=0.3)


def _curves(axes: "Axes", operation: OperationDocument, colours: Mapping[str, str]) -> None:
    """Φ over evaluations: median and band over seeds, dotted from the end of the last play on."""
    last = max(row["curve"]["evaluations"][-1] for row in operation["policies"].values())
    lows: list[float] = []
    for policy, row in operation["policies"].items():
        curve, colour = row["curve"], colours[policy]
        counts, median = curve["evaluations"], curve["median"]
        axes.plot(counts, median, color=colour, lw=1.2)
        axes.plot(counts[-1], median[-1], "o", ms=3.0, color=colour)
        axes.plot((counts[-1], last), (median[-1], median[-1]), ":", color=colour, lw=1.0)
        axes.fill_between(counts, curve["low"], curve["high"], color=colour, alpha=0.15, lw=0)
        lows += median[_FIRST:] or median[-1:]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(*_limits(lows))
    axes.set_title(_short(operation["operation"], 2), fontsize="small", parse_math=False)
    axes.tick_params(labelsize="x-small")
    axes.grid(alpha=0.3)


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Of the axis of Φ: from a little below the lowest value to 1; where all plays failed, it is left out."""
    span = max(_LEAST_RANGE, 1.0 - min((value for value in values if value > 0.0), default=0.0))
    return max(0.0, 1.0 - (1.0 + _ROOM) * span), 1.0 + 0.03 * span


def _short(operation: str, kernels: int) -> str:
    """A name that has room: so many kernels of a co-run in a line."""
    parts = operation.split(TOGETHER)
    lines = [TOGETHER.join(parts[i : i + kernels]) for i in range(0, len(parts), kernels)]
    return f"{TOGETHER}\n".join(lines)


# --- Progress and reports of sweeps and trainings.

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

    def _view(self) -> Stack:
        """The bar, and the jobs that run, the longest first."""
        now_s = time.monotonic()
        running = list(self._running.values())
        lines = [f"  {lasting(now_s - at_s):>8}  {job.title}" for job, at_s in running[:_MOST_RUNNING]]
        lines += [f"  and {len(running) - _MOST_RUNNING} more"] if len(running) > _MOST_RUNNING else []
        return Stack(self._bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

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


def _group(members: Sequence[JobResult], width: int, *, one_by_one: bool) -> Stack:
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
