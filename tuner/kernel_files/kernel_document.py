"""The text of a kernel file as tables, its short forms written out, with messages for wrong keys."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from tuner.kernel_files.schema import KernelDocument
from tuner.kernel_files.source_folder import read_text
from tuner.kernel_files.tables import Complaint, Place, read_table
from tuner.model.errors import KernelFileError, suggestion
from tuner.model.plan import BufferRole
from tuner.system.untrusted.reading import TomlTable, TomlValue, load_toml

# --- ``[arguments]``: the parameters of a kernel in one line each, as ``a = "in float32[N]"``.
#
# A struct passed by value is a table of its fields, as ``p = { dt = "float32 = 0.1", n = "int32 = N" }``. One
# without fields, as that of a function object without state, is ``{}`` and has one byte, as in C++.

ROLES = (*get_args(BufferRole), *(() if "constant" in get_args(BufferRole) else ("constant",)))
_DTYPE = r"(?P<dtype>(?:\{[^{}]*\}|[^\s\[\]={}])+)"
_BEGINNING = re.compile(rf"\s*(?:(?P<role>[A-Za-z]+)\s+)?{_DTYPE}\s*(?=[\[=]|$)")
_OPENING, _CLOSING = "([{", ")]}"
_EMPTY = {"empty": "uint8 = 0"}  # C++: sizeof an empty class is 1
_FORMS = "write an array as 'in float32[N]', and a value as 'int32 = N'"


def expanded(arguments: Mapping[str, TomlValue]) -> list[TomlTable]:
    """The ``[[argument]]`` tables that ``[arguments]`` stands for, in its order.

    Raises:
        ValueError: a line is not of the form; the message begins with its name.
    """
    tables: list[TomlTable] = []
    for name, text in arguments.items():
        if isinstance(text, Mapping):
            tables.append({"scalar": name, "fields": dict(text) or _EMPTY})
            continue
        if not isinstance(text, str):
            raise ValueError(f"{name}: must be text; {_FORMS}")  # noqa: TRY004 - a mistake in a file
        try:
            tables.append(_argument(name, text))
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from e
    return tables


def _argument(name: str, text: str) -> TomlTable:
    match = _BEGINNING.match(text)
    if match is None:
        raise ValueError(f"{text!r} is neither an array nor a value; {_FORMS}")
    role, dtype, rest = match["role"], match["dtype"], text[match.end() :]
    if not rest.startswith("["):
        if role or not rest.removeprefix("=").strip():
            hint = "an array has a shape, as in 'in float32[N]'" if role else _FORMS
            raise ValueError(f"{text!r} is no value; {hint}")
        return {"scalar": name, "dtype": dtype, "value": rest[1:].strip()}
    if role not in ROLES:
        hint = "" if role is None else f", not with {role!r}{suggestion(role, ROLES)}"
        raise ValueError(f"an array begins with one of {', '.join(ROLES)}{hint}; as in 'in float32[N]'")
    axes, rest = _axes(text, rest)
    argument: TomlTable = {"buffer": name, "dtype": dtype, "shape": axes, "role": role}
    if rest.strip():
        equals, values = rest.strip()[0], rest.strip()[1:].strip()
        if equals != "=" or not values:
            raise ValueError(f"{rest.strip()!r} follows the shape; an input follows as '= uniform(0, 1)'")
        argument["input"] = values
    return argument


def _axes(text: str, rest: str) -> tuple[list[str], str]:
    """The expressions between the brackets that ``rest`` opens, and what follows them."""
    axes, depth, start = [], 0, 1
    for index, letter in enumerate(rest):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if depth == 0 or (depth == 1 and letter == ","):
            axes.append(rest[start:index].strip())
            start = index + 1
        if depth == 0:
            if not all(axes):
                raise ValueError(f"{text!r}: an axis is empty; a single element is [1]")
            return axes, rest[start:]
    raise ValueError(f"{text!r}: the bracket of the shape is not closed")


# --- Reading a file, and messages for what is wrong in it.

MAX_SHOWN = 5
MAX_BITS = 63  # beyond the sign, as expressions and spaces hold them
_ARRAYS = ("argument", "stage")
_INNER = {
    "launch": ("derived",),
    "loop": ("derived",),
    "problem": ("sizes", "reference"),
    "variant": ("tunables", "stage"),
}
"""Tables in a table."""


def explain(path: Path, complaints: Sequence[Complaint]) -> str:
    """One line per wrong key, at most five: file, key, what is wrong, what would be right."""
    by_key: dict[str, dict[str, None]] = {}
    for place, text in complaints:
        key = _heading(place)
        by_key.setdefault(f"{path}: {key}" if key else str(path), {})[text] = None
    lines = [f"{where}: {'; '.join(texts)}" for where, texts in by_key.items()]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{path}: and {len(lines) - MAX_SHOWN} more"]
    return "\n".join(lines)


def _heading(place: Place) -> str:
    """A key as the file writes it: its table in brackets, then the way from there."""
    if not place:
        return ""
    steps = list(place)
    names = [table := str(steps.pop(0))]
    if table in ("loop", "variant") and steps:
        names.append(str(steps.pop(0)))
    if steps[1:] and steps[0] in _INNER.get(table, ()):
        names.append(table := str(steps.pop(0)))
    if table == "tunables" and steps[1:] and isinstance(steps[1], str):
        names.append(str(steps.pop(0)))
    heading = f"[{'.'.join(names)}]"
    if table in _ARRAYS:
        heading = f"[{heading}]"
        heading += f" {int(steps.pop(0)) + 1}" if steps else ""
    elif table == "analytical" and steps and isinstance(steps[0], int):
        heading = f"[{heading}] #{steps.pop(0) + 1}"
    joint = " "
    for step in steps:
        if isinstance(step, int):
            heading, joint = f"{heading}, item {step + 1}", " "
        else:
            heading, joint = f"{heading}{joint}{step}", "."
    return heading


def read_document(path: Path) -> KernelDocument:
    """The tables of a kernel file.

    Raises:
        KernelFileError: it cannot be read, is not TOML, or a key is unknown, missing or of another type.
    """
    return document_of_text(path, read_text(path, str(path)))


def document_of_text(path: Path, text: str) -> KernelDocument:
    """The tables of the text of a kernel file; messages begin with the path.

    Raises:
        KernelFileError: it is not TOML, or a key is unknown, missing or of another type.
    """
    try:
        return _document(path, text)
    except RecursionError as e:
        raise KernelFileError(f"{path}: nested too deeply") from e


def _document(path: Path, text: str) -> KernelDocument:
    try:
        table = load_toml(text)
    except ValueError as e:  # also of a number with thousands of digits
        source = path.suffix in (".cu", ".cuh", ".cpp")
        hint = f"; it is a source: `tuner kernels new {path}` writes its kernel file" if source else ""
        raise KernelFileError(f"{path}: not valid TOML: {e}{hint}") from e
    return parsed_document(path, table)


def parsed_document(path: Path, table: Mapping[str, TomlValue]) -> KernelDocument:
    """The tables of a kernel file that is TOML already; what it leaves out in short is written out.

    Raises:
        KernelFileError: a key is unknown, missing or of another type.
    """
    _check_numbers(path, table)
    table = _written_out(path, table)
    complaints: list[Complaint] = []
    document = read_table(KernelDocument, table, complaints)
    if document is not None:
        return document
    text, lines = explain(path, complaints), table.get("arguments")
    if isinstance(lines, Mapping) and lines:
        text = argument_key(text, list(lines))
    raise KernelFileError(text)


def _written_out(path: Path, table: Mapping[str, TomlValue]) -> TomlTable:
    """``[arguments]`` as ``[[argument]]``, and a problem with a reference as an ``expression``."""
    whole = dict(table)
    lines, problem = whole.get("arguments"), whole.get("problem")
    if isinstance(lines, Mapping) and lines:
        if "argument" in whole:
            raise KernelFileError(
                f"{path}: [arguments]: stands instead of [[argument]]; leave one of them out"
            )
        try:
            whole["argument"] = expanded(lines)
        except ValueError as e:
            raise KernelFileError(f"{path}: [arguments] {e}") from e
    if isinstance(problem, Mapping) and "name" not in problem and problem.get("reference"):
        whole["problem"] = {**problem, "name": "expression"}
    return whole


_ARGUMENT_KEY = re.compile(
    r"\[\[argument\]\](?: (\d+))?(?: \((\w+)\))?(?: (?:dtype|shape|role|value|input)\b)?"
)


def argument_key(text: str, names: Sequence[str] = ()) -> str:
    """A key of ``[[argument]]``, alone or in a message, as the line of ``[arguments]`` that it stands for."""

    def line(match: re.Match[str]) -> str:
        number, name = match[1], match[2]
        if name is None and number is not None and names:
            name = names[int(number) - 1]
        return f"[arguments] {name}" if name else "[arguments]"

    return _ARGUMENT_KEY.sub(line, text)


def _check_numbers(path: Path, table: Mapping[str, TomlValue]) -> None:
    """Refuse whole numbers of more bits than expressions work with."""
    pending: list[tuple[str, TomlValue]] = list(table.items())
    while pending:
        key, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            pending += [(key, inner) for inner in value]
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise KernelFileError(f"{path}: {key}: a whole number has more than {MAX_BITS} bits")
