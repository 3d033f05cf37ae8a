"""Propagates rules: what a rule allows of its first tunables, before the others have values.

A combination of some tunables has *support* in a rule if values of the rule's other tunables complete it.
What has none is dropped as soon as it is known, so that growing a space by samples seldom ends where nothing
is allowed. See Rossi, van Beek and Walsh, "Handbook of Constraint Programming" (2006), chapter 3.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.model.errors import ExpressionError
from tuner.space.enumeration import Column, Enumeration, Mask

MOST = 2**18  # combinations of a rule's tunables, up to which it is propagated


@dataclass(frozen=True)
class Support:
    """The combinations of some tunables that have support in a rule.

    Attributes:
        names: of the tunables, in the order of the space.
        strides: of a combination's number: the sum of (position + 1) x stride, as -1 is no value.
        supported: by that number.
    """

    names: tuple[str, ...]
    strides: tuple[int, ...]
    supported: Mask

    def holds(self, columns: Mapping[str, Column]) -> Mask:
        """Rows whose combination has support; all of ``names`` have columns."""
        return np.asarray(self.supported[_numbers([columns[name] for name in self.names], self.strides)])


def supports(enumeration: Enumeration) -> dict[str, list[Support]]:
    """The supports of all rules, by the last of their tunables.

    A rule over more than `MOST` combinations has none, and neither has one without a result where it is
    alone: others may keep it from such values.

    Raises:
        EmptySpaceError: a rule allows nothing.
    """
    found: dict[str, list[Support]] = {name: [] for name in enumeration.lists}
    for axis, rules in enumeration.rules_at.items():
        for rule in rules if axis >= 0 else ():
            alone = enumeration.alone(rule, MOST)
            lengths = [len(values) + 1 for values in alone.lists.values()]
            if math.prod(lengths) > MOST:
                continue
            try:
                allowed = alone.columns()
            except ExpressionError:
                continue
            for one in _prefixes(tuple(alone.lists), lengths, allowed, alone.conditions):
                found[one.names[-1]].append(one)
    return found


def _prefixes(
    names: tuple[str, ...],
    lengths: Sequence[int],
    allowed: Sequence[Column],
    conditions: Mapping[str, object],
) -> list[Support]:
    """What a rule allows of its first tunables, of its first two, ...; not where that is everything."""
    found = []
    for count in range(1, len(names)):
        strides = tuple(math.prod(lengths[axis + 1 : count]) for axis in range(count))
        supported = np.zeros(math.prod(lengths[:count]), dtype=np.bool_)
        supported[_numbers(allowed[:count], strides)] = True
        possible = math.prod(length - 1 for length in lengths[:count])
        conditional = not conditions.keys().isdisjoint(names[:count])
        if conditional or int(supported.sum()) < possible:
            found.append(Support(names[:count], strides, supported))
    return found


def _numbers(columns: Sequence[Column], strides: Sequence[int]) -> npt.NDArray[np.int64]:
    total = np.zeros(len(columns[0]), dtype=np.int64)
    for column, stride in zip(columns, strides, strict=True):
        total += (column.astype(np.int64) + 1) * stride
    return total
