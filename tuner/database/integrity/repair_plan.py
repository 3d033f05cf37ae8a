"""Repairs as they are planned: the row that each file gets, from the other or a backup, and lost rows.

Backups are dated files beside a database. A file that SQLite cannot check may still give most of its tables.
Each is read from both ends up to the first page that is damaged. Triggers and views of another hand are not
read, and work is bounded by the size of the file.
"""

import glob
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.database.files import SuspectError, advice, connect_to_read, mirror_of, now
from tuner.database.integrity.checksums import TABLES, IsolatedRow, Key, RowRepair, Table, is_sound, quoted
from tuner.database.integrity.copy_state import Copy, CopyState, RowDifference, text_or_bytes
from tuner.database.transaction import Row, standing
from tuner.model.errors import StoreDamagedError

# --- Further sources of rows: dated backups, and what SQLite still reads of a damaged file.

_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # messages of SQLite have bytes of the file in them
_STEPS = 10_000  # of SQLite's virtual machine between two looks at how many there were
_STEPS_A_BYTE = 4  # a row of ours takes fewer
_ALIKE = 8  # digits of 32 that damage may change; those of two databases differ in thirty
_DIGITS = 32


def same_database(first: str | None, second: str | None) -> bool:
    """Return True if two identities may be of one database: one is damaged, or not known."""
    if first is None or second is None or not len(first) == len(second) == _DIGITS:
        return True
    return sum(a != b for a, b in zip(first, second, strict=True)) <= _ALIKE


@dataclass(frozen=True)
class Source:
    """A file that rows can be taken from.

    Attributes:
        path: of the file, which need not be there.
        name: for people: ``database``, ``mirror`` or ``backup of 2026-01-31``.
        identity: of its database; None where that cannot be read.
        count: number of its last transaction; 0 where that cannot be read.
    """

    path: Path
    name: str
    identity: str | None
    count: int

    @classmethod
    def of(cls, path: Path, name: str) -> "Source":
        """Read what a file says of itself."""
        with suppress(*_UNREADABLE, SuspectError), _opened(path) as connection:
            return cls(path, name, *standing(connection))
        return cls(path, name, None, 0)

    def rows(self) -> Iterator[tuple[Table, Row]]:
        """Yield all rows that can be read, sound or not; one may come twice."""
        with suppress(*_UNREADABLE), _opened(self.path) as connection:
            tables = connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall()
            for (name,) in tables:
                table = TABLES.get(name)
                if table is not None:
                    yield from ((table, row) for row in _rows(connection, table))

    def numbers(self) -> list[Row]:
        """Return the last number of each table that gives no number twice."""
        with suppress(*_UNREADABLE), _opened(self.path) as connection:
            return connection.execute("SELECT name, seq FROM main.sqlite_sequence").fetchall()
        return []


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists() or not path.stat().st_size:
        raise sqlite3.OperationalError  # SQLite would remove the log of an empty file
    with closing(connect_to_read(path)) as connection:
        steps_left = [1 + (_STEPS_A_BYTE * path.stat().st_size + 1_000_000) // _STEPS]

        def is_too_much() -> bool:
            steps_left[0] -= 1
            return steps_left[0] < 0

        connection.text_factory = text_or_bytes
        connection.set_progress_handler(is_too_much, _STEPS)
        connection.execute("PRAGMA writable_schema = ON")  # a damaged definition costs its own table alone
        connection.execute("PRAGMA cell_size_check = ON")
        yield connection


def _rows(connection: sqlite3.Connection, table: Table) -> Iterator[Row]:
    for order in ("ASC", "DESC"):
        keys = ", ".join(f'"{column}" {order}' for column in table.key_columns)
        statement = f"SELECT * FROM main.{table.name} ORDER BY {keys}"  # noqa: S608 - names of ours
        try:
            for row in connection.execute(statement):
                if len(row) == len(table.all_columns):
                    yield row
        except _UNREADABLE:
            continue  # from the other end
        return


# --- Backups: whole files beside the database, named by their day.


def backups(path: Path, identity: str | None) -> list[Source]:
    """List the backups of a database, the latest transaction first: dates are no order, as clocks jump.

    Args:
        path: of the database.
        identity: of it; None where it is not known.
    """
    days = {file: file.name.rpartition(".backup-")[2] for file in dated_files(path)}
    sources = [Source.of(file, f"backup of {day}") for file, day in days.items()]
    ours = [each for each in sources if each.identity and same_database(each.identity, identity)]
    return sorted(ours, key=lambda each: (each.count, each.path), reverse=True)


def dated_files(path: Path) -> list[Path]:
    """The files that have the names of backups of a database, by their days."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.backup-????-??-??"))


# --- The row that each file gets.

_UNSOUND = "its checksum is not that of its content"


@dataclass
class RepairPlan:
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
            IsolatedRow(0, table, key, _exported(table, main), _exported(table, mirror), _UNSOUND, at)
            for (table, key), (main, mirror) in self.lost.items()
        ]


def planned(differing: Iterable[RowDifference], *, ahead: int) -> RepairPlan:
    """Plan the repair of the differences between two files that SQLite can read.

    Args:
        differing: the differences.
        ahead: how many transactions more the database has than its mirror. A row that the file ahead does not
            have was removed since; one that only the file behind lacks is new.
    """
    plan = RepairPlan()
    all_differing = list(differing)
    unsure = {each.table.name for each in all_differing if _knows(each, ahead) not in (None, each.best()[0])}
    for difference in all_differing:
        table, key = difference.table.name, difference.key
        row, source = difference.best()
        knows = _knows(difference, ahead)
        if ahead and knows is None and table not in unsure:
            plan.put(table, key, None, "")
        elif row is not None:
            other = difference.mirror if ahead > 0 else difference.main
            earlier = other is None or (type(other[-2]) is int and other[-2] < row[-2])
            plain = ahead != 0 and row is knows and earlier
            plan.put(table, key, row, "" if plain else source)
        elif ahead == 0 and (difference.main is None or difference.mirror is None):
            # what is left of a row that has another key: the other file would have it
            plan.put(table, key, None, "")
        else:
            plan.lost[table, key] = difference.main, difference.mirror
    return plan


def _knows(difference: RowDifference, ahead: int) -> Row | None:
    """A row as the file has it that is ahead."""
    return difference.main if ahead >= 0 else difference.mirror


def planned_alone(
    whole: Copy,
    other: Copy,
    unsound: Iterable[RowDifference],
    count: int | None,
    further: Sequence[Source],
) -> RepairPlan:
    """Plan for the one file that SQLite can read: rows that the other, or a backup, still has.

    Args:
        whole: the one that can be read.
        other: the other one.
        unsound: rows that are not sound in the first.
        count: of its transactions; rows of later ones are new.
        further: the backups.
    """
    plan = RepairPlan(lost={(each.table.name, each.key): (each.main, each.mirror) for each in unsound})
    damaged_other = Source.of(other.path, "database" if whole.path == mirror_of(other.path) else "mirror")
    if other.form is CopyState.DAMAGED and same_database(whole.identity, damaged_other.identity):
        complete(plan, [damaged_other], above=count)
    complete(plan, further)
    return plan


def complete(plan: RepairPlan, sources: Iterable[Source], *, above: int | None = None) -> None:
    """Take rows that are lost from the first source that has them soundly.

    Args:
        plan: what is to be done.
        sources: files, the best first.
        above: rows of later transactions than this are taken too; None for no others.
    """
    for source in sources if plan.lost or above is not None else ():
        for table, row in source.rows():
            at = table.name, table.key(row)
            if not is_sound(table.name, row):
                continue
            planned_row = plan.puts.get(at)
            if at in plan.lost:
                del plan.lost[at]
                plan.put(*at, row, source.name)
            elif above is not None and row[-2] > above and (planned_row is None or planned_row[-2] < row[-2]):
                plan.put(*at, row, "")


def _exported(table: str, row: Row | None) -> bytes | None:
    """The columns of a row for export."""
    if row is None:
        return None
    columns = dict(zip(TABLES[table].all_columns, row, strict=False))
    return json.dumps(columns, default=lambda value: {"hex": bytes(value).hex()}).encode()


# --- What a backup has later than both files.

_BIRTHS = {
    "runs": "started_at",
    "trials": "ended_at",
    "jobs": "created_at",
    "job_events": "at",
    "samples": "at",
}
"""Columns that no later transaction changes: two rows of one key that differ there are two things."""
_NEVER_REMOVED = ("runs", "trials")


@dataclass(frozen=True)
class BackupLead:
    """Transactions of a backup that are in neither file: both have lost the ends of their logs, or are older.

    Attributes:
        source: the backup.
        transactions: how many it has more, as far as they left rows.
        last: number of the last of them.
        followed: the database is an earlier state of the backup. Else it has stored other things since, under
            the same numbers of runs and jobs: their rows must not be mixed.
    """

    source: Source
    transactions: int
    last: int
    followed: bool

    def line(self, path: Path, *, repaired: bool) -> str:
        """The loss for people."""
        lost = f"{self.transactions} transactions that the {self.source.name} has"
        if not self.followed:
            return (
                f"{path} lost {lost}, and has gone on without them:"
                f" `tuner db merge {self.source.path}` takes over their finished runs"
            )
        return f"{path} lacked {lost}, and has them again" if repaired else f"{path} lacks {lost}"


def backup_lead(
    connection: sqlite3.Connection, plan: RepairPlan, sources: Iterable[Source], count: int | None
) -> BackupLead | None:
    """Plan to take later rows from a backup that is ahead, where the database is an earlier state of it.

    Args:
        connection: a file that SQLite can read.
        plan: what is planned for it already; gets the rows.
        sources: the backups, listed before the file was read: a daemon may write one meanwhile.
        count: of transactions of the file; None where it cannot be read.

    Returns:
        None where no backup has anything later.
    """
    last = highest_version(connection) if count is None else count
    for source in sources:
        if source.count <= last:  # a larger one may be damage: rows have checksums, and counts have none
            continue
        later: dict[tuple[str, Key], Row] = {}
        gone = {name: set(_keys(connection, TABLES[name])) for name in _NEVER_REMOVED}
        followed, replaces, has_last = True, False, False
        for table, row in source.rows():
            key = table.key(row)
            if not is_sound(table.name, row):
                continue
            gone.get(table.name, set()).discard(key)
            at, is_planned = (table.name, key), (table.name, key) in plan.puts
            own = plan.puts[at] if is_planned else _row(connection, table, key)
            if row[-2] <= last:
                followed = followed and (own == row or is_planned)
                has_last = has_last or (row[-2] == last and own == row)
            elif own is None or own[-2] < row[-2]:
                followed = followed and (own is None or is_planned or _same_birth(table, own, row))
                replaces = replaces or (own is not None and not is_planned and table.name not in _BIRTHS)
                later[at] = row
        if later:
            # A row that may be changed at any time shows no branch: the last transaction has to be the same.
            followed = followed and not any(gone.values()) and (has_last or not replaces)
            for at, row in later.items() if followed else ():
                plan.put(*at, row, "")
            newest = max(row[-2] for row in later.values())
            return BackupLead(source, newest - last, newest, followed)
    return None


def _keys(connection: sqlite3.Connection, table: Table) -> Iterator[Key]:
    statement = f"SELECT {quoted(table.key_columns)} FROM main.{table.name}"  # noqa: S608
    return map(table.key, connection.execute(statement))


def _row(connection: sqlite3.Connection, table: Table, key: Key) -> Row | None:
    statement = f"SELECT {table.listed()} FROM main.{table.name} WHERE {table.where_key}"  # noqa: S608
    row: Row | None = connection.execute(statement, key).fetchone()
    return row


def _same_birth(table: Table, own: Row, row: Row) -> bool:
    birth = _BIRTHS.get(table.name)
    return birth is None or own[table.columns.index(birth)] == row[table.columns.index(birth)]


def highest_version(connection: sqlite3.Connection) -> int:
    """The highest number of a transaction that a row of a file names."""
    statements = [f"SELECT coalesce(max(version), 0) FROM main.{table}" for table in TABLES]  # noqa: S608
    highest = [connection.execute(statement).fetchone()[0] for statement in statements]
    return max(number for number in highest if isinstance(number, int))


# --- Two files that SQLite cannot read: their rows as far as it can, and those of the newest backup.

_MAGIC = b"SQLite format 3\0"


def salvage(
    main: Copy, mirror: Copy, keep: Callable[[Table, Row], None]
) -> tuple[RepairPlan, list[Source], int]:
    """Pass on every sound row of two files that SQLite cannot read whole, and of the newest backup.

    Args:
        main: the database.
        mirror: its mirror.
        keep: is given the rows; one may come several times, and in several versions.

    Returns:
        Rows that were damaged in a file, taken from another or lost; the files that could be read; and how
        many sound rows they have.

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
    last = max((source.count for source in sources if source not in further), default=0)
    counted = last > 0
    for source in sources:
        for table, row in source.rows():
            at = table.name, table.key(row)
            if is_sound(table.name, row):
                there.setdefault(at, source.name)
                last = max(last, row[-2])
                keep(table, row)
            else:
                unsound.setdefault(at, {})[source.name] = row
    # Both begin as databases do: nobody else makes such pairs.
    ours = all(copy.path.exists() and _begins_a_file(copy.path) for copy in (main, mirror))
    if not there and not any(source.identity for source in sources) and not ours:
        also = f", and its mirror: {mirror.trouble}" if mirror.trouble else ""
        why = f"{main.path}: {main.trouble or 'it is empty'}{also}; {advice(main.path)}"
        raise StoreDamagedError(why)
    plan = RepairPlan(
        repaired=[RowRepair(*at, there[at]) for at in unsound if at in there],
        lost={
            at: (rows.get("database"), rows.get("mirror")) for at, rows in unsound.items() if at not in there
        },
    )
    complete(plan, older)
    if further and counted and further[0].count >= last:
        # Nothing was stored after this backup: what no backup has are remnants of other rows.
        for at in plan.lost.keys() - {at for at, rows in unsound.items() if further[0].name in rows}:
            del plan.lost[at]
    read = [source for source in sources if source.identity or source.name in there.values()]
    return plan, read, len(there)


def _begins_a_file(path: Path) -> bool:
    with path.open("rb") as file:
        return _MAGIC.startswith(file.read(len(_MAGIC)))
