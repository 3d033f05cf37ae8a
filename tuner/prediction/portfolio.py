"""A few versions of a kernel, and a decision tree over the sizes that picks one.

Not every version is allowed at every input: loads of four elements need rows of a multiple of four. So a leaf
of the tree holds an *order* of versions, and the first that is allowed is picked.
"""

import itertools
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration
from tuner.prediction.methods import LEAF, FlatTree, ForestPredictor
from tuner.prediction.training_set import Sizes, TrainingSet

MOST_VERSIONS = 16
DEEPEST = 6
_LEAST_LEAF = 2  # inputs
_LEAST_GAIN = 1e-3  # of the mean logarithm of the slowdown: a version that gains less is not kept
_WORST = 3.0
_MOST_SIZES = 6  # that are combined
_BETWEEN = 20.0  # weight of all inputs in between, by that of those measured
_BETWEEN_CHOOSING = 5.0  # the same where versions are chosen
_LOOKED_AT = 100  # inputs in between, of which the forest is asked about every configuration

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Allowed = Callable[[Sizes], Collection[Configuration]]
"""The configurations that are allowed at an input."""


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
        """Return True if the value is at most a threshold, exactly as the header in C compares it."""
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
        versions: configurations.
        features: what the tree asks for.
        tree: its leaves hold the place of an order.
        orders: places of all versions, the one to be picked first if it is allowed.
    """

    versions: tuple[Configuration, ...]
    features: tuple[SizeFeature, ...]
    tree: FlatTree
    orders: tuple[tuple[int, ...], ...]

    def order(self, sizes: Mapping[str, int | str]) -> tuple[int, ...]:
        """Places of the versions for an input: the first that is allowed is to be picked."""
        tree, node = self.tree, 0
        while (feature := tree.feature.item(node)) >= 0:
            low = self.features[feature].is_at_most(sizes, tree.threshold.item(node))
            node = tree.left.item(node) if low else tree.right.item(node)
        return self.orders[int(tree.value.item(node))]

    def picked(self, sizes: Sizes, allowed: Collection[Configuration]) -> Configuration | None:
        """The version for an input; None where none of them is allowed."""
        versions = (self.versions[place] for place in self.order(sizes))
        return next((version for version in versions if version in allowed), None)

    def scores(self, sizes: Sizes, configurations: Sequence[Configuration]) -> Array:
        """See ``Predictor``: the versions in the order for the input, then the rest."""
        ranks = {self.versions[place]: float(rank) for rank, place in enumerate(self.order(sizes))}
        return np.array([ranks.get(configuration, float(len(ranks))) for configuration in configurations])


def portfolio_of(
    data: TrainingSet,
    forest: ForestPredictor | None = None,
    between: Sequence[Sizes] = (),
    allowed: Allowed | None = None,
) -> Portfolio:
    """Choose versions greedily by the mean logarithm of the slowdown, and grow the tree that picks one.

    Args:
        data: what was measured.
        forest: says what was not measured; without one, that counts as the worst.
        between: further inputs, at which the forest says everything; each counts as a part of one that was
            measured.
        allowed: tells of any input what is allowed there; without it, all that was measured at some input.
    """
    configurations = data.configurations
    sizes = [one.sizes for one in data.inputs]
    losses, mask = _losses(data, configurations, forest), _mask(sizes, configurations, allowed)
    weights = np.ones(len(sizes))
    rows, of_rows = [np.where(mask, losses, _WORST)], weights
    if forest is not None and between:
        few = between[:_LOOKED_AT]
        expected, of_few = _expected(forest, few, configurations, allowed)
        rows.append(np.where(of_few, expected, _WORST))
        of_rows = np.append(weights, np.full(len(few), _BETWEEN_CHOOSING * len(sizes) / len(few)))
    chosen = _chosen(np.vstack(rows), of_rows)
    versions = [configurations[place] for place in chosen]
    losses, mask = losses[:, chosen], mask[:, chosen]
    if forest is not None and between:
        expected, of_between = _expected(forest, between, versions, allowed)
        losses, mask = np.vstack([losses, expected]), np.vstack([mask, of_between])
        weights = np.append(weights, np.full(len(between), _BETWEEN * len(sizes) / len(between)))
        sizes += list(between)
    features = size_features(data)
    values = np.array([[feature.value(size) for feature in features] for size in sizes])
    growth = _Growth(values.reshape(len(sizes), len(features)), losses, mask, weights)
    tree, orders = growth.tree()
    return _kept(versions, features, tree, orders, growth.ever_picked)


def _kept(
    versions: Sequence[Configuration],
    features: tuple[SizeFeature, ...],
    tree: FlatTree,
    orders: Sequence[tuple[int, ...]],
    picked: Collection[int],
) -> Portfolio:
    """Without the versions that are picked at no input."""
    used = sorted(picked)
    places = {old: new for new, old in enumerate(used)}
    short = [tuple(places[place] for place in order if place in places) for order in orders]
    listed = list(dict.fromkeys(short))
    values = np.array([listed.index(short[int(value)]) for value in tree.value], dtype=np.float32)
    kept = FlatTree(tree.feature, tree.threshold, tree.left, tree.right, values)
    return Portfolio(tuple(versions[place] for place in used), features, kept, tuple(listed))


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
    result = []
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
        result.append(sizes)
    return result


def _losses(
    data: TrainingSet, configurations: Sequence[Configuration], forest: ForestPredictor | None
) -> Array:
    """The logarithm of the slowdown of every configuration at every input, (inputs, configurations)."""
    shape = len(data.inputs), len(configurations)
    measured = all(len(one.configurations) == len(configurations) for one in data.inputs)
    if forest is None or measured:
        result = np.full(shape, _WORST)
    else:
        result = np.clip(forest.scores_at([one.sizes for one in data.inputs], configurations), 0.0, _WORST)
    places = {configuration: place for place, configuration in enumerate(configurations)}
    for row, one in zip(result, data.inputs, strict=True):
        for configuration, cost in zip(one.configurations, one.costs, strict=True):
            place = places.get(configuration)
            if place is not None:
                row[place] = min(_WORST, math.log(cost / one.lowest)) if math.isfinite(cost) else _WORST
    return result


def _mask(inputs: Sequence[Sizes], configurations: Sequence[Configuration], allowed: Allowed | None) -> Mask:
    """Which configurations are allowed at which input, (inputs, configurations)."""
    if allowed is None:
        return np.ones((len(inputs), len(configurations)), dtype=np.bool_)
    rows = [[configuration in found for configuration in configurations] for found in map(allowed, inputs)]
    return np.array(rows, dtype=np.bool_).reshape(len(inputs), len(configurations))


def _expected(
    forest: ForestPredictor,
    inputs: Sequence[Sizes],
    configurations: Sequence[Configuration],
    allowed: Allowed | None,
) -> tuple[Array, Mask]:
    """Return a forest's losses over the least allowed, and the mask, each (inputs, configurations)."""
    predicted, mask = forest.scores_at(inputs, configurations), _mask(inputs, configurations, allowed)
    least = np.where(mask, predicted, np.inf).min(axis=1, keepdims=True)
    least = np.where(np.isfinite(least), least, 0.0)
    return np.clip(predicted - least, 0.0, _WORST), mask


def _chosen(losses: Array, weights: Array) -> list[int]:
    """Places of configurations: each the one that lowers the mean of the least losses most."""
    chosen: list[int] = []
    least = np.full(len(losses), _WORST)
    weights = weights / weights.sum()
    while len(chosen) < MOST_VERSIONS:
        means = weights @ np.minimum(losses, least[:, None])
        place = int(means.argmin())
        if chosen and float(weights @ least) - means[place] < _LEAST_GAIN:
            break
        chosen.append(place)
        least = np.minimum(least, losses[:, place])
    return chosen


class _Growth:
    """Grows the tree. Inputs with the same versions allowed are a *group*, of which a side has one loss.

    Args:
        rows: features of the inputs, (inputs, features).
        losses: of the versions, (inputs, versions).
        mask: which are allowed.
        weights: of the inputs.

    Attributes:
        ever_picked: versions that are picked at some input.
    """

    def __init__(self, rows: Array, losses: Array, mask: Mask, weights: Array) -> None:
        self._rows = rows
        self._patterns, groups = np.unique(mask, axis=0, return_inverse=True)
        self._groups = groups.reshape(-1)
        self._costs = np.where(mask, losses, 2.0 * _WORST) * weights[:, None]  # never the best of a group
        self._orders: dict[tuple[int, ...], int] = {}
        self.ever_picked: set[int] = set()

    def tree(self) -> tuple[FlatTree, list[tuple[int, ...]]]:
        """The tree and its orders; nodes are numbered from the root down."""
        nodes: list[tuple[int, float, int, int, float]] = []

        def put(node: "_Node") -> int:
            number = len(nodes)
            nodes.append((LEAF, 0.0, 0, 0, float(node.order)))
            if node.below is not None and node.above is not None:
                left, right = put(node.below), put(node.above)
                nodes[number] = (node.feature, node.threshold, left, right, 0.0)
            return number

        put(self._grown(np.arange(len(self._rows)), 0))
        feature, threshold, left, right, value = (list(column) for column in zip(*nodes, strict=True))
        flat = FlatTree(
            np.array(feature, dtype=np.int32),
            np.array(threshold, dtype=np.float32),
            np.array(left, dtype=np.int32),
            np.array(right, dtype=np.int32),
            np.array(value, dtype=np.float32),
        )
        return flat, list(self._orders)

    def _grown(self, members: NDArray[np.int64], depth: int) -> "_Node":
        split = self._best_split(members) if depth < DEEPEST else None
        if split is not None:
            feature, threshold = split
            low = self._rows[members, feature] <= threshold
            below = self._grown(members[low], depth + 1)
            above = self._grown(members[~low], depth + 1)
            if below.is_leaf and above.is_leaf and below.order == above.order:
                return below
            return _Node(0, feature, threshold, below, above)
        order = self._order(members)
        return _Node(self._orders.setdefault(order, len(self._orders)))

    def _order(self, members: NDArray[np.int64]) -> tuple[int, ...]:
        """Each the version that is best in some group and loses least in the others where it is allowed.

        The groups where it is allowed are served; the next is chosen for those that are left.
        """
        sums = {
            int(group): self._costs[members[self._groups[members] == group]].sum(axis=0)
            for group in np.unique(self._groups[members])
        }
        rest, found = list(range(self._costs.shape[1])), []
        while sums and self._patterns[list(sums)][:, rest].any():
            regrets = {
                place: sum(
                    float(one[place] - one[rest].min())
                    for group, one in sums.items()
                    if self._patterns[group, place]
                )
                for place in rest
                if any(self._is_best(place, group, one, rest) for group, one in sums.items())
            }
            place = min(regrets, key=lambda regret: (regrets[regret], regret))
            rest.remove(place)
            found.append(place)
            self.ever_picked.add(place)
            sums = {group: one for group, one in sums.items() if not self._patterns[group, place]}
        everywhere = self._costs[members].sum(axis=0)
        return (*found, *sorted(rest, key=lambda place: (float(everywhere[place]), place)))

    def _is_best(self, place: int, group: int, sums: Array, rest: Sequence[int]) -> bool:
        return bool(self._patterns[group, place]) and float(sums[place]) <= float(sums[rest].min())

    def _best_split(self, members: NDArray[np.int64]) -> tuple[int, float] | None:
        """The split after which the sides' best versions lose least; None where none gains."""
        rows, costs, groups = self._rows[members], self._costs[members], self._groups[members]
        present = np.unique(groups)
        within = [costs * (groups == group)[:, None] for group in present]
        count = len(rows)
        best, lowest = None, float(sum(one.sum(axis=0).min() for one in within)) - _LEAST_GAIN * count
        for feature in range(rows.shape[1]):
            order = np.argsort(rows[:, feature], kind="stable")
            values = rows[order, feature]
            below = [one[order].cumsum(axis=0) for one in within]
            losses = sum(one.min(axis=1) + (one[-1] - one).min(axis=1) for one in below)
            places = np.arange(_LEAST_LEAF - 1, count - _LEAST_LEAF)
            places = places[values[places + 1] - values[places] >= 1e-6]  # noqa: PLR2004 - not the same size
            if not len(places):
                continue
            place = int(places[np.asarray(losses)[places].argmin()])
            loss = float(np.asarray(losses)[place])
            if loss < lowest - 1e-12:
                best, lowest = (feature, float(np.float32((values[place] + values[place + 1]) / 2))), loss
        return best


@dataclass(frozen=True)
class _Node:
    """A node of the tree: a leaf with an order, or a split."""

    order: int
    feature: int = LEAF
    threshold: float = 0.0
    below: "_Node | None" = None
    above: "_Node | None" = None

    @property
    def is_leaf(self) -> bool:
        return self.below is None
