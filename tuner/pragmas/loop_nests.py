"""Perfect nests of ``for`` loops whose bounds do not change: what tiling begins with."""

import re
from dataclasses import dataclass

from tree_sitter import Node

from tuner.pragmas.directives import Directive
from tuner.pragmas.syntax import SyntaxTree, nodes_within

_TYPES = {
    **dict.fromkeys(("int", "unsigned", "unsigned int", "short"), "long long"),
    **{name: name for name in ("long", "long long", "size_t", "ptrdiff_t", "int64_t", "uint64_t")},
}
_SIGNED = ("int", "short", "long", "long long", "ptrdiff_t", "int64_t")
_TYPE_AND_NAME = 2  # children of a declaration of one variable
BUILT_IN = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_STEP = re.compile(r"(?:[1-9]\d*|(?:block|grid)Dim\.[xyz])(?:\s*\*\s*(?:[1-9]\d*|(?:block|grid)Dim\.[xyz]))*")


@dataclass(frozen=True)
class Loop:
    """``for (type name = first; name < bound; name += step)``.

    Attributes:
        node: the statement.
        type: of the counter.
        name: of the counter.
        first: node of the first value.
        bound: node of the limit.
        condition: node of the comparison.
        step: as written; ``1`` of an increment.
        body: the statement that is repeated.
    """

    node: Node
    type: str
    name: str
    first: Node
    bound: Node
    condition: Node
    step: str
    body: Node

    @property
    def wide(self) -> str:
        """A type that holds the counter and one tile more."""
        return _TYPES[self.type]


def loop_nest(tree: SyntaxTree, directive: Directive, node: Node, names: list[str]) -> list[Loop]:
    """The loops from the outermost to the last of some that are to be tiled.

    Raises:
        KernelFileError: there is none of a name, a loop has another form, or something stands between loops.
    """
    source, loops = tree.source, []
    left = set(names)
    statement: Node | None = node
    while statement is not None:
        loop = _loop(tree, directive, statement)
        loops.append(loop)
        left.discard(loop.name)
        if not left:
            return loops
        statement = _only_loop(loop.body)
    counters = ", ".join(loop.name for loop in loops)
    raise source.error(
        directive,
        f"no loop over {', '.join(sorted(left))} is perfectly nested below it; the nest is over {counters}",
    )


def _only_loop(body: Node) -> Node | None:
    """The loop that a body consists of; None where there is more, or something else."""
    inner = [one for one in body.children if one.is_named] if body.type == "compound_statement" else [body]
    return inner[0] if len(inner) == 1 and inner[0].type == "for_statement" else None


def _loop(tree: SyntaxTree, directive: Directive, node: Node) -> Loop:
    start, condition, update, body = (
        node.child_by_field_name(name) for name in ("initializer", "condition", "update", "body")
    )
    declarator = _field(start, "declarator")
    name, first = _field(declarator, "declarator"), _field(declarator, "value")
    left, sign, bound = (_field(condition, key) for key in ("left", "operator", "right"))
    counter = " ".join(_text(tree, _field(start, "type")).split())
    step = "" if name is None else _step(_text(tree, update), tree.text(name))
    signs = ("<", "<=") if counter in _SIGNED else ("<",)
    plain = start is not None and len([one for one in start.children if one.is_named]) == _TYPE_AND_NAME
    regular = counter in _TYPES and step and (step == "1" or counter in _SIGNED)
    if (
        node.has_error
        or not plain
        or not regular
        or name is None
        or first is None
        or bound is None
        or condition is None
        or body is None
        or _text(tree, left) != tree.text(name)
        or _text(tree, sign) not in signs
    ):
        line = tree.source.place(node.start_byte)[0]
        raise tree.source.error(
            directive,
            f"the loop in line {line} has not the form for (int i = FIRST; i < LAST; i += STEP) with a step"
            " that is a number or made of blockDim and gridDim",
        )
    return Loop(node, counter, tree.text(name), first, bound, condition, step, body)


def _field(node: Node | None, name: str) -> Node | None:
    return None if node is None else node.child_by_field_name(name)


def _text(tree: SyntaxTree, node: Node | None) -> str:
    return "" if node is None else tree.text(node)


def _step(update: str, name: str) -> str:
    """The step of an update, ``1`` of an increment; empty where it has another form."""
    if re.fullmatch(rf"\+\+\s*{name}|{name}\s*\+\+", update):
        return "1"
    match = re.fullmatch(rf"{name}\s*\+=\s*(.+)", update, re.DOTALL)
    return match[1].strip() if match and _STEP.fullmatch(match[1].strip()) else ""


def names_in(tree: SyntaxTree, node: Node) -> set[str]:
    """The identifiers of an expression; of ``blockDim.x`` none."""
    found = set()
    for one in nodes_within(node, "identifier"):
        parent = one.parent
        name = tree.text(one)
        if parent is not None and parent.type == "field_expression" and name in BUILT_IN:
            continue
        found.add(name)
    return found
