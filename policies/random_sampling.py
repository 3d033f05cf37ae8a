"""Try anything: the base line every other policy has to beat."""

import random
from collections.abc import Generator, Iterator

from tuner.interfaces import Search
from tuner.model import Measurement, Trial

from .sweep import sweep


def random_sampling(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Draw trials of the pruned joint space uniformly and without repetition, until it is used up.

    The draw depends on ``Search.seed`` alone. How many are drawn is the driver's business (a budget or a
    time limit). Memory grows with the trials drawn, not with the space.
    """
    return (
        yield from sweep(search, (trial_at(search, number) for number in shuffled(search.size, search.seed)))
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
    """The trial with a number from 0 to ``search.size - 1``: mixed radix, the first workload lowest."""
    configurations = []
    for candidates in search.candidates:
        number, digit = divmod(number, len(candidates))
        configurations.append(candidates[digit].configuration)
    return Trial(tuple(configurations), search.clocks[number])
