"""Runs and trials in SQLite: every trial is durable when it ends, and nothing stale is served unmarked.

One file, write-ahead log, append-only named migrations. A run is bound to everything that makes its answer
true: kernel sources and options, GPU UUID, driver, CUDA, clock policy, co-running workloads, objective.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from tuner.conditions import Conditions
from tuner.errors import InputError, StoreError
from tuner.model import Measurement, Trial
from tuner.owner import is_alive, pid_of, this_process
from tuner.records import canonical, digest, measurement_from, measurement_record, trial_from, trial_record

if TYPE_CHECKING:
    from typing_extensions import Self

BUSY_TIMEOUT_S = 5.0
RESUMABLE = ("running", "interrupted", "limited", "failed")

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "runs-and-trials",
        (
            """CREATE TABLE runs (
                id INTEGER PRIMARY KEY,
                fingerprint TEXT NOT NULL,      -- everything --resume must find again
                workload_key TEXT NOT NULL,     -- the co-running set, in canonical order
                objective TEXT NOT NULL,
                device_uuid TEXT NOT NULL,
                status TEXT NOT NULL,           -- running, finished, interrupted, limited, failed
                owner TEXT NOT NULL,            -- process that measures it (tuner.owner)
                started_at TEXT NOT NULL,       -- UTC, ISO 8601
                ended_at TEXT,
                conditions TEXT NOT NULL,       -- JSON: what the answer is bound to
                answer TEXT                     -- JSON: the document of --json, without its trials
            )""",
            "CREATE INDEX runs_by_workloads ON runs (workload_key, device_uuid, objective, id)",
            "CREATE INDEX runs_by_fingerprint ON runs (fingerprint, id)",
            """CREATE TABLE trials (
                run_id INTEGER NOT NULL REFERENCES runs (id),
                number INTEGER NOT NULL,
                trial TEXT NOT NULL,            -- JSON: configurations and clock
                measurement TEXT NOT NULL,      -- JSON: what the search saw
                confirmed TEXT,                 -- JSON: fresh bursts of a contender for the answer, joined
                status TEXT NOT NULL,
                makespan_s REAL,
                energy_j REAL,
                ended_at TEXT NOT NULL,
                PRIMARY KEY (run_id, number)
            ) WITHOUT ROWID""",
            "CREATE UNIQUE INDEX one_measurement_a_trial ON trials (run_id, trial)",
        ),
    ),
)


@dataclass(frozen=True)
class StoredRun:
    """A row of the history.

    Attributes:
        owner: the process that measures or measured it (``tuner.owner``).
        answer: the document of its answer; None while nothing valid was measured.
    """

    id: int
    status: str
    owner: str
    objective: str
    started_at: str
    ended_at: str | None
    conditions: dict[str, Any]
    answer: dict[str, Any] | None
    trials: int


def default_path() -> Path:
    """Where results are kept: ``tuner/tuner.db`` in the user's state directory (``$XDG_STATE_HOME``)."""
    return platformdirs.user_state_path("tuner") / "tuner.db"


def workload_key(names: Sequence[str]) -> str:
    """The co-running set, whatever order it was named in."""
    return canonical(sorted(names))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


class Store:
    """The database, open. A context manager; one process may hold several.

    Raises:
        StoreError: (any method) the file is locked by another process, corrupted, not a database of this
            program, on a full disk, or not writable; the message says which, and what to do.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the directory of {self.path}: {error.strerror}") from error
        with self._translated():
            self._connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            with self._translated():
                self._connection.execute("PRAGMA journal_mode = WAL")
                # A killed process loses nothing; after a power cut the last trials may be measured again.
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._migrate()
        except StoreError:
            self._connection.close()
            raise

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._connection.close()

    def begin(self, conditions: Conditions) -> int:
        """Open a run and return its number."""
        record = conditions.record()
        with self._transaction():
            cursor = self._connection.execute(
                "INSERT INTO runs (fingerprint, workload_key, objective, device_uuid, status, owner,"
                " started_at, conditions) VALUES (?, ?, ?, ?, 'running', ?, ?, ?)",
                (
                    digest(record),
                    workload_key(conditions.names),
                    conditions.objective,
                    conditions.device.uuid,
                    this_process(),
                    _now(),
                    canonical(record),
                ),
            )
            if cursor.lastrowid is None:
                raise StoreError(f"{self.path}: no run number was given")
            return cursor.lastrowid

    def resume(self, conditions: Conditions) -> int | None:
        """Take over the newest run under exactly these conditions, if it did not finish.

        Raises:
            InputError: another process is measuring it.
        """
        with self._transaction():
            row = self._connection.execute(
                "SELECT id, status, owner FROM runs WHERE fingerprint = ? ORDER BY id DESC LIMIT 1",
                (digest(conditions.record()),),
            ).fetchone()
            if row is None or row[1] not in RESUMABLE:
                return None
            number, status, owner = row
            if status == "running" and is_alive(owner):
                raise InputError(f"--resume: run {number} is being measured by process {pid_of(owner)}")
            self._connection.execute(
                "UPDATE runs SET status = 'running', owner = ?, ended_at = NULL WHERE id = ?",
                (this_process(), number),
            )
        return int(number)

    def add(
        self, run_id: int, number: int, trial: Trial, measurement: Measurement, names: Sequence[str]
    ) -> None:
        """Store a trial that has just ended; it is durable when this returns."""
        makespan_s = measurement.makespan_s
        energy_j = measurement.energy.joules if measurement.energy is not None else None
        with self._transaction():
            self._connection.execute(
                "INSERT INTO trials VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?)",
                (
                    run_id,
                    number,
                    canonical(trial_record(trial, names)),
                    canonical(measurement_record(measurement)),
                    measurement.status.value,
                    makespan_s,
                    energy_j,
                    _now(),
                ),
            )

    def confirm(self, run_id: int, measurements: Mapping[int, Measurement]) -> None:
        """Store the joined bursts of trials, by their numbers: all or none."""
        with self._transaction():
            self._connection.executemany(
                "UPDATE trials SET confirmed = ? WHERE run_id = ? AND number = ?",
                [
                    (canonical(measurement_record(measurement)), run_id, number)
                    for number, measurement in measurements.items()
                ],
            )

    def trials(self, run_id: int, names: Sequence[str]) -> list[tuple[Trial, Measurement]]:
        """All trials of a run in the order they were measured."""
        with self._translated():
            rows = self._connection.execute(
                "SELECT trial, measurement FROM trials WHERE run_id = ? ORDER BY number", (run_id,)
            ).fetchall()
        return [
            (trial_from(self._json(trial), names), measurement_from(self._json(measurement)))
            for trial, measurement in rows
        ]

    def best_known(self, run_id: int, names: Sequence[str]) -> list[tuple[Trial, Measurement]]:
        """All trials of a run in their order; of contenders for the answer the fresh bursts, joined."""
        with self._translated():
            rows = self._connection.execute(
                "SELECT trial, coalesce(confirmed, measurement) FROM trials WHERE run_id = ? ORDER BY number",
                (run_id,),
            ).fetchall()
        return [
            (trial_from(self._json(trial), names), measurement_from(self._json(measurement)))
            for trial, measurement in rows
        ]

    def end(self, run_id: int, status: str, answer: Mapping[str, Any] | None) -> None:
        """Close a run with its answer (None when no trial was valid)."""
        with self._transaction():
            self._connection.execute(
                "UPDATE runs SET status = ?, ended_at = ?, answer = ? WHERE id = ?",
                (status, _now(), None if answer is None else json.dumps(answer, allow_nan=False), run_id),
            )

    def answered(
        self, names: Sequence[str], objective: str | None, device_uuid: str | None = None
    ) -> Iterator[StoredRun]:
        """Runs with an answer for a co-running set, newest first; None is every objective, every GPU."""
        where = "workload_key = ? AND answer IS NOT NULL"
        arguments: tuple[str, ...] = (workload_key(names),)
        if objective is not None:
            where += " AND objective = ?"
            arguments += (objective,)
        if device_uuid is not None:
            where += " AND device_uuid = ?"
            arguments += (device_uuid,)
        return self._runs(f"WHERE {where} ORDER BY id DESC", arguments)

    def finished_before(self, run_id: int, kernel: str, objective: str) -> Iterator[StoredRun]:
        """Runs of one workload of a kernel that had finished when a run began, newest first.

        A finished run is never gone on with, so that the answer is the same whenever it is asked for.
        """
        begins = workload_key([f"{kernel}:"]).removesuffix('"]')  # of a set of one workload of that kernel
        return self._runs(
            "WHERE status = 'finished' AND id < ? AND substr(workload_key, 1, ?) = ? AND objective = ?"
            " AND instr(workload_key, '\",\"') = 0"
            " AND ended_at <= (SELECT started_at FROM runs WHERE id = ?) ORDER BY id DESC",
            (run_id, len(begins), begins, objective, run_id),
        )

    def history(self, limit: int | None = None) -> list[StoredRun]:
        """Runs, newest first."""
        return list(self._runs("ORDER BY id DESC LIMIT ?", (-1 if limit is None else limit,)))

    def _runs(self, clause: str, arguments: tuple[object, ...]) -> Iterator[StoredRun]:
        with self._translated():
            cursor = self._connection.execute(
                "SELECT id, status, owner, objective, started_at, ended_at, conditions, answer,"  # noqa: S608
                " (SELECT count(*) FROM trials WHERE run_id = runs.id)"
                f" FROM runs {clause}",  # constant text of this module; values are bound
                arguments,
            )
        while True:
            with self._translated():
                row = cursor.fetchone()
            if row is None:
                return
            number, status, owner, objective, started_at, ended_at, conditions, answer, trials = row
            yield StoredRun(
                number,
                status,
                owner,
                objective,
                started_at,
                ended_at,
                self._json(conditions),
                None if answer is None else self._json(answer),
                trials,
            )

    def _json(self, text: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise StoreError(f"{self.path}: a record is not JSON; {self._advice()}") from error
        if not isinstance(value, dict):
            raise StoreError(f"{self.path}: a record is not an object; {self._advice()}")
        return value

    def _migrate(self) -> None:
        with self._transaction():
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT)"
            )
            applied = {name for (name,) in self._connection.execute("SELECT name FROM migrations")}
            for name, statements in MIGRATIONS:
                if name in applied:
                    continue
                for statement in statements:
                    self._connection.execute(statement)
                self._connection.execute("INSERT INTO migrations VALUES (?, ?)", (name, _now()))
            unknown = applied - {name for name, _ in MIGRATIONS}
        if unknown:
            raise StoreError(
                f"{self.path} was written by a newer tuner (migrations {', '.join(sorted(unknown))});"
                " upgrade tuner or name another file with --database"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._translated():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:  # a commit that fails, or Ctrl-C anywhere, leaves no transaction open
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {_explained(error)}; {self._advice()}") from error

    def _advice(self) -> str:
        return f"free or move {self.path.name} aside, or name another file with --database"


def _explained(error: sqlite3.Error) -> str:
    text = str(error)
    code = getattr(error, "sqlite_errorname", "")  # from Python 3.11 on
    known = {
        "SQLITE_BUSY": f"locked by another process for more than {BUSY_TIMEOUT_S:g} s",
        "SQLITE_NOTADB": "not a database",
        "SQLITE_CORRUPT": "the database is corrupted",
        "SQLITE_FULL": "the disk is full",
        "SQLITE_READONLY": "not writable by this user",
        "SQLITE_CANTOPEN": "cannot be opened",
    }
    return f"{known[code]} ({text})" if code in known else text
