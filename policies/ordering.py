"""The order in which the candidates of one workload are tried.

Step 5 of Algorithm 1 of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware Optimization",
for kernels that have more tunables than the block size.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.interfaces import Candidate
from tuner.model import Configuration, tunable_names

Integers = NDArray[np.int64]


class Order:
    """The candidates of one workload, best potential first, and the lines through them.

    The order is: higher occupancy; then larger block; then more elements per thread (the third premise of
    "Performance Tuning for GPU-Embedded Systems", section III: much work per thread as long as occupancy
    holds); then the order of the space. A *distribution* is, as in the paper, a block size; the candidates
    that share it are its *variants*.

    Args:
        candidates: at least one.

    Attributes:
        configurations: the candidates' configurations in that order.
        tunables: names of their tunables, in the order in which they are descended along: the elements per
            thread, which usually matter most, then the others as they are met.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        ranked = sorted(
            candidates, key=lambda c: (-c.occupancy, -c.threads_per_block, -c.elements_per_thread)
        )
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
        columns = [_codes([values.get(name) for values in self.configurations]) for name in self.tunables]
        self._codes = np.array(columns, dtype=np.int64).reshape(len(columns), len(ranked)).T

    def __contains__(self, configuration: object) -> bool:
        return configuration in self._position

    def block(self, configuration: Configuration) -> int:
        """The distribution of a candidate: its block size, in threads."""
        return int(self._block[self._position[configuration]])

    def distributions(self, present: Configuration, *, same_work: bool = True) -> list[Configuration]:
        """The vector D: one candidate of every block size, larger blocks first.

        A distribution is represented by the variant nearest to ``present``, its own by ``present`` itself.
        The paper sorts D by occupancy and breaks ties by block size. Its candidates hardly differ in
        occupancy; where they do, that puts 1024 threads between 64 and 32, and a descent ends there.

        Args:
            present: a candidate.
            same_work: nearest is first of all as many elements per block (S = P × L in "Performance Tuning
                for GPU-Embedded Systems"), which the problem size often ties down: a smaller block has
                fatter threads. Otherwise nearest is what differs in the fewest tunables.
        """
        rows = np.arange(len(self.configurations))
        nearest = self._nearest(rows, self._block, present, same_work=same_work)
        return [self.configurations[i] for i in reversed(nearest)]

    def line(self, present: Configuration, tunable: str) -> list[Configuration]:
        """The variants of the distribution of ``present`` along one tunable, largest value first.

        Every value is represented as in `distributions`. Texts stand in the order of their best candidates.
        """
        variants = np.flatnonzero(self._block == self._block[self._position[present]])
        values = self._codes[variants, self.tunables.index(tunable)]
        return [self.configurations[i] for i in self._nearest(variants, values, present)]

    def _nearest(
        self, rows: Integers, group: Integers, present: Configuration, *, same_work: bool = True
    ) -> Integers:
        """Of every group of rows, by rising group number, the (first) row nearest to ``present``."""
        here = self._position[present]
        resized = np.abs(self._log_elements[rows] - self._log_elements[here])
        differing = (self._codes[rows] != self._codes[here]).sum(axis=1)
        keys = (differing, resized, group) if same_work else (differing, group)
        by_distance = np.lexsort(keys)  # by the last key first; stable, so that equals stay in order
        _, first = np.unique(group[by_distance], return_index=True)
        return rows[by_distance[first]]


def _codes(values: Sequence[object]) -> list[int]:
    """Number the values of a tunable: 0 for the largest number, or the first of texts; no value is last."""
    distinct = dict.fromkeys(value for value in values if value is not None)
    numbers = [value for value in distinct if isinstance(value, (int, float))]
    ordered = sorted(numbers, reverse=True) if len(numbers) == len(distinct) else list(distinct)
    code: dict[object, int] = {value: i for i, value in enumerate([*ordered, None])}
    return [code[value] for value in values]


def _work_per_block(candidate: Candidate) -> int:
    """Threads times elements per thread; nothing is known of either in spaces of other tuners."""
    return max(1, candidate.threads_per_block) * max(1, candidate.elements_per_thread)
