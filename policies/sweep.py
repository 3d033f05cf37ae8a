"""Measure a stream of trials in which none depends on another, and keep the best."""

import math
from collections.abc import Generator, Iterable
from itertools import islice

from tuner.interfaces import Search
from tuner.model import Measurement, Trial

CHUNK = 64  # trials yielded together: enough to compile ahead, few enough to hold in memory


def sweep(search: Search, trials: Iterable[Trial]) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Yield ``trials`` in chunks and return the cheapest, the earliest of equals; None when all failed.

    Args:
        search: gives the cost.
        trials: may be a generator of any length; no more than a chunk of it is held.
    """
    best, lowest = None, math.inf
    stream = iter(trials)
    while chunk := list(islice(stream, CHUNK)):
        for trial, measurement in zip(chunk, (yield chunk), strict=True):
            cost = search.cost(measurement)
            if math.isfinite(cost) and cost < lowest:
                best, lowest = trial, cost
    return best
