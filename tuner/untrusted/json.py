"""JSON whose size, depth and number of values are looked at before it is parsed."""

import json
import re
from typing import Any, NoReturn

from tuner.untrusted.limits import (
    JSON_BYTES,
    JSON_BYTES_PER_CONTAINER,
    JSON_BYTES_PER_VALUE,
    JSON_CONTAINERS,
    JSON_VALUES,
)

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character, which no text that is written has


def load_json(text: str | bytes, most_bytes: int = JSON_BYTES, *, non_finite: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value; not-a-number and infinity, which JSON has not, are refused.

    Args:
        text: as text or UTF-8.
        most_bytes: of it.
        non_finite: take them, for a caller who looks at every number that it uses.

    Raises:
        ValueError: it is no JSON, or beyond the limits; the message names the limit. A ``JSONDecodeError``
            where the text is no JSON.
    """
    check_size(len(text), most_bytes)
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    _check_density(text)
    try:
        found = json.loads(text, parse_constant=float if non_finite else _refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _SURROGATE.search(text):
        json.dumps(found, ensure_ascii=False).encode()  # a ValueError names one that has no pair
    return found


def escaped(document: str) -> str:
    """JSON without DEL, the one control character that ``json.dumps`` leaves as it is."""
    return document.replace("\x7f", "\\u007f")


def check_size(size: int, most_bytes: int = JSON_BYTES) -> None:
    """Refuse a file by its bytes.

    Raises:
        ValueError: there are more than ``most_bytes``.
    """
    if size > most_bytes:
        shown = f"{most_bytes // 2**20} MiB" if most_bytes >= 2**20 else f"{most_bytes // 2**10} KiB"
        raise ValueError(f"is larger than {shown}")


def _check_density(text: str) -> None:
    containers = text.count("[") + text.count("{")
    if containers > max(JSON_CONTAINERS, len(text) // JSON_BYTES_PER_CONTAINER):
        raise ValueError(f"has {containers:,} objects and lists in {len(text):,} bytes, more than real files")
    values = text.count(",")
    if values > max(JSON_VALUES, len(text) // JSON_BYTES_PER_VALUE):
        raise ValueError(f"has {values:,} values in {len(text):,} bytes, more than real files")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number that JSON has")
