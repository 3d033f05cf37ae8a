"""What the body of a loop nest reads and writes; anything that is not understood is refused."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from tuner.model.errors import KernelFileError
from tuner.pragmas.directives import Directive
from tuner.pragmas.loop_nests import BUILT_IN, Loop
from tuner.pragmas.scope import Scope, declarations
from tuner.pragmas.syntax import SyntaxTree, nodes_within

PURE = frozenset(
    f"{name}{suffix}"
    for name in (
        *("fma", "sqrt", "rsqrt", "exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tan"),
        *("tanh", "fabs", "fmin", "fmax", "floor", "ceil", "abs", "min", "max", "pow"),
    )
    for suffix in ("", "f")
)
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
        *("type_descriptor", "sized_type_specifier"),
    }
)
_TO_POINTERS = re.compile(r"\*\s*(?:const\s*)?&\s*\w+\s*[,)]")  # parameters through which pointers change
_UNROLL = re.compile(r"\s*#\s*pragma\s+unroll\b[^\n]*\s*")


@dataclass
class LoopBody:
    """Accesses to arrays that are declared outside the nest.

    Attributes:
        accesses: array -> the indices of each access, one text for each dimension.
        written: arrays that are assigned to.
        local: names that the body declares.
    """

    accesses: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    local: set[str] = field(default_factory=set)

    def accesses_of(self, array: str) -> list[str]:
        """The different accesses to an array, as written."""
        return [array + "".join(f"[{index}]" for index in one) for one in dict.fromkeys(self.accesses[array])]


def read_body(tree: SyntaxTree, directive: Directive, loops: Sequence[Loop], scope: Scope) -> LoopBody:
    """The accesses of a nest, seen from its innermost loop that is tiled.

    Raises:
        KernelFileError: the body has what is not understood, changes variables from outside, or accesses
            arrays that may overlap.
    """
    return _BodyReader(tree, directive, loops, scope).body()


class _BodyReader:
    """Reads the body of one nest."""

    def __init__(self, tree: SyntaxTree, directive: Directive, loops: Sequence[Loop], scope: Scope) -> None:
        self._tree = tree
        self._directive = directive
        self._counters = {loop.name for loop in loops}
        self._nest = loops[0].node
        self._innermost = loops[-1].body
        self._scope = scope
        self._found = LoopBody()

    def body(self) -> LoopBody:
        self._add_locals()
        for node in nodes_within(self._innermost):
            if node.is_named and not self._is_unroll(node):
                self._check_node(node)
        for node in nodes_within(self._nest, "identifier"):
            self._check_name(node)
        for node in nodes_within(self._innermost, "subscript_expression"):
            if node.parent is None or node.parent.type != "subscript_expression":
                self._add_access(node)
        self._check_overlap()
        return self._found

    def _refusal(self, node: Node, why: str) -> KernelFileError:
        line = self._tree.source.place(node.start_byte)[0]
        shown = self._tree.text(node).strip().splitlines()
        return self._tree.source.error(self._directive, f"line {line}, {(shown or [''])[0]!r}: {why}")

    def _is_unroll(self, node: Node) -> bool:
        outer = node if node.type == "preproc_call" else node.parent
        return (
            outer is not None
            and outer.type == "preproc_call"
            and _UNROLL.fullmatch(self._tree.text(outer)) is not None
        )

    def _add_locals(self) -> None:
        for node in nodes_within(self._innermost, "declaration"):
            typed = node.child_by_field_name("type")
            kind = "" if typed is None else self._scope.kind_of_type(self._tree.text(typed))
            for name, one in declarations(self._tree, node):
                plain = kind and not one.dimensions and one.qualifiers <= {"const", "constexpr"}
                if not plain:
                    raise self._refusal(node, "only plain numbers may be declared in the nest")
                if name in self._counters or self._scope.declared(name) or name in self._scope.macros:
                    raise self._refusal(
                        node, f"{name} has another meaning outside; give it a name of its own"
                    )
                self._found.local.add(name)

    def _check_node(self, node: Node) -> None:
        text = self._tree.text
        if node.type not in _STATEMENTS | _EXPRESSIONS:
            raise self._refusal(node, "tiles are proved for loops over array elements only")
        if node.type in ("primitive_type", "type_identifier", "sized_type_specifier"):
            if not self._scope.kind_of_type(text(node)):
                raise self._refusal(node, "is no type of numbers that is known here")
        elif node.type == "call_expression":
            name = node.child_by_field_name("function")
            called = "" if name is None else text(name)
            own = called in self._tree.functions or called in self._scope.macros
            if called not in PURE or own or self._scope.declared(called):
                raise self._refusal(node, "the function may do more than return a value")
        elif node.type == "field_expression" and text(node).split(".")[0].strip() not in BUILT_IN:
            raise self._refusal(node, "fields are not followed")
        elif node.type in ("assignment_expression", "update_expression"):
            self._check_target(node)

    def _check_target(self, node: Node) -> None:
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        if target is not None and target.type == "identifier":
            variable = self._tree.text(target)
            if variable not in self._found.local:
                raise self._refusal(node, f"{variable} is carried from one iteration to the next")
        elif target is None or target.type != "subscript_expression":
            raise self._refusal(node, "it is not clear what is assigned to")

    def _check_name(self, node: Node) -> None:
        name, parent = self._tree.text(node), node.parent
        if name in self._counters | self._found.local or parent is None:
            return
        if parent.type == "field_expression" and name in BUILT_IN and not self._scope.declared(name):
            return
        if parent.type == "call_expression" and parent.child_by_field_name("function") == node:
            return  # checked as a call
        if parent.type == "subscript_expression" and parent.child_by_field_name("argument") == node:
            self._check_array(node, name)
        elif not self._scope.kind(name):
            raise self._refusal(
                node,
                "is not seen to be a number that stays the same; declare a const int of the function for it",
            )

    def _check_array(self, node: Node, name: str) -> None:
        found = self._scope.declared(name)
        if not found or name in self._scope.macros:
            raise self._refusal(node, "is no array that this file declares")
        for one in found:
            if one.dimensions < 1 or not self._scope.kind_of_type(one.type) or "volatile" in one.qualifiers:
                raise self._refusal(node, "is no array or simple pointer to numbers")

    def _add_access(self, node: Node) -> None:
        indices: list[str] = []
        base: Node = node
        while base.type == "subscript_expression":
            listed = base.child_by_field_name("indices")
            inner = base.child_by_field_name("argument")
            if listed is None or inner is None or len([one for one in listed.children if one.is_named]) != 1:
                raise self._refusal(node, "the subscript has another form")
            indices.insert(0, "".join(self._tree.text(listed)[1:-1].split()))
            base = inner
        if base.type != "identifier":
            raise self._refusal(node, "the array has no plain name")
        array = self._tree.text(base)
        if any(one.dimensions != len(indices) for one in self._scope.declared(array)):
            raise self._refusal(node, f"{array} has another number of dimensions")
        self._found.accesses.setdefault(array, []).append(tuple(indices))
        if _is_assigned(node) and array not in self._found.written:
            self._found.written.append(array)

    def _check_overlap(self) -> None:
        """Refuse written arrays that another name may lead to."""
        for array in self._found.written:
            alone = len(self._found.accesses) == 1
            for one in self._scope.declared(array):
                own = one.local and not one.parameter and not one.pointer and "extern" not in one.qualifiers
                if not own and not (one.parameter and (alone or (one.pointer and one.restrict))):
                    raise self._tree.source.error(
                        self._directive,
                        f"{array} may overlap another array of the nest; declare it __restrict__"
                        if one.parameter
                        else f"it is not known where {array} leads to; written are parameters and arrays of"
                        " the function",
                    )
        if not self._found.written:
            return
        for array in self._found.accesses:
            for one in self._scope.declared(array):
                local = one.local and one.pointer and not one.parameter
                if local or (one.parameter and self._is_moved(array)):
                    raise self._tree.source.error(
                        self._directive,
                        f"it is not known where {array} leads to; use a parameter that is not assigned to",
                    )

    def _is_moved(self, array: str) -> bool:
        """Whether a function makes a parameter lead elsewhere."""
        function = self._scope.function
        text = (
            ""
            if function is None
            else self._tree.source.code[function.start_byte : function.end_byte].decode(errors="replace")
        )
        here = rf"(?<![\w*\]])\b{array}\s*=(?!=)|&\s*{array}\b(?!\s*\[)|&\s*\w+\s*[=({{]\s*{array}\b"
        whole = self._tree.source.code.decode(errors="replace")
        return re.search(rf"{here}|\bswap\s*\(", text) is not None or bool(_TO_POINTERS.search(whole))


def _is_assigned(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type not in ("assignment_expression", "update_expression"):
        return False
    return node in (parent.child_by_field_name("left"), parent.child_by_field_name("argument"))
