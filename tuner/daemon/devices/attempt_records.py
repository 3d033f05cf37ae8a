"""Prepares job attempts and records their results."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tuner.daemon.backlog.backlog import Backlog
from tuner.daemon.backlog.maintenance import Maintenance
from tuner.daemon.interface import NotNowError
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.events import EventPump
from tuner.daemon.jobs.shares import Budgets, Cost
from tuner.daemon.jobs.specs import without_batch
from tuner.daemon.metrics import Metrics
from tuner.daemon.state import State
from tuner.database.storage import Storage
from tuner.model.errors import StoreError
from tuner.model.jobs import Job, JobKind, JobState
from tuner.model.run_document import TrialRecord
from tuner.search.job_messages import AttemptResult, AttemptSpec

MOST_CRASHES = 4
"""In a row and without a new trial; then the job is at fault."""

_FIRST_WAIT_S = 2.0  # after a failed attempt
LONGEST_WAIT_S = 600.0
"""Between two attempts at a job that fails."""

_LONGEST_DOUBLING = 16  # beyond any wait


class AttemptResults:
    """Prepares the attempts of all device queues and records what they report."""

    def __init__(
        self,
        state: State,
        *,
        storage: Storage,
        board: Board,
        events: EventPump,
        budgets: Budgets,
        backlog: Backlog,
        metrics: Metrics,
        maintenance: Maintenance,
        wall: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._storage = storage
        self._board = board
        self._events = events
        self._budgets = budgets
        self._backlog = backlog
        self._metrics = metrics
        self._maintenance = maintenance
        self._wall = wall
        self._counted: dict[int, Cost] = {}
        self._sampled: dict[int, int] = {}

    async def has_ended(self, job: Job) -> bool:
        """True where the run of a job has ended, and its process was killed before it reported that."""
        if job.run is None and not job.attempts:
            return False
        return await self._storage.run(lambda db: db.jobs.has_ended(job.id))

    def unreadable(self, job: Job) -> str:
        """Return the reason that the kernels of a job are unreadable for now; empty if there is none."""
        return self._state.unreadable(job.workloads)

    def attempt_spec(self, job: Job) -> AttemptSpec:
        """The spec of an attempt at a job.

        Raises:
            NotNowError: there is nothing left to do.
            InputError: it names what is not known any more.
        """
        idle = self._state.settings.idle
        return AttemptSpec(
            job=job.id,
            job_spec=job.placed_spec,
            database=self._storage.path,
            kernel_directories=self._state.directories,
            idle_test=idle.test,
            others_allowed=idle.others_allowed,
            exclusive_board=self._state.settings.tuning.exclusive_board,
            sample=self._sample(job) if job.kind is JobKind.SAMPLE else None,
        )

    def on_event(self, job: Job, kind: str, data: Mapping[str, Any]) -> None:
        """Count an event of an attempt, and pass it on to subscribers."""
        if kind == "trial":
            uuid = self._state.uuid(job.device)
            self._metrics.sensed(uuid, data.get("watts"), data.get("clock_mhz"))
            if not data.get("confirming"):  # a confirmation is no further trial
                self._metrics.trials.labels(uuid, str(data.get("status"))).inc()
        if self._board.get(job.id) is not None:  # a cancelled job has no subscribers any more
            self._events.put(job.id, kind, data)

    def count_cost(self, job: Job, seconds: float, joules: float) -> None:
        """Count the cost of an attempt so far; what was counted before is not counted again."""
        uuid = self._state.uuid(job.device)
        before = self._counted.get(job.id, Cost())
        more = Cost(max(0.0, seconds - before.seconds), max(0.0, joules - before.joules))
        if more == Cost():
            return
        self._counted[job.id] = Cost(before.seconds + more.seconds, before.joules + more.joules)
        self._budgets.spend(uuid, self._wall().date().isoformat(), *more)
        self._metrics.spent(uuid, *more)
        self._maintenance.spent()

    async def store(self, job: Job, result: AttemptResult) -> AttemptResult:
        """Store the events and the sample of an attempt before its job is concluded: no crash can lose them.

        Returns:
            The result; another one where its sample is of no use.
        """
        if job.kind is JobKind.TUNE:
            self._backlog.ending(job.placed_spec)
        await self._events.drained()
        run = self._sampled.pop(job.id, None)
        if run is None or result.sample is None:
            return result
        try:
            document = self._backlog.sampled(run, result.sample)
        except StoreError as error:
            return replace(result, status="refused", message=f"run {run} was measured again in vain: {error}")
        if document is not None:
            await self._storage.insist(lambda db: db.ledger.add_sample(run, document))
        return result

    async def conclude(self, job: Job, result: AttemptResult) -> None:
        """Record the end of an attempt, whose job is in its next state."""
        self.count_cost(job, result.seconds, result.joules)
        self._counted.pop(job.id, None)
        self._metrics.endings.labels(result.status).inc()
        self._metrics.idle(self._state.uuid(job.device))
        for gpu in result.clocks_left:
            self._metrics.not_restored.labels(gpu).inc()
        self._sampled.pop(job.id, None)
        if result.run is not None:
            await self._maintenance.refresh([without_batch(spec) for spec in job.workloads])
        if job.kind is JobKind.TUNE and self._board.get(job.id) is None:
            self._backlog.tried(job.placed_spec)  # whatever its result, the same search again gives no more
        await self._maintenance.flush()
        self._maintenance.backlog_may_have_changed()

    def _sample(self, job: Job) -> TrialRecord:
        """The trial that is to be measured again."""
        task = self._backlog.sample_task(job.spec)
        if task is None:
            raise NotNowError("its answer is not served any more: there is nothing to measure again")
        self._sampled[job.id], trial = task
        return trial


def wait_s(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, _LONGEST_DOUBLING), LONGEST_WAIT_S)


@dataclass
class FailureCount:
    """Failures of a job, or of all jobs on a device.

    Attributes:
        failures: attempts in a row that could not go on.
        crashes: attempts in a row that crashed without a new trial.
        retry_at_s: the loop's time of the next attempt.
    """

    failures: int = 0
    crashes: int = 0
    retry_at_s: float = 0.0


class FailureHistory:
    """Back-off of failed jobs on one device; not stored, as the end of the daemon may be what failed.

    A job that crashes is left alone on all devices. One whose device was not to be had may go to another.

    Args:
        crashes: of jobs, which the histories of all devices share.
    """

    def __init__(self, crashes: "dict[int, FailureCount] | None" = None) -> None:
        self._crashes = {} if crashes is None else crashes
        self._unavailable: dict[int, FailureCount] = {}
        self._device = FailureCount()

    def retry_at_s(self, job: Job) -> float:
        """The loop's time before which a failed job is not tried again."""
        of_job = [counts[job.id] for counts in (self._crashes, self._unavailable) if job.id in counts]
        return max(count.retry_at_s for count in (*of_job, self._device))

    def forget(self, job: Job) -> None:
        """Forget a job, which has ended."""
        self._crashes.pop(job.id, None)
        self._unavailable.pop(job.id, None)

    def forget_jobs(self, job_of: Callable[[int], object]) -> None:
        """Forget the jobs that waited for this device: none is left.

        Args:
            job_of: None for the number of a job that has ended.
        """
        self._unavailable.clear()
        for number in [number for number in self._crashes if job_of(number) is None]:
            del self._crashes[number]

    def next_state(
        self, job: Job, result: AttemptResult, stop_reason: str, trials: int
    ) -> tuple[JobState, str]:
        """The state that follows from a result, and the reason for people.

        Args:
            job: that was tried.
            result: of the attempt.
            stop_reason: why it was stopped; empty where it ended by itself.
            trials: new ones that it stored.
        """
        if result.whole:
            self.forget(job)
            self._device = FailureCount()
            return JobState.FINISHED, result.message
        if result.status == "refused":
            self.forget(job)
            return JobState.FAILED, result.message
        if result.status == "busy" or stop_reason:
            self._device = FailureCount()
            busy = f"the GPU is busy: {result.message}"
            return JobState.QUEUED, busy if result.status == "busy" else stop_reason
        return self._failed(job, result, trials)

    def _failed(self, job: Job, result: AttemptResult, trials: int) -> tuple[JobState, str]:
        """The state after an attempt that could not go on."""
        now_s = asyncio.get_running_loop().time()
        if trials:  # each attempt that makes progress brings the end nearer
            self.forget(job)
        counts = self._unavailable if result.status == "unavailable" else self._crashes
        count = counts.setdefault(job.id, FailureCount())
        count.failures += 1
        count.crashes += result.status == "crashed"
        if count.crashes >= MOST_CRASHES:
            self.forget(job)
            return JobState.FAILED, f"{count.crashes} attempts crashed, the last: {result.message}"
        count.retry_at_s = now_s + wait_s(count.failures)
        if result.status == "unavailable":  # this concerns other jobs, too
            self._device.failures += 1
            self._device.retry_at_s = now_s + wait_s(self._device.failures)
        return JobState.QUEUED, f"{result.message}; tried again in {wait_s(count.failures):.0f} s"
