"""From the text of a kernel file to its tables, of the right form."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tuner.config.messages import explain
from tuner.config.schema import KernelDocument
from tuner.config.source_folder import read_text
from tuner.errors import KernelFileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BITS = 63  # beyond the sign, as expressions and spaces hold them


def read_document(path: Path) -> KernelDocument:
    """The tables of a kernel file.

    Raises:
        KernelFileError: it cannot be read, is not TOML, or a key is unknown, missing or of another type.
    """
    text = read_text(path, str(path))
    try:
        return _document(path, text)
    except RecursionError as e:
        raise KernelFileError(f"{path}: nested too deeply") from e


def _document(path: Path, text: str) -> KernelDocument:
    try:
        table = tomllib.loads(text)
    except ValueError as e:  # also of a number with thousands of digits
        raise KernelFileError(f"{path}: not valid TOML: {e}") from e
    _check_numbers(path, table)
    try:
        return KernelDocument.model_validate(table)
    except ValidationError as e:
        raise KernelFileError(explain(path, e)) from e


def _check_numbers(path: Path, table: Mapping[str, Any]) -> None:
    """Refuse whole numbers of more bits than expressions work with."""
    left: list[tuple[str, Any]] = list(table.items())
    while left:
        key, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            left += [(key, inner) for inner in value]
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise KernelFileError(f"{path}: {key}: a whole number has more than {MAX_BITS} bits")
