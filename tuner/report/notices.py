"""The notices of a run: those that change how its numbers are read, and the others."""

import re
from collections.abc import Collection, Iterator

from tuner import registry
from tuner.model.run_document import RunDocument, TrialDocument
from tuner.model.trial import Flag, FlagKind

_NO_GPU = "no GPU"
_OF_TIES = re.compile("(tie|near):")
_CALM = re.compile(r"(break-even: stopped|spared:|stopped:)|.*: batch capped from|.* rule \(")
"""How notices begin that tell of the search, not of the numbers. What ``stopped`` and ``spared`` say the head
and the table show."""


def stand_in(document: RunDocument, seen: Collection[str] = ()) -> list[str]:
    """Why a simulated device stands in for a GPU, which is said before any number; empty where none does."""
    return [one for one in _new(document, seen) if one.startswith(_NO_GPU)]


def warnings(document: RunDocument, seen: Collection[str] = (), *, of_ties: bool = True) -> Iterator[str]:
    """What must be known to read the numbers, a sentence each.

    Args:
        document: of a run.
        seen: notices that are left out.
        of_ties: with those on trials that may cost as little as the answer.
    """
    best = document["best"]
    yield from _verdict(document, seen, held=False)
    if best is not None:
        yield from (f"beware: {flag}" for flag in best.get("flags", ()) if not _is_wanted(flag, best))
        yield from (
            f"beware: {workload['name']} spills registers"
            for workload in document["workloads"]
            if workload["best"] is not None and workload["best"].get("spills")
        )
    for one in _new(document, seen):
        if one.startswith(_NO_GPU):
            continue
        if of_ties if _OF_TIES.match(one) else not _is_calm(one):
            yield one


def notices_of(document: RunDocument, seen: Collection[str] = (), *, of_ties: bool = False) -> Iterator[str]:
    """The other notices: what a policy said of itself, and how the search went."""
    yield from _verdict(document, seen, held=True)
    for one in _new(document, seen):
        if of_ties if _OF_TIES.match(one) else _is_calm(one):
            yield one


def _verdict(document: RunDocument, seen: Collection[str], *, held: bool) -> Iterator[str]:
    """What came of a verification, where it held or where it did not; an older run calls both verified."""
    found = document.get("verification")
    if found and found["told"] not in seen and bool(found["held"]) is held:
        told = found["told"]
        yield told if found["held"] is not False else f"refuted: {told.partition(': ')[2]}"


def _new(document: RunDocument, seen: Collection[str]) -> Iterator[str]:
    yield from (one for one in dict.fromkeys(document.get("notices", ())) if one not in seen)


def _is_wanted(text: str, trial: TrialDocument) -> bool:
    """True for what a power limit that was set does: the load reaches it."""
    flag = Flag.parse(text)
    reached = flag.only_power_limit or flag.kind is FlagKind.POWER_LIMIT
    return reached and trial.get("power_limit_w") is not None


def _is_calm(notice: str) -> bool:
    told_by = notice.partition(":")[0]
    return told_by in registry.names("policy") or _CALM.match(notice) is not None
