"""Python functions where a kernel file has expressions: for kernels that are described in Python."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from tuner.expressions.arithmetic import NoValue, Value
from tuner.expressions.expression import Expression
from tuner.expressions.function_digest import function_digest
from tuner.model.errors import ExpressionError, InputError

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class PythonExpression(Expression):
    """A function that stands for an expression.

    It is called with the values of one configuration: with a dict of all names where it has one parameter
    that is none of them, else with those that its parameters name.

    Args:
        function: returns a boolean, a number or text.
        known: the names it may ask for.
        label: what messages call it, e.g. ``restrictions[0]``.

    Attributes:
        text: the label.
        names: the names it needs a value for.
        digest: hex digest of its code and of the values that it uses, see ``function_digest``.

    Raises:
        InputError: it is not callable, or has a parameter that is none of ``known``.
    """

    __slots__ = ("_function", "_takes_all", "digest")

    def __init__(self, function: Callable[..., Any], known: Collection[str], label: str) -> None:
        if not callable(function):
            raise InputError(f"{label}: {function!r} is neither an expression nor a function")
        self.text = label
        self._function = function
        self._takes_all, self.names = _parameters(function, known, label)
        self.digest = function_digest(function)

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """The value for one configuration, or an array of values for columns of them, see ``Expression``.

        Raises:
            ExpressionError: the function raises, or returns what is no value.
        """
        values = {name: env[name] for name in self.names if not isinstance(env[name], NoValue)}
        columns = [value for value in values.values() if isinstance(value, np.ndarray)]
        if not columns:
            return self._one(values)
        rows = range(len(columns[0]))
        results = [
            self._one(
                {k: v[row] if isinstance(v, np.ndarray) else v for k, v in values.items()},
            )
            for row in rows
        ]
        return np.asarray(results)

    def _one(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - bool, int, float or text
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}
        try:
            result = self._function(plain) if self._takes_all else self._function(**plain)
        except Exception as error:  # a function of the user's may raise anything
            raise ExpressionError(
                f"{self.text} raises {type(error).__name__}: {error} (at {plain})"
            ) from error
        result = result.item() if isinstance(result, np.generic) else result
        if not isinstance(result, bool | int | float | str):
            raise ExpressionError(
                f"{self.text} returns {type(result).__name__}; it must return a boolean, a number or text"
                f" (at {plain})"
            )
        return result

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PythonExpression):
            return NotImplemented
        return (self.text, self.digest) == (other.text, other.digest)

    def __hash__(self) -> int:
        return hash((self.text, self.digest))

    def __reduce__(self) -> tuple[type, tuple[str]]:
        raise TypeError(f"{self.text}: a function of this program does not cross to another process")

    def __repr__(self) -> str:
        return f"PythonExpression({self.text!r})"


def _parameters(
    function: Callable[..., Any], known: Collection[str], label: str
) -> tuple[bool, frozenset[str]]:
    """Whether a function takes all values as one dict, and the names it needs."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built in
        return True, frozenset(known)
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return False, frozenset(known)
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    if len(needed) == 1 and needed[0].name not in known:
        return True, frozenset(known)
    unknown = [one.name for one in needed if one.name not in known or one.kind not in _BY_NAME]
    if unknown or not needed:
        what = f"has a parameter {unknown[0]!r}" if unknown else "has no parameter"
        raise InputError(
            f"{label}: the function {what}; it takes one dict, or parameters among {', '.join(known)}"
        )
    return False, frozenset(one.name for one in parameters if one.name in known)
