"""The analytical model: an answer from compiled resources and device limits, without a run.

Only the front-runners are compiled (`Contest.front_runners`).

A kernel file may state answers (`[measured]`, `[analytical]`): the first is taken that can be launched and
compiles without spills. Else there are two rules from the three premises of "Performance Tuning for
GPU-Embedded Systems", section IV-A: less communication, enough parallelism to hide latency, much work per
thread. `guideline` is the paper's, for embedded GPUs; `server_rule` is for large ones, which the paper leaves
to others.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

from tuner.model.errors import InputError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Configuration, TunableValue, shown_values
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, Search

from .descent import Resolve
from .rating import (
    RADIX,
    TOGETHER,
    CandidateRating,
    Contest,
    Facts,
    FrontRunners,
    Key,
    RuleCriterion,
    decisive,
    facts_of,
    launched,
    listed,
    shared,
    warps,
)

# --- The guideline for embedded GPUs of "Performance Tuning for GPU-Embedded Systems", section IV-A.
#
# As printed: choose what reaches W_SM = W^max and B_a = B^max; if nothing does, the largest B_a with
# W_SM / W^max from 60 to 100 %; if nothing does, the largest warp occupancy, and of several the largest P. In
# all of these a larger radix is taken even when it lowers B_a. For large sizes (section IV-C) the number of
# kernels comes first, then the guideline for each of them.
#
# Where the text is silent or needs a reading, docs/lab/methodologies.md ("The embedded rule") says what is
# done and why.

ENOUGH_WARPS_EMBEDDED = 0.6  # of W^max: "keeps between [60% 100%]"


def guideline(facts: Facts) -> tuple[RuleCriterion, ...]:
    """The criteria of the embedded rule, the first one first."""
    radix = (
        RuleCriterion("a larger radix", lambda rated: (-rated.radix,), lambda rated: f"r {rated.radix}"),
    )
    return (
        RuleCriterion("fewer kernels", lambda rated: (len(rated.launches),), launched),
        RuleCriterion("at least 60 % of the warps", lambda rated: (not is_enough(rated),), warps),
        *(radix if facts.radix_varies else ()),
        RuleCriterion(
            "all warps and all blocks", _both_at_maximum, lambda rated: f"{warps(rated)}, {_blocks(rated)}"
        ),
        RuleCriterion("more active blocks", _more_blocks, _blocks),
        RuleCriterion("more warps", lambda rated: tuple(-W_SM for W_SM in sorted(rated.W_SM)), warps),
        RuleCriterion(
            "more elements per thread",
            lambda rated: (-rated.candidate.elements_per_thread,),
            lambda rated: f"P {rated.candidate.elements_per_thread}",
        ),
        RuleCriterion(
            "less shared memory",
            lambda rated: (max(rated.shared_bytes),),
            shared,
        ),
    )


def is_enough(rated: CandidateRating) -> bool:
    """Return True if every kernel keeps at least 60 % of the warps."""
    return rated.warp_share >= ENOUGH_WARPS_EMBEDDED


def _both_at_maximum(rated: CandidateRating) -> Key:
    full = rated.warp_share >= 1 and min(rated.B_a) >= rated.limits.max_blocks_per_sm
    return (not full,)


def _more_blocks(rated: CandidateRating) -> Key:
    """Below 60 % of the warps, blocks do not count."""
    return tuple(-B_a for B_a in sorted(rated.B_a)) if is_enough(rated) else ()


def _blocks(rated: CandidateRating) -> str:
    return f"B_a {listed(rated.B_a)} of {rated.limits.max_blocks_per_sm}"


# --- The rule for large GPUs: bytes in flight, not occupancy.
#
# The premises are those of "Performance Tuning for GPU-Embedded Systems", section IV-A. How they weigh on a
# GPU with fast memory and many multiprocessors, what each criterion is worth, and on which sizes their order
# was found, says docs/lab/methodologies.md ("The server rule").

KIB = 1024
# In flight on a multiprocessor, twice latency times bandwidth; 96 to 128 KiB do the same.
ENOUGH_BYTES = 96 * KIB
ENOUGH_WARPS_SERVER = 0.5  # of those a multiprocessor holds: in the large FFTs, and where bytes are not known


def server_rule(facts: Facts) -> tuple[RuleCriterion, ...]:
    """The criteria of the server rule, the first one first."""
    return _SHARED_PROBLEM if facts.several_launches else _WHOLE_PROBLEMS


def _enough_in_flight(rated: CandidateRating) -> Key:
    """Bytes as far as enough; warps where the work is not known."""
    if rated.candidate.work is None:
        return _enough_warps(rated)
    return (-min(rated.bytes_in_flight, ENOUGH_BYTES),)


def _enough_warps(rated: CandidateRating) -> Key:
    return (-min(rated.warp_share, ENOUGH_WARPS_SERVER),)


def _staying(rated: CandidateRating) -> Key:
    return (0,) if rated.stays else (1, *_enough_warps(rated))


def _stays(rated: CandidateRating) -> str:
    return f"blocks stay, {warps(rated)}" if rated.stays else f"blocks come and go, {warps(rated)}"


def _bytes(rated: CandidateRating) -> str:
    return f"{rated.bytes_in_flight / KIB:.0f} KiB in flight"


def _in_flight(rated: CandidateRating) -> str:
    return warps(rated) if rated.candidate.work is None else f"{_bytes(rated)}, {warps(rated)}"


def _threads(rated: CandidateRating) -> str:
    return f"L {rated.threads_per_block}"


# --- The choice by either rule, and its reasons in words.

_WHOLE_PROBLEMS = (
    RuleCriterion("enough in flight", _enough_in_flight, _in_flight),
    RuleCriterion("smaller blocks", lambda rated: (rated.threads_per_block,), _threads),
    RuleCriterion(
        "fewer elements per thread",
        lambda rated: (rated.candidate.elements_per_thread,),
        lambda rated: f"P {rated.candidate.elements_per_thread}",
    ),
    RuleCriterion("less shared memory", lambda rated: (max(rated.shared_bytes),), shared),
)

_SHARED_PROBLEM = (
    RuleCriterion(
        "fewer passes over memory",
        lambda rated: (len(rated.launches),),
        launched,
    ),
    RuleCriterion("more bytes in flight", lambda rated: (-rated.bytes_in_flight,), _bytes),
    RuleCriterion("persistent blocks, or half of the warps", _staying, _stays),
    RuleCriterion("a larger radix", lambda rated: (-rated.radix,), lambda rated: f"r {rated.radix}"),
    RuleCriterion(
        "smaller blocks", lambda rated: (0,) if rated.stays else (rated.threads_per_block,), _threads
    ),
    RuleCriterion("more shared memory", lambda rated: (-(sum(rated.dynamic_shared_bytes) // KIB),), shared),
)


RULES: Mapping[str, Callable[[Facts], tuple[RuleCriterion, ...]]] = {
    "embedded": guideline,
    "server": server_rule,
}
STATED = "stated"
_AS_STATED = RuleCriterion(
    "what its kernel file states",
    lambda rated: (float(not rated.candidate.stated),),
    lambda _: "as its kernel file states",
)
EMBEDDED_MULTIPROCESSORS = 20  # of the largest embedded GPU, Jetson Thor's; server GPUs have 56 and more


@dataclass(frozen=True)
class Choice:
    """The choice of a rule, and its reasons.

    Attributes:
        rule: ``embedded``, ``server`` or ``stated``.
        because: why this rule.
        criteria: what candidates were compared by, the first criterion first.
        shortlist: the candidates that were compared, the chosen one first, and how many were not.
    """

    rule: str
    because: str
    criteria: tuple[RuleCriterion, ...]
    shortlist: FrontRunners

    @property
    def best(self) -> CandidateRating:
        """The candidate chosen, with its numbers."""
        return self.shortlist.compared[0]

    @property
    def configuration(self) -> Configuration:
        """The configuration chosen."""
        return self.best.candidate.configuration

    @property
    def proof(self) -> str:
        """Sentence on the candidates that were not compiled; empty if all were."""
        left_out, undecided = self.shortlist.left_out, self.shortlist.undecided
        if not left_out:
            return ""
        count = f"{len(self.shortlist.compared):,} candidates were compiled and compared"
        if undecided:
            return f"{count}; of {left_out:,} others, {undecided:,} may be ahead by their bounds: left out"
        return f"{count}; the bounds of the {left_out:,} others prove that none is ahead"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences: which rule, what it chose, and why not the runner-up."""
        texts = ", ".join(criterion.shown(self.best) for criterion in self.criteria)
        numbers = ", ".join(dict.fromkeys(texts.split(", ")))
        return (
            f"{self.rule} rule: {self.because}",
            f"chosen: {self.configuration}: {numbers}",
            self._runner_up(),
            *filter(None, [self.proof]),
        )

    def _runner_up(self) -> str:
        if len(self.shortlist.compared) == 1:
            return (
                "runner-up: none was compiled" if self.shortlist.left_out else "there is no other candidate"
            )
        second = self.shortlist.compared[1]
        criterion = decisive(self.best, second, self.criteria)
        other = shown_values(_differing(second.candidate.configuration, self.configuration))
        name = f"runner-up: the same but {other}"
        if criterion is None:
            return f"{name}: the rule cannot tell it apart; the one nearer to the middle is taken"
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
    roles: Mapping[str, str] | None,
    *,
    rule: str | None = None,
    resolve: Resolve | None = None,
) -> Choice | None:
    """The analytical answer for one workload; nothing is run.

    Args:
        candidates: configurations with their launches; those without any are left out.
        limits: of the device; None where they are not known.
        roles: role -> tunable, as in the kernel file; roles the model does not know are ignored. None where
            the file says that there is no analytical answer.
        rule: ``embedded`` or ``server``; None goes by the kernel file, then by the device.
        resolve: compiles ``declared`` candidates; without it they are left out.

    Returns:
        The choice; None where limits or launches are missing, or compiling rules out all candidates.

    Raises:
        InputError: an unknown rule.
    """
    if rule is not None and rule not in RULES:
        raise InputError(f"unknown rule {rule!r}; choose from {', '.join(RULES)}")
    if limits is None or roles is None or missing(candidates, limits, roles):
        return None
    launchable = tuple(candidate for candidate in candidates if candidate.launches)
    criteria: tuple[RuleCriterion, ...]
    groups: list[tuple[Candidate, ...]] = [launchable]
    if rule is None and (stated := _stated(launchable)):
        name, because, criteria = STATED, "the kernel file has an answer", (_AS_STATED,)
        groups = [(candidate,) for candidate in stated]  # one is compiled where all before it are ruled out
    else:
        name, because = rule_for(limits) if rule is None else (rule, "it was asked for")
        criteria = RULES[name](facts_of(launchable, roles))
    for group in groups:
        shortlist = Contest(group, limits, roles, criteria).front_runners(resolve or _uncompiled)
        if shortlist.compared:
            return Choice(name, because, criteria, shortlist)
    return None


def _stated(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that the kernel file states as analytical answers and the device can launch, in its order."""
    stated = [candidate for candidate in candidates if candidate.stated]
    return sorted(stated, key=lambda candidate: candidate.stated)


def _uncompiled(candidates: Sequence[Candidate]) -> list[Candidate | None]:
    """Nobody compiles them."""
    return [None for _ in candidates]


def first_compiled(search: Search) -> list[Trial]:
    """Return the trials that the analytical answers of a search compile first: see ``Search.expect``."""
    limits = search.limits
    if limits is None:
        return []
    lines: list[list[Configuration]] = []
    for workload, candidates in enumerate(search.candidates):
        roles = _roles(search, workload)
        if roles is None or missing(candidates, limits, roles):
            lines.append([])
            continue
        launchable = [candidate for candidate in candidates if candidate.launches]
        if stated := _stated(launchable):
            lines.append([stated[0].configuration])
            continue
        name, _ = rule_for(limits)
        contest = Contest(launchable, limits, roles, RULES[name](facts_of(launchable, roles)))
        lines.append([candidate.configuration for candidate in contest.waiting[:TOGETHER]])
    return [
        Trial(tuple(c or default for c, default in zip(chosen, search.defaults, strict=True)))
        for chosen in zip_longest(*lines)
    ]


def missing(
    candidates: Sequence[Candidate], limits: DeviceLimits | None, roles: Mapping[str, str] | None
) -> str:
    """The missing inputs of an analytical answer, as a clause; empty if there are none.

    Nothing is missing where the kernel file states the answer. Both rules take several launches for passes
    over the same data (section IV-C): those of a kernel that has a radix. The launches of others, as of an
    application, may do work of many kinds, and fewer of them need not be better.
    """
    if roles is None:
        return "its kernel file has analytical = false"
    if limits is None:
        return "the limits of the device are not known"
    counts = {len(candidate.launches) for candidate in candidates if candidate.launches}
    if not counts:
        return "the compiled resources of its candidates are not known"
    if max(counts) > 1 and RADIX not in roles and not _stated(candidates):
        return "the rules do not know what its several launches do (no tunable has the role radix)"
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
    choices = [choice_of(search, workload, rule) for workload in range(len(search.candidates))]
    first = next((choice for choice in choices if choice is not None), None)
    if first is not None:
        search.tell(f"analytical: the {first.rule} rule chooses, because {first.because}")
    chosen = tuple(_answer(search, workload, choice) for workload, choice in enumerate(choices))
    trial = Trial(chosen, search.clocks[0])
    (measurement,) = yield [trial]
    return trial if math.isfinite(search.cost(measurement)) else None


def choice_of(search: Search, workload: int, rule: str | None = None) -> Choice | None:
    """The analytical answer for a workload of a search."""
    resolve = partial(search.resolve, workload)
    return choose(
        search.candidates[workload], search.limits, _roles(search, workload), rule=rule, resolve=resolve
    )


def answers(search: Search) -> tuple[Configuration, ...]:
    """The analytical answer for each workload of a search, its default where there is none."""
    choices = [choice_of(search, workload) for workload in range(len(search.workloads))]
    return tuple(
        default if choice is None else choice.configuration
        for choice, default in zip(choices, search.defaults, strict=True)
    )


def _roles(search: Search, workload: int) -> Mapping[str, str] | None:
    return search.roles[workload] if search.roles else {}


def _answer(search: Search, workload: int, choice: Choice | None) -> Configuration:
    candidates, name = search.candidates[workload], search.workloads[workload]
    if choice is not None:
        search.tell(f"analytical: {name}: {_against(choice.configuration, search.defaults[workload])}")
        if choice.shortlist.undecided:
            search.tell(f"analytical: {name}: {choice.proof}")
        return choice.configuration
    why = (
        missing(candidates, search.limits, _roles(search, workload))
        or "none of its candidates could be compiled"
    )
    if search.limits is not None or _roles(search, workload) is not None:  # else it is a program
        search.tell(f"analytical: {name}: no analytical answer, because {why}; its default is taken")
    default = search.defaults[workload]
    legal = {candidate.configuration for candidate in candidates}
    return default if default in legal else candidates[0].configuration


def _against(chosen: Configuration, default: Configuration) -> str:
    """A configuration in a line: kernels have up to twenty tunables, and most are left as they are."""
    differing = _differing(chosen, default)
    if not differing:
        return "the default"
    return shown_values(differing) + ("" if len(differing) == len(chosen) else ", else as the default")


def _differing(configuration: Configuration, other: Configuration) -> dict[str, TunableValue]:
    return {name: value for name, value in configuration.items() if other.get(name) != value}
