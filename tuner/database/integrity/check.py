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
from tuner.database.integrity.checksums import TABLES, Examination, IsolatedRow, Position, verified
from tuner.database.integrity.copy_state import (
    OUR_TABLES,
    Copy,
    CopyState,
    VerifiedRows,
    compared,
    differences,
    inspected,
    page_of,
    refuse_newer,
    text_or_bytes,
)
from tuner.database.integrity.repair_plan import (
    backup_lead,
    backups,
    complete,
    planned,
    planned_alone,
    salvage,
    same_database,
)
from tuner.database.pair import Pair
from tuner.database.transaction import Transaction, last_transaction, standing
from tuner.model.errors import StoreError

_TURNS = 50  # while another process writes, until both files are met at one transaction
_LOOK_AGAIN_S = 0.01


def check_copies(path: Path) -> Examination:
    """Examine the database and its mirror without changing anything; other processes may go on.

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
    plan, _, rows = salvage(main, mirror, lambda *_: None)
    whys = tuple(f"{copy.path}: {copy.trouble or 'it is not there'}" for copy in (main, mirror))
    return Examination(rows, tuple(plan.repaired), tuple(plan.isolated()), whys)


def _compared(main: Copy, mirror: Copy) -> Examination:
    for turn in range(_TURNS):
        further = backups(main.path, main.identity)
        with _open(main.path) as first, _open(mirror.path) as second:
            counts = [last_transaction(connection) for connection in (first, second)]
            if counts[0] != counts[1] and turn < _TURNS - 1:
                time.sleep(_LOOK_AGAIN_S)
                continue
            counted = [count for count in counts if count is not None]
            ahead = counted[0] - counted[1] if len(counted) == len(counts) else 0
            tally = VerifiedRows()
            plan = planned(differences(first, second, tally), ahead=ahead)
            complete(plan, further)
            lead = backup_lead(first if ahead >= 0 else second, plan, further, max(counted, default=None))
            lines = [lead.line(main.path, repaired=False)] if lead is not None else []
            if ahead:
                lines.append(f"{(mirror if ahead > 0 else main).path} lacks {abs(ahead)} transactions")
            return Examination(tally.rows, tuple(plan.repaired), tuple(plan.isolated()), tuple(lines))
    raise AssertionError


def _one_alone(whole: Copy, other: Copy, *, of_main: bool) -> Examination:
    path, tally = (whole if of_main else other).path, VerifiedRows()
    further = backups(path, whole.identity)
    with _open(whole.path) as connection:
        main, mirror = (connection, None) if of_main else (None, connection)
        unsound = list(differences(main, mirror, tally))
        plan = planned_alone(whole, other, unsound, whole.count, further)
        lead = backup_lead(connection, plan, further, whole.count)
    lines = [f"{other.path}: {other.trouble or 'it is not there'}"]
    lines += [lead.line(path, repaired=False)] if lead is not None else []
    return Examination(tally.rows, tuple(plan.repaired), tuple(plan.isolated()), tuple(lines))


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect_to_read(path)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute("BEGIN")
        yield connection


# --- Both files by a quick look, as for the doctor: pages and counts, but no row.


def check_database(path: Path) -> int:
    """Read all pages of a database and return how many runs it holds.

    Args:
        path: an existing file.

    Raises:
        StoreError: it is none of this program's, damaged, or not readable.
    """
    try:
        with closing(connect_to_read(path)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if verdict != "ok":
                raise StoreError(f"{path} is damaged: {verdict}")
            if not tables >= OUR_TABLES:
                raise StoreError(f"{path} is no database of tuner")
            return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def check_mirror(path: Path) -> str:
    """Read all pages of the mirror of a whole database and say what is wrong with it; empty if nothing is."""
    mirror = mirror_of(path)
    if not mirror.exists():
        return f"{mirror} is not there"
    try:
        check_database(mirror)
        with closing(connect_to_read(path)) as first, closing(connect_to_read(mirror)) as second:
            # that of the mirror is asked for later, as a transaction is in the database first
            (identity, count), (of, followed) = standing(first), standing(second)
    except (StoreError, sqlite3.Error) as error:
        return str(error)
    except SuspectError as error:
        return f"{path} or {mirror}: {error}"
    if of != identity:
        return f"{mirror} is that of another database"
    return f"{mirror} lacks {count - followed} transactions" if followed < count else ""


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
    remaining, tally = max(most_rows, 1), VerifiedRows()
    with pair.snapshot() as view:
        for name in names[begin:]:
            table, key = TABLES[name], after.key if after is not None and name == after.table else ()
            pages = [page_of(connection, table, key, remaining) for connection in view.connections]
            for difference in compared(table, iter(pages[0]), iter(pages[-1]), tally):
                raise SuspectError(f"{name} {difference.key} is not sound, or differs in the mirror")
            remaining -= len(pages[0])
            if remaining <= 0:
                return Position(name, table.key(pages[0][-1])), Examination(tally.rows)
    return None, Examination(tally.rows)


def isolated_rows(view: Transaction) -> list[IsolatedRow]:
    """The rows that were kept aside, oldest first."""
    return [
        IsolatedRow(number, table, tuple(json.loads(key)), main, mirror, why, found_at)
        for number, table, key, main, mirror, why, found_at in view.rows(_ISOLATED)
    ]
