"""What a run left out and why: configurations that were dropped, do not compile, or failed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.model import shown_values

_GROUPS_SHOWN = 3
_EXAMPLE_CHARACTERS = 240
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_FAILED_COMPILE = "does not compile"


def dropped_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each workload of which configurations were left out, with every reason."""
    several = len(document["workloads"]) > 1
    for workload in document["workloads"]:
        reasons = _reasons(workload)
        if reasons:
            size = workload["space"].get("cartesian") or workload["space"].get("size")
            of = f" of {workload['name']}" if several else ""
            total = f" ({size:,} in all)" if size is not None else ""
            yield f"left out{of}{total}: {', '.join(reasons)}"


def _reasons(workload: Mapping[str, Any]) -> list[str]:
    space = workload["space"]
    counts: dict[str, int] = {}
    threshold = space.get("min_occupancy")
    share = "" if threshold is None else f" of {100 * threshold:g} %"
    for reason, count in space.get("dropped", {}).items():
        low = reason.startswith("occupancy")
        words = f"below the occupancy threshold{share} (--min-occupancy)" if low else reason
        counts[words] = counts.get(words, 0) + count
    cartesian, size = space.get("cartesian"), space.get("size")
    if cartesian is not None and size is not None:
        counts["excluded by constraints"] = cartesian - size
    return [f"{count:,} × {reason}" for reason, count in counts.items() if count]


def failure_lines(document: Mapping[str, Any], *, verbose: bool = False) -> Iterator[str]:
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


def failures(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
            yield from new(_FAILED_COMPILE, message)


def _default(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The only trial of a stored answer that may have failed."""
    default = document.get("default")
    return [] if default is None or "workloads" not in default else [default]


def _words(status: str) -> str:
    return _FAILED_COMPILE if status == "compile-error" else status.replace("-", " ")


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
