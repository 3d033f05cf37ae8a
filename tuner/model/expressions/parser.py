"""Parsing of expressions into closures over an environment of scalars or arrays.

Only what the tables name is in the language; everything else is refused by its word.
"""

import ast
import functools
import keyword
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.model.errors import suggestion
from tuner.model.expressions.operations import (
    BINARY_FUNCTIONS,
    EQUAL,
    MAX_INT,
    OPERATIONS,
    PLAIN,
    UNARY_FUNCTIONS,
    Operation,
    TroubleError,
    Value,
    apply,
    apply_unary,
    finite,
    inverted,
    merged,
    normal,
    truth,
)

# --- What evaluates an expression: closures over an environment, made of those of its parts.

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
            side = (body if where.size and where.flat[0] else orelse)(env)
            return np.broadcast_to(side, where.shape)
        return merged(where, body(_restricted(env, where)), orelse(_restricted(env, ~where)))

    return evaluate


def _restricted(env: Mapping[str, Value], where: np.ndarray[Any, Any]) -> dict[str, Value]:
    return {name: _part(value, where) for name, value in env.items()}


def _part(value: Value, where: np.ndarray[Any, Any]) -> Value:
    if not isinstance(value, np.ndarray):
        return value
    same = value.shape == where.shape  # nearly always
    return (value if same else np.broadcast_to(value, where.shape))[where]


# --- Parsing, within bounds.

MAX_LENGTH = 1000
MAX_MADE = 10_000  # of a text in which names and values stand for what the user wrote
MAX_DEPTH = 60
MAX_NODES = 2000
_OF_C = (  # what other languages write, and the hint of it
    (re.compile(r"\?"), "; select(a, b, c) stands for a ? b : c"),
    (re.compile(r"&&|\|\||!(?!=)"), "; and, or, not stand for && || !"),
    (re.compile(r"[^<>=!]=(?!=)"), "; == compares"),
)


def parse(text: str, most: int = MAX_LENGTH) -> tuple[Evaluator, frozenset[str]]:
    """Return the evaluator of an expression of at most so many characters, and the names it needs.

    Raises:
        TroubleError: it is not in the language, or too long or deep.
    """
    if not isinstance(text, str):
        raise TroubleError("an expression is text")
    return _parsed(text, most)


@functools.lru_cache(maxsize=1024)  # kernels have many expressions in common
def _parsed(text: str, most: int) -> tuple[Evaluator, frozenset[str]]:
    scope = _Scope()
    evaluator = _compile(syntax_tree(text, most), scope, 0)
    return evaluator, frozenset(scope.names)


def syntax_tree(text: str, most: int = MAX_LENGTH) -> ast.expr:
    """The syntax tree of an expression of bounded length; nothing in it is evaluated.

    Raises:
        TroubleError: it is too long, or no expression.
    """
    if not isinstance(text, str):
        raise TroubleError("an expression is text")
    if len(text) > most:
        raise TroubleError(f"{len(text)} characters, at most {most} are allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as e:
        hint = next((hint for pattern, hint in _OF_C if pattern.search(text)), "")
        raise TroubleError(f"not an expression ({e.msg}{hint})") from None
    except (ValueError, RecursionError, MemoryError):
        raise TroubleError("not an expression") from None


@dataclass
class _Scope:
    names: set[str] = field(default_factory=set)
    nodes: int = 0


def _compile(node: ast.expr, scope: _Scope, depth: int) -> Evaluator:
    scope.nodes += 1
    if scope.nodes > MAX_NODES:  # operands that are used twice count twice: this bounds time, too
        raise TroubleError(f"more than {MAX_NODES} operations")
    if depth > MAX_DEPTH:
        raise TroubleError(f"nested more than {MAX_DEPTH} levels deep")
    builder = _BUILDERS.get(type(node))
    if builder is None:
        raise TroubleError(f"{_WORDS.get(type(node), type(node).__name__)} is not allowed; {_LANGUAGE}")
    return builder(node, lambda child: _compile(child, scope, depth + 1), scope.names)


FUNCTIONS: dict[str, tuple[int, int]] = {  # least and most values of each
    "ceil_div": (2, 2),
    "gcd": (2, 2),
    "balanced_factor": (2, 2),
    "index_of": (2, 2),
    "min": (2, MAX_LENGTH),
    "max": (2, MAX_LENGTH),
    "abs": (1, 1),
    "log2": (1, 1),
    "ceil": (1, 1),
    "floor": (1, 1),
    "int": (1, 1),
    "select": (3, 3),
    "is_pow2": (1, 1),
    "next_pow2": (1, 1),
}
_LANGUAGE = (
    "an expression is made of numbers, text, names, + - * / // % **, comparisons, in (...), and, or, not, "
    f"a if c else b, and {' '.join(FUNCTIONS)}"
)
_WORDS = {
    ast.Attribute: "attribute access",
    ast.Subscript: "indexing",
    ast.Lambda: "lambda",
    ast.JoinedStr: "a formatted string",
    ast.Tuple: "a tuple outside of 'in (...)'",
    ast.List: "a list outside of 'in (...)'",
    ast.NamedExpr: "assignment",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
}
_Build = Callable[[ast.expr], Evaluator]


def _constant(node: ast.Constant, _build: _Build, _names: set[str]) -> Evaluator:
    value = node.value
    if not isinstance(value, bool | int | float | str):
        raise TroubleError(f"{value!r} is not allowed; {_LANGUAGE}")
    if not isinstance(value, str):
        finite(value)
    return _always(value)


@functools.lru_cache(maxsize=1024, typed=True)  # expressions have many leaves in common
def _always(value: Value) -> Evaluator:
    return lambda _env: value


def _name(node: ast.Name, _build: _Build, names: set[str]) -> Evaluator:
    name = node.id
    if name in _LITERALS:
        return _always(_LITERALS[name])
    if name in FUNCTIONS:
        raise TroubleError(f"{name} is a function; write {name}(...)")
    names.add(name)
    return _named(name)


@functools.lru_cache(maxsize=1024)
def _named(name: str) -> Evaluator:
    def evaluate(env: Mapping[str, Value]) -> Value:
        try:
            value = env[name]
        except KeyError:
            names = sorted(env)
            hint = suggestion(name, names)
            raise TroubleError(f"unknown name {name!r} (known: {', '.join(names)}){hint}") from None
        return value if type(value) in PLAIN else normal(value, name)

    return evaluate


def _unary(node: ast.UnaryOp, build: _Build, _names: set[str]) -> Evaluator:
    operand = build(node.operand)
    if isinstance(node.op, ast.Not):
        return lambda env: inverted(truth(operand(env)))
    if isinstance(node.op, ast.USub | ast.UAdd):
        op = OPERATIONS["Sub" if isinstance(node.op, ast.USub) else "Add"]
        return lambda env: apply(op, 0, operand(env))
    raise TroubleError(f"operator ~ is not allowed; {_LANGUAGE}")


def _binary(node: ast.BinOp, build: _Build, _names: set[str]) -> Evaluator:
    op = OPERATIONS.get(type(node.op).__name__)
    if op is None:
        raise TroubleError(f"operator {type(node.op).__name__} is not allowed; {_LANGUAGE}")
    return folded(op, [build(node.left), build(node.right)])


def _compare(node: ast.Compare, build: _Build, _names: set[str]) -> Evaluator:
    lefts = [node.left, *node.comparators]  # a < b < c is a < b and b < c: there are no side effects
    pairs = [
        _comparison(left, kind, right, build)
        for left, kind, right in zip(lefts, node.ops, node.comparators, strict=False)
    ]
    return chain(pairs, until=False)


def _comparison(left: ast.expr, kind: ast.cmpop, right: ast.expr, build: _Build) -> Evaluator:
    if isinstance(kind, ast.In | ast.NotIn):
        if not isinstance(right, ast.Tuple | ast.List) or not right.elts:
            raise TroubleError("'in' needs a list of values, as in: x in (1, 2, 4)")
        member = chain([folded(EQUAL, [build(left), build(item)]) for item in right.elts], until=True)
        return member if isinstance(kind, ast.In) else lambda env: inverted(member(env))
    op = OPERATIONS.get(type(kind).__name__)
    if op is None:
        raise TroubleError(f"comparison {type(kind).__name__} is not allowed; {_LANGUAGE}")
    return folded(op, [build(left), build(right)])


def _boolean(node: ast.BoolOp, build: _Build, _names: set[str]) -> Evaluator:
    return chain([build(value) for value in node.values], until=isinstance(node.op, ast.Or))


def _conditional(node: ast.IfExp, build: _Build, _names: set[str]) -> Evaluator:
    return choice(build(node.test), build(node.body), build(node.orelse))


def _call(node: ast.Call, build: _Build, _names: set[str]) -> Evaluator:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)[:40]
    if name not in FUNCTIONS:
        hint = suggestion(name, FUNCTIONS)
        functions = f"functions: {' '.join(FUNCTIONS)}, and in [derived] its own"
        raise TroubleError(f"call of {name} is not allowed; {functions}{hint}")
    arguments = [build(argument) for argument in node.args]
    low, high = FUNCTIONS[name]
    if node.keywords or not low <= len(arguments) <= high:
        raise TroubleError(f"{name} takes {low if low == high else f'{low} or more'} values")
    if name == "select":
        return choice(*arguments)
    if name in UNARY_FUNCTIONS:
        function, only = UNARY_FUNCTIONS[name], arguments[0]
        return lambda env: apply_unary(function, only(env))
    return folded(BINARY_FUNCTIONS[name], arguments)


_LITERALS = {"true": True, "false": False}  # as TOML spells them
RESERVED = frozenset({*FUNCTIONS, *_LITERALS, *keyword.kwlist})
_BUILDERS: dict[type[ast.expr], Callable[..., Evaluator]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.IfExp: _conditional,
    ast.Call: _call,
}
