"""Power limits beside any policy: its search at the highest, then lower limits of the cheapest trials."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Policy, Search

from .descent import LEADERS, Answer, Attempt, Memory, cheapest, recalled, relayed, rivals
from .greedy import lowered

ROUNDS = 2  # greatest number of searches of configurations: again only if the best limit is far below
FAR = 0.75  # times the limit of the search: below, other configurations may be the best
BINDS = 0.98  # a limit that is higher than mean power by less than the rest may bind, as power swings


def limited(search: Search, *, inner: Policy) -> Attempt:
    """Search configurations and clocks by a policy, and power limits of what it finds.

    A limit acts only on a load that would draw more. So the policy searches at the highest limit; then lower
    limits of its cheapest trial are descended, those alone that are below what it draws. Trials that were
    near are measured at the limit found; one that is cheaper there is descended, too. Where the limit found
    is far below, the policy searches once more, at that limit.

    ``inner`` is told no limits.
    """
    measured: dict[Trial, Measurement] = {}
    if search.size == 0:
        return None
    ended = False
    try:
        yield from recalled(_steps(search, inner, measured), measured)
        ended = True
    finally:  # also where the budget ends it
        if measured and len(search.power_limits_w) > 1:
            search.tell(_told(search, measured, ended=ended))
    return cheapest(search, measured)


def _told(search: Search, measured: Mapping[Trial, Measurement], *, ended: bool) -> str:
    """Return what is known of the power limits, in a sentence."""
    limits = sorted({trial.power_limit_w or 0 for trial in measured}, reverse=True)
    if len(limits) == 1 and ended:
        return f"power limits: only {limits[0]} W measured, as the cheapest trials draw less than the others"
    if len(limits) == 1:
        return f"beware: no power limit below {limits[0]} W was tried before the search ended"
    return (
        f"power limits: {len(limits)} of {len(search.power_limits_w)} measured"
        f" ({', '.join(map(str, limits))} W); one above what a trial draws changes nothing"
    )


def _steps(search: Search, inner: Policy, measured: Mapping[Trial, Measurement]) -> Attempt:
    limit_w = search.power_limits_w[0]
    for _ in range(ROUNDS):
        yield from _at(limit_w, search, inner, measured)
        best = yield from _leaders(search, measured, limit_w)
        if best is None or (best.power_limit_w or 0) >= FAR * limit_w:
            return best
        limit_w = best.power_limit_w or limit_w
    return None


def _at(
    limit_w: int, search: Search, inner: Policy, measured: Mapping[Trial, Measurement]
) -> Generator[list[Trial], list[Measurement], None]:
    """Run a policy at one power limit, of which it does not know."""

    def there(trials: Sequence[Trial]) -> list[Trial]:
        return [replace(trial, power_limit_w=limit_w) for trial in trials]

    prior = {
        replace(trial, power_limit_w=None): measurement
        for trial, measurement in {**search.prior, **measured}.items()
        if trial.power_limit_w == limit_w
    }
    told = replace(search, power_limits_w=(), prior=prior, expect=lambda trials: search.expect(there(trials)))

    def answer(batch: list[Trial]) -> Answer:
        return (yield there(batch))

    yield from relayed(inner(told), answer)


def _leaders(search: Search, measured: Mapping[Trial, Measurement], limit_w: int) -> Attempt:
    """Descend the limits of the cheapest trial, and of those that are cheaper at the limit found."""
    settled: set[Trial] = set()
    best = cheapest(search, measured)
    while best is not None and len(settled) < LEADERS:
        anywhere = replace(best, power_limit_w=None)
        if anywhere in settled:
            break
        settled.add(anywhere)
        memory = Memory(search)
        yield from memory.cost(best)
        yield from lowered(memory, best, _binding(search, best, measured[best]))
        best = cheapest(search, measured) or best
        if best.power_limit_w != limit_w:
            here = {trial: result for trial, result in measured.items() if trial.power_limit_w == limit_w}
            for rival in rivals(search, here):
                yield [replace(rival, power_limit_w=best.power_limit_w)]
            best = cheapest(search, measured) or best
    return best


def _binding(search: Search, trial: Trial, measurement: Measurement) -> list[Trial]:
    """A trial, and it at the lower limits that are below what it draws."""
    watts = math.inf if measurement.energy is None else measurement.energy.watts
    present_w = trial.power_limit_w or 0
    lower = [limit_w for limit_w in search.power_limits_w if limit_w < present_w and BINDS * limit_w < watts]
    return [trial, *(replace(trial, power_limit_w=limit_w) for limit_w in lower)]
