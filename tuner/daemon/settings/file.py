"""Reads ``daemon.toml``: one line per wrong key, with what would be right."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tuner.daemon.settings.checks import complaints
from tuner.daemon.settings.messages import explained, shown
from tuner.daemon.settings.tables import Settings
from tuner.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SYSTEM_FILE = Path("/etc/tuner/daemon.toml")
MAX_BYTES = 2**18  # thousands of sets fit; a mistaken path must not be read into memory


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
        raise InputError(shown(path, explained(error))) from error
    wrong = complaints(settings)
    if wrong:
        raise InputError(shown(path, wrong))
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
