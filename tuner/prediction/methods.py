"""The prediction of "A Cross-Input Adaptive Framework for GPU Program Optimizations" (G-ADAPT), section IV-C.

For every parameter a regression tree over the problem sizes predicts the value of the best vector. A node is
split where the impurity (the variance) falls most; each leaf holds a linear model, fitted by least squares.
What the paper leaves open: a leaf has at least as many inputs as its model has unknowns; sizes count by
their logarithm; a predicted value is taken as the nearest of the parameter's list; where no configuration has
all the values, the nearest one counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration, TunableValue
from tuner.prediction.training_set import Sizes, TrainingSet

_DEEPEST = 8
_LEAST_GAIN = 1e-9

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Node:
    """A node of a regression tree; a leaf has coefficients, the constant last."""

    coefficients: Array | None = None
    feature: int = 0
    threshold: float = 0.0
    below: "_Node | None" = None
    above: "_Node | None" = None

    def predict(self, row: Array) -> float:
        if self.coefficients is not None:
            return float(np.append(row, 1.0) @ self.coefficients)
        side = self.below if row[self.feature] <= self.threshold else self.above
        return math.nan if side is None else side.predict(row)


def regression_tree(rows: Array, targets: Array, depth: int = _DEEPEST) -> _Node:
    """A tree split by the reduction of variance, with a least-squares linear model in each leaf.

    Args:
        rows: features, one row for each input.
        targets: a number for each row.
        depth: of splits at most.
    """
    split = _best_split(rows, targets) if depth else None
    if split is None:
        design = np.hstack([rows, np.ones((len(rows), 1))])
        found = np.linalg.lstsq(design, targets, rcond=None)[0]
        return _Node(coefficients=np.asarray(found, dtype=np.float64))
    feature, threshold = split
    low = rows[:, feature] <= threshold
    return _Node(
        feature=feature,
        threshold=threshold,
        below=regression_tree(rows[low], targets[low], depth - 1),
        above=regression_tree(rows[~low], targets[~low], depth - 1),
    )


def _best_split(rows: Array, targets: Array) -> tuple[int, float] | None:
    least = rows.shape[1] + 1
    best, lowest = None, float(np.var(targets)) * len(targets) - _LEAST_GAIN
    for feature in range(rows.shape[1]):
        values = np.unique(rows[:, feature])
        for threshold in (values[1:] + values[:-1]) / 2.0:
            low = rows[:, feature] <= threshold
            count = int(low.sum())
            if min(count, len(rows) - count) < least:
                continue
            impurity = float(np.var(targets[low])) * count + float(np.var(targets[~low])) * (
                len(rows) - count
            )
            if impurity < lowest:
                best, lowest = (feature, float(threshold)), impurity
    return best


class GAdaptPredictor:
    """A regression tree for every parameter.

    Args:
        data: what was measured; the best configuration of every input is learned.
        tunables: names with all their values.
    """

    def __init__(self, data: TrainingSet, tunables: Mapping[str, Sequence[TunableValue]]) -> None:
        self._names = [name for name, value in data.inputs[0].sizes.items() if isinstance(value, int)]
        seen = [dict(one) for one in data.configurations]
        self._tunables = {  # with what stands for those without a value
            name: tuple(dict.fromkeys([*values, *(one[name] for one in seen if name in one)]))
            for name, values in tunables.items()
        }
        rows = np.array([self._row(one.sizes) for one in data.inputs])
        best = [dict(one.configurations[int(one.costs.argmin())]) for one in data.inputs]
        self._trees: dict[str, _Node] = {}
        for name in self._tunables:
            having = [place for place, values in enumerate(best) if name in values]
            if having:
                targets = np.array([self._number(name, best[place][name]) for place in having])
                self._trees[name] = regression_tree(rows[having], targets)

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> Array:
        """The distance of each configuration from the predicted values, in places of the tunables' lists."""
        row = self._row(sizes)
        wanted = {name: self._nearest(name, tree.predict(row)) for name, tree in self._trees.items()}
        return np.array([self._distance(dict(one), wanted) for one in configurations])

    def _row(self, sizes: Sizes) -> Array:
        values = (sizes[name] for name in self._names)
        return np.array([math.log2(max(1, value)) for value in values if isinstance(value, int)])

    def _number(self, name: str, value: TunableValue) -> float:
        """A value as a number: texts and truths by their place in the list."""
        if isinstance(value, (str, bool)):
            return float(self._tunables[name].index(value))
        return float(value)

    def _nearest(self, name: str, predicted: float) -> int:
        """The place of the value nearest to a predicted number."""
        numbers = [self._number(name, value) for value in self._tunables[name]]
        return min(range(len(numbers)), key=lambda place: abs(numbers[place] - predicted))

    def _distance(self, values: Mapping[str, TunableValue], wanted: Mapping[str, int]) -> float:
        total = 0.0
        for name, place in wanted.items():
            listed = self._tunables[name]
            total += abs(listed.index(values[name]) - place) if name in values else len(listed)
        return total
