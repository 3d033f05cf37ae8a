"""The hill climbing of "A Cross-Input Adaptive Framework for GPU Program Optimizations" (G-ADAPT)."""

from collections.abc import Generator, Iterator, Sequence

from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import Search

from .descent import Memory
from .ordering import Ranks, all_ranks

Point = tuple[int, ...]
"""A candidate's row for every workload, then the place of the clock, lowest first."""


def hill_climbing(search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """Climb as in section IV-B of G-ADAPT: from all minima, always by the best of the K single steps.

    All K parameters begin at their minimum. Each is raised by one step with the others unchanged; the best
    of these K vectors is the next base. A parameter stops at its maximum, and the climb ends when all have.
    A base may cost more than the one before it: the climb never turns back, and its answer is the best
    vector seen. The K vectors of a step are asked for together.

    Where the paper is silent:

    * Parameters are the tunables of all workloads and, where clocks are searched, the clock (up is faster).
      Texts are raised in the order of their list.
    * Rules may forbid the vector of all minima: the climb begins at the candidate nearest to it, by the sum
      of ranks. They may forbid a step: it goes to the nearest candidate in which that parameter is larger,
      the one for which the others are lowered least (not at all wherever possible), then the one for which
      all are raised least. A vector that was a base is not stepped to again, so that the climb ends.
    * A candidate that compiling rules out is none: the step goes to the next nearest.
    * A failed trial is the worst of its K; where all K failed, the climb goes on from the first of them.

    Returns:
        The cheapest trial measured, or None when all failed.
    """
    if search.size == 0:
        return None
    memory, grids = Memory(search), all_ranks(search)
    clocks = search.clocks[::-1]
    base = _lowest(grids)
    while base is not None:
        yield from memory.costs([_trial(grids, clocks, base)])
        if not _ruled_out(memory, grids, clocks, [base]):
            break
        base = _lowest(grids)
    bases = {base}
    while base is not None:
        steps = [step for step in _steps(grids, clocks, base) if step not in bases]
        if not steps:
            break
        costs = yield from memory.costs([_trial(grids, clocks, step) for step in steps])
        if _ruled_out(memory, grids, clocks, steps):
            continue
        base = steps[costs.index(min(costs))]
        bases.add(base)
    return memory.best


def _lowest(grids: Sequence[Ranks]) -> Point | None:
    rows = [row for grid in grids if (row := grid.lowest()) is not None]
    return (*rows, 0) if len(rows) == len(grids) else None


def _ruled_out(
    memory: Memory, grids: Sequence[Ranks], clocks: Sequence[int | None], points: Sequence[Point]
) -> bool:
    """Whether compiling rules out any of some points, whose candidates are then stepped to no more."""
    found = False
    for point in points:
        trial = _trial(grids, clocks, point)
        if memory.is_pruned(trial):
            found = True
            for grid, row, result in zip(grids, point, memory.measurement(trial).results, strict=False):
                if result.status is Status.PRUNED:
                    grid.rule_out(row)
    return found


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
