"""Checks of search options that need no device, and limits of a search."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tuner.model import registry
from tuner.model.errors import ClockError, InputError, suggestion
from tuner.model.jobs import JobSpec
from tuner.model.objective import NAMES, PARETO
from tuner.model.options import BACK_TO_BACK, JOB_OPTIONS, OPTIONS, SINGLE, TIMINGS

# --- When a search ends before its policy does.


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends although its policy would go on.

    Attributes:
        budget: trials measured at most; None for no limit.
        time_limit_s: seconds at most, of the device's clock and of this machine's; None for no limit.
        begun_s: when that time began, as ``time.monotonic`` has it.
    """

    budget: int | None = None
    time_limit_s: float | None = None
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def ends_s(self) -> float:
        """The end of the time on this machine's clock: a simulated device's stands while others compile."""
        return math.inf if self.time_limit_s is None else self.begun_s + self.time_limit_s

    def check(self, trials: int, *, out_of_time: bool) -> None:
        """End the search where a limit is reached.

        Raises:
            LimitReachedError: one is.
        """
        if self.budget is not None and trials >= self.budget:
            raise LimitReachedError(f"the budget of {self.budget} trials is used up")
        if out_of_time:
            raise self.time_is_over()
        self.check_time()

    def check_time(self) -> None:
        """End the search where the time has passed on this machine's clock.

        Raises:
            LimitReachedError: it has.
        """
        if time.monotonic() >= self.ends_s:
            raise self.time_is_over()

    def time_is_over(self) -> "LimitReachedError":
        """Return the error that ends a search whose time has passed."""
        limit = f"the time limit of {self.time_limit_s:g} s is reached"
        return LimitReachedError(limit, out_of_time=True)


class LimitReachedError(Exception):
    """A limit of the run is reached; ends its search.

    Attributes:
        out_of_time: True when the time limit was it, so that nothing more may be measured.
    """

    def __init__(self, message: str, *, out_of_time: bool = False) -> None:
        super().__init__(message)
        self.out_of_time = out_of_time


# --- Choices of clocks and power limits.

_RANGE = re.compile(r"([1-9]\d*):([1-9]\d*)(?::([1-9]\d*))?")
_SHARE = re.compile(r"([1-9]\d?)%:")  # of the highest, and above
_STEPS_OF_SHARE = 0.05  # of the highest: so far apart are those of a share
_LIST = re.compile(r"[1-9]\d*(?:,[1-9]\d*)*")
_PAID_IN = ("time", "energy")  # objectives in whose unit measuring has a price
_CHOSEN_LATER = (
    "the objective pareto finds the whole front of time and energy; choose a point of it afterwards:"
    " `tuner show`, `tuner best` and `tuner export` take --max-slowdown"
)
AUTO_CLOCKS = "auto"
"""The choice of clocks that a model of time and power makes."""

_LONGEST_SHOWN = 200  # characters of a value in a message


class _Setting(NamedTuple):
    """Setting chosen by a word, a list or a range, with the step of a range that names none."""

    option: str
    name: str
    unit: str
    step: int
    words: tuple[str, ...]
    example: str

    def wrong(self, text: str) -> str:
        """Return the error message for a text that is no choice on any GPU; else empty."""
        if text in self.words or _LIST.fullmatch(text):
            return ""
        bounds = _RANGE.fullmatch(text)
        if bounds is not None and int(bounds[1]) <= int(bounds[2]):
            return ""
        if self is _POWER_LIMITS and _SHARE.fullmatch(text):
            return ""
        return (
            f"{text!r} is not a choice of {self.name}s; write {', '.join(self.words)}, a list such as"
            f" {self.example} or a range MIN:MAX[:STEP] in {self.unit}"
        )


_CLOCKS = _Setting("--clocks", "clock", "MHz", 1, ("off", AUTO_CLOCKS, "all"), "875,810")
_POWER_LIMITS = _Setting("--power-limits", "power limit", "W", 10, ("off", "all"), "600,700")


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
    wrong = _CLOCKS.wrong(text)
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
    return _chosen(text, supported, _CLOCKS)


def choose_power_limits(text: str, supported_w: Sequence[int]) -> tuple[int, ...]:
    """The power limits to search, highest first; empty for ``off``.

    Args:
        text: the option: ``off``, ``all``, ``600,700``, ``MIN:MAX[:STEP]`` or ``50%:``. A list must name
            limits that may be set; a range takes those in it, from the highest down, STEP (10 W) apart, as
            ``all`` does; a share those from so much of the highest on, 5 % of it apart.
        supported_w: what may be set, in whole watts.

    Raises:
        InputError: a limit that may not be set, or a range without any; the message says which may.
        ClockError: there is no choice.
    """
    wrong = _POWER_LIMITS.wrong(text)
    if wrong:
        raise InputError(f"--power-limits: {wrong}")
    if text == "off":
        return ()
    supported = sorted(set(supported_w), reverse=True)
    if not supported:
        raise ClockError(
            f"--power-limits {text}: this GPU offers no power limits to choose from; use --power-limits off"
        )
    if text == "all":
        return tuple(_thinned(supported, _POWER_LIMITS.step))
    if share := _SHARE.fullmatch(text):
        lowest_w = math.ceil(int(share[1]) * supported[0] / 100)
        step_w = max(_POWER_LIMITS.step, round(_STEPS_OF_SHARE * supported[0]))
        return tuple(_thinned([watts for watts in supported if watts >= lowest_w], step_w))
    return _chosen(text, supported, _POWER_LIMITS)


def _chosen(text: str, supported: Sequence[int], setting: _Setting) -> tuple[int, ...]:
    """A list or a range of an option, of supported values, highest first."""
    option, unit = setting.option, setting.unit
    bounds = _RANGE.fullmatch(text)
    if bounds is not None:
        low, high, step = (int(group or setting.step) for group in bounds.groups())
        values = _thinned([value for value in supported if low <= value <= high], step)
        if not values:
            raise InputError(
                f"{option} {text}: this GPU has no {setting.name} in that range; {_offer(supported, unit)}"
            )
        return tuple(values)
    requested = {int(part) for part in text.split(",")}
    unknown = sorted(requested - set(supported))
    if unknown:
        nearest = sorted({min(supported, key=lambda value: abs(value - want)) for want in unknown})
        raise InputError(
            f"{option} {text}: this GPU does not have {', '.join(map(str, unknown))} {unit};"
            f" {_offer(supported, unit)}, the nearest are {', '.join(map(str, nearest))}"
        )
    return tuple(sorted(requested, reverse=True))


def _thinned(values: Sequence[int], step: int) -> list[int]:
    """Of values, highest first, those that are at least a step below the one kept before."""
    thinned: list[int] = []
    for value in values:
        if not thinned or thinned[-1] - value >= step:
            thinned.append(value)
    return thinned


def _offer(supported: Sequence[int], unit: str) -> str:
    return f"it has {len(supported)} from {supported[-1]} to {supported[0]} {unit} that may be set"


# --- Options that contradict each other, or cannot be.

_CHOICES = {"clocks": _CLOCKS, "power_limits": _POWER_LIMITS}


def complaints(chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that cannot be, each with what would be right.

    Args:
        chosen: values by the names of options; None is not chosen.
    """
    named = {"objective": NAMES, "policy": registry.names("policy"), "timing": TIMINGS}
    for name, value in chosen.items():
        if value is None:
            continue
        if name in named:
            if value not in named[name]:
                near = suggestion(str(value), named[name])
                yield name, f"unknown {name} {value!r}; choose from {', '.join(named[name])}{near}"
        elif name in _CHOICES:
            wrong = _CHOICES[name].wrong(value)
            yield from ((name, wrong),) if wrong else ()
        elif not OPTIONS[name].holds(value):
            yield name, f"{repr(value)[:_LONGEST_SHOWN]}: write {OPTIONS[name].form}"
    yield from _contradictions(chosen)


def _contradictions(chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    objective = chosen.get("objective")
    if chosen.get("timing") == SINGLE:
        yield from _of_singles(chosen)
    if objective == "time" and chosen.get("max_slowdown") is not None:
        yield "max_slowdown", "limits a search for energy, and the objective is time: ask for energy"
    if objective == PARETO:
        policy, searching = chosen.get("policy"), registry.names("front")
        if policy in registry.names("policy") and policy not in searching:
            use = f"{', '.join(searching[:-1])} or {searching[-1]}"
            yield "policy", f"{policy} looks for one lowest cost; with the objective pareto use {use}"
        if chosen.get("max_slowdown") is not None:
            yield "max_slowdown", _CHOSEN_LATER
        if chosen.get("verify"):
            yield (
                "verify",
                "holds one answer of another GPU against its rivals; with the objective pareto search",
            )
    if objective in NAMES and objective not in _PAID_IN and chosen.get("runs_per_day") is not None:
        paid = " or ".join(_PAID_IN)
        yield "runs_per_day", f"measuring costs joules and seconds, not {objective}; use the objective {paid}"


def _of_singles(chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Options that need joules: between single launches the L2 is flushed, and a sensor sees both."""
    objective = chosen.get("objective")
    if objective in NAMES and objective != "time":
        why = (
            f"{SINGLE} launches have no joules, which the objective {objective} needs; use the objective time"
        )
        yield "timing", f"{why}, or {BACK_TO_BACK}"
    for name in ("joules", "sensor", "scope"):
        if chosen.get(name) not in (None, OPTIONS[name].default):
            yield name, f"{SINGLE} launches have no joules; leave it out, or use the timing {BACK_TO_BACK}"


def check_options(chosen: Mapping[str, Any], label: Callable[[str], str] = str) -> None:
    """Refuse options that cannot be.

    Args:
        chosen: values by the names of options; None is not chosen.
        label: how a message names an option.

    Raises:
        InputError: the first complaint.
    """
    for name, wrong in complaints(chosen):
        raise InputError(f"{label(name)}: {wrong}")


def job_options(spec: JobSpec) -> dict[str, Any]:
    """All options that a job has chosen, by name.

    Raises:
        InputError: an option that jobs do not have.
    """
    for name in spec.options:
        if name not in JOB_OPTIONS:
            shortened = name[:_LONGEST_SHOWN]
            choices = ", ".join(JOB_OPTIONS)
            raise InputError(
                f"unknown option {shortened!r}; choose from {choices}{suggestion(shortened, JOB_OPTIONS)}"
            )
    return spec.chosen
