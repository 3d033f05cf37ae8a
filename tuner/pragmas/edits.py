"""Edits of a source by byte ranges; what is not edited stays as it is, and lines keep their numbers."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Edit:
    """A replacement.

    Attributes:
        start: first byte that is replaced.
        end: the byte behind the last one.
        text: what stands there instead.
    """

    start: int
    end: int
    text: str


class OverlapError(ValueError):
    """Two edits touch the same bytes; ``place`` is where."""

    def __init__(self, place: int) -> None:
        super().__init__("another pragma changes the same text")
        self.place = place


def edited(text: bytes, edits: Iterable[Edit]) -> str:
    """The text with its edits; where one changes the number of lines, ``#line`` tells the next line's.

    Such an edit holds whole lines. One that has a ``#line`` itself is left as it is.

    Raises:
        OverlapError: two edits overlap.
    """
    parts: list[bytes] = []
    place, line = 0, 1  # line: number in the original of what comes next
    for edit in sorted(edits):
        if edit.start < place:
            raise OverlapError(edit.start)
        replaced = text[edit.start : edit.end]
        parts.append(text[place : edit.start])
        line += text.count(b"\n", place, edit.end)
        added = edit.text.encode()
        if added.count(b"\n") != replaced.count(b"\n") and b"#line " not in added:
            added += b"#line %d\n" % line
        parts.append(added)
        place = edit.end
    parts.append(text[place:])
    return b"".join(parts).decode()
