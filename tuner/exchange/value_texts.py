"""Lists of values as texts of Python, parsed and never run: literals, ranges, comprehensions, sums."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tuner.model.plan import TunableValue

MAX_LENGTH = 10_000  # characters of a text
MAX_VALUES = 100_000
_MAX_NUMBER = 2**63
_MAX_POWER = 64
_MAX_DEPTH = 60
_FORMS = (
    "a list as [16, 32], range(1, 9), [2**i for i in range(6)], list(range(32, 1025, 32)), or a sum of these"
)

_Number = int | float
_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def values_of(text: object) -> tuple[TunableValue, ...]:
    """The values that a text lists.

    Args:
        text: the text; or a list, which stands for itself.

    Raises:
        ValueError: it is of another form, or lists nothing; nothing of it was run.
    """
    if isinstance(text, list):
        found = tuple(text)
    elif not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ValueError(f"must be a text of at most {MAX_LENGTH} characters: {_FORMS}")
    else:
        found = tuple(_list(_parsed(text), {}))
    if not all(isinstance(one, (bool, int, float, str)) for one in found):
        raise ValueError("a value is no number, text, true or false")
    if not found:
        raise ValueError("lists no value")
    return tuple(dict.fromkeys(found))


def _parsed(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"{_shown(text)} is not {_FORMS}") from None
    _check_depth(tree)
    return tree


def _check_depth(tree: ast.AST) -> None:
    level = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise ValueError("is nested too deeply")


def _list(node: ast.expr, names: Mapping[str, _Number]) -> list[TunableValue]:
    """The values of a list, a range, a comprehension, or a sum of them."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_element(one, names) for one in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _limited([*_list(node.left, names), *_list(node.right, names)])
    if isinstance(node, ast.ListComp):
        return _comprehension(node, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id == "list" and len(node.args) == 1:
            return _list(node.args[0], names)
        if node.func.id == "range" and 1 <= len(node.args) <= 3:  # noqa: PLR2004 - start, stop, step
            return list(_range([_number(one, names) for one in node.args]))
    raise _refused(node)


def _comprehension(node: ast.ListComp, names: Mapping[str, _Number]) -> list[TunableValue]:
    if len(node.generators) != 1:
        raise ValueError("has more than one loop in a comprehension")
    loop = node.generators[0]
    if not isinstance(loop.target, ast.Name) or loop.is_async:
        raise _refused(loop.target)
    found: list[TunableValue] = []
    for value in _list(loop.iter, names):
        if isinstance(value, str):
            raise ValueError("loops over texts")  # noqa: TRY004 - of a file
        inner = {**names, loop.target.id: value}
        if all(_condition(one, inner) for one in loop.ifs):
            found.append(_element(node.elt, inner))
    return found


def _condition(node: ast.expr, names: Mapping[str, _Number]) -> bool:
    compared: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in compared:
        return compared[type(node.ops[0])](_number(node.left, names), _number(node.comparators[0], names))
    raise _refused(node)


def _element(node: ast.expr, names: Mapping[str, _Number]) -> TunableValue:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, str)):
        return node.value
    return _number(node, names)


def _number(node: ast.expr, names: Mapping[str, _Number]) -> _Number:
    value: Any
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
    elif isinstance(node, ast.Name) and node.id in names:
        value = names[node.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _number(node.operand, names) * (-1 if isinstance(node.op, ast.USub) else 1)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        value = _operated(node, names)
    else:
        raise _refused(node)
    if isinstance(value, complex) or not abs(value) < _MAX_NUMBER:
        raise ValueError(f"{_shown(ast.unparse(node))} is no number below 2**63")
    found: _Number = value
    return found


def _operated(node: ast.BinOp, names: Mapping[str, _Number]) -> Any:  # noqa: ANN401 - the caller looks at it
    left, right = _number(node.left, names), _number(node.right, names)
    if isinstance(node.op, ast.Pow) and abs(right) > _MAX_POWER:
        raise ValueError(f"{_shown(ast.unparse(node))}: an exponent is at most {_MAX_POWER}")
    try:
        return _OPERATIONS[type(node.op)](left, right)
    except ArithmeticError as error:
        raise ValueError(f"{_shown(ast.unparse(node))}: {error}") from None


def _range(bounds: list[_Number]) -> range:
    if not all(isinstance(bound, int) for bound in bounds) or bounds[2:] == [0]:
        raise ValueError("a range has whole bounds and a step other than 0")
    found = range(*map(int, bounds))
    if found[MAX_VALUES:]:  # its length may be more than len() can tell
        raise ValueError(f"lists more than {MAX_VALUES} values")
    return found


def _limited(values: list[TunableValue]) -> list[TunableValue]:
    if len(values) > MAX_VALUES:
        raise ValueError(f"lists {len(values)} values, at most {MAX_VALUES} are allowed")
    return values


def _refused(node: ast.AST) -> ValueError:
    return ValueError(f"{_shown(ast.unparse(node))} is not allowed here; write {_FORMS}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")  # noqa: PLR2004 - characters of a line
