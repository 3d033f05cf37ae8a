"""Rows verified a few at a time, and the list of those that were kept aside."""

import json

from tuner.database.faults import SuspectError
from tuner.database.integrity.checksums import TABLES, verified
from tuner.database.integrity.examination import Examination, IsolatedRow, Position
from tuner.database.integrity.rows import VerifiedRows, compared, page_of
from tuner.database.pair import Pair
from tuner.database.transaction import Transaction

_ISOLATED = (
    'SELECT id, "of", key, main, mirror, why, found_at FROM isolated'  # noqa: S608
    f" WHERE {verified('isolated')} ORDER BY id"
)


def scrubbed(pair: Pair, after: Position | None, most_rows: int) -> tuple[Position | None, Examination]:
    """Verify the next rows of an open database in both files.

    Args:
        pair: the database.
        after: where the last call stopped; None to begin.
        most_rows: so many rows at most are read of each file.

    Returns:
        Where to go on, None behind the last row; and how many rows were verified.

    Raises:
        SuspectError: a row is not sound, or the files differ.
    """
    names = list(TABLES)
    begin = names.index(after.table) if after is not None and after.table in TABLES else 0
    left, tally = max(most_rows, 1), VerifiedRows()
    with pair.snapshot() as view:
        for name in names[begin:]:
            table, key = TABLES[name], after.key if after is not None and name == after.table else ()
            pages = [page_of(connection, table, key, left) for connection in view.connections]
            for found in compared(table, iter(pages[0]), iter(pages[-1]), tally):
                raise SuspectError(f"{name} {found.key} is not sound, or differs in the mirror")
            left -= len(pages[0])
            if left <= 0:
                return Position(name, table.key(pages[0][-1])), Examination(tally.rows)
    return None, Examination(tally.rows)


def isolated_rows(view: Transaction) -> list[IsolatedRow]:
    """The rows that were kept aside, oldest first."""
    return [
        IsolatedRow(number, table, tuple(json.loads(key)), main, mirror, why, found_at)
        for number, table, key, main, mirror, why, found_at in view.rows(_ISOLATED)
    ]
