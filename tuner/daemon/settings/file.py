"""Reads ``daemon.toml``: one line per wrong key, with what would be right."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tuner.config import document as messages
from tuner.daemon.settings.checks import Complaint, complaints, key
from tuner.daemon.settings.tables import Settings, bound
from tuner.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SYSTEM_FILE = Path("/etc/tuner/daemon.toml")
MAX_SHOWN = 10  # lines; who has more mistakes than that starts with these
MAX_BYTES = 2**18  # thousands of sets fit; a mistaken path must not be read into memory
_ARRAYS = ("set", "window")
_SIMPLE = {
    "path_type": "must be text",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is larger than any computer counts",
}


def load(path: Path | None = None) -> Settings:
    """The settings of a file.

    Args:
        path: the file; None for the system's where there is one, else all defaults.

    Raises:
        InputError: it cannot be read, or holds what cannot be; one line per wrong key.
    """
    if path is None:
        if not SYSTEM_FILE.exists():
            return Settings()
        path = SYSTEM_FILE
    text = _text(path)
    try:
        # as JSON: strict about types, and still a path is a text and a tuple a list there
        document = json.dumps(tomllib.loads(text), default=_not_in_json)
    except ValueError as error:  # also of a number with thousands of digits
        raise InputError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deeply") from error
    try:
        settings = Settings.model_validate_json(document, strict=True)
    except ValidationError as error:
        raise InputError(_shown(path, _complaints_of(error))) from error
    wrong = complaints(settings)
    if wrong:
        raise InputError(_shown(path, wrong))
    return settings


def schema() -> dict[str, Any]:
    """JSON Schema of the file, with a description of every key."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
        "title": "daemon.toml",
    }


def _not_in_json(moment: object) -> dict[str, str]:
    """A date or time of TOML, as something that no key takes."""
    return {"a date or time": str(moment)}


def _text(path: Path) -> str:
    """Contents of a small text file."""
    try:
        if path.exists() and not path.is_file():  # such as a pipe, which has no end
            raise InputError(f"{path}: is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a character that no file name can have
        raise InputError(f"{path}: cannot be read: {error}") from error
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**10} KiB")
    try:
        return raw.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def _shown(path: Path, complaints: Sequence[Complaint]) -> str:
    """One line per wrong key: file, key, what is wrong, what would be right."""
    lines = [f"{path}: {place}: {message}" for place, message in complaints]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{path}: and {len(lines) - MAX_SHOWN} more"]
    return "\n".join(lines)


def _complaints_of(error: ValidationError) -> list[Complaint]:
    """What the validation of the form found."""
    found = [_explained(detail) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(found))


def _explained(detail: Any) -> Complaint:  # noqa: ANN401 - a dict of pydantic
    table, *rest = detail["loc"] or ("",)
    model: type[BaseModel] | None = Settings
    number = None
    if rest:
        model = table_of(str(table))
    if table in _ARRAYS and rest and isinstance(rest[0], int):
        number, *rest = rest
    items = "".join(f", item {step + 1}" for step in rest[1:] if isinstance(step, int))
    place = key(str(table), f"{rest[0]}{items}" if rest else "", number)
    return place, _message(str(detail["loc"][-1]) if detail["loc"] else "", detail, model)


def _message(name: str, detail: Any, model: type[BaseModel] | None) -> str:  # noqa: ANN401 - a dict of pydantic
    kind, context = detail["type"], detail.get("ctx", {})
    broken = bound(kind, context)
    if broken:
        return f"{detail['input']} is out of range; {broken}"
    if kind in ("model_type", "tuple_type") and name in _ARRAYS:
        return f"must be tables of the form [[{name}]]"
    return _SIMPLE.get(kind) or messages.worded(name, detail, model)


def table_of(name: str) -> type[BaseModel] | None:
    """The model of a table of the file; None for a table that there is not."""
    field = Settings.model_fields.get(name)
    if field is None:
        return None
    inner = get_args(field.annotation)[:1] if get_origin(field.annotation) is tuple else (field.annotation,)
    return inner[0] if inner and isinstance(inner[0], type) and issubclass(inner[0], BaseModel) else None
