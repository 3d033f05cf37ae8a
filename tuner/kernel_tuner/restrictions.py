"""``restrictions`` as rules of a space: texts become expressions, functions get the parameters."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import ExpressionError, InputError, UnsupportedError
from tuner.expressions import Expression
from tuner.kernel_tuner.parameters import UserValue, called, parsed
from tuner.model import TunableValue


@dataclass(frozen=True)
class FunctionRule:
    """A restriction that is a function; a rule of a space.

    Attributes:
        names: the parameters it depends on.
        text: what messages call it.
        holds: tells by the values of the names whether a configuration is allowed.
    """

    names: frozenset[str]
    text: str
    holds: Callable[[Mapping[str, TunableValue]], bool]

    def evaluate(self, env: Mapping[str, TunableValue]) -> bool:
        """Whether the configuration in ``env`` is allowed.

        Raises:
            InputError: the function raises.
        """
        return self.holds(env)


Restriction = Expression | FunctionRule


def rules_of(restrictions: UserValue, tunables: Sequence[str]) -> list[Restriction]:
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


def _rule(argument: str, given: UserValue, tunables: Sequence[str]) -> Restriction:
    if isinstance(given, str):
        return _expression(argument, given, tunables)
    if type(given).__module__.split(".")[0] == "constraint":  # of python-constraint
        function = getattr(given, "_func", None)
        if function is None:
            raise UnsupportedError(f"{argument}: {type(given).__name__} is not supported; write it as a text")
        return _function_rule(argument, function, tunables, tunables, by_position=True)
    if isinstance(given, tuple) and len(given) in (2, 3) and callable(given[0]):
        return _function_rule(argument, given[0], tuple(given[1]), tunables)
    if callable(given):
        return _by_signature(argument, given, tunables)
    raise InputError(f"{argument}: {given!r} is neither a text nor a function")


def _expression(argument: str, text: str, tunables: Sequence[str]) -> Expression:
    try:
        rule = parsed(text)
    except ExpressionError as error:
        raise InputError(f"{argument}: {error}; a function of the parameters may stand there too") from error
    unknown = sorted(rule.names.difference(tunables))
    if unknown:
        raise InputError(f"{argument}: {text!r}: unknown name {unknown[0]!r}; known: {', '.join(tunables)}")
    return rule


def _by_signature(argument: str, function: Callable[..., Any], tunables: Sequence[str]) -> FunctionRule:
    """A function of a dict of all parameters, of some of them by name, or of all in order."""
    try:
        taken = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of no Python code
        taken = []
    kinds = [one.kind for one in taken]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return _function_rule(argument, function, tunables, tunables, by_position=True)
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return _function_rule(argument, function, tunables, tunables)
    names = tuple(one.name for one in taken)
    if names and all(name in tunables for name in names):
        return _function_rule(argument, function, names, tunables)

    def of_dict(env: Mapping[str, TunableValue]) -> bool:
        return bool(called(function, argument, {name: env[name] for name in tunables}))

    return FunctionRule(frozenset(tunables), _shown(argument, function), of_dict)


def _function_rule(
    argument: str,
    function: Callable[..., Any],
    names: Sequence[str],
    tunables: Sequence[str],
    *,
    by_position: bool = False,
) -> FunctionRule:
    unknown = [name for name in names if name not in tunables]
    if unknown:
        raise InputError(f"{argument}: unknown name {unknown[0]!r}; known: {', '.join(tunables)}")

    def holds(env: Mapping[str, TunableValue]) -> bool:
        if by_position:
            return bool(called(function, argument, *(env[name] for name in names)))
        return bool(called(function, argument, **{name: env[name] for name in names}))

    return FunctionRule(frozenset(names), _shown(argument, function), holds)


def _shown(argument: str, function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return argument if name == "<lambda>" else f"{argument} ({name})"
