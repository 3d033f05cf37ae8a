"""Tiles of loop nests: a loop in pieces, the loop over the pieces outermost; only where provably legal.

A tile may change the order in which iterations run. It is legal if no two iterations that change places
touch the same element, one of them writing. That is proved from subscripts alone: if all accesses to an
array have a dimension with the same index, which one loop alone varies, then two iterations of the same
element have the same value of that loop's counter.
"""

import re
from collections.abc import Sequence

from tuner.pragmas.clauses import named
from tuner.pragmas.directives import Directive
from tuner.pragmas.edits import Edit
from tuner.pragmas.loop_body import LoopBody, read_body
from tuner.pragmas.loop_nests import Loop, loop_nest, names_in
from tuner.pragmas.syntax import SyntaxTree, nodes_within
from tuner.pragmas.tunables import Tunable, guarded, instead_of, read_list

_FORM = re.compile(r"([A-Za-z_]\w*)\s+(.*)", re.DOTALL)
_LEAVING = ("break_statement", "goto_statement", "labeled_statement", "co_return_statement")


def tiled_loops(tree: SyntaxTree, directives: Sequence[Directive]) -> list[Tunable]:
    """The tunables of ``tile`` pragmas that stand above the same nest, outermost tile first.

    Raises:
        KernelFileError: no such loops are perfectly nested there, or it is not proved that tiles keep the
            meaning; the message says what is in the way.
    """
    source = tree.source
    parts = [_parts(tree, directive) for directive in directives]
    node = next((one for one in tree.behind(directives[-1]) if one.type == "for_statement"), None)
    if node is None:
        raise source.error(directives[-1], "a for loop must stand below it")
    loops = loop_nest(tree, directives[-1], node, [counter for counter, _, _ in parts])
    counters = {loop.name: loop for loop in loops}
    if len({counter for counter, _, _ in parts}) < len(parts):
        raise source.error(directives[-1], "the loop is tiled twice")
    _check_loops(tree, directives[-1], loops)
    if loops[0].name != parts[0][0] or len(parts) > 1:
        _check_order(tree, directives[-1], loops, [counter for counter, _, _ in parts])
    found = []
    for directive, (counter, label, text) in zip(directives, parts, strict=True):
        found.append(_tunable(tree, directive, counters[counter], label, text))
    return found


def _parts(tree: SyntaxTree, directive: Directive) -> tuple[str, str, str]:
    """Counter, label and values of a pragma ``tile [NAME:] i 8, 64, 2``."""
    label, text = named(directive.text)
    match = _FORM.fullmatch(text)
    if match is None:
        raise tree.source.error(
            directive, "write tile COUNTER FIRST, LAST[, BASE], or tile COUNTER values A, B"
        )
    return match[1], label, match[2]


def _tunable(tree: SyntaxTree, directive: Directive, loop: Loop, label: str, text: str) -> Tunable:
    source = tree.source
    listed = text.startswith("values")
    stated = read_list(source, directive, "values" if listed else "erange", text.removeprefix("values"))
    if any(type(value) is not int or value < 1 for value in stated.values):
        raise source.error(directive, "sizes of tiles are whole numbers above 0")
    name, tile = label or f"tile_{loop.name}", f"tuner_{loop.name}_tile"
    if re.search(rf"\b(?:{name}|{tile})\b", source.code.decode()):
        raise source.error(
            directive, f"the source has the name {name} or {tile}; write tile NAME: before the counter"
        )
    default = stated.values[0]
    extent = name if loop.step == "1" else f"{name} * ({loop.step})"
    first, bound = tree.text(loop.first), tree.text(loop.bound)
    sign = tree.text(loop.condition.child_by_field_name("operator") or loop.condition)
    header = f"for ({loop.wide} {tile} = {first}; {tile} {sign} {bound}; {tile} += {extent})"
    end = loop.condition.end_byte
    edits = (
        instead_of(source, directive, *guarded(name, default), " ".join(header.split())),
        Edit(loop.first.start_byte, loop.first.end_byte, tile),
        Edit(end, end, f" && {loop.name} - {tile} < {extent}"),
    )
    return Tunable(directive, name, stated.values, default, stated.when, stated.otherwise, edits=edits)


def _check_loops(tree: SyntaxTree, directive: Directive, loops: Sequence[Loop]) -> None:
    """Refuse nests whose iterations are not known before they run."""
    source = tree.source
    inside = loops[0].node
    for node in nodes_within(inside, *_LEAVING):
        raise source.error(
            directive,
            f"{tree.text(node).split()[0].rstrip(';')} in line {source.place(node.start_byte)[0]} leaves"
            " the loop",
        )
    changed = _changed_names(tree, loops)
    counters = {loop.name for loop in loops}
    for loop in loops:
        for part in (loop.first, loop.bound):
            if any(
                one.type
                in (
                    "call_expression",
                    "subscript_expression",
                    "pointer_expression",
                    "assignment_expression",
                    "update_expression",
                )
                for one in nodes_within(part)
            ):
                raise source.error(directive, f"the bounds of {loop.name} are not plain: {tree.text(part)}")
            varying = names_in(tree, part) & (changed | counters)
            if varying:
                raise source.error(
                    directive,
                    f"{', '.join(sorted(varying))} in the bounds of {loop.name} changes in the nest",
                )
            _check_constant(tree, directive, names_in(tree, part))
        if loop.name in changed:
            raise source.error(directive, f"{loop.name} is changed, or its address taken, in the loop")


def _changed_names(tree: SyntaxTree, loops: Sequence[Loop]) -> set[str]:
    """The names that bodies assign to or take the address of."""
    found = set()
    updates = [loop.node.child_by_field_name("update") for loop in loops]
    for node in nodes_within(
        loops[0].node, "assignment_expression", "update_expression", "pointer_expression"
    ):
        if node in updates:
            continue
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        while target is not None and target.type in ("subscript_expression", "parenthesized_expression"):
            target = target.child_by_field_name("argument") or target.children[1]
        if target is not None:
            found |= names_in(tree, target)
    return found


def _check_constant(tree: SyntaxTree, directive: Directive, names: set[str]) -> None:
    """Refuse bounds that something else than the nest may change: references, globals, shared variables."""
    text = tree.source.blank.decode(errors="replace")
    for name in sorted(names):
        if re.search(
            rf"&\s*{name}\b|\b(?:__shared__|__device__|volatile|extern)\b[^;(){{}}]*\b{name}\b", text
        ):
            raise tree.source.error(
                directive,
                f"{name}, a bound of the nest, may be changed elsewhere; copy it to a const int first",
            )


def _check_order(tree: SyntaxTree, directive: Directive, loops: Sequence[Loop], tiled: Sequence[str]) -> None:
    """Refuse nests in which iterations that change places may touch the same element."""
    body: LoopBody = read_body(tree, directive, loops)
    outer = [loop.name for loop in loops[:-1]]
    for array in body.written:
        fixed = body.fixed_counters(array, loops)
        alone = len(tiled) == 1 and tiled[0] in fixed
        if alone or fixed.issuperset(outer if len(tiled) == 1 else [loop.name for loop in loops]):
            continue
        free = [loop.name for loop in loops if loop.name not in fixed]
        raise tree.source.error(
            directive,
            f"it is not proved that tiles keep the order of writes to {array}: different {' and '.join(free)}"
            f" may touch one element ({', '.join(body.accesses_of(array))})",
        )
