"""Replies to questions, made of a snapshot, and what is known of the answer that a job would give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.daemon.answers.questions import (
    normalised,
    query_of,
    question_answered_by,
    question_key,
    tuning_spec,
)
from tuner.daemon.answers.snapshot import AnswerSnapshot
from tuner.daemon.interface import NotNowError, Question, Reply
from tuner.daemon.queue.job_specs import topic
from tuner.database.answers import StoredAnswer
from tuner.database.best_known import BestKnown, BestWorkload, best_known, worked_out
from tuner.database.ranking import AnswerQuery, ServedAnswer, served_answer
from tuner.errors import InputError
from tuner.model import DeviceIdentity, RunStatus, WorkloadName
from tuner.model.jobs import JobSpec
from tuner.options import LIMITS


@dataclass(frozen=True)
class PreparedReply:
    """A reply, and what follows from the questions that it answers.

    Attributes:
        reply: the reply.
        key: the key that uses are counted by.
        unpredicted: workloads whose analytical answer would be better than what is known, and is missing.
        device: that was asked for.
        search: the job that would give a better answer.
        topic: of that job.
    """

    reply: Reply
    key: str
    unpredicted: tuple[str, ...]
    device: DeviceIdentity
    search: JobSpec
    topic: str

    def notices(self, question: Question, snapshot: AnswerSnapshot, *, backed_off: bool) -> tuple[str, ...]:
        """What follows from a question whose answer no job refines yet, in sentences.

        Args:
            question: with its uses.
            snapshot: with the settings.
            backed_off: the search was tried lately.
        """
        sentences = [f"{name}: prediction pending" for name in self.unpredicted]
        switch = "retune_stale" if self.reply.origin == "stored" else "refine"
        if not getattr(snapshot.settings.online, switch):
            why = f"[online] {switch} is off"
        elif backed_off:
            why = "it was tried or cancelled lately"
        elif question.demand:
            return (*sentences, "a search is queued when there is room: ask again for its number")
        else:
            return tuple(sentences)
        return (*sentences, f"no search is queued: {why}; submit one")


def prepare(question: Question, snapshot: AnswerSnapshot) -> PreparedReply:
    """The reply to a normalised question.

    Raises:
        InputError: a kernel file is wrong at this size.
        NotNowError: a kernel without a default has no prediction yet.
    """
    query = query_of(question, snapshot)
    best = best_known(query, snapshot)
    search = tuning_spec(question, snapshot)
    reply = _stored(query, best, best.stored) if best.stored is not None else _assembled(query, best)
    unpredicted = tuple(
        str(workload)
        for workload in query.workloads
        if reply.workloads[str(workload)]["origin"] in ("nearest", "default")
        and worked_out(query, workload, snapshot) is None
    )
    return PreparedReply(reply, question_key(question), unpredicted, query.device, search, topic(search))


def _stored(query: AnswerQuery, best: BestKnown, found: ServedAnswer) -> Reply:
    """The reply with the stored answer of exactly these workloads."""
    fresh = not query.stale(found.answer, {})  # but, it may be, for its batches
    return Reply(
        origin="stored",
        device=vars(query.device),
        objective=query.objective,
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


def _assembled(query: AnswerQuery, best: BestKnown) -> Reply:
    """The reply with the best known configuration of each workload."""
    parts = {name: _found(name, part) for name, part in best.parts.items()}
    return Reply(
        origin=best.origin,
        device=vars(query.device),
        objective=query.objective,
        workloads={
            name: {
                "configuration": dict(part.configuration),
                "origin": part.origin,
                "details": part.details,
            }
            for name, part in parts.items()
        },
        clock_mhz=None,
        stale=tuple(reason for part in parts.values() for reason in part.stale),
        answer=None,
        run=None,
        refinement=None,
        notices=best.notices(query),
    )


def _found(name: str, part: BestWorkload | None) -> BestWorkload:
    if part is None:
        kernel = WorkloadName.parse(name).kernel
        raise NotNowError(f"{name}: prediction pending, and {kernel} names no default; ask again")
    return part


def stored_answer_to(question: Question, snapshot: AnswerSnapshot) -> ServedAnswer | None:
    """The stored answer of a reply to a normalised question; None without one."""
    query = query_of(question, snapshot)
    return served_answer(query, snapshot.of_set(tuple(query.batches)))


@dataclass(frozen=True)
class SampleTask:
    """What a job that measures an answer again is to measure.

    Attributes:
        run: whose answer it is.
        trial: as ``tuner.model.records.trial_record`` writes it.
    """

    run: int
    trial: Mapping[str, Any]


def sample_task(spec: JobSpec, snapshot: AnswerSnapshot) -> SampleTask | None:
    """What a job of the kind ``sample`` is to measure; None where there is no fresh answer any more.

    Raises:
        InputError: its workloads or its device are not known any more.
    """
    found = stored_answer_to(normalised(question_answered_by(spec), snapshot), snapshot)
    if found is None or found.stale:
        return None
    configurations = {name: dict(one) for name, one in found.configurations.items()}
    return SampleTask(
        found.answer.run, {"configurations": configurations, "clock_mhz": found.answer.clock_mhz}
    )


def answering_run(spec: JobSpec, snapshot: AnswerSnapshot) -> int | None:
    """The run whose answer, fresh and of a search as far as the job's, is what a job asks for."""
    as_found = spec.clocks == "off"
    try:
        question = normalised(question_answered_by(spec, clocks_as_found=as_found), snapshot)
    except InputError:  # its kernel, size or device is gone
        return None
    found = stored_answer_to(question, snapshot)
    if found is None or found.stale or found.answer.clocks_as_found is not as_found:
        return None
    return found.answer.run if searched(found.answer, spec) else None


def searched(answer: StoredAnswer, spec: JobSpec) -> bool:
    """True where the search of an answer came to its end; a limit is an end for jobs with limits only."""
    if answer.status is RunStatus.LIMITED:
        return not LIMITS.isdisjoint(spec.options)
    return answer.finished
