"""The options of a search. Each is declared once, in ``SearchOptions``.

The command line, ``tuner.search.request.SearchRequest``, the HTTP interface, ``daemon.toml`` and all their
messages take names, types, defaults, ranges and help from here. Pydantic is imported where models are made
and not before, so that the command line stays quick.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel


_Model = TypeVar("_Model", bound="BaseModel")

_YEAR_S = 365 * 86400.0

BACK_TO_BACK, SINGLE = TIMINGS = ("back-to-back", "single")
"""Timings of trials: rounds one behind the other, or single launches, each behind a flush of the L2."""


class OptionEffect(Enum):
    """Effect of an option."""

    ANSWER = "answer"  # what is looked for
    LIMIT = "limit"  # when the search ends
    METHOD = "method"  # how trials are measured, for the same answer


@dataclass(frozen=True)
class Range:
    """Numbers that an option may be.

    Attributes:
        least: allowed, unless ``above``.
        most: allowed.
        whole: True for integers.
        above: True where ``least`` itself is too little.
        share: True for a fraction, which people may write in percent.
    """

    least: float
    most: float
    whole: bool = False
    above: bool = False
    share: bool = False

    @property
    def type(self) -> type:
        """The Python type of a value."""
        return int if self.whole else float

    def holds(self, value: object) -> bool:
        """True for a number in the range."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return self.least <= value <= self.most and not (self.above and value == self.least)

    def constraints(self) -> dict[str, Any]:
        """The range in the words of pydantic."""
        bounds: dict[str, Any] = {"gt" if self.above else "ge": self.least, "le": self.most}
        return bounds if self.whole else {**bounds, "allow_inf_nan": False}

    def __str__(self) -> str:
        kind = "a fraction" if self.share else "a whole number" if self.whole else "a number"
        least, most = map(_exact, (self.least, self.most))
        most += f" ({self.most:.0%})" if self.share else ""
        return f"{kind} above {least} and at most {most}" if self.above else f"{kind} from {least} to {most}"


_LONG = 1e9  # from here on a number that need not be whole is written short


def _exact(number: float) -> str:
    """A bound as it can be typed: nothing of it is rounded, and ``1e+15`` has not 16 digits."""
    if isinstance(number, int) or (number == int(number) and abs(number) < _LONG):
        return str(int(number))
    short = f"{number:g}"
    return short if float(short) == number else str(number)


@dataclass(frozen=True)
class Text:
    """Texts that an option may be.

    Attributes:
        pattern: of the whole text.
        most: characters.
        words: what the text is, for people.
        local: of texts that a user's own command may have beside these, but no job: they name files.
    """

    pattern: str
    most: int
    words: str
    local: str = ""

    @property
    def type(self) -> type:
        """The Python type of a value."""
        return str

    def holds(self, value: object) -> bool:
        """True for a text of this form."""
        if not isinstance(value, str):
            return False
        of_a_job = len(value) <= self.most and bool(re.fullmatch(self.pattern, value))
        return of_a_job or bool(self.local and re.fullmatch(self.local, value))

    def constraints(self) -> dict[str, Any]:
        """The form in the words of pydantic."""
        return {"min_length": 1, "max_length": self.most, "pattern": f"^{self.pattern}$"}

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class Switch:
    """An option that is on or off."""

    @property
    def type(self) -> type:
        """The Python type of a value."""
        return bool

    def holds(self, value: object) -> bool:
        """True for true and false."""
        return isinstance(value, bool)

    def constraints(self) -> dict[str, Any]:
        """Pydantic would take 1 and "yes" too."""
        return {"strict": True}

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Option:
    """Declaration of an option.

    Attributes:
        help: for people.
        form: values that it may have; None where names are listed elsewhere.
        metavar: stands for the value on the command line; None for that of the type.
        effect: what it changes.
        table: of ``daemon.toml`` that has it too: ``tuning``, ``set`` or none.
        name: of the field, with its unit.
        default: where nobody says otherwise.
    """

    help: str
    form: Range | Text | Switch | None = None
    metavar: str | None = None
    effect: OptionEffect = OptionEffect.ANSWER
    table: str = ""
    name: str = ""
    default: Any = None

    @property
    def flag(self) -> str:
        """The option on the command line, such as ``--time-limit``; it carries no unit."""
        return "--" + self.name.removesuffix("_s").replace("_", "-")

    def holds(self, value: object) -> bool:
        """True for a value of the right form."""
        return self.form is None or self.form.holds(value)


def _option(
    default: Any,  # noqa: ANN401 - a field's default, as with dataclasses.field
    text: str,
    form: Range | Text | Switch | None = None,
    **declared: Any,  # noqa: ANN401 - as above
) -> Any:  # noqa: ANN401 - as above
    return field(default=default, metadata={"option": Option(text, form, **declared)})


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search. To add an option, add a field."""

    objective: str = _option(
        "time", "What to minimise: time, energy, edp, ed2p, or both time and energy with pareto."
    )
    timing: str = _option(
        BACK_TO_BACK,
        "How trials are timed: back-to-back, rounds one behind the other; or single, launches by themselves,"
        " each with a cold L2, as in a program that launches a kernel now and then (for the objective time).",
        Text(f"({BACK_TO_BACK}|{SINGLE})", 12, f"{BACK_TO_BACK} or {SINGLE}"),
        table="set",
    )
    max_slowdown: float | None = _option(
        None,
        "At most this much slower than the fastest trial, e.g. 5%; a time search comes first.",
        Range(0, 10, share=True),
        table="set",
    )
    policy: str = _option(
        "auto",
        "Search strategy.",
        Text("[a-z0-9-]+", 64, "the name of a search strategy, e.g. greedy: small letters, digits and -"),
    )
    patience: int | None = _option(
        None,
        "Evaluations without progress that end a Bayesian search. Default: it ends as soon as little gain is"
        " expected.",
        Range(1, 10**9, whole=True),
        metavar="N",
        effect=OptionEffect.LIMIT,
    )
    clocks: str = _option(
        "off",
        "GPU clocks to search: off (as found), auto (those that a model of time and power calls for), all, a"
        " LIST in MHz, or MIN:MAX[:STEP]. Restored afterwards.",
        Text("[a-z0-9:,]+", 1000, "off, auto, all, a list in MHz or MIN:MAX[:STEP], e.g. 600,900"),
        metavar="CHOICE",
    )
    power_limits: str = _option(
        "off",
        "Power limits of the GPU to search: off (as found), all, a LIST in W, MIN:MAX[:STEP], or 50%: from"
        " that share of the highest on. Restored afterwards.",
        Text("[a-z0-9:,%]+", 1000, "off, all, a list in W, MIN:MAX[:STEP] or SHARE%:, e.g. 500,600,700"),
        metavar="CHOICE",
    )
    budget: int | None = _option(
        None,
        "Measure at most this many trials.",
        Range(1, 10**9, whole=True),
        metavar="N",
        effect=OptionEffect.LIMIT,
    )
    solo_bests: int | None = _option(
        None,
        "Tune each workload alone first, within N trials, where no such answer is stored; the answer is then"
        " compared with these solo bests together.",
        Range(1, 10**9, whole=True),
        metavar="N",
        effect=OptionEffect.METHOD,
    )
    verify: bool = _option(
        False,
        "Where another GPU of the kind has an answer, measure it here against the default and its rivals, in"
        " place of a search.",
        Switch(),
        effect=OptionEffect.METHOD,
    )
    stream_priorities: int = _option(
        1,
        "Levels of stream priority to search for workloads that run together: blocks of the highest get free"
        " multiprocessors first. 1: all are alike.",
        Range(1, 6, whole=True),
        metavar="LEVELS",
        table="set",
    )
    sm_shares: int = _option(
        1,
        "Parts of the SMs to search shares of, for workloads that run together: each has one, two or more of"
        " LEVELS parts, or what others leave. 1: none has a share.",
        Range(1, 8, whole=True),
        metavar="LEVELS",
        table="set",
    )
    runs_per_day: float | None = _option(
        None,
        "How often the answer will be run. The search stops when it no longer pays for itself.",
        Range(0, 1e15, above=True),
        metavar="N",
        effect=OptionEffect.LIMIT,
        table="set",
    )
    pay_back_days: float = _option(
        30.0,  # about as long as drivers, kernels and loads stay as they are
        "Days within which the tuning is to pay for itself.",
        Range(0, 1e6, above=True),
        metavar="DAYS",
        effect=OptionEffect.LIMIT,
    )
    time_limit_s: float | None = _option(
        None,
        "Search at most this many seconds.",
        Range(0, _YEAR_S, above=True),
        metavar="SECONDS",
        effect=OptionEffect.LIMIT,
    )
    min_occupancy: float | None = _option(
        None,
        "Drop configurations below this occupancy. Default: the kernel file's.",
        Range(0, 1, share=True),
    )
    energy_precision: float = _option(
        # Configurations that tie in time differ by some percent in joules, by 6 % on an H200: 1 % tells them
        # apart. Half of it would take twice the time of every trial.
        0.01,
        "Wanted half-width of the 95 % interval of joules. It chooses the window, and how often contenders"
        " are measured again.",
        Range(0, 0.5, above=True, share=True),  # wider intervals tell nothing apart
        table="tuning",
    )
    window_s: float | None = _option(
        None,
        "Measuring window of every trial in seconds. Default: short ones, and longer ones"
        " while a trial may be the best.",
        Range(0.01, 600),
        metavar="SECONDS",
        effect=OptionEffect.METHOD,
    )
    trial_timeout_s: float = _option(
        60.0,  # one minute, as in section IV-B of the embedded paper
        "Kill a check or a run that takes this many seconds longer than its window.",
        Range(0, 3600, above=True),
        metavar="SECONDS",
        table="tuning",
    )
    seed: int = _option(
        0,
        "Random seed, of policy and inputs.",
        Range(0, 2**63 - 1, whole=True),
        metavar="N",
        effect=OptionEffect.METHOD,
    )
    joules: bool = _option(
        False,
        "Measure the joules of every trial: also for the objective time, and of trials that bounds rule out.",
        Switch(),
        effect=OptionEffect.METHOD,
    )
    sensor: str | None = _option(
        None,
        "The power reading to use (see `tuner power sensors`), or pipe:FILE. Default: the best that answers.",
        Text(r"[A-Za-z0-9._:+-]+", 64, "the name of a sensor: letters, digits and ._:+-", r"pipe:.+"),
        metavar="NAME",
        effect=OptionEffect.METHOD,
    )
    scope: str = _option(
        "gpu",
        "What joules are counted of: gpu, or gpu+cpu with the host's processors and memory (gpu+package,"
        " gpu+dram for one of them).",
        Text(r"[a-z]+(\+[a-z]+)*", 64, "parts joined by +, such as gpu+cpu"),
        metavar="PARTS",
    )


OPTIONS: Mapping[str, Option] = {
    each.name: replace(each.metadata["option"], name=each.name, default=each.default)
    for each in fields(SearchOptions)
}
"""Every option by name."""

JOB_OPTIONS: Mapping[str, Option] = {
    name: option
    for name, option in OPTIONS.items()
    if name not in ("objective", "policy", "clocks", "power_limits", "solo_bests")
}
"""Options that a job carries beside workloads, objective, policy and clocks, which it names itself.

Jobs set no power limits, and a job is one run: workloads alone are jobs of their own.
"""

LIMITS = frozenset(name for name, option in OPTIONS.items() if option.effect is OptionEffect.LIMIT)
"""Options that end a search before it has found what it looks for."""

METHODS = frozenset(name for name, option in OPTIONS.items() if option.effect is OptionEffect.METHOD)
"""Options that change how is measured, not what is looked for."""


def option_field(name: str, default: Any = None, *, bounded: bool = True) -> Any:  # noqa: ANN401 - as pydantic.Field
    """A field of a pydantic model for an option.

    Args:
        name: of the option.
        default: of the field.
        bounded: False where the form is checked later, with better words.
    """
    from pydantic import Field  # noqa: PLC0415 - commands that make no model start without it

    option = OPTIONS[name]
    constraints = option.form.constraints() if bounded and option.form is not None else {}
    fraction = isinstance(option.form, Range) and option.form.share
    described = f"{option.help} A fraction: 0.05 is 5 %." if fraction else option.help
    return Field(default=default, description=described, **constraints)


def with_options(table: str = "") -> Callable[[type[_Model]], type[_Model]]:
    """Class decorator: gives a pydantic model its fields for options.

    Args:
        table: of ``daemon.toml`` whose options those are; empty for all of a job. Only those of ``tuning``
            have defaults: they are what holds where a job says nothing.
    """

    def decorate(model: type[_Model]) -> type[_Model]:
        from pydantic import create_model  # noqa: PLC0415 - as above

        added: dict[str, Any] = {}
        for option in JOB_OPTIONS.values():
            if table in ("", option.table) and option.form is not None:
                default = option.default if table == "tuning" else None
                kind = option.form.type if default is not None else option.form.type | None
                added[option.name] = (kind, option_field(option.name, default))
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **added
        )

    return decorate
