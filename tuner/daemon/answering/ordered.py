"""What is known already of what an order asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.daemon.answering.known import Known
from tuner.daemon.answering.present import Present
from tuner.daemon.answering.questions import asked
from tuner.daemon.answering.replies import served
from tuner.daemon.answering.searches import question_that
from tuner.errors import InputError
from tuner.model.jobs import Order
from tuner.model.records import canonical

_LIMITS = ("budget", "time_limit_s", "patience", "runs_per_day", "pay_back_days")  # options that end a search


@dataclass(frozen=True)
class Again:
    """What a job that measures again is to measure.

    Attributes:
        run: whose answer it is.
        trial: as ``tuner.model.records.trial_record`` writes it.
    """

    run: int
    trial: Mapping[str, Any]


def again(order: Order, present: Present) -> Again | None:
    """What an order of the kind ``sample`` is to measure; None where there is no fresh answer any more.

    Raises:
        InputError: its workloads or its device are not known any more.
    """
    found = served(asked(question_that(order), present.catalog, present.identities), present)
    if found is None or found.stale:
        return None
    configurations = {name: dict(one) for name, one in found.configurations.items()}
    return Again(found.known.run, {"configurations": configurations, "clock_mhz": found.known.clock_mhz})


def answered(order: Order, present: Present) -> int | None:
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


def searched(known: Known, order: Order) -> bool:
    """True where an answer's search came to its end; a limit is one for orders with limits only."""
    if known.status == "limited":
        return any(name in order.options for name in _LIMITS)
    return known.status == "finished"


def alike(order: Order) -> str:
    """The same for orders that come to nothing alike, whatever order the workloads are named in."""
    return canonical(
        [sorted(order.workloads), order.objective, order.device, order.kind.value, dict(order.options)]
    )
