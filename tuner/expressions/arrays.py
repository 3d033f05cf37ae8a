"""References over whole arrays: the arithmetic of expressions with NumPy's functions, and nothing else.

Reals are float64, whole numbers int64, complex numbers complex128. Axes, broadcasting and results are
those of the NumPy functions of the same names. An expression is parsed into closures; nothing is ever
handed to Python to evaluate, and ``file(...)`` only names what the caller has read.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tuner.expressions.arithmetic import TroubleError
from tuner.expressions.array_functions import ARRAY_FUNCTIONS, WITH_AXIS, folded, whole, wide
from tuner.expressions.parser import MAX_DEPTH, MAX_NODES, syntax_tree
from tuner.model.errors import ExpressionError, suggestion

Array = NDArray[Any]
FileName = tuple[str, str]
"""Path and key of a ``file(...)`` as they are written; the key is empty where there is none."""

_Environment = Mapping[str | FileName, Any]
_Evaluator = Callable[[_Environment], Any]
_LITERALS = {"true": True, "false": False}


class ArrayExpression:
    """One parsed expression over arrays.

    Attributes:
        text: what the kernel file says.
        names: the names it needs a value for.
        files: the files it needs.
    """

    __slots__ = ("_evaluate", "files", "names", "text")

    def __init__(self, text: str) -> None:
        """Parse ``text``.

        Raises:
            ExpressionError: it is not in the language, too long or nested too deeply.
        """
        self.text = text
        parser = _ArrayParser()
        try:
            self._evaluate = parser.compiled(syntax_tree(text), 0)
        except TroubleError as e:
            raise ExpressionError(f"expression {text[:120]!r}: {e}") from None
        self.names = frozenset(parser.names)
        self.files = tuple(parser.files)

    def evaluate(self, values: Mapping[str, Any], files: Mapping[FileName, Array] | None = None) -> Array:
        """The value with names and files bound; of whatever shape NumPy makes it.

        Args:
            values: scalars and arrays by name.
            files: contents by path and key.

        Raises:
            ExpressionError: a name is not bound, or NumPy has no result for these arrays.
        """
        try:
            with np.errstate(all="ignore"):
                env: dict[str | FileName, Any] = {}
                env.update(values)
                env.update(files or {})
                return np.asarray(self._evaluate(env))
        except MemoryError as e:
            raise ExpressionError(f"expression {self.text[:120]!r}: needs too much memory: {e}") from None
        except (TroubleError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as e:
            raise ExpressionError(f"expression {self.text[:120]!r}: {e}") from None


@dataclass
class _ArrayParser:
    names: set[str] = field(default_factory=set)
    files: list[FileName] = field(default_factory=list)
    nodes: int = 0

    def compiled(self, node: ast.expr, depth: int) -> _Evaluator:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise TroubleError(
                f"more than {MAX_NODES} operations, or nested more than {MAX_DEPTH} levels deep"
            )
        builder = self._builders().get(type(node))
        if builder is None:
            raise TroubleError(f"{type(node).__name__.lower()} is not allowed; {_LANGUAGE}")
        return builder(node, lambda child: self.compiled(child, depth + 1))

    def _builders(self) -> dict[type[ast.expr], Callable[..., _Evaluator]]:
        return {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.Compare: self._compare,
            ast.BoolOp: self._boolean,
            ast.IfExp: self._conditional,
            ast.Call: self._call,
        }

    def _constant(self, node: ast.Constant, _build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        if not isinstance(node.value, bool | int | float | str):
            raise TroubleError(f"{node.value!r} is not allowed; {_LANGUAGE}")
        try:
            value = wide(node.value)
        except OverflowError:
            raise TroubleError("a whole number has more than 63 bits") from None
        return lambda _env: value

    def _name(self, node: ast.Name, _build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        name = node.id
        if name in _LITERALS:
            literal = np.asarray(_LITERALS[name])
            return lambda _env: literal
        if name in ARRAY_FUNCTIONS or name == "file":
            raise TroubleError(f"{name} is a function; write {name}(...)")
        self.names.add(name)

        def evaluate(env: _Environment) -> Any:  # noqa: ANN401 - what NumPy makes of it
            if name not in env:
                raise TroubleError(f"unknown name {name!r}")
            return wide(env[name])

        return evaluate

    def _unary(self, node: ast.UnaryOp, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        function = _UNARY.get(type(node.op))
        if function is None:
            raise TroubleError(f"operator ~ is not allowed; {_LANGUAGE}")
        operand = build(node.operand)
        return lambda env: function(operand(env))

    def _binary(self, node: ast.BinOp, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        function = _BINARY.get(type(node.op))
        if function is None:
            raise TroubleError(f"operator {type(node.op).__name__} is not allowed; {_LANGUAGE}")
        left, right = build(node.left), build(node.right)
        return lambda env: function(_number(left(env)), _number(right(env)))

    def _compare(self, node: ast.Compare, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        lefts = [node.left, *node.comparators]
        pairs = []
        for left, kind, right in zip(lefts, node.ops, node.comparators, strict=False):
            function = _COMPARISONS.get(type(kind))
            if function is None:
                raise TroubleError(f"comparison {type(kind).__name__} is not allowed; {_LANGUAGE}")
            pairs.append((function, build(left), build(right)))
        return lambda env: folded(np.logical_and, [f(left(env), right(env)) for f, left, right in pairs])

    def _boolean(self, node: ast.BoolOp, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        parts = [build(value) for value in node.values]
        function = np.logical_or if isinstance(node.op, ast.Or) else np.logical_and
        return lambda env: folded(function, [part(env) for part in parts])

    def _conditional(self, node: ast.IfExp, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        parts = [build(node.test), build(node.body), build(node.orelse)]
        return lambda env: np.where(*(part(env) for part in parts))

    def _call(self, node: ast.Call, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)[:40]
        if name == "file":
            return self._file(node)
        if name not in ARRAY_FUNCTIONS:
            choices = [*ARRAY_FUNCTIONS, "file"]
            raise TroubleError(
                f"call of {name} is not allowed; functions: {' '.join(choices)}{suggestion(name, choices)}"
            )
        low, high, function = ARRAY_FUNCTIONS[name]
        keywords = {keyword.arg: build(keyword.value) for keyword in node.keywords}
        if not low <= len(node.args) <= high or set(keywords) - ({"axis"} if name in WITH_AXIS else set()):
            most = "or more" if high > len(ARRAY_FUNCTIONS) else f"to {high}"
            raise TroubleError(f"{name} takes {low if low == high else f'{low} {most}'} values")
        arguments = [build(argument) for argument in node.args]
        axis = keywords.get("axis")
        if axis is None:
            return lambda env: function(*(argument(env) for argument in arguments))
        return lambda env: function(*(argument(env) for argument in arguments), axis=whole(axis(env)))

    def _file(self, node: ast.Call) -> _Evaluator:
        name = file_name(node)
        self.files.append(name)
        return lambda env: wide(env[name])


def file_name(call: ast.Call) -> FileName:
    """Path and key of ``file("x.npy")`` or ``file("x.npz", "key")``.

    Raises:
        TroubleError: its arguments are something else.
    """
    texts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    if (
        call.keywords
        or not 1 <= len(call.args) == len(texts) <= 2  # noqa: PLR2004 - path and key
        or not all(isinstance(t, str) for t in texts)
    ):
        raise TroubleError('file takes a path, and of a .npz file a key, as in file("x.npz", "key")')
    path, key = (*cast("list[str]", texts), "")[:2]
    return path, key


def _number(value: Any) -> Any:  # noqa: ANN401 - an array
    """Booleans count as 0 and 1 in arithmetic."""
    return value.astype(np.int64) if value.dtype.kind == "b" else value


def _without_zeros(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def divided(left: Any, right: Any) -> Any:  # noqa: ANN401 - arrays
        if right.dtype.kind in "iub" and not np.all(right):
            raise TroubleError("division by zero")
        return function(left, right)

    return divided


def _power(base: Any, exponent: Any) -> Any:  # noqa: ANN401 - arrays
    """As NumPy's, and a fraction where a whole exponent is below zero."""
    if exponent.dtype.kind == "i" and base.dtype.kind in "iu" and np.any(exponent < 0):
        base = base.astype(np.float64)
    return np.power(base, exponent)


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: np.logical_not,
    ast.USub: lambda x: np.negative(_number(x)),
    ast.UAdd: lambda x: x,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.true_divide,
    ast.FloorDiv: _without_zeros(np.floor_divide),
    ast.Mod: _without_zeros(np.mod),
    ast.Pow: _power,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LANGUAGE = (
    "a reference is made of numbers, names, + - * / // % **, comparisons, and, or, not, a if c else b, and "
    f"{' '.join(ARRAY_FUNCTIONS)} file"
)
