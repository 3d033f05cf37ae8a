"""Indices that a kernel computes: the grid and the block that they ask for, and the extents of its arrays.

An index is a sum of products: what ``blockIdx.x`` is multiplied with is what one block covers, what it is
compared with is where it ends. Where a kernel tells nothing, nothing is returned.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tuner.kernel_files.cuda_source.c_expressions import (
    Node,
    Sum,
    added,
    bytes_of_type,
    coefficient,
    divided,
    listed,
    multiplied,
    names_in,
    number,
    of_file,
    parsed,
    substituted,
    sum_of,
    written_sum,
)
from tuner.kernel_files.cuda_source.launches import Inlines, with_inlined
from tuner.kernel_files.cuda_source.signatures import Parameter
from tuner.kernel_files.cuda_source.tokens import Token, group_end, head_end, statement_end

AXES = "xyz"
_ENDS = frozenset({";", ",", "&&", "||", "?", ":", "{", "}", "return"})
_MOST_TERMS = 12
_LARGE = 1000
_WARP, _WARPS = "threadIdx.x // 32", 32  # of a block
_MOST_CAST = 10  # tokens between a cast and what it is of


class End(NamedTuple):
    """The end of an index: what it stays below.

    Attributes:
        left: the index.
        right: its end.
        reach: the tokens for which that holds.
    """

    left: Node
    right: Node
    reach: range


class Pointer(NamedTuple):
    """A local name of a place in an array: ``const float4* row = (const float4*)(x + i * n)``.

    Attributes:
        base: the array, or another pointer.
        offset: from the base; None where it is not followed.
        kind: the type of what is there; empty for that of the base.
        tokens: that tell all this.
        inside: the offset is one of the base's elements, not of its own.
    """

    base: str
    offset: Sum | None
    kind: str
    tokens: range
    inside: bool


class Indexing:
    """The indices of one kernel.

    Attributes:
        values: local names -> what they are given first.
        ends: of comparisons and loops; those of parameters first.
        pointers: local names of places in arrays.
        steps: (variable, what is added to it) of loops.
        shared: arrays in shared memory -> their extents.
    """

    def __init__(
        self,
        body: Sequence[Token],
        constants: Mapping[str, Node],
        parameters: Sequence[Parameter] = (),
        inlines: Inlines = MappingProxyType({}),
    ) -> None:
        """Read the body of a kernel.

        Args:
            body: its tokens, with a name of its own for each variable.
            constants: names that stand for something else everywhere.
            parameters: of the kernel; an index that is multiplied with a whole number of them strides over a
                row, and tells nothing of blocks.
            inlines: functions and macros that are an expression.
        """
        self.body = body
        self._inlines = inlines
        self._changed: set[str] = set()
        self._parameters = frozenset(one.name for one in parameters if "int" in str(one.dtype))
        self._elements = {one.name: one.type for one in parameters if one.pointer}
        self.values: dict[str, Node] = {}
        self.loops: set[str] = set()
        self.ends: list[End] = []
        self.pointers: dict[str, Pointer] = {}
        self.steps: list[tuple[str, Node]] = []
        self.shared: dict[str, list[Node | None]] = {}
        self._constants = constants
        self._read()
        self.ends.sort(key=self._says_little)

    def _read(self) -> None:
        heads: list[tuple[range, range, range]] = []  # what is asked, what it holds for, what else
        self._heads = [
            range(index, head_end(self.body, index + 1))
            for index, token in enumerate(self.body[:-1])
            if token.text == "for" and self.body[index + 1].text == "("
        ]
        for index, token in enumerate(self.body[:-1]):
            following = self.body[index + 1].text
            before = self.body[index - 1].text if index else ""
            if token.text in ("for", "if", "while") and following == "(":
                last = head_end(self.body, index + 1)
                end = statement_end(self.body, last + 1)  # what else is done is behind it
                heads.append((range(index, last), range(index, end), range(end, self._block_end(end))))
            if token.text == "for" and following == "(":
                self._loop(self.body[index + 2 : last])
            elif token.kind == "word" and following == "=" and before not in (".", "->", "]"):
                self._given(index)
            elif token.text in ("<", ">=", "<=", ">") and following != "<" and before != "<":
                self._comparison(index, next((one for one in reversed(heads) if index in one[0]), None))
            elif token.text == "__shared__":
                self._shared_array(index)
            elif token.kind == "word" and following == "+" and self._text(index + 2) == "=":
                node = parsed(self._until_end(index + 3))
                if node is not None:
                    self.steps.append((token.text, node))

    def _parsed(self, tokens: Sequence[Token]) -> Node | None:
        node = parsed(tokens)
        return node if node is None or not self._inlines else with_inlined(node, self._inlines)

    def _block_end(self, start: int) -> int:
        """The place of the brace that closes the block around a place."""
        index = start
        while index < len(self.body) and self.body[index].text != "}":
            index = group_end(self.body, index) if self.body[index].text == "{" else index + 1
        return index

    def _given(self, index: int) -> None:
        """Note what the name at a place is given; of a place in an array, where and of what type that is."""
        name, start = self.body[index].text, index + 2
        value = list(self._until_end(start))
        node = self._parsed(_as_sum(value))
        arrays = [one.text for one in value if one.text in self._elements or one.text in self.pointers]
        bases = [] if node is None else [one for one in arrays if coefficient(sum_of(node), one) == {(): 1}]
        declared = self._text(index - 1) == "*"
        if name in self.pointers:  # it is sent elsewhere
            self.pointers[name] = self.pointers[name]._replace(offset=None)
        elif bases or (arrays and declared):
            self.pointers[name] = self._pointer(
                (bases or arrays)[0],
                node if bases else None,
                self._text(index - 2) if declared else "auto",
                range(index, start + len(value)),
            )
        if name in self.values and not any(index in head for head in self._heads):
            self._changed.add(name)
        if node is not None:
            self.values.setdefault(name, node)

    def _pointer(self, base: str, node: Node | None, declared: str, tokens: range) -> "Pointer":
        offset = None if node is None else added(sum_of(node), {(base,): -1})
        first = tokens.start + 2
        kind = self._cast_before(tokens.stop - 1, first) if declared == "auto" else declared
        if self._text(first + 1) == "<":  # reinterpret_cast<float4*>(x + i)
            first = group_end(self.body, first + 1)
        elif self._text(first) == "(":  # (float4*)(x + i)
            first = group_end(self.body, first)
        inside = self._text(first) == "(" and group_end(self.body, first) == tokens.stop
        return Pointer(base, offset, kind, tokens, inside=inside)

    def _cast_before(self, index: int, start: int) -> str:
        """The type that tokens up to a place make pointers to: ``(const float4*)x``; else nothing."""
        for place in range(index, max(start, index - _MOST_CAST), -1):
            if self._text(place) in (";", ",", "{", "}", "="):
                break
            if self._text(place) == "*" and self._text(place + 1) in (")", ">"):
                return self._text(place - 1)
        return ""

    def _wider(self, kind: str, array: str) -> int:
        """Count the elements of an array that one of a type is; 0 where that is not known."""
        own = self._elements.get(array, "")
        if kind in ("", own):
            return 1
        wide, narrow = bytes_of_type(kind), bytes_of_type(own)
        return wide // narrow if wide and narrow else 0

    def _says_little(self, end: End) -> int:
        """Order ends: those of parameters, those of other names, and numbers, as of ``i >= 1``."""
        names = names_in(self.resolved(end.right))
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

    def _comparison(self, index: int, head: tuple[range, range, range] | None) -> None:
        """Note an end: of a head such as ``if (i < n)`` for its statement, of ``if (i >= n)`` behind it."""
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
        _, yes, no = head or [self._reach_of(index)] * 3
        if sign == ">":  # n > i
            left, right = right, left
        elif sign == "<=":  # i <= n - 1
            right = written_sum(added(sum_of(right), {(): 1}))
        if not self._of_thread(right):
            self.ends.append(End(left, right, no if sign == ">=" else yes))
        elif sign == "<=":  # n <= i: return
            self.ends.append(End(written_sum(added(sum_of(right), {(): -1})), left, no))

    def _reach_of(self, index: int) -> range:
        """The tokens that an end outside of heads holds for: of ``i < n ? x[i] : 0``, its statement."""
        end = next((i for i in range(index, len(self.body)) if self.body[i].text == ";"), len(self.body))
        asked = any(token.text == "?" for token in self.body[index:end])
        return range(index, end) if asked else range(len(self.body))

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
        ended = [(sum_of(self.resolved(left)), right) for left, right, _ in self.ends]
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
        pairs = ((sum_of(self.resolved(left)), sum_of(self.resolved(right))) for left, right, _ in self.ends)
        return any(left == own and right == extent for left, right in pairs)

    def suits_any_block(self) -> bool:
        """Return True if no place of a shared array is one thread's: at most one warp's, or of a loop."""
        seen = dict.fromkeys(self.shared, False)
        for place, name, nodes in self._accessed():
            if name not in self.shared:
                continue
            seen[name] = True
            compared, _ = self._ends_at(place, lambda _: True)
            for extent, node in zip(self.shared[name], nodes, strict=False):
                total = sum_of(self._but_ended(node, compared))
                told = [sum_of(self.resolved(left)) for left, _, reach in self.ends if place in reach]
                parts = {part for factors in total for part in factors if "threadIdx" in part}
                parts = {part for part in parts if {(part,): 1} not in told}
                warps = extent is not None and (number(self.resolved(extent)) or 0) >= _WARPS
                if any(not re.search(r" % \d+$", part) and not (warps and part == _WARP) for part in parts):
                    return False
        sizes = {name: [node and number(self.resolved(node)) for node in self.shared[name]] for name in seen}
        return all(found or sizes[name] == [_WARPS] for name, found in seen.items())  # handed to a reduction

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
        for place, name, nodes in self._accessed():
            if name in self.shared if array is None else name != array:
                continue
            key = name if array is None else f"{name}{place}"
            found[key] = [*found.get(key, []), *nodes]
        return found

    def _accessed(self) -> Iterator[tuple[int, str, list[Node]]]:
        """Place, array and indices of each access."""
        for index, token in enumerate(self.body[:-1]):
            cast = self.body[index + 1].text == ")" and self._text(index + 2) == "[" and self._is_array(token)
            if token.kind != "word" or (self.body[index + 1].text != "[" and not cast):
                continue
            if index and self.body[index - 1].text in (".", "->", *self._types()):
                continue
            place = index + 1 + cast
            nodes = []
            while self._text(place) == "[":
                closing = group_end(self.body, place)
                node = self._parsed(self.body[place + 1 : closing - 1])
                nodes += [] if node is None else [node]
                place = closing
            yield index, token.text, nodes

    def _is_array(self, token: Token) -> bool:
        return token.text in self._elements or token.text in self.pointers

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
        if array in self.values:
            return None  # it is moved on
        ends = self._ends_of_grid(grid) | {f"threadIdx.{axis}": end for axis, end in threads.items()}
        best: Sum | None = None
        for place, node in self._all_of(array):
            if node is None:
                return None
            resolved = sum_of(self.resolved(node))
            if self._is_changed(node):
                continue
            compared, whole = self._ends_at(place, known)
            rather = {name for name, end in compared.items() if name not in ends or _all_known(end, known)}
            own = ends | {name: compared[name] for name in rather}
            guarded = _guarded(resolved, whole)
            unguarded = guarded == resolved
            last = self._last(sum_of(self._but_ended(node, own)) if unguarded else guarded, own)
            reached = {} if last is None else added(last, {(): 1})
            if reached and _all_known(reached, known) and (best is None or _size(reached) > _size(best)):
                best = reached
        if not best or best[max(best, key=len)] < 0:
            return None
        return written_sum(best)

    def _ends_at(
        self, place: int, known: Callable[[str], bool]
    ) -> tuple[dict[str, Sum], list[tuple[Sum, Sum]]]:
        """The ends of names, and of whole indices as far as known: rather those that hold at a place."""
        compared: dict[str, Sum] = {}
        whole: list[tuple[Sum, Sum]] = []
        for left, right, reach in sorted(
            self.ends, key=lambda one: len(one.reach) if place in one.reach else len(self.body) + 1
        ):
            total, end = sum_of(left), sum_of(self.resolved(right))
            if len(total) == 1 and next(iter(total.values())) == 1 and len(next(iter(total))) == 1:
                name = next(iter(total))[0]
                if name not in compared or (self._is_weak(compared[name]) and not self._is_weak(end)):
                    compared[name] = end
            if end and _all_known(end, known) and place in reach:
                whole.append((sum_of(self.resolved(left)), end))
        return compared, whole

    def _is_weak(self, end: Sum) -> bool:
        """Return True if an end is a number, as of ``i >= 1``."""
        return not any(end)

    def inner(self, array: str, symbols: Mapping[str, Node]) -> Counter[str]:
        """Names -> how often an index of an array is multiplied with them: the most of its last axis."""
        nodes = [node for _, node in self._all_of(array) if node is not None]
        for index, token in enumerate(self.body[:-1]):
            if token.text == array and self.body[index + 1].text == "+":  # f(x + i * n)
                node = parsed(self._until_end(index + 2))
                nodes += [] if node is None else [node]
        fixed = {name: value for name, value in self.values.items() if name not in self._changed | self.loops}
        own = [substituted(node, {**self._constants, **fixed}) for node in nodes]
        sums = [sum_of(substituted(node, symbols)) for node in own]
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
                inner = [factors for factors in total if f"blockIdx.{axis}" not in factors]
                whole = told and (inner or told[0] == {(): 1})  # and not where a block begins
                if told and whole and blocks == [axis] and coefficient(total, f"blockIdx.{axis}") == told[0]:
                    ends[name] = covered
        return ends

    def aliases(self, array: str) -> dict[str, tuple[Sum | None, int]]:
        """An array and the pointers into it: name -> elements before it, and how many one of its type is."""
        found: dict[str, tuple[Sum | None, int]] = {array: ({}, 1)}
        for name, pointer in self.pointers.items():
            if pointer.base not in found or name == array:
                continue
            before, width = found[pointer.base]
            own = self._wider(pointer.kind, array) if pointer.kind else width
            unit: Sum = {(): width if pointer.inside else own}
            moved = any(name == one for one, _ in self.steps)
            offset = None
            if before is not None and pointer.offset is not None and own and not moved:
                offset = added(before, multiplied(pointer.offset, unit))
            found[name] = offset, own
        return found

    def _is_changed(self, node: Node) -> bool:
        """Return True if an index is made of a variable that is given other values later."""
        names, pending = set[str](), [node]
        while pending:
            new = names_in(pending.pop()) - names
            names |= new
            pending += [self.values[name] for name in new & {*self.values} - self.loops]
        return bool(names & self._changed)

    def leaves_border(self, array: str) -> bool:
        """Return True if no place that an array is written at is the last: they end before ``n - 1``."""
        found = []
        for place, node in self._all_of(array):
            mine = {
                part for part in names_in(self.resolved(node or of_file("0"))) if part not in self._parameters
            }
            ends = [
                one for one in self.ends if place in one.reach and names_in(self.resolved(one.left)) & mine
            ]
            held = [added(sum_of(self.resolved(one.right)), sum_of(one.left), -1) for one in ends]
            found.append(any(end.get((), 0) < 0 and len(end) > 1 for end in held))
        return bool(found) and all(found)

    def is_followed(self, array: str) -> bool:
        """Return True if an array is used by its indices and by pointers into it, and in no other way."""
        names = self.aliases(array)
        given = self.given()
        return all(
            self._text(index + 1) == "[" or self._text(index + 2) == "[" or index in given
            for index, token in enumerate(self.body)
            if token.text in names and self._text(index - 1) not in (".", "->")
        )

    def given(self) -> set[int]:
        """The places of the tokens that tell where pointers point."""
        return {place for pointer in self.pointers.values() for place in pointer.tokens}

    def _all_of(self, array: str) -> list[tuple[int, Node | None]]:
        """Place and last element of each access to an array, by any name; None where it is not followed."""
        found: list[tuple[int, Node | None]] = []
        names = self.aliases(array)
        for place, name, nodes in self._accessed():
            if name not in names:
                continue
            before, unit = names[name]
            wide = unit
            if self._text(place + 1) == ")":  # reinterpret_cast<float4*>(x)[i]
                wide = unit = self._wider(self._cast_before(place, 0), array)
            elif self._text(place - 1) == "&":  # *(float4*)&x[i]
                wide = self._wider(self._cast_before(place, 0), array) or unit
            for node in nodes:
                last = added(multiplied(sum_of(node), {(): unit}), {(): wide - 1})
                known = before is not None and wide > 0
                found.append((place, written_sum(added(before or {}, last)) if known else None))
        return found

    def _but_ended(self, node: Node, ends: Mapping[str, Sum]) -> Node:
        """A tree with what local names are given, but those that are compared with an end."""
        values = {
            name: value for name, value in self.values.items() if name not in self.loops and name not in ends
        }
        return substituted(node, {**self._constants, **values})

    def _last(self, total: Sum, ends: Mapping[str, Sum]) -> Sum | None:
        """The largest value of an index: every variable in the place before its end."""
        parts = {factor: _end_of_part(factor, ends) for factors in total for factor in factors}
        strides = {name: sum_of(self.resolved(step)) for name, step in self.steps if name in self.loops}
        for name, end in [*ends.items(), *parts.items()]:
            by = coefficient(total, name)
            if not by or end is None:
                continue
            rest = {factors: value for factors, value in total.items() if name not in factors}
            last = added(end, strides.get(name, {(): 1}), -1)
            total = _floored(added(rest, multiplied(by, last)))
            if len(total) > _MOST_TERMS:
                return None
        names = {factor for factors in total for factor in factors}
        return None if any("Idx" in name for name in names) else total


def _guarded(total: Sum, ends: Sequence[tuple[Sum, Sum]]) -> Sum:
    """An index with the last place of each part that is held against an end: of ``(r + i) * n + c``.

    Args:
        total: the index.
        ends: parts, and what they stay below.
    """
    for left, end in sorted(ends, key=lambda one: -len(one[0])):  # the longest first
        part = {factors: value for factors, value in left.items() if factors}
        last = added(end, {(): 1 + left.get((), 0)}, -1)
        if len(part) <= 1:  # a variable, or a place in a block
            continue
        first = min(part)
        for factors, value in total.items():
            by = divided({factors: value}, {first: part[first]})
            whole = multiplied(part, by or {})
            if by and all(total.get(one) == own for one, own in whole.items()):
                total = added(added(total, whole, -1), multiplied(last, by))
                break
    return total


def _end_of_part(factor: str, ends: Mapping[str, Sum]) -> Sum | None:
    """The end of ``i // b`` or ``i % b`` where that of ``i`` is a multiple of b; None of what is neither."""
    parts = re.fullmatch(r"([A-Za-z_][\w.]*) (//|%) (\w+)", factor)
    if parts is None or parts[1] not in ends:
        return None
    by: Sum = {(): int(parts[3])} if parts[3].isdecimal() else {(parts[3],): 1}
    return by if parts[2] == "%" else divided(ends[parts[1]], by)


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


def _as_sum(value: Sequence[Token]) -> Sequence[Token]:
    """The tokens of ``&x[i]`` as those of ``x + (i)``; others as they are."""
    if len(value) < 4 or value[0].text != "&" or value[2].text != "[":  # noqa: PLR2004 - &x[i]
        return value
    end = group_end(value, 2)
    opening, closing = value[2]._replace(text="("), value[end - 1]._replace(text=")")
    return [value[1], value[0]._replace(text="+"), opening, *value[3 : end - 1], closing, *value[end:]]
