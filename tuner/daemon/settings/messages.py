"""Says in the words of ``daemon.toml`` what is wrong in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tuner.config import messages
from tuner.daemon.settings.bounds import bound
from tuner.daemon.settings.tables import Settings

MAX_SHOWN = 10  # lines; who has more mistakes than that starts with these
_ARRAYS = ("set", "window")

Complaint = tuple[str, str]
"""A key as the file writes it, and what is wrong with it."""

_SIMPLE = {
    "path_type": "must be text",
    "tuple_type": "must be a list",
    "finite_number": "must be a finite number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is larger than any computer counts",
}


def key(table: str, name: str = "", number: int | None = None) -> str:
    """A key as the file writes it: ``[tuning] policy``, ``[[set]] 2 name``; numbers count from 0."""
    shown_table = f"[{table}]" if number is None else f"[[{table}]] {number + 1}"
    return f"{shown_table} {name}".rstrip()


def shown(path: Path, complaints: Sequence[Complaint]) -> str:
    """One line per wrong key: file, key, what is wrong, what would be right."""
    lines = [f"{path}: {place}: {message}" for place, message in complaints]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"{path}: and {len(lines) - MAX_SHOWN} more"]
    return "\n".join(lines)


def explained(error: ValidationError) -> list[Complaint]:
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
