"""Whether tiles keep what a loop nest does: how it ends, its bounds, and the order of writes."""

import re
from collections.abc import Sequence

from tree_sitter import Node

from tuner.pragmas.directives import Directive
from tuner.pragmas.loop_nests import BUILT_IN, Loop, names_in
from tuner.pragmas.loops import PURE, read_body
from tuner.pragmas.scope import Scope, kind_of_number, refused_function
from tuner.pragmas.subscripts import fixed_counters
from tuner.pragmas.syntax import SyntaxTree, nodes_within

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
    for one in source.directives:
        if one.keyword in _ALTERNATIVES and nest.start_byte < one.start < nest.end_byte:
            raise source.error(directive, f"#pragma {one} stands in the nest, in line {one.line}")
    for name in sorted({tree.text(one) for one in nodes_within(nest, "identifier")}):
        if name in scope.macros and not scope.macros.number(name):
            raise source.error(directive, f"the macro {name} is more than a number")
    counters = {loop.name for loop in loops}
    for loop in loops:
        varying = (names_in(tree, loop.first) | names_in(tree, loop.bound)) & counters
        if varying:
            raise source.error(
                directive, f"{', '.join(sorted(varying))} in the bounds of {loop.name} changes in the nest"
            )
    body = read_body(tree, directive, loops, scope)
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
    found = {scope.kind(name) for name in names}
    found |= {kind_of_number(tree.text(one)) for one in nodes_within(part, "number_literal")}
    found |= {
        scope.kind_of_type(tree.text(one))
        for one in nodes_within(part, "primitive_type", "sized_type_specifier", "type_identifier")
    }
    if any(tree.text(one).split(".")[0] in BUILT_IN for one in nodes_within(part, "field_expression")):
        found.add("unsigned")
    if any(True for _ in nodes_within(part, "sizeof_expression")):
        found.add("large")
    return found
