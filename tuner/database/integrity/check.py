"""Checks of both files that change nothing: an examination, and a scrub of a few rows at a time."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tuner.database.files import (
    SuspectError,
    connect_to_read,
    damaged,
    locked,
    mirror_of,
    translated,
    unreadable,
)
from tuner.database.integrity.backups import backups, same_database
from tuner.database.integrity.checksums import TABLES, Examination, IsolatedRow, Position, verified
from tuner.database.integrity.copy_state import Copy, CopyState, inspected
from tuner.database.integrity.repair import complete, gathered, planned, planned_alone, refuse_newer
from tuner.database.integrity.row_comparison import (
    VerifiedRows,
    compared,
    differences,
    page_of,
    text_or_bytes,
)
from tuner.database.pair import Pair
from tuner.database.transaction import Transaction, standing

_TURNS = 50  # while another process writes, until both files are met at one transaction
_LOOK_AGAIN_S = 0.01


def check_copies(path: Path) -> Examination:
    """Examine the database and its mirror without changing anything; other processes may go on.

    Args:
        path: of the database.

    Raises:
        StoreError: nothing of this program is there, or it is of a newer version, or cannot be opened.
    """
    with locked(path, alone=False):
        try:
            main, mirror = inspected(path, to_change=False), inspected(mirror_of(path), to_change=False)
        except OSError as error:
            raise unreadable(error, path) from error
        refuse_newer(main, mirror)
        if CopyState.EARLIER in (main.form, mirror.form) and not main.whole:
            return Examination(rebuilt=(f"{path} is of an earlier version; opening it brings it up",))
        try:
            return _checked(main, mirror)
        except sqlite3.Error as error:
            if damaged(error):
                return Examination(rebuilt=(f"{path} or its mirror is damaged: {error}",))
            raise translated(error, path) from error
        except (SuspectError, UnicodeDecodeError) as error:
            return Examination(rebuilt=(f"{path} or its mirror is damaged: {error}",))
        except OSError as error:
            raise unreadable(error, path) from error


def _checked(main: Copy, mirror: Copy) -> Examination:
    if main.whole and mirror.whole and same_database(main.identity, mirror.identity):
        return _compared(main, mirror)
    if main.whole or mirror.whole:
        whole, other = (main, mirror) if main.whole else (mirror, main)
        return _one_alone(whole, other, of_main=main.whole)
    found = gathered(main, mirror, lambda *_: None)
    whys = tuple(f"{copy.path}: {copy.trouble or 'it is not there'}" for copy in (main, mirror))
    return Examination(found.rows, tuple(found.mending.repaired), tuple(found.mending.isolated()), whys)


def _compared(main: Copy, mirror: Copy) -> Examination:
    for turn in range(_TURNS):
        with _open(main.path) as first, _open(mirror.path) as second:
            counts = [_count(connection) for connection in (first, second)]
            if counts[0] == counts[1] or turn == _TURNS - 1:
                tally = VerifiedRows()
                mending = planned(differences(first, second, tally), ahead=_ahead(counts))
                complete(mending, backups(main.path, main.identity) if mending.lost else ())
                lacks = _lacks(main, mirror, _ahead(counts))
                return Examination(tally.rows, tuple(mending.repaired), tuple(mending.isolated()), lacks)
        time.sleep(_LOOK_AGAIN_S)
    raise AssertionError


def _one_alone(whole: Copy, other: Copy, *, of_main: bool) -> Examination:
    tally = VerifiedRows()
    with _open(whole.path) as connection:
        main, mirror = (connection, None) if of_main else (None, connection)
        found = list(differences(main, mirror, tally))
    mending = planned_alone(whole, other, found, whole.count)
    why = f"{other.path}: {other.trouble or 'it is not there'}"
    return Examination(tally.rows, tuple(mending.repaired), tuple(mending.isolated()), (why,))


def _lacks(main: Copy, mirror: Copy, ahead: int) -> tuple[str, ...]:
    if not ahead:
        return ()
    return (f"{(mirror if ahead > 0 else main).path} lacks {abs(ahead)} transactions",)


def _ahead(counts: list[int | None]) -> int:
    first, second = counts
    return 0 if first is None or second is None else first - second


def _count(connection: sqlite3.Connection) -> int | None:
    try:
        return standing(connection)[1]
    except SuspectError:
        return None


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect_to_read(path)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute("BEGIN")
        yield connection


# --- Rows verified a few at a time, and the list of those that were kept aside.

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
