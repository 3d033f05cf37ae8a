"""What is done next on a device, and when: one lane per device, one job at a time in it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from tuner.daemon.attempts.messages import Ending, Errand
from tuner.daemon.devices.admission import Gates
from tuner.daemon.devices.budgets import LONGEST_WAIT_S, Failures
from tuner.daemon.devices.results import Office
from tuner.daemon.interface import NoSuchJobError, NotNowError, RefusedError
from tuner.daemon.queue.board import Board, turn
from tuner.errors import ChildError, InputError, StoreError
from tuner.model.jobs import OWN, JobRecord, JobState
from tuner.system.logs import about

GRACE_S = 5.0
"""For a job to stop: what it measured is stored and its clocks are restored by then; else it is killed."""

_STORE_WAIT_S = 1.0  # until the database is asked again
_LOG = logging.getLogger(__name__)

Tell = Callable[[str, Mapping[str, Any]], None]


class Attempt(Protocol):
    """A process that works at a job (``tuner.daemon.attempts.runner.Runner``)."""

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds of windows and joules so far."""

    async def stop(self, grace_s: float) -> None:
        """Have it end."""

    async def ended(self) -> Ending:
        """How it ended, once it has."""


Launch = Callable[[Errand, Tell], Awaitable[Attempt]]


class Lane:
    """Takes the jobs of one device, one after the other.

    Args:
        device: as named, e.g. ``cuda:0``.
        board: where its jobs are.
        gates: whether one may run now.
        office: whom it asks what to tell attempts, and tells what came of them.
        launch: starts an attempt.

    Attributes:
        running: the job whose process lives; also after it was cancelled, until the process has ended.
        holds: why the next job does not start; empty where nothing holds it, or there is none.
    """

    def __init__(self, device: str, board: Board, gates: Gates, office: Office, launch: Launch) -> None:
        self.device = device
        self.running: JobRecord | None = None
        self.holds = ""
        self._board = board
        self._gates = gates
        self._office = office
        self._launch = launch
        self._news = asyncio.Event()
        self._failures = Failures()
        self._stopping = ""
        self._trials = 0

    @property
    def idle(self) -> bool:
        """True where no job runs or waits."""
        return self.running is None and not any(self._board.waiting(self.device))

    def look(self) -> None:
        """Something has changed that may concern this lane."""
        self._news.set()

    def stop(self, reason: str) -> None:
        """Begin nothing more, and stop what runs; its job waits again, for that reason."""
        self._stopping = reason
        self.look()

    async def live(self) -> None:
        """Do jobs until stopped."""
        while not self._stopping:
            self._news.clear()
            try:
                rests_s = await self._next()
            except StoreError as error:
                self.holds, rests_s = f"the database cannot be used: {error}", _STORE_WAIT_S
            except Exception:  # noqa: BLE001 - what nobody thought of must not end the work on a device
                _LOG.exception("%s: an error of the daemon", self.device)
                self.holds, rests_s = "an error of the daemon, which its log tells", LONGEST_WAIT_S
            if rests_s is None or rests_s > 0:
                await self._rest(rests_s)

    async def _next(self) -> float | None:
        """Do one job, or say for how long there is nothing to do at most; None until there is news."""
        now_s = asyncio.get_running_loop().time()
        waiting = list(self._board.waiting(self.device))
        if not waiting:
            self.holds = ""
            self._gates.forget()
            self._failures.forget_jobs()
            return None
        rests_until_s = [self._failures.rests_until_s(job) for job in waiting]
        ready = [job for job, until_s in zip(waiting, rests_until_s, strict=True) if until_s <= now_s]
        if not ready:
            self._gates.forget()
            return min(rests_until_s) - now_s
        hold = await self._gates.hold()
        if hold is None:
            self.holds = ""
            await self._attempt(ready[0])
            return 0.0
        self.holds = f"{hold.reason} ({hold.figure})" if hold.figure else hold.reason
        if hold.tell:
            await self._queue_again(ready[0], hold.reason)
        return hold.again_s

    async def _rest(self, seconds: float | None) -> None:
        """Wait for news, so long at most."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except asyncio.TimeoutError:
            return

    async def _queue_again(self, job: JobRecord, reason: str) -> None:
        """Say why a job waits, if it still does."""
        try:
            await self._board.change(job.id, JobState.QUEUED, reason, of=(JobState.QUEUED,))
        except (NotNowError, NoSuchJobError):
            return

    # --- an attempt ----------------------------------------------------------------------------------

    async def _attempt(self, job: JobRecord) -> None:
        if await self._office.has_ended(job):
            await self._finish(job, "")
            return
        try:
            job = await self._board.change(job.id, JobState.RUNNING, of=(JobState.QUEUED,), started=True)
        except (NotNowError, NoSuchJobError):  # cancelled or paused just now
            return
        self.running, self._trials = job, 0
        ending = Ending("interrupted")
        with about(job=job.id):
            _LOG.info("attempt %d on %s begins", job.attempts, self.device)
            try:
                ending, why = await self._outcome(job)
                said = ": ".join(filter(None, (ending.status, why or ending.message)))
                run = "" if ending.run is None else f"run {ending.run}, "
                _LOG.info("attempt %d has ended, %s: %s%d trials", job.attempts, said, run, self._trials)
                await self._conclude(job, ending, why)
            finally:
                self.running = None
                await self._office.concluded(job, ending)

    async def _outcome(self, job: JobRecord) -> tuple[Ending, str]:
        """How an attempt ended, all that it brought being stored; and why it was stopped if it was."""
        try:
            ending, why = await self._run(job)
            return await self._office.received(job, ending), why
        except Exception as error:  # noqa: BLE001 - a job must not be stuck because of what nobody thought of
            _LOG.exception("an error of the daemon")
            return Ending("crashed", f"an error of the daemon: {error!r}"), ""

    async def _run(self, job: JobRecord) -> tuple[Ending, str]:
        """See an attempt to its end; returns that, and why it was stopped if it was."""

        def tell(kind: str, data: Mapping[str, Any]) -> None:
            if kind == "trial" and not data.get("confirming"):  # what is measured again gets nobody on
                self._trials += 1
            self._office.heard(job, kind, data)

        try:
            attempt = await self._launch(self._office.errand(job), tell)
        except ChildError as error:
            return Ending("unavailable", str(error)), ""
        except (RefusedError, InputError) as error:
            return Ending("refused", str(error)), ""
        ended = asyncio.create_task(attempt.ended())
        try:
            why = await self._watch(job, attempt, ended)
        finally:
            if not ended.done():
                await attempt.stop(GRACE_S)
            self._gates.left()
        return await ended, why

    async def _watch(self, job: JobRecord, attempt: Attempt, ended: "asyncio.Task[Ending]") -> str:
        """Wait for the end of an attempt, or for a reason to stop it, which is returned."""
        while not ended.done():
            self._news.clear()
            self._office.spent(job, *attempt.spent)
            why, again_s = await self._reason_to_stop(job)
            if why:
                return why
            news = asyncio.create_task(self._news.wait())
            either: set[asyncio.Task[Any]] = {ended, news}
            await asyncio.wait(either, timeout=again_s, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        return ""

    async def _reason_to_stop(self, job: JobRecord) -> tuple[str, float | None]:
        """Why the attempt must not go on, and in how many seconds to ask again at the latest."""
        if self._stopping:
            return self._stopping, None
        known = self._board.get(job.id)
        if known is None or known.state is not JobState.RUNNING:
            return "a client stopped it", None
        if job.origin in OWN and self._client_waits(job):
            return "a client's job goes first", None
        hold = await self._gates.hold(running=True)
        if hold is None:
            return "", self._gates.again_s
        return hold.reason, None

    def _client_waits(self, job: JobRecord) -> bool:
        """True where a job that is not our own would be taken before this one of ours, if both waited."""
        now_s = asyncio.get_running_loop().time()
        ready = [
            one for one in self._board.waiting(self.device) if self._failures.rests_until_s(one) <= now_s
        ]
        return bool(ready) and ready[0].origin not in OWN and turn(ready[0]) < turn(job)

    async def _conclude(self, job: JobRecord, ending: Ending, why: str) -> None:
        """Bring the job into its next state."""
        if ending.status == "busy":
            self._gates.forget()
        state, reason = self._failures.judge(job, ending, why, self._trials)
        if await self._change(job, state, reason, of=(JobState.RUNNING,)):
            return
        self._failures.forget(job)  # a client had it stopped
        if state is JobState.FINISHED:  # but it was faster
            await self._finish(job, reason)

    async def _finish(self, job: JobRecord, reason: str) -> None:
        """Finish a job that waits or is paused, and has nothing left to do; unless it is cancelled."""
        if await self._change(job, JobState.QUEUED, reason, of=(JobState.QUEUED, JobState.PAUSED)):
            await self._change(job, JobState.FINISHED, reason, of=(JobState.QUEUED,))

    async def _change(
        self, job: JobRecord, state: JobState, reason: str, *, of: Collection[JobState]
    ) -> bool:
        """Bring a job into a state, however long the database lets us wait; False where it has left these."""
        while True:
            try:
                await self._board.change(job.id, state, reason, of=of)
            except StoreError as error:  # noqa: PERF203 - that is what it is tried again for
                self.holds = f"the database cannot be used: {error}"
                await asyncio.sleep(_STORE_WAIT_S)
            except (NotNowError, NoSuchJobError):
                return False
            else:
                return True
