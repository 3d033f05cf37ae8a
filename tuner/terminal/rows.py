"""The rows of the view: devices, jobs, answers and trials."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from tuner.client.values import ServedAnswer
from tuner.model.jobs import Job, JobState
from tuner.model.objective import NAMES, UNITS, Objective
from tuner.model.plan import shown_values
from tuner.model.run_document import Changes
from tuner.model.units import (
    MODELLED,
    lasting,
    moment,
    percent_with_interval,
    si,
    with_moments,
    with_uncertainty,
)
from tuner.report.progress import asked_for, priority_of, search_of
from tuner.report.trials_table import energy_of, interval
from tuner.terminal.state import Data, LiveSearch, LiveState
from tuner.untrusted.reading import plain, plain_line

# --- Tables of the view as plain values: rows, in an order, through a filter, and fitted to a width.

_CUT = "…"
_ROOMY = 100  # characters: from here on columns stand two spaces apart

Value = float | str | None
"""Sort key of a row in a column; None comes last."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its head.
        right: aligned to the right.
        least: of the one column that is cut where the line is too long, its characters at least, as long
            as others can be left out instead; 0 for a column that is never cut.
        rank: 0 for a column that is always shown; else those of the highest rank are left out first.
    """

    title: str
    right: bool = False
    least: int = 0
    rank: int = 0


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
        columns: of equally many cells as each row has.
        rows: in the order in which they are shown unless the user chooses another.
        caption: what stands below.
        empty: what is said where there is no row.
    """

    title: str
    columns: tuple[Column, ...]
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

    def filtered_by(self, text: str) -> "Arrangement":
        """The same order with another filter."""
        return Arrangement(self.column, self.descending, text.strip())

    def words(self, columns: Sequence[Column]) -> str:
        """Order and filter, for the title; empty for none."""
        parts = []
        if self.column is not None and self.column < len(columns):
            parts.append(f"by {columns[self.column].title} {'↓' if self.descending else '↑'}")
        elif self.descending:
            parts.append("in reverse")
        return ", ".join([*parts, *([f"with “{self.text}”"] if self.text else [])])


def row(
    key: object, cells: Sequence[str], values: Sequence[Value], details: str = "", style: str = ""
) -> Row:
    """A row of texts from outside: what a terminal would act on is replaced."""
    return Row(str(key), tuple(map(plain_line, cells)), tuple(values), plain(details), style)


def arranged(rows: Sequence[Row], arrangement: Arrangement) -> list[Row]:
    """The rows that pass the filter, in the order chosen; values that are not known stand last."""
    text = arrangement.text.casefold()
    kept = list(rows)
    if text:
        kept = [row for row in rows if text in "\n".join((*row.cells, row.details)).casefold()]
    if arrangement.column is None:
        return kept[::-1] if arrangement.descending else kept
    place = arrangement.column
    known = [row for row in kept if row.values[place] is not None]
    known.sort(key=lambda row: _ordered(row.values[place]), reverse=arrangement.descending)
    return known + [row for row in kept if row.values[place] is None]


def _ordered(value: Value) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))


def gap(width: int) -> int:
    """Spaces between two columns."""
    return 2 if width >= _ROOMY else 1


def fitted(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[tuple[int, int]]:
    """Number and width of each column that is shown.

    Args:
        columns: of the table.
        rows: that are shown.
        width: characters of a line.
    """
    natural = [
        max([cell_len(column.title), *(cell_len(row.cells[place]) for row in rows)])
        for place, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while True:
        fixed = sum(natural[place] for place in kept if not columns[place].least)
        room = width - fixed - gap(width) * (len(kept) - 1)
        enough = room >= sum(min(columns[place].least, natural[place]) for place in kept)
        spare = [place for place in kept if columns[place].rank]
        if enough or not spare:
            break
        kept.remove(max(spare, key=lambda place: columns[place].rank))
    return [
        (place, min(natural[place], max(room, 1)) if columns[place].least else natural[place])
        for place in kept
    ]


def line(row: Row, columns: Sequence[Column], widths: Sequence[tuple[int, int]]) -> list[str]:
    """The cells of a row, each as wide as its column."""
    return [aligned(row.cells[place], size, right=columns[place].right) for place, size in widths]


def aligned(text: str, size: int, *, right: bool = False) -> str:
    """A text of this width: filled with spaces, or cut."""
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, max(size - 1, 0)) + _CUT if size else ""
    return " " * (size - length) + text if right else text + " " * (size - length)


_LEAST = 14  # characters of the column that is cut
_TRIAL_COLUMNS = (
    Column("trial", right=True),
    Column("time", right=True),
    Column("energy", right=True),
    Column("power", right=True, rank=2),
    Column("clock", right=True, rank=1),
    Column("configuration", least=_LEAST),
)


@dataclass(slots=True)
class _RatedTrial:
    """A trial with what was made of it: time, cost by the objective of the job, and its row."""

    data: Data
    time_s: float | None
    cost: float | None
    row: Row | None = None
    starred: bool = False


class TrialRows:
    """The trials of the job that is shown; what was made of one is kept, for there may be thousands."""

    def __init__(self) -> None:
        self._job = 0
        self._known: dict[int, _RatedTrial] = {}

    def listing(self, state: LiveState, chosen: int | None) -> Listing:
        """A row per trial of a job, the newest first.

        Args:
            state: what the daemon has told.
            chosen: job that the user has chosen; None for the one that runs.
        """
        job = state.shown_job(chosen)
        if job is None:
            return Listing("trials", _TRIAL_COLUMNS, (), empty="no job has run yet")
        search = state.searches.get(job.id, LiveSearch())
        trials = self._of(job, search)
        best = _best(trials, job)
        rows = tuple(_row(one, job, starred=one is best) for one in reversed(trials))
        modelled = f" ({MODELLED})" if any(one.data.get("modelled") for one in trials) else ""
        title = f"trials of job {job.id}, {job.state}{modelled}: {' + '.join(job.workloads)}"
        caption = _caption(job, search, None if best is None else best.data)
        return Listing(title, _TRIAL_COLUMNS, rows, caption, _empty(job))

    def _of(self, job: Job, search: LiveSearch) -> list[_RatedTrial]:
        """The trials of a search in their order; those that are new or have changed are made anew."""
        before = self._known if self._job == job.id else {}
        self._job, self._known = job.id, {}
        for number, data in search.trials.items():
            known = before.get(number)
            if known is None or known.data is not data:
                known = _RatedTrial(data, _number(data.get("time_s")), _cost(data, job.objective))
            self._known[number] = known
        return list(self._known.values())


def _row(known: _RatedTrial, job: Job, *, starred: bool) -> Row:
    if known.row is None or known.starred is not starred:
        known.row, known.starred = _trial(known.data, job, starred=starred), starred
    return known.row


def _best(trials: Sequence[_RatedTrial], job: Job) -> _RatedTrial | None:
    """The trial of the lowest cost, among those within the limit of the job.

    A search with a limit tells other costs while it looks for the fastest.
    """
    slower = _number(job.options.get("max_slowdown"))
    fastest_s = min((one.time_s for one in trials if one.time_s is not None), default=0.0)
    limit_s = math.inf if slower is None else (1.0 + slower) * fastest_s
    found = None
    for one in trials:
        if one.cost is None or one.time_s is None or one.time_s > limit_s:
            continue
        if found is None or found.cost is None or one.cost < found.cost:
            found = one
    return found


def _cost(data: Data, objective: str) -> float | None:
    """Return the cost that a job minimises; None if it was not measured, or its objective is unknown here."""
    time_s, energy_j = _number(data.get("time_s")), _number(data.get("energy_j"))
    if time_s is None or data.get("status") != "ok" or objective not in NAMES:
        return None
    if objective == "time":
        return time_s
    return None if energy_j is None else energy_j * time_s ** Objective(objective).time_exponent


def _empty(job: Job) -> str:
    return "no trial was stored" if job.ended and job.run is None else "no trial yet"


def _caption(job: Job, search: LiveSearch, best: Data | None) -> str:
    """Return the progress of the search, in the words of `tuner follow`."""
    parts = []
    if search.trials:
        expected = f" of {search.expected}" if search.expected and not job.ended else ""
        failed = sum(one.get("status") != "ok" for one in search.trials.values())
        parts.append(f"{len(search.trials):,}{expected} trials{f', {failed} failed' if failed else ''}")
    elif search.compiled is not None:
        parts.append("compiled {} of {}".format(*search.compiled))
    if best is not None:
        label = f" ({MODELLED})" if best.get("modelled") else ""
        parts.append(f"best {_amount(best, job.objective)}{label}")
    if search.joules:
        parts.append(f"{si(search.joules, 'J', 3)} spent")
    return ", ".join([*parts, *([search.told] if search.told and not job.ended else [])])


def _amount(data: Data, objective: str) -> str:
    """Time or joules with their interval; of another objective its value."""
    if objective == "energy":
        return energy_of(data)
    if objective == "time":
        return _time_of(data)
    return si(_cost(data, objective), UNITS[objective])


def _time_of(data: Data) -> str:
    return with_uncertainty(_number(data.get("time_s")), interval(data.get("time_s_uncertainty")), "s")


def _trial(data: Data, job: Job, *, starred: bool) -> Row:
    again = f" {data.get('repeat')}×" if data.get("confirming") else ""
    number = data.get("trial")
    configuration = configurations(data.get("configurations") or {})
    name = f"{'★ ' if starred else ''}{number}{again}"
    if data.get("status") != "ok":
        failed = ": ".join(str(data[name]) for name in ("status", "detail") if data.get(name))
        nothing = (name, "–", "–", "–", "–", f"{failed}; {configuration}")
        details = f"trial {number} {failed}\n{configuration}"
        return row(f"{job.id}-{number}", nothing, (number, None, None, None, None, failed), details, "bad")
    time_s, energy_j, watts = (_number(data.get(name)) for name in ("time_s", "energy_j", "watts"))
    mhz = data.get("clock_set_mhz") if data.get("clock_set_mhz") is not None else data.get("clock_mhz")
    cells = (
        name,
        _time_of(data),
        energy_of(data),
        si(watts, "W", 3),
        "–" if mhz is None else f"{mhz:.0f} MHz",
        configuration,
    )
    values = (number, time_s, energy_j, watts, mhz, configuration)
    return row(
        f"{job.id}-{number}", cells, values, _trial_details(data, configuration), "best" if starred else ""
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _trial_details(data: Data, configuration: str) -> str:
    """Return details for which there may be no room: the whole configuration first."""
    parts = [si(data.get("watts"), "W", 3)] if data.get("watts") is not None else []
    if data.get("clock_set_mhz") is not None:
        parts.append(f"clock set to {data['clock_set_mhz']} MHz")
    elif data.get("clock_mhz") is not None:
        parts.append(f"clock as found, {data['clock_mhz']:.0f} MHz seen")
    if data.get("power_limit_w") is not None:
        parts.append(f"power limit {data['power_limit_w']} W")
    if data.get("confirming"):
        parts.append(f"a contender, repeat {data.get('repeat')}")
    parts += [MODELLED] if data.get("modelled") else []
    return "\n".join((configuration, ", ".join([*parts, *map(str, data.get("flags") or ())])))


def configurations(by_workload: Data) -> str:
    """The configuration of each workload; the name of one that is alone is left out."""
    if len(by_workload) == 1:
        return shown_values(next(iter(by_workload.values())))
    return "; ".join(f"{name}: {shown_values(values)}" for name, values in by_workload.items())


_ANSWER_COLUMNS = (
    Column("workloads", least=_LEAST),
    Column("for", rank=1),
    Column("device", rank=3),
    Column("time", right=True),
    Column("energy", right=True),
    Column("vs default", right=True, rank=2),
    Column("state"),
    Column("of", rank=4),
)


def answer_listing(state: LiveState) -> Listing:
    """A row per answer, the newest first."""
    answers = sorted(state.answers, key=lambda one: one["at"], reverse=True)
    stale = sum(bool(one["stale"]) for one in answers)
    title = f"answers: {len(answers)} served, {stale} stale" if answers else "answers"
    return Listing(title, _ANSWER_COLUMNS, tuple(map(_answer, answers)), empty="no answer is stored yet")


def _answer(answer: ServedAnswer) -> Row:
    best, against = answer["best"], answer["against_default"]
    workloads = " + ".join(answer["workloads"])
    modelled = f" {MODELLED}" if answer["modelled"] else ""
    saving, gains = None, "–"
    if against is not None and "energy_saving" in against:
        saving = -against["energy_saving"]
        gains = percent_with_interval(saving, against.get("energy_saving_interval"))
    cells = (
        workloads,
        answer["objective"],
        f"{answer['device']}{modelled}",
        with_uncertainty(best.get("time_s"), interval(best.get("time_s_uncertainty")), "s"),
        energy_of(best),
        gains,
        "stale" if answer["stale"] else "fresh",
        moment(answer["at"]),
    )
    values = (
        workloads,
        cells[1],
        cells[2],
        best.get("time_s"),
        best.get("energy_j"),
        saving,
        cells[6],
        answer["at"],
    )
    key = f"{answer['run']} {workloads} {cells[1]} {cells[2]}"
    return row(key, cells, values, _answer_details(answer), "bad" if answer["stale"] else "")


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
    parts = [f"time {percent_with_interval(against['slowdown'], against.get('slowdown_interval'))}"]
    if "energy_saving" in against:
        energy = percent_with_interval(-against["energy_saving"], against.get("energy_saving_interval"))
        parts.insert(0, f"energy {energy}")
    return ", ".join(parts)


# --- Power over time in one line of a terminal, with its scale.

BIN_S = 5
"""Seconds of a character."""

_BARS = "▁▂▃▄▅▆▇█"
_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def bins(samples: Iterable[Mapping[str, Any]], count: int) -> list[float | None]:
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
    columns = (
        Column("device", least=_LEAST_DEVICE),
        Column("power", right=True),
        Column(f"last {lasting(count * BIN_S)}, up to"),
        Column("clock", right=True),
        Column("temp", right=True),
        Column("load", right=True, rank=2),
        Column("others", right=True),
        Column("job", right=True),
    )
    rows = tuple(
        _device(device, _newest(state, spec), _drawn(bins(state.power.get(spec, ()), count)))
        for spec, device in state.devices.items()
    )
    return Listing("devices", columns, rows, empty="the daemon has told of no device yet")


def _newest(state: LiveState, spec: str) -> Data:
    samples = state.power.get(spec)
    return samples[-1] if samples else {}


def _drawn(watts: Sequence[float | None]) -> str:
    """Power on a scale from zero, and where that ends; empty where none was measured."""
    highest = top(watts)
    return "" if highest is None else f"{sparkline(watts, highest)} {highest:g} W"


def _device(device: Data, sample: Data, drawn: str) -> Row:
    spec, job = str(device.get("spec")), device.get("job")
    modelled = f" {MODELLED}" if device.get("modelled") else ""
    watts, mhz, celsius = (sample.get(name) for name in ("watts", "clock_mhz", "temperature_c"))
    load, others = sample.get("load_percent"), sample.get("others")
    waits = "waits" if device.get("holds") else "none"
    cells = (
        f"{spec}{modelled}",
        si(watts, "W", 3),
        drawn,
        _rounded(mhz, "MHz"),
        _rounded(celsius, "°C"),
        _rounded(load, "%"),
        "–" if others is None else str(others),
        waits if job is None else f"job {job}",
    )
    values = (spec, watts, watts, mhz, celsius, load, others, job)
    return row(spec, cells, values, _device_details(device, sample), "bad" if sample.get("failure") else "")


def _rounded(value: Any, unit: str) -> str:  # noqa: ANN401 - what JSON has
    return "–" if value is None else f"{value:.0f} {unit}"


def _device_details(device: Data, sample: Data) -> str:
    """Return details without a column: power, limits on a clock or a job, and the cost of tuning today."""
    parts = []
    if sample.get("failure"):
        parts.append(f"power: {sample['failure']}")
    elif sample.get("reading") == "trial":
        parts.append(f"power is the mean of the last trial, {MODELLED}")
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


def _spent(device: Data) -> str:
    """Joules and seconds of today, with their limits."""
    joules, seconds = device.get("spent_today_j"), device.get("spent_today_s")
    of_j = f" of {si(device['budget_j'], 'J', 3)}" if device.get("budget_j") else ""
    of_s = f" of {lasting(device['budget_s'])}" if device.get("budget_s") else ""
    source = MODELLED if device.get("modelled") else _METERED
    return f"today {si(joules, 'J', 3)}{of_j} ({source}) in {lasting(seconds or 0.0)}{of_s} of measuring"


_RANKS = {
    state.value: rank for rank, state in enumerate((JobState.RUNNING, JobState.QUEUED, JobState.PAUSED))
}
_JOB_COLUMNS = (
    Column("job", right=True),
    Column("state"),
    Column("workloads", least=_LEAST),
    Column("search", rank=2),
    Column("device", rank=1),
    Column("trials", right=True),
    Column("submitted", rank=3),
)


def job_listing(state: LiveState) -> Listing:
    """A row per job: those that run, then those that wait, then the newest that have ended."""
    jobs = sorted(state.jobs.values(), key=lambda job: (_RANKS.get(job.state, len(_RANKS)), -job.id))
    counts = [
        f"{sum(job.state == one for job in jobs)} {one}"
        for one in _RANKS
        if any(job.state == one for job in jobs)
    ]
    rows = tuple(_job(job, state) for job in jobs)
    title = f"jobs: {', '.join(counts)}" if counts else "jobs"
    return Listing(title, _JOB_COLUMNS, rows, empty="no job yet; `tuner submit` queues one")


def _job(job: Job, state: LiveState) -> Row:
    search = state.searches.get(job.id)
    trials = max(job.trials, 0 if search is None else len(search.trials))
    run = job.run if search is None or job.run is not None else search.run
    cells = (
        str(job.id),
        job.state,
        " + ".join(job.workloads),
        search_of(job),
        job.device or "any",
        f"{trials:,}",
        moment(job.created_at),
    )
    values = (
        job.id,
        _RANKS.get(job.state, len(_RANKS)),
        cells[2],
        cells[3],
        job.device,
        trials,
        job.created_at,
    )
    style = "best" if job.state == JobState.RUNNING else ""
    return row(
        job.id, cells, values, _job_details(job, run), "bad" if job.state == JobState.FAILED else style
    )


def _job_details(job: Job, run: int | None) -> str:
    parts = [f"job {job.id} {job.state}{f' ({job.reason})' if job.reason else ''}"]
    parts += [search_of(job), f"{asked_for(job)}, {moment(job.created_at)}", f"priority {priority_of(job)}"]
    return "; ".join([*parts, *([] if run is None else [f"run {run}"])])
