"""The analytical model: an answer from compiled resources and device limits, without a run.

Two rules from the three premises of "Performance Tuning for GPU-Embedded Systems", section IV-A: less
communication, enough parallelism to hide latency, much work per thread. `guideline` is the paper's, for
embedded GPUs; `server_rule` is for large ones, which the paper leaves to others.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.errors import InputError
from tuner.interfaces import Candidate, Search
from tuner.model import Configuration, DeviceLimits, Measurement, Trial, TunableValue, shown_values

from .guideline import guideline
from .rating import CandidateRating, Criterion, Facts, Key, decisive, facts_of, key, middle, rate
from .server_rule import server_rule

RULES: Mapping[str, Callable[[Facts], tuple[Criterion, ...]]] = {
    "embedded": guideline,
    "server": server_rule,
}
EMBEDDED_MULTIPROCESSORS = 20  # of the largest embedded GPU, Jetson Thor's; server GPUs have 56 and more


@dataclass(frozen=True)
class Choice:
    """The choice of a rule, and its reasons.

    Attributes:
        rule: ``embedded`` or ``server``.
        because: why this rule.
        best: the candidate chosen, with its numbers.
        equals: candidates that no criterion tells apart from the chosen one, itself included.
        criteria: what candidates were compared by, the first criterion first.
        candidates: all that were compared, in the order of the space.
        roles: role -> tunable.
    """

    rule: str
    because: str
    best: CandidateRating
    equals: int
    criteria: tuple[Criterion, ...]
    candidates: tuple[Candidate, ...]
    roles: Mapping[str, str]

    @property
    def configuration(self) -> Configuration:
        """The configuration chosen."""
        return self.best.candidate.configuration

    @cached_property
    def table(self) -> tuple[CandidateRating, ...]:
        """All candidates in the order of the rule: the chosen one first, equals in the order of the space."""
        rated = [rate(one, self.best.limits, self.roles) for one in self.candidates]
        chosen = self.configuration
        rated.sort(key=lambda one: (key(one, self.criteria), one.candidate.configuration != chosen))
        return tuple(rated)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Sentences: which rule, what it chose, and why not the runner-up."""
        shown = ", ".join(criterion.shown(self.best) for criterion in self.criteria)
        numbers = ", ".join(dict.fromkeys(shown.split(", ")))
        return (
            f"{self.rule} rule: {self.because}",
            f"chosen: {self.configuration}: {numbers}",
            self._runner_up(),
        )

    def _runner_up(self) -> str:
        if len(self.candidates) == 1:
            return "there is no other candidate"
        second = self.table[1]
        criterion = decisive(self.best, second, self.criteria)
        other = shown_values(_differing(second.candidate.configuration, self.configuration))
        name = f"runner-up: the same but {other}"
        if criterion is None:
            return f"{name}: the rule cannot tell it apart; the middle one of {self.equals} equals is taken"
        mine, its = criterion.shown(self.best), criterion.shown(second)
        return f"{name}: behind in “{criterion.name}”: {its}, the chosen one {mine}"


def rule_for(limits: DeviceLimits) -> tuple[str, str]:
    """Which rule a device gets, and why, as a sentence."""
    count = limits.multiprocessors
    if count <= EMBEDDED_MULTIPROCESSORS:
        return "embedded", f"{count} multiprocessors are at most {EMBEDDED_MULTIPROCESSORS}"
    return "server", f"{count} multiprocessors are more than {EMBEDDED_MULTIPROCESSORS}"


def choose(
    candidates: Sequence[Candidate],
    limits: DeviceLimits | None,
    roles: Mapping[str, str],
    *,
    rule: str | None = None,
) -> Choice | None:
    """The analytical answer for one workload; nothing is run.

    Args:
        candidates: configurations with their launches; those without any are left out.
        limits: of the device; None where they are not known.
        roles: role -> tunable, as in the kernel file; roles the model does not know are ignored.
        rule: ``embedded`` or ``server``; None goes by the device.

    Returns:
        The choice; None where limits or launches are missing.

    Raises:
        InputError: an unknown rule.
    """
    if rule is not None and rule not in RULES:
        raise InputError(f"unknown rule {rule!r}; choose from {', '.join(RULES)}")
    if limits is None or missing(candidates, limits):
        return None
    known = tuple(one for one in candidates if one.launches)
    name, because = rule_for(limits) if rule is None else (rule, "it was asked for")
    criteria = RULES[name](facts_of(known, roles))
    equals: list[Candidate] = []
    lowest: tuple[Key, ...] | None = None
    for candidate in known:
        its = key(rate(candidate, limits, roles), criteria)
        if lowest is None or its < lowest:
            equals, lowest = [], its
        if its == lowest:
            equals.append(candidate)
    best = rate(middle(equals), limits, roles)
    return Choice(name, because, best, len(equals), criteria, known, dict(roles))


def missing(candidates: Sequence[Candidate], limits: DeviceLimits | None) -> str:
    """The missing inputs of an analytical answer, as a clause; empty if there are none."""
    if limits is None:
        return "the limits of the device are not known"
    if not any(one.launches for one in candidates):
        return "the compiled resources of its candidates are not known"
    return ""


def analytical(
    search: Search, *, rule: str | None = None
) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Try one trial: the analytical answer of each workload, at the highest clock.

    Each workload is answered as if it ran alone. Where a workload has no analytical answer, its default is
    taken, and the user is told.

    Args:
        search: what the policy is told.
        rule: ``embedded`` or ``server``; None goes by the device.

    Raises:
        InputError: an unknown rule.
    """
    if not all(search.candidates):
        return None
    choices = [_choice(search, place, rule) for place in range(len(search.candidates))]
    found = next((choice for choice in choices if choice is not None), None)
    if found is not None:
        search.tell(f"analytical: the {found.rule} rule chooses, because {found.because}")
    chosen = tuple(_answer(search, place, choice) for place, choice in enumerate(choices))
    trial = Trial(chosen, search.clocks[0])
    (measurement,) = yield [trial]
    return trial if math.isfinite(search.cost(measurement)) else None


def _choice(search: Search, place: int, rule: str | None) -> Choice | None:
    roles = search.roles[place] if search.roles else {}
    return choose(search.candidates[place], search.limits, roles, rule=rule)


def _answer(search: Search, place: int, choice: Choice | None) -> Configuration:
    candidates, name = search.candidates[place], search.workloads[place]
    if choice is not None:
        search.tell(f"analytical: {name}: {_against(choice.configuration, search.defaults[place])}")
        return choice.configuration
    why = missing(candidates, search.limits)
    search.tell(f"analytical: {name}: no analytical answer, because {why}; its default is taken")
    default = search.defaults[place]
    known = {candidate.configuration for candidate in candidates}
    return default if default in known else candidates[0].configuration


def _against(chosen: Configuration, default: Configuration) -> str:
    """A configuration in a line: kernels have up to twenty tunables, and most are left as they are."""
    differing = _differing(chosen, default)
    if not differing:
        return "the default"
    return shown_values(differing) + ("" if len(differing) == len(chosen) else ", else as the default")


def _differing(one: Configuration, other: Configuration) -> dict[str, TunableValue]:
    return {name: value for name, value in one.items() if other.get(name) != value}
