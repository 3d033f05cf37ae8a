"""The syntax tree of a source, by tree-sitter's grammar of CUDA C++; places are bytes."""

import functools
import re
from collections.abc import Iterator, Mapping

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Tree

from tuner.pragmas.directives import Directive, PragmaSource
from tuner.pragmas.macros import Macros, aliases_in

_BODIES = ("compound_statement", "parameter_list", "initializer_list")
_LANGUAGE = Language(tree_sitter_cuda.language())


class SyntaxTree:
    """The tree of a source whose pragmas are spaces.

    Args:
        source: the source.
    """

    def __init__(self, source: PragmaSource) -> None:
        self.source = source
        self._parts: dict[tuple[int, tuple[str, ...]], tuple[Node, ...]] = {}
        self._tree: Tree = Parser(_LANGUAGE).parse(source.blank)

    @property
    def root(self) -> Node:
        """The whole source."""
        return self._tree.root_node

    def text(self, node: Node) -> str:
        """What the source has there."""
        return self.source.text[node.start_byte : node.end_byte].decode(errors="replace")

    @functools.cached_property
    def macros(self) -> Macros:
        """The macros that the file defines."""
        return Macros(self.source.blank.decode(errors="replace"))

    @functools.cached_property
    def type_aliases(self) -> Mapping[str, str]:
        """Other names of types: name -> type."""
        return aliases_in(self.source.code.decode(errors="replace"))

    @functools.cached_property
    def classes(self) -> frozenset[str]:
        """Names of the classes, structures and unions of the file."""
        text = self.source.code.decode(errors="replace")
        return frozenset(re.findall(r"\b(?:struct|class|union)\s+(?:__\w+\([^)]*\)\s*)?(\w+)", text))

    @functools.cached_property
    def outline(self) -> tuple[Node, ...]:
        """Declarations and definitions of functions outside all bodies."""
        found, left = [], [self.root]
        while left:
            node = left.pop()
            if node.type in ("declaration", "function_definition", "enumerator"):
                found.append(node)
            if node.type != "declaration" and node.type not in _BODIES:
                left.extend(reversed(node.children))
        return tuple(found)

    @functools.cached_property
    def functions(self) -> frozenset[str]:
        """Names of functions that the file defines or declares, those of classes, too."""
        found = set()
        for one in self.outline:
            node = one
            while node.type != "function_declarator":
                inner = node.child_by_field_name("declarator")
                if inner is None:
                    break
                node = inner
            name = node.child_by_field_name("declarator")
            if node.type == "function_declarator" and name is not None:
                found.add(self.text(name).rpartition("::")[2])
        return frozenset(found)

    def parts(self, node: Node, *types: str) -> tuple[Node, ...]:
        """``nodes_within``, remembered; with ``ERROR`` also what the parser has added."""
        key = (node.start_byte, types)
        if key not in self._parts:
            found = nodes_within(node)
            missing = "ERROR" in types
            self._parts[key] = tuple(
                one for one in found if one.type in types or (missing and one.is_missing)
            )
        return self._parts[key]

    def behind(self, directive: Directive) -> list[Node]:
        """The nodes that begin with what stands below a pragma, the largest first; none at the end."""
        place = self._next(directive.end)
        node = None if place is None else self.root.descendant_for_byte_range(place, place + 1)
        found = []
        while node is not None and node.parent is not None and node.start_byte == place:
            found.append(node)
            node = node.parent
        return found[::-1]

    def namespaces(self, place: int) -> str:
        """The named namespaces around a byte, as ``a::b::``; empty outside."""
        found: list[str] = []
        node = self.root.descendant_for_byte_range(place, place)
        while node is not None:
            name = node.child_by_field_name("name") if node.type == "namespace_definition" else None
            if name is not None:
                found.insert(0, f"{self.text(name)}::")
            node = node.parent
        return "".join(found)

    def _next(self, place: int) -> int | None:
        """The first byte from a place on that is no space and in no comment."""
        text = self.source.blank
        while place < len(text):
            if text[place] in b" \t\r\n\f\v":
                place += 1
                continue
            node = self.root.descendant_for_byte_range(place, place + 1)
            if node is None or node.type != "comment":
                return place
            place = node.end_byte
        return None


def nodes_within(node: Node, *types: str) -> Iterator[Node]:
    """The node and all below it that have one of some types; without types, all."""
    left = [node]
    while left:
        one = left.pop()
        if not types or one.type in types:
            yield one
        left.extend(reversed(one.children))


def child_of(node: Node, *types: str) -> Node | None:
    """The first child of one of some types."""
    return next((child for child in node.children if child.type in types), None)
