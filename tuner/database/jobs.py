"""Jobs and their events: every change of state is durable before it is reported."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import NotUnderstood
from tuner.database.files import now
from tuner.database.integrity.checksums import verified
from tuner.database.transaction import Transaction
from tuner.model.errors import JobStateError, QueueFullError, UnknownJobError
from tuner.model.jobs import NEXT, Event, Job, JobSpec, JobState, Origin
from tuner.model.typed import canonical

_ENDED_RUNS = ("finished", "limited")  # a limit of the job is an end too
_JOB = (
    "SELECT id, ordered, origin, priority, state, reason, run_id, attempts,"
    " (SELECT count(*) FROM trials JOIN runs ON trials.run_id = runs.id WHERE runs.job_id = jobs.id),"
    " submitter, created_at, started_at, ended_at,"
    " (SELECT device_uuid FROM runs WHERE runs.id = jobs.run_id),"
    " (SELECT conditions FROM runs WHERE runs.id = jobs.run_id) FROM jobs"
)
_EVENTS = (
    "SELECT id, job_id, kind, at, data FROM job_events"  # noqa: S608 - constant text of this module
    " WHERE job_id = ? AND id > ?"
    f" AND {verified('job_events')} ORDER BY id LIMIT ?"
)


class Jobs:
    """The queue. Jobs and events that are not understood stay as they are, and are left out.

    Raises:
        StoreError: (any method) the database cannot be used; ``Database`` names the kinds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        spec: JobSpec,
        *,
        origin: Origin,
        priority: float = 0.0,
        submitter: int | str | None = None,
        most_waiting: int | None = None,
    ) -> Job:
        """Queue a job; its first event is that it is queued.

        Args:
            spec: what to do.
            origin: who asks.
            priority: of jobs that may run, the highest goes first.
            submitter: user id of a client, or ``token:NAME``.
            most_waiting: jobs that may be queued or paused, this one included; None for any number.

        Raises:
            QueueFullError: as many wait already.
        """

        def change(transaction: Transaction) -> Job:
            waiting = "SELECT count(*) FROM jobs WHERE state IN ('queued', 'paused')"
            if most_waiting is not None and transaction.rows(waiting)[0][0] >= most_waiting:
                raise QueueFullError(f"{most_waiting} jobs wait already; no more may")
            number = transaction.insert(
                "INSERT INTO jobs (ordered, origin, priority, state, reason, attempts, submitter, created_at)"
                " VALUES (?, ?, ?, 'queued', '', 0, ?, ?)",
                (
                    canonical({**vars(spec), "kind": spec.kind.value, "options": dict(spec.options)}),
                    *(origin.value, priority, submitter, now()),
                ),
            )
            _add_event(transaction, number, "state", {"state": JobState.QUEUED.value, "reason": ""})
            return _job(transaction, number)

        return self._database.write(change, synced=True)

    def job(self, number: int) -> Job | None:
        """A job by its number; None where there is none.

        Raises:
            UnknownJobError: it is there, and not understood.
        """
        jobs = self._database.read(lambda view: _selected(view, "id = ?", (number,)))
        return _understood(jobs[0]) if jobs else None

    def jobs(
        self,
        states: Sequence[JobState] = (),
        limit: int | None = None,
        before: int | None = None,
        *,
        origin: Origin | None = None,
    ) -> list[Job]:
        """Jobs, newest first.

        Args:
            states: in one of these; empty for any.
            limit: so many at most.
            before: only those of lower numbers.
            origin: only those of it; None for any.
        """
        jobs: list[Job] = []
        while limit is None or len(jobs) < limit:
            most = -1 if limit is None else limit - len(jobs)
            page = self._database.read(partial(_newest, states, before, origin, most))
            jobs += [job for job in page if isinstance(job, Job)]
            if len(page) != most:
                break
            last = page[-1]
            before = int(last.key) if isinstance(last, NotUnderstood) else last.id
        return jobs

    def not_understood(self) -> list[NotUnderstood]:
        """Jobs that are there and not understood, newest first."""
        jobs = self._database.read(partial(_newest, (), None, None, -1))
        return [job for job in jobs if isinstance(job, NotUnderstood)]

    def change(
        self, number: int, state: JobState, *, reason: str = "", run: int | None = None, started: bool = False
    ) -> tuple[Job, Event | None]:
        """Move a job to a state, and store that as an event, in one transaction.

        Args:
            number: of the job.
            state: the new one; the present one to change nothing but the reason.
            reason: for people.
            run: its run in the database, where it is known now; kept otherwise.
            started: count an attempt.

        Returns:
            The job as it is now, and the event; None where state and reason are what they were, and where
            the job had ended in this state already.

        Raises:
            UnknownJobError: there is no such job.
            JobStateError: the state may not follow the present one.
        """

        def change(transaction: Transaction) -> tuple[Job, Event | None]:
            job = _job(transaction, number)
            if state is not job.state and state not in NEXT[job.state]:
                raise JobStateError(f"job {number} is {job.state.value} and cannot become {state.value}")
            if state is job.state and state.ended:
                return job, None
            at = now()
            transaction.execute(
                # The run that is named may be lost: only where another one is given is it looked for.
                f"UPDATE jobs SET state = ?, reason = ?, {'' if run is None else 'run_id = ?,'}"  # noqa: S608
                " attempts = attempts + ?, started_at = coalesce(started_at, ?), ended_at = ? WHERE id = ?",
                (
                    state.value,
                    reason,
                    *(() if run is None else (run,)),
                    int(started),
                    at if started else None,
                    at if state.ended else None,
                    number,
                ),
            )
            event = None
            if (state, reason) != (job.state, job.reason):
                data = {"state": state.value, "reason": reason}
                event = _add_event(transaction, number, "state", data)
            return _job(transaction, number), event

        return self._database.write(change, synced=True)

    def prioritise(self, priorities: Mapping[int, float]) -> None:
        """Give jobs, by their numbers, other priorities; all or none."""
        rows = [(priority, number) for number, priority in priorities.items()]
        self._database.write(
            lambda transaction: transaction.execute_many("UPDATE jobs SET priority = ? WHERE id = ?", rows)
        )

    def event(self, number: int, kind: str, data: Mapping[str, Any]) -> Event:
        """Store something that happened to a job.

        Raises:
            UnknownJobError: there is no such job.
        """

        def change(transaction: Transaction) -> Event:
            _job(transaction, number)
            return _add_event(transaction, number, kind, data)

        return self._database.write(change)

    def events(self, number: int, after: int = 0, limit: int | None = None) -> list[Event]:
        """Stored events of a job in their order.

        Args:
            number: of the job.
            after: only those of higher numbers.
            limit: so many at most, the oldest.
        """
        events: list[Event] = []
        while limit is None or len(events) < limit:
            values = (number, after, -1 if limit is None else limit - len(events))
            rows = self._database.read(lambda view, values=values: view.rows(_EVENTS, values))  # type: ignore[misc]  # bound at once
            events += [event for event in map(decoding.event, rows) if isinstance(event, Event)]
            if len(rows) != values[-1]:
                break
            after = rows[-1][0]
        return events

    def recover(self) -> list[Job]:
        """Put right the jobs that a daemon which is no more left running; call it once, at the start.

        Returns:
            Those jobs as they are now: finished where their run had ended, else queued.
        """
        jobs = []
        for job in self.jobs((JobState.RUNNING,)):
            run, status = self._last_run(job.id)
            if status in _ENDED_RUNS:
                jobs.append(self.change(job.id, JobState.FINISHED, run=run)[0])
            else:
                why = "the daemon ended in the middle"
                jobs.append(self.change(job.id, JobState.QUEUED, reason=why, run=run)[0])
        return jobs

    def has_ended(self, number: int) -> bool:
        """True where the run of a job has come to its end, whatever state the job is in."""
        return self._last_run(number)[1] in _ENDED_RUNS

    def _last_run(self, number: int) -> tuple[int | None, str]:
        """The run that was begun or gone on with last, which need not be the newest of several."""
        last = self._database.read(
            lambda view: view.row(
                "SELECT runs.id, runs.status FROM jobs JOIN runs ON runs.id = jobs.run_id"  # noqa: S608
                f" WHERE jobs.id = ? AND {verified('jobs')} AND {verified('runs')}",
                (number,),
            )
        )
        return (None, "") if last is None else (last[0], last[1])

    def forget(self, before: datetime) -> int:
        """Remove jobs that ended before a time, with their events; their runs stay.

        A job that was queued after one of a later time has been stamped by a wrong clock, and stays.

        Returns:
            How many.
        """
        latest = before.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        states = [state.value for state in JobState if state.ended]

        def change(transaction: Transaction) -> int:
            first_kept = "(SELECT min(id) FROM jobs WHERE created_at >= ?)"
            of_states = f"state IN ({', '.join('?' * len(states))})"
            clause = f"FROM jobs WHERE {of_states} AND ended_at < ? AND id < coalesce({first_kept}, id + 1)"
            values = (*states, latest, latest)
            (count,) = transaction.rows(f"SELECT count(*) {clause}", values)[0]
            if count:
                transaction.execute(f"DELETE {clause}", values)
            return int(count)

        return self._database.write(change)


def _job(transaction: Transaction, number: int) -> Job:
    jobs = _selected(transaction, "id = ?", (number,))
    if not jobs:
        raise UnknownJobError(f"there is no job {number}")
    return _understood(jobs[0])


def _understood(job: Job | NotUnderstood) -> Job:
    if isinstance(job, NotUnderstood):
        raise UnknownJobError(str(job))
    return job


def _newest(
    states: Sequence[JobState],
    before: int | None,
    origin: Origin | None,
    limit: int,
    view: Transaction,
) -> list[Job | NotUnderstood]:
    """Jobs, newest first; see ``Jobs.jobs``. A limit below zero is none."""
    clauses, values = ["1"], list[object]()
    if states:
        clauses.append(f"state IN ({', '.join('?' * len(states))})")
        values += [state.value for state in states]
    if before is not None:
        clauses.append("id < ?")
        values.append(before)
    if origin is not None:
        clauses.append("origin = ?")
        values.append(origin.value)
    return _selected(view, " AND ".join(clauses), (*values, limit), order=" ORDER BY id DESC LIMIT ?")


def _selected(
    view: Transaction, clause: str, values: Sequence[object], order: str = ""
) -> list[Job | NotUnderstood]:
    rows = view.rows(f"{_JOB} WHERE {clause} AND {verified('jobs')}{order}", values)
    return [decoding.job(row) for row in rows]


def _add_event(transaction: Transaction, number: int, kind: str, data: Mapping[str, Any]) -> Event:
    at = now()
    event = transaction.insert(
        "INSERT INTO job_events (job_id, kind, at, data) VALUES (?, ?, ?, ?)",
        (number, kind, at, canonical(data)),
    )
    return Event(kind, at, number, data, event)
