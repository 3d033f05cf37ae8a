"""Rows of a file that SQLite cannot read: every record on its pages that is a row by its own checksum.

The order of pages, indexes and the tables' definitions are not needed: the name of the table is in the
checksum. On a page whose list of cells is damaged, a record may begin at any byte. Work and memory are
bounded by the size of the file.
"""

import re
import sqlite3
from collections.abc import Callable, Container, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tuner.database.integrity import pages as form
from tuner.database.integrity.checksums import TABLES, Key, Table, is_sound
from tuner.database.integrity.copy_state import Copy, CopyState
from tuner.database.integrity.pages import INDEX_INTERIOR, INDEX_LEAF, TABLE_INTERIOR, TABLE_LEAF, Pages
from tuner.database.transaction import LARGEST_COUNT, Row

# The header of a row ends with the types of its version and of its checksum, integers of some length each.
_HEADER_END = re.compile(rb"[\x01-\x06\x08\x09][\x04-\x06]", re.DOTALL)
_LONGEST_HEADER = 64
_LONGEST_NUMBERS = 18  # in front of it: the size of the record, and the number of the row
_TRIES = 500_000  # of places on damaged pages: seconds
_CHAINED = 4  # times the file: so much is read of records that go on on other pages
_SMALLEST, _LARGEST = 2, 1 << 30  # bytes of a record
_WRITES, _SEQUENCE = 3, 2  # columns of tables without checksums


@dataclass(frozen=True)
class SalvagedRecord:
    """A record.

    Attributes:
        table: the name of its table; also ``writes`` and ``sqlite_sequence``, whose rows have no checksum.
        row: its columns.
        sound: its checksum is right; where it is not, the table is a guess.
    """

    table: str
    row: Row
    sound: bool


def salvaged(path: Path, log: bytes) -> Iterator[SalvagedRecord]:
    """Yield the records on the pages of a file, as its log leaves them; a row may come twice.

    Args:
        path: of the file, which need not be there.
        log: its write-ahead log.
    """
    with closing(Pages(path, log)) as pages:
        yield from _Search(pages).found()


class _Search:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._numbers = pages.numbers
        self._left = _CHAINED * len(self._numbers) + 64  # overflow pages that may still be read
        self._tries = _TRIES
        self._chained: set[int] = set()
        usable = pages.usable_bytes
        self._least = (usable - 12) * 32 // 255 - 23  # of a long record that stays on its page, at least
        self._most = {True: usable - 35, False: (usable - 12) * 64 // 255 - 23}

    def found(self) -> Iterator[SalvagedRecord]:
        unclear: list[int] = []
        strange: list[int] = []
        for number in self._numbers:
            page = self._pages.page(number)
            if page is None:
                continue
            start = 100 if number == 1 else 0
            kind = page[start]
            if kind in (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR):
                places, clear = form.cells(page, start)
                for place in places:
                    cell = self._cell(page, place + (4 if kind == INDEX_INTERIOR else 0), kind == TABLE_LEAF)
                    if cell is None:
                        clear = False
                    else:
                        yield from cell
                if not clear:
                    unclear.append(number)
            elif kind != TABLE_INTERIOR and any(page):
                strange.append(number)
        strange = [number for number in strange if number not in self._chained]
        for number in unclear + strange:
            yield from self._searched(number)

    def _searched(self, number: int) -> Iterator[SalvagedRecord]:
        """Every sound row that begins at any byte of a page."""
        page = self._pages.page(number) or b""
        for end in _HEADER_END.finditer(page):
            for place in range(max(end.end() - _LONGEST_HEADER, 1), end.start()):
                if page[place] == end.end() - place:
                    yield from self._before(page, place)

    def _before(self, page: bytes, header: int) -> Iterator[SalvagedRecord]:
        """The sound row whose record has its header at a place, whatever numbers stand in front of it."""
        for place in range(max(header - _LONGEST_NUMBERS, 0), header):
            self._tries -= 1
            if self._tries < 0:
                return
            for numbered in (True, False):
                for found in self._cell(page, place, numbered) or ():
                    if found.sound and found.table in TABLES:
                        yield found

    def _cell(self, page: bytes, place: int, numbered: bool) -> list[SalvagedRecord] | None:
        """Return the row in a cell, in a list: empty if of no interest; None if there is no record."""
        payload_bytes, at = form.varint(page, place)
        if not _SMALLEST <= payload_bytes < _LARGEST:
            return None
        rowid = None
        if numbered:
            rowid, at = form.varint(page, at)
        read = form.serial_types(page, at, payload_bytes)
        if read is None:
            return None
        types, header_bytes = read
        tables = _by_columns(len(types), numbered)
        if not tables and not (numbered and len(types) in (_WRITES, _SEQUENCE)):
            return []
        record = self._record(page, at, payload_bytes, numbered)
        if record is None:
            return None
        row = form.values(record, types, header_bytes)
        return _told(row, rowid, tables)

    def _record(self, page: bytes, at: int, payload_bytes: int, numbered: bool) -> bytes | None:
        """All of a record, with what is on other pages; None where they are not to be had."""
        usable = self._pages.usable_bytes
        most = self._most[numbered]
        if payload_bytes <= most:
            record = page[at : at + payload_bytes]
            return record if len(record) == payload_bytes else None
        local = self._least + (payload_bytes - self._least) % (usable - 4)
        local = local if local <= most else self._least
        parts = [page[at : at + local]]
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        missing = payload_bytes - local
        chain: list[int] = []
        while missing > 0:
            self._left -= 1
            more = self._pages.page(following) if self._left >= 0 and following not in chain[-1:] else None
            if more is None:
                return None
            chain.append(following)
            following = int.from_bytes(more[:4], "big")
            parts.append(more[4 : min(usable, 4 + missing)])
            missing -= usable - 4
        self._chained.update(chain)
        return b"".join(parts)


def _by_columns(count: int, numbered: bool) -> list[Table]:
    return [
        table for table in TABLES.values() if table.numbered is numbered and len(table.all_columns) == count
    ]


def _told(row: Row, rowid: int | None, tables: list[Table]) -> list[SalvagedRecord]:
    """A record as a row of one of some tables."""
    if rowid is not None:
        if len(row) == _SEQUENCE and isinstance(row[0], str) and type(row[1]) is int:
            return [SalvagedRecord("sqlite_sequence", row, sound=row[0] in TABLES)]
        if len(row) == _WRITES and rowid == 1 and isinstance(row[1], str) and type(row[2]) is int:
            return [SalvagedRecord("writes", (rowid, *row[1:]), sound=0 <= row[2] < LARGEST_COUNT)]
        row = (rowid, *row[1:])
    guesses = []
    for table in tables:
        as_read = table.as_read(row)
        if is_sound(table.name, as_read):
            return [SalvagedRecord(table.name, as_read, sound=True)]
        if type(row[-1]) is int and type(row[-2]) is int and table.could_have(row):
            guesses.append(SalvagedRecord(table.name, as_read, sound=False))
    return guesses[:1]


# --- What the pages of a damaged file still give, gathered and held against what is there.

_ALIKE = 8  # digits of 32 that damage may change; those of two databases differ in thirty
_DIGITS = 32


def same_database(first: str | None, second: str | None) -> bool:
    """True where two identities may be of one database: one is damaged, or not known."""
    if first is None or second is None or not len(first) == len(second) == _DIGITS:
        return True
    return sum(a != b for a, b in zip(first, second, strict=True)) <= _ALIKE


class Harvest:
    """The rows on the pages of a file that SQLite cannot read; none of a file that is not there.

    Args:
        copy: the file.
        keep: is given every sound row with its table and key; it may come twice, and in several versions.

    Attributes:
        damaged: rows whose checksums are not right, by table and key, as far as their table can be guessed.
        identity: of the database; None where it was not found.
        count: the highest number of a transaction that was found.
        sequences: the last numbers of tables that were found.
        found: number of sound rows.
    """

    def __init__(self, copy: Copy, keep: Callable[[str, Key, Row], None]) -> None:
        self.damaged: dict[tuple[str, Key], Row] = {}
        self.identity: str | None = None
        self.count = 0
        self.sequences: dict[str, int] = {}
        self.found = 0
        if copy.form is CopyState.DAMAGED:
            for each in salvaged(copy.path, copy.log):
                self._note(each, keep)

    def _note(self, each: SalvagedRecord, keep: Callable[[str, Key, Row], None]) -> None:
        if each.table == "writes":
            _, identity, count = each.row
            if each.sound and len(identity) == _DIGITS:
                self.identity, self.count = identity, max(self.count, count)
        elif each.table == "sqlite_sequence":
            name, number = each.row
            if each.sound and 0 < number < LARGEST_COUNT:
                self.sequences[name] = max(number, self.sequences.get(name, 0))
        else:
            key = TABLES[each.table].key(each.row)
            if each.sound:
                self.found += 1
                keep(each.table, key, each.row)
            else:
                self.damaged[each.table, key] = each.row


class NeededRows:
    """Sound rows that are needed, and those of later transactions than a count; of each the highest version.

    Args:
        needed: by table and key.
        above: the count.
    """

    def __init__(self, needed: Container[tuple[str, Key]], above: int | None) -> None:
        self.rows: dict[tuple[str, Key], Row] = {}
        self._needed = needed
        self._above = above

    def keep(self, table: str, key: Key, row: Row) -> None:
        """Take a row if it is one of them."""
        at = table, key
        later = self._above is not None and row[-2] > self._above
        if (later or at in self._needed) and (at not in self.rows or self.rows[at][-2] < row[-2]):
            self.rows[at] = row


def is_there(connection: sqlite3.Connection, name: str, key: Key) -> bool:
    """True where a file has a row."""
    statement = f"SELECT 1 FROM {name} WHERE {TABLES[name].where_key}"  # noqa: S608 - a name of ours
    return connection.execute(statement, key).fetchone() is not None
