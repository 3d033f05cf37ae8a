"""Policies whose trials do not depend on each other: exhaustive search and random sampling."""

import math
import random
from collections.abc import Generator, Iterable, Iterator
from itertools import islice, product

from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Search

CHUNK = 64  # trials yielded together: enough to compile ahead, few enough to hold in memory


def sweep(search: Search, trials: Iterable[Trial]) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Yield ``trials`` in chunks and return the cheapest, the earliest of equals; None when all failed.

    Args:
        search: gives the cost.
        trials: may be a generator of any length; no more than two chunks of it are held.
    """
    best, lowest = None, math.inf
    stream = iter(trials)
    chunk = list(islice(stream, CHUNK))
    while chunk:
        following = list(islice(stream, CHUNK))
        search.expect(following)
        for trial, measurement in zip(chunk, (yield chunk), strict=True):
            cost = search.cost(measurement)
            if math.isfinite(cost) and cost < lowest:
                best, lowest = trial, cost
        chunk = following
    return best


def random_sampling(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Draw trials of the pruned joint space uniformly and without repetition, until it is used up.

    Of a space that is too large to be listed, trials of its sample are drawn. The draw depends on
    ``Search.seed`` alone. How many are drawn is the driver's business (a budget or a
    time limit). Memory grows with the trials drawn, not with the space.
    """
    return (
        yield from sweep(
            search, (trial_at(search, number) for number in shuffled(search.listed, search.seed))
        )
    )


def shuffled(count: int, seed: int) -> Iterator[int]:
    """The numbers below ``count`` in random order: a Fisher-Yates shuffle that stores only what it moved."""
    draw = random.Random(seed)  # noqa: S311 - a seeded experiment, not a secret
    moved: dict[int, int] = {}
    for i in range(count):
        j = draw.randrange(i, count)
        yield moved.get(j, j)
        moved[j] = moved.pop(i, i)


def trial_at(search: Search, number: int) -> Trial:
    """The trial with a number from 0 to ``search.listed - 1``: mixed radix, the first workload lowest."""
    configurations = []
    for candidates in search.candidates:
        number, digit = divmod(number, len(candidates))
        configurations.append(candidates[digit].configuration)
    setting = search.settings[number]
    return Trial(tuple(configurations), setting.clock_mhz, setting.power_limit_w)


def exhaustive(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Measure the whole pruned joint space and return its minimum.

    Power limit and clock change slowest, because setting them takes longest; then the first workload. The
    space is walked, never built, so that its size costs no memory.
    """
    return (yield from sweep(search, _joint_space(search)))


def _joint_space(search: Search) -> Iterator[Trial]:
    for setting in search.settings:
        for chosen in product(*search.candidates):
            configurations = tuple(candidate.configuration for candidate in chosen)
            yield Trial(configurations, setting.clock_mhz, setting.power_limit_w)
