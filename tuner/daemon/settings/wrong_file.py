"""What can be told and used of a ``daemon.toml`` that is wrong."""

import json
import re
import sys
from pathlib import Path

from pydantic import ValidationError

from tuner.daemon.settings.tables import ServiceTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PLACE = re.compile(r"\[\[?([^\]]*)\]\]?(?: ([0-9]+))?(?: ([^,]+))?")
_HEADER = re.compile(r"\s*\[\[?\s*[\"']?([^\]\"']*?)[\"']?\s*\]")
_SERVICE = "service"


def line_of(text: str, place: str) -> int | None:
    """The line of a key in the file, counted from 1; that of its table where the key is not there.

    Args:
        text: of the file.
        place: the key as messages write it: ``[tuning] policy``, ``[[set]] 2 name``.
    """
    found = _PLACE.match(place)
    if found is None:
        return None
    table, number, name = found[1], int(found[2] or 0), (found[3] or "").strip()
    key = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[.=]") if name else None
    count, inside, header_line = 0, False, None
    for line_number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header is not None:
            count += header[1] == table
            inside = header[1] == table and number in (0, count)
            header_line = line_number if inside and header_line is None else header_line
        elif inside and key is not None and key.match(line):
            return line_number
    return header_line


def service_table(path: Path | None) -> ServiceTable:
    """The table ``[service]`` of a file that may be wrong elsewhere; its defaults where it is wrong."""
    try:
        text = "" if path is None else path.read_text("utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return ServiceTable()
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):  # of a table, or meant to be
            header = _HEADER.match(line)
            inside = header is not None and header[1] == _SERVICE
        lines += [line] if inside else []
    try:
        table = tomllib.loads("\n".join(lines)).get(_SERVICE, {})
        return ServiceTable.model_validate_json(json.dumps(table), strict=True)
    except (ValueError, TypeError, RecursionError, ValidationError):
        return ServiceTable()
