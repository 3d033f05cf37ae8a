"""Pages, records and write-ahead log of an SQLite file, read without SQLite.

For files that SQLite refuses. Any bytes may be met: what is no page or record is None, never an error.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.database.files import RawFile, side_file
from tuner.database.transaction import Row

TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR, TABLE_INTERIOR = 13, 10, 2, 5
"""Types of pages; those of an index and of a table without row numbers are the same."""

_MAGIC = b"SQLite format 3\0"
_LOG_MAGIC = (0x377F0682, 0x377F0683)
LOG_HEADER = 32
_FRAME_HEADER = 24
_USUAL_BYTES = 4096  # of a page
_SMALLEST, _LARGEST = 512, 65536  # pages
_FILE_HEADER = 100
_LONGEST_HEADER = 200  # of a record; those of our tables are shorter
_MORE = 0x80  # in a byte of a number: another one follows
_REAL, _FIRST_TEXT = 7, 12  # serial types
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes


class BadText(bytes):
    """The bytes of a text that is no UTF-8."""

    __slots__ = ()


def text_or_bytes(content: bytes) -> str | BadText:
    """A text as SQLite keeps it; its bytes where they are damaged. A ``text_factory`` that never fails."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return BadText(content)


def log_of(path: Path) -> bytes:
    """The write-ahead log of a file; empty without one."""
    try:
        return side_file(path, "-wal").read_bytes()
    except OSError:
        return b""


def begins_a_file(path: Path) -> bool:
    """True where a file begins as one of SQLite, as far as it goes."""
    with path.open("rb") as file:
        return _MAGIC.startswith(file.read(len(_MAGIC)))


@dataclass(frozen=True)
class Frames:
    """The frames of a write-ahead log that belong together, whatever their checksums say.

    Attributes:
        page_bytes: size of a page; 0 where there is no log.
        places: where in the log the page of each frame begins, by its order.
        pages: the number of each frame's page.
    """

    page_bytes: int = 0
    places: tuple[int, ...] = ()
    pages: tuple[int, ...] = ()


def frames_of(log: bytes) -> Frames:
    """The frames of a log up to the last that ends a transaction."""
    if len(log) < LOG_HEADER + _FRAME_HEADER:
        return Frames()
    magic, _, page_bytes, _, salt = struct.unpack_from(">IIII8s", log)
    if magic not in _LOG_MAGIC or not _is_size(page_bytes):
        page_bytes = _USUAL_BYTES
        salt = log[LOG_HEADER + 8 : LOG_HEADER + 16]  # as the first frame has it
    found: list[tuple[int, int]] = []
    committed = 0
    for place in range(LOG_HEADER, len(log) - _FRAME_HEADER - page_bytes + 1, _FRAME_HEADER + page_bytes):
        number, ends, of = struct.unpack_from(">II8s", log, place)
        if of == salt and number:
            found.append((place + _FRAME_HEADER, number))
            if ends:
                committed = len(found)
    del found[committed:]
    return Frames(page_bytes, tuple(place for place, _ in found), tuple(number for _, number in found))


def log_is_whole(log: bytes) -> bool:
    """True where SQLite reads all frames of a log; it stops at the first whose checksum is wrong."""
    frames = frames_of(log)
    if not frames.places:
        return True
    (magic,) = struct.unpack_from(">I", log)
    order = ">" if magic & 1 else "<"
    first, second = _log_sum(log[: LOG_HEADER - 8], order, 0, 0)
    if magic not in _LOG_MAGIC or struct.unpack_from(">II", log, LOG_HEADER - 8) != (first, second):
        return False
    place = LOG_HEADER
    while place <= frames.places[-1]:
        body = place + _FRAME_HEADER
        first, second = _log_sum(log[place : place + 8], order, first, second)
        first, second = _log_sum(log[body : body + frames.page_bytes], order, first, second)
        if struct.unpack_from(">II", log, place + 16) != (first, second):
            return False
        place = body + frames.page_bytes
    return True


def _log_sum(content: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    words = iter(struct.unpack(f"{order}{len(content) // 4}I", content))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


class Pages:
    """The pages of a file as its log leaves them.

    Args:
        path: of the file, which need not be there.
        log: its write-ahead log.
    """

    def __init__(self, path: Path, log: bytes) -> None:
        self._log = log
        frames = frames_of(log)
        self._file = RawFile(path) if path.exists() else None
        header = self._read(0, 100)
        self.page_bytes = frames.page_bytes or _page_bytes(header) or _USUAL_BYTES
        reserved = header[20] if _page_bytes(header) else 0
        self.usable_bytes = self.page_bytes - (reserved if reserved <= self.page_bytes - 480 else 0)
        self._newest = dict(zip(frames.pages, frames.places, strict=True))
        size = 0 if self._file is None else self._file.size
        self._in_file = -(-size // self.page_bytes)

    @property
    def numbers(self) -> list[int]:
        """The numbers of all pages."""
        return [*range(1, self._in_file + 1), *sorted(page for page in self._newest if page > self._in_file)]

    def page(self, number: int) -> bytes | None:
        """A page as it is now; one that is cut off is filled with zeroes. None where there is none."""
        place = self._newest.get(number)
        if place is not None:
            return self._log[place : place + self.page_bytes]
        if not 1 <= number <= self._in_file:
            return None
        return self._read((number - 1) * self.page_bytes, self.page_bytes).ljust(self.page_bytes, b"\0")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _read(self, place: int, size: int) -> bytes:
        return b"" if self._file is None else self._file.read(place, size)


def cells(page: bytes, start: int) -> tuple[list[int], bool]:
    """Return the offsets of the cells of a b-tree page, and True if all of its list of them makes sense.

    Args:
        page: of one of the types above.
        start: of the page's header: 100 on the first page of a file.
    """
    first = start + (12 if page[start] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8)
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    most = (len(page) - first) // 2
    places = struct.unpack_from(f">{min(count, most)}H", page, first)
    fitting = [place for place in places if first + 2 * len(places) <= place < len(page) - 2]
    return fitting, len(fitting) == count


def varint(content: bytes, place: int) -> tuple[int, int]:
    """A number of variable length, and where it ends; at the end of the content it is cut short."""
    value = 0
    for index in range(place, min(place + 8, len(content))):
        byte = content[index]
        value = value << 7 | byte & 0x7F
        if byte < _MORE:
            return value, index + 1
    if place + 8 < len(content):
        value = value << 8 | content[place + 8]
    if value >= 1 << 63:
        value -= 1 << 64
    return value, min(place + 9, len(content))


def serial_types(content: bytes, place: int, payload_bytes: int) -> tuple[list[int], int] | None:
    """The types of a record's columns and the size of its header; None where it is no record.

    Args:
        content: where the record begins in.
        place: of its beginning.
        payload_bytes: of the whole record.
    """
    header_bytes, at = varint(content, place)
    end = place + header_bytes
    if not at - place < header_bytes <= _LONGEST_HEADER or end > len(content):
        return None
    types, body = [], 0
    while at < end:
        kind, at = varint(content, at)
        size = _size(kind)
        if size is None:
            return None
        body += size
        types.append(kind)
    return (types, header_bytes) if at == end and header_bytes + body == payload_bytes else None


def values(record: bytes, types: list[int], place: int) -> Row:
    """The columns of a whole record, whose values begin at a place."""
    found: list[Any] = []
    for kind in types:
        size = _size(kind) or 0
        content = record[place : place + size]
        place += size
        if kind == 0:
            found.append(None)
        elif kind in _INTEGERS:
            found.append(int.from_bytes(content, "big", signed=True))
        elif kind == _REAL:
            found.append(struct.unpack(">d", content)[0])
        elif kind in (8, 9):
            found.append(kind - 8)
        else:
            found.append(text_or_bytes(content) if kind % 2 else content)
    return tuple(found)


def _size(kind: int) -> int | None:
    if kind >= _FIRST_TEXT:
        return (kind - _FIRST_TEXT) // 2
    if kind in (10, 11) or kind < 0:
        return None
    return 8 if kind == _REAL else _INTEGERS.get(kind, 0)


def _page_bytes(header: bytes) -> int:
    if not header.startswith(_MAGIC) or len(header) < _FILE_HEADER:
        return 0
    size = int.from_bytes(header[16:18], "big")
    size = _LARGEST if size == 1 else size
    return size if _is_size(size) else 0


def _is_size(page_bytes: int) -> bool:
    return _SMALLEST <= page_bytes <= _LARGEST and page_bytes & (page_bytes - 1) == 0


# --- Whether a write-ahead log says more than SQLite reads of it.
#
# SQLite reads a log up to the first frame whose checksum is wrong, and says nothing: what was stored after it
# would be gone, in both files where both logs are damaged alike.

_TEXT_OF_32 = 77  # serial type
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes


def says_more(log: bytes, page: int, identity: str, count: int) -> bool:
    """True where a log has a later transaction than SQLite has read from it.

    Args:
        log: as it was before SQLite read.
        page: number of the page with the count of transactions, which every transaction writes.
        identity: of the database.
        count: of transactions that SQLite has read.
    """
    frames = frames_of(log)
    places = [place for place, number in zip(frames.places, frames.pages, strict=True) if number == page]
    if not places:
        return bool(frames.places) and not log_is_whole(log)
    last = _count(log[places[-1] : places[-1] + frames.page_bytes], identity)
    if last is not None and last <= count:
        return False
    return not log_is_whole(log)  # else a writer is just between the log and its index


def _count(page: bytes, identity: str) -> int | None:
    """The count on a page; None where the page is damaged."""
    header = bytes([4, 0, _TEXT_OF_32])
    found = re.search(re.escape(header) + b"(.)" + re.escape(identity.encode()), page, re.DOTALL)
    length = None if found is None else _INTEGER_BYTES.get(found[1][0])
    if found is None or length is None:
        return None
    return int.from_bytes(page[found.end() : found.end() + length], "big", signed=True)
