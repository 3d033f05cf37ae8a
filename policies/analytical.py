"""The analytical model: an answer from compiled resources and device limits, without a run.

Two rules from the same three premises of "Performance Tuning for GPU-Embedded Systems", section IV-A: less
communication, enough parallelism to hide latency, much work per thread. `guideline` is the paper's for embedded GPUs;
`server_rule` is for large ones, which the paper leaves to others.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.errors import InputError
from tuner.interfaces import Candidate, Search
from tuner.model import Configuration, DeviceLimits, Measurement, Trial

from .guideline import guideline
from .rating import Criterion, Rated, decisive, key, rate
from .server_rule import server_rule

RULES: Mapping[str, Callable[[Sequence[Rated]], tuple[Criterion, ...]]] = {
    "embedded": guideline,
    "server": server_rule,
}
EMBEDDED_MULTIPROCESSORS = 20  # of the largest embedded GPU, Jetson Thor's; server GPUs have 56 and more


@dataclass(frozen=True)
class Choice:
    """What a rule chose, and why.

    Attributes:
        rule: ``embedded`` or ``server``.
        because: why this rule.
        best: the candidate chosen, with its numbers.
        rated: all candidates that were compared, in the order of the space.
        criteria: what they were compared by, the first criterion first.
    """

    rule: str
    because: str
    best: Rated
    rated: tuple[Rated, ...]
    criteria: tuple[Criterion, ...]

    @property
    def configuration(self) -> Configuration:
        """The configuration chosen."""
        return self.best.candidate.configuration

    @cached_property
    def table(self) -> tuple[Rated, ...]:
        """All candidates in the order of the rule, equals in the order of the space."""
        return tuple(sorted(self.rated, key=lambda one: key(one, self.criteria)))

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Sentences: which rule, what it chose, and why not the runner-up."""
        chosen = f"chosen: {self.configuration}: " + ", ".join(
            dict.fromkeys(criterion.shown(self.best) for criterion in self.criteria)
        )
        return (f"{self.rule} rule: {self.because}", chosen, *self._runner_up())

    def _runner_up(self) -> tuple[str, ...]:
        if len(self.table) == 1:
            return ("there is no other candidate",)
        second = self.table[1]
        name = f"runner-up: {second.candidate.configuration}: "
        criterion = decisive(self.best, second, self.criteria)
        if criterion is None:
            return (name + "equal in all that the rule asks for; the first of the space is taken",)
        numbers = f"{criterion.shown(second)}, the chosen one {criterion.shown(self.best)}"
        return (f"{name}behind in {criterion.name}: {numbers}",)


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
    rated = tuple(rate(one, limits, roles) for one in candidates if one.launches)
    name, because = rule_for(limits) if rule is None else (rule, "asked for")
    criteria = RULES[name](rated)
    best = min(rated, key=lambda one: key(one, criteria))
    return Choice(name, because, best, rated, criteria)


def missing(candidates: Sequence[Candidate], limits: DeviceLimits | None) -> str:
    """What an analytical answer lacks, as a clause; empty where nothing is missing."""
    if limits is None:
        return "the limits of the device are not known"
    if not any(one.launches for one in candidates):
        return "the compiled resources of its candidates are not known"
    return ""


def analytical(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Try one trial: the analytical answer of each workload, at the highest clock.

    Each workload is answered as if it ran alone. Where a workload has no analytical answer, its default is
    taken, and the user is told.
    """
    if not all(search.candidates):
        return None
    chosen = tuple(_answer(search, place) for place in range(len(search.candidates)))
    trial = Trial(chosen, search.clocks[0])
    (measurement,) = yield [trial]
    return trial if math.isfinite(search.cost(measurement)) else None


def _answer(search: Search, place: int) -> Configuration:
    candidates = search.candidates[place]
    roles = search.roles[place] if search.roles else {}
    choice = choose(candidates, search.limits, roles)
    name = search.workloads[place]
    if choice is not None:
        search.tell(f"{name}: {choice.configuration} by the {choice.rule} rule ({choice.because})")
        return choice.configuration
    search.tell(
        f"{name}: no analytical answer, because {missing(candidates, search.limits)}; its default is taken"
    )
    default = search.defaults[place]
    known = {candidate.configuration for candidate in candidates}
    return default if default in known else candidates[0].configuration
