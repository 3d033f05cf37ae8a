"""Methods of prediction: each learns from a training set, and scores configurations at an input."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration
from tuner.prediction.features import FeatureTable
from tuner.prediction.forest import TREES, grown
from tuner.prediction.training_set import InputTrials, Sizes, TrainingSet
from tuner.prediction.trees import FlatTree, mean_of

_WORST = 3.0  # log slowdown that is learned at most: what is 20 times slower is bad enough

Array = NDArray[np.float64]


class Predictor(Protocol):
    """Has learned from a training set."""

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """A number for each configuration at an input; the lower, the better it is expected to be."""


class ForestPredictor:
    """Predicts the logarithm of the slowdown by a forest.

    Args:
        table: makes features.
        trees: the forest.
    """

    def __init__(self, table: FeatureTable, trees: Sequence[FlatTree]) -> None:
        self.table = table
        self.trees = tuple(trees)

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """See ``Predictor``: the predicted logarithm of the slowdown."""
        return np.asarray(self.scores_at([sizes], configurations)[0])

    def scores_at(self, inputs: Sequence[Sizes], configurations: Sequence[Configuration]) -> Array:
        """``scores`` of several inputs at once: a row for each, (inputs, configurations)."""
        rows = np.concatenate([self.table.rows(sizes, configurations) for sizes in inputs])
        found = np.asarray(mean_of(self.trees, rows), dtype=np.float64)
        return found.reshape(len(inputs), len(configurations))


def forest_of(
    table: FeatureTable, data: TrainingSet, seed: int = 0, *, count: int = TREES
) -> ForestPredictor:
    """A forest on the logarithm of slowdowns.

    Slowdowns near 1 weigh most: what is far from the best needs no sharp prediction.
    """
    rows = np.concatenate([table.rows(one.sizes, one.configurations) for one in data.inputs])
    targets = np.concatenate([_targets(one) for one in data.inputs])
    return ForestPredictor(table, grown(rows, targets, np.exp(-targets), seed, count=count))


def _targets(one: InputTrials) -> NDArray[np.float64]:
    finite = np.isfinite(one.costs)
    found = np.full(len(one.costs), _WORST)
    found[finite] = np.minimum(np.log(one.slowdowns[finite]), _WORST)
    return found


class SinglePredictor:
    """Takes one configuration for all inputs: the one with the least mean logarithm of slowdowns."""

    def __init__(self, data: TrainingSet) -> None:
        self._scores = {
            configuration: _mean_slowdown(data.inputs, configuration) for configuration in data.configurations
        }

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """See ``Predictor``."""
        del sizes
        return np.array([self._scores.get(one, _WORST + 1.0) for one in configurations])


def _mean_slowdown(inputs: Sequence[InputTrials], configuration: Configuration) -> float:
    """The mean over the inputs where it was measured; where it was not, it counts as not seen."""
    found = [float(_targets(one)[place]) for one in inputs if (place := one.place(configuration)) is not None]
    missing = len(inputs) - len(found)
    return (sum(found) + missing * (max(found) if found else _WORST)) / len(inputs)
