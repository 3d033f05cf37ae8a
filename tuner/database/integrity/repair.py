"""Repair of a database and its mirror: made, migrated, replaced, each row taken from where it is sound.

Whoever does it has the lock of the names alone, and the write locks of the files as far as they are whole. No
file is the source of a row that does not verify.
"""

import errno
import json
import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tuner.database.files import (
    SuspectError,
    advice,
    connect,
    damaged,
    locked,
    mirror_of,
    new_file,
    remove,
    remove_side_files,
    side_file,
    sync,
    translated,
    use_log,
)
from tuner.database.integrity.checksums import (
    TABLES,
    Examination,
    IsolatedRow,
    Key,
    Table,
    is_sound,
    quoted,
    row_checksum,
)
from tuner.database.integrity.copy_state import (
    BadText,
    Copy,
    CopyState,
    RowDifference,
    VerifiedRows,
    apply,
    differences,
    inspected,
    refuse_newer,
    text_or_bytes,
)
from tuner.database.integrity.repair_plan import (
    RepairPlan,
    Source,
    backup_lead,
    backups,
    complete,
    highest_version,
    planned,
    planned_alone,
    salvage,
    same_database,
)
from tuner.database.transaction import LARGEST_COUNT, Row, last_transaction
from tuner.model.errors import StoreDamagedError, StoreError, StoreFullError, StoreReadOnlyError
from tuner.model.jobs import JobState
from tuner.model.records import RunStatus
from tuner.model.trial import Status

# --- Files that take the place of damaged ones: each is there whole or not at all.
#
# A file is made under another name and then gets that of the old one. Connections that are open to the old
# one notice (``pair``); SQLite leaves the log of a file alone that has another's name.

_LOG = logging.getLogger(__name__)
_KEPT = 3  # damaged files of one name, the oldest going first: a disk must not fill with them


def rebuild(path: Path, source: Path, why: str) -> str:
    """Put a copy of a whole file, which the caller holds, in the place of another.

    Args:
        path: the file to replace.
        source: the whole one.
        why: what was wrong, for people; empty where the file is nothing that anybody could miss.

    Returns:
        What was done, for people; empty where nobody needs to know.

    Raises:
        SuspectError: the source is not whole.
    """
    fresh = new_file(path, source)
    try:
        with closing(connect(source)) as reading, closing(connect(fresh)) as writing:
            reading.backup(writing)
        copied = inspected(fresh)
        if not copied.whole and copied.changes == 0:  # the source was damaged since it was looked at
            raise SuspectError(f"{source.name} was damaged while it was copied", source)
        return put_in_place(fresh, path, f"rebuilt from {source.name}: {why}" if why else "")
    finally:
        remove(fresh)


def put_in_place(fresh: Path, path: Path, what: str) -> str:
    """Give a file the name of another, which is kept under a third name where something was wrong with it.

    Args:
        fresh: the new one, closed.
        path: the name.
        what: was done and why, for people; empty where the old one is nothing that anybody could miss.

    Returns:
        The same with the names; it is logged, too.
    """
    aside = _set_aside(path) if what else None
    remove_side_files(path)
    fresh.replace(path)
    sync(path.parent)
    if not what:
        return ""
    line = f"{path} was {what}" + (f"; it is kept as {aside.name}" if aside else "")
    _LOG.warning("%s", line)
    return line


def _set_aside(path: Path) -> Path | None:
    """Give a file and its log another name; None where there is nothing in it."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    paths = [side_file(path, f".damaged-{number}") for number in range(1, _KEPT + 1)]
    free = [path_aside for path_aside in paths if not path_aside.exists()]
    path_aside = free[0] if free else min(paths, key=lambda each: each.stat().st_mtime)
    remove(path_aside)
    path.replace(path_aside)
    with suppress(FileNotFoundError):
        side_file(path, "-wal").replace(side_file(path_aside, "-wal"))
    return path_aside


# --- Single rows put right in open files, and rows that are sound in none kept aside.

_NUMBERED = ("jobs", "job_events")  # tables whose numbers SQLite remembers (AUTOINCREMENT)
_LARGEST_NUMBER = 2**48


def carry_out(connection: sqlite3.Connection, plan: RepairPlan, isolated: Sequence[IsolatedRow]) -> None:
    """Write rows to a file as they are, and keep the lost ones aside, in the caller's transaction.

    Raises:
        SuspectError: the file does not do what it is told.
    """
    for (name, key), row in plan.puts.items():
        _remove(connection, TABLES[name], key)
        if row is not None:
            insert(connection, TABLES[name], row)
    for name, key in plan.lost:
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
    keys = quoted(table.key_columns)
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
    highest = highest_version(first)
    numbers = {table: max(_numbers(connection, table) for connection in connections) for table in _NUMBERED}
    applied = first.execute("SELECT name, applied FROM migrations ORDER BY rowid").fetchall()
    identities = [row[0] for row in first.execute("SELECT identity FROM writes") if isinstance(row[0], str)]
    identity = identity or next(iter(identities), secrets.token_hex(16))
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


def bookkeeping(connection: sqlite3.Connection) -> tuple[list[Row], ...]:
    """Return the content of the tables whose rows have no checksums."""
    return tuple(
        connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()  # noqa: S608 - named here
        for table in ("writes", "sqlite_sequence", "migrations")
    )


def _numbers(connection: sqlite3.Connection, table: str) -> int:
    """The highest number that a table has given, as far as can be told."""
    statement = "SELECT seq FROM sqlite_sequence WHERE name = ?"
    numbers = [number for (number,) in connection.execute(statement, (table,)) if _is_number(number)]
    (there,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()  # noqa: S608
    isolated = connection.execute(
        'SELECT max(CAST(substr(key, 2) AS INTEGER)) FROM isolated WHERE "of" = ?', (table,)
    )
    naming = ("job_events", "runs") if table == "jobs" else ()
    others = [connection.execute(f"SELECT max(job_id) FROM {other}").fetchone()[0] for other in naming]  # noqa: S608
    highest: int = max(
        [there, *numbers, *(other for other in (*isolated.fetchone(), *others) if _is_number(other))]
    )
    return highest


def _is_number(value: object) -> bool:
    return type(value) is int and 0 < value < min(_LARGEST_NUMBER, LARGEST_COUNT)


def _remove(connection: sqlite3.Connection, table: Table, key: Key) -> None:
    connection.execute(f"DELETE FROM main.{table.name} WHERE {table.where_key}", key)  # noqa: S608


# --- Files of earlier versions: brought up to the tables of this one, with the better row of both.
#
# Where the database and its mirror differ, the row whose checksum is right is kept; of files from before
# checksums, the one that can be understood; and that of the database where it is so of both.

_DOCUMENTS = {"conditions", "answer", "trial", "measurement", "confirmed", "ordered", "data", "document"}
_STATES: dict[tuple[str, str], Callable[[str], object]] = {
    ("runs", "status"): RunStatus,
    ("jobs", "state"): JobState,
    ("trials", "status"): Status,
}


def migrated(main: Copy, mirror: Copy) -> tuple[Copy, Copy]:
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
    _migrate(main, mirror)
    if mirror.form is CopyState.MISSING or (mirror.form is CopyState.EARLIER and _same(main, mirror)):
        mirror = replace(mirror, form=CopyState.EARLIER)  # nothing that anybody could miss
    elif mirror.form in (CopyState.WHOLE, CopyState.EARLIER):
        mirror = replace(mirror, form=CopyState.FOREIGN, trouble="it was not at the same transaction")
    return inspected(main.path), mirror


def _migrate(main: Copy, mirror: Copy) -> None:
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
        return is_sound(table, [row[position] for position in names])
    return all(_makes_sense(table, column, value) for column, value in zip(columns, row, strict=True))


def _makes_sense(table: str, column: str, value: object) -> bool:
    if isinstance(value, BadText):
        return False
    try:
        if column in _DOCUMENTS:
            return value is None or isinstance(json.loads(str(value)), dict)
        states = _STATES.get((table, column))
        return states is None or bool(states(str(value)) is not None)
    except ValueError:
        return False


def _same(main: Copy, mirror: Copy) -> bool:
    return (main.changes, main.identity, main.count) == (mirror.changes, mirror.identity, mirror.count)


def _knows_more(mirror: Copy, main: Copy) -> bool:
    return mirror.identity == main.identity and (mirror.count or 0) > (main.count or 0)


# --- The repair of a database and its mirror, in whatever state they are.

_TOLD = 20  # lines of the log about one examination
_TURNS = 3  # as found; after a file turned out worse than it seemed; the same of the other


def repair(path: Path) -> Examination:
    """Make, migrate and repair a database and its mirror until both are whole and the same.

    Raises:
        StoreBusyError: a process holds one of them for too long.
        StoreDamagedError: nothing of this program is in them; they are left as they are.
        StoreFullError: there is no room for what has to be rebuilt; the files are left as they are.
        StoreReadOnlyError: this user may not write here.
        StoreError: it was written by a newer version, or cannot be opened.
    """
    with locked(path, alone=True):
        try:
            examination = _repair(path)
        except sqlite3.Error as error:
            raise translated(error, path) from error
        except OSError as error:
            kind = StoreError
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                kind = StoreFullError
            elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                kind = StoreReadOnlyError
            raise kind(f"{path}: {error.strerror}; {advice(path)}") from error
        except (LookupError, TypeError, ValueError) as error:  # damage that nobody has thought of
            raise StoreDamagedError(f"{path} cannot be put right: {error!r}; {advice(path)}") from error
    lines = [*map(str, examination.repaired), *map(str, examination.isolated)]
    for line in lines[:_TOLD]:
        _LOG.warning("%s: %s", path, line)
    if len(lines) > _TOLD:
        _LOG.warning("%s: %d more rows were put right or kept aside", path, len(lines) - _TOLD)
    return examination


def _repair(path: Path) -> Examination:
    second = mirror_of(path)
    main, mirror = inspected(path), inspected(second)
    refuse_newer(main, mirror)
    main, mirror = migrated(main, mirror)
    gone = not path.exists() and not second.exists()
    if gone:  # who removes both begins anew, whatever logs are left
        for each in (path, second):
            remove_side_files(each)
        main, mirror = inspected(path), inspected(second)
    if main.form is mirror.form is CopyState.MISSING and (gone or not backups(path, None)):
        _create(path)
        main = inspected(path)
    trouble: Exception | None = None
    for turn in range(_TURNS):
        try:
            if main.whole and mirror.whole:
                if same_database(main.identity, mirror.identity):
                    return _repair_both(main, mirror)
                why = "it was the mirror of another database"
                mirror = replace(mirror, form=CopyState.FOREIGN, trouble=why)
            if main.whole or mirror.whole:
                return _rebuild_other(*((main, mirror) if main.whole else (mirror, main)))
            return _rebuild_both(main, mirror)
        except (SuspectError, sqlite3.Error, UnicodeDecodeError) as error:  # noqa: PERF203
            if isinstance(error, sqlite3.Error) and not damaged(error):
                raise
            trouble = error  # SQLite read all of the file, and it is not as it seemed
            distrusted = getattr(error, "distrusted", None) or (path if turn else second)
            main, mirror = inspected(path), inspected(second)
            if distrusted == path:
                main = replace(main, form=CopyState.DAMAGED, trouble=main.trouble or str(error))
            else:
                mirror = replace(mirror, form=CopyState.DAMAGED, trouble=mirror.trouble or str(error))
    raise StoreDamagedError(f"{path}: {trouble}; {advice(path)}")


def _repair_both(main: Copy, mirror: Copy) -> Examination:
    """Both can be read: rows that differ or are not sound are replaced where they are."""
    further = backups(main.path, _identity(main, mirror))
    for kind in ("DEFERRED", "IMMEDIATE"):  # nobody is kept from writing while nothing is wrong
        with _open(main.path, kind) as first, _open(mirror.path, kind) as second:
            tally = VerifiedRows()
            differing = list(differences(first, second, tally))
            count = last_transaction(first)
            if (
                not differing
                and bookkeeping(first) == bookkeeping(second)
                and count is not None
                and backup_lead(first, RepairPlan(), further, count) is None
            ):
                return Examination(tally.rows)
            if kind == "IMMEDIATE":
                return _write_repairs((main, mirror), (first, second), differing, tally, further)
    raise AssertionError


def _write_repairs(
    copies: tuple[Copy, Copy],
    connections: tuple[sqlite3.Connection, sqlite3.Connection],
    differing: list[RowDifference],
    tally: VerifiedRows,
    further: Sequence[Source],
) -> Examination:
    counts = [last_transaction(connection) for connection in connections]
    counted = [count for count in counts if count is not None]
    ahead = counted[0] - counted[1] if len(counted) == len(counts) else 0
    plan = planned(differing, ahead=ahead)
    complete(plan, further)
    lead = backup_lead(connections[0 if ahead >= 0 else 1], plan, further, max(counted, default=None))
    isolated = plan.isolated()
    for connection, copy in zip(connections, copies, strict=True):
        try:
            carry_out(connection, plan, isolated)
        except (SuspectError, sqlite3.IntegrityError) as error:  # noqa: PERF203 - two files
            raise SuspectError(str(error), copy.path) from error
    reached = max(counted, default=0) + bool(not ahead)
    align(connections, _identity(*copies), max(reached, lead.last if lead is not None else 0))
    for connection, copy in zip(connections, copies, strict=True):
        if next(differences(connection, None, VerifiedRows()), None) is not None:
            raise SuspectError("a damaged row stays where it is", copy.path)
    for connection in connections:
        connection.execute("COMMIT")
    name = copies[0 if ahead < 0 else 1].path
    lacked = [f"{name} lacked {abs(ahead)} transactions, which it has now"] if ahead < 0 else []
    lacked += [lead.line(copies[0].path, repaired=True)] if lead is not None else []
    for line in lacked:
        _LOG.warning("%s", line)
    return Examination(tally.rows, tuple(plan.repaired), tuple(isolated), tuple(lacked))


def _rebuild_other(whole: Copy, other: Copy) -> Examination:
    """One can be read: its rows, and what only the other or a backup still has, are in both afterwards."""
    mirrored = other.path == mirror_of(whole.path)
    path = whole.path if mirrored else other.path
    further = backups(path, whole.identity)
    with _open(whole.path, "IMMEDIATE") as connection:
        tally = VerifiedRows()
        main, mirror = (connection, None) if mirrored else (None, connection)
        unsound = list(differences(main, mirror, tally))
        count = last_transaction(connection)
        plan = planned_alone(whole, other, unsound, count, further)
        lead = backup_lead(connection, plan, further, count)
        isolated = plan.isolated()
        if plan.puts or plan.lost or lead is not None or count is None:
            carry_out(connection, plan, isolated)
            reached = (count or 0) + 1
            align([connection], _identity(whole), max(reached, lead.last if lead is not None else 0))
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
        why = other.trouble or ("it was empty or gone" if other.form is CopyState.MISSING else "")
        if other.form is CopyState.EARLIER or (
            mirrored and not tally.rows and other.form is CopyState.MISSING
        ):
            why = ""
        lines = [rebuild(other.path, whole.path, why)]
    if lead is not None:
        lines.append(lead.line(path, repaired=True))
        _LOG.warning("%s", lines[-1])
    return Examination(tally.rows, tuple(plan.repaired), tuple(isolated), tuple(filter(None, lines)))


def _rebuild_both(main: Copy, mirror: Copy) -> Examination:
    """Neither can be read whole: a new file is made of the rows that are left, and of the newest backup."""
    path = main.path
    fresh = new_file(path, path if path.exists() else mirror.path)
    with ExitStack() as locks:
        for copy in (main, mirror):
            with suppress(sqlite3.Error):  # who writes to what is left of them is kept out where SQLite can
                locks.enter_context(_open(copy.path, "IMMEDIATE"))
        try:
            plan, sources, rows = _fill(fresh, main, mirror)
            names = ", ".join(source.name for source in sources) or "nothing"
            why = main.trouble or "it was empty or gone"
            rebuilt = put_in_place(fresh, path, f"made anew of what could be read ({names}): {why}")
        finally:
            remove(fresh)
    with _open(path, "IMMEDIATE"):
        also = rebuild(mirror.path, path, mirror.trouble or "it was empty or gone")
    return Examination(rows, tuple(plan.repaired), tuple(plan.isolated()), (rebuilt, also))


def _fill(fresh: Path, main: Copy, mirror: Copy) -> tuple[RepairPlan, list[Source], int]:
    """Make a file of what ``salvage`` gives, and return that."""
    with closing(connect(fresh)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute("BEGIN IMMEDIATE")
        apply(connection)
        salvaged = salvage(main, mirror, lambda table, row: insert(connection, table, row))
        plan, sources, _ = salvaged
        carry_out(connection, plan, plan.isolated())
        for source in sources:
            connection.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", source.numbers())
        identity = next((source.identity for source in sources if source.identity), None)
        align([connection], identity, max((source.count for source in sources), default=0) + 1)
        connection.execute("COMMIT")
        use_log(fresh, connection)
    return salvaged


def _create(path: Path) -> None:
    if not path.exists():
        remove_side_files(path)  # of one that was there before
    with closing(connect(path, create=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        apply(connection)
        connection.execute("COMMIT")
        use_log(path, connection)


@contextmanager
def _open(path: Path, kind: str) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute(f"BEGIN {kind}")
        yield connection


def _identity(*copies: Copy) -> str | None:
    """The identity that a database has, of those that its files have."""
    identities = [copy.identity for copy in copies if copy.identity is not None]
    return next((identity for identity in identities if len(identity) == 32), None)  # noqa: PLR2004 - hexadecimal
