"""What is done next on a device, and when: one lane per device, one job at a time in it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.daemon.desk import NoSuchJobError, NotNowError, RefusedError
from tuner.daemon.jobs.board import Board, turn
from tuner.daemon.lanes.gates import Gates
from tuner.daemon.logs import about
from tuner.daemon.running.errand import Ending, Errand
from tuner.errors import ChildError, StoreError
from tuner.jobs import OWN, Job, State

GRACE_S = 5.0
"""For a job to stop: what it measured is stored and its clocks are restored by then; else it is killed."""

MOST_CRASHES = 4
"""In a row, without a trial between them: then the job is at fault, and not what happened to it."""

_FIRST_WAIT_S = 2.0  # after an attempt that failed
_LONGEST_WAIT_S = 600.0  # what is mended is noticed after so long at the latest
_LONGEST_DOUBLING = 16  # beyond any wait
_STORE_WAIT_S = 1.0  # until the database is asked again
_LOG = logging.getLogger(__name__)

Tell = Callable[[str, Mapping[str, Any]], None]


class Attempt(Protocol):
    """A process that works at a job (``tuner.daemon.running.runner.Runner``)."""

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds of windows and joules so far."""

    async def stop(self, grace_s: float) -> None:
        """Have it end."""

    async def ended(self) -> Ending:
        """How it ended, once it has."""


Launch = Callable[[Errand, Tell], Awaitable[Attempt]]


class Office(Protocol):
    """Whom a lane asks what to tell its attempts, and tells what came of them."""

    async def has_ended(self, job: Job) -> bool:
        """Whether its run has come to its end, and only nobody heard of it."""

    def errand(self, job: Job) -> Errand:
        """What an attempt is told.

        Raises:
            RefusedError: there is nothing to do any more.
        """

    def heard(self, job: Job, kind: str, data: Mapping[str, Any]) -> None:
        """An attempt tells something."""

    def spent(self, job: Job, seconds: float, joules: float) -> None:
        """What an attempt has taken so far."""

    async def concluded(self, job: Job, ending: Ending) -> None:
        """An attempt has ended, and its job is in its next state."""


def wait_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, _LONGEST_DOUBLING), _LONGEST_WAIT_S)


@dataclass
class Record:
    """How a job has failed so far; forgotten when the daemon ends: that may have been the reason.

    Attributes:
        failures: attempts in a row that could not go on.
        crashes: attempts in a row that crashed without a trial.
        rests_until_s: the loop's time before which it is not tried again.
    """

    failures: int = 0
    crashes: int = 0
    rests_until_s: float = 0.0


class Lane:
    """Takes the jobs of one device, one after the other.

    Args:
        device: as named, e.g. ``cuda:0``.
        board: where its jobs are.
        gates: whether one may run now.
        office: see there.
        launch: starts an attempt.

    Attributes:
        running: the job whose process lives; also after it was cancelled, until the process has ended.
        holds: why the next job does not start; empty where nothing holds it, or there is none.
    """

    def __init__(self, device: str, board: Board, gates: Gates, office: Office, launch: Launch) -> None:
        self.device = device
        self.running: Job | None = None
        self.holds = ""
        self._board = board
        self._gates = gates
        self._office = office
        self._launch = launch
        self._news = asyncio.Event()
        self._records: dict[int, Record] = {}
        self._lane = Record()
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
                self.holds, rests_s = "an error of the daemon, which its log tells", _LONGEST_WAIT_S
            if rests_s is None or rests_s > 0:
                await self._rest(rests_s)

    async def _next(self) -> float | None:
        """Do one job, or say for how long there is nothing to do at most; None until there is news."""
        now_s = asyncio.get_running_loop().time()
        waiting = list(self._board.waiting(self.device))
        rests_until_s = [self._rests_until_s(job) for job in waiting]
        ready = [job for job, until_s in zip(waiting, rests_until_s, strict=True) if until_s <= now_s]
        if not ready or self._lane.rests_until_s > now_s:
            self._gates.forget()
            if not waiting:
                self.holds = ""
                self._records.clear()
                return None
            return max(min(rests_until_s), self._lane.rests_until_s) - now_s
        hold = await self._gates.hold()
        if hold is None:
            self.holds = ""
            await self._attempt(ready[0])
            return 0.0
        self.holds = hold.reason
        if hold.tell:
            await self._queue_again(ready[0], hold.reason)
        return hold.again_s

    def _rests_until_s(self, job: Job) -> float:
        """The loop's time before which a job that failed is not tried again."""
        return self._records.get(job.id, Record()).rests_until_s

    async def _rest(self, seconds: float | None) -> None:
        """Wait for news, so long at most."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except asyncio.TimeoutError:
            return

    async def _queue_again(self, job: Job, reason: str) -> None:
        """Say why a job waits, if it still does."""
        try:
            await self._board.change(job.id, State.QUEUED, reason, of=(State.QUEUED,))
        except (NotNowError, NoSuchJobError):
            return

    # --- an attempt ----------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        if await self._office.has_ended(job):
            await self._finish(job, "")
            return
        try:
            job = await self._board.change(job.id, State.RUNNING, of=(State.QUEUED,), started=True)
        except (NotNowError, NoSuchJobError):  # cancelled or paused just now
            return
        self.running = job
        self._trials = 0
        with about(job=job.id):
            _LOG.info("attempt %d on %s begins", job.attempts, self.device)
            try:
                ending, why = await self._run(job)
            except Exception as error:  # noqa: BLE001 - a job must not be stuck because of what nobody thought of
                _LOG.exception("an error of the daemon")
                ending, why = Ending("crashed", f"an error of the daemon: {error!r}"), ""
            self._gates.left()
            said = ": ".join(filter(None, (ending.status, why or ending.message)))
            _LOG.info("attempt %d has ended, %s", job.attempts, said)
            await self._conclude(job, ending, why)
            self.running = None
            await self._office.concluded(job, ending)

    async def _run(self, job: Job) -> tuple[Ending, str]:
        """See an attempt to its end; returns that, and why it was stopped if it was."""

        def tell(kind: str, data: Mapping[str, Any]) -> None:
            if kind == "trial":
                self._trials += 1
            self._office.heard(job, kind, data)

        try:
            attempt = await self._launch(self._office.errand(job), tell)
        except ChildError as error:
            return Ending("unavailable", str(error)), ""
        except RefusedError as error:
            return Ending("refused", str(error)), ""
        ended = asyncio.create_task(attempt.ended())
        try:
            why = await self._watch(job, attempt, ended)
        finally:
            if not ended.done():
                await attempt.stop(GRACE_S)
        return await ended, why

    async def _watch(self, job: Job, attempt: Attempt, ended: "asyncio.Task[Ending]") -> str:
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

    async def _reason_to_stop(self, job: Job) -> tuple[str, float | None]:
        """Why the attempt must not go on, and in how many seconds to ask again at the latest."""
        if self._stopping:
            return self._stopping, None
        known = self._board.get(job.id)
        if known is None or known.state is not State.RUNNING:
            return "a client stopped it", None
        if job.origin in OWN and self._client_waits(job):
            return "a client's job goes first", None
        hold = await self._gates.hold(running=True)
        if hold is None:
            return "", self._gates.again_s
        return hold.reason, None

    def _client_waits(self, job: Job) -> bool:
        """True where a job that is not our own would be taken before this one of ours, if both waited."""
        now_s = asyncio.get_running_loop().time()
        ready = [one for one in self._board.waiting(self.device) if self._rests_until_s(one) <= now_s]
        return bool(ready) and ready[0].origin not in OWN and turn(ready[0]) < turn(job)

    async def _conclude(self, job: Job, ending: Ending, why: str) -> None:
        """Bring the job into its next state, however long the database lets us wait."""
        state, reason = self._judge(job, ending, why)
        while True:
            try:
                await self._board.change(job.id, state, reason, of=(State.RUNNING,))
            except StoreError as error:
                self.holds = f"the database cannot be used: {error}"
                await asyncio.sleep(_STORE_WAIT_S)
                continue
            except (NotNowError, NoSuchJobError):  # a client had it stopped
                self._records.pop(job.id, None)
                if state is State.FINISHED:  # but it was faster
                    await self._finish(job, reason)
            return

    async def _finish(self, job: Job, reason: str) -> None:
        """Finish a job that waits or is paused, and has nothing left to do."""
        with contextlib.suppress(NotNowError, NoSuchJobError):  # it was cancelled
            await self._board.change(job.id, State.QUEUED, reason, of=(State.QUEUED, State.PAUSED))
            await self._board.change(job.id, State.FINISHED, reason, of=(State.QUEUED,))

    def _judge(self, job: Job, ending: Ending, why: str) -> tuple[State, str]:
        """The state that follows from an ending, and the reason; keeps count of failures."""
        if ending.status in ("finished", "limited"):
            self._records.pop(job.id, None)
            self._lane = Record()
            return State.FINISHED, ending.message
        if ending.status == "refused":
            self._records.pop(job.id, None)
            return State.FAILED, ending.message
        if why or ending.status == "busy":
            self._lane = Record()
            if ending.status == "busy":
                self._gates.forget()
                return State.QUEUED, f"the GPU is busy: {ending.message}"
            return State.QUEUED, why
        return self._failed(job, ending)

    def _failed(self, job: Job, ending: Ending) -> tuple[State, str]:
        """What becomes of a job whose attempt could not go on."""
        now_s = asyncio.get_running_loop().time()
        record = self._records.setdefault(job.id, Record())
        if self._trials:  # each attempt that gets on is one less: that comes to an end by itself
            record.failures = record.crashes = 0
        record.failures += 1
        record.crashes += ending.status == "crashed"
        if record.crashes >= MOST_CRASHES:
            del self._records[job.id]
            return State.FAILED, f"{record.crashes} attempts crashed, the last: {ending.message}"
        record.rests_until_s = now_s + wait_s(record.failures)
        if ending.status == "unavailable":  # that concerns the others, too
            self._lane.failures += 1
            self._lane.rests_until_s = now_s + wait_s(self._lane.failures)
        return State.QUEUED, f"{ending.message}; tried again in {wait_s(record.failures):.0f} s"
