"""The answer of a run: its numbers, what it gains and cost, and the Pareto front that it is a point of."""

import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tuner.model.errors import InputError
from tuner.model.objective import GAIN
from tuner.model.plan import shown_values
from tuner.model.run_document import (
    Changes,
    CoRunTotals,
    FrontPoint,
    RunDocument,
    TrialDocument,
    WorkloadDocument,
    WorkloadPart,
    placing,
    program_of,
)
from tuner.model.units import MODELLED, lasting, percent_with_interval, significant, with_uncertainty
from tuner.report.layout import GAP, label, table_lines, wrapped
from tuner.report.rows import (
    BRIEF_TIME,
    CLOCK,
    ENERGY,
    ENERGY_CHANGE,
    POWER_LIMIT,
    TIME,
    TIME_CHANGE,
    TUNING_ENERGY,
    Column,
    Table,
    amounts,
    filled,
    interval,
)
from tuner.report.trials_table import GOALS, cost_change, longest_s, objective_name, same
from tuner.search.document import break_even

_Reference = Literal["default", "fastest", "solo_bests"]
_Against = Literal["against_default", "trade_off", "against_solo_bests"]
_COMPARED: tuple[tuple[_Reference, _Against, str, str], ...] = (
    ("default", "against_default", "default", "the default configuration"),
    ("fastest", "trade_off", "fastest", "the fastest trial"),
    ("solo_bests", "against_solo_bests", "solo bests together", "the solo bests together"),
)
_HIDING = 0.9  # of a round: a workload that takes as much alone leaves little to the others


def totals(document: RunDocument) -> list[str]:
    """Time, joules, power, rate, clock, temperature and power limit of the answer; of a round of them all."""
    best, workloads = document["best"], document["workloads"]
    if best is None:
        return []
    parts = amounts(best)
    if len(workloads) == 1:
        parts += filter(None, [rate_of(workloads[0])])
    else:
        parts[0] += " per round"
    clock = "clock as found" if best["clock_mhz"] is None else f"clock {best['clock_mhz']:g} MHz"
    seen = best.get("clock_seen_mhz")
    if best["clock_mhz"] is None and seen is not None:
        clock = f"{seen:.0f} MHz as found"
    celsius, limit = best.get("temperature_c"), best.get("power_limit_w")
    warm = [] if celsius is None else [f"at {celsius:.0f} °C"]
    limits = [] if limit is None else [f"power limit {limit:g} W"]
    return [*parts, clock, *warm, *limits, *filter(None, [label(document)])]


def rate_of(workload: WorkloadDocument) -> str | None:
    """The rate of a workload per second, in its own unit; None if its work is unknown."""
    value = None if workload["best"] is None else workload["best"]["rate"]
    return None if value is None else f"{significant(value)} {workload.get('rate_name', '')}"


def workloads_of(document: RunDocument) -> Table[WorkloadDocument]:
    """A row per workload of an answer: batch, own time in the co-run, share of the joules, rate.

    Shares are modelled on every device.
    """
    workloads = document["workloads"]
    return Table(
        [
            Column("workload", lambda one: one["name"]),
            Column("batch", lambda one: one["batch"], number=True),
            _OWN_TIME.of(_part),
            *filled([_SHARE.of(_part), Column("rate", rate_of, number=True)], workloads),
        ],
        workloads,
    )


_OWN_TIME = Column[WorkloadPart]("own time", lambda part: part["time_s"], "s")
_SHARE = Column[WorkloadPart](
    f"share ({MODELLED})",
    lambda part: part["energy_share_j"],
    "J",
    half=lambda part: interval(part["energy_share_j_uncertainty"]),
)


def _part(workload: WorkloadDocument) -> WorkloadPart | None:
    return workload["best"]


@dataclass
class Gain:
    """An answer against another trial.

    Attributes:
        against: the trial, in words.
        changes: from it to the answer.
        took: its own time and joules.
        trial: the trial; None for the workloads one after another.
    """

    against: str
    changes: Changes
    took: TrialDocument | CoRunTotals
    trial: TrialDocument | None = None


def comparisons(document: RunDocument, width: int) -> list[str]:
    """The gains of the answer, as lines."""
    gains = gains_of(document)
    lines = table_lines(gains, width, indent=GAP) if gains.rows else []
    return [line.text for line in lines] + [
        line for text in gains.sentences for line in wrapped(GAP + text, width, "", GAP * 2)
    ]


def _references(
    document: RunDocument,
) -> Iterator[tuple[str, TrialDocument | None, Changes | None, str, str]]:
    """References of an answer: key, trial, changes, and the name in a table and in a sentence.

    Where priorities of streams or shares were searched, solo bests have them too, and come once more without.
    """
    priorities = document.get("solo_best_priorities")
    placed = placing(document.get("settings") or {})
    for name, against, called, whole in _COMPARED:
        at = f", best {placed}" if priorities is not None and name == "solo_bests" else ""
        yield name, document.get(name), document.get(against), called + at, whole + at
    if priorities is not None and not same(document.get("solo_bests"), priorities["equal"]):
        parts = priorities["against_equal"]
        both = None if parts is None else parts["both"]
        at = f", equal {placed}"
        yield "", priorities["equal"], both, f"solo bests together{at}", f"the solo bests together{at}"


def gains_of(document: RunDocument) -> Table[Gain]:
    """The answer against the default, the fastest trial, the solo bests together, and one after another.

    A search for time says what the trial with the least joules would bring, where joules were measured. A
    column that nobody fills is left out.
    """
    rows: list[Gain] = []
    sentences: list[str] = []
    itself: list[str] = []
    for name, trial, changes, called, whole in _references(document):
        before = next((row for row in rows if same(trial, row.trial)), None)
        if before is not None:
            before.against += f", {called}"
        elif same(document["best"], trial):
            if (name, objective_name(document)) != ("fastest", "time"):
                itself.append(whole)
        elif trial is not None and trial["status"] != "ok":
            it = "them" if whole.startswith("the solo bests") else "it"
            sentences.append(f"the {called} failed: there is no comparison with {it}")
        elif trial is not None and changes is not None:
            rows.append(Gain(called, changes, trial, trial))
    if itself:
        *others, last = itself
        sentences.insert(0, f"the answer is {' and '.join(filter(None, (', '.join(others), last)))}")
    if len(document.get("front") or ()) == 1:
        sentences.append("the Pareto front is the answer alone")
    rows += _one_after_another(document)
    sentences += _co_running(document)
    sentences += _priorities(document)
    sentences += _solo_bests(document)
    sentences += _hidden(document)
    sentences += _least_energy(document)
    changed: list[Column[Gain]] = [
        replace(column, unknown="").of(lambda gain: gain.changes)
        for column in (ENERGY_CHANGE, TIME_CHANGE)[:: -1 if objective_name(document) == "time" else 1]
    ]
    columns = [
        Column[Gain](f"against{label(document, ' ({})')}", lambda gain: gain.against),
        *changed,
        Column[Gain]("", lambda gain: _once(gain.changes), number=True),
        replace(BRIEF_TIME, name="its time", rank=1).of(lambda gain: gain.took),
        replace(ENERGY, name="its energy", unknown="", rank=1).of(lambda gain: gain.took),
    ]
    return Table(filled(columns, rows), rows, sentences=sentences)


def _once(changes: Changes) -> str:
    once = "energy_saving" in changes and changes.get("turn_by_turn") is False
    return "measured once each" if once else ""


@dataclass(frozen=True)
class Change:
    """A change against the default.

    Attributes:
        of: ``time`` or ``energy``.
        shown: in percent, with half of its 95 % interval.
        sign: -1 for certainly less, 1 for certainly more, 0 for neither.
    """

    of: str
    shown: str
    sign: int


def changes_of(document: RunDocument) -> list[Change]:
    """Time and joules of the answer against the default, that of the objective first; none where it is it."""
    against = document.get("against_default")
    if against is None or same(document["best"], document.get("default")):
        return []
    found = [_change("time", against["slowdown"], against.get("slowdown_interval"))]
    if "energy_saving" in against:
        found.append(_change("energy", -against["energy_saving"], against["energy_saving_interval"]))
    return found if objective_name(document) == "time" else found[::-1]


def _change(of: str, change: float, half: float | None) -> Change:
    sure = abs(change) > (half or 0.0)
    return Change(of, percent_with_interval(change, half), (change > 0) - (change < 0) if sure else 0)


def _one_after_another(document: RunDocument) -> Iterator[Gain]:
    """The gain of running the workloads together; answers stored before that was measured lack it."""
    co_run = document.get("one_after_another")
    if co_run is None:
        return
    changes: Changes = {
        "slowdown": co_run["time_change"],
        "slowdown_interval": co_run["time_change_interval"],
    }
    if co_run["energy_change"] is not None:
        changes["energy_saving"] = -co_run["energy_change"]
    if co_run["energy_change_interval"] is not None:
        changes["energy_saving_interval"] = co_run["energy_change_interval"]
    yield Gain("one after another", changes, co_run["in_turn"])


def _co_running(document: RunDocument) -> Iterator[str]:
    """Yield what co-running brings against one after another: a gain, a loss, both or neither."""
    co_run = document.get("one_after_another")
    if co_run is None:
        return
    changes = {
        "energy": (co_run["energy_change"] or 0.0, co_run["energy_change_interval"]),
        "time": (co_run["time_change"], co_run["time_change_interval"]),
    }
    sure = {
        name: change
        for name, (change, half) in changes.items()
        if abs(change) > (half or 0.0) and abs(change) >= GAIN
    }
    gained, lost = ([name for name in sure if (sure[name] > 0) is more] for more in (False, True))
    if not sure:
        yield "co-running brings neither gain nor loss worth having against one after another"
    elif not lost:
        yield f"co-running gains {' and '.join(gained)} against one after another"
    elif not gained:
        yield f"co-running loses {' and '.join(lost)}: run these workloads one after another"
    else:
        yield f"co-running gains {gained[0]} and loses {lost[0]} against one after another"


def _priorities(document: RunDocument) -> Iterator[str]:
    """Yield what places beside each other and configurations bring, each without the other."""
    priorities = document.get("solo_best_priorities")
    if priorities is None:
        return
    placed = placing(document.get("settings") or {})
    if same(document.get("solo_bests"), priorities["equal"]):
        yield f"solo bests together are best at equal {placed}, of {priorities['tried']} combinations"
        return
    parts = priorities["against_equal"]
    if parts is None:
        return
    alone, tuned = (
        percent_with_interval(*cost_change(document, changes))
        for changes in (parts["priorities"], parts["configurations"])
    )
    name = objective_name(document)
    of = GOALS["edp" if name == "pareto" else name].removeprefix("least ")
    yield (
        f"against solo bests at equal {placed}, {placed} alone change {of} by {alone}, configurations"
        f" alone by {tuned}{label(document, ' ({})')}"
    )


def _solo_bests(document: RunDocument) -> Iterator[str]:
    """Yield reasons that solo bests together are not compared, or that they cost less than the answer."""
    if document.get("no_solo_bests"):
        yield f"solo bests together are not compared: {document['no_solo_bests']}"
    limited = document.get("limited_solo_bests")
    if document.get("solo_bests") and limited:
        yield f"solo bests of searches that a limit ended, better ones may be left: {', '.join(limited)}"
    solo, changes = document.get("solo_bests"), document.get("against_solo_bests")
    if solo is None or changes is None or same(document["best"], solo):
        return
    lower, half = cost_change(document, changes)
    if lower <= half:
        return
    slow = (solo["time_s"] or 0.0) > longest_s(document)
    why = (
        "they are slower than --max-slowdown allows" if slow else "a tie, of which a rule chooses the answer"
    )
    yield f"solo bests together cost less: the answer {percent_with_interval(lower, half)}; {why}"


def _hidden(document: RunDocument) -> Iterator[str]:
    """That one workload alone takes most of a round, so that the others hardly count."""
    co_run = document.get("one_after_another")
    if co_run is None or not co_run["workloads"]:
        return
    alone_s = {name: alone["time_s"] for name, alone in co_run["workloads"].items()}
    longest = max(alone_s, key=lambda name: alone_s[name])
    share = alone_s[longest] / co_run["together"]["time_s"]
    if share >= _HIDING:
        yield (
            f"{longest} alone takes {100 * min(share, 1.0):.0f} % of a round: the others hide behind it, and"
            " their configurations hardly count; sizes or batches of about equal times tell more (`tuner run"
            " --balance`)"
        )


def _least_energy(document: RunDocument) -> Iterator[str]:
    """Yield the saving of a search for energy, in the report of a search for time only."""
    least, against = document.get("least_energy"), document.get("energy_trade_off")
    if objective_name(document) != "time" or least is None or against is None:
        return
    if same(document["best"], least):
        yield "the answer takes the least energy, too"
    elif against["energy_saving"] > against["energy_saving_interval"]:
        how = ", ".join(filter(None, (f"{TIME_CHANGE.text(against)} time", _once(against))))
        yield f"least energy instead: {ENERGY_CHANGE.text(against)} energy for {how}"


# --- What the run cost.

_LARGE = 100.0  # from here on fractions are of no interest
_DAY_H = 24
_HOUR_MIN = 60


def cost_line(document: RunDocument, *, verbose: bool = False) -> str:
    """The runs after which tuning has paid, or why it never does; with ``verbose`` how sure that is.

    Empty where the answer is the default, or there is none to compare with, unless ``verbose`` asks what
    tuning took.
    """
    even, against = document.get("break_even"), document.get("against_default")
    program = program_of(document)
    if program is not None and program.get("phase"):
        even = None  # what a run did while it was tuned was its work
    if even is None or against is None or even["saving_per_run"] == even["saving_interval"] == 0:
        return f"tuning took {_spent(document)}" if verbose else ""
    runs, least, most = even["runs"], even["runs_least"], even["runs_most"]
    many, one = "runs", "a run"
    if program is not None and program.get("per"):
        many, one = f"units of work, by {program['per']}", "a unit"
    change, half = cost_change(document, against)
    if -change - half < GAIN or runs is None or least is None or most is None:
        took = f"; tuning took {_spent(document)}" if verbose else ""
        return f"no gain worth having, as {100 * GAIN:g} % is not certain: keep the default{took}"
    days = ""
    if even["days"] is not None and even["runs_per_day"] is not None:
        days = f", which is {_days(even['days'])} at {_plain(even['runs_per_day'])} runs a day"
    cost = f"tuning took {with_uncertainty(even['cost'], even['cost_interval'], even['unit'])}"
    if not verbose:
        return f"pays for itself after {_count(runs)} {many}{days}: {cost}{label(document, ' ({})')}"
    saving = with_uncertainty(even["saving_per_run"], even["saving_interval"], even["unit"])
    mark = label(document, ", {}")
    return (
        f"pays for itself after {_count(runs)} {many} ({_count(least)} to {_count(most)}, 95 %{mark}){days}:"
        f" {cost}, {one} saves {saving} against the default"
    )


PER_KWH = "TUNER_PER_KWH"
"""Environment variable of what a kilowatt-hour costs, in any units: ``0.31 EUR, 380 g``."""

_YEAR_H, _J_PER_KWH = 365.25 * 24, 3.6e6
_FACTOR = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(\D.*?)\s*")


def per_kwh() -> list[tuple[float, str]]:
    """The factors and units of ``PER_KWH``.

    Raises:
        InputError: it is none.
    """
    texts = [text for text in os.environ.get(PER_KWH, "").split(",") if text.strip()]
    found = [_FACTOR.fullmatch(text) for text in texts]
    if not all(found):
        raise InputError(f"{PER_KWH}={os.environ[PER_KWH]}: write numbers with units, as in 0.31 EUR, 380 g")
    return [(float(one[1]), one[2]) for one in found if one is not None]


def year_line(document: RunDocument) -> str:
    """The kilowatt-hours that a program saves which runs all year, for the same work; empty without such."""
    default, against = document.get("default"), document.get("against_default")
    if program_of(document) is None or default is None or against is None or "energy_saving" not in against:
        return ""
    saved, half = against["energy_saving"], against["energy_saving_interval"] or 0.0
    if saved <= half or not default["energy_j"] or not default["time_s"]:
        return ""
    year_kwh = default["energy_j"] / default["time_s"] * 3600.0 * _YEAR_H / _J_PER_KWH
    parts = [(1.0, "kWh"), *per_kwh()]
    values = [
        with_uncertainty(saved * year_kwh * per, half * year_kwh * per, "") + f" {unit}"
        for per, unit in parts
    ]
    return (
        f"a year without a break: {', '.join(values)} less for the same work, of"
        f" {significant(year_kwh)} kWh{label(document, ' ({})')}"
    )


def _spent(document: RunDocument) -> str:
    seconds, wall = document.get("wall_s"), document.get("wall")
    if document.get("recorded") and wall:
        seconds = wall["windows_s"]  # what was recorded took; the rest is that of a replay
    parts = [] if seconds is None else [lasting(seconds)]
    if document.get("tuning_energy_j") is not None:
        parts.append(TUNING_ENERGY.text(document) + label(document, " ({})"))
    return ", ".join(parts) or "a time that is not known"


def _plain(number: float) -> str:
    """A number a user gave, never in exponent form where it is large."""
    return f"{number:,.0f}" if number >= _LARGE else f"{number:g}"


def _days(days: float) -> str:
    """A span in the unit that gives it a readable number."""
    if days >= 1:
        return f"{significant(float(f'{days:.3g}'), 2)} days"
    hours = days * _DAY_H
    return f"{significant(hours, 2)} hours" if hours >= 1 else f"{significant(hours * _HOUR_MIN, 2)} minutes"


def _count(runs: float) -> str:
    """A number of runs to three digits, at least one."""
    rounded = float(f"{max(1.0, runs):.3g}")
    return f"{math.ceil(rounded):,}"


# --- The Pareto front of a run: its points as a table, and the choice of one by a time budget.

_LEAST_POINTS = 2  # that are worth a table
_WHICH = "the answer is the point of least energy × time"
_WHICH_CHOSEN = "the answer is the point of least energy at most {slower} % slower than the fastest"
_HOW_TO_CHOOSE = (
    "of least energy at most 5 % slower than the fastest: tuner show {run} --max-slowdown 5%{named}"
)


def within_slowdown(document: RunDocument, max_slowdown: float | None) -> RunDocument:
    """The document of a front whose answer is the point of least energy within a time budget.

    Args:
        document: of a run with the objective ``pareto``.
        max_slowdown: against the fastest point, e.g. 0.05; None leaves the answer, which is the point of the
            least energy-delay product.

    Raises:
        InputError: the run has no front, or a file says what no run has written.
    """
    if max_slowdown is None:
        return document
    if objective_name(document) != "pareto" or not document.get("front"):
        raise InputError(
            f"--max-slowdown {100 * max_slowdown:g}%: chooses a point of a Pareto front, and this run has"
            " none; tune with --objective pareto"
        )
    points = document["front"]
    limit_s = _time_s(points[0]) * (1 + max_slowdown)
    within = [point for point in points if _time_s(point) <= limit_s]
    point = min(within, key=lambda point: point["trial"]["energy_j"] or 0.0)
    changed = document.copy()
    changed["best"] = point["trial"]
    changed["front_slowdown"] = max_slowdown
    changed["against_default"] = point.get("against_default")
    changed["trade_off"] = point.get("trade_off")
    changed["against_solo_bests"] = point.get("against_solo_bests")
    priorities = document.get("solo_best_priorities")
    if priorities is not None and not same(document["best"], point["trial"]):  # they are of the answer
        changed["solo_best_priorities"] = {**priorities, "against_equal": None}
    changed["energy_trade_off"] = point.get("energy_trade_off")
    changed["workloads"] = [
        {**workload, "best": part, "expanded": expanded}
        for workload, part, expanded in zip(
            document["workloads"], point["parts"], point["expanded"], strict=True
        )
    ]
    even = document.get("break_even")
    changed["break_even"] = break_even(changed, "pareto", None if even is None else even["runs_per_day"])
    return changed


def _time_s(point: FrontPoint) -> float:
    """Time of a point, which every one has."""
    return point["trial"]["time_s"] or 0.0


def front_table(document: RunDocument, named: str = "") -> Table[FrontPoint] | None:
    """The points of the front, fastest first; None where the answer is the only one, or there is none.

    Args:
        document: of a run.
        named: option of a command that reads its database.
    """
    points = document.get("front") or ()
    if len(points) < _LEAST_POINTS:
        return None
    mark = label(document, "{}; ")
    chosen, run = document.get("front_slowdown"), document.get("run")
    which = _WHICH if chosen is None else _WHICH_CHOSEN.format(slower=f"{100 * chosen:g}")
    if chosen is None and run is not None:
        which = f"{which}; {_HOW_TO_CHOOSE.format(run=run, named=named)}"
    against = replace(ENERGY_CHANGE, name="against the default")
    return Table(
        [
            Column("trial", lambda point: point["number"], number=True),
            TIME.of(_trial),
            ENERGY.of(_trial),
            against.of(lambda point: point.get("against_default")),
            *filled([CLOCK.of(_trial), POWER_LIMIT.of(_trial)], points),
        ],
        points,
        Column("configuration", lambda point: _note(document, point)),
        title=f"Pareto front of time and energy ({mark}{len(points)} points, fastest first; ± is 95 %)",
        sentences=[which],
    )


def _trial(point: FrontPoint) -> TrialDocument:
    return point["trial"]


def _note(document: RunDocument, point: FrontPoint) -> str:
    configurations = "; ".join(shown_values(one) for one in point["trial"]["configurations"].values())
    marks = ["the answer"] if same(document["best"], point["trial"]) else []
    return ", ".join([*marks, *filter(None, [configurations])])
