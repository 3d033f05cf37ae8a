"""JSON of answers: fast, and never at a loss."""

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json


def encode(document: object) -> bytes:
    """JSON of a document; infinity and what is no number become null, as JSON has neither."""
    try:
        return to_json(document, inf_nan_mode="null", fallback=_plain)
    except (PydanticSerializationError, UnicodeError):
        return to_json(_clean(document), inf_nan_mode="null", fallback=_plain)


def _plain(value: object) -> object:
    """What JSON has instead of a value it does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def _clean(value: object) -> Any:  # noqa: ANN401 - whatever was in the document
    """The same without halves of characters, which names of files may hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Enum):
        return _clean(value.value)
    if isinstance(value, Path):
        return _clean(str(value))
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    return value
