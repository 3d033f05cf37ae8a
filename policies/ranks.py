"""The candidates of one workload as points of a grid."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.interfaces import Candidate, Search
from tuner.model import Configuration, TunableValue, tunable_names

Integers = NDArray[np.int32]


class Ranks:
    """Candidates as ranks of their values: numbers from the smallest on, texts in the order of their list.

    Args:
        candidates: at least one.
        tunables: value lists in the order of declaration; empty where only the candidates tell.

    Attributes:
        configurations: of the candidates, in their order.
        ranks: (candidates, tunables), 0 for the smallest value that any candidate has, -1 for no value.
    """

    def __init__(
        self, candidates: Sequence[Candidate], tunables: Mapping[str, Sequence[TunableValue]]
    ) -> None:
        self.configurations = [candidate.configuration for candidate in candidates]
        self._rows = {configuration: row for row, configuration in enumerate(self.configurations)}
        names = tunable_names(self.configurations)
        self.ranks: Integers = np.empty((len(candidates), len(names)), dtype=np.int32)
        for column, name in enumerate(names):
            values = [configuration.get(name) for configuration in self.configurations]
            order = _ordered([value for value in values if value is not None], tunables.get(name, ()))
            self.ranks[:, column] = [-1 if value is None else order[value] for value in values]

    def neighbours(self, configuration: Configuration) -> list[Configuration]:
        """The candidates that differ from one in a single tunable (Hamming distance 1), in their order.

        Only tunables that have a value in both count. Where the new value gives others a value, or takes it
        from them, the first such candidate stands for all.
        """
        present = self.ranks[self._rows[configuration]]
        differs = (self.ranks != present) & (self.ranks >= 0) & (present >= 0)
        near = np.flatnonzero(differs.sum(axis=1) == 1)
        changed = differs[near].argmax(axis=1)
        moves = np.stack([changed, self.ranks[near, changed]], axis=1)
        _, first = np.unique(moves, axis=0, return_index=True)
        return [self.configurations[row] for row in near[np.sort(first)]]

    def lowest(self) -> int:
        """The candidate nearest to all minima, by the sum of its ranks; of equals the first."""
        return int(self.ranks.sum(axis=1).argmin())

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
            larger = np.flatnonzero(moved[:, column] > 0)
            if larger.size:
                steps[int(larger[np.lexsort((up[larger], down[larger]))[0]])] = None
        return list(steps)


def all_ranks(search: Search) -> list[Ranks]:
    """The ranks of every workload of a search that has candidates for each."""
    lists = search.tunables or tuple({} for _ in search.candidates)
    return [Ranks(candidates, values) for candidates, values in zip(search.candidates, lists, strict=True)]


def _ordered(values: Sequence[TunableValue], declared: Sequence[TunableValue]) -> dict[TunableValue, int]:
    """Every value that occurs, with its rank."""
    present = set(values)
    distinct = [value for value in dict.fromkeys((*declared, *values)) if value in present]
    numbers = [value for value in distinct if isinstance(value, (int, float))]
    ordered = sorted(numbers) if len(numbers) == len(distinct) else distinct
    return {value: rank for rank, value in enumerate(ordered)}
