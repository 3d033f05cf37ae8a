"""How many configurations a kernel has at each of many sizes, without a space for every one."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tuner.expressions.arithmetic import Value
from tuner.expressions.expression import Expression
from tuner.model.plan import TunableValue
from tuner.space.enumeration import Enumeration
from tuner.space.values import Condition, checked_values, value_array

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
    varied = {name: one for name, one in derived.items() if name not in constant}
    asked = [*rules, *varied.values(), *(one.when for one in conditions.values())]
    asked += [one.otherwise for one in conditions.values() if one.otherwise is not None]
    names = sorted(frozenset().union(*(one.names for one in asked)) & values[0].keys())
    told = [tuple(case[name] for name in names) for case in values]
    distinct = {one: number for number, one in enumerate(dict.fromkeys(told))}
    columns = zip(*distinct, strict=True)
    looked_up = {name: _OfCase(name, column) for name, column in zip(names, columns, strict=True)}
    lists = {name: checked_values(name, one) for name, one in tunables.items()}
    lists = {_CASE: tuple(range(len(distinct))), **lists}
    rows = Enumeration(lists, rules, {}, {**looked_up, **varied}, conditions, max_rows=_MAX_ROWS).columns()[0]
    counts = np.bincount(rows, minlength=len(distinct)).tolist()
    return [counts[distinct[one]] for one in told]


def _constant(derived: Mapping[str, Expression], constants: Collection[str]) -> set[str]:
    """Derived names that no tunable changes."""
    known = set(constants)
    for name, expression in derived.items():
        if expression.names <= known:
            known.add(name)
    return known.difference(constants)


def _with_derived(
    case: Mapping[str, TunableValue], derived: Mapping[str, Expression], constant: Collection[str]
) -> dict[str, TunableValue]:
    """The constants of a case with the derived names that no tunable changes."""
    found = dict(case)
    for name, expression in derived.items():
        if name in constant:
            found[name] = expression.evaluate(found)
    return found
