"""``tune_params`` and the texts over them: values of this tuner's kinds, and expressions without ``eval``."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tuner.expressions.expression import Expression, is_free_name
from tuner.model.errors import ExpressionError, InputError, UnsupportedError
from tuner.model.plan import TunableValue

Parameters = Mapping[str, TunableValue]
"""The values of one configuration by name."""

UserValue = Any
"""Whatever a caller gave; it is checked, with a message that names the argument."""

PLACEHOLDER = "kernel_tuner"
"""Stands for the parameters of a call that has none, as a space needs one; Kernel Tuner's macro."""

_FORBIDDEN = ("grid_size_x", "grid_size_y", "grid_size_z", "time")
_SPECIAL = ("nvml_", "tegra_", "cuda_sm_percentage")
_TOKEN = re.compile(r"([A-Za-z0-9_]+)")


def tunables_of(tune_params: Mapping[str, Sequence[Any]]) -> dict[str, tuple[TunableValue, ...]]:
    """The value lists of a space, NumPy scalars as Python's and repeated values once.

    Raises:
        InputError: it is no mapping, a name cannot be used, or a list is empty.
        UnsupportedError: a name sets the GPU's clocks or its share, or a value is no number, truth value or
            text.
    """
    if not isinstance(tune_params, Mapping):
        raise InputError(f"tune_params: must be a dict of lists, not {type(tune_params).__name__}")
    tunables: dict[str, tuple[TunableValue, ...]] = {}
    for name, values in tune_params.items():
        _check_name(name)
        listed = tuple(dict.fromkeys(_value(name, value) for value in _items(name, values)))
        if not listed:
            raise InputError(f"tune_params[{name!r}]: the list of values is empty")
        tunables[name] = listed
    return tunables or {PLACEHOLDER: (1,)}


def configuration_of(params: Mapping[str, Any]) -> dict[str, tuple[TunableValue, ...]]:
    """The space of one configuration, of the ``params`` of ``run_kernel``.

    Raises:
        InputError, UnsupportedError: as `tunables_of`.
    """
    if not isinstance(params, Mapping):
        raise InputError(f"params: must be a dict, not {type(params).__name__}")
    return tunables_of({name: [value] for name, value in params.items()})


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not is_free_name(name):
        raise InputError(f"tune_params: {name!r} is not a name, or is a word of Python or of expressions")
    if name in _FORBIDDEN:
        raise InputError(f"tune_params: {name!r} is a name of results; Kernel Tuner forbids it too")
    if name.startswith(_SPECIAL):
        raise UnsupportedError(
            f"tune_params[{name!r}] is not supported: it is no tunable of the kernel. GPU clocks are searched"
            " by `tuner run --clocks` and tuner.tune(clocks=...)"
        )


def _items(name: str, values: UserValue) -> Sequence[UserValue]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InputError(f"tune_params[{name!r}]: must be a list of values, not {values!r}")
    return list(values)


def _value(name: str, value: UserValue) -> TunableValue:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, bool | int | float | str):
        raise UnsupportedError(
            f"tune_params[{name!r}]: {value!r} is not supported; values are numbers, truth values or texts"
        )
    return plain


# --- texts over parameters -----------------------------------------------------------------------


@lru_cache(maxsize=1024)
def parsed(text: str) -> Expression:
    """The expression of a text.

    Raises:
        ExpressionError: it is none.
    """
    return Expression(" ".join(text.split()))


def evaluated(text: str, values: Mapping[str, UserValue], argument: str) -> UserValue:
    """The value of a text of the caller, as Python would compute it; nothing is ever executed.

    Args:
        text: an expression over the names of ``values``.
        values: of the configuration, or of one result.
        argument: what messages call it.

    Raises:
        InputError: it is no expression, or has no result; the message names the argument.
    """
    try:
        return parsed(text).evaluate(values)
    except ExpressionError as error:
        raise InputError(f"{argument}: {error}; a function of the parameters may stand there too") from error


def number(value: UserValue, argument: str) -> float | int:
    """A finite real number.

    Raises:
        InputError: it is none.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, int | float) or not np.isfinite(plain):
        raise InputError(f"{argument}: gives {value!r}, which is no number")
    return plain


def called(
    function: Callable[..., UserValue], argument: str, *args: UserValue, **kwargs: UserValue
) -> UserValue:
    """What a user's function returns.

    Raises:
        InputError: it raises; the message names the argument.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise InputError(f"{argument}: the function raised {type(error).__name__}: {error}") from error


def replaced(text: str, params: Parameters) -> str:
    """A text in which every word that is the name of a parameter is replaced by its value."""
    return "".join(macro_value(params[part]) if part in params else part for part in _TOKEN.split(text))


def macro_value(value: object) -> str:
    """A value as source code has it: truth values as 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def shown(params: Mapping[str, object]) -> str:
    """Values as messages have them."""
    return ", ".join(f"{name}={value}" for name, value in params.items())
