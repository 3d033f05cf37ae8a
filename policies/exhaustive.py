"""Try everything."""

from collections.abc import Generator, Iterator
from itertools import product

from tuner.interfaces import Search
from tuner.model import Measurement, Trial

from .sweep import sweep


def exhaustive(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Measure the whole pruned joint space and return its minimum.

    The clock changes slowest, because setting it takes longest; then the first workload. The space is
    walked, never built, so that its size costs no memory.
    """
    return (yield from sweep(search, _joint_space(search)))


def _joint_space(search: Search) -> Iterator[Trial]:
    for clock_mhz in search.clocks:
        for chosen in product(*search.candidates):
            yield Trial(tuple(candidate.configuration for candidate in chosen), clock_mhz)
