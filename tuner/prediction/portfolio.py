"""A few versions of a kernel, and a decision tree over the sizes that picks one."""

import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model import Configuration
from tuner.prediction.method import ForestPredictor
from tuner.prediction.training_set import Sizes, TrainingSet
from tuner.prediction.trees import LEAF, FlatTree

MOST_VERSIONS = 8
DEEPEST = 6
_LEAST_LEAF = 2  # inputs
_LEAST_GAIN = 1e-3  # of the mean logarithm of the slowdown: a version that gains less is not kept
_WORST = 3.0
_MOST_SIZES = 6  # that are combined
_SHARE = 20.0  # weight of all inputs in between, by that of those measured

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SizeFeature:
    """A product of powers of sizes, compared by its logarithm; or whether a size is a text.

    Attributes:
        powers: name of a size -> 1 or -1.
        text: the text that a size is compared with; empty for numbers.
    """

    powers: tuple[tuple[str, int], ...]
    text: str = ""

    def value(self, sizes: Mapping[str, int | str]) -> float:
        """The logarithm (base 2) of the product; 1 or 0 of a text."""
        if self.text:
            return float(str(sizes[self.powers[0][0]]) == self.text)
        total = 0.0
        for name, power in self.powers:
            size = sizes[name]
            total += power * math.log2(max(1, size)) if isinstance(size, int) else 0.0
        return total

    def is_at_most(self, sizes: Mapping[str, int | str], threshold: float) -> bool:
        """Whether the value is at most a threshold, exactly as the header in C compares it."""
        if self.text:
            return str(sizes[self.powers[0][0]]) != self.text
        left, right = 1.0, math.pow(2.0, threshold)
        for name, power in self.powers:
            size = sizes[name]
            number = float(size) if isinstance(size, int) else 1.0
            left, right = (left * number, right) if power > 0 else (left, right * number)
        return left <= right


def size_features(data: TrainingSet) -> tuple[SizeFeature, ...]:
    """The sizes that vary, their pairwise products and ratios, and the product of all."""
    ranges = data.ranges()
    numbers, found = [], []
    for name, values in ranges.items():
        if all(isinstance(value, int) for value in values):
            if values[0] != values[-1]:
                numbers.append(name)
        elif len(values) > 1:
            found += [SizeFeature(((name, 1),), str(text)) for text in values]
    numbers = numbers[:_MOST_SIZES]
    found += [SizeFeature(((name, 1),)) for name in numbers]
    for one, other in itertools.combinations(numbers, 2):
        found += [SizeFeature(((one, 1), (other, 1))), SizeFeature(((one, 1), (other, -1)))]
    if len(numbers) > 2:  # noqa: PLR2004 - more than a pair
        found.append(SizeFeature(tuple((name, 1) for name in numbers)))
    return tuple(found)


@dataclass(frozen=True)
class Portfolio:
    """Versions and the tree that picks one.

    Attributes:
        versions: configurations; the tree's values are their places.
        features: what the tree asks for.
        tree: its leaves hold the place of a version.
    """

    versions: tuple[Configuration, ...]
    features: tuple[SizeFeature, ...]
    tree: FlatTree

    def place(self, sizes: Mapping[str, int | str]) -> int:
        """The place of the version for an input."""
        tree, node = self.tree, 0
        while (feature := tree.feature.item(node)) >= 0:
            low = self.features[feature].is_at_most(sizes, tree.threshold.item(node))
            node = tree.left.item(node) if low else tree.right.item(node)
        return int(tree.value.item(node))

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> Array:
        """See ``Predictor``: 0 for the picked version, then the others in their order, then the rest."""
        picked = self.place(sizes)
        order = {self.versions[picked]: 0.0}
        for place, version in enumerate(self.versions):
            order.setdefault(version, 1.0 + place)
        return np.array([order.get(one, float(MOST_VERSIONS + 2)) for one in configurations])


def portfolio_of(
    data: TrainingSet,
    most: int = MOST_VERSIONS,
    forest: ForestPredictor | None = None,
    between: Sequence[Sizes] = (),
) -> Portfolio:
    """Choose versions greedily by the mean logarithm of the slowdown, and grow the tree that picks one.

    Args:
        data: what was measured.
        most: versions at most.
        forest: says what was not measured; without one, that counts as the worst.
        between: further inputs, at which the forest says everything; each counts as a part of one that was
            measured.
    """
    configurations = data.configurations
    losses = _losses(data, configurations, forest)
    chosen = _chosen(losses, most)
    inputs, weights = [one.sizes for one in data.inputs], np.ones(len(data.inputs))
    losses = losses[:, chosen]
    if forest is not None and between:
        predicted = forest.scores_at(between, [configurations[place] for place in chosen])
        losses = np.vstack([losses, np.clip(predicted - predicted.min(axis=1, keepdims=True), 0.0, _WORST)])
        inputs += list(between)
        weights = np.append(weights, np.full(len(between), _SHARE * len(data.inputs) / len(between)))
    features = size_features(data)
    rows = np.array([[feature.value(sizes) for feature in features] for sizes in inputs])
    tree = _grown(rows.reshape(len(inputs), len(features)), losses * weights[:, None])
    used = sorted({int(value) for value in tree.value[tree.feature == LEAF]})
    places = {old: new for new, old in enumerate(used)}
    values = np.array([places.get(int(value), 0) for value in tree.value], dtype=np.float32)
    kept = FlatTree(tree.feature, tree.threshold, tree.left, tree.right, values)
    return Portfolio(tuple(configurations[chosen[place]] for place in used), features, kept)


def inputs_between(
    data: TrainingSet, count: int, seed: int = 0, *, listed: Collection[str] = ()
) -> list[Sizes]:
    """Inputs between those of a set: each size between those of two of them, in its logarithm.

    Args:
        data: what was measured.
        count: how many.
        seed: of what is drawn.
        listed: sizes that take values of a list only: those of one of the two.
    """
    draw = random.Random(seed)  # noqa: S311 - a seeded experiment, not a secret
    found = []
    for _ in range(count):
        one, other = draw.choice(data.inputs).sizes, draw.choice(data.inputs).sizes
        sizes: Sizes = {}
        for name, value in one.items():
            end = other[name]
            numbers = isinstance(value, int) and isinstance(end, int) and min(value, end) > 0
            if numbers and name not in listed:
                low, high = min(int(value), int(end)), max(int(value), int(end))
                sizes[name] = min(high, max(low, round(low * math.pow(high / low, draw.random()))))
            else:
                sizes[name] = draw.choice((value, end))
        found.append(sizes)
    return found


def _losses(
    data: TrainingSet, configurations: Sequence[Configuration], forest: ForestPredictor | None
) -> Array:
    """The logarithm of the slowdown of every configuration at every input, (inputs, configurations)."""
    shape = len(data.inputs), len(configurations)
    measured = all(len(one.configurations) == len(configurations) for one in data.inputs)
    if forest is None or measured:
        found = np.full(shape, _WORST)
    else:
        found = np.clip(forest.scores_at([one.sizes for one in data.inputs], configurations), 0.0, _WORST)
    places = {configuration: place for place, configuration in enumerate(configurations)}
    for row, one in zip(found, data.inputs, strict=True):
        for configuration, cost in zip(one.configurations, one.costs, strict=True):
            place = places.get(configuration)
            if place is not None:
                row[place] = min(_WORST, math.log(cost / one.lowest)) if math.isfinite(cost) else _WORST
    return found


def _chosen(losses: Array, most: int) -> list[int]:
    """Places of configurations: each the one that lowers the mean of the least losses most."""
    chosen: list[int] = []
    least = np.full(len(losses), _WORST)
    while len(chosen) < most:
        means = np.minimum(losses, least[:, None]).mean(axis=0)
        place = int(means.argmin())
        if chosen and least.mean() - means[place] < _LEAST_GAIN:
            break
        chosen.append(place)
        least = np.minimum(least, losses[:, place])
    return chosen


def _grown(rows: Array, losses: Array) -> FlatTree:
    """The tree whose leaves take the version with the least loss; nodes are numbered from the root down."""
    nodes: list[tuple[int, float, int, int, float]] = []

    def grow(members: NDArray[np.int64], depth: int) -> int:
        number = len(nodes)
        nodes.append((LEAF, 0.0, 0, 0, float(losses[members].sum(axis=0).argmin())))
        split = _best_split(rows[members], losses[members]) if depth < DEEPEST else None
        if split is not None:
            feature, threshold = split
            low = rows[members, feature] <= threshold
            left = grow(members[low], depth + 1)
            right = grow(members[~low], depth + 1)
            nodes[number] = (feature, threshold, left, right, 0.0)
        return number

    grow(np.arange(len(rows)), 0)
    feature, threshold, left, right, value = (list(column) for column in zip(*nodes, strict=True))
    return FlatTree(
        np.array(feature, dtype=np.int32),
        np.array(threshold, dtype=np.float32),
        np.array(left, dtype=np.int32),
        np.array(right, dtype=np.int32),
        np.array(value, dtype=np.float32),
    )


def _best_split(rows: Array, losses: Array) -> tuple[int, float] | None:
    """The split after which the sides' best versions lose least; None where none gains."""
    count = len(rows)
    best, lowest = None, float(losses.sum(axis=0).min()) - _LEAST_GAIN * count
    for feature in range(rows.shape[1]):
        order = np.argsort(rows[:, feature], kind="stable")
        values = rows[order, feature]
        below = losses[order].cumsum(axis=0)
        total = below[-1]
        for place in range(_LEAST_LEAF - 1, count - _LEAST_LEAF):
            if values[place + 1] - values[place] < 1e-6:  # noqa: PLR2004 - the same size
                continue
            loss = float(below[place].min() + (total - below[place]).min())
            if loss < lowest - 1e-12:
                best, lowest = (feature, float(np.float32((values[place] + values[place + 1]) / 2))), loss
    return best
