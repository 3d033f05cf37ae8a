"""Power limits beside any policy: its search at the highest, then lower limits of the cheapest trials."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Policy, Search

from .descent import Attempt, Memory, cheapest, recalled
from .greedy import lowered

ROUNDS = 2
"""Greatest number of searches of configurations: again only if the best limit is far below."""

FAR = 0.75
"""Times the limit of the search: below, other configurations may be the best."""

LEADERS = 3
"""Trials whose limits are searched, at most, each because it was cheaper than those before."""

RIVALS = 6
"""Trials that are measured at the best limit of a leader, too."""

NEAR = 0.1
"""Relative cost above the lowest up to which a trial is such a rival."""

BINDS = 0.98
"""A limit that is higher than mean power by less than the rest may bind, as power swings."""


def limited(search: Search, *, inner: Policy) -> Attempt:
    """Search configurations and clocks by a policy, and power limits of what it finds.

    A limit acts only on a load that would draw more. So the policy searches at the highest limit; then lower
    limits of its cheapest trial are descended, those alone that are below what it draws. Trials that were
    near are measured at the limit found; one that is cheaper there is descended, too. Where the limit found
    is far below, the policy searches once more, at that limit.

    Args:
        search: what the policy is told; its power limits are the choice.
        inner: searches configurations and clocks; it is told no limits.

    Returns:
        The cheapest trial measured, or None when all failed.
    """
    known: dict[Trial, Measurement] = {}
    if search.size == 0:
        return None
    yield from recalled(_steps(search, inner, known), known)
    found = cheapest(search, known)
    if found is not None and len(search.power_limits_w) > 1:
        limits = sorted({trial.power_limit_w or 0 for trial in known}, reverse=True)
        search.tell(
            f"power limits: {len(limits)} of {len(search.power_limits_w)} measured"
            f" ({', '.join(map(str, limits))} W); one above what a trial draws changes nothing"
        )
    return found


def _steps(search: Search, inner: Policy, known: Mapping[Trial, Measurement]) -> Attempt:
    limit_w = search.power_limits_w[0]
    for _ in range(ROUNDS):
        yield from _at(limit_w, search, inner, known)
        best = yield from _leaders(search, known, limit_w)
        if best is None or (best.power_limit_w or 0) >= FAR * limit_w:
            return best
        limit_w = best.power_limit_w or limit_w
    return None


def _at(limit_w: int, search: Search, inner: Policy, known: Mapping[Trial, Measurement]) -> Attempt:
    """Run a policy at one power limit, of which it does not know."""

    def there(trials: Sequence[Trial]) -> list[Trial]:
        return [replace(trial, power_limit_w=limit_w) for trial in trials]

    prior = {
        replace(trial, power_limit_w=None): measurement
        for trial, measurement in {**search.prior, **known}.items()
        if trial.power_limit_w == limit_w
    }
    attempt = inner(
        replace(search, power_limits_w=(), prior=prior, expect=lambda trials: search.expect(there(trials)))
    )
    try:
        asked = next(attempt)
        while True:
            asked = attempt.send((yield there(asked)))
    except StopIteration as end:
        return None if end.value is None else replace(end.value, power_limit_w=limit_w)
    finally:
        attempt.close()


def _leaders(search: Search, known: Mapping[Trial, Measurement], limit_w: int) -> Attempt:
    """Descend the limits of the cheapest trial, and of those that are cheaper at the limit found."""
    settled: set[Trial] = set()
    best = cheapest(search, known)
    while best is not None and len(settled) < LEADERS:
        anywhere = replace(best, power_limit_w=None)
        if anywhere in settled:
            break
        settled.add(anywhere)
        memory = Memory(search)
        yield from memory.cost(best)
        yield from lowered(memory, best, _binding(search, best, known[best]))
        best = cheapest(search, known) or best
        if best.power_limit_w != limit_w:
            for rival in _rivals(search, known, limit_w):
                yield [replace(rival, power_limit_w=best.power_limit_w)]
            best = cheapest(search, known) or best
    return best


def _binding(search: Search, trial: Trial, measurement: Measurement) -> list[Trial]:
    """A trial, and it at the lower limits that are below what it draws."""
    watts = math.inf if measurement.energy is None else measurement.energy.watts
    present_w = trial.power_limit_w or 0
    lower = [one for one in search.power_limits_w if one < present_w and BINDS * one < watts]
    return [trial, *(replace(trial, power_limit_w=one) for one in lower)]


def _rivals(search: Search, known: Mapping[Trial, Measurement], limit_w: int) -> list[Trial]:
    """The cheapest trials at a limit, that are near the lowest cost there."""
    costs = {one: search.cost(found) for one, found in known.items() if one.power_limit_w == limit_w}
    lowest = min(costs.values(), default=math.inf)
    near = [one for one, cost in costs.items() if cost <= (1.0 + NEAR) * lowest < math.inf]
    return sorted(near, key=costs.__getitem__)[: RIVALS + 1]
