"""Loops that are unrolled by a tunable factor."""

import re

from tuner.pragmas.directives import Directive
from tuner.pragmas.syntax import SyntaxTree
from tuner.pragmas.tunables import PragmaTunable, check_free, guarded, instead_of, read_list

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
        below = "#pragma unroll" if _has_unroll(tree, directive) else "something else"
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


def _has_unroll(tree: SyntaxTree, directive: Directive) -> bool:
    return re.match(rb"\s*#\s*pragma\s+unroll", tree.source.blank[directive.end :]) is not None
