"""What the pages of a damaged file still give, gathered and held against what is there."""

import sqlite3
from collections.abc import Callable, Container

from tuner.database.integrity.checksums import TABLES
from tuner.database.integrity.copy_state import Copy, CopyState
from tuner.database.integrity.examination import Key
from tuner.database.integrity.salvage import SalvagedRecord, salvaged
from tuner.database.transaction import LARGEST_COUNT, Row

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
