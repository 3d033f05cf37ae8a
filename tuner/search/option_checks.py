"""Checks of a search's options that need no device, for command line, clients and ``daemon.toml`` alike."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tuner import registry
from tuner.errors import InputError
from tuner.model.jobs import JobSpec
from tuner.model.objective import NAMES
from tuner.options import JOB_OPTIONS, OPTIONS
from tuner.search.clock_choice import wrong_clocks
from tuner.system.names import suggestion

_PAID_IN = ("time", "energy")  # objectives in whose unit measuring has a price
_LONGEST_SHOWN = 200  # characters of a value in a message


def complaints(chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that cannot be, each with what would be right.

    Args:
        chosen: values by the names of options; None is not chosen.
    """
    named = {"objective": NAMES, "policy": registry.names("policy")}
    for name, value in chosen.items():
        if value is None:
            continue
        if name in named:
            if value not in named[name]:
                near = suggestion(str(value), named[name])
                yield name, f"unknown {name} {value!r}; choose from {', '.join(named[name])}{near}"
        elif name == "clocks":
            wrong = wrong_clocks(value)
            yield from ((name, wrong),) if wrong else ()
        elif not OPTIONS[name].holds(value):
            yield name, f"{repr(value)[:_LONGEST_SHOWN]}: write {OPTIONS[name].form}"
    yield from _contradictions(chosen)


def _contradictions(chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    objective = chosen.get("objective")
    if objective == "time" and chosen.get("max_slowdown") is not None:
        yield "max_slowdown", "limits a search for energy; with the objective time it says nothing"
    if objective in NAMES and objective not in _PAID_IN and chosen.get("runs_per_day") is not None:
        paid = " or ".join(_PAID_IN)
        yield "runs_per_day", f"measuring costs joules and seconds, not {objective}; use the objective {paid}"


def check_options(chosen: Mapping[str, Any], place: Callable[[str], str] = str) -> None:
    """Refuse options that cannot be.

    Args:
        chosen: values by the names of options; None is not chosen.
        place: how a message names an option.

    Raises:
        InputError: the first complaint.
    """
    for name, wrong in complaints(chosen):
        raise InputError(f"{place(name)}: {wrong}")


def job_options(spec: JobSpec) -> dict[str, Any]:
    """All options that a job has chosen, by name.

    Raises:
        InputError: an option that jobs do not have.
    """
    for name in spec.options:
        if name not in JOB_OPTIONS:
            shown = name[:_LONGEST_SHOWN]
            choices = ", ".join(JOB_OPTIONS)
            raise InputError(
                f"unknown option {shown!r}; choose from {choices}{suggestion(shown, JOB_OPTIONS)}"
            )
    return {"objective": spec.objective, "policy": spec.policy, "clocks": spec.clocks, **spec.options}
