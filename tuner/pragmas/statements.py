"""What pragmas say of the rest of a kernel file: sizes, arrays, checks, launches."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.cuda_source.parameters import Parameter
from tuner.cuda_source.signatures import GlobalFunction, global_functions
from tuner.model.errors import suggestion
from tuner.pragmas.clauses import clauses, named, one_value, split_list
from tuner.pragmas.directives import Directive, PragmaSource
from tuner.untrusted.reading import load_toml

ROLES = {
    "input": "in",
    "output": "out",
    **{role: role for role in ("inout", "scratch", "zeroed", "constant")},
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


@dataclass
class LaunchStatement:
    """A launch of a ``__global__`` function.

    Attributes:
        directive: that states it.
        function: the function below.
        keys: what its clauses say.
    """

    directive: Directive
    function: GlobalFunction
    keys: dict[str, Any]


@dataclass
class Statements:
    """All that the pragmas of a source say beside tunables.

    Attributes:
        problem: ``[problem]``.
        arguments: name -> dtype, shape and input, value, or fields, as ``[arguments]`` writes it.
        derived: ``[derived]``.
        rules: ``[constraints] rules``.
        launches: in their order.
        other: what ``toml`` pragmas say.
        lines: key of the kernel file -> line of the pragma.
    """

    problem: dict[str, Any] = field(default_factory=lambda: {"sizes": {}})
    arguments: dict[str, Any] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    launches: list[LaunchStatement] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_statements(source: PragmaSource) -> Statements:
    """What the pragmas of a source say beside tunables.

    Raises:
        KernelFileError: a pragma is unknown, has another form or says what another has said.
    """
    found = Statements()
    for directive in source.directives:
        reader = _READERS.get(directive.keyword)
        if reader is None or directive.family != "tuner":
            continue
        try:
            reader(source, directive, found)
        except ValueError as e:
            raise source.error(directive, e) from e
    return found


def keywords() -> tuple[str, ...]:
    """The pragmas that are read here."""
    return tuple(_READERS)


def _problem(_: PragmaSource, directive: Directive, found: Statements) -> None:
    text = directive.text
    if not (text.startswith("(") and text.endswith(")")):
        raise ValueError("write problem(N = [1024, 4096], W = 1..8192)")
    for part in split_list(text[1:-1]):
        match = _EQUATION.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not of the form N = [1024, 4096], N = 1..8192 or batch = 8")
        name, value = match[1], match[2].strip()
        if name in _PROBLEM_KEYS:
            _once(found.problem, name, _problem_value(name, value))
            found.lines[f"[problem] {name}"] = directive.line
        else:
            _once(found.problem["sizes"], name, _size(value))
            found.lines[f"[problem.sizes] {name}"] = directive.line


def _problem_value(name: str, text: str) -> object:
    if name == "optional":
        return split_list(text.strip("[]"))
    if name in ("name", "reference_arrays"):
        return text.strip("\"'")
    try:
        return one_value(text)
    except ValueError:
        return text.strip('"') if name == "batch" else text


def _size(text: str) -> object:
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


def _argument(_: PragmaSource, directive: Directive, found: Statements) -> None:
    name, text = named(directive.text)
    if not name:
        raise ValueError(f"write {directive.keyword} NAME: float32[N]")
    _once(found.arguments, name, f"{ROLES[directive.keyword]} {text}")
    found.lines[f"[arguments] {name}"] = directive.line


def _value(_: PragmaSource, directive: Directive, found: Statements) -> None:
    name, text = named(directive.text)
    if not name:
        match = _EQUATION.fullmatch(directive.text)
        if match is None:
            raise ValueError("write value NAME: int32 = EXPRESSION, or value NAME = EXPRESSION")
        name, text = match[1], f"= {match[2]}"
    braces = text.removeprefix("=").strip()
    struct = braces.startswith("{") and braces.endswith("}")
    _once(found.arguments, name, _fields(braces) if struct else text)
    found.lines[f"[arguments] {name}"] = directive.line


def _fields(text: str) -> object:
    try:
        return load_toml(f"fields = {text}")["fields"]
    except ValueError as e:
        raise ValueError(
            f'{text!r} is no table of fields, as {{ dt = "float32 = 0.5", n = "int32 = N" }}: {e}'
        ) from e


def _check(_: PragmaSource, directive: Directive, found: Statements) -> None:
    word, _space, rest = directive.text.partition(" ")
    quoted = rest.strip().strip("\"'")
    if word in _FILES and quoted and "=" not in rest:
        _once(found.problem, _FILES[word], quoted)
        found.lines[f"[problem] {_FILES[word]}"] = directive.line
        return
    if word == "entry" and quoted and "=" not in rest:
        _once(found.problem, "reference_entry", quoted)
        return
    if directive.text == "default":
        _once(found.problem, "name", "consistent")
        return
    match = _EQUATION.fullmatch(directive.text)
    if match is None:
        raise ValueError(
            'write check OUTPUT = EXPRESSION, check function "FILE.py:NAME", check law "FILE.py:NAME",'
            ' check entry "KERNEL" or check default'
        )
    _once(found.problem.setdefault("reference", {}), match[1], match[2].strip())
    found.lines[f"[problem.reference] {match[1]}"] = directive.line


def _derived(_: PragmaSource, directive: Directive, found: Statements) -> None:
    match = _EQUATION.fullmatch(directive.text)
    if match is None:
        raise ValueError("write derived NAME = EXPRESSION")
    _once(found.derived, match[1], match[2].strip())
    found.lines[f"[derived] {match[1]}"] = directive.line


def _constraint(_: PragmaSource, directive: Directive, found: Statements) -> None:
    if not directive.text:
        raise ValueError("write constraint EXPRESSION")
    found.rules.append(directive.text)
    found.lines[f"[constraints] rules, item {len(found.rules)}"] = directive.line


def _toml(_: PragmaSource, directive: Directive, found: Statements) -> None:
    try:
        table = load_toml(directive.text)
    except ValueError as e:
        raise ValueError(f"not valid TOML: {e}") from e
    merge(found.other, table)
    for name, value in table.items():
        inner = value if isinstance(value, Mapping) else {}
        found.lines.update({f"[{name}] {key}": directive.line for key in inner})


def merge(table: dict[str, Any], other: Mapping[str, Any], path: str = "") -> None:
    """Add the keys of another table, tables in tables, too.

    Raises:
        ValueError: a key is there already.
    """
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            merge(table[key], value, f"{path}{key}.")
        elif key in table:
            raise ValueError(f"{path}{key} is stated twice")
        else:
            table[key] = dict(value) if isinstance(value, Mapping) else value


def _launch(source: PragmaSource, directive: Directive, found: Statements) -> None:
    keys: dict[str, Any] = {}
    for key, inside in clauses(directive.text):
        if key not in LAUNCH_KEYS:
            raise ValueError(
                f"unknown clause {key}{suggestion(key, LAUNCH_KEYS)}; known here: {', '.join(LAUNCH_KEYS)}"
            )
        _once(keys, key, _launch_value(key, inside))
        found.lines[f"[launch] {key}"] = directive.line
    if "grid" not in keys:
        raise ValueError("has no clause grid(...)")
    function = kernel_below(source, directive)
    if any(one.function.name == function.name for one in found.launches) and "name" not in keys:
        raise ValueError(f"{function.name} has another launch; give each a name(...)")
    if len(found.launches) >= MOST_LAUNCHES:
        raise ValueError(f"more than {MOST_LAUNCHES} launches")
    found.launches.append(LaunchStatement(directive, function, keys))


def _launch_value(key: str, inside: str) -> object:
    if key in ("name", "index"):
        return inside.strip("\"'")
    if key == "setup":
        return inside.strip() == "true"
    parts: list[Any] = [int(part) if part.isdecimal() else part for part in split_list(inside)]
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
    names = [one.name for one in below.parameters]
    return next(
        (
            one
            for one in source.functions
            if one.name == below.name and [inner.name for inner in one.parameters] == names
        ),
        below,
    )


def _instead(source: PragmaSource, directive: Directive) -> str:
    """Where no kernel stands, and what does."""
    between = source.code[directive.end :]
    start = len(source.code) - len(between.lstrip())
    if not re.search(rb"\b__global__\b", between):
        return "below it"
    first = re.split(rb"[;{}\r\n]", source.code[start:], maxsplit=1)[0].strip() or source.code[start:][:1]
    shown = first.decode(errors="replace")
    return (
        f"directly below it: line {source.place(start)[0]} has {shown!r}; write the pragma behind that,"
        " right above the kernel"
    )


def scalar_text(text: str, parameter: Parameter) -> str:
    """A value as ``[arguments]`` writes it, with the type of the parameter where the pragma has none."""
    return f"{parameter.dtype} {text}" if text.startswith("=") else text


def _once(table: dict[str, Any], key: str, value: object) -> None:
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
