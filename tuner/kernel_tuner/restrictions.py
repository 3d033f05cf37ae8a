"""``restrictions`` as rules of a space: texts become expressions, functions get the parameters."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.expressions.callables import PythonExpression
from tuner.expressions.expression import Expression
from tuner.kernel_tuner.parameters import UserValue, parsed
from tuner.model.errors import ExpressionError, InputError, UnsupportedError

_PAIR = (2, 3)  # a function, the names it takes, and perhaps its source


def rules_of(restrictions: UserValue, tunables: Sequence[str]) -> list[Expression]:
    """The rules of ``restrictions``.

    Args:
        restrictions: a text, a function of the parameters, a pair of a function and the names it takes, or a
            list of these; None for none.
        tunables: names of the parameters, in their order.

    Raises:
        InputError: a text is no expression over the parameters, or something else is given.
        UnsupportedError: a constraint object that is no function.
    """
    if restrictions is None:
        return []
    listed = restrictions if isinstance(restrictions, list) else [restrictions]
    return [_rule(f"restrictions[{i}]", one, tunables) for i, one in enumerate(listed)]


def _rule(argument: str, given: UserValue, tunables: Sequence[str]) -> Expression:
    if isinstance(given, str):
        return _expression(argument, given, tunables)
    if type(given).__module__.split(".")[0] == "constraint":  # of python-constraint
        function = getattr(given, "_func", None)
        if function is None:
            raise UnsupportedError(f"{argument}: {type(given).__name__} is not supported; write it as a text")
        return PythonExpression(_in_order(function, tunables), tunables, argument)
    if isinstance(given, tuple) and len(given) in _PAIR and callable(given[0]):
        return PythonExpression(_by_name(argument, given[0], given[1], tunables), tunables, argument)
    if not callable(given):
        raise InputError(f"{argument}: {given!r} is neither a text nor a function")
    if _takes_values(given):
        return PythonExpression(_in_order(given, tunables), tunables, argument)
    return PythonExpression(given, tunables, argument)


def _expression(argument: str, text: str, tunables: Sequence[str]) -> Expression:
    try:
        rule = parsed(text)
    except ExpressionError as error:
        raise InputError(f"{argument}: {error}; a function of the parameters may stand there too") from error
    unknown = sorted(rule.names.difference(tunables))
    if unknown:
        raise InputError(f"{argument}: {text!r}: unknown name {unknown[0]!r}; known: {', '.join(tunables)}")
    return rule


def _takes_values(function: Callable[..., Any]) -> bool:
    """True for a function of all values in order."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of no Python code
        return False
    return any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)


def _in_order(function: Callable[..., Any], tunables: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda params: bool(function(*(params[name] for name in tunables)))


def _by_name(
    argument: str, function: Callable[..., Any], names: UserValue, tunables: Sequence[str]
) -> Callable[[Mapping[str, Any]], bool]:
    unknown = [name for name in names if name not in tunables]
    if unknown:
        raise InputError(f"{argument}: unknown name {unknown[0]!r}; known: {', '.join(tunables)}")
    return lambda params: bool(function(**{name: params[name] for name in names}))
