"""What was asked, checked and in one form, so that equal questions are equal.

The orders that would answer a question, and what an order asks.
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.config.catalog import Catalog
from tuner.daemon.answers.snapshot import Present
from tuner.daemon.interface import MOST_LETTERS, MOST_WORKLOADS, Question
from tuner.daemon.queue.job_specs import asks, exact, with_defaults
from tuner.database.answers import StoredAnswer
from tuner.errors import InputError, UnknownNameError
from tuner.model import DeviceIdentity, Workload
from tuner.model.jobs import JobKind, JobSpec
from tuner.model.objective import described
from tuner.model.records import canonical
from tuner.search.option_checks import check_options
from tuner.system.names import suggestion

MOST_COUNT = 1e9
"""Uses that one question may report: more than a client makes between two questions."""


@dataclass(frozen=True)
class Asked:
    """A question that can be answered.

    Attributes:
        workloads: in the order of the question.
        specs: the same as text, with the batch where it is not the kernel file's.
        batches: name -> batch.
        objective: as stored, with the slowdown limit.
        device: the GPU, as it is now.
        question: the question in plain values; JSON has them all.
    """

    workloads: tuple[Workload, ...]
    specs: tuple[str, ...]
    batches: Mapping[str, int]
    objective: str
    device: DeviceIdentity
    question: Question

    @property
    def names(self) -> tuple[str, ...]:
        """The workloads without their batches."""
        return tuple(self.batches)

    @property
    def key(self) -> str:
        """JSON that is the same for equal questions, whatever order the workloads were named in."""
        question = self.question
        return canonical(
            {
                "workloads": sorted(self.specs),
                "objective": question.objective,
                "max_slowdown": question.max_slowdown,
                "clocks_as_found": question.clocks_as_found,
                "device": self.device.spec,
            }
        )


def question_of(key: str) -> Question:
    """The question of a key.

    Raises:
        InputError: no ``Asked.key`` looks like this.
    """
    try:
        fields: dict[str, Any] = json.loads(key)
        return Question(**{**fields, "workloads": tuple(fields["workloads"])})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{key[:80]!r} is no question that was counted") from error


def asked(question: Question, catalog: Catalog, identities: Mapping[str, DeviceIdentity]) -> Asked:
    """Check a question and find what it names.

    Args:
        question: of a client.
        catalog: the kernels.
        identities: device -> who it is; the first is meant where none is named.

    Raises:
        InputError: it cannot be answered; the message says what would be right.
    """
    check(question)
    device = _device(question.device, identities)
    workloads = tuple(catalog.workload(spec) for spec in question.workloads)
    batches = {str(workload): workload.batch for workload in workloads}
    if len(batches) < len(workloads):
        names = [str(workload) for workload in workloads]
        twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
        raise InputError(f"{twice}: named more than once; a co-run holds a workload once")
    return Asked(
        workloads=workloads,
        specs=tuple(map(exact, question.workloads, workloads, itertools.repeat(catalog))),
        batches=batches,
        objective=described(question.objective, question.max_slowdown),
        device=device,
        question=question,
    )


def check(question: Question) -> None:
    """Refuse what is wrong whatever kernels and devices there are.

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


def tuning_order(asked: Asked, present: Present) -> JobSpec:
    """The search that answers a question: of a set of daemon.toml that asks it, else by ``[tuning]``."""
    question, tuning = asked.question, present.settings.tuning
    limit = {} if question.max_slowdown is None else {"max_slowdown": question.max_slowdown}
    order = JobSpec(
        workloads=asked.specs,
        objective=question.objective,
        policy=tuning.policy,
        clocks=tuning.clocks,
        device=asked.device.spec,
        options=with_defaults(limit, tuning),
    )
    own = present.searches.get(asks(order))
    if own is not None:
        order = own
    return replace(order, clocks="off") if question.clocks_as_found else order


def sampling_order(asked: Asked, known: StoredAnswer, present: Present) -> JobSpec:
    """Measuring an answer again, as it was measured."""
    options: Mapping[str, Any] = tuning_order(asked, present).options
    return JobSpec(
        workloads=asked.specs,
        objective=asked.question.objective,
        clocks="off" if known.clock_mhz is None else str(known.clock_mhz),
        device=asked.device.spec,
        kind=JobKind.SAMPLE,
        options=options,
    )


def question_that(order: JobSpec, *, clocks_as_found: bool = False) -> Question:
    """The question that an order asks; it counts as no use."""
    return Question(
        order.workloads,
        order.objective,
        order.device,
        order.options.get("max_slowdown"),
        clocks_as_found=clocks_as_found,
        count=0.0,
    )
