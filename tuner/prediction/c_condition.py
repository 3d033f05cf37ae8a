"""A condition over sizes in C: whole numbers are ``long long``, texts are strings."""

import ast
from collections.abc import Collection, Mapping

from tuner.expressions.reduction import reduced
from tuner.model.errors import InputError

_PLAIN = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_CALLED = {ast.FloorDiv: "floor_div", ast.Mod: "mod"}
_FUNCTIONS = ("ceil_div", "min", "max", "abs", "gcd", "is_pow2", "next_pow2")
_MOST_EXPONENT = 8
_HELPERS: Mapping[str, tuple[str, str]] = {  # parameters and body; they round as Python does
    "floor_div": (
        "long long a, long long b",
        "return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));",
    ),
    "mod": (
        "long long a, long long b",
        "return b == 0 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);",
    ),
    "ceil_div": (
        "long long a, long long b",
        "return b == 0 ? 0 : a / b + (a % b != 0 && (a < 0) == (b < 0));",
    ),
    "min": ("long long a, long long b", "return b < a ? b : a;"),
    "max": ("long long a, long long b", "return b > a ? b : a;"),
    "abs": ("long long a", "return a < 0 ? -a : a;"),
    "gcd": (
        "long long a, long long b",
        "while (b != 0) { long long c = a % b; a = b; b = c; } return a < 0 ? -a : a;",
    ),
    "is_pow2": ("long long a", "return a > 0 && (a & (a - 1)) == 0;"),
    "next_pow2": ("long long a", "long long p = 1; while (p < a) p *= 2; return p;"),
}


class CConditions:
    """Writes conditions in C, and remembers which helpers they need.

    Args:
        prefix: of the names of helpers.
        texts: sizes that are strings.
    """

    def __init__(self, prefix: str, texts: Collection[str]) -> None:
        self._prefix = prefix
        self._texts = frozenset(texts)
        self._needed: set[str] = set()

    def written(self, condition: str) -> str:
        """An expression of C that is not 0 where the condition is true.

        Raises:
            InputError: it has something that is not said in C here.
        """
        return self._c(ast.parse(reduced(condition, {}, {}), mode="eval").body)

    def helpers(self) -> list[str]:
        """Functions that what was written calls."""
        return [
            f"static inline long long {self._prefix}_{name}({parameters}) {{ {body} }}"
            for name, (parameters, body) in _HELPERS.items()
            if name in self._needed
        ]

    def _c(self, node: ast.expr) -> str:  # noqa: PLR0911 - one of each kind
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return f"{int(node.value)}" if abs(node.value) < 2**31 else f"{node.value}LL"
        if isinstance(node, ast.Name) and node.id in {"true", "false"}:
            return str(int(node.id == "true"))
        if isinstance(node, ast.Name) and node.id not in self._texts:
            return node.id
        if isinstance(node, ast.BoolOp):
            word = " || " if isinstance(node.op, ast.Or) else " && "
            return f"({word.join(map(self._c, node.values))})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.UAdd):
            sign = {ast.Not: "!", ast.USub: "-", ast.UAdd: "+"}[type(node.op)]
            return f"{sign}({self._c(node.operand)})"
        if isinstance(node, ast.IfExp):
            return f"({self._c(node.test)} ? {self._c(node.body)} : {self._c(node.orelse)})"
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            return self._called(node.func.id, [self._c(one) for one in node.args])
        raise InputError(f"{ast.unparse(node)!r:.80} cannot be said in the header")

    def _binary(self, node: ast.BinOp) -> str:
        kind = type(node.op)
        if kind in _PLAIN:
            return f"({self._c(node.left)} {_PLAIN[kind]} {self._c(node.right)})"
        if kind in _CALLED:
            return self._called(_CALLED[kind], [self._c(node.left), self._c(node.right)])
        power = node.right.value if kind is ast.Pow and isinstance(node.right, ast.Constant) else None
        if type(power) is int and 1 <= power <= _MOST_EXPONENT:
            return f"({' * '.join([self._c(node.left)] * power)})"
        raise InputError(f"{ast.unparse(node)!r:.80} cannot be said in the header")

    def _called(self, name: str, arguments: list[str]) -> str:
        self._needed.add(name)
        found, *rest = arguments
        if not rest:
            return f"{self._prefix}_{name}({found})"
        for one in rest:
            found = f"{self._prefix}_{name}({found}, {one})"
        return found

    def _compared(self, node: ast.Compare) -> str:
        lefts = [node.left, *node.comparators]
        parts = []
        for left, op, right in zip(lefts, node.ops, node.comparators, strict=False):
            if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List):
                found = " || ".join(self._equal(left, one) for one in right.elts)
                parts.append(f"!({found})" if isinstance(op, ast.NotIn) else f"({found})")
            elif isinstance(op, ast.Eq | ast.NotEq):
                found = self._equal(left, right)
                parts.append(f"!({found})" if isinstance(op, ast.NotEq) else found)
            else:
                parts.append(f"({self._c(left)} {_COMPARED[type(op)]} {self._c(right)})")
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def _equal(self, left: ast.expr, right: ast.expr) -> str:
        if isinstance(left, ast.Constant) and isinstance(left.value, str):
            left, right = right, left
        if isinstance(left, ast.Name) and left.id in self._texts and isinstance(right, ast.Constant):
            return f"({same_text(left.id, str(right.value))})"
        return f"({self._c(left)} == {self._c(right)})"


def same_text(name: str, text: str) -> str:
    """Whether a string is a text, without a library: letter by letter, its end too."""
    letters = [*text.encode(), 0]
    return " && ".join(f"(unsigned char){name}[{place}] == {letter}" for place, letter in enumerate(letters))
