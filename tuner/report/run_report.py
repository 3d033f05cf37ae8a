"""The report of a run, made from its document: the answer first, on one screen, and no column lost."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console, Group

from tuner.model.errors import InputError, LaunchMisfitError
from tuner.model.objective import GAIN, TIMED, timing_of
from tuner.model.plan import shown_values
from tuner.model.run_document import (
    Changes,
    CoRunTotals,
    FrontPoint,
    RunDocument,
    TrialDocument,
    WorkloadDocument,
    WorkloadPart,
    WorkloadSpace,
)
from tuner.model.trial import Flag, FlagKind
from tuner.model.units import MODELLED, lasting, percent_with_interval, significant, with_uncertainty
from tuner.report.clock_curve import clock_table, setting_lines
from tuner.report.details import detail_lines, limit_table
from tuner.report.layout import (
    GAP,
    LEAST_WIDTH,
    ReportLine,
    is_reason,
    label,
    lines_of,
    note,
    origin_words,
    rendered,
    table_lines,
    tied,
    wrapped,
)
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
from tuner.report.trials_table import (
    RankedTrial,
    cost_change,
    goal,
    header_command,
    longest_s,
    objective_name,
    ranked_trials,
    same,
    top,
    trials_table,
    use_of,
)
from tuner.search.document import break_even

# --- The answer of a run: its numbers, each workload's part, and what it gains against other trials.

_INDENT = "  "
_Reference = Literal["default", "fastest", "solo_bests"]
_COMPARED: tuple[
    tuple[_Reference, Literal["against_default", "trade_off", "against_solo_bests"], str], ...
] = (
    ("default", "against_default", "default"),
    ("fastest", "trade_off", "fastest"),
    ("solo_bests", "against_solo_bests", "solo bests together"),
)
_ITSELF: dict[_Reference, str] = {
    "default": "the default configuration",
    "fastest": "the fastest trial",
    "solo_bests": "the solo bests together",
}
_HIDING = 0.9  # of a round: a workload that takes as much alone leaves little to the others


def totals(document: RunDocument) -> list[str]:
    """Time, joules, power, rate, clock, temperature and power limit of the answer; of a round of them all."""
    best, workloads = document["best"], document["workloads"]
    if best is None:
        return []
    parts = amounts(best)
    if len(workloads) == 1:
        parts += rates(workloads[0])
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


def rates(workload: WorkloadDocument) -> list[str]:
    """Return the rate of a workload per second, in its own unit; empty if its work is unknown."""
    rate = _rate_text(workload)
    return [] if rate is None else [rate]


def _rate_text(workload: WorkloadDocument) -> str | None:
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
            *filled([_SHARE.of(_part), Column("rate", _rate_text, number=True)], workloads),
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


def workloads_table(document: RunDocument, width: int) -> list[ReportLine]:
    """A row per workload with its configuration; the title above it says what kind of numbers these are."""
    shown = replace(workloads_of(document), note=Column("configuration", _configuration))
    return table_lines(shown, width, indent=_INDENT, head=_QUIET)


def _configuration(workload: WorkloadDocument) -> str:
    return "" if workload["best"] is None else shown_values(workload["best"]["configuration"])


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
    lines = table_lines(gains, width, indent=_INDENT) if gains.rows else []
    return [line.text for line in lines] + [
        line for text in gains.sentences for line in wrapped(_INDENT + text, width, "", _INDENT * 2)
    ]


def gains_of(document: RunDocument) -> Table[Gain]:
    """The answer against the default, the fastest trial, the solo bests together, and one after another.

    A search for time says what the trial with the least joules would bring, where joules were measured. A
    column that nobody fills is left out.
    """
    rows: list[Gain] = []
    sentences: list[str] = []
    itself: list[str] = []
    for name, against, called in _COMPARED:
        trial, changes = document.get(name), document.get(against)
        before = next((row for row in rows if same(trial, row.trial)), None)
        if before is not None:
            before.against += f", {called}"
        elif same(document["best"], trial):
            if (name, objective_name(document)) != ("fastest", "time"):
                itself.append(_ITSELF[name])
        elif trial is not None and trial["status"] != "ok":
            it = "them" if name == "solo_bests" else "it"
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
    sentences += _solo_bests(document)
    sentences += _hidden(document)
    sentences += _least_energy(document)
    changed = [
        replace(column, unknown="").of(_changes)
        for column in (ENERGY_CHANGE, TIME_CHANGE)[:: -1 if objective_name(document) == "time" else 1]
    ]
    columns = [
        Column[Gain](f"against{label(document, ' ({})')}", lambda gain: gain.against),
        *changed,
        Column[Gain]("", lambda gain: _once(gain.changes), number=True),
        replace(BRIEF_TIME, name="its time", rank=1).of(_took),
        replace(ENERGY, name="its energy", unknown="", rank=1).of(_took),
    ]
    return Table(filled(columns, rows), rows, sentences=sentences)


def _took(gain: Gain) -> TrialDocument | CoRunTotals:
    return gain.took


def _changes(gain: Gain) -> Changes:
    return gain.changes


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
        "they are slower than --max-slowdown allows" if slow else "a tie, of which the answer is the fastest"
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
    if even is None or against is None or even["saving_per_run"] == even["saving_interval"] == 0:
        return f"tuning took {_spent(document)}" if verbose else ""
    runs, least, most = even["runs"], even["runs_least"], even["runs_most"]
    change, half = cost_change(document, against)
    if -change - half < GAIN or runs is None or least is None or most is None:
        took = f"; tuning took {_spent(document)}" if verbose else ""
        return f"no gain worth having, as {100 * GAIN:g} % is not certain: keep the default{took}"
    days = ""
    if even["days"] is not None and even["runs_per_day"] is not None:
        days = f", which is {_days(even['days'])} at {_plain(even['runs_per_day'])} runs a day"
    cost = f"tuning took {with_uncertainty(even['cost'], even['cost_interval'], even['unit'])}"
    if not verbose:
        return f"pays for itself after {_count(runs)} runs{days}: {cost}{label(document, ' ({})')}"
    saving = with_uncertainty(even["saving_per_run"], even["saving_interval"], even["unit"])
    mark = label(document, ", {}")
    return (
        f"pays for itself after {_count(runs)} runs ({_count(least)} to {_count(most)}, 95 %{mark}){days}:"
        f" {cost}, a run saves {saving} against the default"
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


# --- What a run left out and why: configurations that were dropped, do not compile, or failed.

_GROUPS_SHOWN = 3
_EXAMPLE_CHARACTERS = 240
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_CONFIGURATION = re.compile(r"\[([^\]]*=[^\]]*)\]")
_FAILED_COMPILE = "does not compile"
_CONSTRAINTS = "excluded by constraints"


def dropped_lines(document: RunDocument, *, verbose: bool = False) -> Iterator[str]:
    """Yield numbers of left-out configurations by reason: of all workloads, or with ``verbose`` of each.

    Only ``verbose`` tells what the kernel files exclude themselves; what fails has lines of its own.
    """
    workloads = document["workloads"]
    recorded = bool(document.get("recorded"))
    if recorded and verbose:
        yield from _recorded(document)
    groups = [[workload] for workload in workloads] if verbose else [workloads]
    for group in groups:
        counts: Counter[str] = Counter()
        for workload in group:
            counts.update(_reasons(workload["space"], recorded=recorded))
        counts[_CONSTRAINTS] = counts.pop(_CONSTRAINTS, 0) * verbose  # comes last
        if any(workload.get("compile_errors") for workload in group):
            del counts[_FAILED_COMPILE]
        sizes = [one["space"].get("cartesian") or one["space"].get("size") or 0 for one in group]
        total = f" (of {sum(sizes):,})" if verbose and all(sizes) and not recorded else ""
        of = f" of {group[0]['name']}" if verbose and len(workloads) > 1 else ""
        sampled = any("listed" in one["space"] for one in group)  # of such a space the size is an estimate
        reasons = [
            f"{'about ' if sampled and reason == _CONSTRAINTS else ''}{count:,} × {reason}"
            for reason, count in counts.items()
            if count
        ]
        if reasons:
            yield f"left out{of}: {', '.join(reasons)}{total}"


def _recorded(document: RunDocument) -> Iterator[str]:
    """The combinations of a recording, as a product of its factors where there are several.

    A recording has chosen configurations: that tunables have more values says nothing about it.
    """
    space = document["space"]
    factors = [
        *(workload["space"].get("size") for workload in document["workloads"]),
        *(len(values or (1,)) for values in (space.get("clocks_mhz"), space.get("power_limits_w"))),
    ]
    several = [f"{factor:,}" for factor in factors if factor not in (None, 1)]
    if len(several) > 1:
        yield f"combinations of recorded configurations: {' × '.join(several)}"


def _reasons(space: WorkloadSpace, *, recorded: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    threshold = space.get("min_occupancy")
    share = "" if threshold is None else f" of {100 * threshold:g} %"
    for reason, count in space.get("dropped", {}).items():
        low = reason.startswith("occupancy")
        counts[f"below the occupancy threshold{share} (--min-occupancy)" if low else reason] += count
    cartesian, size = space.get("cartesian"), space.get("size")
    if cartesian is not None and size is not None and not recorded:
        counts[_CONSTRAINTS] += cartesian - size
    return counts


def failure_lines(document: RunDocument, *, verbose: bool = False) -> Iterator[str]:
    """Each reason of a failure once, with a count and an example; with ``verbose`` each text in full."""
    groups: dict[str, list[str]] = {}
    for kind, example in failures(document):
        groups.setdefault(_CONFIGURATION.sub("", example) if verbose else kind, []).append(example)
    for number, examples in enumerate(groups.values()):
        count = f"{len(examples):,} × " if len(examples) > 1 else ""
        if verbose:
            yield f"failed: {count}{examples[0]}"
            alike = [found[1] for one in examples[1:] if (found := _CONFIGURATION.search(one))]
            yield from [f"the same: {', '.join(alike)}"] if alike else []
        elif number < _GROUPS_SHOWN:
            yield f"failed: {count}{_short(examples[0])}"
    if len(groups) > _GROUPS_SHOWN and not verbose:
        others = len(groups) - _GROUPS_SHOWN
        yield f"failed for {others} other {'reason' if others == 1 else 'reasons'} too: --verbose"


def failures(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Every failure once: what is common to failures of its kind, and its own text."""
    seen: set[str] = set()

    def new(kind: str, text: str, *others: str) -> Iterator[tuple[str, str]]:
        if text not in seen:
            seen.update((text, *others))
            # configuration and numbers differ among failures of one kind
            common = _NUMBER.sub("#", _CONFIGURATION.sub("", text))
            yield f"{kind} {common}", f"{kind}: {text}"

    trials, default = document.get("trials"), document.get("default")
    if not trials and default is not None and "workloads" in default:
        trials = [default]  # the only trial of a stored answer that may have failed
    for trial in trials or ():
        for name, result in trial["workloads"].items():
            status, detail = result["status"], result["detail"] or ""
            if status != "ok" and detail:
                where = f"{name} [{shown_values(trial['configurations'][name])}]"
                kind = _FAILED_COMPILE if status == "compile-error" else status
                yield from new(kind, detail if where in detail else f"{where}: {detail}", detail)
    for workload in document["workloads"]:
        for message in workload.get("compile_errors", ()):
            yield from new(
                "launch-error" if LaunchMisfitError.reason in message else _FAILED_COMPILE, message
            )


def _short(text: str) -> str:
    """The first line of a message, without its middle where it is long."""
    first, *more = text.splitlines()
    if len(first) > _EXAMPLE_CHARACTERS:
        half = _EXAMPLE_CHARACTERS // 2
        first = f"{first[:half]} … {first[-half:]}"
    return first + (" …" if more else "")


# --- The notices of a run: those that change how its numbers are read, and the others.

_NO_GPU = "no GPU"
_ENDED = re.compile("(?:done|stopped): (.*)", re.DOTALL)
_ELSEWHERE = re.compile(
    f"{_NO_GPU}|done:|stopped:|first answer:|tie:|near:"
)  # the report has lines of its own


def stand_in(document: RunDocument, seen: Collection[str] = ()) -> list[str]:
    """Return the reason for a simulated device in place of a GPU, to be printed first; empty for none."""
    return [one for one in _new(document, seen) if one.startswith(_NO_GPU)]


def ties(document: RunDocument) -> Iterator[str]:
    """That other trials cost the same as the answer, as far as can be told; they are marked in the table."""
    count = sum("tie" in one.marks for one in ranked_trials(document))
    if count:
        words = "other trials cost" if count > 1 else "other trial costs"
        yield f"tie: {count:,} {words} the same, as far as can be told"


def warnings(document: RunDocument, seen: Collection[str] = ()) -> Iterator[str]:
    """Yield warnings that are needed to read the numbers, a sentence each.

    Args:
        document: of a run.
        seen: notices that are left out.
    """
    best = document["best"]
    yield from _verdict(document, seen, held=False)
    if best is not None:
        for text in best.get("flags", ()):
            flag = Flag.parse(text)
            reached = flag.only_power_limit or flag.kind is FlagKind.POWER_LIMIT
            if not reached or best.get("power_limit_w") is None:  # that is what a limit is set for
                yield f"beware: {text}"
        yield from (
            f"beware: {workload['name']} spills registers"
            for workload in document["workloads"]
            if workload["best"] is not None and workload["best"].get("spills")
        )
    for notice in _new(document, seen):
        if not (_ELSEWHERE.match(notice) or is_reason(notice)):
            yield notice


def notices_of(document: RunDocument, seen: Collection[str] = ()) -> Iterator[str]:
    """The other notices: what a policy said of itself, and how the search went."""
    yield from _verdict(document, seen, held=True)
    yield from filter(is_reason, _new(document, seen))


def _verdict(document: RunDocument, seen: Collection[str], *, held: bool) -> Iterator[str]:
    """Yield the result of a verification if it equals ``held``; an older run calls both results verified."""
    verdict = document.get("verification")
    if verdict and verdict["told"] not in seen and bool(verdict["held"]) is held:
        words = verdict["told"]
        yield words if verdict["held"] is not False else f"refuted: {words.partition(': ')[2]}"


def _new(document: RunDocument, seen: Collection[str]) -> Iterator[str]:
    yield from (one for one in dict.fromkeys(document.get("notices", ())) if one not in seen)


def done_line(document: RunDocument) -> str:
    """Return the end of the search: the trials of how many in what time, and why it tried no more."""
    space, status, wall_s = document["space"], document["status"], document.get("wall_s")
    ended = {"finished": "done", "limited": "stopped"}.get(status, status)
    recorded = document.get("recorded")
    count, size = space["measured"], space.get("size") if recorded else space.get("pruned")
    tried = f"{count:,}" if size is None else f"all {count:,}" if count >= size else f"{count:,} of {size:,}"
    parts = [f"{tried} {'replayed' if recorded else 'tried'}"]
    if wall_s is not None:
        parts.append(f"in {lasting(wall_s)}")
    if document.get("resumed"):
        parts.append(f"({document['resumed']:,} before it was resumed)")
    whys = [found[1] for one in document.get("notices", ()) if (found := _ENDED.match(one))]
    return "; ".join([f"{ended}: {' '.join(parts)}", *whys[-1:]])


# --- The report as a whole.

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
    width, named = max(width, LEAST_WIDTH), database_words(database)
    ranked = ranked_trials(document)
    more = trials is None
    if trials is None and verbose:
        trials = top(ranked, _SHOWN_ALONE if len(document["workloads"]) == 1 else _SHOWN_OF_SET)
    lines = [*head_lines(document, width)]
    for notice in stand_in(document, seen):
        lines += lines_of(notice, width, _WARNING)
    lines += _answer(document, width)
    for table in (front_table(document, named), clock_table(document), limit_table(document)):
        lines += setting_lines(table, width)
    for notice in (*ties(document), *warnings(document, seen)):
        lines += lines_of(notice, width, _WARNING)
    if trials is not None and ranked:
        which = f"{len(trials):,} of " if len(trials) < len(ranked) else ""
        title = f"trials ({label(document, '{}; ')}{which}{len(ranked):,}; ± is 95 %)"
        lines += [ReportLine(""), *lines_of(title, width)]
        if trials:
            lines += trials_table(document, trials, width)
        lines.append(ReportLine(""))
    for line in (
        *dropped_lines(document, verbose=verbose),
        *failure_lines(document, verbose=verbose),
        done_line(document),
        cost_line(document, verbose=verbose),
    ):
        lines += lines_of(line, width) if line else []
    lines += _use(document, width, named, more=more)
    if verbose:
        lines.append(ReportLine(""))
        for line in (*detail_lines(document), *notices_of(document, seen)):
            lines += lines_of(line, width)
    return rendered(lines)


def head_lines(document: RunDocument, width: int) -> Iterator[ReportLine]:
    """Yield the head: workloads, device, goal, duration, and kind of the numbers."""
    workloads = document["workloads"]
    names = " + ".join(tied(_named(document, workload)) for workload in workloads)
    if len(workloads) > _NAMED_IN_HEAD:
        names = f"{len(workloads)} workloads"
    device = document["device"]
    name = device["name"].removesuffix(f" ({MODELLED})")  # which the numbers of the answer say, too
    where = f"{name} ({device['spec']})" if device.get("spec") else name
    run = [f"run {document['run']}"] if document.get("run") is not None else []
    merged_from = document.get("merged_from")
    if merged_from:
        run.append(origin_words(merged_from))
    parts = [names, *map(tied, (where, goal(document), *run))]
    yield from lines_of(" · ".join(parts), width, "bold")
    if document.get("recorded"):
        yield from lines_of(note(document), width, _WARNING)


def _named(document: RunDocument, workload: WorkloadDocument) -> str:
    """A workload, with its batch where no table tells it."""
    name, batch = str(workload["name"]), workload.get("batch")
    in_table = len(document["workloads"]) > 1 and document["best"] is not None
    return name if in_table or batch in (None, 1) else f"{name}, batch {batch:,}"


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
    for line in wrapped(GAP.join(map(tied, totals(document))), width, GAP):
        yield ReportLine(line, "bold")
    if len(document["workloads"]) > 1:
        yield ReportLine("")
        yield ReportLine(f"workloads{label(document, ' ({})')}")
        yield from workloads_table(document, width)
        yield ReportLine("")
    yield from map(ReportLine, comparisons(document, width))


def no_answer(document: RunDocument) -> str:
    """Return the reason that there is no answer."""
    if document["status"] in ("running", "killed"):
        return f"no answer: the run is {document['status']}"
    return "no valid trial: there is no answer"


def database_words(database: Path | None) -> str:
    """Return the option that names this database; empty for the user's own."""
    return "" if database is None else f" --database {shlex.quote(str(database))}"


def holding(document: RunDocument) -> str:
    """Compiler, its flags and the timing that an answer holds for, as far as they are known.

    How other tuners timed what they recorded is not.
    """
    flags = (flag for workload in document["workloads"] for flag in workload.get("flags", ()))
    runtime = document["device"].get("runtime")
    built = " ".join([*([f"NVRTC {runtime}"] if runtime else []), *map(shlex.quote, dict.fromkeys(flags))])
    timed = "" if document.get("recorded") else TIMED[timing_of(document["objective"])]
    return ", ".join(filter(None, (built, timed)))


def _use(document: RunDocument, width: int, named: str, *, more: bool) -> Iterator[ReportLine]:
    """Yield the text to paste into a build, and the command that prints more."""
    best, run, chosen = document["best"], document.get("run"), document.get("front_slowdown")
    if chosen is not None:  # the command names the same point of the front
        named = f" --max-slowdown {100 * chosen:g}%{named}"
    texts: list[str] = []
    if best is not None and len(document["workloads"]) == 1:
        use, further = use_of(best, document["workloads"][0], run, named)
        texts = [*([f"use: {use}"] if use else []), *further]
    elif best is not None and run is not None:
        texts = [f"use: {header_command(run, named)}"]
    if best is not None and (held := holding(document)):
        texts.append(f"holds for: {held}")
    if more and run is not None:
        texts.append(f"more: tuner show {run}{named}")
    lines: list[str] = []
    for text in texts:  # side by side where they fit
        if lines and len(joined := f"{lines[-1]}{GAP} {text}") <= width:
            lines[-1] = joined
        else:
            lines.append(text)
    for line in lines:
        yield from lines_of(line, width)
