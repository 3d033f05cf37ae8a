"""Single rows put right in open files, and rows that are sound in none kept aside."""

import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuner.database.faults import SuspectError
from tuner.database.files import now
from tuner.database.integrity.checksums import TABLES, Table, row_checksum
from tuner.database.integrity.examination import IsolatedRow, Key, RowRepair
from tuner.database.integrity.rows import RowDifference
from tuner.database.transaction import LARGEST_COUNT, Row

_NUMBERED = ("jobs", "job_events")  # tables whose numbers SQLite remembers (AUTOINCREMENT)
_LARGEST_NUMBER = 2**48
_UNSOUND = "its checksum is not that of its content"


@dataclass
class Mending:
    """What is to be done, or was.

    Attributes:
        puts: rows to be written, by table and key, with where they are from; None to remove one.
        repaired: rows of them that were damaged.
        lost: rows that are sound nowhere, with what the database and the mirror have.
    """

    puts: dict[tuple[str, Key], Row | None] = field(default_factory=dict)
    repaired: list[RowRepair] = field(default_factory=list)
    lost: dict[tuple[str, Key], tuple[Row | None, Row | None]] = field(default_factory=dict)

    def put(self, table: str, key: Key, row: Row | None, source: str) -> None:
        """Note a row that is to be written, or removed; a source where it was damaged."""
        self.puts[table, key] = row
        if source:
            self.repaired.append(RowRepair(table, key, source))

    def isolated(self) -> list[IsolatedRow]:
        """The rows that are lost, as they will be kept."""
        at = now()
        return [
            IsolatedRow(0, table, key, _told(table, main), _told(table, mirror), _UNSOUND, at)
            for (table, key), (main, mirror) in self.lost.items()
        ]


def planned(found: Iterable[RowDifference], *, ahead: int) -> Mending:
    """What to do about the differences of two files that SQLite can read.

    Args:
        found: the differences.
        ahead: how many transactions more the database has than its mirror. A row that the file ahead does not
            have was removed since; one that only the file behind lacks is new.
    """
    mending = Mending()
    all_found = list(found)
    unsure = {each.table.name for each in all_found if _knows(each, ahead) not in (None, each.best()[0])}
    for difference in all_found:
        table, key = difference.table.name, difference.key
        row, source = difference.best()
        knows = _knows(difference, ahead)
        if ahead and knows is None and table not in unsure:
            mending.put(table, key, None, "")
        elif row is not None:
            other = difference.mirror if ahead > 0 else difference.main
            plain = ahead != 0 and row is knows and (other is None or _written_earlier(other, row))
            mending.put(table, key, row, "" if plain else source)
        elif ahead == 0 and (difference.main is None or difference.mirror is None):
            # what is left of a row that has another key: the other file would have it
            mending.put(table, key, None, "")
        else:
            mending.lost[table, key] = difference.main, difference.mirror
    return mending


def _knows(difference: RowDifference, ahead: int) -> Row | None:
    """A row as the file has it that is ahead."""
    return difference.main if ahead >= 0 else difference.mirror


def mend(connection: sqlite3.Connection, mending: Mending, isolated: Sequence[IsolatedRow]) -> None:
    """Write rows to a file as they are, and keep the lost ones aside, in the caller's transaction.

    Raises:
        SuspectError: the file does not do what it is told.
    """
    for (name, key), row in mending.puts.items():
        _remove(connection, TABLES[name], key)
        if row is not None:
            insert(connection, TABLES[name], row)
    for name, key in mending.lost:
        _remove(connection, TABLES[name], key)
    (first,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM isolated").fetchone()
    (count,) = connection.execute("SELECT max(count) FROM writes").fetchone()
    for number, lost in enumerate(isolated, first):
        of = (number, lost.table, json.dumps(lost.key), lost.main, lost.mirror, lost.why, lost.found_at)
        row = (*of, count if isinstance(count, int) else 0)
        insert(connection, TABLES["isolated"], (*row, row_checksum("isolated", *row)))


def insert(connection: sqlite3.Connection, table: Table, row: Row) -> None:
    """Write a row with its checksum; one of the same key of a lower version makes room for it."""
    marks = ", ".join("?" * len(row))
    sets = ", ".join(f'"{column}" = excluded."{column}"' for column in table.all_columns[table.keys :])
    keys = ", ".join(f'"{column}"' for column in table.key_columns)
    statement = (
        f"INSERT INTO main.{table.name} ({table.listed()}) VALUES ({marks})"  # noqa: S608 - names of our tables
        f" ON CONFLICT ({keys}) DO UPDATE SET {sets} WHERE excluded.version > version"
    )
    try:
        connection.execute(statement, row)
    except sqlite3.IntegrityError as error:
        raise SuspectError(f"a row of {table.name} does not fit: {error}") from error


def align(connections: Sequence[sqlite3.Connection], identity: str | None, count: int) -> None:
    """Give files the same identity, the same count, above all versions, and the same next numbers.

    Args:
        connections: the files, in transactions of the caller.
        identity: of the database; None to keep that of the first, or to choose one.
        count: of transactions, at least.
    """
    first = connections[0]
    highest = max(
        first.execute(f"SELECT coalesce(max(version), 0) FROM {table}").fetchone()[0]  # noqa: S608
        for table in TABLES
    )
    numbers = {table: max(_numbers(connection, table) for connection in connections) for table in _NUMBERED}
    applied = first.execute("SELECT name, applied FROM migrations ORDER BY rowid").fetchall()
    kept = [row[0] for row in first.execute("SELECT identity FROM writes") if isinstance(row[0], str)]
    identity = identity or next(iter(kept), secrets.token_hex(16))
    for connection in connections:
        connection.execute("DELETE FROM writes")
        connection.execute("INSERT INTO writes VALUES (1, ?, ?)", (identity, max(count, highest)))
        connection.execute("DELETE FROM sqlite_sequence")
        connection.executemany(
            "INSERT INTO sqlite_sequence VALUES (?, ?)", [item for item in numbers.items() if item[1]]
        )
        if connection is not first:
            connection.execute("DELETE FROM migrations")
            connection.executemany("INSERT INTO migrations VALUES (?, ?)", applied)


def aside(connection: sqlite3.Connection) -> tuple[list[Row], ...]:
    """What a file holds beside rows with checksums."""
    return tuple(
        connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()  # noqa: S608 - named here
        for table in ("writes", "sqlite_sequence", "migrations")
    )


def _numbers(connection: sqlite3.Connection, table: str) -> int:
    """The highest number that a table has given, as far as can be told."""
    statement = "SELECT seq FROM sqlite_sequence WHERE name = ?"
    given = [number for (number,) in connection.execute(statement, (table,)) if _is_number(number)]
    (there,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()  # noqa: S608
    kept = connection.execute(
        'SELECT max(CAST(substr(key, 2) AS INTEGER)) FROM isolated WHERE "of" = ?', (table,)
    )
    naming = ("job_events", "runs") if table == "jobs" else ()
    others = [connection.execute(f"SELECT max(job_id) FROM {other}").fetchone()[0] for other in naming]  # noqa: S608
    highest: int = max(
        [there, *given, *(other for other in (*kept.fetchone(), *others) if _is_number(other))]
    )
    return highest


def _is_number(value: object) -> bool:
    return type(value) is int and 0 < value < min(_LARGEST_NUMBER, LARGEST_COUNT)


def _written_earlier(row: Row, than: Row) -> bool:
    return type(row[-2]) is int and type(than[-2]) is int and row[-2] < than[-2]


def _remove(connection: sqlite3.Connection, table: Table, key: Key) -> None:
    connection.execute(f"DELETE FROM main.{table.name} WHERE {table.where_key}", key)  # noqa: S608


def _told(table: str, row: Row | None) -> bytes | None:
    """The columns of a row for export."""
    if row is None:
        return None
    columns = dict(zip(TABLES[table].all_columns, row, strict=False))
    return json.dumps(columns, default=lambda value: {"hex": bytes(value).hex()}).encode()
