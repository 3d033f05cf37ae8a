"""Indices that a kernel computes: the grid and the block that they ask for, and the extents of its arrays.

An index is a sum of products: what ``blockIdx.x`` is multiplied with is what one block covers, what it is
compared with is where it ends. Where a kernel tells nothing, nothing is returned.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from tuner.kernel_files.cuda_source.c_expressions import (
    Node,
    Sum,
    added,
    coefficient,
    divided,
    listed,
    multiplied,
    names_in,
    parsed,
    substituted,
    sum_of,
    written_sum,
)
from tuner.kernel_files.cuda_source.tokens import Token, group_end

AXES = "xyz"
_ENDS = frozenset({";", ",", "&&", "||", "?", ":", "{", "}", "return"})
_MOST_TERMS = 12
_LARGE = 1000
_NO_START = frozenset({"(", "[", "*", "/", "%"})


def _head_end(tokens: Sequence[Token], start: int) -> int:
    """The bracket that closes the one at ``start``, whatever statements are between."""
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if depth == 0:
            return index
    return len(tokens)


class Indexing:
    """The indices of one kernel.

    Attributes:
        values: local names -> what they are given first.
        ends: (index, what it stays below) of comparisons and loops; those of parameters first.
        steps: (variable, what is added to it) of loops.
        shared: arrays in shared memory -> their extents.
    """

    def __init__(
        self, body: Sequence[Token], constants: Mapping[str, Node], parameters: Collection[str] = ()
    ) -> None:
        """Read the body of a kernel.

        Args:
            body: its tokens.
            constants: names that stand for something else everywhere.
            parameters: of the kernel; an index that is multiplied with one strides over a row, and tells
                nothing of blocks.
        """
        self.body = body
        self._parameters = frozenset(parameters)
        self.values: dict[str, Node] = {}
        self.loops: set[str] = set()
        self.ends: list[tuple[Node, Node]] = []
        self.steps: list[tuple[str, Node]] = []
        self.shared: dict[str, list[Node | None]] = {}
        self._constants = constants
        self._read()
        self.ends.sort(key=self._says_little)

    def _read(self) -> None:
        for index, token in enumerate(self.body[:-1]):
            following = self.body[index + 1].text
            before = self.body[index - 1].text if index else ""
            if token.text == "for" and following == "(":
                self._loop(self.body[index + 2 : _head_end(self.body, index + 1)])
            elif token.kind == "word" and following == "=" and before not in (".", "->", "]"):
                node = parsed(self._until_end(index + 2))
                if node is not None:
                    self.values.setdefault(token.text, node)
            elif token.text in ("<", ">=", "<=", ">") and following != "<" and before != "<":
                self._comparison(index)
            elif token.text == "__shared__":
                self._shared_array(index)
            elif token.kind == "word" and following == "+" and self._text(index + 2) == "=":
                node = parsed(self._until_end(index + 3))
                if node is not None:
                    self.steps.append((token.text, node))

    def _says_little(self, end: tuple[Node, Node]) -> int:
        """Order ends: those of parameters, those of other names, and numbers, as of ``i >= 1``."""
        names = names_in(self.resolved(end[1]))
        return 0 if names & self._parameters else 1 if names else 2

    def _text(self, index: int) -> str:
        return self.body[index].text if index < len(self.body) else ""

    def _until_end(self, start: int) -> Sequence[Token]:
        index = start
        while index < len(self.body) and self.body[index].text not in (*_ENDS, ")", "]"):
            if self.body[index].text in ("(", "["):
                index = group_end(self.body, index)
            else:
                index += 1
        return self.body[start:index]

    def _loop(self, head: Sequence[Token]) -> None:
        parts = listed(head, ";")
        if len(parts) != 3 or not parts[0]:  # noqa: PLR2004 - where it begins, ends and goes on
            return
        texts = [token.text for token in parts[0]]
        if "=" not in texts or texts.index("=") == 0:
            return
        name = texts[texts.index("=") - 1]
        start = parsed(listed(parts[0][texts.index("=") + 1 :])[0])
        if start is not None and not self._of_thread(start):
            self.loops.add(name)

    def _of_thread(self, node: Node) -> bool:
        found = names_in(self.resolved(node))
        return any(name.startswith(("blockIdx", "threadIdx")) for name in found)

    def _comparison(self, index: int) -> None:
        first = index
        depth = 0
        while first > 0:
            sign = self.body[first - 1].text
            depth += (sign in (")", "]")) - (sign in ("(", "["))
            if depth < 0 or (depth == 0 and sign in (*_ENDS, "=", "<", "<=", ">", ">=", "==", "!=", "!")):
                break
            first -= 1
        left, right = parsed(self.body[first:index]), parsed(self._until_end(index + 1))
        sign = self.body[index].text
        if left is None or right is None:
            return
        if sign == ">":  # n > i
            left, right = right, left
        elif sign == "<=":  # i <= n - 1
            right = written_sum(added(sum_of(right), {(): 1}))
        self.ends.append((left, right))
        if sign == "<=" and self._of_thread(right):  # n <= i: return
            self.ends.append((written_sum(added(sum_of(right), {(): -1})), left))

    def _shared_array(self, index: int) -> None:
        end = next((i for i in range(index, len(self.body)) if self.body[i].text in (";", "=")), index)
        opening = next((i for i in range(index, end) if self.body[i].text == "["), None)
        if opening is None:
            return
        extents: list[Node | None] = []
        place = opening
        while place < end and self.body[place].text == "[":
            closing = group_end(self.body, place)
            extents.append(parsed(self.body[place + 1 : closing - 1]))
            place = closing
        self.shared[self.body[opening - 1].text] = extents

    def resolved(self, node: Node) -> Node:
        """A tree with what local names are given; variables of loops stay."""
        values = {name: value for name, value in self.values.items() if name not in self.loops}
        return substituted(node, {**self._constants, **values})

    def sums(self) -> list[tuple[Sum, Node | None]]:
        """Every index with its end, then all other values without one."""
        ended = [(sum_of(self.resolved(left)), right) for left, right in self.ends]
        rest: list[tuple[Sum, Node | None]] = [
            (sum_of(self.resolved(value)), None) for value in self.values.values()
        ]
        inside = [(sum_of(self.resolved(node)), None) for nodes in self.accesses().values() for node in nodes]
        return [*ended, *rest, *inside]

    def covered(self, axis: str) -> tuple[Sum, Node | None] | None:
        """The part that a block covers along an axis of the grid, and the end of it all; None if not told."""
        found = None
        for total, end in self.sums():
            one = coefficient(total, f"blockIdx.{axis}")
            if one and self._of_block(one):
                if end is not None:
                    return one, self.resolved(end)
                if found is None or found[0] == {(): 1}:  # bx = blockIdx.x says nothing
                    found = one, None
        return found

    def _of_block(self, total: Sum) -> bool:
        """Return True if what an index is multiplied with can be the extent of a block."""
        inner = {name for factors in total for factor in factors for name in _words(factor)}
        return not inner & self._parameters and not any("Idx" in name for name in inner)

    def extent(self, axis: str) -> Sum | None:
        """The threads of a block along an axis; None where the kernel does not tell."""
        own = f"threadIdx.{axis}"
        for total, _ in self.sums():
            mine, width = coefficient(total, own), 1
            for factor in sorted({factor for factors in total for factor in factors}):
                if warp := re.fullmatch(rf"{own} // ([1-9]\d*)", factor):  # as of a warp per row
                    mine, width = coefficient(total, factor), int(warp[1])
            if not mine:
                continue
            blocks = [coefficient(total, f"blockIdx.{one}") for one in AXES]
            threads = [coefficient(total, f"threadIdx.{one}") for one in AXES]
            chain = [part for part in (*blocks, *threads) if part]
            above = [
                ratio
                for part in chain
                if part != mine
                and (ratio := divided(part, mine)) is not None
                and ratio != {(): 1}
                and self._of_block(ratio)
            ]
            if above:
                least = min(above, key=lambda ratio: (max(map(len, ratio)), *ratio.values()))
                return _floored(multiplied(least, {(): width}))
        for name, step in self.steps:
            start = self.values.get(name)
            if start is not None and coefficient(sum_of(self.resolved(start)), own):
                return sum_of(self.resolved(step))
        for name, extents in self.shared.items():
            for nodes in self.accesses(name).values():
                for extent, node in zip(extents, nodes, strict=False):
                    if extent is not None and sum_of(self.resolved(node)) == {(own,): 1}:
                        return {key: value for key, value in sum_of(self.resolved(extent)).items() if key}
        return None

    def has_spare(self, axis: str) -> bool:
        """Return True if a thread is asked whether it is one of those that the indices tell of."""
        own, extent = {(f"threadIdx.{axis}",): 1}, self.extent(axis)
        pairs = ((sum_of(self.resolved(left)), sum_of(self.resolved(right))) for left, right in self.ends)
        return any(left == own and right == extent for left, right in pairs)

    def row_of(self, axis: str) -> Node | None:
        """The row that an axis runs along: what the other indices of an access are multiplied with."""
        for nodes in self.accesses().values():
            for node in nodes:
                total = sum_of(self.resolved(node))
                if coefficient(total, f"threadIdx.{axis}") != {(): 1}:
                    continue
                for other in (*AXES, "loop"):
                    stride = coefficient(total, f"threadIdx.{other}")
                    if other != axis and len(stride) == 1 and stride != {(): 1}:
                        return written_sum(stride)
        return None

    def accesses(self, array: str | None = None) -> dict[str, list[Node]]:
        """The indices that arrays are read and written at; with a name, those of one access to one array."""
        found: dict[str, list[Node]] = {}
        for index, token in enumerate(self.body[:-1]):
            if token.kind != "word" or self.body[index + 1].text != "[":
                continue
            if (array is not None and token.text != array) or (token.text in self.shared and array is None):
                continue
            if index and self.body[index - 1].text in (".", "->", *self._types()):
                continue
            place = index + 1
            nodes = []
            while self._text(place) == "[":
                closing = group_end(self.body, place)
                node = parsed(self.body[place + 1 : closing - 1])
                nodes += [] if node is None else [node]
                place = closing
            key = token.text if array is None else f"{token.text}{index}"
            found[key] = [*found.get(key, []), *nodes]
        return found

    @staticmethod
    def _types() -> tuple[str, ...]:
        return "float", "double", "int", "unsigned", "char", "__shared__"

    def elements(
        self,
        array: str,
        known: Callable[[str], bool],
        grid: Mapping[str, tuple[Sum, Sum]],
        threads: Mapping[str, Sum],
    ) -> Node | None:
        """The elements of an array that indices reach, by the ends of their variables; None if not told.

        Args:
            array: name of a parameter.
            known: whether a name is one that the host knows, too: a size, a macro.
            grid: ``x`` -> blocks along an axis, and what all of them cover.
            threads: ``x`` -> threads of a block along an axis, where they matter.
        """
        if array in self.values or any(name == array for name, _ in self.steps):
            return None  # it is moved on
        ends = self._ends_of_grid(grid) | {f"threadIdx.{axis}": end for axis, end in threads.items()}
        compared: dict[str, Sum] = {}
        whole: list[tuple[Sum, Sum]] = []
        for left, right in self.ends:
            total, end = sum_of(left), sum_of(self.resolved(right))
            if len(total) == 1 and next(iter(total.values())) == 1 and len(next(iter(total))) == 1:
                compared.setdefault(next(iter(total))[0], end)
            if end and _all_known(end, known):
                whole.append((sum_of(self.resolved(left)), end))
        ends |= {name: end for name, end in compared.items() if name not in ends or _all_known(end, known)}
        best: Sum | None = None
        for node in self._all_of(array):
            resolved = sum_of(self.resolved(node))
            reached = next((end for index, end in whole if index == resolved), {})
            last = None if reached else self._last(sum_of(self._but_ended(node, ends)), ends)
            reached = reached if last is None else added(last, {(): 1})
            if reached and _all_known(reached, known) and (best is None or _size(reached) > _size(best)):
                best = reached
        if not best or best[max(best, key=len)] < 0:
            return None
        return written_sum(best)

    def inner(self, array: str, symbols: Mapping[str, Node]) -> Counter[str]:
        """Names -> how often an index of an array is multiplied with them: the most of its last axis."""
        sums = [sum_of(substituted(self.resolved(node), symbols)) for node in self._all_of(array)]
        products = {factors for total in sums for factors in total if len(factors) > 1}
        return Counter(factor for factors in products for factor in factors)

    def _ends_of_grid(self, grid: Mapping[str, tuple[Sum, Sum]]) -> dict[str, Sum]:
        """The ends of local names that all blocks together reach, and of the numbers of blocks."""
        ends = {f"blockIdx.{axis}": blocks for axis, (blocks, _) in grid.items()}
        for axis, (_, covered) in grid.items():
            told = self.covered(axis)
            for name, value in self.values.items():
                total = sum_of(self.resolved(value))
                blocks = [one for one in AXES if coefficient(total, f"blockIdx.{one}")]
                if told and blocks == [axis] and coefficient(total, f"blockIdx.{axis}") == told[0]:
                    ends[name] = covered
        return ends

    def _all_of(self, array: str) -> list[Node]:
        nodes = [node for name, found in self.accesses().items() if name == array for node in found]
        base = {
            name: value
            for name, value in self.values.items()
            if array in names_in(value) and coefficient(sum_of(value), array) == {(): 1}
        }  # const float* row = x + i * n
        for name, value in base.items():
            offset = written_sum(added(sum_of(value), {(array,): -1}))
            inner = self.accesses().get(name, [])
            nodes += [written_sum(added(sum_of(offset), sum_of(one))) for one in inner]
        return nodes

    def _but_ended(self, node: Node, ends: Mapping[str, Sum]) -> Node:
        """A tree with what local names are given, but those that are compared with an end."""
        values = {
            name: value for name, value in self.values.items() if name not in self.loops and name not in ends
        }
        return substituted(node, {**self._constants, **values})

    def _last(self, total: Sum, ends: Mapping[str, Sum]) -> Sum | None:
        """The largest value of an index: every variable in the place before its end."""
        for name, end in ends.items():
            by = coefficient(total, name)
            if not by:
                continue
            rest = {factors: value for factors, value in total.items() if name not in factors}
            total = _floored(added(rest, multiplied(by, added(end, {(): -1}))))
            if len(total) > _MOST_TERMS:
                return None
        names = {factor for factors in total for factor in factors}
        return None if any("Idx" in name for name in names) else total


def _floored(total: Sum) -> Sum:
    """A sum with ``n`` in the place of ``t * (n // t)``, which is no more than that."""
    found: Sum = {}
    for factors, value in total.items():
        product, left = value, list(factors)
        for factor in factors:
            parts = re.fullmatch(r"([\w.]+) // ([1-9]\d*|[A-Za-z_][\w.]*)", factor)
            if parts and parts[2].isdecimal() and product % int(parts[2]) == 0:
                product //= int(parts[2])
            elif parts and parts[2] in left:
                left.remove(parts[2])
            else:
                continue
            left[left.index(factor)] = parts[1]
        found = added(found, {tuple(sorted(left)): product})
    return found


def _size(total: Sum) -> int:
    """A measure that grows as a sum does where all its names are large."""
    return sum(value * _LARGE ** len(factors) for factors, value in total.items())


def _words(factor: str) -> list[str]:
    return re.findall(r"[A-Za-z_][\w.]*", factor)


def _all_known(total: Sum, known: Callable[[str], bool]) -> bool:
    names = {name for factors in total for factor in factors for name in _words(factor)}
    return all(known(name) for name in names - {"ceil_div", "min", "max"})
