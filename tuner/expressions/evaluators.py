"""What evaluates an expression: closures over an environment, made of those of its parts."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.expressions.arithmetic import MAX_INT, Operation, Value, apply, merged, truth

Evaluator = Callable[[Mapping[str, Value]], Value]
"""Takes scalars or arrays by name."""

_NUMBERS = frozenset({int, float})


def folded(op: Operation, arguments: list[Evaluator]) -> Evaluator:
    """The operation over its arguments from left to right."""
    if len(arguments) == 2:  # noqa: PLR2004 - the common case, without a loop
        return _of_two(op, *arguments)

    def evaluate(env: Mapping[str, Value]) -> Value:
        result = arguments[0](env)
        for argument in arguments[1:]:
            result = apply(op, result, argument(env))
        return result

    return evaluate


def _of_two(op: Operation, left: Evaluator, right: Evaluator) -> Evaluator:
    """The operation on two values; on two numbers, which nearly all are, without further calls."""
    scalar = op.scalar

    def evaluate(env: Mapping[str, Value]) -> Value:
        a, b = left(env), right(env)
        if type(a) in _NUMBERS and type(b) in _NUMBERS:
            try:
                result = scalar(a, b)
            except (OverflowError, ZeroDivisionError):
                return apply(op, a, b)  # says what is wrong
            if -MAX_INT <= result <= MAX_INT:  # larger fractions, and what is not finite, are looked at
                return result
        return apply(op, a, b)

    return evaluate


def chain(parts: list[Evaluator], *, until: bool) -> Evaluator:
    """``or`` (until=True) or ``and`` (until=False): a part decides only what is undecided before it."""
    if len(parts) == 1:
        return lambda env: truth(parts[0](env))

    first, *others = parts

    def evaluate(env: Mapping[str, Value]) -> Value:
        result = truth(first(env))
        for part in others:
            if result is True or result is False:
                if result is until:
                    return until
                result = truth(part(env))
                continue
            undecided = result != until
            if not undecided.any():
                break
            if undecided.all():
                result = np.broadcast_to(truth(part(env)), result.shape)
                continue
            result = result.copy()
            result[undecided] = truth(part(_restricted(env, undecided)))
        return result

    return evaluate


def choice(test: Evaluator, body: Evaluator, orelse: Evaluator) -> Evaluator:
    """``body if test else orelse``: of an array each side gets the elements that it decides."""

    def evaluate(env: Mapping[str, Value]) -> Value:
        where = truth(test(env))
        if where is True or where is False:
            return body(env) if where else orelse(env)
        if where.all() or not where.any():
            taken = (body if where.size and where.flat[0] else orelse)(env)
            return np.broadcast_to(taken, where.shape)
        return merged(where, body(_restricted(env, where)), orelse(_restricted(env, ~where)))

    return evaluate


def _restricted(env: Mapping[str, Value], where: np.ndarray[Any, Any]) -> dict[str, Value]:
    return {name: _part(value, where) for name, value in env.items()}


def _part(value: Value, where: np.ndarray[Any, Any]) -> Value:
    if not isinstance(value, np.ndarray):
        return value
    same = value.shape == where.shape  # nearly always
    return (value if same else np.broadcast_to(value, where.shape))[where]
