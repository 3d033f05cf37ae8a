"""Makes the reply to a question of what is in memory.

What follows from a question, in sentences for who asked.

What is known already of what an order asks for.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tuner.config import KernelFile
from tuner.daemon.answers.index import Known, allowed
from tuner.daemon.answers.questions import Asked, asked, question_that, tuning_order
from tuner.daemon.answers.snapshot import ANALYSIS_VERSION, Present, analytical_key
from tuner.daemon.interface import NotNowError, Question, Reply
from tuner.daemon.queue.job_specs import topic
from tuner.daemon.settings.tables import OnlineTable
from tuner.errors import InputError
from tuner.model import Configuration, DeviceIdentity, TunableValue, Workload
from tuner.model.jobs import JobSpec
from tuner.model.records import canonical

ORIGINS = ("stored", "analytical", "nearest", "default")
"""From the best to the least."""

NEIGHBOURS = 4
"""Nearest sizes whose configurations are tried for a workload."""

MOST_TRIED = 16
"""Configurations that are tried for a reply, one per workload at least: the rules of a kernel take two tenths
of a millisecond, and a reply five milliseconds at most."""
_LIMITS = ("budget", "time_limit_s", "patience", "runs_per_day", "pay_back_days")  # options that end a search


@dataclass(frozen=True)
class Kept:
    """A reply, and what follows from every question of this kind.

    Attributes:
        reply: to the question.
        key: that it is counted by.
        unknown: workloads of which an analytical answer would have been better than what was there.
        device: that was meant.
        search: that would know better.
        topic: of that search.
    """

    reply: Reply
    key: str
    unknown: tuple[str, ...]
    device: DeviceIdentity
    search: JobSpec
    topic: str


def make(asked: Asked, present: Present) -> Kept:
    """The reply to a question.

    Raises:
        InputError: a kernel file is wrong at this size.
        NotNowError: a kernel without a default was never worked out.
    """
    search = tuning_order(asked, present)
    known_by = topic(search)
    whole = _whole(asked, present)
    if whole is not None:
        return Kept(whole, asked.key, (), asked.device, search, known_by)
    parts = {str(workload): _part(asked, workload, present) for workload in asked.workloads}
    origin = max((part.origin for part in parts.values()), key=ORIGINS.index)
    reply = Reply(
        origin=origin,
        device=vars(asked.device),
        objective=asked.objective,
        workloads={name: part.record() for name, part in parts.items()},
        clock_mhz=None,
        stale=tuple(reason for part in parts.values() for reason in part.stale),
        answer=None,
        run=None,
        refinement=None,
        notices=_notices(asked, parts),
    )
    unknown = tuple(
        str(workload)
        for workload in asked.workloads
        if parts[str(workload)].origin in ("nearest", "default")
        and _worked_out(asked, workload, present) is None
    )
    return Kept(reply, asked.key, unknown, asked.device, search, known_by)


@dataclass(frozen=True)
class _Part:
    """What is known of one workload."""

    configuration: Configuration
    origin: str
    details: str
    stale: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As a reply has it."""
        values: dict[str, TunableValue] = dict(self.configuration)
        return {"configuration": values, "origin": self.origin, "details": self.details}


def _notices(asked: Asked, parts: Mapping[str, _Part]) -> tuple[str, ...]:
    notices = []
    if asked.device.modelled:
        notices.append(f"{asked.device.spec} is modelled, and so is every number measured on it")
    if len(parts) > 1:
        notices.append("these workloads were never tuned together: each has the best known of it alone")
    return tuple(notices)


class Served(NamedTuple):
    """The stored answer that is served for workloads together, and why it is stale."""

    known: Known
    stale: tuple[str, ...]
    configurations: Mapping[str, Configuration]


def served(asked: Asked, present: Present) -> Served | None:
    """The stored answer for exactly these workloads together; None without one whose values are allowed."""
    for known, stale in _ranked(asked, asked.names, asked.batches, present):
        found = _configurations(known, asked.workloads, present)
        if found is not None:
            return Served(known, stale, found)
    return None


def _whole(asked: Asked, present: Present) -> Reply | None:
    """The reply with the stored answer of exactly these workloads."""
    found = served(asked, present)
    if found is None:
        return None
    details = _told(found.known)
    fresh = not present.reasons(found.known, asked.device, {})  # but, it may be, for its batches
    return Reply(
        origin="stored",
        device=vars(asked.device),
        objective=asked.objective,
        workloads={
            name: {
                "configuration": dict(configuration),
                "origin": "stored",
                "details": details,
                "fresh": fresh,
                "source": present.sources[name.partition(":")[0]],  # a client may have another
            }
            for name, configuration in found.configurations.items()
        },
        clock_mhz=found.known.clock_mhz,
        stale=found.stale,
        answer=found.known.answer,
        run=found.known.run,
        refinement=None,
        notices=_notices(asked, {}),
    )


def _ranked(
    asked: Asked, names: Sequence[str], batches: Mapping[str, int], present: Present
) -> list[tuple[Known, tuple[str, ...]]]:
    """Stored answers of a set with why they are stale: of this GPU, fresh, near, finished, new ones first."""
    answers = present.index.of_set(
        names, asked.objective, asked.device, clocks_as_found=asked.question.clocks_as_found
    )
    ranked = [(known, tuple(present.reasons(known, asked.device, batches))) for known in answers]
    return sorted(
        ranked,
        key=lambda one: (
            one[0].uuid != asked.device.uuid,
            bool(one[1]),
            _batches_apart(one[0], batches),
            one[0].status != "finished",
            -one[0].run,
        ),
    )


def _batches_apart(known: Known, batches: Mapping[str, int]) -> float:
    """How far the batches that were measured are from those asked for, by their ratios."""
    measured = dict(known.conditions["workloads"])
    return sum(abs(math.log2(max(1, measured[name]) / batch)) for name, batch in batches.items())


def _configurations(
    known: Known, workloads: Sequence[Workload], present: Present
) -> dict[str, Configuration] | None:
    """Those of a stored answer that are allowed; None where one is not."""
    found = {
        str(workload): allowed(
            present.catalog.kernel(workload.kernel), workload, known.configurations[str(workload)]
        )
        for workload in workloads
    }
    kept = {name: configuration for name, configuration in found.items() if configuration is not None}
    return kept if len(kept) == len(found) else None


def _told(known: Known) -> str:
    end = "" if known.status == "finished" else f", which was {known.status}"
    return f"run {known.run} of {known.at}{end}"


def _clocked(known: Known) -> str:
    """Said of an answer whose clock is not set with it: its configuration need not be the best without."""
    return "" if known.clock_mhz is None else f", tuned at {known.clock_mhz} MHz"


def _tried(asked: Asked) -> int:
    """Configurations that may be tried for each workload."""
    return max(1, MOST_TRIED // len(asked.workloads))


def _part(asked: Asked, workload: Workload, present: Present) -> _Part:
    """The best known of one workload."""
    kernel = present.catalog.kernel(workload.kernel)
    return (
        _alone(asked, workload, present)
        or _analytical(asked, workload, kernel, present)
        or _nearest(asked, workload, kernel, present)
        or _default(asked, workload, kernel, present)
    )


def _alone(asked: Asked, workload: Workload, present: Present) -> _Part | None:
    """The stored answer of a workload alone, where it is asked for with others."""
    name = str(workload)
    others = ", ".join(other for other in asked.names if other != name)
    if not others:
        return None
    ranked = _ranked(asked, [name], {name: workload.batch}, present)
    for known, stale in sorted(ranked, key=lambda one: (bool(one[1]), one[0].clock_mhz is not None)):
        found = _configurations(known, [workload], present)
        if found is not None:
            company = f"{name} was tuned alone, is asked for with {others}"
            return _Part(found[name], "stored", f"{_told(known)}{_clocked(known)}", (*stale, company))
    return None


def _analytical(asked: Asked, workload: Workload, kernel: KernelFile, present: Present) -> _Part | None:
    document = _worked_out(asked, workload, present)
    values = None if document is None else document.get("configuration")
    if document is None or values is None:
        return None
    configuration = allowed(kernel, workload, values)
    if configuration is None:
        return None
    details = f"by the rule {document['rule']!r} of {document['considered']} candidates; nothing was measured"
    return _Part(configuration, "analytical", details)


def _worked_out(asked: Asked, workload: Workload, present: Present) -> Mapping[str, Any] | None:
    source = present.sources[workload.kernel]
    return present.analytical.get(analytical_key(str(workload), asked.device, source, ANALYSIS_VERSION))


def _nearest(asked: Asked, workload: Workload, kernel: KernelFile, present: Present) -> _Part | None:
    most = min(NEIGHBOURS, _tried(asked))
    neighbours = present.index.nearest(kernel, workload, asked.objective, asked.device, most)
    for known in neighbours:
        (name,) = known.names
        configuration = allowed(kernel, workload, known.configurations[name])
        if configuration is not None:
            stale = present.reasons(known, asked.device, {})
            doubt = f", stale: {'; '.join(stale)}" if stale else ""
            return _Part(
                configuration, "nearest", f"the answer for {name}, {_told(known)}{_clocked(known)}{doubt}"
            )
    return None


def _default(asked: Asked, workload: Workload, kernel: KernelFile, present: Present) -> _Part:
    if kernel.recipe.default:
        return _Part(kernel.default(workload), "default", f"the default of {kernel.name}")
    document = _worked_out(asked, workload, present)
    values = [document["default"]] if document is not None else _first_values(kernel, _tried(asked))
    for one in values:
        configuration = allowed(kernel, workload, one)
        if configuration is not None:
            return _Part(configuration, "default", "the first configuration that its rules allow")
    raise NotNowError(
        f"{workload}: {kernel.name} names no default, and its first is not found yet; ask again"
    )


def _first_values(kernel: KernelFile, most: int) -> list[dict[str, TunableValue]]:
    products = itertools.product(*kernel.tunables.values())
    return [dict(zip(kernel.tunables, values, strict=True)) for values in itertools.islice(products, most)]


def coming(kept: Kept, question: Question, online: OnlineTable, *, resting: bool) -> tuple[str, ...]:
    """What follows from a question whose answer no job makes better yet, in sentences.

    Args:
        kept: the reply.
        question: that was asked.
        online: what may follow.
        resting: its search is not wanted for a while.
    """
    sentences = []
    if kept.unknown:
        names = ", ".join(kept.unknown)
        sentences.append(f"the analytical answer of {names} is not there yet: it is worked out in its turn")
    switch = "retune_stale" if kept.reply.origin == "stored" else "refine"
    if not getattr(online, switch):
        why = f"[online] {switch} is off"
    elif resting:
        why = "one was tried, or cancelled, of late"
    elif question.demand:
        return (*sentences, "a search is queued for it where there is a place: ask again for its number")
    else:
        return tuple(sentences)
    return (*sentences, f"no search is queued for it, as {why}; submit one")


@dataclass(frozen=True)
class Again:
    """What a job that measures again is to measure.

    Attributes:
        run: whose answer it is.
        trial: as ``tuner.model.records.trial_record`` writes it.
    """

    run: int
    trial: Mapping[str, Any]


def again(order: JobSpec, present: Present) -> Again | None:
    """What an order of the kind ``sample`` is to measure; None where there is no fresh answer any more.

    Raises:
        InputError: its workloads or its device are not known any more.
    """
    found = served(asked(question_that(order), present.catalog, present.identities), present)
    if found is None or found.stale:
        return None
    configurations = {name: dict(one) for name, one in found.configurations.items()}
    return Again(found.known.run, {"configurations": configurations, "clock_mhz": found.known.clock_mhz})


def answered(order: JobSpec, present: Present) -> int | None:
    """The run whose answer, fresh and of a search as far as the order's, is what an order asks for."""
    as_found = order.clocks == "off"
    question = question_that(order, clocks_as_found=as_found)
    try:
        found = served(asked(question, present.catalog, present.identities), present)
    except InputError:  # its kernel, size or device is gone
        return None
    if found is None or found.stale or found.known.clocks_as_found is not as_found:
        return None
    return found.known.run if searched(found.known, order) else None


def searched(known: Known, order: JobSpec) -> bool:
    """True where an answer's search came to its end; a limit is one for orders with limits only."""
    if known.status == "limited":
        return any(name in order.options for name in _LIMITS)
    return known.status == "finished"


def alike(order: JobSpec) -> str:
    """The same for orders that come to nothing alike, whatever order the workloads are named in."""
    return canonical(
        [sorted(order.workloads), order.objective, order.device, order.kind.value, dict(order.options)]
    )
