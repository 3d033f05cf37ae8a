"""Questions in one form, what they look for, and the job specs that would answer them better."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.daemon.answers.snapshot import AnswerSnapshot
from tuner.daemon.interface import MOST_LETTERS, MOST_WORKLOADS, Question
from tuner.daemon.queue.job_specs import answer_key, exact, with_defaults
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import AnswerQuery
from tuner.devices.gpus import limits_of
from tuner.errors import InputError, UnknownNameError
from tuner.model import DeviceIdentity
from tuner.model.jobs import JobKind, JobSpec
from tuner.model.objective import described
from tuner.model.records import canonical
from tuner.search.option_checks import check_options
from tuner.system.names import suggestion

MOST_COUNT = 1e9
"""The most uses that one question may report: more than a client makes between two questions."""


def normalised(question: Question, snapshot: AnswerSnapshot) -> Question:
    """The question with its device named and its workloads written in one way.

    Args:
        question: of a client.
        snapshot: with the kernels and devices that it may name.

    Raises:
        InputError: it cannot be answered; the message says what would be right.
    """
    check(question)
    device = _device(question.device, snapshot.identities)
    workloads = [snapshot.catalog.workload(spec) for spec in question.workloads]
    names = [str(workload) for workload in workloads]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{', '.join(twice)}: named more than once; a co-run holds a workload once")
    specs = (
        exact(spec, workload, snapshot.catalog)
        for spec, workload in zip(question.workloads, workloads, strict=True)
    )
    return replace(question, workloads=tuple(specs), device=device.spec)


def check(question: Question) -> None:
    """Refuse what is wrong for any kernels and devices.

    Raises:
        InputError: the message names the field and what would be right.
    """
    check_options({"objective": question.objective, "max_slowdown": question.max_slowdown})
    if not question.workloads:
        raise InputError("workload: name at least one, such as scan-lf:N=1024")
    if len(question.workloads) > MOST_WORKLOADS:
        raise InputError(
            f"workload: {len(question.workloads)} are named; at most {MOST_WORKLOADS} run together"
        )
    longest = max(question.workloads, key=len)
    if len(longest) > MOST_LETTERS:
        raise InputError(f"workload {longest[:40]!r}...: {len(longest)} letters, at most {MOST_LETTERS}")
    if not 0.0 <= question.demand <= MOST_COUNT:
        raise InputError(f"count: {question.demand:g} is not a number of uses from 0 to {MOST_COUNT:g}")


def _device(spec: str, identities: Mapping[str, DeviceIdentity]) -> DeviceIdentity:
    if spec in identities:
        return identities[spec]
    if not identities:
        raise InputError("device: the daemon has found no GPU to tune; status says why")
    if not spec:
        return next(iter(identities.values()))
    known = ", ".join(identities)
    raise UnknownNameError(
        f"device: {spec!r} is not tuned here; choose from {known}{suggestion(spec, identities)}"
    )


def question_key(question: Question) -> str:
    """The key that uses of a normalised question are counted by, whatever the order of its workloads."""
    return canonical(
        {
            "workloads": sorted(question.workloads),
            "objective": question.objective,
            "max_slowdown": question.max_slowdown,
            "clocks_as_found": question.clocks_as_found,
            "device": question.device,
        }
    )


def question_of(key: str) -> Question:
    """The question of a key.

    Raises:
        InputError: the text is no key.
    """
    try:
        fields: dict[str, Any] = json.loads(key)
        return Question(**{**fields, "workloads": tuple(fields["workloads"])})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{key[:80]!r} is no question that was counted") from error


def query_of(question: Question, snapshot: AnswerSnapshot) -> AnswerQuery:
    """The look-up that answers a normalised question."""
    device = snapshot.identities[question.device]
    return AnswerQuery(
        workloads=tuple(map(snapshot.catalog.workload, question.workloads)),
        kernels=snapshot.catalog.kernels,
        sources=snapshot.sources,
        objective=described(question.objective, question.max_slowdown),
        device=device,
        limits=limits_of(device),
        clocks_as_found=question.clocks_as_found,
        doubts=snapshot.doubts,
    )


def tuning_spec(question: Question, snapshot: AnswerSnapshot) -> JobSpec:
    """The search that answers a normalised question: a set's of daemon.toml, else by ``[tuning]``."""
    tuning = snapshot.settings.tuning
    limit = {} if question.max_slowdown is None else {"max_slowdown": question.max_slowdown}
    spec = JobSpec(
        workloads=question.workloads,
        objective=question.objective,
        policy=tuning.policy,
        clocks=tuning.clocks,
        device=question.device,
        options=with_defaults(limit, tuning),
    )
    spec = snapshot.searches.get(answer_key(spec), spec)
    return replace(spec, clocks="off") if question.clocks_as_found else spec


def sampling_spec(question: Question, answer: StoredAnswer, snapshot: AnswerSnapshot) -> JobSpec:
    """The job that measures the answer to a normalised question again."""
    return JobSpec(
        workloads=question.workloads,
        objective=question.objective,
        clocks="off" if answer.clock_mhz is None else str(answer.clock_mhz),
        device=question.device,
        kind=JobKind.SAMPLE,
        options=tuning_spec(question, snapshot).options,
    )


def question_answered_by(spec: JobSpec, *, clocks_as_found: bool = False) -> Question:
    """The question that a job answers; it counts as no use."""
    return Question(
        spec.workloads,
        spec.objective,
        spec.device,
        spec.options.get("max_slowdown"),
        clocks_as_found=clocks_as_found,
        count=0.0,
    )
