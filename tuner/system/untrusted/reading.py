"""Bounded reading of files, JSON, TOML and text that come from outside."""

import json
import logging
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

# --- Regular files of bounded size; what is no file, such as a pipe or a device, is never read.

_PIECE_BYTES = 2**16


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """The bytes of a regular file.

    Nothing is waited for: a pipe, which may never be written to, is refused before it is read.

    Raises:
        OSError: it cannot be opened or read.
        ValueError: it is no regular file, or larger than ``most_bytes``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a file")
        if status.st_size > most_bytes:
            raise ValueError(f"is larger than {shown_bytes(most_bytes)}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(status.st_size + 1)
            while len(content) <= most_bytes and (more := file.read(_PIECE_BYTES)):  # as below /proc
                content += more
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise ValueError(f"is larger than {shown_bytes(most_bytes)}")
    return content


def read_text(path: Path, most_bytes: int) -> str:
    """The text of a regular file in UTF-8.

    Raises:
        OSError: it cannot be opened or read.
        ValueError: as ``read_bytes``, or it is no UTF-8.
    """
    try:
        return read_bytes(path, most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text (byte {error.start})") from error


def shown_bytes(count: int) -> str:
    """A limit as messages write it, such as ``64 MiB``."""
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 2**10} KiB"


# --- Bounds of what is read, each far above what real files need and checked before memory is taken.
#
# Docs: "Limits of files" in ``docs/kernel-keys.md``.

KIB = 2**10
MIB = 2**20

TEXT_BYTES = MIB
"""Of a kernel file, a source, a header beside it, and a file of settings."""

SOURCE_BYTES = 8 * MIB
"""Of all headers of one kernel that are handed to the compiler as text."""

TOML_DEPTH = 32
TOML_KEY_PARTS = 16
TOML_KEY_CHARACTERS = 1000
TOML_KEYS = 20_000

JSON_BYTES = 64 * MIB
JSON_VALUES = 500_000
JSON_CONTAINERS = 200_000
"""Values, and objects and lists, of a small file; a large one may have more in proportion to its bytes."""

JSON_BYTES_PER_VALUE = 4
JSON_BYTES_PER_CONTAINER = 64
"""Least bytes of a value and of a container beyond those: what is denser takes much more memory than disk."""

ARCHIVE_MEMBERS = 10_000
ARCHIVE_BYTES = 64 * MIB
"""Of all members of a recording or one of its members, inflated."""

ARCHIVE_RATIO = 50
ARCHIVE_RATIO_FROM = 4 * MIB
"""Inflated bytes per byte of the file, where the inflated ones are more than this."""

TRACE_BYTES = 32 * MIB
TRACE_SAMPLES = 500_000
"""Of a recorded power trace: hours of the fastest sensor."""

CUBIN_BYTES = 64 * MIB
"""Of a cached answer of the compiler."""

DATABASE_BYTES = 16 * 2**30
"""Of a database file whose runs are merged."""

RUN_BYTES = 64 * MIB
"""Of a run that is merged, with its trials: some 50,000 of them."""

OPTIONS = 256
OPTION_CHARACTERS = 4000
"""Of the compiler options of a kernel, and of one of them."""


# --- JSON whose size, depth and number of values are looked at before it is parsed.

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character, which no text that is written has


def load_json(text: str | bytes, *, non_finite: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value; not-a-number and infinity, which JSON has not, are refused.

    Args:
        text: as text or UTF-8.
        non_finite: take them, for a caller who looks at every number that it uses.

    Raises:
        ValueError: it is no JSON, or beyond the limits; the message names the limit. A ``JSONDecodeError``
            where the text is no JSON.
    """
    check_size(len(text), JSON_BYTES)
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    _check_density(text)
    try:
        value = json.loads(text, parse_constant=float if non_finite else _refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # a ValueError names one that has no pair
    return value


def escaped(document: str) -> str:
    """JSON without DEL, the one control character that ``json.dumps`` leaves as it is."""
    return document.replace("\x7f", "\\u007f")


def check_size(size: int, most_bytes: int = JSON_BYTES) -> None:
    """Refuse a file by its bytes.

    Raises:
        ValueError: there are more than ``most_bytes``.
    """
    if size > most_bytes:
        raise ValueError(f"is larger than {shown_bytes(most_bytes)}")


def _check_density(text: str) -> None:
    containers = text.count("[") + text.count("{")
    if containers > max(JSON_CONTAINERS, len(text) // JSON_BYTES_PER_CONTAINER):
        raise ValueError(f"has {containers:,} objects and lists in {len(text):,} bytes, more than real files")
    values = text.count(",")
    if values > max(JSON_VALUES, len(text) // JSON_BYTES_PER_VALUE):
        raise ValueError(f"has {values:,} values in {len(text):,} bytes, more than real files")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number that JSON has")


# --- TOML, looked at in the same way.

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


TomlValue: TypeAlias = "bool | int | float | str | Sequence[TomlValue] | Mapping[str, TomlValue]"
TomlTable = dict[str, TomlValue]


def load_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        ValueError: it is no TOML, or beyond the limits; the message names the limit.
    """
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 - `tuner --help` reads none
    else:
        import tomli as tomllib  # noqa: PLC0415 - same
    if len(text) > TEXT_BYTES:
        raise ValueError(f"more than {TEXT_BYTES // 2**20} MiB; split it, or leave out what is not needed")
    text = text.removeprefix("\ufeff")  # as editors of Windows write it
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
    """Return True if a long token is a key: it begins as no value does, or comes before ``=`` or a dot."""
    end = match.end()
    while end < len(text) and text[end] in " \t":
        end += 1
    return match[0][0].isalpha() or match[0][0] == "_" or text[end : end + 1] in (".", "=")


def _line(text: str, match: re.Match[str]) -> str:
    return f"line {text.count(chr(10), 0, match.start()) + 1}"


# --- Text from outside without what a terminal or a log would act on.
#
# JSON documents keep a text as it is: ``json.dumps`` escapes control characters by itself.

REPLACEMENT = "\ufffd"

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_FORMAT = "\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HARMFUL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}{_FORMAT}\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n|\n")
_CONTINUED = "\n    "


def plain(text: str) -> str:
    """A text of one or more lines with its control characters replaced by U+FFFD; line breaks and tabs stay.

    Replaced are C0 and C1 control characters (escape sequences begin with one of them), DEL, the marks that
    turn the direction of writing, invisible tags, line separators and lone surrogates.
    """
    return _HARMFUL.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def plain_line(text: str) -> str:
    """The same for a name or another text of one line: a line break in it becomes U+FFFD, too."""
    return plain(text).replace("\n", REPLACEMENT).replace("\t", " ")


def continued(text: str) -> str:
    """The same for a log entry: lines after the first are indented, so that none looks like an entry."""
    return _BREAKS.sub(_CONTINUED, plain(text))


_LINES, _CHARACTERS = 200, 4000  # of a message, and of a line


def shortened(text: str) -> str:
    """A message that fits a screen: a value of megabytes in it is cut."""
    lines = text.split("\n")
    cut = [line if len(line) <= _CHARACTERS else f"{line[:_CHARACTERS]}... [cut]" for line in lines]
    return "\n".join(cut if len(cut) <= _LINES else [*cut[:_LINES], "... [cut]"])


class PlainFormatter(logging.Formatter):
    """Log entries without control characters; only an entry begins at the left."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry; its further lines, such as a traceback, are indented."""
        return continued(super().format(record))


_PLACE = re.compile(r"\[\[?([^\]]*)\]\]?(?: ([0-9]+))?(?: ([^,]+))?")
HEADER = re.compile(r"\s*\[\[?\s*[\"']?([^\]\"']*?)[\"']?\s*\]")
"""The line that begins a table."""


def line_of(text: str, key_path: str) -> int | None:
    """The line of a key in the file, counted from 1; that of its table where the key is not there.

    Args:
        text: of the file.
        key_path: the key as messages write it: ``[tuning] policy``, ``[[set]] 2 name``.
    """
    parts = _PLACE.match(key_path)
    if parts is None:
        return None
    table, number, name = parts[1], int(parts[2] or 0), (parts[3] or "").strip()
    key = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[.=]") if name else None
    count, inside, header_line = 0, False, None
    for line_number, line in enumerate(text.splitlines(), 1):
        header = HEADER.match(line)
        if header is not None:
            count += header[1] == table
            inside = header[1] == table and number in (0, count)
            header_line = line_number if inside and header_line is None else header_line
        elif inside and key is not None and key.match(line):
            return line_number
    return header_line
