"""The candidates of one workload as points of a grid, and the order in which they are tried.

The order is step 5 of Algorithm 1 of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware
Optimization", for kernels that have more tunables than the block size.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration, TunableValue, tunable_names
from tuner.space.search_view import Candidate, LargeSpace, Search

_TOGETHER = 8  # candidates compiled at a time

Resolve = Callable[[Sequence[Candidate]], Sequence[Candidate | None]]
"""Compiles candidates: each with its compiled resources, or None where these rule it out."""

Integers = NDArray[np.int64]
RankArray = NDArray[np.int32]


class Order:
    """The candidates of one workload, best potential first, and the lines through them.

    The order is: higher occupancy; then larger block; then more elements per thread (the third premise of
    "Performance Tuning for GPU-Embedded Systems", section III: much work per thread as long as occupancy
    holds); then the order of the space. A *distribution* is, as in the paper, a block size; the candidates
    that share it are its *variants*.

    Before they are compiled, candidates are ordered by bounds of their occupancy. Where ``resolve`` is given,
    the first one is found by compiled occupancy all the same: those before it are compiled, as far as needed.

    Args:
        candidates: at least one.
        resolve: compiles candidates; None to go by their bounds.
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
            one = self._large.candidate(configuration) if configuration not in self._position else None
            self._add([] if one is None else [one])
        return configuration in self._position

    def _coded(self, configurations: Sequence[Configuration]) -> Integers:
        columns = [[self._code_of[name][c.get(name)] for c in configurations] for name in self.tunables]
        return np.array(columns, dtype=np.int64).reshape(len(columns), len(configurations)).T

    def _add(self, candidates: Sequence[Candidate]) -> None:
        """Candidates behind the others, those that are not among them."""
        new = [one for one in candidates if one.configuration not in self._position]
        if not new:
            return
        configurations = [one.configuration for one in new]
        self._position.update((c, len(self.configurations) + i) for i, c in enumerate(configurations))
        self.configurations += configurations
        self._block = np.append(self._block, [one.threads_per_block for one in new])
        self._log_elements = np.append(self._log_elements, np.log2([_work_per_block(one) for one in new]))
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

        The paper sorts D by occupancy and breaks ties by block size. Its candidates hardly differ in
        occupancy; where they do, that puts 1024 threads between 64 and 32, and a descent ends there.

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
        found: dict[int, list[Configuration]] = {number: [] for number in np.unique(group).tolist()}
        for row, number in zip(rows[by_distance].tolist(), group[by_distance].tolist(), strict=True):
            found[number].append(self.configurations[row])
        return list(found.values())


def all_orders(search: Search) -> list[Order]:
    """The candidates of every workload; the first one is compiled of those that a descent may begin at."""
    alone = len(search.candidates) == 1
    found = []
    for place, (candidates, default) in enumerate(zip(search.candidates, search.defaults, strict=True)):
        begins = alone or default not in {candidate.configuration for candidate in candidates}
        found.append(
            Order(
                candidates,
                partial(search.resolve, place) if begins else None,
                large=search.large_space(place),
                declared=search.tunables[place] if search.tunables else None,
            )
        )
    return found


def _potential(candidate: Candidate) -> tuple[float, int, int]:
    """The smaller, the better."""
    return -candidate.occupancy, -candidate.threads_per_block, -candidate.elements_per_thread


def _first(ranked: Sequence[Candidate], resolve: Resolve) -> int:
    """The place of the candidate of the best potential by compiled occupancy, which no bound is below."""
    best: tuple[tuple[float, int, int], int] | None = None
    for start in range(0, len(ranked), _TOGETHER):
        if best is not None and best < (_potential(ranked[start]), start):
            break
        some = ranked[start : start + _TOGETHER]
        for place, compiled in enumerate(resolve(some), start):
            if compiled is not None and (best is None or (_potential(compiled), place) < best):
                best = _potential(compiled), place
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
            order = _ordered([value for value in values if value is not None], tunables.get(name, ()))
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
                else tuple(one.configuration for one in self._large.neighbours(configuration))
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
        Ranks(candidates, values, search.large_space(place))
        for place, (candidates, values) in enumerate(zip(search.candidates, lists, strict=True))
    ]


def _ordered(values: Sequence[TunableValue], declared: Sequence[TunableValue]) -> dict[TunableValue, int]:
    """Every value that occurs, with its rank."""
    present = set(values)
    distinct = [value for value in dict.fromkeys((*declared, *values)) if value in present]
    numbers = [value for value in distinct if isinstance(value, (int, float))]
    ordered = sorted(numbers) if len(numbers) == len(distinct) else distinct
    return {value: rank for rank, value in enumerate(ordered)}
