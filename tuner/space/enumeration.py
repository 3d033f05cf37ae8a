"""Grows the product of value lists tunable by tunable, under the rules.

Every rule is applied as soon as its names are bound, in chunks, so that neither time nor memory follows the
size of the whole product.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.errors import EmptySpaceError, ExpressionError, InputError
from tuner.expressions import Expression, is_free_name
from tuner.model import TunableValue
from tuner.system.names import suggestion

CHUNK_ROWS = 2**18
MAX_ROWS = 10_000_000

Column = npt.NDArray[Any]  # positions in a value list: int16, or int32 where the list is longer


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


class Enumeration:
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
