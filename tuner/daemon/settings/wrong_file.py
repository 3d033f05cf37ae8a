"""What can be used of a ``daemon.toml`` that is wrong."""

import json
import sys
from pathlib import Path

from pydantic import ValidationError

from tuner.daemon.settings.tables import ServiceTable
from tuner.untrusted.toml_lines import HEADER

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SERVICE = "service"


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
            header = HEADER.match(line)
            inside = header is not None and header[1] == _SERVICE
        lines += [line] if inside else []
    try:
        table = tomllib.loads("\n".join(lines)).get(_SERVICE, {})
        return ServiceTable.model_validate_json(json.dumps(table), strict=True)
    except (ValueError, TypeError, RecursionError, ValidationError):
        return ServiceTable()
