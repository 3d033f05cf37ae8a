"""The values of tunables: lists that are checked, conditions under which there is none, and arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.expressions.arithmetic import NoValue
from tuner.expressions.expression import Expression, is_free_name
from tuner.model.errors import InputError
from tuner.model.plan import TunableValue


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
        """What stands for the tunable where nothing else does."""
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
