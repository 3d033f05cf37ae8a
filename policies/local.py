"""Local searches: restarted neighbourhoods, and the hill climbing of G-ADAPT."""

import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import Search

from .descent import Attempt, Memory, Ranks, all_ranks, with_kernel
from .greedy import looking_ahead
from .independent import shuffled, trial_at

Point = tuple[int, ...]
"""A candidate's row for every workload, then the place of the clock, lowest first."""


def hill_climbing(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Climb as in section IV-B of G-ADAPT: from all minima, always by the best of the K single steps.

    All K parameters begin at their minimum. Each is raised by one step with the others unchanged; the best
    of these K vectors, which are asked for together, is the next base, even if it costs more. The climb ends
    when all have reached their maximum, and its answer is the best vector seen.

    Where the paper is silent: a clock is a parameter, too (up is faster). Where rules forbid the vector of
    all minima or a step, or compiling does, the nearest candidate stands for it (`Ranks`). A vector that was
    a base is not stepped to again, so that the climb ends. Where all K failed, it goes on from the first.
    """
    if search.size == 0:
        return None
    memory, grids = Memory(search), all_ranks(search)
    clocks = search.clocks[::-1]
    base = _lowest(grids)
    while base is not None:
        yield from memory.cost(_trial(grids, clocks, base))
        if not _ruled_out(memory, grids, clocks, [base]):
            break
        base = _lowest(grids)
    bases = {base}
    while base is not None:
        steps = [step for step in _steps(grids, clocks, base) if step not in bases]
        if not steps:
            break
        trials = [_trial(grids, clocks, step) for step in steps]
        yield from memory.measure(trials)
        if _ruled_out(memory, grids, clocks, steps):
            continue
        base = min(zip(steps, trials, strict=True), key=lambda one: memory.costs[one[1]])[0]
        bases.add(base)
    return memory.best


def _lowest(grids: Sequence[Ranks]) -> Point | None:
    rows = [row for grid in grids if (row := grid.lowest()) is not None]
    return (*rows, 0) if len(rows) == len(grids) else None


def _ruled_out(
    memory: Memory, grids: Sequence[Ranks], clocks: Sequence[int | None], points: Sequence[Point]
) -> bool:
    """Rule out the candidates of points that compiling prunes; return True if there are any."""
    listed = False
    for point in points:
        trial = _trial(grids, clocks, point)
        if memory.is_pruned(trial):
            listed = True
            for grid, row, result in zip(grids, point, memory.measured[trial].results, strict=False):
                if result.status is Status.PRUNED:
                    grid.rule_out(row)
    return listed


def _steps(grids: Sequence[Ranks], clocks: Sequence[int | None], base: Point) -> Iterator[Point]:
    """The points one step of one parameter up from the base."""
    for i, grid in enumerate(grids):
        for row in grid.raised(base[i]):
            yield (*base[:i], row, *base[i + 1 :])
    if base[-1] + 1 < len(clocks):
        yield (*base[:-1], base[-1] + 1)


def _trial(grids: Sequence[Ranks], clocks: Sequence[int | None], point: Point) -> Trial:
    configurations = tuple(grid.configurations[row] for grid, row in zip(grids, point, strict=False))
    return Trial(configurations, clocks[point[-1]])


CLIMBS = 10  # in a row that find nothing better end the search: of ten chances none was a better basin
FAILED_STARTS = 100  # in a row end the search: by then 97 % sure that under 4 % of the space runs


def local(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Move to a better neighbour until there is none, then restart elsewhere.

    Neighbours of a trial differ in one tunable of one workload (Hamming distance 1), or in the clock. They
    are tried in random order, and the first that is cheaper is moved to. The first climb begins at the
    default trial, each further one at a trial drawn uniformly from those not measured. It ends when
    everything is measured, when `CLIMBS` climbs in a row found nothing better, or when `FAILED_STARTS` starts
    in a row failed.
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
        if start in memory.costs:
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
            if (yield from memory.cost(neighbour)) < memory.costs[trial]:
                trial, moved = neighbour, True
                break


def _neighbours(
    grids: Sequence[Ranks], clocks: Sequence[int | None], trial: Trial, draw: random.Random
) -> list[Trial]:
    """The neighbours of a trial in random order."""
    neighbours = [replace(trial, clock_mhz=clock) for clock in clocks if clock != trial.clock_mhz]
    for i, grid in enumerate(grids):
        neighbours.extend(with_kernel(trial, i, grid.neighbours(trial.configurations[i])))
    draw.shuffle(neighbours)
    return neighbours
