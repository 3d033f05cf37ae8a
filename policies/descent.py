"""Descents: candidates as points of a grid, the order in which they are tried, and the steps."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration, TunableValue, tunable_names
from tuner.model.trial import Energy, Measurement, Status, Trial
from tuner.space.search_view import Candidate, LargeSpace, Search

# --- The candidates of one workload as points of a grid, and the order in which they are tried.
#
# The order is step 5 of Algorithm 1 of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware
# Optimization", for kernels that have more tunables than the block size.

_TOGETHER = 8  # candidates compiled at a time

Resolve = Callable[[Sequence[Candidate]], Sequence[Candidate | None]]
"""Compiles candidates: each with its compiled resources, or None where these rule it out."""

Integers = NDArray[np.int64]
RankArray = NDArray[np.int32]


class Order:
    """The candidates of one workload, best potential first, and the lines through them.

    The order is: higher occupancy; then larger block; then more elements per thread; then the order of the
    space. A *distribution* is, as in the paper, a block size; the candidates that share it are its
    *variants*.

    Args:
        candidates: at least one.
        resolve: compiles candidates, as far as needed to find the first by compiled occupancy; None to go by
            bounds of it.
        large: the space where the candidates are a sample of it. The neighbours of what is present, and other
            candidates that are asked for, stand behind them then.
        declared: value lists of its tunables.

    Attributes:
        configurations: the candidates' configurations in that order.
        tunables: names of their tunables, in the order in which they are descended along: the elements per
            thread, which usually matter most, then the others as they are met.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        resolve: Resolve | None = None,
        *,
        large: LargeSpace | None = None,
        declared: Mapping[str, Sequence[TunableValue]] | None = None,
    ) -> None:
        self._large = large
        self._around: set[Configuration] = set()  # those whose neighbours are in it
        ranked = sorted(candidates, key=_potential)
        if resolve is not None:
            first = _first(ranked, resolve)
            ranked.insert(0, ranked.pop(first))
        self.configurations = [candidate.configuration for candidate in ranked]
        elements = [candidate.elements_per_thread for candidate in ranked]
        self.tunables = tuple(
            sorted(  # stable; False stands before True
                tunable_names(self.configurations),
                key=lambda name: [values.get(name) for values in self.configurations] != elements,
            )
        )
        self._position = {configuration: i for i, configuration in enumerate(self.configurations)}
        self._block = np.array([candidate.threads_per_block for candidate in ranked])
        self._log_elements = np.log2([_work_per_block(c) for c in ranked])
        self._code_of = {
            name: _codes([*(c.get(name) for c in self.configurations), *(declared or {}).get(name, ())])
            for name in self.tunables
        }
        self._codes = self._coded(self.configurations)

    def __contains__(self, configuration: object) -> bool:
        if self._large is not None and isinstance(configuration, Configuration):
            candidate = self._large.candidate(configuration) if configuration not in self._position else None
            self._add([] if candidate is None else [candidate])
        return configuration in self._position

    def _coded(self, configurations: Sequence[Configuration]) -> Integers:
        columns = [[self._code_of[name][c.get(name)] for c in configurations] for name in self.tunables]
        return np.array(columns, dtype=np.int64).reshape(len(columns), len(configurations)).T

    def _add(self, candidates: Sequence[Candidate]) -> None:
        """Candidates behind the others, those that are not among them."""
        new = [candidate for candidate in candidates if candidate.configuration not in self._position]
        if not new:
            return
        configurations = [candidate.configuration for candidate in new]
        self._position.update((c, len(self.configurations) + i) for i, c in enumerate(configurations))
        self.configurations += configurations
        self._block = np.append(self._block, [candidate.threads_per_block for candidate in new])
        self._log_elements = np.append(
            self._log_elements, np.log2([_work_per_block(candidate) for candidate in new])
        )
        self._codes = np.vstack([self._codes, self._coded(configurations)])

    def _look_around(self, present: Configuration) -> None:
        """Of a large space, take in the neighbours of a configuration."""
        if self._large is not None and present not in self._around:
            self._around.add(present)
            self._add(self._large.neighbours(present))

    def block(self, configuration: Configuration) -> int:
        """The distribution of a candidate: its block size, in threads."""
        return int(self._block[self._position[configuration]])

    def distributions(self, present: Configuration, *, same_work: bool = True) -> list[list[Configuration]]:
        """The vector D: the candidates of every block size, larger blocks first.

        A distribution is represented by the variant nearest to ``present``, its own by ``present`` itself:
        the first of its list. Where compiling rules that out, the next nearest stands for it.

        Args:
            present: a candidate.
            same_work: nearest is first of all as many elements per block (S = P × L in "Performance Tuning
                for GPU-Embedded Systems"), which the problem size often ties down: a smaller block has
                fatter threads. Otherwise nearest is what differs in the fewest tunables.
        """
        self._look_around(present)
        rows = np.arange(len(self.configurations))
        return self._nearest(rows, self._block, present, same_work=same_work)[::-1]

    def line(self, present: Configuration, tunable: str) -> list[list[Configuration]]:
        """The variants of the distribution of ``present`` along one tunable, largest value first.

        Every value is represented as in `distributions`. Texts stand in the order of their best candidates.
        """
        self._look_around(present)
        variants = np.flatnonzero(self._block == self._block[self._position[present]])
        values = self._codes[variants, self.tunables.index(tunable)]
        return self._nearest(variants, values, present)

    def _nearest(
        self, rows: Integers, group: Integers, present: Configuration, *, same_work: bool = True
    ) -> list[list[Configuration]]:
        """The candidates of every group of rows, by rising group number, the nearest to ``present`` first."""
        here = self._position[present]
        resized = np.abs(self._log_elements[rows] - self._log_elements[here])
        differing = (self._codes[rows] != self._codes[here]).sum(axis=1)
        keys = (differing, resized, group) if same_work else (differing, group)
        by_distance = np.lexsort(keys)  # by the last key first; stable, so that equals stay in order
        groups: dict[int, list[Configuration]] = {number: [] for number in np.unique(group).tolist()}
        for row, number in zip(rows[by_distance].tolist(), group[by_distance].tolist(), strict=True):
            groups[number].append(self.configurations[row])
        return list(groups.values())


def all_orders(search: Search) -> list[Order]:
    """The candidates of every workload; the first one is compiled of those that a descent may begin at."""
    alone = len(search.candidates) == 1
    orders = []
    for workload, (candidates, default) in enumerate(zip(search.candidates, search.defaults, strict=True)):
        begins = alone or default not in {candidate.configuration for candidate in candidates}
        orders.append(
            Order(
                candidates,
                partial(search.resolve, workload) if begins else None,
                large=search.large_space(workload),
                declared=search.tunables[workload] if search.tunables else None,
            )
        )
    return orders


def _potential(candidate: Candidate) -> tuple[float, int, int]:
    """The smaller, the better."""
    return -candidate.occupancy, -candidate.threads_per_block, -candidate.elements_per_thread


def _first(ranked: Sequence[Candidate], resolve: Resolve) -> int:
    """The place of the candidate of the best potential by compiled occupancy, which no bound is below."""
    best: tuple[tuple[float, int, int], int] | None = None
    for start in range(0, len(ranked), _TOGETHER):
        if best is not None and best < (_potential(ranked[start]), start):
            break
        batch = ranked[start : start + _TOGETHER]
        for position, compiled in enumerate(resolve(batch), start):
            if compiled is not None and (best is None or (_potential(compiled), position) < best):
                best = _potential(compiled), position
    return 0 if best is None else best[1]


def _codes(values: Sequence[object]) -> dict[object, int]:
    """Numbers of a tunable's values: 0 for the largest number, or the first of texts; no value is last."""
    distinct = dict.fromkeys(value for value in values if value is not None)
    numbers = [value for value in distinct if isinstance(value, (int, float))]
    ordered = sorted(numbers, reverse=True) if len(numbers) == len(distinct) else list(distinct)
    return {value: i for i, value in enumerate([*ordered, None])}


def _work_per_block(candidate: Candidate) -> int:
    """Threads times elements per thread; nothing is known of either in spaces of other tuners."""
    return max(1, candidate.threads_per_block) * max(1, candidate.elements_per_thread)


class Ranks:
    """Candidates as ranks of their values: numbers from the smallest on, texts in the order of their list.

    Args:
        candidates: at least one.
        tunables: value lists in the order of declaration; empty where only the candidates tell.
        large: the space where the candidates are a sample of it.

    Attributes:
        configurations: of the candidates, in their order.
        ranks: (candidates, tunables), 0 for the smallest value that any candidate has, -1 for no value.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        tunables: Mapping[str, Sequence[TunableValue]],
        large: LargeSpace | None = None,
    ) -> None:
        self._large = large
        self.configurations = [candidate.configuration for candidate in candidates]
        self._rows = {configuration: row for row, configuration in enumerate(self.configurations)}
        self._left = np.ones(len(candidates), dtype=bool)
        self._near: dict[Configuration, tuple[Configuration, ...]] = {}  # of those asked for
        names = tunable_names(self.configurations)
        self.ranks: RankArray = np.empty((len(candidates), len(names)), dtype=np.int32)
        for column, name in enumerate(names):
            values = [configuration.get(name) for configuration in self.configurations]
            order = value_ranks([value for value in values if value is not None], tunables.get(name, ()))
            self.ranks[:, column] = [-1 if value is None else order[value] for value in values]

    def neighbours(self, configuration: Configuration) -> tuple[Configuration, ...]:
        """The candidates that differ from one in a single tunable (Hamming distance 1), in their order.

        Only tunables that have a value in both count. Where the new value gives others a value, or takes it
        from them, the first such candidate stands for all. Those of a large space need not be listed.
        """
        near = self._near.get(configuration)
        if near is None:
            near = self._near[configuration] = (
                self._found_near(configuration)
                if self._large is None
                else tuple(candidate.configuration for candidate in self._large.neighbours(configuration))
            )
        return near

    def _found_near(self, configuration: Configuration) -> tuple[Configuration, ...]:
        if not self.ranks.shape[1]:  # nothing to tune
            return ()
        present = self.ranks[self._rows[configuration]]
        differs = (self.ranks != present) & (self.ranks >= 0) & (present >= 0)
        near = np.flatnonzero(differs.sum(axis=1) == 1)
        changed = differs[near].argmax(axis=1)
        moves = np.stack([changed, self.ranks[near, changed]], axis=1)
        _, first = np.unique(moves, axis=0, return_index=True)
        return tuple(self.configurations[row] for row in near[np.sort(first)])

    def rule_out(self, row: int) -> None:
        """A candidate that compiling rules out is stepped to no more."""
        self._left[row] = False

    def lowest(self) -> int | None:
        """The candidate nearest to all minima, by the sum of its ranks; of equals the first, None of none."""
        rows = np.flatnonzero(self._left)
        return int(rows[self.ranks[rows].sum(axis=1).argmin()]) if rows.size else None

    def raised(self, row: int) -> list[int]:
        """For every tunable that can be raised, the candidate one step up from one.

        A step up is the nearest candidate with a larger value of that tunable: the one for which the others
        are lowered least, then the one for which all are raised least. Without rules that is the next value
        with the others unchanged.
        """
        moved = self.ranks - self.ranks[row]
        down = -np.minimum(moved, 0).sum(axis=1)
        up = np.maximum(moved, 0).sum(axis=1)
        steps: dict[int, None] = {}
        for column in range(moved.shape[1]):
            larger = np.flatnonzero((moved[:, column] > 0) & self._left)
            if larger.size:
                steps[int(larger[np.lexsort((up[larger], down[larger]))[0]])] = None
        return list(steps)


def all_ranks(search: Search) -> list[Ranks]:
    """The ranks of every workload of a search that has candidates for each."""
    lists = search.tunables or tuple({} for _ in search.candidates)
    return [
        Ranks(candidates, values, search.large_space(workload))
        for workload, (candidates, values) in enumerate(zip(search.candidates, lists, strict=True))
    ]


def value_ranks(
    values: Sequence[TunableValue | None], declared: Sequence[TunableValue] = ()
) -> dict[TunableValue | None, int]:
    """Every value that occurs, with its rank: numbers by size, others as they are declared or met."""
    present = set(values)
    distinct = [value for value in dict.fromkeys((*declared, *values)) if value in present]
    numbers = [value for value in distinct if isinstance(value, (int, float))]
    ordered = sorted(numbers) if len(numbers) == len(distinct) else distinct
    return {value: rank for rank, value in enumerate(ordered)}


# --- The steps of descents: trials asked for in lists, what they cost, and where a workload begins.

_SOME_ENERGY = Energy(joules=1.0, uncertainty_j=0.0, watts=0.0, sensor="", scope="")
Attempt = Generator[list[Trial], list[Measurement], Trial | None]
"""A part of a search: yields trials, is sent their measurements, returns what it found, if anything."""

Descent = Generator[list[Trial], list[Measurement], Trial]
"""The same; it always ends at a trial."""

Answer = Generator[list[Trial], list[Measurement], list[Measurement]]
"""The same; returns the measurements that another part asked for."""


class Memory:
    """Measurements by trial, so that a descent compares every trial by one and the same number.

    Attributes:
        expect: see ``Search.expect``.
        measured: what every trial gave.
        costs: by ``Search.cost``; a number that is not finite counts as a failure, which costs infinity.
    """

    def __init__(self, search: Search) -> None:
        self._cost, self.expect = search.cost, search.expect
        self.costs: dict[Trial, float] = {}
        self.measured: dict[Trial, Measurement] = {}

    @property
    def best(self) -> Trial | None:
        """The cheapest trial measured, the earliest of equals; None while every trial has failed."""
        best = min(self.costs, key=self.costs.__getitem__, default=None)
        return best if best is not None and self.costs[best] < math.inf else None

    def cost(self, trial: Trial) -> Generator[list[Trial], list[Measurement], float]:
        """Cost of a trial, measured unless it is known."""
        yield from self.measure([trial])
        return self.costs[trial]

    def measure(self, trials: Sequence[Trial]) -> Generator[list[Trial], list[Measurement], None]:
        """Measure trials whose order does not matter, those that are not known, together."""
        unknown = [trial for trial in dict.fromkeys(trials) if trial not in self.measured]
        if unknown:
            self.measured.update(zip(unknown, (yield unknown), strict=True))
        for trial in unknown:
            cost = self._cost(self.measured[trial])
            self.costs[trial] = cost if math.isfinite(cost) else math.inf

    def is_pruned(self, trial: Trial) -> bool:
        """True when a trial that was asked for is ruled out by its compiled resources."""
        return self.measured[trial].status is Status.PRUNED

    def inadmissible(self, trial: Trial) -> bool:
        """True when a measured trial ran well but is slower than the user allows."""
        return too_slow(self.measured[trial], self._cost)


def too_slow(measurement: Measurement, cost: Callable[[Measurement], float]) -> bool:
    """True for a trial that ran well but is slower than the user allows.

    Its cost is infinite whatever its joules. A trial without joules (the sensor missed it) is no slower than
    others for that: it is asked what it would cost with some.
    """
    if measurement.energy is None or not math.isfinite(measurement.energy.joules):
        measurement = replace(measurement, energy=_SOME_ENERGY)
    return measurement.ok and cost(measurement) == math.inf


def relayed(attempt: Attempt, answer: Callable[[list[Trial]], Answer]) -> Attempt:
    """Run a part of a search; ``answer`` takes what it asks for, asks for what it needs, and answers."""
    try:
        batch = next(attempt)
        while True:
            batch = attempt.send((yield from answer(batch)))
    except StopIteration as end:
        best: Trial | None = end.value
        return best
    finally:
        attempt.close()


def recalled(attempt: Attempt, measured: dict[Trial, Measurement]) -> Attempt:
    """Run a part of a search: what is measured already is answered from memory, the rest remembered."""

    def answer(batch: list[Trial]) -> Answer:
        unknown = [trial for trial in batch if trial not in measured]
        if unknown:
            measured.update(zip(unknown, (yield unknown), strict=True))
        return [measured[trial] for trial in batch]

    return (yield from relayed(attempt, answer))


def cheapest(search: Search, measured: Mapping[Trial, Measurement]) -> Trial | None:
    """The cheapest trial measured, None where none is valid."""
    costs = {trial: search.cost(measurement) for trial, measurement in measured.items()}
    valid = [trial for trial, cost in costs.items() if math.isfinite(cost)]
    return min(valid, key=costs.__getitem__, default=None)


# Trials whose clocks or power limits are searched, at most, each as it was cheaper than those before.
LEADERS = 3
_RIVALS = 6  # trials that are measured at the best clock or limit of a leader, too
_NEAR = 0.1  # relative cost above the lowest up to which a trial is such a rival


def rivals(search: Search, measured: Mapping[Trial, Measurement]) -> list[Trial]:
    """The cheapest of some trials, those that are near the lowest cost of them."""
    costs = {trial: search.cost(measurement) for trial, measurement in measured.items()}
    lowest = min(costs.values(), default=math.inf)
    near = [trial for trial, cost in costs.items() if cost <= (1.0 + _NEAR) * lowest < math.inf]
    return sorted(near, key=costs.__getitem__)[: _RIVALS + 1]


def first_minimum(memory: Memory, trials: Iterable[Trial]) -> Attempt:
    """Measure one trial after another until the first worsening: the loop of all four algorithms.

    A trial that fails is skipped and compared with nothing: the next valid one is compared with the valid
    one before it. Each is measured before the next is taken from ``trials``.

    Returns:
        The trial before the first worsening (of equals the last); None when no trial was valid.
    """
    chosen, lowest = None, math.inf
    for trial in trials:
        cost = yield from memory.cost(trial)
        if cost == math.inf:
            continue
        if cost > lowest:
            break
        chosen, lowest = trial, cost
    return chosen


def along(memory: Memory, trial: Trial, i: int, line: Sequence[Sequence[Configuration]]) -> Iterator[Trial]:
    """A trial with one configuration after another for kernel ``i``: the first of each list.

    Where compiling rules one out, the next of its list stands for it. The line is announced.
    """
    memory.expect([*with_kernel(trial, i, (nearest[0] for nearest in line))])
    for nearest in line:
        for changed in with_kernel(trial, i, nearest):
            yield changed
            if not memory.is_pruned(changed):
                break


def while_allowed(memory: Memory, trials: Iterable[Trial]) -> Iterator[Trial]:
    """Trials, to the first that is too slow to be allowed, as those after it are slower still."""
    for trial in trials:
        yield trial
        if memory.inadmissible(trial):
            return


def with_kernel(trial: Trial, i: int, configurations: Iterable[Configuration]) -> Iterator[Trial]:
    """A trial with one configuration after another for kernel ``i``."""
    before, after = trial.configurations[:i], trial.configurations[i + 1 :]
    for configuration in configurations:
        yield replace(trial, configurations=(*before, configuration, *after))


def by_own_time(memory: Memory, trial: Trial) -> list[int]:
    """The vector K: kernels by decreasing time of their own in a measured trial, equals in given order."""
    own_s = [result.time_s or 0.0 for result in memory.measured[trial].results]
    return sorted(range(len(own_s)), key=lambda i: -own_s[i])


def first_valid(memory: Memory, orders: Sequence[Order], search: Search) -> Attempt:
    """Find the first trial of a descent: D[0] of every kernel, or a cheaper trial with a measurement.

    Measured are the default trial, in every run whatever its policy, and those of ``Search.prior``. Several
    kernels begin at these, and at D[0] only where a default was pruned or none of these runs. Where
    all of these fail at the highest clock, the clock is lowered (steps 4-10 of Algorithm 4) from one after
    another, and then from the next candidates, until one runs.
    """
    potential, measured = _start(orders, [0] * len(orders), search), [_default(orders, search)]
    measured += _best_known(orders, search)
    defaults_listed = all(default in order for order, default in zip(orders, search.defaults, strict=True))
    starts = measured if defaults_listed and len(orders) > 1 else [potential, *measured]
    for attempts in (starts, [potential]):
        found = yield from _first_cheapest(memory, attempts)
        if found is not None:
            return found
    for start in chain(starts, [potential], _next_starts(memory, orders, search)):
        at_clocks = (replace(start, clock_mhz=clock_mhz) for clock_mhz in search.clocks)
        valid = yield from first_minimum(memory, while_allowed(memory, at_clocks))
        if valid is not None:
            return valid
    return None


def _first_cheapest(memory: Memory, trials: Iterable[Trial]) -> Attempt:
    """The (first) cheapest of some trials, None where all fail."""
    costs = {}
    for trial in trials:
        costs[trial] = yield from memory.cost(trial)
    best = min(costs, key=costs.__getitem__)
    return best if costs[best] < math.inf else None


def _next_starts(memory: Memory, orders: Sequence[Order], search: Search) -> Iterator[Trial]:
    """The next candidates of those kernels that fail in D[0], and so on.

    To blame for a failure are the kernels whose status is not ok, or all where every status is. It ends when
    those to blame have no candidate left, so that a search without any valid trial ends soon.
    """
    tried = [0] * len(orders)
    start = _start(orders, tried, search)
    while True:
        statuses = [result.status for result in memory.measured[start].results]
        failed = [i for i, status in enumerate(statuses) if status is not Status.OK]
        blamed = failed or range(len(orders))
        for i in blamed:
            tried[i] += 1
        if all(tried[i] >= len(orders[i].configurations) for i in blamed):
            return
        start = _start(orders, tried, search)
        yield start


def _start(orders: Sequence[Order], tried: Sequence[int], search: Search) -> Trial:
    chosen = (
        order.configurations[n % len(order.configurations)] for order, n in zip(orders, tried, strict=True)
    )
    return Trial(tuple(chosen), search.clocks[0])


def _default(orders: Sequence[Order], search: Search) -> Trial:
    """The default trial; where a default was pruned, D[0] of its kernel."""
    chosen = (
        default if default in order else order.configurations[0]
        for order, default in zip(orders, search.defaults, strict=True)
    )
    return Trial(tuple(chosen), search.clocks[0])


def _best_known(orders: Sequence[Order], search: Search) -> list[Trial]:
    """The cheapest valid trial of ``Search.prior`` that lies in the space, if there is one."""
    inside = {
        trial: measurement
        for trial, measurement in search.prior.items()
        if trial.clock_mhz in search.clocks
        and all(c in order for c, order in zip(trial.configurations, orders, strict=True))
    }
    best = cheapest(search, inside)
    return [] if best is None else [best]
