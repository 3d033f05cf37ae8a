"""Several trials at once from a search that asks for one after another: it is run ahead on a guess."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Policy, Search

from .descent import Attempt, cheapest

WORSE = 0.02  # relative cost by which a trial that is not measured is guessed to lie above the lowest
SPARE = 0.5  # trials in vain, by those that the policy asked for; one more is always allowed


def looking_ahead(policy: Policy, search: Search) -> Attempt:
    """Run a policy, and measure beside what it asks for what it would ask for next.

    Most trials of a descent are no better than the best so far. So a second run of the policy, from the start
    and fed what is known, is answered "a little worse" for what is not: what it asks for then is measured at
    the same time. The policy itself is told nothing but measurements: it goes the way that it goes alone, in
    fewer rounds. Trials it never comes to ask for are the price, which `SPARE` bounds.

    Args:
        policy: deterministic; asks for a few trials at a time.
        search: what it is told; ``parallel`` trials are measured at once.

    Returns:
        The cheapest trial measured, those it never came to ask for among them.
    """
    known: dict[Trial, Measurement] = {}
    wanted: set[Trial] = set()
    attempt = policy(search)
    try:
        batch = next(attempt)
        while True:
            in_vain = len(known) - len(wanted)
            wanted.update(batch)
            unknown = [trial for trial in dict.fromkeys(batch) if trial not in known]
            if unknown:
                idle = -len(unknown) % search.parallel
                room = min(idle, max(0, 1 + int(SPARE * len(wanted)) - in_vain))
                asked = [*unknown, *_likely(policy, search, known, unknown, room)]
                known.update(zip(asked, (yield asked), strict=True))
            batch = attempt.send([known[trial] for trial in batch])
    except StopIteration:
        return cheapest(search, known)
    finally:
        attempt.close()


def _likely(
    policy: Policy, search: Search, known: Mapping[Trial, Measurement], unknown: Sequence[Trial], room: int
) -> list[Trial]:
    """So many trials that the policy asks for next, if all that is unknown is a little worse."""
    lowest = min(map(search.cost, known.values()), default=math.inf)
    guessed = (1 + WORSE) * lowest if math.isfinite(lowest) else 1.0
    guess = Measurement(tuple(WorkloadResult(Status.OK, 1.0) for _ in search.workloads), 1.0)

    def cost(measurement: Measurement) -> float:
        return guessed if measurement.results is guess.results else search.cost(measurement)

    found: dict[Trial, None] = {}
    ahead = policy(replace(search, cost=cost, tell=lambda _: None, expect=lambda _: None))
    try:
        batch = next(ahead)
        while len(found) < room:
            found.update(dict.fromkeys(t for t in batch if t not in known and t not in unknown))
            batch = ahead.send([known.get(trial, guess) for trial in batch])
    except StopIteration:
        pass
    finally:
        ahead.close()
    return list(found)[:room]
