"""Whether an answer of another GPU of the kind can be verified in place of a search."""

from dataclasses import replace

from tuner.daemon.answers.replies import normalised, query_of, question_answered_by
from tuner.daemon.answers.snapshot import AnswerSnapshot
from tuner.daemon.interface import Question
from tuner.daemon.jobs.specs import verifying
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import AnswerQuery
from tuner.model.device_choice import DeviceChoice
from tuner.model.errors import InputError
from tuner.model.jobs import JobSpec

_NAMED = ("off", "auto")  # choices of clocks that runs keep as written; of others they keep the clocks


def cheapest(spec: JobSpec, snapshot: AnswerSnapshot) -> JobSpec:
    """A search, or the verification that spares it where there is an answer to verify.

    Args:
        spec: of the search; where it may run on several devices, it stays a search.
        snapshot: with the answers.
    """
    if not DeviceChoice.parse(spec.device).one:
        return spec
    try:
        question = normalised(question_answered_by(spec, clocks_as_found=spec.clocks == "off"), snapshot)
    except InputError:  # its kernel, size or device is gone
        return spec
    return verifying(spec) if may_verify(question, spec, snapshot) else spec


def may_verify(question: Question, spec: JobSpec, snapshot: AnswerSnapshot) -> bool:
    """True where another GPU of the kind has an answer that a verification here would make fresh.

    Where one was refuted here already, under the present conditions, only a search helps.

    Args:
        question: normalised.
        spec: of its search.
        snapshot: with the answers.
    """
    query = query_of(question, snapshot)
    answers = [one for one in snapshot.of_set(tuple(query.batches)) if query.concerns(one)]
    own = (one for one in answers if one.uuid == query.device.uuid)
    if any(one.refuted and query.stale(one, query.batches) == (one.refuted,) for one in own):
        return False
    return any(_fresh_but_for_its_gpu(one, query) and _of_these_clocks(one, spec) for one in answers)


def _fresh_but_for_its_gpu(answer: StoredAnswer, query: AnswerQuery) -> bool:
    if answer.uuid == query.device.uuid or not answer.finished:
        return False
    there = replace(query, device=replace(query.device, uuid=answer.uuid))
    return not there.stale(answer, query.batches)


def _of_these_clocks(answer: StoredAnswer, spec: JobSpec) -> bool:
    """True where a search would choose from the clocks that the answer was chosen from, as far as known."""
    clocks = answer.conditions["clocks"]
    if spec.clocks in _NAMED or clocks in _NAMED:
        return bool(clocks == spec.clocks)
    return True
