"""The configurations of one workload: every combination of tunable values that the rules allow.

A tunable with a condition has a value, and a place in a configuration, only where the condition is true.

Values are held as NumPy columns of positions in the value lists; a ``Configuration`` is made when asked for.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.model.errors import InputError, UnknownNameError
from tuner.model.expressions.callables import Expression
from tuner.model.expressions.operations import Value
from tuner.model.plan import Configuration, TunableValue
from tuner.space.enumeration import CHUNK_ROWS, Column, Condition, Enumeration, checked_values, value_array

_CASE = " case"  # no expression can name it
_MAX_ROWS = 2**21  # of all cases together, some 100 MB


class _OfCase(Expression):
    """A constant that is another one in every case."""

    __slots__ = ("_values",)

    def __init__(self, name: str, values: tuple[TunableValue, ...]) -> None:
        self.text = name
        self.names = frozenset({_CASE})
        self._values = value_array(values)

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """The values in the cases of all rows."""
        return self._values[env[_CASE]]


def count_configurations(
    tunables: Mapping[str, Sequence[TunableValue]],
    rules: Sequence[Expression],
    cases: Sequence[Mapping[str, TunableValue]],
    derived: Mapping[str, Expression],
    conditions: Mapping[str, Condition],
) -> list[int]:
    """The lengths of the spaces that ``Space.build`` makes with each of some constants.

    Cases that the rules cannot tell apart are counted once, and all cases are enumerated together.

    Args:
        tunables: value lists by name.
        rules: over tunables, constants and derived names.
        cases: constants, the same names in each; at least one.
        derived: named expressions.
        conditions: of the tunables that do not always have a value.

    Returns:
        A count for each case; 0 where the rules allow nothing.

    Raises:
        EmptySpaceError: the rules allow nothing in any case.
        InputError: a rule has no result in one of the cases, or too much is left of all together.
    """
    constant = _constant(derived, cases[0])
    values = [_with_derived(case, derived, constant) for case in cases]
    varied = {name: item for name, item in derived.items() if name not in constant}
    expressions = [*rules, *varied.values(), *(item.when for item in conditions.values())]
    expressions += [item.otherwise for item in conditions.values() if item.otherwise is not None]
    names = sorted(frozenset().union(*(item.names for item in expressions)) & values[0].keys())
    keys = [tuple(case[name] for name in names) for case in values]
    distinct = {item: number for number, item in enumerate(dict.fromkeys(keys))}
    columns = zip(*distinct, strict=True)
    looked_up = {name: _OfCase(name, column) for name, column in zip(names, columns, strict=True)}
    lists = {name: checked_values(name, item) for name, item in tunables.items()}
    lists = {_CASE: tuple(range(len(distinct))), **lists}
    rows = Enumeration(lists, rules, {}, {**looked_up, **varied}, conditions, max_rows=_MAX_ROWS).columns()[0]
    counts = np.bincount(rows, minlength=len(distinct)).tolist()
    return [counts[distinct[item]] for item in keys]


def _constant(derived: Mapping[str, Expression], constants: Collection[str]) -> set[str]:
    """Derived names that no tunable changes."""
    names = set(constants)
    for name, expression in derived.items():
        if expression.names <= names:
            names.add(name)
    return names.difference(constants)


def _with_derived(
    case: Mapping[str, TunableValue], derived: Mapping[str, Expression], constant: Collection[str]
) -> dict[str, TunableValue]:
    """The constants of a case with the derived names that no tunable changes."""
    values = dict(case)
    for name, expression in derived.items():
        if name in constant:
            values[name] = expression.evaluate(values)
    return values


MAX_PRODUCT = 2**62  # positions in the product are 64-bit codes


class Space(Sequence[Configuration]):
    """Configurations in a stable order: that of the value lists, the first tunable slowest.

    Attributes:
        tunables: value lists by name, in the order of declaration.
        cartesian_size: combinations there are without rules.
        is_sample: only some of its configurations are listed (`tuner.space.large_spaces`).
    """

    is_sample = False

    def __init__(
        self,
        tunables: Mapping[str, tuple[TunableValue, ...]],
        columns: Sequence[Column],
        cartesian_size: int | None = None,
    ) -> None:
        """Take columns of positions in lexicographic order; use ``build`` to make them.

        Args:
            tunables: value lists by name.
            columns: one per tunable; -1 is no value, and stands before all values. Without any, the space
                is one empty configuration.
            cartesian_size: None for the product of the value lists.
        """
        self.tunables = dict(tunables)
        if cartesian_size is None:
            cartesian_size = math.prod(map(len, self.tunables.values()))
        self.cartesian_size = cartesian_size
        self._columns = tuple(columns)
        self._positions = {
            name: {value: position for position, value in enumerate(values)}
            for name, values in self.tunables.items()
        }
        self._absent = [int(len(column) and column.min() < 0) for column in columns]  # 1 where some have none
        lengths = [len(v) + absent for v, absent in zip(self.tunables.values(), self._absent, strict=True)]
        self._strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
        self._codes = np.zeros(len(columns[0]) if columns else 1, dtype=np.int64)
        for column, absent, stride in zip(columns, self._absent, self._strides, strict=True):
            self._codes += (column.astype(np.int64) + absent) * stride

    @classmethod
    def build(
        cls,
        tunables: Mapping[str, Sequence[TunableValue]],
        rules: Sequence[str | Expression] = (),
        constants: Mapping[str, TunableValue] | None = None,
        derived: Mapping[str, str | Expression] | None = None,
        conditions: Mapping[str, Condition] | None = None,
    ) -> "Space":
        """Enumerate the combinations for which every rule is true.

        Args:
            tunables: value lists by name; the order of names and values is the order of the space.
            rules: expressions over tunables, constants and derived names.
            constants: values that are the same everywhere, e.g. the problem sizes.
            derived: named expressions over tunables, constants and derived names before them.
            conditions: of the tunables that do not always have a value.

        Raises:
            EmptySpaceError: no combination is left; the message names the rule that removed the last ones.
            ExpressionError: a rule is not an expression, names something unknown or has no result.
            InputError: a value list is empty, repeats a value or mixes kinds, a condition needs a tunable
                that is not above its own, or too much is left.
        """
        conditions = conditions or {}
        lists = checked_lists(tunables, conditions)
        enumeration = Enumeration(lists, rules, constants or {}, derived or {}, conditions)
        return cls(lists, enumeration.columns(), enumeration.product())

    @property
    def size(self) -> int:
        """Number of configurations; more than are listed where it `is_sample`."""
        return len(self)

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
            {
                name: values[column[row]]
                for (name, values), column in zip(self.tunables.items(), self._columns, strict=True)
                if column[row] >= 0
            }
        )

    def __iter__(self) -> Iterator[Configuration]:
        if not self.tunables:
            yield Configuration({})
        for start in range(0, len(self), CHUNK_ROWS):
            chunk = [column[start : start + CHUNK_ROWS].tolist() for column in self._columns]
            for row in zip(*chunk, strict=True):
                yield Configuration(
                    {
                        name: values[position]
                        for (name, values), position in zip(self.tunables.items(), row, strict=True)
                        if position >= 0
                    }
                )

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self._find(configuration) is not None

    def index(self, configuration: Mapping[str, TunableValue], *_: int) -> int:
        """Position of a configuration.

        Raises:
            UnknownNameError: it is not in the space.
        """
        row = self._find(configuration)
        if row is None:
            raise self._not_in_space(configuration)
        return row

    @staticmethod
    def _not_in_space(configuration: Mapping[str, TunableValue]) -> UnknownNameError:
        text = " ".join(f"{name}={value}" for name, value in configuration.items())
        return UnknownNameError(f"configuration {text} is not in the space")

    def order(self, configuration: Mapping[str, TunableValue]) -> tuple[int, ...]:
        """Return the sort key of a configuration, which need not be listed.

        Raises:
            UnknownNameError: it has a value that is in no list.
        """
        try:
            return tuple(
                places[configuration[name]] if name in configuration else -1
                for name, places in self._positions.items()
            )
        except KeyError:
            raise self._not_in_space(configuration) from None

    def _find(self, configuration: Mapping[str, TunableValue]) -> int | None:
        if not configuration.keys() <= self._positions.keys():
            return None
        code = 0
        for (name, positions), absent, stride in zip(
            self._positions.items(), self._absent, self._strides, strict=True
        ):
            position = positions.get(configuration[name]) if name in configuration else -1
            if position is None or position + absent < 0:
                return None
            code += (position + absent) * stride
        row = int(np.searchsorted(self._codes, code))
        return row if row < len(self) and self._codes[row] == code else None


def checked_lists(
    tunables: Mapping[str, Sequence[TunableValue]], conditions: Mapping[str, Condition]
) -> dict[str, tuple[TunableValue, ...]]:
    """The value lists of a space.

    Raises:
        InputError: there is none, one makes no axis (`checked_values`), or their product is too large.
    """
    lists = {name: checked_values(name, values) for name, values in tunables.items()}
    if not lists:
        raise InputError("a space needs at least one tunable")
    if math.prod(len(values) + (name in conditions) for name, values in lists.items()) > MAX_PRODUCT:
        raise InputError("the product of the value lists has more than 2**62 combinations")
    return lists
