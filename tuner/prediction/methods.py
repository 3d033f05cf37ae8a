"""Methods of prediction: forest, trees and G-ADAPT, which score configurations at an input.

For every parameter a regression tree over the problem sizes predicts the value of the best vector. A node is
split where the impurity (the variance) falls most; each leaf holds a linear model, fitted by least squares.
What the paper leaves open: a leaf has at least as many inputs as its model has unknowns; sizes count by
their logarithm; a predicted value is taken as the nearest of the parameter's list; where no configuration has
all the values, the nearest one counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import InputError
from tuner.model.plan import Configuration, TunableValue
from tuner.prediction.training_set import FeatureTable, InputTrials, Sizes, TrainingSet

# --- Decision trees as flat lists: read from JSON and evaluated with NumPy alone.

MOST_NODES = 2**20
LEAF = -1


@dataclass(frozen=True)
class FlatTree:
    """A binary tree; node 0 is its root.

    A row goes left where its feature is at most the threshold.

    Attributes:
        feature: column that a node asks for; -1 of a leaf.
        threshold: of a node.
        left: number of the node on the left; 0 of a leaf.
        right: number of the node on the right; 0 of a leaf.
        value: of a leaf: what is predicted.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    @property
    def depth(self) -> int:
        """The most splits above a leaf."""
        depths = [0] * len(self.feature)
        for node in np.flatnonzero(self.feature >= 0).tolist():  # children come behind their parents
            for child in (self.left.item(node), self.right.item(node)):
                depths[child] = max(depths[child], depths[node] + 1)
        return max(depths)

    def document(self) -> dict[str, list[float]]:
        """As JSON has it; a number of 32 bits needs nine digits."""
        return {
            "feature": self.feature.tolist(),
            "threshold": [float(f"{number:.9g}") for number in self.threshold.tolist()],
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "value": [float(f"{number:.9g}") for number in self.value.tolist()],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], features: int) -> "FlatTree":
        """A tree from JSON.

        Args:
            document: as ``document`` made it.
            features: columns of the rows.

        Raises:
            InputError: it is no tree of so many features.
        """
        try:
            tree = cls(
                np.array(document["feature"], dtype=np.int32),
                np.array(document["threshold"], dtype=np.float32),
                np.array(document["left"], dtype=np.int32),
                np.array(document["right"], dtype=np.int32),
                np.array(document["value"], dtype=np.float32),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise InputError(f"it is no tree: {e}") from e
        tree._check(features)
        return tree

    def _check(self, features: int) -> None:
        """Refuse trees that a row would never leave, or that ask for a column that is not there."""
        count = len(self.feature)
        arrays = (self.feature, self.threshold, self.left, self.right, self.value)
        if not 1 <= count <= MOST_NODES or any(array.shape != (count,) for array in arrays):
            raise InputError("its lists are empty, too long, or of different lengths")
        if not (np.isfinite(self.threshold).all() and np.isfinite(self.value).all()):
            raise InputError("a number of it is not finite")
        inner = self.feature != LEAF
        if (self.feature[inner] < 0).any() or (self.feature[inner] >= features).any():
            raise InputError(f"it asks for a feature that is not among the {features}")
        numbers = np.arange(count)[inner]
        for children in (self.left[inner], self.right[inner]):
            if (children <= numbers).any() or (children >= count).any():
                raise InputError("a node is not below its parent")
        if np.unique([self.left[inner], self.right[inner]]).size < 2 * len(numbers):
            raise InputError("a node has two parents")


TREES = 64
LEAST_LEAF = 1
SHARE = 1.0  # of the features that a split is chosen from


def grown(
    rows: NDArray[np.float32],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    seed: int = 0,
    *,
    count: int = TREES,
) -> Any:  # noqa: ANN401 - scikit-learn's own
    """A forest grown on rows of features; its ``predict`` takes rows.

    Args:
        rows: features, float32.
        targets: what is to be predicted for each row.
        weights: of the rows.
        seed: of what is drawn.
        count: of trees.

    Raises:
        InputError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import ExtraTreesRegressor  # noqa: PLC0415 - only training needs it
    except ImportError as e:
        raise InputError(
            "training needs scikit-learn: pip install 'gpu-tuner[train]'; --method g-adapt needs none"
        ) from e
    model = ExtraTreesRegressor(
        n_estimators=count, min_samples_leaf=LEAST_LEAF, max_features=SHARE, random_state=seed, n_jobs=-1
    )
    model.fit(rows, targets, sample_weight=weights)
    return model.set_params(n_jobs=1)  # threads take longer to start than a prediction takes


# --- Methods of prediction: each learns from a training set, and scores configurations at an input.

_WORST = 3.0  # log slowdown that is learned at most: what is 20 times slower is bad enough

Array = NDArray[np.float64]


class Predictor(Protocol):
    """Has learned from a training set."""

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """A number for each configuration at an input; the lower, the better it is expected to be."""


class ForestPredictor:
    """Predicts the logarithm of the slowdown by a forest."""

    def __init__(self, table: FeatureTable, forest: Any) -> None:  # noqa: ANN401 - scikit-learn's own
        self._table = table
        self._forest = forest

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """See ``Predictor``: the predicted logarithm of the slowdown."""
        return np.asarray(self.scores_at([sizes], configurations)[0])

    def scores_at(self, inputs: Sequence[Sizes], configurations: Sequence[Configuration]) -> Array:
        """``scores`` of several inputs at once: a row for each, (inputs, configurations)."""
        rows = np.concatenate([self._table.rows(sizes, configurations) for sizes in inputs])
        found = np.asarray(self._forest.predict(rows), dtype=np.float64)
        return found.reshape(len(inputs), len(configurations))


def forest_of(table: FeatureTable, data: TrainingSet, *, count: int = TREES) -> ForestPredictor:
    """A forest on the logarithm of slowdowns.

    Slowdowns near 1 weigh most: what is far from the best needs no sharp prediction.
    """
    rows = np.concatenate([table.rows(one.sizes, one.configurations) for one in data.inputs])
    targets = np.concatenate([_targets(one) for one in data.inputs])
    return ForestPredictor(table, grown(rows, targets, np.exp(-targets), 0, count=count))


def _targets(one: InputTrials) -> NDArray[np.float64]:
    finite = np.isfinite(one.costs)
    result = np.full(len(one.costs), _WORST)
    result[finite] = np.minimum(np.log(one.slowdowns[finite]), _WORST)
    return result


class SinglePredictor:
    """Takes one configuration for all inputs: the one with the least mean logarithm of slowdowns."""

    def __init__(self, data: TrainingSet) -> None:
        self._scores = {
            configuration: _mean_slowdown(data.inputs, configuration) for configuration in data.configurations
        }

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """See ``Predictor``."""
        del sizes
        return np.array([self._scores.get(configuration, _WORST + 1.0) for configuration in configurations])


def _mean_slowdown(inputs: Sequence[InputTrials], configuration: Configuration) -> float:
    """The mean over the inputs where it was measured; where it was not, it counts as not seen."""
    found = [float(_targets(one)[place]) for one in inputs if (place := one.place(configuration)) is not None]
    missing = len(inputs) - len(found)
    return (sum(found) + missing * (max(found) if found else _WORST)) / len(inputs)


_DEEPEST = 8
_LEAST_GAIN = 1e-9


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
    """A regression tree for every parameter."""

    def __init__(self, data: TrainingSet, tunables: Mapping[str, Sequence[TunableValue]]) -> None:
        self._names = [name for name, value in data.inputs[0].sizes.items() if isinstance(value, int)]
        seen = [dict(configuration) for configuration in data.configurations]
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
        return np.array([self._distance(dict(configuration), wanted) for configuration in configurations])

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
