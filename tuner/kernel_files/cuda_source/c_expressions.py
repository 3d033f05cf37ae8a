"""Arithmetic of CUDA C++ as Python's syntax trees: substituted, expanded to sums of products, and written.

Python's grammar serves after few changes of tokens, so that nothing is parsed here. Whole numbers are meant:
``/`` rounds, casts are dropped. What is no arithmetic gives None, and nothing is guessed of it.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import cast

from tuner.kernel_files.cuda_source.signatures import BUILT_IN, dtype_of
from tuner.kernel_files.cuda_source.tokens import Token, group_end, tokens_of

Node = ast.expr
Sum = dict[tuple[str, ...], int]
"""A sum of products: sorted factors -> their whole coefficient."""

SIZEOF = "sizeof_"  # begins the name that stands for the bytes of a type
_BYTES = {"bool": 1, "complex64": 8, "complex128": 16, "bfloat16": 2}
_LANES = re.compile(
    r"(u?(?:char|short|int|long|longlong)|float|double|(?:__)?half|(?:__)?nv_bfloat16)([1-4])"
)
_WORDS = {"&&": " and ", "||": " or ", "!": " not ", "/": " // ", "true": "1", "false": "0"}
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
_CEIL_DIV = re.compile(
    r"(?:i|u)?_?(?:ceil_?div|c_?div|div_?(?:round_?)?up|div_?ceil|round_?up_?div)", re.IGNORECASE
)
_DEPTH = 12  # of names that stand for names
_MOST_NAMES = 64  # that are followed in one tree
_DEEPEST = 200  # levels of a tree: what follows it calls itself
_MOST_TERMS = 400  # of a product that is multiplied out


def parsed(tokens: Sequence[Token]) -> Node | None:
    """The tree of an expression; None where it is no arithmetic over names, members and calls."""
    try:
        tree = ast.parse(_python(tokens).strip(), mode="eval").body
        return None if isinstance(tree, (ast.Tuple, ast.List)) or _depth(tree) > _DEEPEST else _tidied(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _depth(tree: Node) -> int:
    """Levels of a tree."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def parsed_text(text: str) -> Node | None:
    """As ``parsed``, of a text."""
    return parsed(tokens_of(text))


def of_file(text: str) -> Node:
    """The tree of an expression as kernel files write it."""
    return ast.parse(text, mode="eval").body


def _python(tokens: Sequence[Token]) -> str:
    """An expression as Python has it."""
    question = _outside(tokens, "?")
    if question is not None:
        colon = _outside(tokens, ":", question + 1)
        if colon is None:
            raise ValueError(tokens)
        parts = tokens[:question], tokens[question + 1 : colon], tokens[colon + 1 :]
        test, yes, no = map(_python, parts)
        return f"(({yes}) if ({test}) else ({no}))"
    words = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if token.text in _CASTS and following == "<":
            index = group_end(tokens, index + 1)
        elif token.text == "sizeof" and following == "(":
            end = group_end(tokens, index + 1)
            words.append(_bytes_of([one.text for one in tokens[index + 2 : end - 1]]))
            index = end
        elif token.text in ("(", "["):
            end = group_end(tokens, index)
            inner = tokens[index + 1 : end - 1]
            if token.text == "[" or not _is_cast(inner, tokens[end : end + 1]):
                closing = ")" if token.text == "(" else "]"
                words.append(token.text + ", ".join(map(_python, listed(inner))) + closing)
            index = end
        else:
            words.append(_word(token))
            index += 1
    text = " ".join(words)
    return re.sub(r" ?(::|\.) ?", ".", text).replace("< <", "<<").replace("> >", ">>")


def _word(token: Token) -> str:
    if token.kind == "number":
        plain = token.text.replace("'", "")
        if plain.lower().startswith("0x"):
            return str(int(plain.rstrip("uUlL"), 16))
        return re.sub(r"[uUlLfF]+$", "", plain)
    if token.kind == "text" or token.text in ("{", "}", ";", "lambda"):
        raise ValueError(token.text)
    return _WORDS.get(token.text, "." if token.text == "->" else token.text)


def bytes_of_type(name: str) -> int:
    """The bytes of a type, as of ``float4``; 0 where they are not known."""
    lanes = _LANES.fullmatch(name)
    dtype = dtype_of(lanes[1].replace("longlong", "long long") if lanes else name)
    if dtype is None:
        return 0
    return int(lanes[2] if lanes else 1) * (
        _BYTES.get(dtype) or int("".join(filter(str.isdigit, dtype))) // 8
    )


def _bytes_of(words: list[str]) -> str:
    """The bytes of a type; a name for them where they are not known."""
    name = " ".join(words)
    return str(bytes_of_type(name) or SIZEOF + re.sub(r"\W", "_", name))


def _is_cast(inner: Sequence[Token], following: Sequence[Token]) -> bool:
    texts = [token.text for token in inner]
    pointer = len(texts) > 1 and texts[-1] == "*"  # (float4*)x
    typed = bool(texts) and all(
        text in BUILT_IN or text in ("*", "const", "unsigned", "signed") or dtype_of(text) for text in texts
    )
    meant = bool(following) and (following[0].kind in ("word", "number") or following[0].text in "(-&")
    return meant and (typed or pointer)


def _outside(tokens: Sequence[Token], sign: str, start: int = 0) -> int | None:
    index = start
    while index < len(tokens):
        if tokens[index].text == sign:
            return index
        index = group_end(tokens, index) if tokens[index].text in ("(", "[", "{") else index + 1
    return None


def listed(tokens: Sequence[Token], sign: str = ",") -> list[Sequence[Token]]:
    """The parts between commas that stand in no bracket; none of no tokens."""
    parts: list[Sequence[Token]] = []
    start = 0
    while (end := _outside(tokens, sign, start)) is not None:
        parts.append(tokens[start:end])
        start = end + 1
    return [*parts, tokens[start:]] if tokens else []


class _Tidy(ast.NodeTransformer):
    """Whole division rounded up, by whichever of its usual forms; shifts by numbers as products."""

    def visit_BinOp(self, node: ast.BinOp) -> Node:
        self.generic_visit(node)
        shift = number(node.right) if isinstance(node.op, (ast.LShift, ast.RShift)) else None
        if shift is not None and 0 <= shift < 32:  # noqa: PLR2004 - bits
            factor = ast.Constant(2**shift)
            return ast.BinOp(
                node.left, ast.Mult() if isinstance(node.op, ast.LShift) else ast.FloorDiv(), factor
            )
        if isinstance(node.op, ast.BitAnd) and is_mask(number(node.right)):  # i & 31
            return ast.BinOp(node.left, ast.Mod(), ast.Constant((number(node.right) or 0) + 1))
        if isinstance(node.op, ast.FloorDiv):
            top = added(added(sum_of(node.left), sum_of(node.right), -1), {(): 1})
            if top and () not in top and _covers(sum_of(node.left), sum_of(node.right)):
                return call("ceil_div", written_sum(top), node.right)
        if isinstance(node.op, ast.Add) and isinstance(node.left, ast.BinOp):
            return self._one_more(node, node.left)
        return node

    def _one_more(self, node: ast.BinOp, quotient: ast.BinOp) -> Node:
        if not isinstance(quotient.op, ast.FloorDiv):
            return node
        top = added(sum_of(quotient.left), {(): 1})
        if isinstance(node.right, ast.Constant) and node.right.value == 1 and () not in top:
            return call("ceil_div", written_sum(top), quotient.right)
        rest = ast.unparse(ast.BinOp(quotient.left, ast.Mod(), quotient.right))
        return call("ceil_div", quotient.left, quotient.right) if rest in ast.unparse(node.right) else node

    def visit_IfExp(self, node: ast.IfExp) -> Node:
        self.generic_visit(node)
        if "argc" in names_in(node.test):  # without arguments
            return node.orelse if "argv" in ast.unparse(node.body) else node.body
        for way in (node.body, node.orelse):
            if isinstance(way, ast.BinOp) and isinstance(way.op, ast.FloorDiv):
                rest = ast.unparse(ast.BinOp(way.left, ast.Mod(), way.right))
                if rest in ast.unparse(node.test):
                    return call("ceil_div", way.left, way.right)
        return node

    def visit_Call(self, node: ast.Call) -> Node:
        self.generic_visit(node)
        name = ast.unparse(node.func).rpartition(".")[2]
        arguments = node.args
        if name in ("ceil", "ceilf") and len(arguments) == 1:
            parts = division(arguments[0])
            return call("ceil_div", *map(_without_ones, parts)) if parts else arguments[0]
        if name in ("int", "unsigned", "size_t", "float", "double") and len(arguments) == 1:
            return arguments[0]
        if name in ("__mul24", "__umul24") and len(arguments) == 2:  # noqa: PLR2004 - a product
            return ast.BinOp(arguments[0], ast.Mult(), arguments[1])
        if name in ("min", "max", "fmin", "fmax", "umin", "umax", "MIN", "MAX"):
            return call(name.lower()[-3:], *arguments)
        if _CEIL_DIV.fullmatch(name) and len(arguments) == 2:  # noqa: PLR2004 - of a division
            return call("ceil_div", *arguments)
        return node.func if name == "size" and not arguments else node  # h.size of a vector of the host


def is_mask(value: int | None) -> bool:
    """Return True if all lower bits of a number are set, and no others."""
    return value is not None and value > 0 and value & (value + 1) == 0


def _tidied(node: ast.AST) -> Node:
    return cast("Node", _Tidy().visit(node))


def _covers(top: Sum, bottom: Sum) -> bool:
    """Return True if a dividend may hold its divisor less one: ``n + b - 1``, ``n + 255``."""
    if set(bottom) == {()}:
        return top.get((), 0) == bottom[()] - 1
    return all(factors in top for factors in bottom) and top.get((), 0) == -1


def _without_ones(node: Node) -> Node:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.Constant) and one.value == 1:
                return other
    return node


def division(node: Node) -> list[Node]:
    """Dividend and divisor; nothing of what is no division."""
    return (
        [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv) else []
    )


def call(name: str, *arguments: Node) -> Node:
    """A call of a function."""
    return ast.Call(ast.Name(name), list(arguments), [])


def substituted(
    node: Node, values: Mapping[str, Node], depth: int = _DEPTH, left: list[int] | None = None
) -> Node:
    """A tree with trees in the place of names and members, those in them too; it grows within bounds."""
    budget = [_MOST_NAMES] if left is None else left

    class Substitute(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> Node:
            return self._other(node, node.id)

        def visit_Attribute(self, node: ast.Attribute) -> Node:
            return self._other(node, ast.unparse(node))

        @staticmethod
        def _other(node: Node, name: str) -> Node:
            if name not in values or depth == 0 or budget[0] == 0:
                return node
            budget[0] -= 1
            rest = {key: value for key, value in values.items() if key != name}
            return substituted(values[name], rest, depth - 1, budget)

    copied = ast.parse(ast.unparse(node), mode="eval").body
    return _tidied(Substitute().visit(copied))


def with_names(node: Node, numbers: Mapping[int, str]) -> Node:
    """A tree with names in the place of numbers."""

    class Named(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> Node:
            name = numbers.get(node.value) if isinstance(node.value, int) else None
            return node if name is None else ast.Name(name)

    return cast("Node", Named().visit(ast.parse(ast.unparse(node), mode="eval").body))


def names_in(node: Node) -> set[str]:
    """The names and members of a tree, but those of functions."""
    functions = {id(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)}
    members = [inner for inner in ast.walk(node) if isinstance(inner, ast.Attribute)]
    inside = {id(member.value) for member in members} | functions
    return {
        ast.unparse(inner)
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Name, ast.Attribute)) and id(inner) not in inside
    }


def calls_in(node: Node) -> set[str]:
    """The names of the functions that a tree calls."""
    return {ast.unparse(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call)}


def number(node: Node | None) -> int | None:
    """The whole number that a tree stands for; None where it has names."""
    total = None if node is None else sum_of(node)
    if total is None or set(total) - {()}:
        return None
    return total.get((), 0)


def sum_of(node: Node) -> Sum:
    """A tree as a sum of products; what is neither stands as a factor of its own."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and node.value == int(node.value)
    ):
        return {(): int(node.value)} if node.value else {}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return added({}, sum_of(node.operand), -1 if isinstance(node.op, ast.USub) else 1)
    if isinstance(node, ast.BinOp):
        left, right = sum_of(node.left), sum_of(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return added(left, right, 1 if isinstance(node.op, ast.Add) else -1)
        if isinstance(node.op, ast.Mult) and len(left) * len(right) <= _MOST_TERMS:
            return multiplied(left, right)
        if isinstance(node.op, ast.FloorDiv) and set(left) | set(right) <= {()} and right:
            return {(): left.get((), 0) // right[()]}
    return {(ast.unparse(node),): 1}


def added(one: Sum, other: Sum, sign: int = 1) -> Sum:
    """The sum of two, or with a sign of -1 their difference."""
    total = dict(one)
    for factors, coefficient in other.items():
        total[factors] = total.get(factors, 0) + sign * coefficient
    return {factors: coefficient for factors, coefficient in total.items() if coefficient}


def multiplied(one: Sum, other: Sum) -> Sum:
    """The product of two sums."""
    total: Sum = {}
    for left, a in one.items():
        for right, b in other.items():
            total = added(total, {tuple(sorted((*left, *right))): a * b})
    return total


def coefficient(total: Sum, name: str) -> Sum:
    """All that a name is multiplied with; of its square, nothing."""
    return {
        tuple(factor for factor in factors if factor != name): value
        for factors, value in total.items()
        if factors.count(name) == 1
    }


def divided(total: Sum, by: Sum) -> Sum | None:
    """The quotient by a single product; None where it does not come out whole."""
    if len(by) != 1:
        return None
    ((divisor, value),) = by.items()
    quotient: Sum = {}
    for factors, own in total.items():
        left = list(factors)
        for factor in divisor:
            if factor not in left:
                return None
            left.remove(factor)
        if own % value:
            return None
        quotient[tuple(left)] = own // value
    return quotient


def written_sum(total: Sum) -> Node:
    """A sum of products as a tree; products of names first."""
    text = ""
    for factors, value in sorted(total.items(), key=lambda item: (item[0] == (), item[1] < 0)):
        wrapped = [
            factor if re.fullmatch(r"[\w.]+(\(.*\))?", factor) else f"({factor})" for factor in factors
        ]
        shown = [*([str(abs(value))] if abs(value) != 1 or not factors else []), *wrapped]
        sign = (" - " if value < 0 else " + ") if text else ("-" if value < 0 else "")
        text += sign + " * ".join(shown)
    return ast.parse(text or "0", mode="eval").body


def text_of(node: Node) -> str:
    """A tree as kernel files write it; multiplied out where that is shorter."""
    total = sum_of(node)
    expanded = ast.unparse(written_sum(total))
    plain = ast.unparse(node)
    return expanded if len(expanded) <= len(plain) else plain
