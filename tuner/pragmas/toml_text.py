"""A kernel file as text: tables as TOML writes them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def toml_text(document: Mapping[str, Any]) -> str:
    """A document of tables and lists as TOML.

    Args:
        document: table -> its keys; a list of tables stands as ``[[name]]``. Deeper tables stand in braces.
    """
    parts = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            parts.append(_table(f"[{name}]", value))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            parts += [_table(f"[[{name}]]", item) for item in value]
        else:
            parts.append(f"{name} = {_value(value)}\n")
    return "\n".join(parts)


def _table(heading: str, table: Mapping[str, Any]) -> str:
    return "\n".join([heading, *(f"{key} = {_value(value)}" for key, value in table.items())]) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
