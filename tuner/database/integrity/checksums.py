"""Checksums of rows, and the findings of an examination.

The checksum of a row is a BLAKE2b of 8 bytes, personalised by the name of its table, over the tuple of all
its other columns in the order below, its version among them, as a literal of Python in ASCII (``ascii``). A
literal tells NULL, integers, reals, texts and bytes apart, and its texts have an end. SQLite's own checks see
the form of a file, and not what is in it.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# --- What an examination of a database and its mirror found, row by row.

Key = tuple[int | str, ...]
"""The values of a row's primary key."""


@dataclass(frozen=True)
class RowRepair:
    """A row that one of the files did not have soundly, and has again.

    Attributes:
        table: its table.
        key: of the row.
        source: ``database``, ``mirror``, or ``backup of 2026-01-31``.
    """

    table: str
    key: Key
    source: str

    def __str__(self) -> str:
        return f"{self.table} {named(self.key)}: taken from the {self.source}"


@dataclass(frozen=True)
class IsolatedRow:
    """A row that neither file has soundly; it is kept aside, and everything else is served.

    Attributes:
        id: number in the table of such rows; 0 where it was only looked for.
        table: where it was.
        key: of the row, as far as it can be read.
        main: its columns as the database has them: UTF-8 JSON, values by column name, where bytes that are no
            text are ``{"hex": ...}``; None where it has none.
        mirror: the same of the mirror.
        why: what is wrong with it, for people.
        found_at: UTC, ISO 8601.
    """

    id: int
    table: str
    key: Key
    main: bytes | None
    mirror: bytes | None
    why: str
    found_at: str

    def __str__(self) -> str:
        return f"{self.table} {named(self.key)}: sound in neither file, kept aside ({self.why})"


@dataclass(frozen=True)
class Examination:
    """Result of an examination: the number of rows verified, and the faults.

    Attributes:
        rows: how many were verified.
        repaired: rows that were put right.
        isolated: rows that could not be.
        rebuilt: files that were replaced as a whole, with the reason.
    """

    rows: int = 0
    repaired: tuple[RowRepair, ...] = ()
    isolated: tuple[IsolatedRow, ...] = ()
    rebuilt: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """True where nothing was wrong."""
        return not (self.repaired or self.isolated or self.rebuilt)

    @property
    def lines(self) -> tuple[str, ...]:
        """Descriptions of all faults, for people."""
        return (*self.rebuilt, *map(str, self.repaired), *map(str, self.isolated))


@dataclass(frozen=True)
class Position:
    """Row after which a scrub resumes."""

    table: str
    key: Key


def named(key: Key) -> str:
    """A key for people."""
    return ", ".join(map(str, key))


def quoted(columns: Iterable[str]) -> str:
    """Columns for a statement."""
    return ", ".join(f'"{column}"' for column in columns)


@dataclass(frozen=True)
class Table:
    """A table with content.

    Attributes:
        name: of it.
        columns: all but ``version`` and ``checksum``, which follow them.
        keys: how many of the first columns are its primary key.
        inserted_with_checksum: true where every INSERT names the checksum, which spares a trigger.
    """

    name: str
    columns: tuple[str, ...]
    keys: int = 1
    inserted_with_checksum: bool = False

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Every column as it is stored."""
        return (*self.columns, "version", "checksum")

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self.columns[: self.keys]

    def listed(self, prefix: str = "") -> str:
        """All columns for a statement, with the name of a table or alias in front."""
        return ", ".join(f'{prefix}"{column}"' for column in self.all_columns)

    def key(self, row: Sequence[object]) -> Key:
        """The key of a row, as far as it has the type of one."""
        return tuple(value if isinstance(value, int | str) else repr(value) for value in row[: self.keys])

    @property
    def where_key(self) -> str:
        """A clause that chooses a row by its key."""
        return " AND ".join(f'"{column}" = ?' for column in self.key_columns)


# --- The tables, and the checksums of their rows.

TABLES = {
    table.name: table
    for table in (
        Table(
            "runs",
            (
                *("id", "fingerprint", "workload_key", "objective", "device_uuid", "status", "owner"),
                *("started_at", "ended_at", "conditions", "answer", "job_id", "began", "ended"),
            ),
        ),
        Table(
            "trials",
            (
                *("run_id", "number", "trial", "measurement", "confirmed", "status"),
                *("makespan_s", "energy_j", "ended_at"),
            ),
            keys=2,
            inserted_with_checksum=True,
        ),
        Table(
            "jobs",
            (
                *("id", "ordered", "origin", "priority", "state", "reason", "run_id", "attempts"),
                *("submitter", "created_at", "started_at", "ended_at"),
            ),
        ),
        Table("job_events", ("id", "job_id", "kind", "at", "data")),
        Table("uses", ("key", "count")),
        Table("analytical", ("key", "document")),
        Table("samples", ("id", "run_id", "at", "document")),
        Table(
            "spending",
            ("day", "device_uuid", "seconds", "joules"),
            keys=2,
        ),
        Table("models", ("kernel", "key", "document"), keys=2),
        Table("merged", ("run_id", "content", "source", "identity", "number", "at")),
        Table("isolated", ("id", "of", "key", "main", "mirror", "why", "found_at")),
    )
}
"""Every table whose rows have a checksum. A change that adds a column adds it here too."""


_PERSONS = {name: name.encode() for name in TABLES}


def row_checksum(table: str, *values: object) -> int:
    """The checksum of a row.

    Args:
        table: its name.
        values: of its columns, its version last.
    """
    return literal_checksum(table, ascii(values))


def literal_checksum(table: str, literal: str) -> int:
    """The checksum of a row.

    Args:
        table: its name.
        literal: its columns and its version, as ``ascii`` writes the tuple of them.
    """
    digest = hashlib.blake2b(literal.encode(), digest_size=8, person=_PERSONS[table]).digest()
    return int.from_bytes(digest, "big", signed=True)


def is_sound(table: str, row: Sequence[object]) -> bool:
    """True where a row, its version and its checksum last, is what was written."""
    return type(row[-1]) is int and row_checksum(table, *row[:-1]) == row[-1]


def verified(table: str) -> str:
    """A condition for the end of a WHERE clause: true, or the statement fails as a row is not sound."""
    return f"row_is_sound('{table}', {TABLES[table].listed(f'{table}.')})"


def teach(connection: sqlite3.Connection) -> None:
    """Make ``row_checksum`` and ``row_is_sound`` known to a connection."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    connection.create_function("row_is_sound", -1, _sound_or_raise, deterministic=True)


def checksum_all(connection: sqlite3.Connection) -> None:
    """Give every row the checksum of what it holds; for rows that had none."""
    for table in TABLES.values():
        connection.execute(
            f"UPDATE {table.name} SET checksum = {_sum(table, 'version')}"  # noqa: S608 - names from above
        )


def watch(connection: sqlite3.Connection) -> None:
    """Let a connection keep the checksums of rows that it changes, and refuse to change a damaged one.

    A row that is inserted with a checksum keeps that.
    """
    version = "(SELECT count + 1 FROM writes)"
    for table in TABLES.values():
        name, columns = table.name, quoted(table.columns)
        here = " AND ".join(f'"{column}" = NEW."{column}"' for column in table.key_columns)
        update = f"UPDATE {name} SET version = {version}, checksum = {_sum(table, version)} WHERE {here};"  # noqa: S608
        check = f"SELECT row_is_sound('{name}', {table.listed('OLD.')});"
        inserted = ("inserted", f"AFTER INSERT ON main.{name} WHEN NEW.checksum IS NULL", update)
        for what, when, body in (
            *(() if table.inserted_with_checksum else (inserted,)),
            ("changing", f"BEFORE UPDATE OF {columns} ON main.{name}", check),
            ("changed", f"AFTER UPDATE OF {columns} ON main.{name}", update),
            ("deleting", f"BEFORE DELETE ON main.{name}", check),
        ):
            connection.execute(f"CREATE TEMP TRIGGER {name}_{what} {when} BEGIN {body} END")


def _sum(table: Table, version: str) -> str:
    return f"row_checksum('{table.name}', {quoted(table.columns)}, {version})"


def _sound_or_raise(table: str, *row: object) -> int:
    if not is_sound(table, row):
        raise ValueError(table)
    return 1
