"""Launches that CUDA C++ text states: ``kernel<<<grid, block, shared>>>(arguments)``, and what they stand on.

Names of the host are followed to what the same function, or the text, gave them last before the launch.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tuner.kernel_files.cuda_source.c_expressions import (
    Node,
    calls_in,
    listed,
    number,
    parsed,
    parsed_text,
    substituted,
)
from tuner.kernel_files.cuda_source.tokens import (
    Token,
    bodies_of,
    declared_from,
    defined_macros,
    group_end,
    head_end,
    statement_end,
    tokens_of,
)

_AXES = "xyz"
_ONE = parsed_text("1")
_ALLOCATIONS = re.compile(r"(?:cuda|hip)Malloc(?:Managed|Async|Host)?|(?:cuda|hip)HostAlloc")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([\w, ]*)\)[ \t]*((?:\\\n|[^\n])*)", re.MULTILINE)
Inlines = Mapping[str, tuple[list[str], Node]]


@dataclass(frozen=True)
class Launch:
    """One launch.

    Attributes:
        kernel: name of the function, without its namespaces.
        template: its template arguments, as written.
        grid: blocks in x, y, z, as far as stated; None where they are no arithmetic.
        block: threads, likewise.
        shared: bytes; None where nothing is stated.
        arguments: as arithmetic; None for what is none.
        names: what each argument names at its end: ``d_x`` of ``(float*)d_x``.
        values: what names of the host stand for, those of the launch's function and those of the text.
        bytes: array -> the bytes that are allocated for it.
        line: its line.
        looped: variables of the loops around it.
        called: parameters of the function around it -> the numbers that a caller in the text gives them.
        block_name: of the host for the whole block, as ``threads`` of ``dim3 threads(16, 16)``; may be empty.
    """

    kernel: str
    template: tuple[str, ...]
    grid: tuple[Node | None, ...]
    block: tuple[Node | None, ...]
    shared: Node | None
    arguments: tuple[Node | None, ...]
    names: tuple[str, ...]
    values: Mapping[str, Node] = field(default_factory=dict)
    bytes: Mapping[str, Node] = field(default_factory=dict)
    line: int = 0
    looped: frozenset[str] = frozenset()
    called: Mapping[str, Node] = field(default_factory=dict)
    block_name: str = ""


def launches_in(text: str) -> list[Launch]:
    """The launches of a text, in their order."""
    tokens = tokens_of(text)
    everywhere = values_of(text)
    inlines = inlined(text)
    bodies = bodies_of(tokens)
    allocated = _allocations(tokens)
    loops = [
        (before.text, range(start, statement_end(tokens, start)))
        for start, token in enumerate(tokens)
        if token.text == "for"
        for before, sign in itertools.pairwise(tokens[start : head_end(tokens, start + 1)])
        if sign.text == "=" and before.kind == "word"
    ]
    found = []
    for index in range(1, len(tokens) - 3):
        if [token.text for token in tokens[index : index + 3]] != ["<", "<", "<"]:
            continue
        own = next((body for body in reversed(bodies) if body[0] < index <= body[2]), (0, 0, 0))
        dims, values = _stated(tokens[own[0] : index], inlines)
        launch = _launch(tokens, index, dims, {**everywhere, **values}, inlines)
        if launch is not None:
            bytes_of = {name: with_inlined(size, inlines) for name, size in allocated.items()}
            looped = frozenset(name for name, around in loops if index in around)
            call = _call(tokens, own, bodies, everywhere)
            template = tuple(call.template.get(text, text) for text in launch.template)
            of_caller = {arg: parsed_text(name) for name, arg in call.names.items()}
            inner = {name: one for name, one in of_caller.items() if one is not None}
            bytes_of |= {
                n: substituted(bytes_of[a], inner, 1) for n, a in call.names.items() if a in bytes_of
            }
            found.append(
                replace(launch, bytes=bytes_of, looped=looped, called=call.numbers, template=template)
            )
    return found


class _Call(NamedTuple):
    """A call of a function of the text: its parameters with their numbers and names there, its types."""

    numbers: Mapping[str, Node]
    names: Mapping[str, str]
    template: Mapping[str, str]


def _call(
    tokens: Sequence[Token],
    own: tuple[int, int, int],
    bodies: Sequence[tuple[int, int, int]],
    everywhere: Mapping[str, Node],
) -> _Call:
    """The first call, from another function, of that between some places; empty where there is none."""
    first, opening, last = own
    place = next((i for i in range(first, opening) if tokens[i + 1].text == "("), opening)
    parts = listed(tokens[place + 2 : group_end(tokens, place + 1) - 1]) if place < opening else []
    names = [next((one for one in listed(part, "=")), part)[-1].text for part in parts]
    types = []
    if tokens[first].text == "template":
        types = [part[-1].text for part in listed(tokens[first + 2 : group_end(tokens, first + 1) - 1])]
    for start, brace, end in bodies:
        for index in range(brace, end if names else brace):
            if tokens[index].text != tokens[place].text or first <= index <= last:
                continue
            behind, stated = index + 1, []
            if tokens[behind].text == "<":
                behind = group_end(tokens, behind)
                stated = [
                    " ".join(one.text for one in part) for part in listed(tokens[index + 2 : behind - 1])
                ]
            if tokens[behind].text != "(":
                continue
            given = listed(tokens[behind + 1 : group_end(tokens, behind) - 1])
            values = {**everywhere, **_stated(tokens[start:index], {})[1]}
            nodes = {name: parsed(part) for name, part in zip(names, given, strict=False)}
            told = {name: substituted(node, values) for name, node in nodes.items() if node is not None}
            numbers = {n: one for n, one in told.items() if isinstance(one, ast.Constant) or number(one)}
            single = {name: part[0].text for name, part in zip(names, given, strict=False) if len(part) == 1}
            return _Call(numbers, single, dict(zip(types, stated, strict=False)))
    return _Call({}, {}, {})


def values_of(text: str) -> dict[str, Node]:
    """The meanings of macros and constants of a text, where those are arithmetic."""
    values = {}
    for name, body in defined_macros(text).items():
        node = parsed_text(body) if body else None
        if node is not None:
            values[name] = node
    tokens = tokens_of(text)
    inside = {index for first, _, last in bodies_of(tokens) for index in range(first, last + 1)}
    for index, token in enumerate(tokens[:-1]):
        if token.text != "=" or index in inside or tokens[index - 1].kind != "word":
            continue
        statement = [one.text for one in tokens[declared_from(tokens, index) : index]]
        node = parsed(tokens[index + 1 : _end_of_value(tokens, index + 1)])
        if node is not None and {"const", "constexpr"} & set(statement):
            values.setdefault(statement[-1], node)
    return values


def inlined(text: str) -> Inlines:
    """Functions and macros of a text that are nothing but an expression: name -> parameters, expression."""
    found: dict[str, tuple[list[str], Node]] = {}
    for match in _MACRO.finditer(text):
        node = parsed_text(match[3].replace("\\\n", " "))
        if node is not None:
            found[match[1]] = [name.strip() for name in match[2].split(",")], node
    tokens = tokens_of(text)
    for index, token in enumerate(tokens[:-1]):
        if token.kind != "word" or tokens[index + 1].text != "(":
            continue
        end = group_end(tokens, index + 1)
        body = [one.text for one in tokens[end : end + 2]]
        if body != ["{", "return"]:
            continue
        closing = next((i for i in range(end, len(tokens)) if tokens[i].text == ";"), end)
        node = parsed(tokens[end + 2 : closing])
        parameters = [part[-1].text for part in listed(tokens[index + 2 : end - 1]) if part]
        if node is not None:
            found[token.text] = parameters, node
    return found


def with_inlined(node: Node, inlines: Inlines) -> Node:
    """A tree with the expressions of the functions that it calls."""

    class Inline(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> Node:
            self.generic_visit(call)
            parameters, body = inlines.get(ast.unparse(call.func).rpartition(".")[2], ([], None))
            if body is None or len(parameters) != len(call.args):
                return call
            return substituted(body, dict(zip(parameters, call.args, strict=True)), 1)

    for _ in range(3):
        if not calls_in(node) & set(inlines):
            break
        node = Inline().visit(ast.parse(ast.unparse(node), mode="eval").body)
    return substituted(node, {})


def _stated(
    tokens: Sequence[Token], inlines: Inlines
) -> tuple[dict[str, list[Node | None]], dict[str, Node]]:
    """The extents (``dim3``) and the numbers that some tokens give to names; the last of a name counts."""
    dims: dict[str, list[Node | None]] = {}
    values: dict[str, Node] = {}
    for index, token in enumerate(tokens[:-1]):
        if token.kind != "word":
            continue
        following = tokens[index + 1].text
        before = tokens[index - 1].text if index else ""
        if following == "=" and before == "." and index > 1:
            _set_axis(dims, tokens[index - 2].text, token.text, _value(_value_after(tokens, index), inlines))
        elif following in ("=", "(", "{", ";", ",") and _of_dim3(tokens, index):
            dims[token.text] = _dim3(tokens, index, inlines)
        elif vector := _vector_at(tokens, index):
            size = _value(
                next(iter(listed(tokens[index + 2 : group_end(tokens, index + 1) - 1])), ()), inlines
            )
            values |= {} if size is None else {f"{vector}.size": size}
        elif following == "=":
            node = _value(_value_after(tokens, index), inlines)
            if node is not None and "argv" not in ast.unparse(node):
                values[token.text] = node
            elif "argv" not in {one.text for one in _value_after(tokens, index)}:  # else as without arguments
                values.pop(token.text, None)
    for name, extents in dims.items():
        for axis, extent in zip(_AXES, [*extents, _ONE, _ONE], strict=False):
            if extent is not None:
                values[f"{name}.{axis}"] = extent
    given = {
        three[2].text for three in zip(tokens, tokens[1:], tokens[2:], strict=False) if _hands_out(*three)
    }
    return dims, {name: value for name, value in values.items() if name not in given}


def _hands_out(before: Token, sign: Token, _: Token) -> bool:
    """Return True at ``f(&n``: who calls does not see what n is from there on."""
    return sign.text == "&" and before.text in ("(", ",")


def _vector_at(tokens: Sequence[Token], index: int) -> str:
    """The vector that is given a size at a name: ``vector<float> h(n)``, ``h.resize(n)``; else nothing."""
    before, following = tokens[index - 1].text if index else "", tokens[index + 1].text
    if before in (">", ",") and following in ("(", "{"):
        declared = [token.text for token in tokens[declared_from(tokens, index) : index]]
        return tokens[index].text if before == ">" or {"vector", "device_vector"} & {*declared} else ""
    called = before == "." and following == "(" and tokens[index].text in ("resize", "assign")
    return tokens[index - 2].text if called else ""


def _dim3(tokens: Sequence[Token], index: int, inlines: Inlines) -> list[Node | None]:
    """The extents that a declaration of a ``dim3`` gives to the name at an index."""
    following = tokens[index + 1].text
    if following in ("(", "{"):
        return _extents(tokens[index + 2 : group_end(tokens, index + 1) - 1], inlines)
    value = _value_after(tokens, index) if following == "=" else ()
    if value and value[0].text in ("dim3", "{"):
        return _extents(value[1 + (value[0].text == "dim3") : -1], inlines)
    return [_value(value, inlines)] if value else [_ONE]


def _set_axis(dims: dict[str, list[Node | None]], owner: str, axis: str, value: Node | None) -> None:
    """Note ``grid.x = ...``."""
    place = _AXES.find(axis)
    if owner in dims and place >= 0:
        own = [*dims[owner], _ONE, _ONE][: max(len(dims[owner]), place + 1)]
        own[place] = value
        dims[owner] = own


def _value_after(tokens: Sequence[Token], index: int) -> Sequence[Token]:
    return tokens[index + 2 : _end_of_value(tokens, index + 2)]


def _of_dim3(tokens: Sequence[Token], index: int) -> bool:
    """Return True if the statement is one that begins with ``dim3``, and the name one that it declares."""
    if index == 0 or tokens[index - 1].text not in ("dim3", ","):
        own = [token.text for token in tokens[index + 2 : index + 3]]
        return own == ["dim3"] and tokens[index + 1].text == "="
    for i in range(index - 1, max(-1, index - 64), -1):
        if tokens[i].text in (";", "{", "}"):
            return False
        if tokens[i].text == "dim3":
            return True
    return False


def _end_of_value(tokens: Sequence[Token], start: int) -> int:
    index = start
    while index < len(tokens) and tokens[index].text not in (";", ",", ")", "}"):
        index = group_end(tokens, index) if tokens[index].text in ("(", "[", "{") else index + 1
    return index


def _value(tokens: Sequence[Token], inlines: Inlines) -> Node | None:
    node = parsed(tokens)
    return None if node is None else with_inlined(node, inlines)


def _extents(tokens: Sequence[Token], inlines: Inlines) -> list[Node | None]:
    return [_value(part, inlines) for part in listed(tokens)] or [parsed_text("1")]


def _launch(
    tokens: Sequence[Token],
    index: int,
    dims: Mapping[str, list[Node | None]],
    values: Mapping[str, Node],
    inlines: Inlines,
) -> Launch | None:
    template: tuple[str, ...] = ()
    place = index - 1
    if tokens[place].text == ">":
        opening = _opening_before(tokens, place)
        template = tuple(
            " ".join(token.text for token in part) for part in listed(tokens[opening + 1 : place])
        )
        place = opening - 1
    if tokens[place].kind != "word":
        return None
    inside = index + 3
    end = inside
    while end + 2 < len(tokens) and [token.text for token in tokens[end : end + 3]] != [">"] * 3:
        end = group_end(tokens, end) if tokens[end].text in ("(", "[", "{") else end + 1
    parts = listed(tokens[inside:end])
    if end + 3 >= len(tokens) or tokens[end + 3].text != "(" or len(parts) < 2:  # noqa: PLR2004 - grid and block
        return None
    arguments = listed(tokens[end + 4 : group_end(tokens, end + 3) - 1])
    return Launch(
        tokens[place].text,
        template,
        tuple(_geometry(parts[0], dims, inlines)),
        tuple(_geometry(parts[1], dims, inlines)),
        _value(parts[2], inlines) if len(parts) > 2 else None,  # noqa: PLR2004 - as above
        tuple(_value([token for token in part if token.text != "&"], inlines) for part in arguments),
        tuple(next((one.text for one in reversed(part) if one.kind == "word"), "") for part in arguments),
        values,
        line=tokens[index].line,
        block_name=parts[1][0].text if len(parts[1]) == 1 and parts[1][0].kind == "word" else "",
    )


def _opening_before(tokens: Sequence[Token], closing: int) -> int:
    depth = 0
    for i in range(closing, -1, -1):
        depth += (tokens[i].text == ">") - (tokens[i].text == "<")
        if depth == 0:
            return i
    return closing


def _geometry(
    part: Sequence[Token], dims: Mapping[str, list[Node | None]], inlines: Inlines
) -> list[Node | None]:
    if len(part) == 1 and part[0].text in dims:
        return dims[part[0].text]
    if part and part[0].text == "dim3" and len(part) > 1:
        return _extents(part[2:-1], inlines)
    return [_value(part, inlines)]


def _allocations(tokens: Sequence[Token]) -> dict[str, Node]:
    """Array -> bytes allocated for it, with the values of the function that does it."""
    found: dict[str, Node] = {}
    bodies = bodies_of(tokens)
    for name, size, place in _allocation_calls(tokens):
        start = max((first for first, _, last in bodies if first < place <= last), default=0)
        node = parsed(size)
        if node is not None:
            _, values = _stated(tokens[start:place], {})
            sized = {key: one for key, one in values.items() if _is_size(one) or key.endswith(".size")}
            found.setdefault(name, substituted(node, sized))
    return found


def _is_size(node: Node) -> bool:
    """Return True if a value has the bytes of a type or a product in it, and is no number of its own."""
    arithmetic = isinstance(node, (ast.BinOp, ast.Name)) and number(node) is None
    return arithmetic and not calls_in(node) - {"ceil_div", "min", "max"}


def _allocation_calls(tokens: Sequence[Token]) -> Iterator[tuple[str, Sequence[Token], int]]:
    for index, token in enumerate(tokens[:-1]):
        if _ALLOCATIONS.fullmatch(token.text) and tokens[index + 1].text in ("(", "<"):
            opening = index + 1 if tokens[index + 1].text == "(" else group_end(tokens, index + 1)
            arguments = listed(tokens[opening + 1 : group_end(tokens, opening) - 1])
            if len(arguments) > 1:
                name = next((one.text for one in reversed(arguments[0]) if one.kind == "word"), "")
                yield name, arguments[1], index
