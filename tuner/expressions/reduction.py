"""Expressions with some of their names known: what is left over the others."""

import ast
from collections.abc import Callable, Mapping

from tuner.expressions.arithmetic import TroubleError, Value
from tuner.expressions.expression import Expression
from tuner.expressions.parser import FUNCTIONS, syntax_tree
from tuner.model.errors import ExpressionError

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
    """What does the same as ``reduced`` to many expressions; what is left of formulas is found once."""
    reduction = _Reduction(values, formulas)

    def reduced_text(text: str) -> str:
        try:
            found = ast.unparse(reduction.reduced(text))
        except TroubleError as e:
            raise ExpressionError(f"expression {text!r:.120}: {e}") from None
        if len(found) > _MOST_INLINED:
            raise ExpressionError(f"expression {text!r:.120}: it is too long with all that it names")
        return found

    return reduced_text


class _Reduction(ast.NodeTransformer):
    """Folds what has no unknown name, and the sides of conditions that are not taken."""

    def __init__(self, values: Mapping[str, Value], formulas: Mapping[str, str]) -> None:
        self._values = values
        self._formulas = formulas
        self._under_way: set[str] = set()
        self._found: dict[str, ast.expr] = {}  # what is left of formulas

    def reduced(self, text: str) -> ast.expr:
        """What is left of an expression."""
        self._under_way.clear()  # of one that was too long
        found: ast.expr = self.visit(syntax_tree(text))
        return found

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._values:
            return ast.Constant(self._values[node.id])
        if node.id not in self._formulas or node.id in self._under_way:
            return node
        if node.id not in self._found:
            self._under_way.add(node.id)
            found: ast.expr = self.visit(syntax_tree(self._formulas[node.id]))
            self._under_way.discard(node.id)
            if any(count >= _MOST_INLINED for count, _ in enumerate(ast.walk(found))):  # a character each
                raise TroubleError(f"{node.id} is too long with all that it names")
            self._found[node.id] = found
        return self._found[node.id]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "select" and len(node.args) == 3:  # noqa: PLR2004
            test, body, orelse = node.args
            return self.visit_IfExp(ast.IfExp(test, body, orelse))
        return _folded(ast.Call(node.func, [self.visit(one) for one in node.args], node.keywords))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            found: ast.expr = self.visit(node.body if test.value else node.orelse)
            return found
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        until = isinstance(node.op, ast.Or)
        left: list[ast.expr] = []
        for value in node.values:
            part = self.visit(value)
            if not isinstance(part, ast.Constant):
                left.append(part)
            elif bool(part.value) is until:  # decides, if what stands before it does not
                left.append(ast.Constant(until))
                break
        if not left or (isinstance(left[-1], ast.Constant) and len(left) == 1):
            return ast.Constant(until if left else not until)
        return left[0] if len(left) == 1 else ast.BoolOp(node.op, left)

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
            listed = ast.Tuple([self.visit(one) for one in right.elts], ast.Load())
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
    """Whether a part of an operation is a value, a list of values, or no operand."""
    if isinstance(part, ast.Tuple):
        return all(isinstance(one, ast.Constant) for one in part.elts)
    if isinstance(part, ast.Name):
        return part.id in FUNCTIONS
    return isinstance(part, ast.Constant) or not isinstance(part, ast.expr)
