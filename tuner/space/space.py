"""The configurations of one workload: every combination of tunable values that the rules allow.

A tunable with a condition has a value, and a place in a configuration, only where the condition is true.

Values are held as NumPy columns of positions in the value lists; a ``Configuration`` is made when asked for.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.model.errors import (
    ConditionError,
    EmptySpaceError,
    ExpressionError,
    InputError,
    NoValueError,
    SpaceSizeError,
    UnknownNameError,
    suggestion,
)
from tuner.model.expressions.callables import Expression, is_free_name
from tuner.model.expressions.operations import NoValue, Value
from tuner.model.plan import Configuration, TunableValue

# --- The values of tunables: lists that are checked, conditions under which there is none, and arrays.


@dataclass(frozen=True)
class Condition:
    """The condition of a tunable.

    Attributes:
        when: over constants, the tunables above, and derived names of these; where it is false the tunable
            has no value.
        otherwise: what expressions see there, over constants and the tunables above; None where they must
            not come to it.
    """

    when: Expression
    otherwise: Expression | None = None

    @property
    def no_value(self) -> NoValue:
        """Placeholder for the tunable where the condition is false and ``otherwise`` is None."""
        return NoValue(f"it has one where {self.when.text}")


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
    if len(set(values)) < len(values):
        twice = next(value for position, value in enumerate(values) if value in values[:position])
        raise InputError(f"{name}: value {twice!r} stands twice in its list")
    return tuple(values)


def value_array(values: tuple[TunableValue, ...]) -> npt.NDArray[Any]:
    """Values of one kind as an array; of several kinds as objects."""
    kinds = {type(value) for value in values}
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array if len(kinds) > 1 else array.astype(np.str_ if str in kinds else kinds.pop())


# --- The product of all values, grown tunable by tunable.
#
# Every rule is applied as soon as its names are bound, in chunks, so that neither time nor memory follows the
# size of the whole product.

CHUNK_ROWS = 2**18
MAX_ROWS = 10_000_000
MAX_DECIDING = 2**20  # combinations of tunables that conditions need

Column = npt.NDArray[Any]  # positions in a value list: int16, or int32 where the list is longer
Mask = npt.NDArray[np.bool_]


class Enumeration:
    """The work of ``Space.build``: which rule is applied after which tunable, and the growing product."""

    def __init__(
        self,
        lists: Mapping[str, tuple[TunableValue, ...]],
        rules: Sequence[str | Expression],
        constants: Mapping[str, TunableValue],
        derived: Mapping[str, str | Expression],
        conditions: Mapping[str, Condition],
        *,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self.lists = lists
        self.max_rows = max_rows
        self.constants = dict(constants)
        self.derived = {name: _parsed(text) for name, text in derived.items()}
        self.conditions = conditions
        self.left: dict[Expression, int] = {}
        self._needed_by: dict[Expression, frozenset[str]] = {}
        bound_at = dict.fromkeys(constants, -1) | {name: at for at, name in enumerate(lists)}
        for name, condition in conditions.items():
            self._check_above(name, condition.otherwise, bound_at)
        for name, expression in self.derived.items():
            if name in bound_at:
                raise InputError(f"the name {name!r} is given twice")
            bound_at[name] = _last_bound(expression, bound_at)
        self.rules_at: dict[int, list[Expression]] = {}
        for rule in map(_parsed, rules):
            self.left[rule] = 0
            self.rules_at.setdefault(_last_bound(rule, bound_at), []).append(rule)
        for name, condition in conditions.items():
            self._check_above(name, condition.when, bound_at)
        self.values = {name: value_array(values) for name, values in lists.items()}

    def _check_above(self, name: str, expression: Expression | None, bound_at: Mapping[str, int]) -> None:
        if expression is not None and _last_bound(expression, bound_at) >= bound_at[name]:
            raise InputError(f"{name}: {expression.text!r} needs a tunable that is not declared above it")

    def columns(self) -> list[Column]:
        """Positions of the configurations that satisfy every rule, one column per tunable; -1 is no value."""
        for rule in self.rules_at.get(-1, []):
            if not self._result(rule, {}, 1).all():
                raise EmptySpaceError(f"the rule {rule.text!r} allows no configuration{self._where()}")
        columns: dict[str, Column] = {}
        for axis, name in enumerate(self.lists):
            columns = self._grown(columns, name, self.rules_at.get(axis, []))
        return list(columns.values())

    def product(self) -> int:
        """Combinations there are without rules; a tunable counts where it has a value.

        Where conditions need too many tunables, or have no result without the rules, every tunable counts.
        """
        conditions = [condition.when for condition in self.conditions.values()]
        deciding = frozenset[str]().union(*map(self._needed, conditions)).intersection(self.lists)
        if math.prod(len(self.lists[name]) for name in deciding) <= MAX_DECIDING:
            with suppress(ConditionError):
                return self._product(deciding)
        return math.prod(map(len, self.lists.values()))

    def _product(self, deciding: Collection[str]) -> int:
        columns: dict[str, Column] = {}
        for name in self.lists:
            if name in deciding:
                columns = self._grown(columns, name, [])
        rows = row_count(columns)
        counts = np.ones(rows, dtype=np.int64)
        for name, values in self.lists.items():
            if name not in deciding:
                active = self.active(name, columns, rows)
                counts *= len(values) if active is None else np.where(active, len(values), 1)
        return int(counts.sum())

    def _grown(self, columns: dict[str, Column], name: str, rules: list[Expression]) -> dict[str, Column]:
        count, rows = len(self.lists[name]), row_count(columns)
        step = max(1, CHUNK_ROWS // count)
        chunks: list[dict[str, Column]] = []
        total = 0
        certain = 0 if rules or name in self.conditions else rows * count  # nothing is removed here
        for start in range(0, rows, step):
            part = {other: column[start : start + step] for other, column in columns.items()}
            chunk = self.filtered(self.extended(part, min(step, rows - start), name), rules)
            total += row_count(chunk)
            if max(total, certain) > self.max_rows:
                raise SpaceSizeError(
                    f"the rules leave more than {self.max_rows:,} combinations{self._where()}; "
                    "add rules or shorten value lists"
                )
            chunks.append(chunk)
        if not total:
            last = next(rule for rule in rules if not self.left[rule])
            raise EmptySpaceError(f"the rule {last.text!r} removes the last configuration{self._where()}")
        return {other: np.concatenate([chunk[other] for chunk in chunks]) for other in chunks[0]}

    def extended(self, columns: Mapping[str, Column], rows: int, name: str) -> dict[str, Column]:
        """Every row with every value of a tunable, or with none where its condition is false."""
        count = len(self.lists[name])
        dtype = np.int16 if count <= np.iinfo(np.int16).max else np.int32
        positions = np.arange(count, dtype=dtype)
        active = self.active(name, columns, rows)
        if active is None or active.all():
            chunk = {other: np.repeat(column, count) for other, column in columns.items()}
            return chunk | {name: np.tile(positions, rows)}
        repeats = np.where(active, count, 1)
        chunk = {other: np.repeat(column, repeats) for other, column in columns.items()}
        new = np.full(int(repeats.sum()), -1, dtype=dtype)
        new[np.repeat(active, repeats)] = np.tile(positions, int(active.sum()))
        return chunk | {name: new}

    def active(self, name: str, columns: Mapping[str, Column], rows: int) -> Mask | None:
        """Rows in which a tunable has a value; None for all."""
        condition = self.conditions.get(name)
        try:
            return None if condition is None else self.holds(condition.when, columns, rows)
        except ExpressionError as error:
            raise ConditionError(name, str(error)) from error

    def filtered(self, columns: dict[str, Column], rules: Sequence[Expression]) -> dict[str, Column]:
        """The rows that satisfy some rules, whose names all have columns."""
        for rule in rules:
            if rows := row_count(columns):
                allowed = self.holds(rule, columns, rows)
                columns = columns if allowed.all() else {name: c[allowed] for name, c in columns.items()}
            self.left[rule] += row_count(columns)
        return columns

    def holds(self, rule: Expression, columns: Mapping[str, Column], rows: int) -> Mask:
        """Rows for which a condition is true; those in which the same tunables have values go together."""
        needed = self._needed(rule)
        conditional = [name for name in self.conditions if name in needed and name in columns]
        if not conditional:
            return self._result(rule, columns, rows)
        names = needed.union(*(self._needed(self.conditions[name].when) for name in conditional))
        codes = np.zeros(rows, dtype=np.int64)
        for index, name in enumerate(conditional):
            codes += (columns[name] >= 0).astype(np.int64) << index
        allowed = np.empty(rows, dtype=np.bool_)
        for code in np.unique(codes):
            members = codes == code
            group = {name: column[members] for name, column in columns.items() if name in names}
            allowed[members] = self._result(rule, group, int(members.sum()))
        return allowed

    def _result(self, rule: Expression, columns: Mapping[str, Column], rows: int) -> Mask:
        """A condition, of rows in which the same tunables have values.

        Raises:
            NoValueError: it comes to one that has none; the message has the values of the first such row.
        """
        try:
            allowed = np.asarray(_evaluated(rule, self._environment(rule, columns)))
        except NoValueError as error:
            if rows == 1:
                raise NoValueError(f"{error} (in {self._shown(columns)})") from None
            # a derived name has no value where any row comes to one: halves tell which rows do
            halves = [slice(0, rows // 2), slice(rows // 2, rows)]
            parts = [{name: column[half] for name, column in columns.items()} for half in halves]
            counts = (rows // 2, rows - rows // 2)
            return np.concatenate(
                [self._result(rule, part, count) for part, count in zip(parts, counts, strict=True)]
            )
        return np.broadcast_to(allowed.astype(np.bool_), rows)

    def _environment(self, rule: Expression, columns: Mapping[str, Column]) -> dict[str, Value]:
        needed = self._needed(rule)
        env: dict[str, Value] = dict(self.constants)
        for name in self.lists:
            if name in needed and name in columns:
                column = columns[name]
                has = not len(column) or column[0] >= 0
                env[name] = self.values[name][column] if has else self._instead(name, env)
        for name, expression in self.derived.items():
            if name in needed:
                try:
                    env[name] = _evaluated(expression, env)
                except NoValueError as error:
                    env[name] = NoValue(str(error))
        return env

    def _instead(self, name: str, env: Mapping[str, Value]) -> Value:
        condition = self.conditions[name]
        return condition.no_value if condition.otherwise is None else condition.otherwise.evaluate(env)

    def _needed(self, rule: Expression) -> frozenset[str]:
        """Names a rule depends on, through derived names and what stands for tunables without a value too."""
        needed = self._needed_by.get(rule)
        if needed is not None:
            return needed
        names = set(rule.names)
        for name, expression in reversed(self.derived.items()):
            if name in names:
                names |= expression.names
        for name in reversed(list(self.lists)):
            if name in names and name in self.conditions:
                otherwise = self.conditions[name].otherwise
                names |= frozenset() if otherwise is None else otherwise.names
        self._needed_by[rule] = frozenset(names)
        return self._needed_by[rule]

    def scope(self, rule: Expression) -> list[str]:
        """The tunables that decide whether a rule holds, in the order of the space."""
        needed = set(self._needed(rule))
        for name in reversed(list(self.lists)):  # a condition needs tunables above its own only
            if name in needed and name in self.conditions:
                needed |= self._needed(self.conditions[name].when)
        return [name for name in self.lists if name in needed]

    def alone(self, rule: Expression, max_rows: int) -> "Enumeration":
        """The same of one rule and of the tunables that decide it."""
        scope = self.scope(rule)
        conditions = {name: self.conditions[name] for name in scope if name in self.conditions}
        needed = self._needed(rule).union(*(self._needed(item.when) for item in conditions.values()))
        return Enumeration(
            {name: self.lists[name] for name in scope},
            [rule],
            self.constants,
            {name: item for name, item in self.derived.items() if name in needed},
            conditions,
            max_rows=max_rows,
        )

    def _shown(self, columns: Mapping[str, Column]) -> str:
        """The values of the first row."""
        first = {name: int(column[0]) for name, column in columns.items()}
        return " ".join(f"{name}={self.lists[name][at]}" for name, at in first.items() if at >= 0)

    def _where(self) -> str:
        constants = ", ".join(f"{name}={value}" for name, value in self.constants.items())
        return f" (with {constants})" if constants else ""


def _evaluated(expression: Expression, env: Mapping[str, Value]) -> Value:
    """The value of an expression; it gets its own names only, as conditions copy what they get."""
    return expression.evaluate({name: env[name] for name in expression.names if name in env})


def row_count(columns: Mapping[str, Column]) -> int:
    """Rows of columns of one length; one where there is no column."""
    return next((len(column) for column in columns.values()), 1)


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
