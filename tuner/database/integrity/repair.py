"""Repair of a database and its mirror: made, migrated, replaced, each row taken from where it is sound.

Whoever does it has the lock of the names alone, and the write locks of the files as far as they are whole. No
file is the source of a row that does not verify.
"""

import errno
import json
import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.database.files import (
    SuspectError,
    advice,
    connect,
    damaged,
    locked,
    mirror_of,
    new_file,
    now,
    remove,
    remove_side_files,
    side_file,
    sync,
    translated,
    use_log,
)
from tuner.database.integrity.backups import Source, backups, same_database
from tuner.database.integrity.checksums import (
    TABLES,
    Examination,
    IsolatedRow,
    Key,
    RowRepair,
    Table,
    is_sound,
    row_checksum,
)
from tuner.database.integrity.copy_state import Copy, CopyState, inspected
from tuner.database.integrity.row_comparison import (
    BadText,
    RowDifference,
    VerifiedRows,
    apply,
    differences,
    text_or_bytes,
)
from tuner.database.transaction import LARGEST_COUNT, Row, standing
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
    kept = _set_aside(path) if what else None
    remove_side_files(path)
    fresh.replace(path)
    sync(path.parent)
    if not what:
        return ""
    told = f"{path} was {what}" + (f"; it is kept as {kept.name}" if kept else "")
    _LOG.warning("%s", told)
    return told


def of_the_system(error: OSError, path: Path) -> StoreError:
    """The error of this package for one of the system's."""
    kind = StoreError
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        kind = StoreFullError
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        kind = StoreReadOnlyError
    return kind(f"{path}: {error.strerror}; {advice(path)}")


def _set_aside(path: Path) -> Path | None:
    """Give a file and its log another name; None where there is nothing in it."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    places = [side_file(path, f".damaged-{number}") for number in range(1, _KEPT + 1)]
    free = [place for place in places if not place.exists()]
    place = free[0] if free else min(places, key=lambda kept: kept.stat().st_mtime)
    remove(place)
    path.replace(place)
    with suppress(FileNotFoundError):
        side_file(path, "-wal").replace(side_file(place, "-wal"))
    return place


# --- Single rows put right in open files, and rows that are sound in none kept aside.

_NUMBERED = ("jobs", "job_events")  # tables whose numbers SQLite remembers (AUTOINCREMENT)
_LARGEST_NUMBER = 2**48
_UNSOUND = "its checksum is not that of its content"


@dataclass
class Mending:
    """Repair of a database and its mirror, planned or done.

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
    """Plan the repair of the differences between two files that SQLite can read.

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


def planned_alone(whole: Copy, other: Copy, found: Iterable[RowDifference], count: int | None) -> Mending:
    """Plan for the one file that SQLite can read: rows that the other, or a backup, still has.

    Args:
        whole: the one that can be read.
        other: the other one.
        found: rows that are not sound in the first.
        count: of its transactions; rows of later ones are new.
    """
    mending = Mending(lost={(each.table.name, each.key): (each.main, each.mirror) for each in found})
    of_mirror = whole.path == mirror_of(other.path)
    damaged_other = Source.of(other.path, "database" if of_mirror else "mirror")
    is_ours = other.form is CopyState.DAMAGED and same_database(whole.identity, damaged_other.identity)
    further = backups(other.path if of_mirror else whole.path, whole.identity)
    sources = [damaged_other, *further] if is_ours else further
    complete(mending, sources, above=count if is_ours else None)
    return mending


def complete(mending: Mending, sources: Iterable[Source], *, above: int | None = None) -> None:
    """Take rows that are lost from the first source that has them soundly.

    Args:
        mending: what is to be done.
        sources: files, the best first.
        above: rows of later transactions than this are taken too; None for no others.
    """
    for source in sources if mending.lost or above is not None else ():
        for table, row in source.rows():
            at = table.name, table.key(row)
            if not is_sound(table.name, row):
                continue
            known = mending.puts.get(at)
            if at in mending.lost:
                del mending.lost[at]
                mending.put(*at, row, source.name)
            elif above is not None and row[-2] > above and (known is None or known[-2] < row[-2]):
                mending.put(*at, row, "")


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
    """Return the content of the tables whose rows have no checksums."""
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


# --- Two files that SQLite cannot read: their rows as far as it can, and those of the newest backup.

_MAGIC = b"SQLite format 3\0"


@dataclass
class Gathered:
    """The rows of several files.

    Attributes:
        sources: those of the files that could be read.
        rows: how many sound ones they have.
        mending: rows that were damaged in one of them: taken from another, or lost.
    """

    sources: list[Source]
    rows: int
    mending: Mending


def gathered(main: Copy, mirror: Copy, keep: Callable[[Table, Row], None]) -> Gathered:
    """Pass on every sound row of two files that SQLite cannot read whole, and of the newest backup.

    Args:
        main: the database.
        mirror: its mirror.
        keep: is given the rows; one may come several times, and in several versions.

    Raises:
        StoreDamagedError: nothing of this program is in them.
    """
    sources = [
        Source.of(copy.path, name)
        for copy, name in ((main, "database"), (mirror, "mirror"))
        if copy.form is CopyState.DAMAGED
    ]
    sources = [each for each in sources if same_database(sources[0].identity, each.identity)]
    identity = next((each.identity for each in sources if each.identity), None)
    foreign = CopyState.FOREIGN in (main.form, mirror.form)
    further = [] if foreign else backups(main.path, identity)
    sources += further[:1]
    older = [each for each in further[1:] if same_database(each.identity, further[0].identity)]
    there: dict[tuple[str, Key], str] = {}
    unsound: dict[tuple[str, Key], dict[str, Row]] = {}
    for source in sources:
        for table, row in source.rows():
            at = table.name, table.key(row)
            if is_sound(table.name, row):
                there.setdefault(at, source.name)
                keep(table, row)
            else:
                unsound.setdefault(at, {})[source.name] = row
    if not there and not any(source.identity for source in sources) and not _were_ours(main, mirror):
        also = f", and its mirror: {mirror.trouble}" if mirror.trouble else ""
        why = f"{main.path}: {main.trouble or 'it is empty'}{also}; {advice(main.path)}"
        raise StoreDamagedError(why)
    mending = Mending(
        repaired=[RowRepair(*at, there[at]) for at in unsound if at in there],
        lost={
            at: (rows.get("database"), rows.get("mirror")) for at, rows in unsound.items() if at not in there
        },
    )
    complete(mending, older)
    given = set(there.values())
    read = [source for source in sources if source.identity or source.name in given]
    return Gathered(read, len(there), mending)


def _were_ours(main: Copy, mirror: Copy) -> bool:
    """True for a file and a mirror that begin as databases do: nobody else makes such pairs."""
    return all(copy.path.exists() and _begins_a_file(copy.path) for copy in (main, mirror))


def _begins_a_file(path: Path) -> bool:
    with path.open("rb") as file:
        return _MAGIC.startswith(file.read(len(_MAGIC)))


# --- The repair of a database and its mirror, in whatever state they are.

_TOLD = 20  # lines of the log about one examination
_TURNS = 3  # as found; after a file turned out worse than it seemed; the same of the other
_PAIRED = 2


def put_right(path: Path) -> Examination:
    """Make, bring up and heal a database and its mirror until both are whole and the same.

    Args:
        path: of the database.

    Raises:
        StoreBusyError: a process holds one of them for too long.
        StoreDamagedError: nothing of this program is in them; they are left as they are.
        StoreFullError: there is no room for what has to be rebuilt; the files are left as they are.
        StoreReadOnlyError: this user may not write here.
        StoreError: it was written by a newer version, or cannot be opened.
    """
    with locked(path, alone=True):
        try:
            found = _put_right(path)
        except sqlite3.Error as error:
            raise translated(error, path) from error
        except OSError as error:
            raise of_the_system(error, path) from error
        except (LookupError, TypeError, ValueError) as error:  # damage that nobody has thought of
            raise StoreDamagedError(f"{path} cannot be put right: {error!r}; {advice(path)}") from error
    lines = [*map(str, found.repaired), *map(str, found.isolated)]
    for line in lines[:_TOLD]:
        _LOG.warning("%s: %s", path, line)
    if len(lines) > _TOLD:
        _LOG.warning("%s: %d more rows were put right or kept aside", path, len(lines) - _TOLD)
    return found


def _put_right(path: Path) -> Examination:
    second = mirror_of(path)
    main, mirror = inspected(path), inspected(second)
    refuse_newer(main, mirror)
    main, mirror = brought_up(main, mirror)
    gone = not path.exists() and not second.exists()
    if gone:  # who removes both begins anew, whatever logs are left
        for each in (path, second):
            remove_side_files(each)
        main, mirror = inspected(path), inspected(second)
    if main.form is mirror.form is CopyState.MISSING and (gone or not backups(path, None)):
        _make(path)
        main = inspected(path)
    trouble: Exception | None = None
    for turn in range(_TURNS):
        try:
            return _healed(main, mirror)
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


def _healed(main: Copy, mirror: Copy) -> Examination:
    if main.whole and mirror.whole:
        if same_database(main.identity, mirror.identity):
            return _heal_both(main, mirror)
        mirror = replace(mirror, form=CopyState.FOREIGN, trouble="it was the mirror of another database")
    if main.whole:
        return _heal_other(main, mirror)
    if mirror.whole:
        return _heal_other(mirror, main)
    return _make_anew(main, mirror)


def _heal_both(main: Copy, mirror: Copy) -> Examination:
    """Both can be read: rows that differ or are not sound are replaced where they are."""
    for kind in ("DEFERRED", "IMMEDIATE"):  # nobody is kept from writing while nothing is wrong
        with _open(main.path, kind) as first, _open(mirror.path, kind) as second:
            tally = VerifiedRows()
            found = list(differences(first, second, tally))
            if not found and aside(first) == aside(second) and _stands(first):
                return Examination(tally.rows)
            if kind == "IMMEDIATE":
                return _mend_both((main, mirror), (first, second), found, tally)
    raise AssertionError


def _mend_both(
    copies: tuple[Copy, Copy],
    connections: tuple[sqlite3.Connection, sqlite3.Connection],
    found: list[RowDifference],
    tally: VerifiedRows,
) -> Examination:
    counts = [_count(connection) for connection in connections]
    known = [count for count in counts if count is not None]
    ahead = counts[0] - counts[1] if len(known) == _PAIRED else 0  # type: ignore[operator]
    mending = planned(found, ahead=ahead)
    identity = _identity(*copies)
    complete(mending, backups(copies[0].path, identity) if mending.lost else ())
    isolated = mending.isolated()
    for connection, copy in zip(connections, copies, strict=True):
        try:
            mend(connection, mending, isolated)
        except (SuspectError, sqlite3.IntegrityError) as error:  # noqa: PERF203 - two files
            raise SuspectError(str(error), copy.path) from error
    align(connections, identity, max(known, default=0) + bool(not ahead))
    for connection, copy in zip(connections, copies, strict=True):
        if next(differences(connection, None, VerifiedRows()), None) is not None:
            raise SuspectError("a damaged row stays where it is", copy.path)
    for connection in connections:
        connection.execute("COMMIT")
    name = copies[0 if ahead < 0 else 1].path
    lacked = [f"{name} lacked {abs(ahead)} transactions, which it has now"] if ahead < 0 else []
    for line in lacked:
        _LOG.warning("%s", line)
    return Examination(tally.rows, tuple(mending.repaired), tuple(isolated), tuple(lacked))


def _heal_other(whole: Copy, other: Copy) -> Examination:
    """One can be read: its rows, and what only the other or a backup still has, are in both afterwards."""
    mirrored = other.path == mirror_of(whole.path)
    with _open(whole.path, "IMMEDIATE") as connection:
        tally = VerifiedRows()
        main, mirror = (connection, None) if mirrored else (None, connection)
        found = list(differences(main, mirror, tally))
        count = _count(connection)
        mending = planned_alone(whole, other, found, count)
        isolated = mending.isolated()
        if mending.puts or mending.lost or not _stands(connection):
            mend(connection, mending, isolated)
            align([connection], _identity(whole), (count or 0) + 1)
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
        why = other.trouble or ("it was empty or gone" if other.form is CopyState.MISSING else "")
        if other.form is CopyState.EARLIER or (
            mirrored and not tally.rows and other.form is CopyState.MISSING
        ):
            why = ""
        told = rebuild(other.path, whole.path, why)
    rebuilt = (told,) if told else ()
    return Examination(tally.rows, tuple(mending.repaired), tuple(isolated), rebuilt)


def _make_anew(main: Copy, mirror: Copy) -> Examination:
    """Neither can be read whole: a new file is made of the rows that are left, and of the newest backup."""
    path = main.path
    fresh = new_file(path, path if path.exists() else mirror.path)
    with ExitStack() as held:
        for copy in (main, mirror):
            with suppress(sqlite3.Error):  # who writes to what is left of them is kept out where SQLite can
                held.enter_context(_open(copy.path, "IMMEDIATE"))
        try:
            rest = _fill(fresh, main, mirror)
            names = ", ".join(source.name for source in rest.sources) or "nothing"
            why = main.trouble or "it was empty or gone"
            told = put_in_place(fresh, path, f"made anew of what could be read ({names}): {why}")
        finally:
            remove(fresh)
    with _open(path, "IMMEDIATE"):
        also = rebuild(mirror.path, path, mirror.trouble or "it was empty or gone")
    return Examination(rest.rows, tuple(rest.mending.repaired), tuple(rest.mending.isolated()), (told, also))


def _fill(fresh: Path, main: Copy, mirror: Copy) -> Gathered:
    with closing(connect(fresh)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute("BEGIN IMMEDIATE")
        apply(connection)
        rest = gathered(main, mirror, lambda table, row: insert(connection, table, row))
        mend(connection, rest.mending, rest.mending.isolated())
        for source in rest.sources:
            connection.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", source.numbers())
        identity = next((source.identity for source in rest.sources if source.identity), None)
        align([connection], identity, max((source.count for source in rest.sources), default=0) + 1)
        connection.execute("COMMIT")
        use_log(fresh, connection)
    return rest


def _make(path: Path) -> None:
    if not path.exists():
        remove_side_files(path)  # of one that was there before
    with closing(connect(path, create=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        apply(connection)
        connection.execute("COMMIT")
        use_log(path, connection)


def refuse_newer(*copies: Copy) -> None:
    """Leave a file alone that a newer version has made.

    Raises:
        StoreError: one of them is.
    """
    for copy in copies:
        if copy.form is CopyState.NEWER:
            raise StoreError(
                f"{copy.path} was written by a newer tuner (migrations {copy.trouble});"
                " upgrade tuner or name another file with --database"
                " (of the daemon: a directory with --state)"
            )


@contextmanager
def _open(path: Path, kind: str) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute(f"BEGIN {kind}")
        yield connection


def _count(connection: sqlite3.Connection) -> int | None:
    try:
        return standing(connection)[1]
    except SuspectError:
        return None


def _stands(connection: sqlite3.Connection) -> bool:
    return _count(connection) is not None


def _identity(*copies: Copy) -> str | None:
    """The identity that a database has, of those that its files have."""
    known = [copy.identity for copy in copies if copy.identity is not None]
    return next((identity for identity in known if len(identity) == 32), None)  # noqa: PLR2004 - hexadecimal
