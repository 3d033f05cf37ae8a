"""The device queues: each runs the jobs of one device, one after the other, in attempts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tuner.daemon.backlog.backlog import Backlog
from tuner.daemon.backlog.maintenance import Maintenance
from tuner.daemon.devices.admission import Admission
from tuner.daemon.interface import NoSuchJobError, NotNowError, RefusedError
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.events import EventPump
from tuner.daemon.jobs.shares import Budgets, Cost
from tuner.daemon.jobs.specs import without_batch
from tuner.daemon.metrics import Metrics
from tuner.daemon.state import State
from tuner.database.storage import Storage
from tuner.model.errors import ChildError, InputError, StoreError
from tuner.model.jobs import OWN, Job, JobKind, JobState
from tuner.model.run_document import TrialRecord
from tuner.search.job_launcher import AttemptProcess, OnEvent
from tuner.search.job_messages import AttemptResult, AttemptSpec
from tuner.system.logs import about
from tuner.system.threads import is_shortage

# --- Attempts at jobs: prepared, their results recorded, and their failures counted.

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


# --- The queues.

GRACE_S = 5.0
"""For a job to stop: what it measured is stored and its clocks are restored by then; else it is killed."""

_STORE_WAIT_S = 1.0  # until the database is asked again
_SHORT_WAIT_S = 5.0  # until there may be threads, processes or memory again
_UNREADABLE_S = 60.0  # a change wakes the queue; this is for what nobody told of
_NONE_IS_FREE = "none of its devices is free for it now: `tuner status` says why of each"
_LOG = logging.getLogger(__name__)

StartAttempt = Callable[[AttemptSpec, OnEvent], Awaitable[AttemptProcess]]
"""Starts the process of an attempt; see ``tuner.search.job_launcher.start``."""


class DeviceQueue:
    """Runs the jobs of one device.

    Attributes:
        running: the job whose process lives; also after it was cancelled, until the process has ended.
        block_reason: why the next job does not start; empty where nothing blocks it, or there is none.
        peers: the queues of all devices, by device.
    """

    def __init__(
        self,
        device: str,
        board: Board,
        admission: Admission,
        results: AttemptResults,
        start_attempt: StartAttempt,
        *,
        crashes: dict[int, FailureCount] | None = None,
    ) -> None:
        self.device = device
        self.running: Job | None = None
        self.block_reason = ""
        self.peers: Mapping[str, DeviceQueue] = {}
        self._blocked = False
        self._waits = False  # a job waits that cannot run here just now
        self._board = board
        self._admission = admission
        self._results = results
        self._start_attempt = start_attempt
        self._changed = asyncio.Event()
        self._failures = FailureHistory(crashes)
        self._stop_reason = ""
        self._trials = 0

    @property
    def idle(self) -> bool:
        """True where no job runs or waits."""
        return self.running is None and not any(self._board.waiting(self.device))

    @property
    def takes_jobs(self) -> bool:
        """True where no job runs, and nothing keeps one from it that does not pass by itself at once."""
        return self.running is None and not self._blocked

    def wake(self) -> None:
        """Look again: something has changed that may concern this device."""
        self._changed.set()

    def notify(self, job: Job) -> None:
        """Look again if a job that has changed concerns this device.

        That is the job that runs here; and unless that gives way to none, one that has come to wait and may
        run here, and any of those for which this queue waits.
        """
        if self.running is not None and self.running.id == job.id:
            self.wake()
        elif self.running is not None and self.running.origin not in OWN:
            return
        elif (job.state is JobState.QUEUED or self._waits) and self._board.placement.may_run(
            job, self.device
        ):
            self.wake()

    def stop(self, reason: str) -> None:
        """Start no more jobs, and stop the one that runs; it waits again, for that reason."""
        self._stop_reason = reason
        self.wake()

    async def run(self) -> None:
        """Run jobs until stopped."""
        while not self._stop_reason:
            self._changed.clear()
            try:
                wait_s = await self._next()
            except StoreError as error:
                self.block_reason, wait_s = f"the database cannot be used: {error}", _STORE_WAIT_S
            except Exception as error:  # noqa: BLE001 - no exception must end the work on a device
                if is_shortage(error):
                    short = "the system is short of threads, processes or memory"
                    self.block_reason, wait_s = f"{short}: {error}", _SHORT_WAIT_S
                else:
                    _LOG.exception("%s: unexpected exception", self.device)
                    self.block_reason, wait_s = "unexpected exception, see the log", LONGEST_WAIT_S
            if wait_s is None or wait_s > 0:
                await self._wait(wait_s)

    async def _next(self) -> float | None:
        """Run a job, or return how long to wait at most; None to wait for a change."""
        now_s = asyncio.get_running_loop().time()
        waiting = list(self._board.waiting(self.device))
        self._blocked, self._waits = False, bool(waiting)
        if not waiting:
            self.block_reason = ""
            self._admission.forget()
            self._failures.forget_jobs(self._board.get)
            return None
        retry_at_s = [self._failures.retry_at_s(job) for job in waiting]
        due = [job for job, at_s in zip(waiting, retry_at_s, strict=True) if at_s <= now_s]
        if not due:
            self._admission.forget()
            return min(retry_at_s) - now_s
        ready = [job for job in due if not await self._unreadable(job)]
        if not ready:
            return _UNREADABLE_S
        block = await self._admission.block()
        if block is None:
            self.block_reason = ""
            await self._attempt(ready[0])
            return 0.0
        self.block_reason = f"{block.reason} ({block.load})" if block.load else block.reason
        self._blocked = block.report
        if block.report:
            several = len(self._board.devices_of(ready[0])) > 1  # which would take turns to say why
            await self._queue_again(ready[0], _NONE_IS_FREE if several else block.reason)
        return block.retry_s

    async def _unreadable(self, job: Job) -> bool:
        """True where the kernels of a job cannot be read now, which it then has as its reason."""
        reason = self._results.unreadable(job)
        if reason and job.reason != reason:
            await self._queue_again(job, reason)
        return bool(reason)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a change, so long at most."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except asyncio.TimeoutError:
            return

    async def _queue_again(self, job: Job, reason: str) -> None:
        """Record why a job waits, if it still does."""
        try:
            await self._board.change(job.id, JobState.QUEUED, reason, of=(JobState.QUEUED,))
        except (NotNowError, NoSuchJobError):
            return

    # --- an attempt ----------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        if await self._results.has_ended(job):
            await self._finish(job, "")
            return
        try:
            job = await self._board.change(
                job.id, JobState.RUNNING, of=(JobState.QUEUED,), started_on=self.device
            )
        except (NotNowError, NoSuchJobError):  # cancelled or paused just now
            return
        self.running, self._trials = job, 0
        result = AttemptResult("interrupted")
        with about(job=job.id):
            _LOG.info("attempt %d on %s begins", job.attempts, self.device)
            try:
                result, stop_reason = await self._stored_result(job)
                outcome = ": ".join(filter(None, (result.status, stop_reason or result.message)))
                run = "" if result.run is None else f"run {result.run}, "
                _LOG.info("attempt %d has ended, %s: %s%d trials", job.attempts, outcome, run, self._trials)
                await self._conclude(job, result, stop_reason)
            finally:
                self.running = None
                await self._results.conclude(job, result)

    async def _stored_result(self, job: Job) -> tuple[AttemptResult, str]:
        """Run an attempt and store its result; returns it, and why the attempt was stopped if it was."""
        try:
            result, stop_reason = await self._run_attempt(job)
            return await self._results.store(job, result), stop_reason
        except Exception as error:  # noqa: BLE001 - a job must not be stuck because of an unexpected exception
            _LOG.exception("unexpected exception")
            return AttemptResult("crashed", f"unexpected exception of the daemon: {error!r}"), ""

    async def _run_attempt(self, job: Job) -> tuple[AttemptResult, str]:
        """Run an attempt to its end; returns its result, and why it was stopped if it was."""

        def on_event(kind: str, data: Mapping[str, Any]) -> None:
            if kind == "trial" and not data.get("confirming"):  # a confirmation is no progress
                self._trials += 1
            self._results.on_event(job, kind, data)

        try:
            attempt = await self._started(self._results.attempt_spec(job), on_event)
            if attempt is None:
                return AttemptResult("interrupted"), self._stop_reason
        except ChildError as error:
            return AttemptResult("unavailable", str(error)), ""
        except (RefusedError, InputError) as error:
            return AttemptResult("refused", str(error)), ""
        ended = asyncio.create_task(attempt.result())
        try:
            stop_reason = await self._watch(job, attempt, ended)
        finally:
            if not ended.done():
                await attempt.stop(GRACE_S)
            self._admission.left()
        return await ended, stop_reason

    async def _started(self, spec: AttemptSpec, on_event: OnEvent) -> AttemptProcess | None:
        """Start a process, which may take longer than the end of the daemon; None where that comes first."""
        starting = asyncio.ensure_future(self._start_attempt(spec, on_event))
        try:
            while not starting.done() and not self._stop_reason:
                self._changed.clear()
                await self._done_or_changed(starting, None)
            return starting.result() if starting.done() else None
        finally:
            starting.cancel()

    async def _watch(self, job: Job, attempt: AttemptProcess, ended: "asyncio.Task[AttemptResult]") -> str:
        """Wait for the end of an attempt, or for a reason to stop it, which is returned."""
        while not ended.done():
            self._changed.clear()
            self._results.count_cost(job, *attempt.spent)
            reason, recheck_s = await self._reason_to_stop(job)
            if reason:
                return reason
            await self._done_or_changed(ended, recheck_s)
        return ""

    async def _done_or_changed(self, work: "asyncio.Future[Any]", longest_s: float | None) -> None:
        """Wait for the end of some work or a change, so long at most."""
        changed = asyncio.create_task(self._changed.wait())
        await asyncio.wait({work, changed}, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()

    async def _reason_to_stop(self, job: Job) -> tuple[str, float | None]:
        """Return the reason to stop the attempt (empty for none), and the s until the next check at most."""
        if self._stop_reason:
            return self._stop_reason, None
        now = self._board.get(job.id)
        if now is None or now.state is not JobState.RUNNING:
            return "a client stopped it", None
        if job.origin in OWN and self._client_waits(job):
            return "a client's job goes first", None
        block = await self._admission.block(running=True)
        if block is None:
            return "", self._admission.recheck_s
        return block.reason, None

    def _client_waits(self, job: Job) -> bool:
        """True where a job that is not our own would be taken before this one of ours, if both waited."""
        now_s = asyncio.get_running_loop().time()
        waiting = (other for other in self._board.waiting(self.device) if not self._results.unreadable(other))
        ready = [other for other in waiting if self._failures.retry_at_s(other) <= now_s]
        if not ready or ready[0].origin in OWN or not self._board.goes_before(ready[0], job):
            return False
        others = (self.peers.get(name) for name in self._board.devices_of(ready[0]) if name != self.device)
        return not any(peer is not None and peer.goes_instead(job) for peer in others)

    def goes_instead(self, job: Job) -> bool:
        """True where this queue takes a client's job, so that a job of ours on another device goes on.

        It is idle, or runs a job of ours that gives way sooner: one that would be taken later.
        """
        if self.running is None or self.running.origin not in OWN:
            return self.takes_jobs
        sooner, later = self._board.goes_before(self.running, job), self._board.goes_before(job, self.running)
        return later if sooner or later else self.running.id > job.id

    async def _conclude(self, job: Job, result: AttemptResult, stop_reason: str) -> None:
        """Change the job to its next state."""
        if result.status == "busy":
            self._admission.forget()
        state, reason = self._failures.next_state(job, result, stop_reason, self._trials)
        if await self._change(job, state, reason, of=(JobState.RUNNING,)):
            return
        self._failures.forget(job)  # a client had it stopped
        if state is JobState.FINISHED:  # but it had ended before
            await self._finish(job, reason)

    async def _finish(self, job: Job, reason: str) -> None:
        """Finish a job that waits or is paused, and has nothing left to do; unless it is cancelled."""
        if await self._change(job, JobState.QUEUED, reason, of=(JobState.QUEUED, JobState.PAUSED)):
            await self._change(job, JobState.FINISHED, reason, of=(JobState.QUEUED,))

    async def _change(self, job: Job, state: JobState, reason: str, *, of: Collection[JobState]) -> bool:
        """Change a job's state, however long the database takes; False where it is in none of ``of``."""
        while True:
            try:
                await self._board.change(job.id, state, reason, of=of)
            except StoreError as error:  # noqa: PERF203 - retried
                self.block_reason = f"the database cannot be used: {error}"
                await asyncio.sleep(_STORE_WAIT_S)
            except (NotNowError, NoSuchJobError):
                return False
            else:
                return True


class DeviceQueues:
    """The queues of all devices, by the device's name."""

    def __init__(self, by_device: Mapping[str, DeviceQueue]) -> None:
        self._queues = dict(by_device)
        for queue in self._queues.values():
            queue.peers = self._queues

    def __getitem__(self, device: str) -> DeviceQueue:
        """The queue of a device."""
        return self._queues[device]

    @property
    def running(self) -> list[int]:
        """Numbers of the jobs that run."""
        return [queue.running.id for queue in self._queues.values() if queue.running is not None]

    @property
    def block_reasons(self) -> list[str]:
        """Reasons that next jobs do not start, without duplicates."""
        return sorted({queue.block_reason for queue in self._queues.values() if queue.block_reason})

    def runs(self, device: str) -> bool:
        """True where a job runs on a device."""
        return device in self._queues and self._queues[device].running is not None

    def idle(self, device: str) -> bool:
        """True where no job runs on a device or waits for it."""
        return device in self._queues and self._queues[device].idle

    def start(self) -> list[asyncio.Task[None]]:
        """Run jobs; returns a task per device, which ends after ``stop``."""
        return [asyncio.create_task(queue.run(), name=device) for device, queue in self._queues.items()]

    def wake(self) -> None:
        """Have all look again: something has changed."""
        for queue in self._queues.values():
            queue.wake()

    def notify(self, jobs: Sequence[Job]) -> None:
        """Have those look again that jobs which have changed concern."""
        for queue in self._queues.values():
            for job in jobs:
                queue.notify(job)

    def stop(self, reason: str) -> None:
        """Start no more jobs, and stop those that run; they wait again, for that reason."""
        for queue in self._queues.values():
            queue.stop(reason)
