"""What may be varied, and the names that expressions know: as callers write them, checked."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.expressions.expression import is_free_name
from tuner.model.errors import InputError
from tuner.model.plan import TunableValue
from tuner.python.arguments import KernelArgument, ValueArgument

MOST_VALUES = 100_000  # of a tunable

Restrictions = str | Callable[..., Any] | Sequence[str | Callable[..., Any]]
"""Conditions on configurations: expressions, and functions of the configuration that return a boolean."""


@dataclass(frozen=True)
class SpaceDescription:
    """What may be varied.

    Attributes:
        tunables: name -> values.
        restrictions: conditions on configurations.
        default: the configuration to start from; empty for the first of the space.
    """

    tunables: Mapping[str, Sequence[TunableValue]]
    restrictions: Sequence[str | Callable[..., Any]] = ()
    default: Mapping[str, TunableValue] = field(default_factory=dict)


def restrictions_of(given: Restrictions | None) -> list[str | Callable[..., Any]]:
    """Restrictions as a list.

    Raises:
        InputError: one is neither an expression nor a function.
    """
    if given is None:
        return []
    rules: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    for i, rule in enumerate(rules):
        if not isinstance(rule, str) and not callable(rule):
            raise InputError(f"restrictions[{i}]: {rule!r} is neither an expression nor a function")
    return rules


def sizes_of(arguments: Sequence[KernelArgument], given: Mapping[str, int]) -> dict[str, int]:
    """The names that expressions know: whole numbers above zero among the arguments, and those given.

    Raises:
        InputError: one has the name of an argument, or is no whole number of at least 1.
    """
    numbers = {
        one.name: one.value
        for one in arguments
        if isinstance(one, ValueArgument) and type(one.value) is int and one.value > 0
    }
    taken = {one.name for one in arguments}
    for name, value in given.items():
        if name in taken:
            raise InputError(f"sizes: {name}: is the name of an argument; choose another")
        if not is_free_name(name) or type(plain_value(value)) is not int or value < 1:
            raise InputError(f"sizes: {name} = {value!r}: give a name and a whole number of at least 1")
    return numbers | {name: int(value) for name, value in given.items()}


def tunables_of(given: Mapping[str, Sequence[Any]]) -> dict[str, list[TunableValue]]:
    """Tunables and their values, each once.

    Raises:
        InputError: there are none, or a value is no number, boolean or text.
    """
    if not mapping_of("tunables", given):
        raise InputError(
            "tunables: none are given; write for example tunables={'block_size_x': [64, 128, 256]}"
        )
    values: dict[str, list[TunableValue]] = {}
    for name, choices in given.items():
        if isinstance(choices, str) or not hasattr(choices, "__iter__"):
            raise InputError(f"tunables: {name}: give a list of values, not {choices!r}")
        found = [plain_value(value) for value in itertools.islice(choices, MOST_VALUES + 1)]
        if len(found) > MOST_VALUES:  # perhaps without end
            raise InputError(f"tunables: {name}: has more than {MOST_VALUES:,} values")
        for value in found:
            if not isinstance(value, bool | int | float | str):
                raise InputError(f"tunables: {name}: {value!r} is no number, boolean or text")
        values[name] = list(dict.fromkeys(found))
    return values


def mapping_of(name: str, given: Any) -> dict[str, Any]:  # noqa: ANN401 - the caller's
    """A dict by names; empty for None.

    Raises:
        InputError: it is something else, or has a key that is no name.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{name}: must be a dict by names, not {given!r}")
    for key in given or ():
        if not isinstance(key, str) or not key.isidentifier():
            raise InputError(f"{name}: {key!r} is not a name")
    return {} if given is None else dict(given)


def plain_value(value: Any) -> Any:  # noqa: ANN401 - a number of Python or NumPy
    """Python's number for NumPy's; everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def texts_of(name: str, given: Any) -> tuple[str, ...]:  # noqa: ANN401 - the caller's
    """A list of texts or paths, as texts.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(given, list | tuple) or not all(isinstance(one, str | Path) for one in given):
        raise InputError(f"{name}: must be a list of texts, not {given!r}")
    return tuple(map(str, given))


def law_of(check: object) -> str | None:
    """The place of a law, with an absolute path.

    Raises:
        InputError: it is none.
    """
    if check is None:
        return None
    if not isinstance(check, str) or not re.fullmatch(r".+\.py:[A-Za-z_]\w*", check):
        raise InputError(
            f"check: must be a text 'file.py:function', not {check!r}: it is called in another process"
        )
    return str(Path(check).absolute())
