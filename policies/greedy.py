"""Algorithms 1-4 of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware Optimization".

`greedy` reads like Algorithm 4, of which the others are cases, and says where the paper contradicts itself.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile

from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Policy, Search

from .descent import (
    Answer,
    Attempt,
    Descent,
    Memory,
    Order,
    all_orders,
    along,
    by_own_time,
    cheapest,
    first_minimum,
    first_valid,
    relayed,
    while_allowed,
    with_kernel,
)

# --- Descents along lines of trials, to later ones and to earlier ones, in strides where a line is long.

ONE_BY_ONE = 8  # clocks at most that are tried one by one, about as many as the papers' GPUs have


def lowered(memory: Memory, delta: Trial, line: Sequence[Trial]) -> Descent:
    """Steps 4-10 of Algorithms 2 and 4, from the present clock (or power limit) on.

    The paper's GPUs have up to five clocks, which are tried one by one. Where there are a hundred, neighbours
    differ by less than the noise, and the first worsening says nothing: more than `ONE_BY_ONE` are descended
    in strides, which are then halved around the one found, to lower ones and, if that leads nowhere, to
    higher ones.

    Args:
        memory: what was measured.
        delta: where to begin.
        line: that trial at every clock (or power limit), the highest first.
    """
    stride = 1
    while len(line) > ONE_BY_ONE * stride:
        stride *= 2
    remaining = line[line.index(delta) :: stride]
    delta = (yield from first_minimum(memory, while_allowed(memory, remaining))) or delta
    while stride > 1:
        stride //= 2
        here = line.index(delta)
        both = (line[here::stride], line[here::-stride])
        delta = yield from along_lines(memory, (while_allowed(memory, side) for side in both), delta)
    return delta


def along_lines(memory: Memory, lines: Iterable[Iterable[Trial]], delta: Trial, gain: float = 0.0) -> Descent:
    """Descend along one line after another, all of which begin at ``delta``, until one leads away from it.

    A line that gains less than the relative ``gain`` does not count as leading away. Returns the cheapest
    trial the lines led to (of equals the last), or ``delta``.
    """
    start, best = memory.costs[delta], delta
    for line in lines:
        end = yield from first_minimum(memory, line)
        if end is None or end == delta:
            continue
        if memory.costs[end] <= memory.costs[best]:
            best = end
        if memory.costs[best] <= (1 - gain) * start:
            break
    return best


# --- Lists of trials that are measured at once, where a pool has several GPUs.

WORSE = 0.02  # relative cost by which a trial that is not measured is guessed to lie above the lowest
SPARE = 0.5  # trials in vain, by those that the policy asked for; one more is always allowed


def looking_ahead(policy: Policy, search: Search) -> Attempt:
    """Run a policy, and measure beside what it asks for what it would ask for next.

    Most trials of a descent are no better than the best so far. So a second run of the policy, which has to
    be deterministic, is fed what is known, and answered "a little worse" for what is not: what it asks for
    then is measured at the same time. The policy itself goes the way that it goes alone, in fewer rounds.
    Trials it never comes to ask for are the price, which `SPARE` bounds; the answer may be one of them.
    """
    measured: dict[Trial, Measurement] = {}
    requested: set[Trial] = set()

    def answer(batch: list[Trial]) -> Answer:
        in_vain = len(measured) - len(requested)
        requested.update(batch)
        unknown = [trial for trial in dict.fromkeys(batch) if trial not in measured]
        if unknown:
            idle = -len(unknown) % search.parallel
            room = min(idle, max(0, 1 + int(SPARE * len(requested)) - in_vain))
            together = [*unknown, *_likely(policy, search, measured, unknown, room)]
            measured.update(zip(together, (yield together), strict=True))
        return [measured[trial] for trial in batch]

    yield from relayed(policy(search), answer)
    return cheapest(search, measured)


def _likely(
    policy: Policy, search: Search, measured: Mapping[Trial, Measurement], unknown: Sequence[Trial], room: int
) -> list[Trial]:
    """So many trials that the policy asks for next, if all that is unknown is a little worse."""
    lowest = min(map(search.cost, measured.values()), default=math.inf)
    guessed = (1 + WORSE) * lowest if math.isfinite(lowest) else 1.0
    guess = Measurement(tuple(WorkloadResult(Status.OK, 1.0) for _ in search.workloads), 1.0)

    def cost(measurement: Measurement) -> float:
        return guessed if measurement.results is guess.results else search.cost(measurement)

    likely: dict[Trial, None] = {}
    ahead = policy(replace(search, cost=cost, tell=lambda _: None, expect=lambda _: None))
    with closing(ahead), suppress(StopIteration):
        batch = next(ahead)
        while len(likely) < room:
            likely.update(dict.fromkeys(t for t in batch if t not in measured and t not in unknown))
            batch = ahead.send([measured.get(trial, guess) for trial in batch])
    return list(likely)[:room]


# --- The policy.

WORTHWHILE = 0.01  # relative gain that makes looking at a kernel again worth its trials
CLEARLY_WORSE = 0.04  # relative loss that other configurations beside a kernel do not turn into a gain
REPEATABLE = 0.005  # relative gain that is no accident: so far apart two windows of the same trial may lie


def greedy(search: Search) -> Attempt:
    """Descend from the best potential and stop at the first worsening (section III).

    Algorithm 4 is run: the clock, then kernel by kernel, and back to the clock when a distribution (the
    paper's word for a block size) has changed. Without clocks to choose from there is one frequency, "as
    found", and it is Algorithm 3; with one workload they are Algorithms 2 and 1. Costs are those of the whole
    round. docs/lab/methodologies.md ("Greedy and the paper") says what it does where the paper contradicts
    itself or is silent, and where it departs from it to need fewer trials.
    """
    if search.size == 0:
        return None
    orders = all_orders(search)  # step 1
    if search.parallel == 1:
        return (yield from _descended(search, orders))
    return (yield from looking_ahead(partial(_descended, orders=orders), search))


def _descended(search: Search, orders: Sequence[Order]) -> Attempt:
    """Steps 2 to the end of Algorithm 4."""
    memory = Memory(search)
    delta = yield from first_valid(memory, orders, search)
    if delta is None:
        return None
    kernels: list[int] = []
    tuned: set[tuple[int, int]] = set()
    lost: dict[tuple[int, int | None], frozenset[Configuration]] = {}  # of kernel i at a clock, in any turn
    cost_after = dict.fromkeys(range(len(orders)), math.inf)  # of kernel i's latest turn
    while True:
        at_clocks = [replace(delta, clock_mhz=clock_mhz) for clock_mhz in search.clocks]
        delta = yield from lowered(memory, delta, at_clocks)  # steps 4-11 of Algorithm 4
        if search.clocks_mhz or not kernels:
            kernels = by_own_time(memory, delta)  # step 9 of Algorithm 3, 12 of Algorithm 4
        reached = delta
        for i in kernels:  # steps 10-13 of Algorithm 3, 13-16 of Algorithm 4
            if memory.costs[reached] < (1 - WORTHWHILE) * cost_after[i]:
                at = i, reached.clock_mhz
                worse = lost.get(at, frozenset())
                reached = yield from _tune_kernel(memory, orders[i], i, reached, tuned, lost=worse)
                cost_after[i] = memory.costs[reached]
                lost[at] = worse | _clearly_worse(memory, i, reached)
        before, after = memory.costs[delta], memory.costs[reached]
        if _blocks(orders, reached) == _blocks(orders, delta) or after >= (1 - WORTHWHILE) * before:
            return memory.best
        delta = reached


def _blocks(orders: Sequence[Order], trial: Trial) -> list[int]:
    return [order.block(c) for order, c in zip(orders, trial.configurations, strict=True)]


def _clearly_worse(memory: Memory, i: int, delta: Trial) -> frozenset[Configuration]:
    """The configurations of kernel ``i`` that were measured in place of that of ``delta`` and cost more."""
    limit = (1 + CLEARLY_WORSE) * memory.costs[delta]
    return frozenset(
        trial.configurations[i]
        for trial in memory.costs
        if limit < memory.costs[trial] < math.inf
        and trial in with_kernel(delta, i, [trial.configurations[i]])
    )


def _tune_kernel(
    memory: Memory,
    order: Order,
    i: int,
    delta: Trial,
    tuned: set[tuple[int, int]],
    *,
    lost: frozenset[Configuration],
) -> Descent:
    """Steps 6-12 of Algorithm 1 (12-21 of Algorithm 2) for kernel ``i``, all else as in ``delta``.

    The paper tunes the block size alone. With more tunables, D still has one entry per block size, each
    represented by its variant nearest to the present one: a list of all variants would stop at the first
    step between two that have little in common. D is descended to later entries and, if that gains too
    little, to earlier ones; nearest is by the work of a block. If neither gains enough, to later ones where
    nearest is by the tunables kept.

    Within the distribution found, the other tunables are descended along one by one, from the present value
    to larger ones and, if that leads nowhere, to smaller ones; once for every distribution, ``tuned``
    (kernel, block size) saying where that was done. No descent goes to or past what is ``lost``.
    """
    present = delta.configurations[i]
    same_work = order.distributions(present)
    same_tunables = order.distributions(present, same_work=False)
    here = _place(same_work, present)  # in both: one entry per block size
    sides = (same_work[here:], same_work[here::-1], same_tunables[here:])
    lines = [along(memory, delta, i, _up_to(lost, side)) for side in sides]
    delta = yield from along_lines(memory, lines, delta, REPEATABLE)
    distribution = i, order.block(delta.configurations[i])
    if distribution in tuned:
        return delta
    tuned.add(distribution)
    for tunable in order.tunables:
        line = order.line(delta.configurations[i], tunable)
        here = _place(line, delta.configurations[i])
        lines = [along(memory, delta, i, _up_to(lost, side)) for side in (line[here::-1], line[here:])]
        delta = yield from along_lines(memory, lines, delta)
    return delta


def _up_to(
    lost: frozenset[Configuration], line: Sequence[Sequence[Configuration]]
) -> list[Sequence[Configuration]]:
    """A line from its present entry up to the first that would end the descent: one that is lost."""
    return [line[0], *takewhile(lambda nearest: nearest[0] not in lost, line[1:])]


def _place(line: Sequence[Sequence[Configuration]], present: Configuration) -> int:
    return [nearest[0] for nearest in line].index(present)
