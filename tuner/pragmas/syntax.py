"""The syntax tree of a source, by tree-sitter's grammar of CUDA C++; places are bytes."""

from collections.abc import Iterator

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Tree

from tuner.pragmas.directives import Directive, PragmaSource

_LANGUAGE = Language(tree_sitter_cuda.language())


class SyntaxTree:
    """The tree of a source whose pragmas are spaces.

    Args:
        source: the source.
    """

    def __init__(self, source: PragmaSource) -> None:
        self.source = source
        self._tree: Tree = Parser(_LANGUAGE).parse(source.blank)

    @property
    def root(self) -> Node:
        """The whole source."""
        return self._tree.root_node

    def text(self, node: Node) -> str:
        """What the source has there."""
        return self.source.text[node.start_byte : node.end_byte].decode(errors="replace")

    def behind(self, directive: Directive) -> list[Node]:
        """The nodes that begin with what stands below a pragma, the largest first; none at the end."""
        place = self._next(directive.end)
        node = None if place is None else self.root.descendant_for_byte_range(place, place + 1)
        found = []
        while node is not None and node.parent is not None and node.start_byte == place:
            found.append(node)
            node = node.parent
        return found[::-1]

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
