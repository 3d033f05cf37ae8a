"""Loop nests: their bodies, and tiles and unrolling where these are provably legal."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from tuner.kernel_files.pragmas.directives import Directive, named
from tuner.kernel_files.pragmas.scope import Scope, declarations, kind_of_number, refused_function
from tuner.kernel_files.pragmas.syntax import Edit, SyntaxTree, nodes_within
from tuner.kernel_files.pragmas.tunables import PragmaTunable, check_free, guarded, instead_of, read_list
from tuner.model.errors import KernelFileError

# --- Perfect nests of ``for`` loops whose bounds do not change: what tiling begins with.

_TYPES = {
    **dict.fromkeys(("int", "unsigned", "unsigned int", "short"), "long long"),
    **{name: name for name in ("long", "long long", "size_t", "ptrdiff_t", "int64_t", "uint64_t")},
}
_SIGNED = ("int", "short", "long", "long long", "ptrdiff_t", "int64_t")
_TYPE_AND_NAME = 2  # children of a declaration of one variable
_UNROLL_BYTES = rb"\s*#\s*pragma\s+unroll\b"
BUILT_IN = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_STEP = re.compile(r"(?:[1-9]\d*|(?:block|grid)Dim\.[xyz])(?:\s*\*\s*(?:[1-9]\d*|(?:block|grid)Dim\.[xyz]))*")


@dataclass(frozen=True)
class Loop:
    """``for (type name = first; name < bound; name += step)``.

    Attributes:
        start: node of the declaration of the counter.
        step: as written; ``1`` of an increment.
    """

    node: Node
    start: Node
    type: str
    name: str
    first: Node
    bound: Node
    condition: Node
    step: str
    body: Node

    @property
    def sign(self) -> str:
        """``<`` or ``<=``."""
        node = self.condition.child_by_field_name("operator")
        return "<=" if node is not None and node.text == b"<=" else "<"

    @property
    def wide(self) -> str:
        """A type that holds the counter and one tile more."""
        return _TYPES[self.type]


def loop_nest(tree: SyntaxTree, directive: Directive, node: Node, names: list[str]) -> list[Loop]:
    """The loops from the outermost to the last of some that are to be tiled.

    Raises:
        KernelFileError: there is none of a name, a loop has another form, or something stands between loops.
    """
    source = tree.source
    loops: list[Loop] = []
    missing = set(names)
    statement: Node | None = node
    while statement is not None:
        loop = _loop(tree, directive, statement)
        if any(other.name == loop.name for other in loops):
            raise source.error(directive, f"two loops of the nest have the counter {loop.name}")
        loops.append(loop)
        missing.discard(loop.name)
        if not missing:
            return loops
        statement = _only_loop(loop.body)
    counters = ", ".join(loop.name for loop in loops)
    raise source.error(
        directive,
        f"no loop over {', '.join(sorted(missing))} is perfectly nested below it;"
        f" the nest is over {counters}",
    )


def _only_loop(body: Node) -> Node | None:
    """The loop that a body consists of; None where there is more, or something else."""
    inner = [body]
    if body.type == "compound_statement":
        inner = [
            child
            for child in body.children
            if child.is_named
            and child.type != "comment"
            and not (child.type == "preproc_call" and re.match(_UNROLL_BYTES, child.text or b""))
        ]
    return inner[0] if len(inner) == 1 and inner[0].type == "for_statement" else None


def _loop(tree: SyntaxTree, directive: Directive, node: Node) -> Loop:
    start, condition, update, body = (
        node.child_by_field_name(name) for name in ("initializer", "condition", "update", "body")
    )
    declarator = _field(start, "declarator")
    name, first = _field(declarator, "declarator"), _field(declarator, "value")
    counter_node, sign, bound = (_field(condition, key) for key in ("left", "operator", "right"))
    counter = " ".join(_text(tree, _field(start, "type")).split())
    step = "" if name is None else _step(_text(tree, update), tree.text(name))
    signs = ("<", "<=") if counter in _SIGNED else ("<",)
    plain = start is not None and len([child for child in start.children if child.is_named]) == _TYPE_AND_NAME
    regular = counter in _TYPES and step and (step == "1" or counter in _SIGNED)
    if (
        node.has_error
        or start is None
        or not plain
        or not regular
        or name is None
        or first is None
        or bound is None
        or condition is None
        or body is None
        or _text(tree, counter_node) != tree.text(name)
        or _text(tree, sign) not in signs
    ):
        line = tree.source.place(node.start_byte)[0]
        raise tree.source.error(
            directive,
            f"the loop in line {line} has not the form for (int i = FIRST; i < LAST; i += STEP) with a step"
            " that is a number or made of blockDim and gridDim",
        )
    return Loop(node, start, counter, tree.text(name), first, bound, condition, step, body)


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
    names = set()
    for identifier in nodes_within(node, "identifier"):
        parent = identifier.parent
        name = tree.text(identifier)
        if parent is not None and parent.type == "field_expression" and name in BUILT_IN:
            continue
        names.add(name)
    return names


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
    """

    accesses: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    local: set[str] = field(default_factory=set)

    def accesses_of(self, array: str) -> list[str]:
        """The different accesses to an array, as written."""
        return [
            array + "".join(f"[{index}]" for index in indices)
            for indices in dict.fromkeys(self.accesses[array])
        ]


class _BodyReader:
    """Reads the accesses of a nest, seen from its innermost loop that is tiled.

    Raises:
        KernelFileError: the body has what is not understood, changes variables from outside, or accesses
            arrays that may overlap.
    """

    def __init__(self, tree: SyntaxTree, directive: Directive, loops: Sequence[Loop], scope: Scope) -> None:
        self._tree = tree
        self._directive = directive
        self._counters = {loop.name for loop in loops}
        self._nest = loops[0].node
        self._innermost = loops[-1].body
        self._scope = scope
        self._body = LoopBody()

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
        return self._body

    def _refusal(self, node: Node, why: str) -> KernelFileError:
        line = self._tree.source.place(node.start_byte)[0]
        lines = self._tree.text(node).strip().splitlines()
        return self._tree.source.error(self._directive, f"line {line}, {(lines or [''])[0]!r}: {why}")

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
            for name, declaration in declarations(self._tree, node):
                plain = (
                    kind and not declaration.dimensions and declaration.qualifiers <= {"const", "constexpr"}
                )
                if not plain:
                    raise self._refusal(node, "only plain numbers may be declared in the nest")
                if name in self._counters or self._scope.declared(name) or name in self._scope.macros:
                    raise self._refusal(
                        node, f"{name} has another meaning outside; give it a name of its own"
                    )
                self._body.local.add(name)

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
            if variable not in self._body.local:
                raise self._refusal(node, f"{variable} is carried from one iteration to the next")
        elif target is None or target.type != "subscript_expression":
            raise self._refusal(node, "it is not clear what is assigned to")

    def _check_name(self, node: Node) -> None:
        name, parent = self._tree.text(node), node.parent
        if name in self._counters | self._body.local or parent is None:
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
        declared = self._scope.declared(name)
        if not declared or name in self._scope.macros:
            raise self._refusal(node, "is no array that this file declares")
        for declaration in declared:
            if (
                declaration.dimensions < 1
                or not self._scope.kind_of_type(declaration.type)
                or "volatile" in declaration.qualifiers
            ):
                raise self._refusal(node, "is no array or simple pointer to numbers")

    def _add_access(self, node: Node) -> None:
        indices: list[str] = []
        base: Node = node
        while base.type == "subscript_expression":
            listed = base.child_by_field_name("indices")
            inner = base.child_by_field_name("argument")
            if (
                listed is None
                or inner is None
                or len([child for child in listed.children if child.is_named]) != 1
            ):
                raise self._refusal(node, "the subscript has another form")
            indices.insert(0, "".join(self._tree.text(listed)[1:-1].split()))
            base = inner
        if base.type != "identifier":
            raise self._refusal(node, "the array has no plain name")
        array = self._tree.text(base)
        if any(declaration.dimensions != len(indices) for declaration in self._scope.declared(array)):
            raise self._refusal(node, f"{array} has another number of dimensions")
        self._body.accesses.setdefault(array, []).append(tuple(indices))
        if _is_assigned(node) and array not in self._body.written:
            self._body.written.append(array)

    def _check_overlap(self) -> None:
        """Refuse written arrays that another name may lead to."""
        for array in self._body.written:
            alone = len(self._body.accesses) == 1
            for declaration in self._scope.declared(array):
                own = (
                    declaration.local
                    and not declaration.parameter
                    and not declaration.pointer
                    and "extern" not in declaration.qualifiers
                )
                if not own and not (
                    declaration.parameter and (alone or (declaration.pointer and declaration.restrict))
                ):
                    raise self._tree.source.error(
                        self._directive,
                        f"{array} may overlap another array of the nest; declare it __restrict__"
                        if declaration.parameter
                        else f"it is not known where {array} leads to; written are parameters and arrays of"
                        " the function",
                    )
        if not self._body.written:
            return
        for array in self._body.accesses:
            for declaration in self._scope.declared(array):
                local = declaration.local and declaration.pointer and not declaration.parameter
                if local or (declaration.parameter and self._is_moved(array)):
                    raise self._tree.source.error(
                        self._directive,
                        f"it is not known where {array} leads to; use a parameter that is not assigned to",
                    )

    def _is_moved(self, array: str) -> bool:
        """Return True if a function may change the address in a parameter."""
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


_PAIR = 2
_WORD = re.compile(r"[A-Za-z_]\w*")


def fixed_counters(body: LoopBody, array: str, loops: Sequence[Loop], scope: Scope) -> set[str]:
    """Counters that have one value alone for each element of an array.

    If all accesses have the same index in some dimension, two that touch the same element have the same
    value of that index, and so of the counters that it determines.
    """
    counters: set[str] = set()
    seen = body.accesses[array]
    for dimension in range(len(seen[0])):
        indices = {access[dimension] for access in seen}
        if len(indices) == 1:
            counters |= _fixed_by(indices.pop(), {loop.name: loop for loop in loops}, body.local, scope)
    return counters


def _fixed_by(index: str, counters: Mapping[str, Loop], varying: set[str], scope: Scope) -> set[str]:
    """Counters that an index determines: of ``i`` and ``i + c``; both of ``i * n + j``, j below n."""
    terms = _terms(index)
    if terms is None or set(_WORD.findall(index)) & varying:
        return set()
    using = [term for term in terms if set(_WORD.findall(term)) & set(counters)]
    if len(using) == 1 and using[0] in counters:
        return {using[0]}
    if len(using) == _PAIR == len(terms):
        for row, column in (using, using[::-1]):
            pair = _row(row, counters)
            if pair is not None and column in counters and column != pair[0]:
                inner, outer = counters[column], counters[pair[0]]
                if _spans(inner, pair[1]) and _exact((outer, inner), pair[1], scope):
                    return {pair[0], column}
    return set()


def _spans(inner: Loop, pitch: str) -> bool:
    """Return True if a counter runs from 0 to below the pitch of the rows."""
    bound = "".join((inner.bound.text or b"").decode().split())
    sign = inner.condition.child_by_field_name("operator")
    return inner.first.text == b"0" and bound == pitch and sign is not None and sign.text == b"<"


def _exact(loops: Sequence[Loop], pitch: str, scope: Scope) -> bool:
    """Return True if products of a counter and a pitch cannot wrap around to another product."""
    kinds = {scope.kind_of_type(loop.type) for loop in loops}
    kinds.add(kind_of_number(pitch) if pitch[0].isdigit() else scope.kind(pitch))
    return kinds <= {"signed", "large"}


def _row(term: str, counters: Mapping[str, Loop]) -> tuple[str, str] | None:
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


# --- Whether tiles keep what a loop nest does: how it ends, its bounds, and the order of writes.

_LEAVING = ("break_statement", "goto_statement", "labeled_statement", "co_return_statement")
_BREAKABLE = ("for_statement", "while_statement", "do_statement", "switch_statement", "for_range_loop")
_ALTERNATIVES = ("select", "case", "end")
_OF_BOUNDS = frozenset(
    {
        *(
            "identifier",
            "number_literal",
            "binary_expression",
            "unary_expression",
            "comment",
            "true",
            "false",
        ),
        *("parenthesized_expression", "field_expression", "field_identifier", "cast_expression"),
        *("type_descriptor", "primitive_type", "sized_type_specifier", "type_identifier", "type_qualifier"),
        *("conditional_expression", "call_expression", "argument_list", "sizeof_expression"),
    }
)
_UNKNOWN_MACRO = re.compile(r"[A-Z_][A-Z0-9_]+")


def check_kept(tree: SyntaxTree, directive: Directive, loops: Sequence[Loop], scope: Scope) -> None:
    """Refuse nests that something leaves, and bounds that are more than values.

    Raises:
        KernelFileError: with the line and what stands there.
    """
    source, nest = tree.source, loops[0].node
    own = {loop.node.start_byte for loop in loops}
    for node in nodes_within(nest, *_LEAVING):
        if node.type != "break_statement" or _left_by(node) in own:
            line = source.place(node.start_byte)[0]
            raise source.error(
                directive, f"{tree.text(node).split()[0].rstrip(';')} in line {line} leaves the loop"
            )
    for word in sorted(set(re.findall(rb"[A-Za-z_]\w*", source.code[nest.start_byte : nest.end_byte]))):
        name = word.decode()
        if name in scope.macros and scope.macros.words_behind(name) & {"break", "goto"}:
            raise source.error(directive, f"the macro {name} leaves the loop")
    for node in nodes_within(nest, "call_expression", "expression_statement", "preproc_include"):
        name = tree.text(node).partition("(")[0].strip(" \t\r\n;")
        unknown = _UNKNOWN_MACRO.fullmatch(name) and name not in scope.macros and name not in tree.functions
        if unknown or node.type == "preproc_include":
            line = source.place(node.start_byte)[0]
            raise source.error(
                directive, f"{name or 'it'} in line {line} may leave the loop; this file does not say"
            )
    for loop in loops:
        for part in (loop.first, loop.bound):
            _check_values(tree, directive, loop, part, scope)


def check_order(
    tree: SyntaxTree, directive: Directive, loops: Sequence[Loop], tiled: Sequence[str], scope: Scope
) -> dict[str, tuple[str, str]]:
    """Refuse nests in which iterations that change places may touch the same element.

    Iterations that touch the same element of an array have the same counters, but for those that its
    subscripts leave free. Of these, tiles keep the order if none is tiled but the outermost.

    Returns:
        The types to which first value and bound of each tiled loop are converted; empty for none.

    Raises:
        KernelFileError: it is not proved that the meaning stays; the message says what is in the way.
    """
    source, nest = tree.source, loops[0].node
    refused_function(scope, tree, directive)
    for inner in source.directives:
        if inner.keyword in _ALTERNATIVES and nest.start_byte < inner.start < nest.end_byte:
            raise source.error(directive, f"#pragma {inner} stands in the nest, in line {inner.line}")
    for name in sorted({tree.text(identifier) for identifier in nodes_within(nest, "identifier")}):
        if name in scope.macros and not scope.macros.number(name):
            raise source.error(directive, f"the macro {name} is more than a number")
    counters = {loop.name for loop in loops}
    for loop in loops:
        varying = (names_in(tree, loop.first) | names_in(tree, loop.bound)) & counters
        if varying:
            raise source.error(
                directive, f"{', '.join(sorted(varying))} in the bounds of {loop.name} changes in the nest"
            )
    body = _BodyReader(tree, directive, loops, scope).body()
    for array in body.written:
        fixed = fixed_counters(body, array, loops, scope)
        free = [loop.name for loop in loops if loop.name not in fixed]
        if set(free[1:]) & set(tiled):
            raise source.error(
                directive,
                f"it is not proved that tiles keep the order of writes to {array}: different"
                f" {' and '.join(free)} may touch one element ({', '.join(body.accesses_of(array))})",
            )
    return {loop.name: _conversions(tree, directive, loop, scope) for loop in loops if loop.name in tiled}


def _left_by(node: Node) -> int | None:
    """The first byte of the statement that a ``break`` leaves."""
    outer = node.parent
    while outer is not None and outer.type not in _BREAKABLE:
        outer = outer.parent
    return None if outer is None else outer.start_byte


def _check_values(tree: SyntaxTree, directive: Directive, loop: Loop, part: Node, scope: Scope) -> None:
    """Refuse bounds that do more when they are looked at once more."""
    for node in nodes_within(part):
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        name = "" if called is None else tree.text(called)
        unknown = called is not None and (name not in PURE or name in tree.functions or name in scope.macros)
        arrow = node.type == "field_expression" and "->" in tree.text(node)
        word = tree.text(node) if node.type == "identifier" else ""
        more = word in scope.macros and not scope.macros.number(word)
        if (node.is_named and node.type not in _OF_BOUNDS) or unknown or arrow or more:
            raise tree.source.error(directive, f"the bounds of {loop.name} are not plain: {tree.text(part)}")


def _conversions(tree: SyntaxTree, directive: Directive, loop: Loop, scope: Scope) -> tuple[str, str]:
    """The types that first value and bound are to be converted to, as they are in the loop itself.

    A loop over tiles counts in 64 bits, and compares as the loop of 32 bits does.
    """
    kind = scope.kind_of_type(loop.type)
    first, bound = _kinds(tree, loop.first, scope), _kinds(tree, loop.bound, scope)
    if "floating" in first | bound:
        raise tree.source.error(directive, f"the bounds of {loop.name} are no whole numbers")
    if loop.wide == loop.type:  # of 64 bits already
        return "", ""
    if kind == "unsigned":
        wide = any(scope.wide(name) for name in names_in(tree, loop.bound)) or "large" in bound
        return loop.type, "" if wide else loop.type
    first_text = tree.text(loop.first).strip()
    from_zero = first_text.isdecimal() or re.fullmatch(r"(?:thread|block)Idx\.[xyz]", first_text) is not None
    if bound != {"signed"} and bound and not from_zero:
        raise tree.source.error(
            directive,
            f"{loop.name} has a sign and {tree.text(loop.bound)} none; begin at 0, or give both one type",
        )
    plain = (
        first <= {"signed"} and loop.type == "int" and not any(map(scope.wide, names_in(tree, loop.first)))
    )
    return "" if plain else loop.type, ""


def _kinds(tree: SyntaxTree, part: Node, scope: Scope) -> set[str]:
    """The kinds of the numbers in an expression."""
    names = names_in(tree, part) - PURE
    kinds = {scope.kind(name) for name in names}
    kinds |= {kind_of_number(tree.text(literal)) for literal in nodes_within(part, "number_literal")}
    kinds |= {
        scope.kind_of_type(tree.text(literal))
        for literal in nodes_within(part, "primitive_type", "sized_type_specifier", "type_identifier")
    }
    if any(
        tree.text(literal).split(".")[0] in BUILT_IN for literal in nodes_within(part, "field_expression")
    ):
        kinds.add("unsigned")
    if any(True for _ in nodes_within(part, "sizeof_expression")):
        kinds.add("large")
    return kinds


# --- Tiles of loop nests: a loop in pieces, the loop over the pieces outermost; only where provably legal.
#
# A tile of the outermost loop alone keeps the order of iterations: the loop is left and entered again where
# it was. Any other tile changes the order. It is legal if iterations that touch the same element, one of them
# writing, keep their order (``check_order``).

_FORM = re.compile(r"([A-Za-z_]\w*)\s+(.*)", re.DOTALL)
_LARGEST_TILE = 2**20


def tiled_loops(
    tree: SyntaxTree, directives: Sequence[Directive], numbers: Collection[str] = ()
) -> list[PragmaTunable]:
    """The tunables of ``tile`` pragmas above the same nest, outermost first; ``numbers`` are undeclared ones.

    Raises:
        KernelFileError: no such loops are perfectly nested there, or it is not proved that tiles keep the
            meaning; the message says what is in the way.
    """
    source, last = tree.source, directives[-1]
    parts = [_parts(tree, directive) for directive in directives]
    node = next((behind for behind in tree.behind(last) if behind.type == "for_statement"), None)
    if node is None:
        raise source.error(last, "a for loop must stand below it")
    tiled = [counter for counter, _, _ in parts]
    if len(set(tiled)) < len(tiled):
        raise source.error(last, "the loop is tiled twice")
    loops = loop_nest(tree, last, node, tiled)
    counters = {loop.name: loop for loop in loops}
    scope = Scope(tree, loops[0].node, numbers)
    outermost_alone = tiled == [loops[0].name]
    check_kept(tree, last, loops, scope)
    casts = {} if outermost_alone else check_order(tree, last, loops, tiled, scope)
    tunables = []
    for directive, (counter, label, text) in zip(directives, parts, strict=True):
        loop = counters[counter]
        name, values = _values(tree, directive, loop, label, text)
        default = values[0]
        header, edits = (
            _entered_again(tree, loop, name)
            if outermost_alone
            else _hoisted(tree, loop, name, casts[counter])
        )
        edit = instead_of(source, directive, *guarded(name, default), header)
        tunables.append(PragmaTunable(directive, name, values, default, edits=(edit, *edits)))
    return tunables


def _parts(tree: SyntaxTree, directive: Directive) -> tuple[str, str, str]:
    """Counter, label and values of a pragma ``tile [NAME:] i 8, 64, 2``."""
    label, text = named(directive.text)
    match = _FORM.fullmatch(text)
    if match is None:
        raise tree.source.error(
            directive, "write tile COUNTER FIRST, LAST[, BASE], or tile COUNTER values A, B"
        )
    return match[1], label, match[2]


def _values(
    tree: SyntaxTree, directive: Directive, loop: Loop, label: str, text: str
) -> tuple[str, tuple[int, ...]]:
    """Name and values of the tunable."""
    source = tree.source
    listed = text.startswith("values")
    stated = read_list(source, directive, "values" if listed else "erange", text.removeprefix("values"))
    values = tuple(value for value in stated.values if type(value) is int and 0 < value <= _LARGEST_TILE)
    if len(values) < len(stated.values):
        raise source.error(directive, f"sizes of tiles are whole numbers from 1 to {_LARGEST_TILE}")
    if stated.when or stated.otherwise is not None:
        raise source.error(directive, "a tile has no condition; write a constraint")
    name = label or f"tile_{loop.name}"
    for used in (name, _tile(loop)):
        if used in source.words:
            raise source.error(
                directive, f"the source has the name {used}; write tile NAME: before the counter"
            )
    return name, values


def _tile(loop: Loop) -> str:
    return f"tuner_{loop.name}_tile"


def _entered_again(tree: SyntaxTree, loop: Loop, name: str) -> tuple[str, tuple[Edit, ...]]:
    """A loop that ends after each tile and goes on where it was, whatever its body does to the counter."""
    first, bound = _plain(tree, loop.first), _plain(tree, loop.bound)
    header = f"for ({loop.type} {loop.name} = {first}; {loop.name} {loop.sign} {bound};)"
    start, end = loop.start.start_byte, loop.start.end_byte
    lines = "\n" * tree.source.text.count(b"\n", start, end)
    opening = Edit(start, end, f"{loop.type} {_tile(loop)} = {loop.name};{lines}")
    return header, (opening, _end_of_tile(loop, name))


def _hoisted(tree: SyntaxTree, loop: Loop, name: str, cast: tuple[str, str]) -> tuple[str, tuple[Edit, ...]]:
    """A loop over the first values of tiles, to stand above the nest."""
    tile, step = _tile(loop), _extent(loop, name)
    values = (_plain(tree, loop.first), _plain(tree, loop.bound))
    first, bound = (f"({to})({text})" if to else text for to, text in zip(cast, values, strict=True))
    header = f"for ({loop.wide} {tile} = {first}; {tile} {loop.sign} {bound}; {tile} += {step})"
    lines = "\n" * tree.source.text.count(b"\n", loop.first.start_byte, loop.first.end_byte)
    opening = Edit(loop.first.start_byte, loop.first.end_byte, f"{tile}{lines}")
    return header, (opening, _end_of_tile(loop, name))


def _end_of_tile(loop: Loop, name: str) -> Edit:
    end = loop.condition.end_byte
    return Edit(end, end, f" && {loop.name} - {_tile(loop)} < {_extent(loop, name)}")


def _extent(loop: Loop, name: str) -> str:
    return name if loop.step == "1" else f"{name} * (long long)({loop.step})"


def _plain(tree: SyntaxTree, node: Node) -> str:
    """An expression on one line, without comments."""
    text = tree.source.code[node.start_byte : node.end_byte].decode(errors="replace")
    return " ".join(text.replace("\\\r\n", " ").replace("\\\n", " ").split())


_LEAST, _MOST = 1, 1024
_LIST = re.compile(r"(?:(\w+)\s*:\s*)?values\b(.*)", re.DOTALL)


def unrolled_loop(tree: SyntaxTree, directive: Directive) -> PragmaTunable:
    """The tunable of ``unroll``: the factor of the loop below; 1 leaves it rolled.

    Raises:
        KernelFileError: no ``for`` stands below, it is unrolled already, or a factor is out of range.
    """
    source = tree.source
    match = _LIST.fullmatch(directive.text)
    keyword, text = (
        ("values", f"{match[1] or ''}{':' * bool(match[1])}{match[2]}")
        if match
        else ("erange", directive.text)
    )
    stated = read_list(source, directive, keyword, text)
    nodes = tree.behind(directive)
    if not any(node.type == "for_statement" for node in nodes):
        unroll = re.match(_UNROLL_BYTES, tree.source.blank[directive.end :])
        below = "something else" if unroll is None else "#pragma unroll"
        raise source.error(directive, f"a for loop must stand below it; there is {below}")
    factors = stated.values
    if any(type(factor) is not int or not _LEAST <= factor <= _MOST for factor in factors):
        raise source.error(directive, f"factors are whole numbers from {_LEAST} to {_MOST}")
    default = 1 if 1 in factors else factors[0]
    name = stated.name or f"unroll_{directive.line}"
    check_free(source, directive, name)
    last = source.text.count(b"\n", 0, directive.end)  # of the pragma; nothing may stand before the loop
    edit = instead_of(source, directive, *guarded(name, default), f"#line {last}", f"#pragma unroll {name}")
    return PragmaTunable(directive, name, factors, default, stated.when, stated.otherwise, edits=(edit,))
