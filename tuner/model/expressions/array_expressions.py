"""Expressions over whole arrays, and expressions with some of their names known."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tuner.model.errors import ExpressionError, suggestion
from tuner.model.expressions.callables import Expression
from tuner.model.expressions.operations import TroubleError, Value
from tuner.model.expressions.parser import FUNCTIONS, MAX_DEPTH, MAX_MADE, MAX_NODES, syntax_tree

# --- The functions of references over whole arrays.

_MANY = MAX_NODES
_NAMED = {**dict.fromkeys(("sum", "mean", "min", "max"), ("axis", "keepdims")), "cumsum": ("axis",)}


def wide(value: Any) -> Any:  # noqa: ANN401 - a scalar or an array
    """A value in the widest type of its kind, so that whole numbers have 64 bits wherever they come from."""
    array = np.asarray(value)
    target = {"f": np.float64, "i": np.int64, "u": np.int64, "c": np.complex128}.get(array.dtype.kind)
    if array.dtype == np.uint64 or target is None:
        return array
    return array.astype(target, copy=False)


def folded(function: Callable[[Any, Any], Any], values: list[Any]) -> Any:  # noqa: ANN401 - arrays
    """The values put together from the left, two at a time."""
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


def whole(value: Any) -> int:  # noqa: ANN401 - a number of whatever type
    """An axis as an int.

    Raises:
        TroubleError: it is no whole number.
    """
    if np.ndim(value) or np.asarray(value).dtype.kind not in "iu":
        raise TroubleError("an axis is a whole number")
    return int(value)


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    def applied(x: Any, axis: Any = None, **keywords: Any) -> Any:  # noqa: ANN401 - arrays
        return function(x, axis=None if axis is None else whole(axis), **keywords)

    return applied


def _extreme(pairwise: Callable[[Any, Any], Any], reduced: Callable[..., Any]) -> Callable[..., Any]:
    """The extreme of one array, or element by element of several."""

    def applied(*values: Any, **keywords: Any) -> Any:  # noqa: ANN401 - arrays
        if len(values) == 1:
            return reduced(values[0], **keywords)
        if keywords:
            raise TroubleError(f"{' and '.join(keywords)} of several arrays; give a single one")
        return folded(pairwise, list(values))

    return applied


def _transposed(x: Any, *axes: Any) -> Any:  # noqa: ANN401 - arrays
    return np.transpose(x, [whole(axis) for axis in axes] or None)


# --- Expressions over whole arrays.

ARRAY_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Any]]] = {  # least and most values
    "sqrt": (1, 1, np.sqrt),
    "exp": (1, 1, np.exp),
    "log": (1, 1, np.log),
    "log2": (1, 1, np.log2),
    "sin": (1, 1, np.sin),
    "cos": (1, 1, np.cos),
    "tanh": (1, 1, np.tanh),
    "abs": (1, 1, np.abs),
    "floor": (1, 1, np.floor),
    "ceil": (1, 1, np.ceil),
    "int": (1, 1, lambda x: np.trunc(x).astype(np.int64)),
    "min": (1, _MANY, _extreme(np.minimum, np.min)),
    "max": (1, _MANY, _extreme(np.maximum, np.max)),
    "sum": (1, 2, _along(np.sum)),
    "mean": (1, 2, _along(np.mean)),
    "cumsum": (1, 2, _along(np.cumsum)),
    "matmul": (2, 2, np.matmul),
    "transpose": (1, 9, _transposed),
    "where": (3, 3, np.where),
    "select": (3, 3, np.where),
}


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

    def evaluate(self, values: Mapping[str, Value], files: Mapping[FileName, Array] | None = None) -> Array:
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
        return _fitting(
            [node.left, node.right],
            [lambda env: _number(left(env)), lambda env: _number(right(env))],
            function,
        )

    def _compare(self, node: ast.Compare, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        lefts = [node.left, *node.comparators]
        pairs = []
        for left, kind, right in zip(lefts, node.ops, node.comparators, strict=False):
            function = _COMPARISONS.get(type(kind))
            if function is None:
                raise TroubleError(f"comparison {type(kind).__name__} is not allowed; {_LANGUAGE}")
            pairs.append(_fitting([left, right], [build(left), build(right)], function))
        return lambda env: folded(np.logical_and, [compared(env) for compared in pairs])

    def _boolean(self, node: ast.BoolOp, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        parts = [build(value) for value in node.values]
        function = np.logical_or if isinstance(node.op, ast.Or) else np.logical_and
        return _fitting(node.values, parts, lambda *values: folded(function, list(values)))

    def _conditional(self, node: ast.IfExp, build: Callable[[ast.expr], _Evaluator]) -> _Evaluator:
        nodes = [node.test, node.body, node.orelse]
        return _fitting(nodes, [build(part) for part in nodes], np.where)

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
        if not low <= len(node.args) <= high:
            most = "or more" if high > len(ARRAY_FUNCTIONS) else f"to {high}"
            raise TroubleError(f"{name} takes {low if low == high else f'{low} {most}'} values")
        known = _NAMED.get(name, ())
        for keyword in node.keywords:
            if keyword.arg not in known:
                takes = f"takes {' and '.join(known)}" if known else "takes no names"
                raise TroubleError(f"{name} {takes} beside its values, not {keyword.arg}")
        keywords = {str(keyword.arg): build(keyword.value) for keyword in node.keywords}
        return _fitting(node.args, [build(argument) for argument in node.args], function, keywords)

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


def _fitting(
    nodes: Sequence[ast.expr],
    parts: Sequence[_Evaluator],
    function: Callable[..., Any],
    keywords: Mapping[str, _Evaluator] | None = None,
) -> _Evaluator:
    """A function of the values of some parts; an error names all shapes where they do not fit."""

    def evaluate(env: _Environment) -> Any:  # noqa: ANN401 - arrays
        values = [part(env) for part in parts]
        named = {key: _KEYWORDS[key](value(env)) for key, value in (keywords or {}).items()}
        try:
            return function(*values, **named)
        except ValueError as error:
            shapes = [
                f"{ast.unparse(node):.60} has {list(value.shape)}"
                for node, value in zip(nodes, map(np.asarray, values), strict=True)
                if value.ndim
            ]
            if len(shapes) < 2 or isinstance(error, IndexError):  # noqa: PLR2004 - an axis that is not there
                raise
            reduced = any(isinstance(n, ast.Call) and "axis" in ast.unparse(n) for n in nodes)
            hint = "; keepdims=true keeps an axis that is reduced, with length 1" if reduced else ""
            raise TroubleError(
                f"shapes do not fit: {', '.join(shapes[:-1])}, and {shapes[-1]}{hint}"
            ) from error

    return evaluate


def _truth(value: Any) -> bool:  # noqa: ANN401 - a number of whatever type
    if np.ndim(value) or np.asarray(value).dtype.kind != "b":
        raise TroubleError("keepdims is true or false")
    return bool(value)


_KEYWORDS: dict[str, Callable[[Any], Any]] = {"axis": whole, "keepdims": _truth}


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


# --- Expressions with some of their names known: what is left over the others.

_MOST_INLINED = 20_000  # characters: formulas that name formulas may grow beyond all use


def reduced(text: str, values: Mapping[str, Value], formulas: Mapping[str, str]) -> str:
    """The expression with known names replaced, and everything that they decide worked out.

    Args:
        text: the expression.
        values: names that are known: bool, int, float or str. The others are whole numbers or texts.
        formulas: names that stand for an expression; those may name each other, but not in a circle.

    Returns:
        An expression over the other names; ``True`` or ``False`` where none is left of a condition.

    Raises:
        ExpressionError: it is no expression, or too long with all that it names.
    """
    return reducer(values, formulas)(text)


def reducer(values: Mapping[str, Value], formulas: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that does ``reduced`` for many expressions and reduces each formula only once."""
    reduction = _Reduction(values, formulas)

    def reduced_text(text: str) -> str:
        try:
            left = ast.unparse(reduction.reduced(text))
        except TroubleError as e:
            raise ExpressionError(f"expression {text!r:.120}: {e}") from None
        if len(left) > _MOST_INLINED:
            raise ExpressionError(f"expression {text!r:.120}: it is too long with all that it names")
        return left

    return reduced_text


class _Reduction(ast.NodeTransformer):
    """Folds what has no unknown name, and the sides of conditions that are not taken."""

    def __init__(self, values: Mapping[str, Value], formulas: Mapping[str, str]) -> None:
        self._values = values
        self._formulas = formulas
        self._under_way: set[str] = set()
        self._trees: dict[str, ast.expr] = {}  # what is left of formulas

    def reduced(self, text: str) -> ast.expr:
        """Return the syntax tree of an expression, reduced."""
        self._under_way.clear()  # of one that was too long
        tree: ast.expr = self.visit(syntax_tree(text))
        return tree

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._values:
            return ast.Constant(self._values[node.id])
        if node.id not in self._formulas or node.id in self._under_way:
            return node
        if node.id not in self._trees:
            self._under_way.add(node.id)
            tree: ast.expr = self.visit(syntax_tree(self._formulas[node.id], MAX_MADE))
            self._under_way.discard(node.id)
            if any(count >= _MOST_INLINED for count, _ in enumerate(ast.walk(tree))):  # a character each
                raise TroubleError(f"{node.id} is too long with all that it names")
            self._trees[node.id] = tree
        return self._trees[node.id]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "select" and len(node.args) == 3:  # noqa: PLR2004
            test, body, orelse = node.args
            return self.visit_IfExp(ast.IfExp(test, body, orelse))
        return _folded(ast.Call(node.func, [self.visit(argument) for argument in node.args], node.keywords))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            branch: ast.expr = self.visit(node.body if test.value else node.orelse)
            return branch
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        until = isinstance(node.op, ast.Or)
        undecided: list[ast.expr] = []
        for value in node.values:
            part = self.visit(value)
            if not isinstance(part, ast.Constant):
                undecided.append(part)
            elif bool(part.value) is until:  # decides, if what stands before it does not
                undecided.append(ast.Constant(until))
                break
        if not undecided or (isinstance(undecided[-1], ast.Constant) and len(undecided) == 1):
            return ast.Constant(until if undecided else not until)
        return undecided[0] if len(undecided) == 1 else ast.BoolOp(node.op, undecided)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) == 1:
            return self._compared(node)
        lefts = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.Compare(left, [op], [right])
            for left, op, right in zip(lefts, node.ops, node.comparators, strict=False)
        ]
        return self.visit_BoolOp(ast.BoolOp(ast.And(), pairs))

    def _compared(self, node: ast.Compare) -> ast.expr:
        (op,), (right,) = node.ops, node.comparators
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List):
            listed = ast.Tuple([self.visit(item) for item in right.elts], ast.Load())
            return _folded(ast.Compare(self.visit(node.left), [op], [listed]))
        return _folded(ast.Compare(self.visit(node.left), [op], [self.visit(right)]))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(left, ast.Name) and isinstance(right, ast.Constant) and right.value == 1:
            if isinstance(node.op, ast.Mod):  # names that are left are whole numbers, or no numbers
                return ast.Constant(0)
            if isinstance(node.op, ast.FloorDiv | ast.Mult):
                return left
        return _folded(ast.BinOp(left, node.op, right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return _folded(ast.UnaryOp(node.op, self.visit(node.operand)))


def _folded(node: ast.expr) -> ast.expr:
    """A constant where all parts are, as what could be folded of them is, and there is a result."""
    if not all(map(_is_known, ast.iter_child_nodes(node))):
        return node
    try:
        return ast.Constant(Expression(ast.unparse(node)).evaluate({}))
    except ExpressionError:  # whoever comes to it hears of it
        return node


def _is_known(part: ast.AST) -> bool:
    """Return True if a part of an operation is a value, a list of values, or no operand."""
    if isinstance(part, ast.Tuple):
        return all(isinstance(item, ast.Constant) for item in part.elts)
    if isinstance(part, ast.Name):
        return part.id in FUNCTIONS
    return isinstance(part, ast.Constant) or not isinstance(part, ast.expr)
