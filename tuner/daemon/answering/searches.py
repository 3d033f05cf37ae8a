"""The orders that would answer a question, and what an order asks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.daemon.answering.known import Known
from tuner.daemon.answering.present import Present
from tuner.daemon.answering.questions import Asked
from tuner.daemon.desk import Question
from tuner.daemon.jobs.orders import asks, with_defaults
from tuner.model.jobs import Kind, Order


def tuning_order(asked: Asked, present: Present) -> Order:
    """The search that answers a question: of a set of daemon.toml that asks it, else by ``[tuning]``."""
    question, tuning = asked.question, present.settings.tuning
    limit = {} if question.max_slowdown is None else {"max_slowdown": question.max_slowdown}
    order = Order(
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


def sampling_order(asked: Asked, known: Known, present: Present) -> Order:
    """Measuring an answer again, as it was measured."""
    options: Mapping[str, Any] = tuning_order(asked, present).options
    return Order(
        workloads=asked.specs,
        objective=asked.question.objective,
        clocks="off" if known.clock_mhz is None else str(known.clock_mhz),
        device=asked.device.spec,
        kind=Kind.SAMPLE,
        options=options,
    )


def question_that(order: Order, *, clocks_as_found: bool = False) -> Question:
    """The question that an order asks; it counts as no use."""
    return Question(
        order.workloads,
        order.objective,
        order.device,
        order.options.get("max_slowdown"),
        clocks_as_found=clocks_as_found,
        count=0.0,
    )
