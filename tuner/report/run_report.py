"""The report of a run, made from its document: the answer first, on one screen, and no column lost."""

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Group

from tuner.model.errors import LaunchMisfitError
from tuner.model.objective import TIMED, timing_of
from tuner.model.plan import shown_values
from tuner.model.run_document import RunDocument, WorkloadDocument, WorkloadSpace, program_of
from tuner.model.trial import Flag, FlagKind
from tuner.model.units import MODELLED, lasting, percent_with_interval
from tuner.report.answer import comparisons, cost_line, front_table, totals, workloads_of, year_line
from tuner.report.details import clock_table, detail_lines, limit_table, setting_lines
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
from tuner.report.rows import Column
from tuner.report.trials_table import (
    RankedTrial,
    goal,
    header_command,
    objective_name,
    ranked_trials,
    same,
    top,
    trials_table,
    use_of,
)

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
    changes = document.get("trade_off")
    if count:
        slower = ""
        if objective_name(document) == "time" and changes and not same(document["best"], document["fastest"]):
            change = percent_with_interval(changes["slowdown"], changes.get("slowdown_interval"))
            slower = f"; {change} in time against the fastest"
        yield f"tie of {count + 1:,}, this one by rule{slower}"


def inputs(document: RunDocument) -> Iterator[str]:
    """Yield what inputs joules were measured with, as they depend on the values; nothing without joules."""
    if document["best"] is None or document["best"]["energy_j"] is None or document.get("recorded"):
        return
    names: dict[str, list[str]] = {}
    for workload in document["workloads"]:
        for name, values in workload.get("inputs", {}).items():
            names.setdefault(values, []).append(name)
    if names:
        told = "; ".join(f"{', '.join(dict.fromkeys(of))} {values}" for values, of in names.items())
        yield f"joules hold for these inputs: {told}"


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


def _new(document: RunDocument, seen: Collection[str]) -> list[str]:
    return [one for one in dict.fromkeys(document.get("notices", ())) if one not in seen]


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


def run_report(
    document: RunDocument,
    width: int,
    *,
    verbose: bool = False,
    seen: Collection[str] = (),
    trials: Sequence[RankedTrial] | None = None,
    database: Path | None = None,
) -> Group:
    """The report of a run, as rich prints it.

    Args:
        document: of a run, as ``--json`` writes it or the database keeps it.
        width: characters of a line, 40 at least.
        verbose: with everything that the document tells besides its list of trials.
        seen: notices that stand above already, and are not repeated.
        trials: to show, with number, status and flags; None for the top, and what is known for something.
        database: that commands must name which read more of the run; None for the user's own.
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
    for notice in (*ties(document), *inputs(document), *warnings(document, seen)):
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
        year_line(document),
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
        shown = replace(workloads_of(document), note=Column("configuration", _configuration))
        yield from table_lines(shown, width, indent=GAP, head=_QUIET)
        yield ReportLine("")
    yield from map(ReportLine, comparisons(document, width))


def _configuration(workload: WorkloadDocument) -> str:
    return "" if workload["best"] is None else shown_values(workload["best"]["configuration"])


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
    if program_of(document) is not None:
        return ""
    flags = (flag for workload in document["workloads"] for flag in workload.get("flags", ()))
    runtime = document["device"].get("runtime")
    by = dict.fromkeys(name for one in document["workloads"] for name in one.get("compilers", ["NVRTC"]))
    compilers = [f"NVRTC {runtime}" if name == "NVRTC" else name for name in by if runtime or name != "NVRTC"]
    built = " ".join([*compilers, *map(shlex.quote, dict.fromkeys(flags))])
    timed = "" if document.get("recorded") else TIMED[timing_of(document["objective"])]
    return ", ".join(filter(None, (built, timed)))


def _use(document: RunDocument, width: int, named: str, *, more: bool) -> Iterator[ReportLine]:
    """Yield the text to paste into a build, and the command that prints more."""
    best, run, chosen = document["best"], document.get("run"), document.get("front_slowdown")
    if chosen is not None:  # the command names the same point of the front
        named = f" --max-slowdown {100 * chosen:g}%{named}"
    texts: list[str] = []
    if best is not None and len(document["workloads"]) == 1:
        use, further = use_of(best, document["workloads"][0], run, named, program_of(document))
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
