"""Checks of search options that need no device, for command line, clients and ``daemon.toml`` alike."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tuner import registry
from tuner.errors import ClockError, InputError, suggestion
from tuner.model.jobs import JobSpec
from tuner.model.objective import NAMES
from tuner.options import JOB_OPTIONS, OPTIONS

_RANGE = re.compile(r"([1-9]\d*):([1-9]\d*)(?::([1-9]\d*))?")
_LIST = re.compile(r"[1-9]\d*(?:,[1-9]\d*)*")
_PAID_IN = ("time", "energy")  # objectives in whose unit measuring has a price
AUTO_CLOCKS = "auto"
"""The choice of clocks that a model of time and power makes."""

_LONGEST_SHOWN = 200  # characters of a value in a message


def wrong_clocks(text: str) -> str:
    """What is wrong in a text that is no choice of clocks on any GPU; empty where it is one."""
    if text in ("off", "all", AUTO_CLOCKS) or _LIST.fullmatch(text):
        return ""
    bounds = _RANGE.fullmatch(text)
    if bounds is not None and int(bounds[1]) <= int(bounds[2]):
        return ""
    return (
        f"{text!r} is not a choice of clocks; write off, auto, all, a list such as 875,810"
        " or a range MIN:MAX[:STEP] in MHz"
    )


def choose_clocks(text: str, supported_mhz: Sequence[int]) -> tuple[int, ...]:
    """The clocks to search, highest first; empty for ``off``.

    Args:
        text: the option: ``off``, ``auto``, ``all``, ``875,810`` or ``MIN:MAX[:STEP]``. A list must name
            supported clocks; a range takes the supported clocks in it, thinned from the highest down to at
            least STEP apart.
        supported_mhz: what the GPU offers.

    Raises:
        InputError: a clock the GPU does not have, or a range without any; the message says what it has.
        ClockError: the GPU offers no clocks at all.
    """
    wrong = wrong_clocks(text)
    if wrong:
        raise InputError(f"--clocks: {wrong}")
    if text == "off":
        return ()
    supported = sorted(set(supported_mhz), reverse=True)
    if not supported:
        raise ClockError(f"--clocks {text}: this GPU offers no clocks to choose from; use --clocks off")
    if text == AUTO_CLOCKS and len(supported) == 1:
        raise ClockError(f"--clocks auto: this GPU has one clock, {supported[0]} MHz; use --clocks off")
    if text in ("all", AUTO_CLOCKS):
        return tuple(supported)
    bounds = _RANGE.fullmatch(text)
    if bounds is not None:
        low, high, step = (int(group or 1) for group in bounds.groups())
        return _range(text, supported, low, high, step)
    return _listed(text, supported, {int(part) for part in text.split(",")})


def _range(text: str, supported: Sequence[int], low: int, high: int, step: int) -> tuple[int, ...]:
    kept: list[int] = []
    for clock in supported:
        if low <= clock <= high and (not kept or kept[-1] - clock >= step):
            kept.append(clock)
    if not kept:
        raise InputError(f"--clocks {text}: this GPU has no clock in that range; {_offer(supported)}")
    return tuple(kept)


def _listed(text: str, supported: Sequence[int], wanted: set[int]) -> tuple[int, ...]:
    unknown = sorted(wanted - set(supported))
    if unknown:
        nearest = sorted({_nearest(supported, want) for want in unknown})
        raise InputError(
            f"--clocks {text}: this GPU does not have {', '.join(map(str, unknown))} MHz;"
            f" {_offer(supported)}, the nearest are {', '.join(map(str, nearest))}"
        )
    return tuple(sorted(wanted, reverse=True))


def _nearest(supported: Sequence[int], wanted: int) -> int:
    return min(supported, key=lambda clock: abs(clock - wanted))


def _offer(supported: Sequence[int]) -> str:
    return f"it has {len(supported)} from {supported[-1]} to {supported[0]} MHz"


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
