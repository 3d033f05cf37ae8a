"""Runs and their trials in the database, stored again where it was busy.

A run is bound to everything that makes its answer true: kernel sources and options, GPU UUID, driver, CUDA,
clock policy, co-running workloads, objective; and to the job it was measured for.
"""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import NotUnderstood, UnderstoodRows
from tuner.database.files import now
from tuner.database.integrity.checksums import row_checksum, verified
from tuner.database.transaction import Row, Transaction
from tuner.model.errors import InputError, RunBusyError, StoreBusyError, StoreError, StoreFullError
from tuner.model.records import (
    Conditions,
    RunStatus,
    StoredRun,
    StoredTrial,
    fingerprint,
    measurement_record,
    trial_record,
)
from tuner.model.trial import Measurement, Trial
from tuner.model.typed import canonical
from tuner.system.ownership import is_alive, pid_of, this_process
from tuner.system.signals import StopRequest

if TYPE_CHECKING:
    from typing_extensions import Self


_LOG = logging.getLogger(__name__)
RESUMABLE = frozenset(RunStatus) - {RunStatus.FINISHED}
_READ_RUNS = 16  # at once: most who look for an answer stop at the first, and each is thousands of bytes
_ABOVE_ALL = 2**63 - 1  # SQLite's highest number of a row
_TRIALS_OF = "SELECT number, trial, measurement, confirmed, ended_at FROM trials WHERE run_id = ?"
_TRIALS = f"{_TRIALS_OF} AND {verified('trials')} ORDER BY number"
_TRIALS_PAGE = f"{_TRIALS_OF} AND number > ? AND {verified('trials')} ORDER BY number LIMIT ?"
_FAILED_TRIALS = (
    "SELECT count(*) FROM trials WHERE run_id = ? AND status <> 'ok'"  # noqa: S608 - constant text of this module
    f" AND {verified('trials')}"
)
ADD_TRIAL = "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
"""All columns, with the version and the checksum."""
NEXT_RUN = (
    "1 + max((SELECT coalesce(max(id), 0) FROM runs), (SELECT coalesce(max(run_id), 0) FROM trials),"
    " (SELECT coalesce(max(run_id), 0) FROM samples), (SELECT coalesce(max(run_id), 0) FROM jobs),"
    " (SELECT coalesce(max(run_id), 0) FROM merged),"
    " (SELECT coalesce(max(CAST(substr(key, 2) AS INTEGER)), 0) FROM isolated WHERE \"of\" = 'runs'))"
)
"""Of a new run: above every number that was given once, also where the run itself was lost."""


def workload_key(names: Sequence[str]) -> str:
    """The co-running set, whatever order it was named in."""
    return canonical(sorted(names))


class Store:
    """Runs and their trials. A context manager. What is not understood stays as it is, and is left out.

    Args:
        where: the file, or the database, open, which stays open; None for the default file.
        job: bind runs to this job, and resume only those of this job.

    Raises:
        StoreError: (any method) the database cannot be used; ``Database`` names the kinds.
    """

    def __init__(self, where: Path | Database | None = None, *, job: int | None = None) -> None:
        self.database = where if isinstance(where, Database) else Database(where)
        self._owns = not isinstance(where, Database)
        self._job = job
        self._understood = UnderstoodRows()

    @property
    def path(self) -> Path:
        """The file."""
        return self.database.path

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file if it was opened here; safe to call twice."""
        if self._owns:
            self.database.close()

    def begin(self, conditions: Conditions, on_number: Callable[[int], None] = lambda _: None) -> int:
        """Open a run and return its number.

        Args:
            conditions: of the run.
            on_number: called before the run is stored: an interrupt may come before this returns.
        """
        record = conditions.record()

        def change(transaction: Transaction) -> int:
            number = transaction.insert(
                "INSERT INTO runs (id, fingerprint, workload_key, objective, device_uuid, status, owner,"  # noqa: S608
                f" started_at, began, conditions, job_id) VALUES ({NEXT_RUN}, ?, ?, ?, ?, 'running',"
                " ?, ?, ?, ?, ?)",
                (
                    fingerprint(record),
                    workload_key(conditions.names),
                    conditions.objective,
                    conditions.device.uuid,
                    this_process(),
                    now(),
                    transaction.writes(),
                    canonical(record),
                    self._job,
                ),
            )
            self._bind(transaction, number)
            on_number(number)
            return number

        return self.database.write(change)

    def resume(self, conditions: Conditions, on_number: Callable[[int], None] = lambda _: None) -> int | None:
        """Take over the newest run under exactly these conditions and of this job, if it did not finish.

        A merged run is another database's. A run is left as it is where its state or a trial of it is not
        understood, or a trial is lost: what is measured next would not follow from what is known.

        Args:
            conditions: of the run.
            on_number: see ``begin``.

        Raises:
            RunBusyError: another process is measuring it.
        """
        same_conditions = fingerprint(conditions.record())

        def change(transaction: Transaction) -> int | None:
            row = transaction.row(
                "SELECT id, status, owner FROM runs WHERE fingerprint = ? AND job_id IS ?"  # noqa: S608
                " AND id NOT IN (SELECT run_id FROM merged)"
                f" AND {verified('runs')} ORDER BY id DESC LIMIT 1",
                (same_conditions, self._job),
            )
            status = None if row is None else decoding.run_status(row[1])
            if row is None or status not in RESUMABLE:
                return None
            number, _, owner = row
            if status is RunStatus.RUNNING and is_alive(owner):
                raise RunBusyError(
                    f"run {number} is being measured by process {pid_of(owner)}; wait until it has ended"
                )
            if not self._whole(transaction, number, conditions.names):
                return None
            transaction.execute(
                "UPDATE runs SET status = 'running', owner = ?, ended_at = NULL, ended = NULL WHERE id = ?",
                (this_process(), number),
            )
            self._bind(transaction, number)
            on_number(int(number))
            return int(number)

        return self.database.write(change)

    def _whole(self, view: Transaction, run_id: int, names: Sequence[str]) -> bool:
        """True where all trials of a run are there and understood."""
        rows = view.rows(_TRIALS, (run_id,))
        lost = [number for number, *_ in rows] != list(range(1, len(rows) + 1))
        if lost:
            _LOG.warning("run %d is not gone on with: trials of it are lost", run_id)
        return not lost and len(self._decoded(run_id, [row[:3] for row in rows], names)) == len(rows)

    def _bind(self, transaction: Transaction, number: int) -> None:
        if self._job is not None:
            transaction.execute("UPDATE jobs SET run_id = ? WHERE id = ?", (number, self._job))

    def add(
        self, run_id: int, number: int, trial: Trial, measurement: Measurement, names: Sequence[str]
    ) -> None:
        """Store a trial that has just ended; it is durable when this returns."""

        def change(transaction: Transaction) -> None:
            row = (
                run_id,
                number,
                canonical(trial_record(trial, names)),
                canonical(measurement_record(measurement)),
                None,
                measurement.status.value,
                _real(measurement.makespan_s),
                _real(measurement.energy.joules if measurement.energy is not None else None),
                now(),
                transaction.writes(),
            )
            # The checksum is worked out once for both files.
            transaction.execute_ascii(ADD_TRIAL, (*row, row_checksum("trials", *row)))

        self.database.write(change)

    def confirm(self, run_id: int, measurements: Mapping[int, Measurement]) -> None:
        """Store the joined repeats of trials, by their numbers: all or none."""
        rows = [
            (canonical(measurement_record(measurement)), run_id, number)
            for number, measurement in measurements.items()
        ]
        self.database.write(
            lambda transaction: transaction.execute_many(
                "UPDATE trials SET confirmed = ? WHERE run_id = ? AND number = ?", rows
            )
        )

    def trials(self, run_id: int, names: Sequence[str]) -> list[tuple[Trial, Measurement]]:
        """All trials of a run in the order they were measured."""
        rows = self.database.read(lambda view: view.rows(_TRIALS, (run_id,)))
        return self._decoded(run_id, [row[:3] for row in rows], names)

    def best_known(self, run_id: int, names: Sequence[str]) -> list[tuple[Trial, Measurement]]:
        """All trials of a run in their order; of contenders for the answer the fresh repeats, joined."""
        rows = self.database.read(lambda view: view.rows(_TRIALS, (run_id,)))
        last = [(number, trial, again or measured) for number, trial, measured, again, _ in rows]
        return self._decoded(run_id, last, names)

    def stored_trials(self, run_id: int, names: Sequence[str]) -> list[StoredTrial]:
        """All trials of a run in their order, with what the search saw and what is known at the end."""
        return self._stored(run_id, self.database.read(lambda view: view.rows(_TRIALS, (run_id,))), names)

    def trials_page(
        self, run_id: int, names: Sequence[str], *, after: int = 0, limit: int
    ) -> tuple[list[StoredTrial], int | None]:
        """Trials of a run in their order; what is not understood is left out.

        Args:
            run_id: number of the run.
            names: its workloads.
            after: only trials of higher numbers.
            limit: so many at most.

        Returns:
            The trials, and the number after which the next page begins; None after the last page.
        """
        rows = self.database.read(lambda view: view.rows(_TRIALS_PAGE, (run_id, after, limit)))
        return self._stored(run_id, rows, names), rows[-1][0] if len(rows) == limit else None

    def failed_trials(self, run_id: int) -> int:
        """Return the number of trials of a run that are not ok."""
        return int(self.database.read(lambda view: view.rows(_FAILED_TRIALS, (run_id,)))[0][0])

    def _stored(self, run_id: int, rows: Sequence[Row], names: Sequence[str]) -> list[StoredTrial]:
        trials = []
        for number, trial, measured, again, ended_at in rows:
            first = self._decoded(run_id, [(number, trial, measured)], names)
            last = first if again is None else self._decoded(run_id, [(number, trial, again)], names)
            if first and last:
                trials.append(StoredTrial(number, first[0][0], first[0][1], last[0][1], ended_at))
        return trials

    def _decoded(
        self, run_id: int, rows: Sequence[tuple[Any, ...]], names: Sequence[str]
    ) -> list[tuple[Trial, Measurement]]:
        return self._understood.of(
            decoding.trial(run_id, number, (trial, measured), names) for number, trial, measured in rows
        )

    def end(self, run_id: int, status: RunStatus, answer: Mapping[str, Any] | None) -> None:
        """Close a run of this process with its answer (None when no trial was valid)."""
        document = None if answer is None else json.dumps(answer, allow_nan=False)

        def change(transaction: Transaction) -> None:
            transaction.execute(
                "UPDATE runs SET status = ?, ended_at = ?, ended = ?, answer = ? WHERE id = ? AND owner = ?",
                (str(status), now(), transaction.writes(), document, run_id, this_process()),
            )

        self.database.write(change)

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
        return self._runs(where, arguments)

    def answered_under(self, conditions: Conditions) -> Iterator[StoredRun]:
        """Runs with an answer that were made under exactly these conditions, newest first."""
        return self._runs("fingerprint = ? AND answer IS NOT NULL", (fingerprint(conditions.record()),))

    def all_answered(self) -> Iterator[StoredRun]:
        """Every run with an answer, newest first."""
        return self._runs("answer IS NOT NULL")

    def answered_alone(self, kernel: str) -> Iterator[StoredRun]:
        """Runs with an answer for one workload of a kernel, at any sizes, newest first."""
        begins, clause = _alone(kernel)
        return self._runs(f"answer IS NOT NULL AND {clause}", begins)

    def finished_before(self, run_id: int, kernel: str, objective: str) -> Iterator[StoredRun]:
        """Runs of one workload of a kernel that had finished when a run began, newest first.

        A finished run is never gone on with, so that the answer is the same whenever it is asked for.
        """
        begins, clause = _alone(kernel)
        return self._runs(
            f"status = 'finished' AND {clause} AND id < ? AND objective = ?"  # noqa: S608 - text of this module
            " AND ended <= (SELECT began FROM runs WHERE id = ?)",
            (*begins, run_id, objective, run_id),
        )

    def history(self, limit: int | None = None) -> list[StoredRun]:
        """Runs, newest first."""
        return list(islice(self._runs("1"), limit))

    def page(
        self, limit: int, before: int | None = None, names: Sequence[str] = (), *, answered: bool = False
    ) -> list[StoredRun]:
        """Runs, newest first.

        Args:
            limit: so many at most.
            before: only those of lower numbers.
            names: only those of this co-running set; empty for any.
            answered: only those with an answer.
        """
        clauses: list[str] = ["id < ?"]
        values: list[object] = [_ABOVE_ALL if before is None else before]
        if names:
            clauses.append("workload_key = ?")
            values.append(workload_key(names))
        if answered:
            clauses.append("answer IS NOT NULL")
        return list(islice(self._runs(" AND ".join(clauses), tuple(values)), limit))

    def listed(self, limit: int) -> list[StoredRun | NotUnderstood]:
        """The newest runs, newest first, with those that are not understood."""
        return list(islice(self._rows("1"), limit))

    def run(self, number: int) -> StoredRun | None:
        """The run of this number; None where there is none.

        Raises:
            InputError: it is there, and not understood.
        """
        run = next(self._rows("id = ?", (number,)), None)
        if isinstance(run, NotUnderstood):
            raise InputError(str(run))
        return run

    def _runs(self, where: str, values: tuple[object, ...] = ()) -> Iterator[StoredRun]:
        """Runs that are understood, newest first."""
        for run in self._rows(where, values):
            yield from self._understood.of([run])

    def _rows(self, where: str, values: tuple[object, ...] = ()) -> Iterator[StoredRun | NotUnderstood]:
        """Runs, newest first, some at a time: each part is a read of its own, and nothing stays open."""
        before = _ABOVE_ALL
        while True:
            rows = self.database.read(partial(_some_runs, where, (*values, before)))
            yield from (decoding.run(row, origin) for row, origin in rows)
            if len(rows) < _READ_RUNS:
                return
            before = rows[-1][0][0]


def _some_runs(
    where: str, values: tuple[object, ...], view: Transaction
) -> list[tuple[tuple[Any, ...], tuple[Any, ...] | None]]:
    """Rows of runs, each with that of its origin if it was merged."""
    runs = view.rows(  # constant text of this module
        "SELECT id, status, owner, objective, started_at, ended_at, conditions, answer,"  # noqa: S608
        " (SELECT count(*) FROM trials WHERE run_id = runs.id)"
        f" FROM runs WHERE {where} AND id < ? AND {verified('runs')} ORDER BY id DESC LIMIT ?",
        (*values, _READ_RUNS),
    )
    numbers = [row[0] for row in runs]
    marks = ", ".join("?" * len(numbers))
    origins = view.rows(
        "SELECT run_id, source, identity, number, at FROM merged"  # noqa: S608 - constant text
        f" WHERE run_id IN ({marks}) AND {verified('merged')} ORDER BY run_id",
        numbers,
    )
    by_run = {number: tuple(origin) for number, *origin in origins}
    return [(row, by_run.get(row[0])) for row in runs]


def _alone(kernel: str) -> tuple[tuple[int, str], str]:
    """Arguments and clause that choose the runs of one workload of a kernel, by the key of their set."""
    begins = workload_key([f"{kernel}:"]).removesuffix('"]')
    return (len(begins), begins), "substr(workload_key, 1, ?) = ? AND instr(workload_key, '\",\"') = 0"


def _real(number: float | None) -> float | None:
    """A number as the database gives it back: its checksum tells 1 from 1.0."""
    return None if number is None else float(number)


# --- Trials of a job, stored again where the database is busy for a while.

T = TypeVar("T")
RETRY_S = 60.0  # a log is rotated, a backup ends; what lasts longer is for people, and the job comes again
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0
_DYING_S = 5.0  # an earlier attempt at the job that was killed is gone by then


class RetryingStore(Store):
    """Tries again while the file is locked or the disk full; SIGTERM ends that.

    Args:
        database: open; it stays so.
        job: see ``Store``.
        stop: a request to stop waits until a change is durable.
        workloads: how many the job tunes together; runs of fewer are solo runs, which come before.
        begun: called with the number of the run, and of the trials that it has already.
        ending: called before the last run is ended, which may have to wait.
    """

    def __init__(
        self,
        database: Database,
        *,
        job: int | None,
        stop: StopRequest,
        workloads: int,
        begun: Callable[[int, int], None],
        ending: Callable[[], None],
    ) -> None:
        super().__init__(database, job=job)
        self._workloads, self._is_last = workloads, False
        self._stop = stop
        self._begun = begun
        self._ending = ending

    def begin(self, conditions: Conditions, on_number: Callable[[int], None] = lambda _: None) -> int:
        """See ``Store.begin``."""
        begin = super().begin
        number = self._retried(lambda: begin(conditions, on_number))
        self._is_last = len(conditions.names) == self._workloads
        self._begun(number, 0)
        return number

    def resume(self, conditions: Conditions, on_number: Callable[[int], None] = lambda _: None) -> int | None:
        """See ``Store.resume``; an earlier attempt at the job that is just dying is waited for.

        Raises:
            StoreError: it has not died.
            RunBusyError: another process measures the run, which is of no job.
        """
        resume, deadline_s = super().resume, time.monotonic() + _DYING_S
        while True:
            try:
                number = self._retried(lambda: resume(conditions, on_number))
                break
            except InputError as error:
                if self._job is None:  # a sweep has other jobs to go on with
                    raise
                if time.monotonic() > deadline_s:
                    raise StoreError(str(error)) from error
            self._stop.sleep(_FIRST_WAIT_S)
        if number is not None:
            self._is_last = len(conditions.names) == self._workloads
            self._begun(number, len(self.trials(number, conditions.names)))
        return number

    def add(
        self, run_id: int, number: int, trial: Trial, measurement: Measurement, names: Sequence[str]
    ) -> None:
        """See ``Store.add``."""
        add = super().add
        self._retried(lambda: add(run_id, number, trial, measurement, names))

    def confirm(self, run_id: int, measurements: Mapping[int, Measurement]) -> None:
        """See ``Store.confirm``."""
        confirm = super().confirm
        self._retried(lambda: confirm(run_id, measurements))

    def end(self, run_id: int, status: RunStatus, answer: Mapping[str, Any] | None) -> None:
        """See ``Store.end``; the GPU is given back before, unless more is to be measured."""
        if self._is_last:
            self._stop.disable()
            self._ending()
        end = super().end
        self._retried(lambda: end(run_id, status, answer))

    def _retried(self, change: Callable[[], T]) -> T:
        wait_s, waited_s = _FIRST_WAIT_S, 0.0
        while True:
            try:
                with self._stop.deferred():
                    return change()
            except (StoreBusyError, StoreFullError) as error:
                if self._stop.received or waited_s >= RETRY_S:
                    raise
                _LOG.warning("not stored yet, tried again in %g s: %s", wait_s, error)
            try:
                self._stop.sleep(wait_s)
            except KeyboardInterrupt:
                with contextlib.suppress(StoreBusyError, StoreFullError):
                    change()  # the last chance
                raise
            waited_s += wait_s
            wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)
