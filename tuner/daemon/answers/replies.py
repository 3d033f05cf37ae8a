"""Makes the reply to a question of what is in memory.

What follows from a question, in sentences for who asked.

What is known already of what an order asks for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.config import KernelFile
from tuner.daemon.answers.questions import Asked, asked, question_that, tuning_order
from tuner.daemon.answers.snapshot import Present
from tuner.daemon.interface import NotNowError, Question, Reply
from tuner.daemon.queue.job_specs import topic
from tuner.daemon.settings.tables import OnlineTable
from tuner.database.answers import StoredAnswer
from tuner.database.best_known import BestKnown, BestWorkload, best_known, worked_out
from tuner.database.neighbours import Neighbour
from tuner.database.ranking import AnswerQuery, ServedAnswer, served_answer
from tuner.devices.gpus import limits_of
from tuner.errors import InputError
from tuner.model import DeviceIdentity, RunStatus, WorkloadName
from tuner.model.jobs import JobSpec
from tuner.model.records import canonical
from tuner.options import LIMITS


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


def query_of(asked: Asked, present: Present) -> AnswerQuery:
    """What is looked for to answer a question."""
    return AnswerQuery(
        workloads=asked.workloads,
        kernels=present.catalog.kernels,
        sources=present.sources,
        objective=asked.objective,
        device=asked.device,
        limits=limits_of(asked.device),
        clocks_as_found=asked.question.clocks_as_found,
        doubts=present.doubts,
    )


class MemorySource:
    """Looks answers up in the daemon's memory (``tuner.database.best_known.AnswerSource``).

    Args:
        present: what is known.
    """

    def __init__(self, present: Present) -> None:
        self._present = present

    def of_set(self, names: Sequence[str]) -> Iterable[StoredAnswer]:
        """Answers of exactly these workloads together."""
        return self._present.index.of_set(names)

    def neighbours(self, kernel: KernelFile) -> Iterable[Neighbour]:
        """Answers of one workload of a kernel, alone, with their sizes."""
        return self._present.index.neighbours(kernel)

    def analytical(self, key: str) -> Mapping[str, Any] | None:
        """The analytical answer that is remembered by a key."""
        return self._present.analytical.get(key)


def make(asked: Asked, present: Present) -> Kept:
    """The reply to a question.

    Raises:
        InputError: a kernel file is wrong at this size.
        NotNowError: a kernel without a default was never worked out.
    """
    search = tuning_order(asked, present)
    query, source = query_of(asked, present), MemorySource(present)
    best = best_known(query, source)
    if best.stored is not None:
        return Kept(
            _whole(asked, query, best, best.stored), asked.key, (), asked.device, search, topic(search)
        )
    parts = {name: _known(name, part) for name, part in best.parts.items()}
    reply = Reply(
        origin=best.origin,
        device=vars(asked.device),
        objective=asked.objective,
        workloads={name: _record(part) for name, part in parts.items()},
        clock_mhz=None,
        stale=tuple(reason for part in parts.values() for reason in part.stale),
        answer=None,
        run=None,
        refinement=None,
        notices=best.notices(query),
    )
    unknown = tuple(
        str(workload)
        for workload in asked.workloads
        if parts[str(workload)].origin in ("nearest", "default")
        and worked_out(query, workload, source) is None
    )
    return Kept(reply, asked.key, unknown, asked.device, search, topic(search))


def _known(name: str, part: BestWorkload | None) -> BestWorkload:
    if part is None:
        raise NotNowError(
            f"{name}: {name.partition(':')[0]} names no default, and its first is not found yet; ask again"
        )
    return part


def _record(part: BestWorkload) -> dict[str, Any]:
    """As a reply has it."""
    return {
        "configuration": dict(part.configuration),
        "origin": part.origin,
        "details": part.details,
    }


def served(asked: Asked, present: Present) -> ServedAnswer | None:
    """The stored answer of exactly these workloads together that a reply would have; None without one."""
    return served_answer(query_of(asked, present), present.index.of_set(asked.names))


def _whole(asked: Asked, query: AnswerQuery, best: BestKnown, found: ServedAnswer) -> Reply:
    """The reply with the stored answer of exactly these workloads."""
    fresh = not query.stale(found.answer, {})  # but, it may be, for its batches
    return Reply(
        origin="stored",
        device=vars(asked.device),
        objective=asked.objective,
        workloads={
            name: {
                "configuration": dict(configuration),
                "origin": "stored",
                "details": found.answer.told,
                "fresh": fresh,
                "source": query.sources[WorkloadName.parse(name).kernel],  # a client may have another
            }
            for name, configuration in found.configurations.items()
        },
        clock_mhz=found.answer.clock_mhz,
        stale=found.stale,
        answer=found.answer.answer,
        run=found.answer.run,
        refinement=None,
        notices=best.notices(query),
    )


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
    return Again(found.answer.run, {"configurations": configurations, "clock_mhz": found.answer.clock_mhz})


def answered(order: JobSpec, present: Present) -> int | None:
    """The run whose answer, fresh and of a search as far as the order's, is what an order asks for."""
    as_found = order.clocks == "off"
    question = question_that(order, clocks_as_found=as_found)
    try:
        found = served(asked(question, present.catalog, present.identities), present)
    except InputError:  # its kernel, size or device is gone
        return None
    if found is None or found.stale or found.answer.clocks_as_found is not as_found:
        return None
    return found.answer.run if searched(found.answer, order) else None


def searched(known: StoredAnswer, order: JobSpec) -> bool:
    """True where an answer's search came to its end; a limit is one for orders with limits only."""
    if known.status is RunStatus.LIMITED:
        return not LIMITS.isdisjoint(order.options)
    return known.finished


def alike(order: JobSpec) -> str:
    """The same for orders that come to nothing alike, whatever order the workloads are named in."""
    return canonical(
        [sorted(order.workloads), order.objective, order.device, order.kind.value, dict(order.options)]
    )
