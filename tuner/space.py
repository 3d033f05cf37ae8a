"""The configurations of one workload: every combination of tunable values that the rules allow.

Values are held as NumPy columns of positions in the value lists; a ``Configuration`` is made when asked for.
The product grows tunable by tunable and every rule is applied as soon as its names are bound, in chunks, so
that neither time nor memory follows the size of the whole product.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tuner.errors import EmptySpaceError, ExpressionError, InputError, UnknownNameError
from tuner.expressions import Expression, is_free_name, suggestion
from tuner.model import Configuration, TunableValue

CHUNK_ROWS = 2**18
MAX_ROWS = 10_000_000
MAX_PRODUCT = 2**62  # positions in the product are 64-bit codes

Column = npt.NDArray[Any]  # int16, or int32 where a value list is longer than that reaches
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
        enumeration = _Enumeration(lists, rules, constants or {}, derived or {})
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


def checked_values(name: str, values: Sequence[TunableValue]) -> tuple[TunableValue, ...]:
    """The values of one tunable as a tuple.

    Raises:
        InputError: the name is taken by the language, or the list is empty, repeats a value, mixes numbers,
            booleans and text, or holds a number that is not finite.
    """
    if not is_free_name(name):
        raise InputError(f"{name!r} is not a name, or is a word of the expression language")
    if not values:
        raise InputError(f"{name}: its value list is empty")
    kinds = {"number" if type(value) in (int, float) else type(value).__name__ for value in values}
    if len(kinds) > 1:
        raise InputError(f"{name}: its values mix {' and '.join(sorted(kinds))}")
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{name}: {value} is not a finite number")
        if list(values).count(value) > 1:
            raise InputError(f"{name}: value {value!r} stands twice in its list")
    return tuple(values)


class _Enumeration:
    """The work of ``Space.build``: which rule is applied after which tunable, and the growing product."""

    def __init__(
        self,
        lists: Mapping[str, tuple[TunableValue, ...]],
        rules: Sequence[str | Expression],
        constants: Mapping[str, TunableValue],
        derived: Mapping[str, str | Expression],
    ) -> None:
        self.lists = lists
        self.constants = dict(constants)
        self.derived = {name: _parsed(text) for name, text in derived.items()}
        self.rules = [_parsed(text) for text in rules]
        self.left: dict[Expression, int] = dict.fromkeys(self.rules, 0)
        bound_at = dict.fromkeys(constants, -1) | {name: at for at, name in enumerate(lists)}
        for name, expression in self.derived.items():
            if name in bound_at:
                raise InputError(f"the name {name!r} is given twice")
            bound_at[name] = _last_bound(expression, bound_at)
        self.rules_at: dict[int, list[Expression]] = {}
        for rule in self.rules:
            self.rules_at.setdefault(_last_bound(rule, bound_at), []).append(rule)
        self.values = {name: _value_array(values) for name, values in lists.items()}

    def columns(self) -> list[Column]:
        """Positions of the configurations that satisfy every rule, one column per tunable."""
        for rule in self.rules_at.get(-1, []):
            if not rule.evaluate(self.constants | self._derived_for(rule, self.constants)):
                raise EmptySpaceError(f"the rule {rule.text!r} allows no configuration{self._where()}")
        columns: list[Column] = []
        rows = 1
        for axis, values in enumerate(self.lists.values()):
            columns = self._grown(columns, rows, axis, len(values))
            rows = len(columns[0])
        return columns

    def _grown(self, columns: list[Column], rows: int, axis: int, count: int) -> list[Column]:
        step = max(1, CHUNK_ROWS // count)
        dtype = np.int16 if count <= np.iinfo(np.int16).max else np.int32
        rules = self.rules_at.get(axis, [])
        kept: list[list[Column]] = []
        total = 0
        for start in range(0, rows, step):
            chunk = [np.repeat(column[start : start + step], count) for column in columns]
            repeats = min(step, rows - start)
            chunk.append(np.tile(np.arange(count, dtype=dtype), repeats))
            chunk = self._filtered(chunk, rules)
            total += len(chunk[0])
            if total > MAX_ROWS:
                raise InputError(
                    f"the rules leave more than {MAX_ROWS:,} combinations{self._where()}; "
                    "add rules or shorten value lists"
                )
            kept.append(chunk)
        if not total:
            last = next(rule for rule in rules if not self.left[rule])
            raise EmptySpaceError(f"the rule {last.text!r} removes the last configuration{self._where()}")
        return [np.concatenate(parts) for parts in zip(*kept, strict=True)]

    def _filtered(self, columns: list[Column], rules: list[Expression]) -> list[Column]:
        for rule in rules:
            if len(columns[0]):
                mask = np.asarray(self._holds(rule, columns))
                columns = [column[mask] for column in columns] if mask.ndim else columns
                if not mask.ndim and not mask:
                    columns = [column[:0] for column in columns]
            self.left[rule] += len(columns[0])
        return columns

    def _holds(self, rule: Expression, columns: list[Column]) -> Any:  # noqa: ANN401 - bool or an array
        env: dict[str, Any] = dict(self.constants)
        needed = self._needed(rule)
        for name, column in zip(self.lists, columns, strict=False):
            if name in needed:
                env[name] = self.values[name][column]
        env |= self._derived_for(rule, env)
        held = rule.evaluate(env)
        return held.astype(bool) if isinstance(held, np.ndarray) else bool(held)

    def _derived_for(self, rule: Expression, env: Mapping[str, Any]) -> dict[str, Any]:
        needed = self._needed(rule)
        values: dict[str, Any] = {}
        for name, expression in self.derived.items():
            if name in needed:
                values[name] = expression.evaluate({**env, **values})
        return values

    def _needed(self, rule: Expression) -> set[str]:
        """Names a rule depends on, through derived names too."""
        needed = set(rule.names)
        for name, expression in reversed(self.derived.items()):
            if name in needed:
                needed |= expression.names
        return needed

    def _where(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.constants.items())
        return f" (with {shown})" if shown else ""


def _parsed(text: str | Expression) -> Expression:
    return text if isinstance(text, Expression) else Expression(text)


def _last_bound(expression: Expression, bound_at: Mapping[str, int]) -> int:
    """Axis after which all names of an expression have values; -1 when constants suffice."""
    for name in sorted(expression.names):
        if name not in bound_at:
            raise ExpressionError(
                f"expression {expression.text!r}: unknown name {name!r} "
                f"(known: {', '.join(bound_at)}){suggestion(name, bound_at)}"
            )
    return max((bound_at[name] for name in expression.names), default=-1)


def _value_array(values: tuple[TunableValue, ...]) -> npt.NDArray[Any]:
    kinds = {type(value) for value in values}
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array if len(kinds) > 1 else array.astype(np.str_ if str in kinds else kinds.pop())
