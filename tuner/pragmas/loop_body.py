"""What the body of a loop nest reads and writes; anything that is not understood is refused."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from tuner.cuda_source.tokens import defined_macros
from tuner.errors import KernelFileError
from tuner.pragmas.directives import Directive
from tuner.pragmas.loop_nests import BUILT_IN, Loop
from tuner.pragmas.syntax import SyntaxTree, nodes_within

_PURE = frozenset(
    f"{name}{suffix}"
    for name in (
        *(
            "fma",
            "sqrt",
            "rsqrt",
            "exp",
            "exp2",
            "exp10",
            "log",
            "log2",
            "log10",
            "sin",
            "cos",
            "tan",
            "tanh",
        ),
        *("fabs", "fmin", "fmax", "floor", "ceil", "abs", "min", "max", "pow"),
    )
    for suffix in ("", "f")
)
_PAIR = 2
_STATEMENTS = frozenset(
    {
        *("compound_statement", "expression_statement", "declaration", "if_statement", "else_clause"),
        *("condition_clause", "for_statement", "comment", "init_declarator", "argument_list"),
    }
)
_EXPRESSIONS = frozenset(
    {
        *("assignment_expression", "update_expression", "binary_expression", "unary_expression"),
        *("conditional_expression", "parenthesized_expression", "cast_expression", "subscript_expression"),
        *("subscript_argument_list", "number_literal", "identifier", "field_expression", "field_identifier"),
        *("call_expression", "true", "false", "primitive_type", "type_identifier", "type_qualifier"),
        *("type_descriptor", "sized_type_specifier", "qualified_identifier"),
    }
)


@dataclass
class LoopBody:
    """Accesses to arrays that are declared outside the nest.

    Attributes:
        accesses: array -> the indices of each access, one text for each dimension.
        written: arrays that are assigned to.
        local: names that the body declares.
        changed: names of the body that it assigns to.
    """

    accesses: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    local: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def accesses_of(self, array: str) -> list[str]:
        """The different accesses to an array, as written."""
        return [array + "".join(f"[{index}]" for index in one) for one in dict.fromkeys(self.accesses[array])]

    def fixed_counters(self, array: str, loops: Sequence[Loop]) -> set[str]:
        """Counters that have one value alone for each element of an array."""
        found: set[str] = set()
        seen = self.accesses[array]
        dimensions = min(len(one) for one in seen)
        if any(len(one) != dimensions for one in seen):
            return found
        for place in range(dimensions):
            indices = {one[place] for one in seen}
            if len(indices) == 1:
                found |= _fixed_by(indices.pop(), loops, self.local | self.changed)
        return found


def read_body(tree: SyntaxTree, directive: Directive, loops: Sequence[Loop]) -> LoopBody:
    """The accesses of a nest, seen from its innermost loop that is tiled.

    Raises:
        KernelFileError: the body has what is not understood, changes variables from outside, or accesses
            arrays that may overlap.
    """
    body = LoopBody()
    innermost = loops[-1].body
    for node in nodes_within(innermost, "init_declarator", "declaration"):
        declarator = node.child_by_field_name("declarator")
        if declarator is not None and declarator.type == "identifier":
            body.local.add(tree.text(declarator))
    counters = {loop.name for loop in loops}
    for node in nodes_within(innermost):
        if node.is_named:
            _check_node(tree, directive, node, body, counters)
    _check_macros(tree, directive, loops[0].node)
    for node in nodes_within(innermost, "subscript_expression"):
        if node.parent is None or node.parent.type != "subscript_expression":
            _add_access(tree, directive, node, body)
    _check_overlap(tree, directive, body, loops[0].node)
    return body


def _check_macros(tree: SyntaxTree, directive: Directive, nest: Node) -> None:
    """Refuse macros in the nest that stand for more than a number."""
    macros = defined_macros(tree.source.blank.decode(errors="replace"))
    for node in nodes_within(nest, "identifier"):
        body = macros.get(tree.text(node))
        if body is not None and not re.fullmatch(r"\(*\s*\w*\s*\)*", body):
            raise _refusal(tree, directive, node, f"the macro {tree.text(node)} is more than a number")


def _refusal(tree: SyntaxTree, directive: Directive, node: Node, why: str) -> KernelFileError:
    line = tree.source.place(node.start_byte)[0]
    return tree.source.error(directive, f"line {line}, {tree.text(node).splitlines()[0]!r}: {why}")


def _check_node(
    tree: SyntaxTree, directive: Directive, node: Node, body: LoopBody, counters: set[str]
) -> None:
    if node.type not in _STATEMENTS | _EXPRESSIONS:
        raise _refusal(tree, directive, node, "tiles are proved for loops over array elements only")
    if node.type == "declaration" and re.search(
        r"[*&\[]|\b(?:static|__shared__|volatile|auto)\b", tree.text(node).split("=")[0]
    ):
        raise _refusal(tree, directive, node, "only plain variables may be declared in the nest")
    if node.type == "call_expression":
        name = node.child_by_field_name("function")
        if name is None or tree.text(name) not in _PURE:
            raise _refusal(tree, directive, node, "the function may do more than return a value")
    if node.type == "unary_expression" and tree.text(node).startswith(("*", "&")):
        raise _refusal(tree, directive, node, "pointers are not followed")
    if node.type == "field_expression" and tree.text(node).split(".")[0] not in BUILT_IN:
        raise _refusal(tree, directive, node, "fields are not followed")
    if node.type in ("assignment_expression", "update_expression"):
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        if target is not None and target.type == "identifier":
            variable = tree.text(target)
            body.changed.add(variable)
            if variable not in body.local or variable in counters:
                raise _refusal(tree, directive, node, f"{variable} is carried from one iteration to the next")
        elif target is None or target.type != "subscript_expression":
            raise _refusal(tree, directive, node, "it is not clear what is assigned to")


def _add_access(tree: SyntaxTree, directive: Directive, node: Node, body: LoopBody) -> None:
    indices: list[str] = []
    base: Node = node
    while base.type == "subscript_expression":
        listed = base.child_by_field_name("indices")
        inner = base.child_by_field_name("argument")
        if listed is None or inner is None or len([one for one in listed.children if one.is_named]) != 1:
            raise _refusal(tree, directive, node, "the subscript has another form")
        indices.insert(0, "".join(tree.text(listed)[1:-1].split()))
        base = inner
    if base.type != "identifier":
        raise _refusal(tree, directive, node, "the array has no plain name")
    array = tree.text(base)
    body.accesses.setdefault(array, []).append(tuple(indices))
    if _is_assigned(node) and array not in body.written:
        body.written.append(array)


def _is_assigned(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type not in ("assignment_expression", "update_expression"):
        return False
    return node in (parent.child_by_field_name("left"), parent.child_by_field_name("argument"))


def _check_overlap(tree: SyntaxTree, directive: Directive, body: LoopBody, nest: Node) -> None:
    """Refuse written arrays that another name may lead to."""
    if not body.written or len(body.accesses) == 1:
        return
    function = nest
    while function.parent is not None and function.type != "function_definition":
        function = function.parent
    text = tree.text(function).encode()[: nest.start_byte - function.start_byte].decode(errors="replace")
    for array in body.written:
        apart = re.search(rf"\*\s*(?:const\s+)?__restrict(?:__)?\s+{array}\b", text)
        own = re.search(
            rf"\b(?!return\b)\w+\s+{array}\s*\[[^\];]*\][^;=]*;|\b(?!return\b)\w+\s+{array}(?:\[[^\];]*\])+\s*=",
            text,
        )
        if not apart and not own:
            raise tree.source.error(
                directive, f"{array} may overlap another array of the nest; declare it __restrict__"
            )


def _fixed_by(index: str, loops: Sequence[Loop], varying: set[str]) -> set[str]:
    """Counters that an index determines: of ``i`` and ``i + c``; both of ``i * n + j``, j below n."""
    counters = {loop.name: loop for loop in loops}
    terms = _terms(index)
    if terms is None:
        return set()
    words = {word for term in terms for word in re.findall(r"[A-Za-z_]\w*", term)}
    if words & varying:
        return set()
    using = [term for term in terms if set(re.findall(r"[A-Za-z_]\w*", term)) & set(counters)]
    if len(using) == 1 and using[0] in counters:
        return {using[0]}
    if len(using) == _PAIR == len(terms):  # a row and a column
        for row, column in (using, using[::-1]):
            pair = _row(row, counters)
            if pair is None or column not in counters or column == pair[0]:
                continue
            inner = counters[column]
            if inner.type in {"unsigned", "unsigned int"}:  # their products may wrap around
                continue
            first = (inner.first.text or b"").decode()
            bound = "".join((inner.bound.text or b"").decode().split())
            sign = inner.condition.child_by_field_name("operator")
            if first == "0" and bound == pair[1] and sign is not None and sign.text == b"<":
                return {pair[0], column}
    return set()


def _row(term: str, counters: dict[str, Loop]) -> tuple[str, str] | None:
    """Counter and pitch of ``i*n`` or ``n*i``."""
    factors = term.split("*")
    if len(factors) != _PAIR:
        return None
    for counter, pitch in (factors, factors[::-1]):
        if counter in counters and pitch not in counters and re.fullmatch(r"\w+", pitch):
            return counter, pitch
    return None


def _terms(index: str) -> list[str] | None:
    """The summands of an index of names, numbers, ``*`` and ``+``; None where it has another form."""
    if not re.fullmatch(r"[\w.]+(?:[+*][\w.]+)*(?:-\d+)?", index):
        return None
    return re.sub(r"-(\d+)$", r"+\1", index).split("+")
