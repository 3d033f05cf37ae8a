"""Files of earlier versions: brought up to the tables of this one, with the better row of both.

Where the database and its mirror differ, the row whose checksum is right is kept; of files from before
checksums, the one that can be understood; and that of the database where it is so of both.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from tuner.database.files import connect
from tuner.database.integrity.checksums import TABLES, is_sound
from tuner.database.integrity.copy_state import Copy, CopyState, inspected
from tuner.database.integrity.pages import BadText, text_or_bytes
from tuner.database.integrity.replacement import rebuild
from tuner.database.integrity.schema import apply
from tuner.database.transaction import Row
from tuner.model.jobs import JobState
from tuner.model.records import RunStatus
from tuner.model.trial import Status

_DOCUMENTS = {"conditions", "answer", "trial", "measurement", "confirmed", "ordered", "data", "document"}
_STATES: dict[tuple[str, str], Callable[[str], object]] = {
    ("runs", "status"): RunStatus,
    ("jobs", "state"): JobState,
    ("trials", "status"): Status,
}


def brought_up(main: Copy, mirror: Copy) -> tuple[Copy, Copy]:
    """Both files, the database with the tables of this version if it is of an earlier one.

    The mirror of a database that was brought up is no source of anything any more, and is to be rebuilt.
    """
    if mirror.form is CopyState.EARLIER and (main.form is not CopyState.EARLIER or _knows_more(mirror, main)):
        if main.whole:
            return main, mirror
        why = main.trouble or (
            "it lacked transactions" if main.form is CopyState.EARLIER else "it was empty or gone"
        )
        rebuild(main.path, mirror.path, why)
        main = inspected(main.path)
    if main.form is not CopyState.EARLIER:
        return main, mirror
    if mirror.whole and _knows_more(mirror, main) and mirror.identity == main.identity:
        return replace(main, form=CopyState.MISSING), mirror
    _bring_up(main, mirror)
    if mirror.form is CopyState.MISSING or (mirror.form is CopyState.EARLIER and _same(main, mirror)):
        mirror = replace(mirror, form=CopyState.EARLIER)  # nothing that anybody could miss
    elif mirror.form in (CopyState.WHOLE, CopyState.EARLIER):
        mirror = replace(mirror, form=CopyState.FOREIGN, trouble="it was not at the same transaction")
    return inspected(main.path), mirror


def _bring_up(main: Copy, mirror: Copy) -> None:
    with closing(connect(main.path)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute("BEGIN IMMEDIATE")
        if mirror.form is CopyState.EARLIER and _same(main, mirror):
            with closing(connect(mirror.path)) as second:
                second.text_factory = text_or_bytes
                for table in TABLES:
                    _choose(table, connection, second)
        apply(connection, done=main.changes)
        connection.execute("COMMIT")


def _choose(table: str, main: sqlite3.Connection, mirror: sqlite3.Connection) -> None:
    """Take rows of a table from the mirror that only it has so that they can be understood."""
    columns = [name for _, name, *_ in main.execute(f"PRAGMA table_info({table})")]
    if not columns:
        return
    statement = f"SELECT * FROM main.{table}"  # noqa: S608 - a name of ours
    own_statement = f"{statement} WHERE {TABLES[table].where_key}"
    for row in mirror.execute(statement):
        own = main.execute(own_statement, row[: TABLES[table].keys]).fetchone()
        if own == row or (own is not None and _good(table, columns, own)):
            continue
        if _good(table, columns, row):
            marks = ", ".join("?" * len(row))
            main.execute(f"INSERT OR REPLACE INTO main.{table} VALUES ({marks})", row)  # noqa: S608


def _good(table: str, columns: list[str], row: Row) -> bool:
    """True where a row is what was written, as far as its version can tell."""
    if "checksum" in columns:
        names = [columns.index(name) for name in TABLES[table].all_columns]
        return is_sound(table, [row[place] for place in names])
    return all(_makes_sense(table, column, value) for column, value in zip(columns, row, strict=True))


def _makes_sense(table: str, column: str, value: object) -> bool:
    if isinstance(value, BadText):
        return False
    try:
        if column in _DOCUMENTS:
            return value is None or isinstance(json.loads(str(value)), dict)
        known = _STATES.get((table, column))
        return known is None or bool(known(str(value)) is not None)
    except ValueError:
        return False


def _same(main: Copy, mirror: Copy) -> bool:
    return (main.changes, main.identity, main.count) == (mirror.changes, mirror.identity, mirror.count)


def _knows_more(mirror: Copy, main: Copy) -> bool:
    return mirror.identity == main.identity and (mirror.count or 0) > (main.count or 0)
