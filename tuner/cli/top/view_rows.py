"""The rows of the view: devices, jobs, answers and trials."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from rich.cells import cell_len, set_cell_size

from tuner.cli.top.live_state import LiveSearch, LiveState
from tuner.client.answer_values import DeviceStatus, PowerSample, ServedAnswer, TrialData
from tuner.model.jobs import Job, JobState
from tuner.model.objective import NAMES, UNITS
from tuner.model.plan import shown_values
from tuner.model.run_document import AnswerTrial, Changes, Configurations
from tuner.model.units import (
    MODELLED,
    lasting,
    moment,
    si,
    with_moments,
    with_uncertainty,
)
from tuner.report.progress import asked_for, priority_of, search_of
from tuner.report.rows import ENERGY, ENERGY_CHANGE, TIME, TIME_CHANGE, Column, Value, filled
from tuner.report.trials_table import cost_of
from tuner.system.untrusted.reading import plain, plain_line

# --- Tables of the view as plain values: rows, in an order, through a filter, and fitted to a width.

Thing = TypeVar("Thing")

_CUT = "…"
_ROOMY = 100  # characters: from here on columns stand two spaces apart


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        key: what it is of, so that it is found again.
        cells: a text per column.
        values: what it is sorted by, per column.
        details: what the cells have no room for.
        style: ``best``, ``bad`` or empty.
    """

    key: str
    cells: tuple[str, ...]
    values: tuple[Value, ...]
    details: str = ""
    style: str = ""


@dataclass(frozen=True)
class Listing:
    """A table, and what is said about it.

    Attributes:
        title: of the table.
        columns: one for each cell of a row.
        rows: in the order in which they are shown unless the user chooses another.
        caption: what stands below.
        empty: what is said where there is no row.
    """

    title: str
    columns: Sequence[Column[Any]]
    rows: tuple[Row, ...]
    caption: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Arrangement:
    """The order and the filter that the user has chosen for a table.

    Attributes:
        column: that rows are sorted by; None for their own order.
        descending: the highest first.
        text: that a row must contain, in any case.
    """

    column: int | None = None
    descending: bool = False
    text: str = ""

    def sorted_by_next(self, count: int) -> "Arrangement":
        """The order of the next of so many columns; after the last, that of the rows themselves."""
        following = 0 if self.column is None else self.column + 1
        return Arrangement(None if following >= count else following, descending=False, text=self.text)

    def turned(self) -> "Arrangement":
        """The opposite order."""
        return Arrangement(self.column, not self.descending, self.text)

    def words(self, columns: Sequence[Column[Any]]) -> str:
        """Order and filter, for the title; empty for none."""
        parts = []
        if self.column is not None and self.column < len(columns):
            parts.append(f"by {columns[self.column].name} {'↓' if self.descending else '↑'}")
        elif self.descending:
            parts.append("in reverse")
        return ", ".join([*parts, *([f"with “{self.text}”"] if self.text else [])])


def painted(
    columns: Sequence[Column[Thing]], thing: Thing, key: object, details: str = "", style: str = ""
) -> Row:
    """The row of a thing. In texts from outside, what a terminal would act on is replaced."""
    cells = tuple(plain_line(column.text(thing)) for column in columns)
    return Row(str(key), cells, tuple(column.order(thing) for column in columns), plain(details), style)


def arranged(rows: Sequence[Row], arrangement: Arrangement) -> list[Row]:
    """The rows that pass the filter, in the order chosen; values that are not known stand last."""
    text = arrangement.text.casefold()
    matching = list(rows)
    if text:
        matching = [row for row in rows if text in "\n".join((*row.cells, row.details)).casefold()]
    column = arrangement.column
    if column is None:
        return matching[::-1] if arrangement.descending else matching

    def order(row: Row) -> tuple[int, float, str]:
        value = row.values[column]
        return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))

    valued = [row for row in matching if row.values[column] is not None]
    valued.sort(key=order, reverse=arrangement.descending)
    return valued + [row for row in matching if row.values[column] is None]


def gap(width: int) -> int:
    """Spaces between two columns."""
    return 2 if width >= _ROOMY else 1


def fitted(columns: Sequence[Column[Any]], rows: Sequence[Row], width: int) -> list[tuple[int, int]]:
    """Number and width of each column that is shown.

    Args:
        columns: of the table.
        rows: that are shown.
        width: characters of a line.
    """
    natural = [
        max([cell_len(column.name), *(cell_len(row.cells[place]) for row in rows)])
        for place, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    while True:
        fixed = sum(natural[place] for place in shown if not columns[place].width)
        room = width - fixed - gap(width) * (len(shown) - 1)
        enough = room >= sum(min(columns[place].width, natural[place]) for place in shown)
        spare = [place for place in shown if columns[place].rank]
        if enough or not spare:
            break
        shown.remove(max(spare, key=lambda place: columns[place].rank))
    return [
        (place, min(natural[place], max(room, 1)) if columns[place].width else natural[place])
        for place in shown
    ]


def line(row: Row, columns: Sequence[Column[Any]], widths: Sequence[tuple[int, int]]) -> list[str]:
    """The cells of a row, each as wide as its column."""
    return [aligned(row.cells[place], size, right=columns[place].right) for place, size in widths]


def aligned(text: str, size: int, *, right: bool = False) -> str:
    """A text of this width: filled with spaces, or cut."""
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, max(size - 1, 0)) + _CUT if size else ""
    return " " * (size - length) + text if right else text + " " * (size - length)


# --- Trials of a search.

_LEAST = 14  # characters of the column that is cut


@dataclass(slots=True)
class _RatedTrial:
    """A trial with its cost by the objective of the job, and its row as it was painted last."""

    data: TrialData
    cost: float | None
    row: Row | None = None
    starred: bool = False

    @property
    def name(self) -> str:
        """Its number, with a star for the best, and how often it was measured again."""
        again = f" {self.data.get('repeat')}×" if self.data.get("confirming") else ""
        return f"{'★ ' if self.starred else ''}{self.data.get('trial')}{again}"

    @property
    def failure(self) -> str | None:
        """The reason of its failure; None of a valid trial."""
        if self.data.get("status") == "ok":
            return None
        return ": ".join(filter(None, (self.data.get("status"), self.data.get("detail"))))

    @property
    def configuration(self) -> str:
        """Its configuration."""
        return configurations(self.data.get("configurations") or {})


def _valid(trial: _RatedTrial) -> TrialData | None:
    return trial.data if trial.data.get("status") == "ok" else None


_TRIALS: tuple[Column[_RatedTrial], ...] = (
    Column("trial", lambda trial: trial.name, number=True, key=lambda trial: trial.data.get("trial")),
    TIME.of(_valid),
    ENERGY.of(_valid),
    Column[TrialData]("power", lambda data: data.get("watts"), "W", digits=3, rank=2).of(_valid),
    Column[TrialData](
        "clock",
        # the one that was set, else the one that was seen
        lambda data: data.get("clock_mhz") if data.get("clock_set_mhz") is None else data["clock_set_mhz"],
        "MHz",
        digits=0,
        rank=1,
    ).of(_valid),
    Column(
        "configuration",
        lambda one: one.configuration if one.failure is None else f"{one.failure}; {one.configuration}",
        key=lambda one: one.configuration if one.failure is None else one.failure,
        width=_LEAST,
    ),
)


class TrialRows:
    """The trials of the job that is shown; rows are cached, for there may be thousands."""

    def __init__(self) -> None:
        self._job = 0
        self._rated: dict[int, _RatedTrial] = {}

    def listing(self, state: LiveState, chosen: int | None) -> Listing:
        """A row per trial of a job, the newest first.

        Args:
            state: what the daemon has told.
            chosen: job that the user has chosen; None for the one that runs.
        """
        job = state.shown_job(chosen)
        if job is None:
            return Listing("trials", _TRIALS, (), empty="no job has run yet")
        search = state.searches.get(job.id, LiveSearch())
        trials = self._of(job, search)
        best = _best(trials, job)
        rows = tuple(_row(one, job, starred=one is best) for one in reversed(trials))
        modelled = f" ({MODELLED})" if any(one.data.get("modelled") for one in trials) else ""
        title = f"trials of job {job.id}, {job.state}{modelled}: {' + '.join(job.workloads)}"
        if not rows:
            none = "none stored" if job.ended and job.run is None else "none yet"
            title = f"trials of job {job.id}: {none}"
        return Listing(title, _TRIALS, rows, _caption(job, search, best))

    def _of(self, job: Job, search: LiveSearch) -> list[_RatedTrial]:
        """The trials of a search in their order; those that are new or have changed are made anew."""
        before = self._rated if self._job == job.id else {}
        self._job, self._rated = job.id, {}
        for number, data in search.trials.items():
            rated = before.get(number)
            if rated is None or rated.data is not data:
                rated = _RatedTrial(data, cost_of(data, job.objective) if job.objective in NAMES else None)
            self._rated[number] = rated
        return list(self._rated.values())


def _row(trial: _RatedTrial, job: Job, *, starred: bool) -> Row:
    if trial.row is None or trial.starred is not starred:
        trial.starred = starred
        number, failure = trial.data.get("trial"), trial.failure
        if failure is None:
            details, style = _trial_details(trial.data, trial.configuration), "best" if starred else ""
        else:
            details, style = f"trial {number} {failure}\n{trial.configuration}", "bad"
        trial.row = painted(_TRIALS, trial, f"{job.id}-{number}", details, style)
    return trial.row


def _best(trials: Sequence[_RatedTrial], job: Job) -> _RatedTrial | None:
    """The trial of the lowest cost, among those within the limit of the job.

    A search with a limit tells other costs while it looks for the fastest.
    """
    slower = job.options.get("max_slowdown")
    times_s = [time_s for one in trials if (time_s := one.data.get("time_s")) is not None]
    limit_s = math.inf if slower is None else (1.0 + slower) * min(times_s, default=0.0)
    within = [one for one in trials if one.cost is not None and (one.data.get("time_s") or 0.0) <= limit_s]
    return min(within, key=lambda one: one.cost or 0.0, default=None)


def _caption(job: Job, search: LiveSearch, best: _RatedTrial | None) -> str:
    """Return the progress of the search, in the words of `tuner follow`."""
    parts = []
    if search.trials:
        expected = f" of {search.expected}" if search.expected and not job.ended else ""
        failed = sum(one.get("status") != "ok" for one in search.trials.values())
        parts.append(f"{len(search.trials):,}{expected} trials{f', {failed} failed' if failed else ''}")
    elif search.compiled is not None:
        parts.append("compiled {} of {}".format(*search.compiled))
    if best is not None:
        label = f" ({MODELLED})" if best.data.get("modelled") else ""
        parts.append(f"best {_amount(best, job.objective)}{label}")
    if search.joules:
        parts.append(f"{si(search.joules, 'J', 3)} spent")
    return ", ".join([*parts, *([search.told] if search.told and not job.ended else [])])


def _amount(best: _RatedTrial, objective: str) -> str:
    """Time or joules with their interval; of another objective its value."""
    if objective == "energy":
        return ENERGY.text(best.data)
    return TIME.text(best.data) if objective == "time" else si(best.cost, UNITS[objective])


def _trial_details(data: TrialData, configuration: str) -> str:
    """Return details for which there may be no room: the whole configuration first."""
    watts, set_mhz, seen_mhz = data.get("watts"), data.get("clock_set_mhz"), data.get("clock_mhz")
    parts = [] if watts is None else [si(watts, "W", 3)]
    if set_mhz is not None:
        parts.append(f"clock set to {set_mhz} MHz")
    elif seen_mhz is not None:
        parts.append(f"clock as found, {seen_mhz:.0f} MHz seen")
    if data.get("power_limit_w") is not None:
        parts.append(f"power limit {data['power_limit_w']} W")
    if data.get("confirming"):
        parts.append(f"a contender, repeat {data.get('repeat')}")
    parts += [MODELLED] if data.get("modelled") else []
    return "\n".join((configuration, ", ".join([*parts, *map(str, data.get("flags") or ())])))


def configurations(by_workload: Configurations) -> str:
    """The configuration of each workload; the name of one that is alone is left out."""
    if len(by_workload) == 1:
        return shown_values(next(iter(by_workload.values())))
    return "; ".join(f"{name}: {shown_values(values)}" for name, values in by_workload.items())


def _device_of(answer: ServedAnswer) -> str:
    return f"{answer['device']}{f' {MODELLED}' if answer['modelled'] else ''}"


def _best_of(answer: ServedAnswer) -> AnswerTrial:
    return answer["best"]


# --- Answers that are served.


def _gain(answer: ServedAnswer) -> Column[ServedAnswer]:
    """The change against the default of what the answer is for."""
    change = TIME_CHANGE if answer["objective"] == "time" else ENERGY_CHANGE
    return change.of(lambda row: row["against_default"])


_ANSWERS: tuple[Column[ServedAnswer], ...] = (
    Column("workloads", lambda answer: " + ".join(answer["workloads"]), width=_LEAST),
    Column("for", lambda answer: answer["objective"], rank=1),
    Column("device", _device_of, rank=3),
    TIME.of(_best_of),
    ENERGY.of(_best_of),
    Column(
        "vs default",
        lambda answer: _gain(answer).text(answer),
        number=True,
        key=lambda answer: _gain(answer).value(answer),
        rank=2,
    ),
    Column("state", lambda answer: "stale" if answer["stale"] else "fresh"),
    Column("of", lambda answer: moment(answer["at"]), key=lambda answer: answer["at"], rank=4),
)


def answer_listing(state: LiveState) -> Listing:
    """A row per answer, the newest first."""
    answers = sorted(state.answers, key=lambda one: one["at"], reverse=True)
    stale = sum(bool(one["stale"]) for one in answers)
    title = f"answers: {len(answers)} served, {stale} stale" if answers else "answers"
    return Listing(title, _ANSWERS, tuple(map(_answer, answers)), empty="no answer is stored yet")


def _answer(answer: ServedAnswer) -> Row:
    key = f"{answer['run']} {' + '.join(answer['workloads'])} {answer['objective']} {_device_of(answer)}"
    return painted(_ANSWERS, answer, key, _answer_details(answer), "bad" if answer["stale"] else "")


def _answer_details(answer: ServedAnswer) -> str:
    """Configuration and clock; changes against the default; why it is stale."""
    values = {name: one["configuration"] for name, one in answer["workloads"].items()}
    clock, against, saving = answer["clock_mhz"], answer["against_default"], answer["saving"]
    parts = ["clock as found" if clock is None else f"clock {clock} MHz"]
    if answer["power_limit_w"] is not None:
        parts.append(f"power limit {answer['power_limit_w']} W")
    if against is not None:
        parts.append(f"against the default: {_changes(against)}")
    if saving is not None:
        saved = with_uncertainty(saving["energy_j"], saving["energy_j_interval"], "J")
        parts.append(f"one use saves {saved}")
    parts += [MODELLED] if answer["modelled"] else []
    parts.append(f"run {answer['run']}")
    stale = [f"stale: {with_moments(reason)}" for reason in answer["stale"]]
    return "\n".join((configurations(values), "; ".join([*stale, *parts])))


def _changes(against: Changes) -> str:
    changes = filled([ENERGY_CHANGE, TIME_CHANGE], [against])
    return ", ".join(f"{change.name} {change.text(against)}" for change in changes)


# --- Power over time in one line of a terminal, with its scale.

BIN_S = 5
"""Seconds of a character."""

_BARS = "▁▂▃▄▅▆▇█"
_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def bins(samples: Iterable[PowerSample], count: int) -> list[float | None]:
    """Mean power of each of the newest intervals of `BIN_S`; None where nothing was measured.

    Intervals begin at whole multiples of their length, so that a drawn one moves and does not change.

    Args:
        samples: of a device, with ``at`` and ``watts``, oldest first.
        count: intervals.
    """
    watts: dict[int, list[float]] = {}
    newest = 0
    for sample in samples:
        try:
            newest = int(datetime.fromisoformat(str(sample.get("at"))).timestamp()) // BIN_S
        except ValueError:
            continue
        value = sample.get("watts")
        if isinstance(value, int | float) and math.isfinite(value):
            watts.setdefault(newest, []).append(value)
    numbers = range(newest - count + 1, newest + 1)
    return [sum(watts[number]) / len(watts[number]) if number in watts else None for number in numbers]


def top(values: Iterable[float | None]) -> float | None:
    """The end of a scale from zero on which all values fit: a round number; None where there is no value."""
    highest = max((value for value in values if value is not None), default=None)
    if highest is None or highest <= 0.0:
        return highest
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in _NICE if step * power >= highest * (1 - 1e-9))


def sparkline(values: Sequence[float | None], highest: float) -> str:
    """A bar per value on a scale from 0 to the highest; a space where there is none."""
    steps, highest = len(_BARS), highest or 1.0
    places = (None if value is None else math.ceil(steps * value / highest) - 1 for value in values)
    return "".join(" " if place is None else _BARS[min(max(place, 0), steps - 1)] for place in places)


# --- Devices.

_NARROW, _WIDE = 100, 132  # characters
_SHORTEST, _MEDIUM, _LONGEST = 12, 24, 48  # intervals of the power that are drawn
_METERED = "as metered, sum of trials"
_LEAST_DEVICE = len(f"sim:jetson-tx1 {MODELLED}")


def device_listing(state: LiveState, width: int) -> Listing:
    """A row per device.

    Args:
        state: what the daemon has told.
        width: characters of a line.
    """
    count = _SHORTEST if width < _NARROW else _MEDIUM if width < _WIDE else _LONGEST
    columns: tuple[Column[_DeviceNow], ...] = (
        Column("device", lambda now: now.name, key=lambda now: now.device.get("spec"), width=_LEAST_DEVICE),
        Column("power", lambda now: now.sample.get("watts"), "W", digits=3),
        Column(
            f"last {lasting(count * BIN_S)}, up to",
            lambda now: _drawn(bins(now.samples, count)),
            key=lambda now: now.sample.get("watts"),
        ),
        Column("clock", lambda now: now.sample.get("clock_mhz"), "MHz", digits=0),
        Column("temp", lambda now: now.sample.get("temperature_c"), "°C", digits=0),
        Column("load", lambda now: now.sample.get("load_percent"), "%", digits=0, rank=2),
        Column("others", lambda now: now.sample.get("others"), number=True),
        Column("job", lambda now: now.work, number=True, key=lambda now: now.device.get("job")),
    )
    rows = []
    for spec, device in state.devices.items():
        samples = state.power.get(spec, ())
        now = _DeviceNow(device, samples, samples[-1] if samples else {})
        style = "bad" if now.sample.get("failure") else ""
        rows.append(painted(columns, now, spec, _device_details(device, now.sample), style))
    return Listing("devices", columns, tuple(rows), empty="the daemon has told of no device yet")


class _DeviceNow(NamedTuple):
    """A device, the samples of its power, oldest first, and the newest of them."""

    device: DeviceStatus
    samples: Sequence[PowerSample]
    sample: PowerSample

    @property
    def name(self) -> str:
        """Its name, with the kind of its numbers."""
        return f"{self.device.get('spec')}{f' {MODELLED}' if self.device.get('modelled') else ''}"

    @property
    def work(self) -> str:
        """The job that runs, or that one waits."""
        if self.device.get("job") is not None:
            return f"job {self.device['job']}"
        return "waits" if self.device.get("holds") else "none"


def _drawn(watts: Sequence[float | None]) -> str:
    """Power on a scale from zero, and where that ends; empty where none was measured."""
    highest = top(watts)
    return "" if highest is None else f"{sparkline(watts, highest)} {highest:g} W"


def _device_details(device: DeviceStatus, sample: PowerSample) -> str:
    """Return details without a column: power, limits on a clock or a job, and the cost of tuning today."""
    parts = []
    if sample.get("failure"):
        parts.append(f"power: {sample['failure']}")
    elif sample.get("reading") == "trial":
        mean = f"power is the mean of the last trial, {MODELLED}"
        parts.append("the last trial measured time alone" if sample.get("watts") is None else mean)
    elif sample.get("watts") is None and device.get("modelled"):
        parts.append("power is modelled while a job runs")
    if sample.get("throttle_reasons"):
        parts.append(f"held back by {', '.join(map(str, sample['throttle_reasons']))}")
    if device.get("holds"):
        parts.append(str(device["holds"]))
    elif sample.get("others"):
        parts.append(f"processes of others: {sample['others']}")
    driver = f", driver {device['driver']}" if device.get("driver") else ""
    return "; ".join([*parts, _spent(device), f"{device.get('name', '')}{driver}"])


def _spent(device: DeviceStatus) -> str:
    """Joules and seconds of today, with their limits."""
    budget_j, budget_s = device.get("budget_j"), device.get("budget_s")
    of_j = f" of {si(budget_j, 'J', 3)}" if budget_j else ""
    of_s = f" of {lasting(budget_s)}" if budget_s else ""
    source = MODELLED if device.get("modelled") else _METERED
    joules, lasted = device.get("spent_today_j"), lasting(device.get("spent_today_s", 0.0))
    of_joules = f"{si(joules, 'J', 3)}{of_j} ({source}) in " if joules else ""  # none where times alone were
    return f"today {of_joules}{lasted}{of_s} of measuring"


# --- Jobs.

_RANKS = {
    state.value: rank for rank, state in enumerate((JobState.RUNNING, JobState.QUEUED, JobState.PAUSED))
}


class _JobNow(NamedTuple):
    """A job with its run and its trials as far as they are known here."""

    job: Job
    run: int | None
    trials: int

    @property
    def rank(self) -> int:
        """Its place among others, by its state."""
        return _RANKS.get(self.job.state, len(_RANKS))


_JOBS: tuple[Column[_JobNow], ...] = (
    Column("job", lambda now: str(now.job.id), number=True, key=lambda now: now.job.id),
    Column("state", lambda now: now.job.state, key=lambda now: now.rank),
    Column("workloads", lambda now: " + ".join(now.job.workloads), width=_LEAST),
    Column("search", lambda now: search_of(now.job), rank=2),
    Column("device", lambda now: now.job.device or "any", key=lambda now: now.job.device, rank=1),
    Column("trials", lambda now: now.trials, number=True),
    Column("submitted", lambda now: moment(now.job.created_at), key=lambda now: now.job.created_at, rank=3),
)


def job_listing(state: LiveState) -> Listing:
    """A row per job: those that run, then those that wait, then the newest that have ended."""
    jobs = []
    for job in state.jobs.values():
        search = state.searches.get(job.id, LiveSearch())
        run = search.run if job.run is None else job.run
        jobs.append(_JobNow(job, run, max(job.trials, len(search.trials))))
    jobs.sort(key=lambda now: (now.rank, -now.job.id))
    counts = Counter(now.job.state.value for now in jobs)
    active = ", ".join(f"{counts[name]} {name}" for name in _RANKS if counts[name])
    title = f"jobs: {active}" if active else "jobs"
    return Listing(title, _JOBS, tuple(map(_job, jobs)), empty="no job yet; `tuner submit` queues one")


_STYLES = {JobState.RUNNING: "best", JobState.FAILED: "bad"}


def _job(now: _JobNow) -> Row:
    job, run = now.job, now.run
    parts = [f"job {job.id} {job.state}{f' ({job.reason})' if job.reason else ''}"]
    parts += [search_of(job), f"{asked_for(job)}, {moment(job.created_at)}", f"priority {priority_of(job)}"]
    details = "; ".join([*parts, *([] if run is None else [f"run {run}"])])
    return painted(_JOBS, now, job.id, details, _STYLES.get(job.state, ""))
