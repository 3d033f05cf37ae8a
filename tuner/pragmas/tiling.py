"""Tiles of loop nests: a loop in pieces, the loop over the pieces outermost; only where provably legal.

A tile of the outermost loop alone keeps the order of iterations: the loop is left and entered again where it
was. Any other tile changes the order. It is legal if iterations that touch the same element, one of them
writing, keep their order (``order.py``).
"""

import re
from collections.abc import Collection, Sequence

from tree_sitter import Node

from tuner.pragmas.clauses import named
from tuner.pragmas.directives import Directive
from tuner.pragmas.edits import Edit
from tuner.pragmas.loop_nests import Loop, loop_nest
from tuner.pragmas.order import check_kept, check_order
from tuner.pragmas.scope import Scope
from tuner.pragmas.syntax import SyntaxTree
from tuner.pragmas.tunables import PragmaTunable, guarded, instead_of, read_list

_FORM = re.compile(r"([A-Za-z_]\w*)\s+(.*)", re.DOTALL)
_LARGEST_TILE = 2**20


def tiled_loops(
    tree: SyntaxTree, directives: Sequence[Directive], numbers: Collection[str] = ()
) -> list[PragmaTunable]:
    """The tunables of ``tile`` pragmas that stand above the same nest, outermost tile first.

    Args:
        tree: of the source.
        directives: the pragmas.
        numbers: sizes and tunables, which are numbers wherever the source does not declare them.

    Raises:
        KernelFileError: no such loops are perfectly nested there, or it is not proved that tiles keep the
            meaning; the message says what is in the way.
    """
    source, last = tree.source, directives[-1]
    parts = [_parts(tree, directive) for directive in directives]
    node = next((one for one in tree.behind(last) if one.type == "for_statement"), None)
    if node is None:
        raise source.error(last, "a for loop must stand below it")
    tiled = [counter for counter, _, _ in parts]
    if len(set(tiled)) < len(tiled):
        raise source.error(last, "the loop is tiled twice")
    loops = loop_nest(tree, last, node, tiled)
    counters = {loop.name: loop for loop in loops}
    scope = Scope(tree, loops[0].node, numbers)
    kept = tiled == [loops[0].name]
    check_kept(tree, last, loops, scope)
    casts = {} if kept else check_order(tree, last, loops, tiled, scope)
    found = []
    for directive, (counter, label, text) in zip(directives, parts, strict=True):
        loop = counters[counter]
        name, values = _values(tree, directive, loop, label, text)
        default = values[0]
        header, edits = (
            _entered_again(tree, loop, name) if kept else _hoisted(tree, loop, name, casts[counter])
        )
        edit = instead_of(source, directive, *guarded(name, default), header)
        found.append(PragmaTunable(directive, name, values, default, edits=(edit, *edits)))
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
    for taken in (name, _tile(loop)):
        if taken in source.words:
            raise source.error(
                directive, f"the source has the name {taken}; write tile NAME: before the counter"
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
