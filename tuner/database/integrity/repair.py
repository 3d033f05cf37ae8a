"""Puts a database and its mirror right: makes them, brings them up, heals each row from where it is sound.

Whoever does it has the lock of the names alone, and the write locks of the files as far as they are whole. No
file is the source of a row that does not verify.
"""

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from tuner.database.faults import SuspectError, advice, damaged, mirror_of, translated
from tuner.database.file_systems import use_log
from tuner.database.files import connect, locked
from tuner.database.integrity.checksums import TABLES
from tuner.database.integrity.copy_state import Copy, CopyState, inspected
from tuner.database.integrity.examination import Examination, RowRepair
from tuner.database.integrity.harvest import Harvest, NeededRows, is_there, same_database
from tuner.database.integrity.pages import begins_a_file, text_or_bytes
from tuner.database.integrity.replacement import (
    new_file,
    of_the_system,
    put_in_place,
    rebuild,
    remove,
    remove_side_files,
)
from tuner.database.integrity.row_repair import Mending, align, aside, insert, mend, planned
from tuner.database.integrity.rows import RowDifference, VerifiedRows, differences
from tuner.database.integrity.schema import apply
from tuner.database.integrity.upgrade import brought_up
from tuner.database.transaction import standing
from tuner.model.errors import StoreDamagedError, StoreError

_LOG = logging.getLogger(__name__)
_TOLD = 20  # lines of the log about one examination
_TURNS = 3  # as found; after a file turned out worse than it seemed; the same of the other
_PAIRED = 2


def put_right(path: Path, logs: Mapping[Path, bytes] = MappingProxyType({})) -> Examination:
    """Make, bring up and heal a database and its mirror until both are whole and the same.

    Args:
        path: of the database.
        logs: write-ahead logs of both files that were read before SQLite closed these.

    Raises:
        StoreBusyError: a process holds one of them for too long.
        StoreDamagedError: nothing of this program is in them; they are left as they are.
        StoreFullError: there is no room for what has to be rebuilt; the files are left as they are.
        StoreReadOnlyError: this user may not write here.
        StoreError: it was written by a newer version, or cannot be opened.
    """
    with locked(path, alone=True):
        try:
            found = _put_right(path, logs)
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


def _put_right(path: Path, logs: Mapping[Path, bytes]) -> Examination:
    second = mirror_of(path)
    main, mirror = inspected(path, logs.get(path)), inspected(second, logs.get(second))
    refuse_newer(main, mirror)
    main, mirror = brought_up(main, mirror)
    if not path.exists() and not second.exists():  # who removes both begins anew, whatever logs are left
        for each in (path, second):
            remove_side_files(each)
        main, mirror = inspected(path), inspected(second)
    if main.form is mirror.form is CopyState.MISSING:
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
    return _heal_from_pages(main, mirror)


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
    isolated = mending.isolated()
    for connection, copy in zip(connections, copies, strict=True):
        try:
            mend(connection, mending, isolated)
        except (SuspectError, sqlite3.IntegrityError) as error:  # noqa: PERF203 - two files
            raise SuspectError(str(error), copy.path) from error
    align(connections, _identity(*copies), max(known, default=0) + bool(not ahead))
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
    """One can be read: its rows, and what only the pages of the other hold, are in both afterwards."""
    mirrored = other.path == mirror_of(whole.path)
    with _open(whole.path, "IMMEDIATE") as connection:
        tally = VerifiedRows()
        main, mirror = (connection, None) if mirrored else (None, connection)
        found = list(differences(main, mirror, tally))
        mending, count = Mending(), _count(connection)
        needed = {(each.table.name, each.key): each for each in found}
        beside = NeededRows(needed, above=count)
        harvest = Harvest(other, beside.keep)
        ours = same_database(whole.identity, harvest.identity)
        for (name, key), row in beside.rows.items() if ours else ():
            mending.put(name, key, row, "salvage" if (name, key) in needed else "")
        for (name, key), each in needed.items():
            if (name, key) not in mending.puts:
                raw = harvest.damaged.get((name, key)) if ours else None
                mending.lost[name, key] = (each.main, raw) if mirrored else (raw, each.mirror)
        isolated = mending.isolated()
        if mending.puts or mending.lost or not _stands(connection):
            mend(connection, mending, isolated)
            align([connection], _identity(whole) or (harvest.identity if ours else None), (count or 0) + 1)
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


def _heal_from_pages(main: Copy, mirror: Copy) -> Examination:
    """Neither can be read: a new file is made of the rows on the pages of both."""
    path = main.path
    harvests = [Harvest(copy, lambda *_: None) for copy in (main, mirror)]
    if not any(harvest.found or harvest.identity for harvest in harvests) and not were_ours(main, mirror):
        raise nothing_of_ours(main, mirror)
    copies = [main, mirror]
    if not same_database(*(harvest.identity for harvest in harvests)):
        copies = [main] if harvests[0].found else [mirror]
    fresh = new_file(path, path if path.exists() else mirror.path)
    with ExitStack() as held:
        for copy in (main, mirror):
            with suppress(sqlite3.Error):  # who writes to what is left of them is kept out where SQLite can
                held.enter_context(_open(copy.path, "IMMEDIATE"))
        try:
            mending, rows = _fill(fresh, copies)
            told = put_in_place(fresh, path, f"made anew of the rows on the pages of both: {main.trouble}")
        finally:
            remove(fresh)
    with _open(path, "IMMEDIATE"):
        also = rebuild(mirror.path, path, mirror.trouble or "it was empty or gone")
    return Examination(rows, tuple(mending.repaired), tuple(mending.isolated()), (told, also))


def _fill(fresh: Path, copies: list[Copy]) -> tuple[Mending, int]:
    mending = Mending()
    with closing(connect(fresh)) as connection:
        connection.text_factory = text_or_bytes
        connection.execute("BEGIN IMMEDIATE")
        apply(connection)
        pour = lambda table, _, row: insert(connection, TABLES[table], row)  # noqa: E731
        harvests = [Harvest(copy, pour) for copy in copies]
        raw = [harvest.damaged for harvest in harvests] + [{}]
        for name, key in {**raw[0], **raw[1]}:
            if is_there(connection, name, key):
                mending.repaired.append(RowRepair(name, key, "salvage"))
            else:
                mending.lost[name, key] = raw[0].get((name, key)), raw[1].get((name, key))
        mend(connection, Mending(), mending.isolated())
        for harvest in harvests:
            for item in harvest.sequences.items():
                connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", item)
        identity = next((harvest.identity for harvest in harvests if harvest.identity), None)
        align([connection], identity, max(harvest.count for harvest in harvests) + 1)
        connection.execute("COMMIT")
        use_log(fresh, connection)
        rows = sum(harvest.found for harvest in harvests)
    return mending, rows


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


def were_ours(main: Copy, mirror: Copy) -> bool:
    """True for a file and a mirror that begin as databases do: nobody else makes such pairs."""
    return all(copy.path.exists() and begins_a_file(copy.path) for copy in (main, mirror))


def nothing_of_ours(main: Copy, mirror: Copy) -> StoreError:
    """The error of two files without a row of this program."""
    path = main.path
    also = f", and its mirror: {mirror.trouble}" if mirror.trouble else ""
    return StoreDamagedError(f"{path}: {main.trouble or 'it is empty'}{also}; {advice(path)}")


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
