"""Runs of another database file taken over, each believed only as far as it is checked.

Taken over are finished runs with all their trials. Others may be gone on with where they were measured, and
would then be there twice. A run is known by its content key, so that merging a file again, or the same run by
way of another host, adds nothing. It gets the next number here, and counts as begun and ended in the
transaction that stores it: clocks of hosts are never compared.

Runs are checked outside of transactions and stored some at a time, so that other processes wait milliseconds.
A merge that is killed leaves whole runs; the next one adds what is missing.
"""

import sqlite3
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import RUN_COLUMNS, TRIAL_COLUMNS, NotUnderstood, content_key, literal
from tuner.database.files import SuspectError, connect_to_read, damaged, now, translated
from tuner.database.integrity.checksums import TABLES, is_sound, literal_checksum, verified
from tuner.database.integrity.copy_state import CHECKSUMMED, NAMES, OUR_TABLES, has_our_tables, has_tables_of
from tuner.database.runs import ADD_TRIAL, NEXT_RUN, workload_key
from tuner.database.transaction import Row, Transaction, standing
from tuner.model.errors import InputError
from tuner.model.records import RunStatus, StoredRun, fingerprint
from tuner.model.trial import Status
from tuner.system.untrusted.reading import DATABASE_BYTES, RUN_BYTES, shown_bytes

if TYPE_CHECKING:
    from typing_extensions import Self


# --- Runs of a database file that somebody else wrote: read as data, and believed only as far as it is
# checked.
#
# The file is opened to read only. Its tables must be those that this program makes, without triggers and
# views; an authorizer of SQLite allows nothing but reading their columns. A row whose checksum is not right,
# and a page that SQLite cannot read, cost the run that they belong to.

RUN_TABLES = ("runs", "trials", "merged")
"""Tables with rows that are read of another database."""

LONGEST_NAME = 400
"""Characters of an owner, an identity, a source."""

_NUL = r"\x00"  # in a literal; JSON has none
_FIRST_COLUMNS = (  # of runs, as the first version made them
    *("id", "fingerprint", "workload_key", "objective", "device_uuid", "status", "owner"),
    *("started_at", "ended_at", "conditions", "answer"),
)
_STATUSES = {status.value for status in Status}


class UnfitRunError(Exception):
    """A run cannot be taken over; the message says why."""


@dataclass(frozen=True)
class IncomingRun:
    """A finished run of another database, checked.

    Attributes:
        run: as that database has it; its number is that of there, and its origin where it was merged from.
        columns: its ``RUN_COLUMNS``.
        trials: their ``TRIAL_COLUMNS``, in the order of their numbers.
        literals: of the trials (``tuner.database.decoding.literal``).
        key: its content key.
        size_bytes: of its texts.
    """

    run: StoredRun
    columns: Row
    trials: Sequence[Row]
    literals: Sequence[str]
    key: str
    size_bytes: int


@dataclass(frozen=True)
class RefusedRun:
    """A run that is not taken over.

    Attributes:
        why: a sentence that names it; empty where it is merely not finished.
        status: of a search that is not finished.
    """

    why: str = ""
    status: str = ""


class MergeSource:
    """A database file to take runs from. A context manager; all is read at one transaction of the file.

    Args:
        path: of the file; its mirror is not read.
        told: what messages call it; its path if not given.
        limited: runs that a budget or a time limit has ended are read too.

    Attributes:
        identity: of the database; empty where the file is of a version without one.

    Raises:
        InputError: (on entry) it is no database of this program, of a newer version, or too large.
        StoreError: (on entry) it cannot be opened.
    """

    def __init__(self, path: Path, name: str = "", *, limited: bool = False) -> None:
        self.path = path
        self._name = name or str(path)
        self._ended = {RunStatus.FINISHED.value, *([RunStatus.LIMITED.value] if limited else [])}
        self.identity = ""
        self._changes = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Self":
        _check_file(self.path, self._name)
        with ExitStack() as stack:
            try:
                self._connection = stack.enter_context(closing(connect_to_read(self.path)))
                _harden(self._connection)
                self._connection.execute("BEGIN")
                self._look()
            except sqlite3.Error as error:
                if damaged(error):
                    raise InputError(
                        f"{self._name} is damaged, or no database ({error}); {_REPAIR}"
                    ) from error
                raise translated(error, self.path) from error
            except (SuspectError, UnicodeDecodeError) as error:
                raise InputError(f"{self._name} is damaged: {error}; {_REPAIR}") from error
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _look(self) -> None:
        connection = self._connection
        tables = {name for (name,) in connection.execute("SELECT name FROM main.sqlite_master LIMIT 200")}
        if not tables >= OUR_TABLES:
            raise InputError(f"{self._name} is no database of tuner; name a file that `tuner run` wrote")
        names = [name for (name,) in connection.execute("SELECT name FROM main.migrations LIMIT 200")]
        if unknown := {str(name) for name in names} - set(NAMES):
            raise InputError(
                f"{self._name} was written by a newer version of tuner (it has {', '.join(sorted(unknown))});"
                " update tuner here"
            )
        self._changes = len(names)
        as_made = (
            has_our_tables(connection) if names == list(NAMES) else has_tables_of(connection, len(names))
        )
        if not as_made:
            raise InputError(f"{self._name}: its tables are not as tuner makes them; {_REPAIR}")
        if "writes" in tables:
            self.identity, _ = standing(connection)
        connection.set_authorizer(_only_reads)

    def runs(self) -> Iterator[IncomingRun | RefusedRun]:
        """Every run of the file, oldest first."""
        numbers = self._connection.execute("SELECT id FROM runs ORDER BY id")
        last: object = None
        while True:
            try:
                row = numbers.fetchone()
            except sqlite3.Error as error:
                yield RefusedRun(f"the runs after {last} cannot be read: {error}")
                return
            if row is None:
                return
            if type(row[0]) is not int or (isinstance(last, int) and row[0] <= last):
                yield RefusedRun(f"the runs after {last} cannot be read: they are out of order")
                return
            last = row[0]
            yield self._taken(last)

    def _taken(self, number: int) -> IncomingRun | RefusedRun:
        try:
            return self._read(number)
        except UnfitRunError as error:
            return RefusedRun(f"run {number}: {error}")
        except (sqlite3.Error, UnicodeDecodeError) as error:
            return RefusedRun(f"run {number}: it cannot be read ({error})")

    def _read(self, number: int) -> IncomingRun | RefusedRun:
        """A run; refused without a reason where it is not finished."""
        row = self._row("runs", number, _FIRST_COLUMNS)
        if row is None or number < 1:
            raise UnfitRunError("its row is gone")
        status = decoding.run_status(row["status"])
        if status is None:
            raise UnfitRunError(f"its status is {row['status']!r:.40}, which is not known")
        if status.value not in self._ended:
            return RefusedRun(status=status.value)
        columns = tuple(row[name] for name in RUN_COLUMNS)
        size = len(ascii(columns))
        trials: list[Row] = []
        literals: list[str] = []
        for trial, text in self._trials(number):
            size += len(text)
            if size > RUN_BYTES:
                raise UnfitRunError(f"it is larger than {shown_bytes(RUN_BYTES)}")
            trials.append(trial)
            literals.append(text)
        if len({trial[1] for trial in trials}) < len(trials):
            raise UnfitRunError("it has a trial twice")
        run = self._decoded(row, len(trials))
        return IncomingRun(run, columns, trials, literals, content_key(columns, literals), size)

    def _trials(self, number: int) -> Iterator[tuple[Row, str]]:
        """The checked trials of a run, with their literals."""
        table = TABLES["trials"]
        summed = self._changes >= CHECKSUMMED
        names = table.all_columns if summed else table.columns
        listed = ", ".join(names)
        expected = 1
        for row in self._connection.execute(
            f"SELECT {listed} FROM trials WHERE run_id = ? ORDER BY number",  # noqa: S608 - names of ours
            (number,),
        ):
            trial = row[1 : 1 + len(TRIAL_COLUMNS)]
            text = literal(trial)
            if summed and literal_checksum("trials", f"({number}, {text}, {row[-2]})") != row[-1]:
                raise UnfitRunError(f"its trial {expected} is damaged")
            if trial[0] != expected:
                raise UnfitRunError(f"its trial {expected} is gone")
            if not _is_trial(trial) or _NUL in text:
                raise UnfitRunError(f"its trial {expected} is not understood")
            yield trial, text
            expected += 1

    def _row(self, name: str, key: int, columns: Sequence[str]) -> dict[str, Any] | None:
        """A row by its key; its checksum is right where it has one."""
        table = TABLES[name]
        summed = self._changes >= CHECKSUMMED
        names = table.all_columns if summed else columns
        row = self._connection.execute(
            f"SELECT {', '.join(names)} FROM {name} WHERE {table.where_key}",  # noqa: S608 - names of ours
            (key,),
        ).fetchone()
        if row is not None and summed and not is_sound(name, row):
            raise UnfitRunError(f"its row of {name} is damaged")
        return None if row is None else dict(zip(names, row, strict=True))

    def _decoded(self, row: dict[str, Any], trials: int) -> StoredRun:
        names = ("id", "status", "owner", "objective", "started_at", "ended_at", "conditions", "answer")
        origin = self._row("merged", row["id"], ()) if self._changes > NAMES.index("merged") else None
        first = None if origin is None else tuple(origin[name] for name in _ORIGIN_COLUMNS)
        if first is not None:
            _check_origin(first)
        run = decoding.run((*(row[name] for name in names), trials), first)
        if isinstance(run, NotUnderstood):
            raise UnfitRunError(f"it is not understood ({run.why})")
        if len(run.owner) > LONGEST_NAME:
            raise UnfitRunError("the name of its process is too long")
        measured = 0 if run.answer is None else run.answer["space"]["measured"]
        if measured > trials:
            raise UnfitRunError(f"{measured - trials} of its {measured} trials are gone")
        return run


_ORIGIN_COLUMNS = ("source", "identity", "number", "at")
_REPAIR = "`tuner db repair --database FILE` where it was written puts such a file right"


def _check_file(path: Path, name: str) -> None:
    try:
        there = path.stat()
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}; name a database file of tuner") from error
    if not stat.S_ISREG(there.st_mode):
        raise InputError(f"{name} is not a file; name a database file of tuner")
    if there.st_size > DATABASE_BYTES:
        raise InputError(f"{name} is larger than {shown_bytes(DATABASE_BYTES)}, the most that is merged")


def _harden(connection: sqlite3.Connection) -> None:
    """Let nothing be done with a file but read it, and no value of it be larger than a run."""
    for pragma in ("query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, RUN_BYTES)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)


def _only_reads(action: int, table: str | None, *_: str | None) -> int:
    """An authorizer: columns of our tables are read, and nothing else is done."""
    if action == sqlite3.SQLITE_SELECT or (action == sqlite3.SQLITE_READ and table in RUN_TABLES):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _is_trial(trial: Row) -> bool:
    """True where columns have the types of a trial's; its documents are looked at where they are read."""
    _, configurations, measurement, confirmed, status, makespan_s, energy_j, ended_at = trial
    return (
        type(configurations) is type(measurement) is type(ended_at) is str
        and (confirmed is None or type(confirmed) is str)
        and (makespan_s is None or type(makespan_s) is float)
        and (energy_j is None or type(energy_j) is float)
        and status in _STATUSES
    )


def _check_origin(origin: Row) -> None:
    source, identity, number, at = origin
    if not (type(number) is int and number > 0) or not all(
        type(text) is str and len(text) <= LONGEST_NAME for text in (source, identity, at)
    ):
        raise UnfitRunError("its origin is not understood")


# --- Taking over: batch by batch, what is here already left out, what is refused named.

_MOST_NAMED = 100  # refused runs

_KNOWN = f"SELECT 1 FROM merged WHERE content = ? AND {verified('merged')}"  # noqa: S608 - constant text
_ALIKE = (
    f"SELECT id, {', '.join(RUN_COLUMNS)} FROM runs"  # noqa: S608 - constant text
    " WHERE fingerprint = ? AND started_at = ? AND ended_at = ?"
    f" AND id NOT IN (SELECT run_id FROM merged) AND {verified('runs')} ORDER BY id"
)
_TRIALS = (
    f"SELECT {', '.join(TRIAL_COLUMNS)} FROM trials"  # noqa: S608 - constant text
    f" WHERE run_id = ? AND {verified('trials')} ORDER BY number"
)
_ADD_RUN = (
    "INSERT INTO runs (id, fingerprint, workload_key, device_uuid, owner, began, ended,"  # noqa: S608
    f" {', '.join(RUN_COLUMNS)}) VALUES ({NEXT_RUN}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_ORIGIN = "INSERT INTO merged (run_id, content, source, identity, number, at) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass
class MergeReport:
    """Result of a merge.

    Attributes:
        runs_added: runs that are here now, and were not.
        runs_known: runs that were here already.
        runs_unfinished: runs that were left out as they are not finished.
        unfinished: how many of them have each status.
        runs_refused: runs that were left out as they are damaged or not understood.
        trials_added: of the runs that were added.
        newest_run: number here of the last run that was added; None where none was.
        refused: why runs were refused, a sentence each; of very many, the first.
    """

    runs_added: int = 0
    runs_known: int = 0
    runs_unfinished: int = 0
    unfinished: dict[str, int] = field(default_factory=dict)
    runs_refused: int = 0
    trials_added: int = 0
    newest_run: int | None = None
    refused: list[str] = field(default_factory=list)


def merge_file(
    database: Database,
    path: Path,
    *,
    source: str = "",
    limited: bool = False,
    batch_bytes: int = 4 * 2**20,
) -> MergeReport:
    """Take over the finished runs of another database file that are not here yet.

    Args:
        database: to add them to, open.
        path: of the file, of this version or an earlier one; it is not changed.
        source: where the file is from, as messages and the provenance of its runs say; empty for its path.
        limited: take over runs that a budget or a time limit has ended too, as nobody else can go on with
            them.
        batch_bytes: of a transaction: a tenth of a second.

    Raises:
        InputError: it is no database of this program, of a newer version, damaged as a whole, or too large.
        StoreError: one of the databases cannot be used; what was stored before stays.
    """
    report = MergeReport()
    with MergeSource(path, source, limited=limited) as incoming:
        merger = _Merger(database, source or str(path), incoming.identity)
        for batch in _batches(incoming, report, batch_bytes):
            merger.add(batch, report)
    return report


def _batches(incoming: MergeSource, report: MergeReport, batch_bytes: int) -> Iterator[list[IncomingRun]]:
    """Runs that may be stored, as many at a time as a transaction takes."""
    batch: list[IncomingRun] = []
    size = 0
    for run in incoming.runs():
        if isinstance(run, RefusedRun):
            _note(run, report)
            continue
        batch.append(run)
        size += run.size_bytes
        if size >= batch_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _note(refused: RefusedRun, report: MergeReport) -> None:
    if not refused.why:
        report.runs_unfinished += 1
        report.unfinished[refused.status] = report.unfinished.get(refused.status, 0) + 1
        return
    report.runs_refused += 1
    if len(report.refused) < _MOST_NAMED:
        report.refused.append(refused.why)


class _Merger:
    """Stores runs of one file."""

    def __init__(self, database: Database, source: str, identity: str) -> None:
        self._database = database
        self._source = source[:LONGEST_NAME]
        self._identity = identity

    def add(self, batch: list[IncomingRun], report: MergeReport) -> None:
        """Store the runs of a batch that are not here, in one transaction."""
        unknown = self._database.read(lambda view: [run for run in batch if not _is_known(view, run)])
        added = self._database.write(partial(self._add, unknown)) if unknown else {}
        report.runs_known += len(batch) - len(added)
        report.runs_added += len(added)
        report.trials_added += sum(len(run.trials) for run in added.values())
        report.newest_run = max(added, default=report.newest_run)

    def _add(self, runs: list[IncomingRun], transaction: Transaction) -> dict[int, IncomingRun]:
        """The runs that were added, by their numbers here."""
        added = {}
        for run in runs:
            if transaction.row(_KNOWN, (run.key,)) is None:  # another merge may run beside
                added[self._add_one(run, transaction)] = run
        return added

    def _add_one(self, one: IncomingRun, transaction: Transaction) -> int:
        run, conditions = one.run, one.run.conditions
        version = transaction.writes()
        names = [name for name, _ in conditions["workloads"]]
        number = transaction.insert(
            _ADD_RUN,
            (
                *(fingerprint(conditions), workload_key(names), conditions["device"]["uuid"], run.owner),
                *(version, version, *one.columns),
            ),
        )
        trials = [
            (number, *trial, version, literal_checksum("trials", f"({number}, {text}, {version})"))
            for trial, text in zip(one.trials, one.literals, strict=True)
        ]
        transaction.execute_many_ascii(ADD_TRIAL, trials)
        origin = run.origin
        first = (self._identity, run.id) if origin is None else (origin.identity, origin.number)
        transaction.insert(_ADD_ORIGIN, (number, one.key, self._source, *first, now()))
        return number


def _is_known(view: Transaction, incoming: IncomingRun) -> bool:
    """True where a run was merged before, or was measured for this database."""
    if view.row(_KNOWN, (incoming.key,)) is not None:
        return True
    run = incoming.run
    alike = view.rows(_ALIKE, (fingerprint(run.conditions), run.started_at, run.ended_at))
    keys = (content_key(own[1:], map(literal, view.rows(_TRIALS, own[:1]))) for own in alike)
    return incoming.key in keys
