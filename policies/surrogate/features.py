"""Encodes configurations as ranks of values and as features with length scales.

The first configurations to try are a Latin hypercube over the legal ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration, TunableValue, tunable_names

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class EncodedTunable:
    """One tunable that varies.

    Attributes:
        name: of the tunable.
        ranks: rank by value: numbers by size, texts as first met, last None where some have no value.
        parts: features of every rank, one array of shape (values, features) per length scale.
        sizes: logarithm of every rank's number; zeros where that says nothing.
    """

    name: str
    ranks: Mapping[TunableValue | None, int]
    parts: tuple[Floats, ...]
    sizes: Floats


@dataclass(frozen=True)
class Encoding:
    """How configurations of one workload become rows of numbers.

    Attributes:
        tunables: those that vary.
    """

    tunables: tuple[EncodedTunable, ...]

    @property
    def groups(self) -> Integers:
        """Per feature, its place among the length scales: the features of a part share one."""
        widths = [part.shape[1] for tunable in self.tunables for part in tunable.parts]
        return np.repeat(np.arange(len(widths)), widths)

    def codes(self, configurations: Sequence[Configuration]) -> Integers:
        """Ranks of the values, shape (configurations, tunables)."""
        known = [configuration.as_dict() for configuration in configurations]
        columns = [[t.ranks[values.get(t.name)] for values in known] for t in self.tunables]
        return np.array(columns, dtype=np.int64).reshape(len(self.tunables), len(configurations)).T

    def features(self, codes: Integers) -> Floats:
        """Features of ranks, shape (configurations, features)."""
        columns = [part[codes[:, i]] for i, tunable in enumerate(self.tunables) for part in tunable.parts]
        return np.hstack(columns) if columns else np.zeros((len(codes), 0))

    def sizes(self, codes: Integers) -> Floats:
        """Logarithms of numbers, shape (configurations, tunables)."""
        columns = [tunable.sizes[codes[:, i]] for i, tunable in enumerate(self.tunables)]
        return np.column_stack(columns) if columns else np.zeros((len(codes), 0))


def encoding(
    configurations: Sequence[Configuration], lists: Mapping[str, Sequence[TunableValue]] | None = None
) -> Encoding:
    """The encoding of a space: tunables that are constant over it, or that repeat another, are left out.

    Args:
        configurations: all that will be encoded, or a sample of them.
        lists: values by tunable, of which others than those of the sample will be encoded; None where there
            are no others.
    """
    tunables: list[EncodedTunable] = []
    partitions: set[bytes] = set()
    known = [configuration.as_dict() for configuration in configurations]
    for name in tunable_names(configurations):
        values = [one.get(name) for one in known]
        others = () if lists is None else (*lists.get(name, ()), None)
        numbers = {value: i for i, value in enumerate(dict.fromkeys([*values, *others]))}
        partition = np.array([numbers[value] for value in values], dtype=np.int32).tobytes()
        if len(numbers) > 1 and partition not in partitions:
            partitions.add(partition)
            tunables.append(_tunable(name, list(numbers)))
    return Encoding(tuple(tunables))


def _tunable(name: str, found: list[TunableValue | None]) -> EncodedTunable:
    """Features of a tunable's values.

    Two texts are one apart, whichever they are; permutations are the further apart the more their items have
    moved. Numbers lie evenly between 0 and 1 in the order of their size: most are powers of two. Where they
    are not, what divides evenly often matters more than what is large, and how often 2 divides a number is a
    part of its own.

    Where a tunable has no value, it is equally far from all its values, so that only those that both of two
    configurations have are compared. Numbers then lie on half a circle around it: on a line none could.
    """
    values = [value for value in found if value is not None]
    texts = [value for value in values if isinstance(value, str)]
    positions = item_positions(texts) if len(texts) == len(values) else None
    if positions is not None:
        parts: tuple[Floats, ...] = (positions,)
    elif texts:
        parts = (np.eye(len(values)) / np.sqrt(2.0),)
    else:
        values = sorted(values, key=float)
        parts = (np.linspace(0.0, 1.0, len(values))[:, None],)
        halvings = _halvings(values)
        if halvings is not None:
            parts += (halvings[:, None],)
    ranks: dict[TunableValue | None, int] = {value: rank for rank, value in enumerate(values)}
    if len(values) < len(found):
        ranks[None] = len(values)
        parts = tuple(_with_none(part) for part in parts)
    return EncodedTunable(name, ranks, parts, _sizes(list(ranks)))


def _with_none(part: Floats) -> Floats:
    """Features of values, and behind them those of no value, at one distance from all."""
    if part.shape[1] > 1:  # texts lie on a sphere around their mean, permutations around that of all orders
        return np.vstack([part, np.full(part.shape[1], part.mean())])
    angles = np.pi * part[:, 0]
    circle = -0.5 * np.column_stack([np.cos(angles), np.sin(angles)])  # the ends are one apart
    return np.vstack([circle, np.zeros(2)])


def item_positions(values: Sequence[str]) -> Floats | None:
    """Where each item stands in permutations, shape (values, items); None where the texts are none.

    Permutations are texts of the same different items between commas. Their distance is that of Spearman,
    the root of the sum over items of the squared moves, and 1 between a permutation and its reverse.
    """
    listed = [value.split(",") for value in values]
    items = sorted(listed[0]) if listed else []
    if len(items) < 2 or len(set(items)) < len(items) or any(sorted(one) != items for one in listed):  # noqa: PLR2004 - an order
        return None
    count = len(items)
    furthest = np.sqrt(count * (count**2 - 1) / 3.0)  # of a reversed order
    places = np.array([[one.index(item) for item in items] for one in listed], dtype=float)
    return np.asarray(places / furthest)


def _sizes(values: Sequence[TunableValue | None]) -> Floats:
    """Logarithms of numbers; of one more where 0 is among them; 0 for a value that there is not."""
    numbers = [value for value in values if isinstance(value, (int, float)) and value >= 0]
    if len(numbers) < sum(value is not None for value in values):
        return np.zeros(len(values))
    more = 1.0 if any(value == 0 for value in numbers) else 0.0
    return np.array([0.0 if value is None else np.log(more + float(value)) for value in values])


def _halvings(values: Sequence[TunableValue]) -> Floats | None:
    """How often 2 divides each number, from 0 to 1; None where that says nothing that the size does not."""
    if any(isinstance(value, bool) or value != int(value) or int(value) <= 0 for value in values):
        return None
    whole = [int(value) for value in values]
    lowest_bits = [value & -value for value in whole]
    if lowest_bits == whole or max(lowest_bits) == 1:
        return None
    exponents = np.log2(np.array(lowest_bits, dtype=float))
    return np.asarray(exponents / exponents.max())


def latin(codes: Integers, taken: Integers, count: int, draw: np.random.Generator) -> list[int]:
    """Rows that between them meet as many values of every tunable as so many rows can.

    A Latin hypercube has one point in each of its slices of every axis; constraints leave few of its points
    legal. So slices are filled greedily: the next row is the one that meets most slices that none before it
    met; of equals, one in slices that few met; of equals, any.

    Args:
        codes: ranks of the values of every legal configuration, shape (n, tunables).
        taken: ranks of what is measured anyway, shape (k, tunables): met, never returned.
        count: rows wanted.
        draw: source of randomness.

    Returns:
        At most ``count`` different rows.
    """
    tunables = codes.shape[1]
    everything = np.vstack([codes, taken])
    values = everything.max(axis=0, initial=0) + 1
    slices = everything * np.minimum(values, count + len(taken)) // values
    columns = np.arange(tunables)
    met = np.zeros((tunables, int(slices.max(initial=0)) + 1))
    for row in slices[len(codes) :]:
        met[columns, row] += 1
    slices = slices[: len(codes)]
    free = ~(codes[:, None, :] == taken[None, :, :]).all(axis=2).any(axis=1) if len(taken) else None
    free = np.ones(len(codes), dtype=bool) if free is None else free
    chance = draw.random(len(codes))
    chosen: list[int] = []
    while len(chosen) < count and free.any():
        times = met[columns, slices]
        order = np.lexsort((chance, times.sum(axis=1), -(times == 0).sum(axis=1)))
        row = int(order[free[order]][0])
        free[row] = False
        met[columns, slices[row]] += 1
        chosen.append(row)
    return chosen
