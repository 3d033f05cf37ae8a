"""The configurations of one workload: every combination of tunable values that the rules allow.

Values are held as NumPy columns of positions in the value lists; a ``Configuration`` is made when asked for.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tuner.errors import InputError, UnknownNameError
from tuner.expressions import Expression
from tuner.model import Configuration, TunableValue
from tuner.space.enumeration import CHUNK_ROWS, Column, Enumeration, checked_values

MAX_PRODUCT = 2**62  # positions in the product are 64-bit codes

Kind = Literal["hamming", "adjacent"]


class Space(Sequence[Configuration]):
    """Configurations in a stable order: that of the value lists, the first tunable slowest.

    Attributes:
        tunables: value lists by name, in the order of declaration.
        cartesian_size: size of the product without rules.
    """

    def __init__(self, tunables: Mapping[str, tuple[TunableValue, ...]], columns: Sequence[Column]) -> None:
        """Take columns of positions in lexicographic order; use ``build`` to make them."""
        self.tunables = dict(tunables)
        self.cartesian_size = math.prod(len(values) for values in self.tunables.values())
        self._columns = tuple(columns)
        self._positions = {
            name: {value: position for position, value in enumerate(values)}
            for name, values in self.tunables.items()
        }
        lengths = [len(values) for values in self.tunables.values()]
        self._strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
        self._codes = np.zeros(len(columns[0]), dtype=np.int64)
        for column, stride in zip(columns, self._strides, strict=True):
            self._codes += column.astype(np.int64) * stride

    @classmethod
    def build(
        cls,
        tunables: Mapping[str, Sequence[TunableValue]],
        rules: Sequence[str | Expression] = (),
        constants: Mapping[str, TunableValue] | None = None,
        derived: Mapping[str, str | Expression] | None = None,
    ) -> "Space":
        """Enumerate the combinations for which every rule is true.

        Args:
            tunables: value lists by name; the order of names and values is the order of the space.
            rules: expressions over tunables, constants and derived names.
            constants: values that are the same everywhere, e.g. the problem sizes.
            derived: named expressions over tunables, constants and derived names before them.

        Raises:
            EmptySpaceError: no combination is left; the message names the rule that removed the last ones.
            ExpressionError: a rule is not an expression, names something unknown or has no result.
            InputError: a value list is empty, repeats a value or mixes kinds, or too much is left.
        """
        lists = {name: checked_values(name, values) for name, values in tunables.items()}
        if not lists:
            raise InputError("a space needs at least one tunable")
        if math.prod(len(values) for values in lists.values()) > MAX_PRODUCT:
            raise InputError("the product of the value lists has more than 2**62 combinations")
        enumeration = Enumeration(lists, rules, constants or {}, derived or {})
        return cls(lists, enumeration.columns())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tunables in order."""
        return tuple(self.tunables)

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - int -> Configuration, slice -> list of them
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return Configuration(
            tuple(
                (name, values[column[row]])
                for (name, values), column in zip(self.tunables.items(), self._columns, strict=True)
            )
        )

    def __iter__(self) -> Iterator[Configuration]:
        for start in range(0, len(self), CHUNK_ROWS):
            chunk = [column[start : start + CHUNK_ROWS].tolist() for column in self._columns]
            for row in zip(*chunk, strict=True):
                yield Configuration(
                    tuple(
                        (name, values[position])
                        for (name, values), position in zip(self.tunables.items(), row, strict=True)
                    )
                )

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self._find(configuration) is not None

    def index(self, configuration: Mapping[str, TunableValue], *_: int) -> int:
        """Position of a configuration.

        Raises:
            UnknownNameError: it is not in the space.
        """
        found = self._find(configuration)
        if found is None:
            shown = " ".join(f"{name}={value}" for name, value in configuration.items())
            raise UnknownNameError(f"configuration {shown} is not in the space")
        return found

    def neighbours(
        self, configuration: Mapping[str, TunableValue], kind: Kind = "hamming"
    ) -> list[Configuration]:
        """Configurations of the space that differ in one tunable, in the order of the space.

        Args:
            configuration: values from the value lists; it need not satisfy the rules itself.
            kind: ``hamming`` takes any other value of that tunable, ``adjacent`` the next one on either
                side in its value list.

        Raises:
            UnknownNameError: a name or value is not among those of the tunables.
        """
        positions = self._positions_of(configuration)
        if positions is None:
            raise UnknownNameError(f"configuration {dict(configuration)} has values the tunables do not have")
        code = sum(p * stride for p, stride in zip(positions, self._strides, strict=True))
        moved = [
            code + (other - position) * stride
            for position, stride, values in zip(positions, self._strides, self.tunables.values(), strict=True)
            for other in _others(position, len(values), kind)
        ]
        codes = np.array(moved, dtype=np.int64)
        rows = np.searchsorted(self._codes, codes)
        inside = rows < len(self)
        rows, codes = rows[inside], codes[inside]
        return [self[int(row)] for row in np.sort(rows[self._codes[rows] == codes])]

    def _positions_of(self, configuration: Mapping[str, TunableValue]) -> list[int] | None:
        if len(configuration) != len(self.tunables):
            return None
        positions = [
            known.get(configuration[name]) if name in configuration else None
            for name, known in self._positions.items()
        ]
        return None if None in positions else [p for p in positions if p is not None]

    def _find(self, configuration: Mapping[str, TunableValue]) -> int | None:
        positions = self._positions_of(configuration)
        if positions is None:
            return None
        code = sum(p * stride for p, stride in zip(positions, self._strides, strict=True))
        row = int(np.searchsorted(self._codes, code))
        return row if row < len(self) and self._codes[row] == code else None


def _others(position: int, count: int, kind: Kind) -> list[int]:
    if kind == "adjacent":
        return [other for other in (position - 1, position + 1) if 0 <= other < count]
    return [other for other in range(count) if other != position]
