"""TOML whose size, depth and keys are looked at before it is parsed.

Python's parser takes time with the square of the parts of a dotted key (minutes for 400 kB), and recurses.
"""

import re
import sys
from typing import Any

from tuner.untrusted.limits import TEXT_BYTES, TOML_DEPTH, TOML_KEY_CHARACTERS, TOML_KEY_PARTS, TOML_KEYS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TOKENS = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[A-Za-z0-9_+-]+"
    r"|[\[\]{}.,=\n]",
    re.DOTALL,
)


def load_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: it is no TOML, or beyond the limits; the message names the limit.
    """
    if len(text) > TEXT_BYTES:
        raise ValueError(f"more than {TEXT_BYTES // 2**20} MiB; split it, or leave out what is not needed")
    check_toml(text)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def check_toml(text: str) -> None:
    """Look at the tokens of a text, in time that grows with its length.

    Raises:
        ValueError: it is nested too deeply, has too many keys, or too long ones.
    """
    depth = parts = keys = 0
    for match in _TOKENS.finditer(text):
        token = match[0]
        first = token[0]
        if first in "[{":
            depth += 1
            parts = 0
            if depth > TOML_DEPTH:
                raise ValueError(f"{_line(text, match)}: nested too deeply: at most {TOML_DEPTH} brackets")
        elif first in "]}":
            depth = max(0, depth - 1)
            parts = 0
        elif first == ".":
            parts += 1
            if parts >= TOML_KEY_PARTS:
                raise ValueError(
                    f"{_line(text, match)}: a key has more than {TOML_KEY_PARTS} parts between dots"
                )
        elif first == "=":
            parts, keys = 0, keys + 1
            if keys > TOML_KEYS:
                raise ValueError(f"{_line(text, match)}: more than {TOML_KEYS:,} keys")
        elif first in ",\n":
            parts = 0
        elif len(token) > TOML_KEY_CHARACTERS and first != "#" and _is_key(text, match):
            raise ValueError(f"{_line(text, match)}: a key has more than {TOML_KEY_CHARACTERS} characters")


def _is_key(text: str, match: re.Match[str]) -> bool:
    """Whether a long token is a key: it begins as no value does, or stands before ``=`` or a dot."""
    end = match.end()
    while end < len(text) and text[end] in " \t":
        end += 1
    return match[0][0].isalpha() or match[0][0] == "_" or text[end : end + 1] in (".", "=")


def _line(text: str, match: re.Match[str]) -> str:
    return f"line {text.count(chr(10), 0, match.start()) + 1}"
