"""What a run left out and why: configurations that were dropped, do not compile, or failed."""

import re
from collections import Counter
from collections.abc import Iterator

from tuner.model.errors import LaunchMisfitError
from tuner.model.plan import shown_values
from tuner.model.run_document import RunDocument, TrialDocument, WorkloadSpace

_GROUPS_SHOWN = 3
_EXAMPLE_CHARACTERS = 240
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_FAILED_COMPILE = "does not compile"
_CONSTRAINTS = "excluded by constraints"


def dropped_lines(document: RunDocument, *, verbose: bool = False) -> Iterator[str]:
    """What was left out with every reason: of all workloads in a sentence, with ``verbose`` of each."""
    workloads = document["workloads"]
    recorded = bool(document.get("recorded"))
    size = document["space"].get("size")
    if recorded and size is not None:
        yield _recorded(document, size)
    groups = [[workload] for workload in workloads] if verbose else [workloads]
    for group in groups:
        counts: Counter[str] = Counter()
        for workload in group:
            counts.update(_reasons(workload["space"], recorded=recorded))
        counts[_CONSTRAINTS] = counts.pop(_CONSTRAINTS, 0)  # what the kernel file says itself comes last
        sizes = [one["space"].get("cartesian") or one["space"].get("size") or 0 for one in group]
        total = f" (of {sum(sizes):,})" if all(sizes) and not recorded else ""
        of = "" if len(workloads) == 1 else f" of {group[0]['name']}" if verbose else " of all workloads"
        sampled = any("listed" in one["space"] for one in group)  # of such a space the size is an estimate
        reasons = [
            f"{'about ' if sampled and reason == _CONSTRAINTS else ''}{count:,} × {reason}"
            for reason, count in counts.items()
            if count
        ]
        if reasons:
            yield f"left out{of}: {', '.join(reasons)}{total}"


def _recorded(document: RunDocument, size: int) -> str:
    """What the recording has, as a product of the configurations of its workloads; and how much was tried.

    A recording has chosen configurations: that tunables have more values says nothing about it.
    """
    space = document["space"]
    factors = [
        *(workload["space"].get("size") for workload in document["workloads"]),
        *(len(values or (1,)) for values in (space.get("clocks_mhz"), space.get("power_limits_w"))),
    ]
    told = [f"{factor:,}" for factor in factors if factor not in (None, 1)]
    product = f"{' × '.join(told)} = " if len(told) > 1 else ""
    what = "combinations of recorded configurations" if product else "recorded configurations"
    tried = "all" if space["measured"] >= size else f"{space['measured']:,} of them"
    return f"{what}: {product}{size:,}, {tried} replayed"


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
    """Each reason of a failure once, with a count and an example; with ``verbose`` every failure in full."""
    groups: dict[str, list[str]] = {}
    for kind, example in failures(document):
        groups.setdefault(kind, []).append(example)
    for number, (_, examples) in enumerate(groups.items()):
        if verbose:
            yield from (f"failed: {example}" for example in examples)
        elif number < _GROUPS_SHOWN:
            count = f"{len(examples):,} × " if len(examples) > 1 else ""
            yield f"failed: {count}{_short(examples[0])}"
    if len(groups) > _GROUPS_SHOWN and not verbose:
        others = len(groups) - _GROUPS_SHOWN
        yield f"failed for {others} other {'reason' if others == 1 else 'reasons'} too: --verbose"


def failures(document: RunDocument) -> Iterator[tuple[str, str]]:
    """Every failure once: what is common to failures of its kind, and its own text."""
    told: set[str] = set()

    def new(kind: str, text: str, *others: str) -> Iterator[tuple[str, str]]:
        if text not in told:
            told.update((text, *others))
            yield f"{kind} {_common(text)}", f"{kind}: {text}"

    for trial in document.get("trials") or _default(document):
        for name, result in trial["workloads"].items():
            status, detail = result["status"], result["detail"] or ""
            if status != "ok" and detail:
                where = f"{name} [{shown_values(trial['configurations'][name])}]"
                yield from new(_words(status), detail if where in detail else f"{where}: {detail}", detail)
    for workload in document["workloads"]:
        for message in workload.get("compile_errors", ()):
            yield from new(
                "launch-error" if LaunchMisfitError.reason in message else _FAILED_COMPILE, message
            )


def _default(document: RunDocument) -> list[TrialDocument]:
    """The only trial of a stored answer that may have failed."""
    default = document.get("default")
    return [] if default is None or "workloads" not in default else [default]


def _words(status: str) -> str:
    return _FAILED_COMPILE if status == "compile-error" else status


def _common(message: str) -> str:
    """A message without its configuration and numbers, by which failures of one kind are told."""
    without = re.sub(r"\[[^\]]*=[^\]]*\]", "", message)
    return _NUMBER.sub("#", without)


def _short(text: str) -> str:
    """The first line of a message, without its middle where it is long."""
    first, *more = text.splitlines()
    if len(first) > _EXAMPLE_CHARACTERS:
        half = _EXAMPLE_CHARACTERS // 2
        first = f"{first[:half]} … {first[-half:]}"
    return first + (" …" if more else "")
