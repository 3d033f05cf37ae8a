"""What an examination of a database and its mirror found, row by row."""

from dataclasses import dataclass

Key = tuple[int | str, ...]
"""The values of a row's primary key."""


@dataclass(frozen=True)
class RowRepair:
    """A row that one of the files did not have soundly, and has again.

    Attributes:
        table: its table.
        key: of the row.
        source: ``database``, ``mirror``, or ``salvage`` where it was read from the pages themselves.
    """

    table: str
    key: Key
    source: str

    def __str__(self) -> str:
        found = "found in the pages of the files" if self.source == "salvage" else f"from the {self.source}"
        return f"{self.table} {named(self.key)}: taken {found}"


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
    """What was looked at, and what was wrong.

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
        """What was wrong, for people."""
        return (*self.rebuilt, *map(str, self.repaired), *map(str, self.isolated))


@dataclass(frozen=True)
class Position:
    """Where a scrub goes on: behind this row."""

    table: str
    key: Key


def named(key: Key) -> str:
    """A key for people."""
    return ", ".join(map(str, key))
