"""Restarted neighbourhood search: the simple reference for other policies."""

import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Search

from .descent import Attempt, Memory, with_kernel
from .ordering import Ranks, all_ranks
from .sampling import shuffled, trial_at
from .speculation import looking_ahead

CLIMBS = 10  # in a row that find nothing better end the search: of ten chances none was a better basin
FAILED_STARTS = 100  # in a row end the search: by then 97 % sure that under 4 % of the space runs


def local(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Move to a better neighbour until there is none, then restart elsewhere.

    Neighbours of a trial differ in one tunable of one workload, by any step that the rules allow (Hamming
    distance 1), or in the clock; of a space that is too large to be listed they are made on demand. They are
    tried in random order, and the first that is cheaper is moved to. The first climb begins at the default
    trial, each further one at a trial drawn uniformly from those not measured. A trial that failed is moved
    to never, and no climb begins at one. All draws follow from ``Search.seed``.

    It ends when everything is measured, when `CLIMBS` climbs in a row found nothing better, or when
    `FAILED_STARTS` starts in a row failed. Where several trials are measured at once, what it would ask for
    next is measured, too (`looking_ahead`).

    Returns:
        The cheapest trial measured, or None when all failed.
    """
    if search.size == 0:
        return None
    grids = all_ranks(search)
    if search.parallel == 1:
        return (yield from _climbs(search, grids))
    return (yield from looking_ahead(partial(_climbs, grids=grids), search))


def _climbs(search: Search, grids: Sequence[Ranks]) -> Attempt:
    """One climb after another."""
    memory = Memory(search)
    draw = random.Random(search.seed)  # noqa: S311 - a seeded experiment, not a secret
    idle = failed = 0
    for start in _starts(search):
        if start in memory:
            continue
        before = memory.best
        if (yield from memory.cost(start)) == math.inf:
            failed += 1
        else:
            yield from _climb(memory, start, lambda trial: _neighbours(grids, search.clocks, trial, draw))
            failed, idle = 0, idle + 1 if memory.best == before else 0
        if idle >= CLIMBS or failed >= FAILED_STARTS:
            break
    return memory.best


def _starts(search: Search) -> Iterator[Trial]:
    """The default trial where it is in the space, then all trials in random order."""
    spaces = [{candidate.configuration for candidate in candidates} for candidates in search.candidates]
    if all(default in space for default, space in zip(search.defaults, spaces, strict=True)):
        yield Trial(search.defaults, search.clocks[0])
    for number in shuffled(search.listed, search.seed):
        yield trial_at(search, number)


def _climb(
    memory: Memory, trial: Trial, neighbours: Callable[[Trial], Sequence[Trial]]
) -> Generator[list[Trial], list[Measurement], None]:
    """Move to the first cheaper neighbour while there is one; those known to be cheaper need no measuring."""
    moved = True
    while moved:
        moved = False
        near = neighbours(trial)
        memory.expect(near)
        for neighbour in near:
            if (yield from memory.cost(neighbour)) < memory.measured_cost(trial):
                trial, moved = neighbour, True
                break


def _neighbours(
    grids: Sequence[Ranks], clocks: Sequence[int | None], trial: Trial, draw: random.Random
) -> list[Trial]:
    """The neighbours of a trial in random order."""
    found = [replace(trial, clock_mhz=clock) for clock in clocks if clock != trial.clock_mhz]
    for i, grid in enumerate(grids):
        found.extend(with_kernel(trial, i, grid.neighbours(trial.configurations[i])))
    draw.shuffle(found)
    return found
