"""The syntax tree of a source by tree-sitter's grammar of CUDA C++: statements, macros, edits."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Tree

from tuner.kernel_files.cuda_source.signatures import GlobalFunction, Parameter, global_functions
from tuner.kernel_files.pragmas.directives import (
    Directive,
    PragmaSource,
    clauses,
    named,
    one_value,
    split_list,
)
from tuner.model.errors import suggestion
from tuner.system.untrusted.reading import TomlTable, TomlValue, load_toml

# --- Edits of a source by byte ranges; what is not edited stays as it is, and lines keep their numbers.


@dataclass(frozen=True, order=True)
class Edit:
    """A replacement."""

    start: int
    end: int
    text: str


class OverlapError(ValueError):
    """Two edits touch the same bytes; ``place`` is where."""

    def __init__(self, place: int) -> None:
        super().__init__("another pragma changes the same text")
        self.place = place


def edited(text: bytes, edits: Iterable[Edit]) -> str:
    """The text with its edits; where one changes the number of lines, ``#line`` tells the next line's.

    Such an edit holds whole lines. One that has a ``#line`` itself is left as it is.

    Raises:
        OverlapError: two edits overlap.
    """
    parts: list[bytes] = []
    end_of_last, line = 0, 1  # line: number in the original of what comes next
    for edit in sorted(edits):
        if edit.start < end_of_last:
            raise OverlapError(edit.start)
        replaced = text[edit.start : edit.end]
        parts.append(text[end_of_last : edit.start])
        line += text.count(b"\n", end_of_last, edit.end)
        added = edit.text.encode()
        if added.count(b"\n") != replaced.count(b"\n") and b"#line " not in added:
            added += b"#line %d\n" % line
        parts.append(added)
        end_of_last = edit.end
    parts.append(text[end_of_last:])
    return b"".join(parts).decode()


# --- The macros that a file defines, as far as they matter where loops are rewritten.

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(\()?((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_COMMENT = re.compile(r"//.*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_BARE = re.compile(r"[-+]?(?:\d[\w.']*|\.\d\w*)")
_MOST_STEPS = 8


class Macros:
    """The macros of a source: every definition of a name counts, whatever its conditions."""

    def __init__(self, text: str) -> None:
        self._bodies: dict[str, list[str]] = {}
        self._functions: set[str] = set()
        for match in _DEFINE.finditer(text):
            body = _COMMENT.sub(" ", re.sub(r"\\\r?\n", " ", match[3])).strip()
            self._bodies.setdefault(match[1], []).append(body)
            if match[2]:
                self._functions.add(match[1])

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def text(self, name: str) -> str:
        """Return the body of a macro without parameters; empty of any other, or if it is defined twice."""
        bodies = set(self._bodies.get(name, []))
        return bodies.pop() if len(bodies) == 1 and name not in self._functions else ""

    def number(self, name: str) -> str:
        """The literal that a macro stands for, without brackets; empty where it is more."""
        for _ in range(_MOST_STEPS):
            body = self.text(name)
            while body.startswith("(") and body.endswith(")"):
                body = body[1:-1].strip()
            if _BARE.fullmatch(body):
                return body
            if not _WORD.fullmatch(body):
                return ""
            name = body
        return ""

    def words_behind(self, name: str) -> set[str]:
        """All words that a macro may come to, through others, too."""
        words: set[str] = set()
        pending = [name]
        while pending:
            for body in self._bodies.get(pending.pop(), []):
                new = set(_WORD.findall(body)) - words
                words |= new
                pending.extend(new & self._bodies.keys())
        return words


# --- What pragmas say of the rest of a kernel file: sizes, arrays, checks, launches.

ROLES = {
    "input": "in",
    "output": "out",
    **{role: role for role in ("inout", "scratch", "zeroed", "table", "constant")},
}
LAUNCH_KEYS = (
    *(
        "grid",
        "block",
        "shared_bytes",
        "min_architecture",
        "resident",
        "cluster",
        "cooperative",
        "when",
        "setup",
    ),
    *("stream", "name", "repeat", "index", "registers", "static_shared_bytes"),
)
MOST_LAUNCHES = 64
_MOST_DIGITS = 18
_PROBLEM_KEYS = ("batch", "tolerance", "name", "optional", "reference_arrays")
_FILES = {"function": "reference_function", "law": "law"}
_RANGE = re.compile(r"(\d+)\s*\.\.\s*(\d+)")
_HEAD = re.compile(rb"[^;{}]*")
_EQUATION = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*(.+)", re.DOTALL)

Stated = TypeVar("Stated")


@dataclass
class LaunchStatement:
    """A pragma that states a launch, the ``__global__`` function below it, and what its clauses say."""

    directive: Directive
    function: GlobalFunction
    keys: TomlTable


@dataclass
class Statements:
    """All that the pragmas of a source say beside tunables.

    Attributes:
        sizes: ``[problem] sizes``.
        problem: all else of ``[problem]``.
        references: ``[problem.reference]``, which is part of ``problem`` once it has an entry.
        arguments: name -> dtype, shape and input, value, or fields, as ``[arguments]`` writes it.
        other: what ``toml`` pragmas say.
        lines: key of the kernel file -> line of the pragma.
    """

    sizes: TomlTable = field(default_factory=dict)
    problem: TomlTable = field(default_factory=dict)
    references: TomlTable = field(default_factory=dict)
    arguments: TomlTable = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    launches: list[LaunchStatement] = field(default_factory=list)
    other: TomlTable = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_statements(source: PragmaSource) -> Statements:
    """Read the pragmas of a source, except for tunables.

    Raises:
        KernelFileError: a pragma is unknown, has another form or says what another has said.
    """
    statements = Statements()
    for directive in source.directives:
        reader = _READERS.get(directive.keyword)
        if reader is None or directive.family != "tuner":
            continue
        try:
            reader(source, directive, statements)
        except ValueError as e:
            raise source.error(directive, e) from e
    return statements


def _problem(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    text = directive.text
    if not (text.startswith("(") and text.endswith(")")):
        raise ValueError("write problem(N = [1024, 4096], W = 1..8192)")
    for part in split_list(text[1:-1]):
        match = _EQUATION.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not of the form N = [1024, 4096], N = 1..8192 or batch = 8")
        name, value = match[1], match[2].strip()
        if name in _PROBLEM_KEYS:
            _once(statements.problem, name, _problem_value(name, value))
            statements.lines[f"[problem] {name}"] = directive.line
        else:
            _once(statements.sizes, name, _size(value))
            statements.lines[f"[problem.sizes] {name}"] = directive.line


def _problem_value(name: str, text: str) -> TomlValue:
    if name == "optional":
        return split_list(text.strip("[]"))
    if name in ("name", "reference_arrays"):
        return text.strip("\"'")
    try:
        return one_value(text)
    except ValueError:
        return text.strip('"') if name == "batch" else text


def _size(text: str) -> TomlValue:
    span = _RANGE.fullmatch(text)
    if span is not None:
        return {"from": _count(span[1]), "to": _count(span[2])}
    listed = split_list(text[1:-1]) if text.startswith("[") and text.endswith("]") else [text]
    values: list[int | str] = []
    for part in listed:
        if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
            values.append(part[1:-1])
        elif re.fullmatch(r"\d+", part):
            values.append(_count(part))
        else:
            raise ValueError(
                f"{part!r} is no size; write a whole number, a text in quotes or a range 1..8192"
            )
    if not values:
        raise ValueError("a size has no values")
    return values


def _count(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a size has {len(text)} digits; at most {_MOST_DIGITS} are read")
    return int(text)


def _argument(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    name, text = named(directive.text)
    if not name:
        raise ValueError(f"write {directive.keyword} NAME: float32[N]")
    _once(statements.arguments, name, f"{ROLES[directive.keyword]} {text}")
    statements.lines[f"[arguments] {name}"] = directive.line


def _value(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    name, text = named(directive.text)
    if not name:
        match = _EQUATION.fullmatch(directive.text)
        if match is None:
            raise ValueError("write value NAME: int32 = EXPRESSION, or value NAME = EXPRESSION")
        name, text = match[1], f"= {match[2]}"
    braces = text.removeprefix("=").strip()
    struct = braces.startswith("{") and braces.endswith("}")
    _once(statements.arguments, name, _fields(braces) if struct else text)
    statements.lines[f"[arguments] {name}"] = directive.line


def _fields(text: str) -> TomlTable:
    try:
        fields: TomlTable = load_toml(f"fields = {text}")["fields"]
    except ValueError as e:
        raise ValueError(
            f'{text!r} is no table of fields, as {{ dt = "float32 = 0.5", n = "int32 = N" }}: {e}'
        ) from e
    return fields


def _check(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    word, _space, rest = directive.text.partition(" ")
    quoted = rest.strip().strip("\"'")
    if word in _FILES and quoted and "=" not in rest:
        _once(statements.problem, _FILES[word], quoted)
        statements.lines[f"[problem] {_FILES[word]}"] = directive.line
        return
    if word == "entry" and quoted and "=" not in rest:
        _once(statements.problem, "reference_entry", quoted)
        return
    if directive.text == "default":
        _once(statements.problem, "name", "consistent")
        return
    match = _EQUATION.fullmatch(directive.text)
    if match is None:
        raise ValueError(
            'write check OUTPUT = EXPRESSION, check function "FILE.py:NAME", check law "FILE.py:NAME",'
            ' check entry "KERNEL" or check default'
        )
    statements.problem.setdefault("reference", statements.references)  # in the order of the pragmas
    _once(statements.references, match[1], match[2].strip())
    statements.lines[f"[problem.reference] {match[1]}"] = directive.line


def _derived(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    match = _EQUATION.fullmatch(directive.text)
    if match is None:
        raise ValueError("write derived NAME = EXPRESSION")
    _once(statements.derived, match[1], match[2].strip())
    statements.lines[f"[derived] {match[1]}"] = directive.line


def _constraint(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    if not directive.text:
        raise ValueError("write constraint EXPRESSION")
    statements.rules.append(directive.text)
    statements.lines[f"[constraints] rules, item {len(statements.rules)}"] = directive.line


def _toml(_: PragmaSource, directive: Directive, statements: Statements) -> None:
    try:
        table = load_toml(directive.text)
    except ValueError as e:
        raise ValueError(f"not valid TOML: {e}") from e
    merge(statements.other, table)
    for name, value in table.items():
        inner = value if isinstance(value, Mapping) else {}
        statements.lines.update({f"[{name}] {key}": directive.line for key in inner})


def merge(table: TomlTable, other: Mapping[str, TomlValue], path: str = "") -> None:
    """Add the keys of another table, tables in tables, too.

    Raises:
        ValueError: a key is there already.
    """
    for key, value in other.items():
        inner = table.get(key)
        if isinstance(value, Mapping) and isinstance(inner, dict):
            merge(inner, value, f"{path}{key}.")
        elif key in table:
            raise ValueError(f"{path}{key} is stated twice")
        else:
            table[key] = dict(value) if isinstance(value, Mapping) else value


def _launch(source: PragmaSource, directive: Directive, statements: Statements) -> None:
    keys: TomlTable = {}
    for key, inside in clauses(directive.text):
        if key not in LAUNCH_KEYS:
            raise ValueError(
                f"unknown clause {key}{suggestion(key, LAUNCH_KEYS)}; known here: {', '.join(LAUNCH_KEYS)}"
            )
        _once(keys, key, _launch_value(key, inside))
        statements.lines[f"[launch] {key}"] = directive.line
    if "grid" not in keys:
        raise ValueError("has no clause grid(...)")
    function = kernel_below(source, directive)
    if any(launch.function.name == function.name for launch in statements.launches) and "name" not in keys:
        raise ValueError(f"{function.name} has another launch; give each a name(...)")
    if len(statements.launches) >= MOST_LAUNCHES:
        raise ValueError(f"more than {MOST_LAUNCHES} launches")
    statements.launches.append(LaunchStatement(directive, function, keys))


def _launch_value(key: str, inside: str) -> TomlValue:
    if key in ("name", "index"):
        return inside.strip("\"'")
    if key == "setup":
        return inside.strip() == "true"
    parts: list[int | str] = [int(part) if part.isdecimal() else part for part in split_list(inside)]
    if not parts:
        raise ValueError(f"{key}() is empty")
    if len(parts) > 1 and key not in ("grid", "block"):
        raise ValueError(f"{key}(...) takes one expression")
    return parts[0] if len(parts) == 1 else parts


def kernel_below(source: PragmaSource, directive: Directive) -> GlobalFunction:
    """The ``__global__`` function that a pragma stands above.

    Raises:
        ValueError: something else stands there.
    """
    match = _HEAD.match(source.code, directive.end)
    head = "" if match is None else match[0].decode(errors="replace")
    functions = global_functions(f"{head}{{}}") if "__global__" in head else []
    if not functions:
        raise ValueError(f"no __global__ function stands {_instead(source, directive)}")
    below = functions[0]  # its types may be aliases, which the whole source tells
    names = [function.name for function in below.parameters]
    return next(
        (
            function
            for function in source.functions
            if function.name == below.name and [inner.name for inner in function.parameters] == names
        ),
        below,
    )


def _instead(source: PragmaSource, directive: Directive) -> str:
    """Return the place without a kernel, and the text there, for an error message."""
    between = source.code[directive.end :]
    start = len(source.code) - len(between.lstrip())
    if not re.search(rb"\b__global__\b", between):
        return "below it"
    first = re.split(rb"[;{}\r\n]", source.code[start:], maxsplit=1)[0].strip() or source.code[start:][:1]
    text = first.decode(errors="replace")
    return (
        f"directly below it: line {source.place(start)[0]} has {text!r}; write the pragma behind that,"
        " right above the kernel"
    )


def scalar_text(text: str, parameter: Parameter) -> str:
    """A value as ``[arguments]`` writes it, with the type of the parameter where the pragma has none."""
    return f"{parameter.dtype} {text}" if text.startswith("=") else text


def _once(table: dict[str, Stated], key: str, value: Stated) -> None:
    if key in table:
        raise ValueError(f"{key} is stated twice")
    table[key] = value


_READERS: dict[str, Callable[[PragmaSource, Directive, Statements], None]] = {
    "problem": _problem,
    **dict.fromkeys(ROLES, _argument),
    "value": _value,
    "check": _check,
    "derived": _derived,
    "constraint": _constraint,
    "toml": _toml,
    "launch": _launch,
}
STATEMENT_KEYWORDS = tuple(_READERS)


_BODIES = ("compound_statement", "parameter_list", "initializer_list")
_LANGUAGE = Language(tree_sitter_cuda.language())


class SyntaxTree:
    """The tree of a source whose pragmas are spaces."""

    def __init__(self, source: PragmaSource) -> None:
        self.source = source
        self._parts: dict[tuple[int, tuple[str, ...]], tuple[Node, ...]] = {}
        self._tree: Tree = Parser(_LANGUAGE).parse(source.blank)

    @property
    def root(self) -> Node:
        """The whole source."""
        return self._tree.root_node

    def text(self, node: Node) -> str:
        """Return the source text of a node."""
        return self.source.text[node.start_byte : node.end_byte].decode(errors="replace")

    @functools.cached_property
    def macros(self) -> Macros:
        """The macros that the file defines."""
        return Macros(self.source.blank.decode(errors="replace"))

    @functools.cached_property
    def type_aliases(self) -> Mapping[str, str]:
        """Other names of types: name -> type; of a name with several, ``?``."""
        text = self.source.code.decode(errors="replace")
        pairs = [(match[2], match[1]) for match in re.finditer(r"\btypedef\b([^;{}]*?)(\w+)\s*;", text)]
        pairs += [(match[1], match[2]) for match in re.finditer(r"\busing\s+(\w+)\s*=\s*([^;]+);", text)]
        types: dict[str, str] = {}
        for name, target in pairs:
            words = " ".join(target.split())
            if types.setdefault(name, words) != words:
                types[name] = "?"
        return types

    @functools.cached_property
    def classes(self) -> frozenset[str]:
        """Names of the classes, structures and unions of the file."""
        text = self.source.code.decode(errors="replace")
        return frozenset(re.findall(r"\b(?:struct|class|union)\s+(?:__\w+\([^)]*\)\s*)?(\w+)", text))

    @functools.cached_property
    def outline(self) -> tuple[Node, ...]:
        """Declarations and definitions of functions outside all bodies."""
        outline, pending = [], [self.root]
        while pending:
            node = pending.pop()
            if node.type in ("declaration", "function_definition", "enumerator"):
                outline.append(node)
            if node.type != "declaration" and node.type not in _BODIES:
                pending.extend(reversed(node.children))
        return tuple(outline)

    @functools.cached_property
    def functions(self) -> frozenset[str]:
        """Names of functions that the file defines or declares, those of classes, too."""
        names = set()
        for outer in self.outline:
            node = outer
            while node.type != "function_declarator":
                inner = node.child_by_field_name("declarator")
                if inner is None:
                    break
                node = inner
            name = node.child_by_field_name("declarator")
            if node.type == "function_declarator" and name is not None:
                names.add(self.text(name).rpartition("::")[2])
        return frozenset(names)

    def parts(self, node: Node, *types: str) -> tuple[Node, ...]:
        """``nodes_within``, remembered; with ``ERROR`` also what the parser has added."""
        key = (node.start_byte, types)
        if key not in self._parts:
            nodes = nodes_within(node)
            missing = "ERROR" in types
            self._parts[key] = tuple(
                inner for inner in nodes if inner.type in types or (missing and inner.is_missing)
            )
        return self._parts[key]

    def behind(self, directive: Directive) -> list[Node]:
        """The nodes that begin with what stands below a pragma, the largest first; none at the end."""
        byte = self._next(directive.end)
        node = None if byte is None else self.root.descendant_for_byte_range(byte, byte + 1)
        nodes = []
        while node is not None and node.parent is not None and node.start_byte == byte:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def namespaces(self, byte: int) -> str:
        """The named namespaces around a byte, as ``a::b::``; empty outside."""
        names: list[str] = []
        node = self.root.descendant_for_byte_range(byte, byte)
        while node is not None:
            name = node.child_by_field_name("name") if node.type == "namespace_definition" else None
            if name is not None:
                names.insert(0, f"{self.text(name)}::")
            node = node.parent
        return "".join(names)

    def _next(self, byte: int) -> int | None:
        """The first byte from a place on that is no space and in no comment."""
        text = self.source.blank
        while byte < len(text):
            if text[byte] in b" \t\r\n\f\v":
                byte += 1
                continue
            node = self.root.descendant_for_byte_range(byte, byte + 1)
            if node is None or node.type != "comment":
                return byte
            byte = node.end_byte
        return None


def nodes_within(node: Node, *types: str) -> Iterator[Node]:
    """The node and all below it that have one of some types; without types, all."""
    pending = [node]
    while pending:
        inner = pending.pop()
        if not types or inner.type in types:
            yield inner
        pending.extend(reversed(inner.children))


def child_of(node: Node, *types: str) -> Node | None:
    """The first child of one of some types."""
    return next((child for child in node.children if child.type in types), None)
