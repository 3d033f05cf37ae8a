"""Where keys stand in the text of a TOML file, for messages."""

import re

_PLACE = re.compile(r"\[\[?([^\]]*)\]\]?(?: ([0-9]+))?(?: ([^,]+))?")
HEADER = re.compile(r"\s*\[\[?\s*[\"']?([^\]\"']*?)[\"']?\s*\]")
"""The line that begins a table."""


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
        header = HEADER.match(line)
        if header is not None:
            count += header[1] == table
            inside = header[1] == table and number in (0, count)
            header_line = line_number if inside and header_line is None else header_line
        elif inside and key is not None and key.match(line):
            return line_number
    return header_line
