"""The text of a kernel file as tables, its short forms written out, with messages for wrong keys."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tuner.kernel_files import schema
from tuner.kernel_files.schema import KernelDocument
from tuner.kernel_files.source_folder import read_text
from tuner.model.errors import KernelFileError, suggestion
from tuner.model.plan import BufferRole
from tuner.system.untrusted.reading import TomlTable, TomlValue, load_toml

# --- ``[arguments]``: the parameters of a kernel in one line each, as ``a = "in float32[N]"``.
#
# A struct passed by value is a table of its fields, as ``p = { dt = "float32 = 0.1", n = "int32 = N" }``. One
# without fields, as that of a function object without state, is ``{}`` and has one byte, as in C++.

ROLES = (*get_args(BufferRole), *(() if "constant" in get_args(BufferRole) else ("constant",)))
_RESTORED = "restored"  # an ``inout`` array that gets its input back behind every run
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
    if dtype == schema.NONE and not (role or rest.strip()):
        return {"scalar": name, "dtype": dtype, "value": 0}
    if not rest.startswith("["):
        if role or not rest.removeprefix("=").strip():
            hint = "an array has a shape, as in 'in float32[N]'" if role else _FORMS
            raise ValueError(f"{text!r} is no value; {hint}")
        return {"scalar": name, "dtype": dtype, "value": rest[1:].strip()}
    roles = (*ROLES, _RESTORED)
    if role not in roles:
        hint = "" if role is None else f", not with {role!r}{suggestion(role, roles)}"
        raise ValueError(f"an array begins with one of {', '.join(roles)}{hint}; as in 'in float32[N]'")
    axes, rest = _axes(text, rest)
    argument: TomlTable = {"buffer": name, "dtype": dtype, "shape": axes, "role": role}
    if role == _RESTORED:
        argument |= {"role": "inout", "restored": True}
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
_MODELS: dict[str, type[BaseModel]] = {
    "": schema.KernelDocument,
    "kernel": schema.KernelTable,
    "problem": schema.ProblemTable,
    "problem.sizes": schema.SizeRange,
    "tunables": schema.TunableTable,
    "variant": schema.VariantTable,
    "argument.buffer": schema.BufferArgument,
    "argument.scalar": schema.ScalarArgument,
    "argument.struct": schema.StructArgument,
    "argument.tensor_map": schema.TensorMapArgument,
    "stage.kernel": schema.StageTable,
    "stage.library": schema.LibraryStageTable,
    "stage.view": schema.ViewTable,
    "stage.operand": schema.OperandTable,
    "loop": schema.LoopTable,
    "roles": schema.RolesTable,
    "constraints": schema.ConstraintsTable,
    "launch": schema.OnlyLaunchTable,
    "reference_launch": schema.ReferenceLaunchTable,
    "work": schema.WorkTable,
    "resources": schema.ResourcesTable,
    "occupancy": schema.OccupancyTable,
}
_ARRAYS = ("argument", "stage")
_IN_VARIANTS = ("tunables", "stage")  # tables of their own
_NESTED = ("sizes", "reference")
_SIMPLE = {
    "missing": "is needed",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}
MAX_BITS = 63  # beyond the sign, as expressions and spaces hold them


def explain(path: Path, error: ValidationError) -> str:
    """One line per wrong key, at most five: file, key, what is wrong, what would be right."""
    by_key: dict[str, list[str]] = {}
    for detail in error.errors(include_url=False):
        table, key, model = _located(detail["loc"])
        messages = by_key.setdefault(f"{path}: {key}" if key else str(path), [])
        message = worded(table, detail, model)
        if message not in messages:
            messages.append(message)
    lines = [f"{where}: {_joined(messages)}" for where, messages in by_key.items()]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{path}: and {len(lines) - MAX_SHOWN} more"]
    return "\n".join(lines)


def _joined(messages: list[str]) -> str:
    """Complaints about one key; where each names a type, they are the branches of a choice."""
    prefix = "must be "
    if all(message.startswith(prefix) for message in messages):
        return prefix + " or ".join(message.removeprefix(prefix) for message in messages)
    return "; ".join(messages)


def _located(loc: Sequence[int | str]) -> tuple[str, str, type[BaseModel] | None]:
    """The table of a location, the key as the file writes it, and the keys known there."""
    if not loc:
        return "", "", _MODELS[""]
    table, *rest = (str(step) if isinstance(step, str) else step for step in loc)
    prefix = ""
    if table == "variant" and rest:
        prefix, rest = f"variant.{rest[0]}", rest[1:]
        if rest[1:] and rest[0] in _IN_VARIANTS:
            table, prefix, rest = rest[0], f"{prefix}.", rest[1:]
        else:
            table = ""
    heading, model = f"[{prefix}{table}]", str(table) or "variant"
    if table in _ARRAYS:
        number = f" {int(rest[0]) + 1}" if rest else ""
        heading = f"[[{prefix}{table}]]{number}"
        rest = rest[1:]
        if rest:
            model, rest = f"{table}.{rest[0]}", rest[1:]
        model, rest = _inside_stage(model, rest)
    elif table in ("loop", "launch", "analytical") and rest:
        heading, rest = _inside_table(str(table), heading, rest)
    elif table == "problem" and rest and rest[0] in _NESTED:
        heading, rest = f"[problem.{rest[0]}]", rest[1:]
        if rest[1:2] == ["range"]:
            model, rest = "problem.sizes", [".".join(map(str, (rest[0], *rest[2:])))]
    elif table == "tunables" and rest[1:2] == ["table"] and rest[2:]:
        heading, rest = f"[{prefix}{table}.{rest[0]}]", rest[2:]
    if rest:
        # what follows the key are items of lists, and words of pydantic for the branches of a choice
        heading += f" {rest[0]}" + "".join(f", item {step + 1}" for step in rest[1:] if isinstance(step, int))
    fields = _MODELS.get(model if len(loc) > 1 else "")
    return str(loc[-1]), heading, fields


def _inside_table(table: str, heading: str, rest: list[int | str]) -> tuple[str, list[int | str]]:
    """Loops have names, and their named expressions are a table of their own; answers may be several."""
    if table == "analytical":
        form, *rest = rest
        return (
            (f"[[analytical]] #{int(rest[0]) + 1}", rest[1:]) if form == "list" and rest else (heading, rest)
        )
    if table == "loop":
        heading, rest = f"[loop.{rest[0]}]", rest[1:]
    return (f"{heading[:-1]}.derived]", rest[1:]) if rest[:1] == ["derived"] and rest[1:] else (heading, rest)


def _inside_stage(model: str, rest: list[int | str]) -> tuple[str, list[int | str]]:
    """The tables that stand in a stage: views among its arguments, matrices of a library."""
    if model == "stage.kernel" and rest[2:3] == ["view"]:
        key = "".join(f" {step}" for step in rest[3:])
        return "stage.view", [f"arguments, item {int(rest[1]) + 1}{key}"]
    if model == "stage.library" and rest[:1] in (["a"], ["b"], ["c"]) and rest[1:]:
        return "stage.operand", [f"{rest[0]}.{rest[1]}", *rest[2:]]
    if model == "stage.library" and rest[:1] in (["pivots"], ["tau"], ["info"]) and rest[1:]:
        return "stage.view", [f"{rest[0]}.{rest[1]}", *rest[2:]]
    return model, rest


def worded(name: str, detail: Any, model: type[BaseModel] | None) -> str:  # noqa: ANN401 - a dict of pydantic
    """Word one detail of ``ValidationError.errors()``; ``model`` has the keys that may stand beside it."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden" and model is not None:
        keys = [field.alias or name for name, field in model.model_fields.items()]
        return f"unknown key{suggestion(name, keys)}; known here: {', '.join(keys)}"
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "too_short":
        least = context["min_length"]
        return f"must be a list of at least {'one' if least == 1 else least}"
    if kind == "string_pattern_mismatch":
        return f"{detail['input']!r} does not have the form {context['pattern']}"
    if kind == "literal_error":
        choices = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        choices = [{"True": "true", "False": "false"}.get(choice, choice) for choice in choices]
        text = str(detail["input"])
        return f"{text!r} is not one of {', '.join(choices)}{suggestion(text, choices)}"
    text = str(context["error"] if kind == "value_error" else detail["msg"])
    return text[0].lower() + text[1:]


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
        source = path.suffix in (".cu", ".cuh", ".cpp", ".py")
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
    try:
        return KernelDocument.model_validate(table)
    except ValidationError as e:
        text, lines = explain(path, e), table.get("arguments")
        if isinstance(lines, Mapping) and lines:
            text = argument_key(text, list(lines))
        raise KernelFileError(text) from e


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
