"""Finds the best candidate by a rule without compiling all: bounds prove that no other is ahead.

What the criteria see gets no better with more registers or more static shared memory: resident blocks and
warps, and the bytes that they have in flight. So the key of a candidate that is not compiled, without
registers and with dynamic shared memory only, is a bound: compiled, it is that or worse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from tuner.model.device import DeviceLimits
from tuner.model.plan import TunableValue, tunable_names
from tuner.space.search_view import Candidate

from .ordering import Resolve
from .rating import Key, RuleCriterion, key, rate, without_resources

TOGETHER = 8  # compiled at a time, the same on every machine: so are answers where `MOST` binds
MOST = 160  # compiled of a workload: a quarter of a minute on two cores
_SHARED_ELEMENTS = "shared_elements"


@dataclass(frozen=True)
class FrontRunners:
    """The candidates that were compared, and those that were not.

    Attributes:
        compared: with their resources, best first.
        left_out: candidates that were not compiled.
        undecided: of them, those that may be ahead of the best by their bounds: none where it is proved.
    """

    compared: tuple[Candidate, ...]
    left_out: int = 0
    undecided: int = 0


def front_runners(
    candidates: Sequence[Candidate],
    limits: DeviceLimits,
    roles: Mapping[str, str],
    criteria: Sequence[RuleCriterion],
    resolve: Resolve,
) -> FrontRunners:
    """Compile candidates, the most promising first, until no other can be ahead of the best.

    Of candidates that no criterion tells apart, the one that `places` puts first is the best. The answer does
    not depend on what was compiled: it is that of all, compiled, unless some are left undecided.

    Args:
        candidates: with launches, in the order of the space; those that are not ``declared`` are taken as
            they are.
        limits: of the device.
        roles: role -> tunable.
        criteria: of a rule.
        resolve: asked `TOGETHER` at a time, and for `MOST` at most once there is one that is not ruled out.
    """
    numbered = zip(candidates, places(candidates, limits, roles, criteria), strict=True)
    ranked = {one.configuration: place for one, place in numbered}

    def numbers(one: Candidate) -> tuple[tuple[Key, ...], int]:
        return key(rate(one, limits, roles), criteria), ranked[one.configuration]

    waiting = in_order(candidates, limits, roles, criteria)
    bounds = {one.configuration: numbers(one) for one in waiting}
    compared = {numbers(one): one for one in candidates if not one.declared}
    asked = 0
    while True:
        best = min(compared, default=None)
        ahead = [one for one in waiting if best is None or bounds[one.configuration] < best]
        if not ahead or (best is not None and asked >= MOST):
            break
        batch = ahead[:TOGETHER]
        asked += len(batch)
        compiled = (one for one in resolve(batch) if one is not None and not one.declared)
        compared.update((numbers(one), one) for one in compiled)
        gone = {one.configuration for one in batch}
        waiting = [one for one in waiting if one.configuration not in gone]
    return FrontRunners(tuple(compared[rank] for rank in sorted(compared)), len(waiting), len(ahead))


def in_order(
    candidates: Sequence[Candidate],
    limits: DeviceLimits,
    roles: Mapping[str, str],
    criteria: Sequence[RuleCriterion],
) -> list[Candidate]:
    """The candidates that are not compiled, those with the best bounds first."""
    ranked = zip(candidates, places(candidates, limits, roles, criteria), strict=True)
    bounds = [(key(rate(one, limits, roles), criteria), place, one) for one, place in ranked if one.declared]
    return [one for _, _, one in sorted(bounds, key=itemgetter(0, 1))]


def places(
    candidates: Sequence[Candidate],
    limits: DeviceLimits,
    roles: Mapping[str, str],
    criteria: Sequence[RuleCriterion],
) -> list[int]:
    """An order of candidates, to choose among those that no criterion tells apart, by what is declared alone.

    What no criterion sees should be neither at its least nor at its most. Candidates are *alike* that differ
    neither in their keys, if they took no registers and no shared memory, nor in the tunable in the role
    ``shared_elements``. Of those, tunable by tunable, what is nearest to the median comes first, the lower of
    two. So a recording, and a search that has compiled little, choose the same.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    shared = roles.get(_SHARED_ELEMENTS, "")
    for number, one in enumerate(candidates):
        bare = key(rate(without_resources(one, limits), limits, roles), criteria)
        groups.setdefault((bare, str(one.configuration.get(shared))), []).append(number)
    found = [0] * len(candidates)
    for place, number in enumerate(
        number
        for _, group in sorted(groups.items())
        for number in _from_the_middle([candidates[i] for i in group], group)
    ):
        found[number] = place
    return found


def _from_the_middle(alike: Sequence[Candidate], numbers: Sequence[int]) -> list[int]:
    """The numbers of some candidates, those in the middle of them first."""
    distances: list[list[tuple[int, int]]] = [[] for _ in alike]
    for name in tunable_names(one.configuration for one in alike):
        values = [one.configuration.get(name) for one in alike]
        rank_of = {value: rank for rank, value in enumerate(_ordered(list(dict.fromkeys(values))))}
        ranks = [rank_of[value] for value in values]
        median = sorted(ranks)[(len(ranks) - 1) // 2]
        for distance, rank in zip(distances, ranks, strict=True):
            distance.append((abs(rank - median), rank))
    return [number for _, number in sorted(zip(distances, numbers, strict=True))]


def _ordered(values: list[TunableValue | None]) -> list[TunableValue | None]:
    """Numbers by size, other values as they are met."""
    numbers = [value for value in values if isinstance(value, (int, float))]
    return [*sorted(numbers)] if len(numbers) == len(values) else values
