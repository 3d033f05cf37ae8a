"""The service: requests of clients, answered by the board of jobs, the device queues and the answers."""

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from tuner.client.answer_values import DeviceStatus, HostDocument, PowerDocument, Status, TrialData, Windows
from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.answers.replies import PreparedReply
from tuner.daemon.backlog.backlog import Backlog
from tuner.daemon.backlog.maintenance import Maintenance, Scrub
from tuner.daemon.devices.admission import Admission, CheckUsers, local_now, window_status
from tuner.daemon.devices.queue import (
    GRACE_S,
    AttemptResults,
    DeviceQueue,
    DeviceQueues,
    FailureCount,
    StartAttempt,
)
from tuner.daemon.interface import NotNowError, Peer, Question, Reply, measured_saving
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.events import (
    EventFeed,
    EventPump,
    FollowedState,
    LiveEvents,
    Subscriptions,
    job_events,
    known_job,
)
from tuner.daemon.jobs.shares import ABSENT, Budgets, Placement, Shares, check_may_change
from tuner.daemon.jobs.specs import checked, with_site_rules
from tuner.daemon.machine import PowerWatch
from tuner.daemon.metrics import Metrics
from tuner.daemon.settings import Settings
from tuner.daemon.state import State
from tuner.daemon.stored_runs import Archive
from tuner.database.storage import Storage
from tuner.model.errors import InputError, StoreError, UnknownNameError
from tuner.model.jobs import ACTIVE, OWN, Event, Job, JobKind, JobSpec, JobState, Origin
from tuner.model.units import moment
from tuner.model.version import VERSION

_STOP_S = GRACE_S + 2.0  # for device queues to stop: an attempt's grace, and to store what it reports
_CANCEL_S = 1.0  # for device queues that were cancelled to store what they know
_RETRY_S = 1.0  # a database that cannot be used at the start
_LOG = logging.getLogger(__name__)


class Service:
    """The requests of clients, all from the daemon's event loop. Call ``begin`` first and ``end`` last.

    Args:
        state: settings, kernels, devices; changed by its owner, who then calls ``adopt``.
        storage: the database.
        start_attempt: starts the process of an attempt.
        check_users: looks for other users of a GPU.
        answerer: knows the best configurations.
        metrics: count what happens.
        wall: local time.

    Attributes:
        archive: stored runs and answers.

    Raises:
        InputError: what was asked for is wrong; the message names it and what would be right.
        NoSuchJobError: no such job.
        NotYoursError: the job is another's, and this client may not change it.
        NotNowError: it cannot be done now.
        StoreError: the database cannot be used just now.
    """

    def __init__(
        self,
        state: State,
        *,
        storage: Storage,
        start_attempt: StartAttempt,
        check_users: CheckUsers,
        answerer: Answerer,
        metrics: Metrics,
        wall: Callable[[], datetime] = local_now,
    ) -> None:
        self._state = state
        self._wall = wall
        self._storage = storage
        self._answerer = answerer
        self._metrics = metrics
        self.archive = Archive(storage, answerer)
        self._live = LiveEvents(EventFeed(), storage, self._states)
        self._power = PowerWatch(lambda: state.identities, self.runs, self._live.power)
        self._subscriptions = Subscriptions(self._heard)
        self._events = EventPump(storage, self._subscriptions)
        self._shares = Shares(lambda: state.settings.limits)
        self._board = Board(
            storage,
            self._subscriptions,
            self._jobs_changed,
            self._shares,
            hear=self._live.job,
            placement=Placement(lambda: state.identities),
        )
        self._budgets = Budgets(storage)
        self._backlog = Backlog(answerer)
        self._maintenance = Maintenance(
            state,
            storage=storage,
            board=self._board,
            budgets=self._budgets,
            answerer=answerer,
            backlog=self._backlog,
            wall=wall,
        )
        results = AttemptResults(
            state,
            storage=storage,
            board=self._board,
            events=self._events,
            budgets=self._budgets,
            backlog=self._backlog,
            metrics=metrics,
            maintenance=self._maintenance,
            wall=wall,
        )
        crashes: dict[int, FailureCount] = {}
        self._queues = DeviceQueues(
            {
                device: DeviceQueue(
                    device,
                    self._board,
                    Admission(
                        identity,
                        settings=lambda: state.settings,
                        budgets=self._budgets,
                        check_users=check_users,
                        wall=wall,
                        halted=lambda: state.halted,
                    ),
                    results,
                    start_attempt,
                    crashes=crashes,
                )
                for device, identity in state.identities.items()
            }
        )
        self._scrub = Scrub(
            storage,
            metrics=metrics,
            busy=lambda: bool(self._queues.running),
            refresh=lambda: self._maintenance.refresh(None),
            wall=wall,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._begun_at, self._begun_s = wall(), time.monotonic()
        self._why_not_loaded = ""
        self._ended = asyncio.Event()
        storage.failed = metrics.store_errors.inc

    # --- its life ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Load what is stored, and start to work; retry where the database cannot be used now."""
        for device, identity in self._state.identities.items():
            self._metrics.device(identity.uuid, device, identity.name, modelled=identity.modelled)
        self._scrub.begin()
        if not await self._load():
            self._tasks = [asyncio.create_task(self._load_later(), name="loading")]

    async def _load(self) -> bool:
        """Load what is stored and start the device queues; False where the database cannot be used."""
        try:
            for job in await self._board.load():
                _LOG.info("job %d was running when the daemon ended: now %s", job.id, job.state.value)
            await self._board.mark_absent()
            await self._maintenance.begin()
        except StoreError as error:
            if str(error) != self._why_not_loaded:  # once, not at every attempt
                _LOG.error("no job is done: %s", error)
            self._why_not_loaded = str(error)
            return False
        self._tasks = self._queues.start()
        return True

    async def _load_later(self) -> None:
        while not self._ended.is_set() and not await self._load():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _RETRY_S)

    async def end(self) -> None:
        """Stop what runs, and store what is only in memory; takes some seconds at most."""
        self._ended.set()
        await self._scrub.end()
        self._queues.stop("the daemon was stopped")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CANCEL_S)
        self._events.close()
        await self._board.settled()
        self._subscriptions.close()
        self._live.close()
        self._power.close()
        await self._maintenance.end()

    @property
    def alive(self) -> bool:
        """False where a device queue has ended unexpectedly."""
        return not any(task.done() for task in self._tasks)

    def runs(self, device: str) -> bool:
        """True where a job runs on a device."""
        return self._queues.runs(device)

    def idle(self, device: str) -> bool:
        """True where no job runs on a device or waits for it."""
        return self._queues.idle(device)

    async def adopt(self) -> None:
        """Adopt a state that has changed."""
        state = self._state
        self._answerer.adopt(state)
        self._backlog.reconsider()
        await self._board.mark_absent()
        await self._maintenance.refresh(None)
        await self._maintenance.prune()
        await self._maintenance.queue_sets()
        self.wake()

    @contextlib.contextmanager
    def _known(self, workloads: Iterable[str]) -> Iterator[None]:
        """Tell kernels that are left out for now from those that nobody knows.

        Raises:
            NotNowError: a kernel cannot be read now.
        """
        try:
            yield
        except UnknownNameError as error:
            reason = self._state.unreadable(workloads)
            if reason:
                raise NotNowError(f"{error}; {reason}") from error
            raise

    def wake(self) -> None:
        """Look again whether jobs may run."""
        self._queues.wake()
        self._maintenance.backlog_may_have_changed()

    def _jobs_changed(self, jobs: Sequence[Job]) -> None:
        self._queues.notify(jobs)
        self._maintenance.backlog_may_have_changed()  # there may be room for another job

    # --- jobs ----------------------------------------------------------------------------------------

    async def submit(self, spec: JobSpec, peer: Peer, priority: float = 0.0) -> Job:
        """Queue a job; durable when this returns."""
        if spec.kind is not JobKind.TUNE:
            raise InputError("kind: clients submit searches; the daemon decides what is measured again")
        state = self._state
        with self._known(spec.workloads):
            spec = checked(with_site_rules(spec, state.settings.tuning), state.catalog, state.identities)
        return await self._board.add(
            spec,
            origin=Origin.CLIENT,
            priority=priority,
            submitter=peer.user,
        )

    async def job(self, number: int) -> Job:
        """One job."""
        return self._board.located(await known_job(number, self._storage.read))

    async def jobs(
        self, states: Sequence[JobState] = (), limit: int = 100, before: int | None = None
    ) -> list[Job]:
        """Jobs, newest first; those below the number ``before``."""
        jobs = await self._storage.read(lambda db: db.jobs.jobs(states, limit, before))
        return [self._board.located(job) for job in jobs]

    async def cancel(self, number: int, peer: Peer) -> Job:
        """Cancel a job; what it stored stays. Ending a cancelled job again changes nothing."""
        await self._check_may_change(number, peer, "cancel")
        job = self._board.get(number)
        if job is not None and job.origin in OWN:  # before it is: else it would be queued again at once
            self._backlog.tried(job.spec)
        return await self._board.change(number, JobState.CANCELLED, _by(peer))

    async def pause(self, number: int, peer: Peer) -> Job:
        """Stop a job until a client resumes it."""
        await self._check_may_change(number, peer, "pause")
        return await self._board.change(number, JobState.PAUSED, _by(peer))

    async def resume(self, number: int, peer: Peer) -> Job:
        """Queue a paused job again; it goes on where it was."""
        await self._check_may_change(number, peer, "resume")
        job = await self._board.change(number, JobState.QUEUED, of=(JobState.PAUSED, JobState.QUEUED))
        await self._board.mark_absent()
        return self._board.get(number) or job

    async def _check_may_change(self, number: int, peer: Peer, verb: str) -> None:
        job = self._board.get(number) or await self.job(number)
        check_may_change(job, peer, verb, self._state.settings.limits.manage)

    def events(self, number: int, after: int = 0) -> AsyncIterator[Event]:
        """Stored events of a job after a number, then new ones as they happen; ends with the job."""
        return job_events(number, after, subscriptions=self._subscriptions, storage=self._storage)

    async def follow(self, position: str = "", *, power: bool = False) -> AsyncGenerator[bytes, None]:
        """Everything: the present, or what was missed since a place; then all that happens.

        Args:
            position: of the last event that the client has; empty for none.
            power: sample the power of the devices meanwhile, and tell of it.
        """
        with self._power.watching() if power else contextlib.nullcontext():
            async with contextlib.aclosing(self._live.follow(position, power=power)) as events:
                async for event in events:
                    yield event

    async def power(self) -> PowerDocument:
        """Power of the devices now; see ``docs/daemon-api.md``."""
        return await self._power.now()

    def _heard(self, event: Event) -> None:
        """Tell followers of everything, and what a trial drew, of an event of a job."""
        self._live.event(event)
        job = None if event.job is None else self._board.get(event.job)
        if event.kind == "trial" and job is not None:
            self._power.trial(job.device, cast(TrialData, event.data))

    # --- answers -------------------------------------------------------------------------------------

    def best(self, question: Question, peer: Peer) -> Reply:
        """The best configurations known now, from memory, without waiting."""
        del peer
        self._scrub.asked()
        with self._known(question.workloads):
            prepared = self._answerer.find(question)
        reply = prepared.reply
        origin = "stale" if reply.origin == "stored" and reply.stale else reply.origin
        self._metrics.best.labels(origin).inc()
        self._note_use(prepared, question)
        if reply.origin == "stored" and not reply.stale:
            return reply
        refinement = self._board.refining(prepared.topic)
        if refinement is not None:
            return replace(reply, refinement=refinement)
        self._maintenance.backlog_may_have_changed()
        backed_off = self._backlog.backed_off(prepared.search)
        more = prepared.notices(question, self._answerer.snapshot, backed_off=backed_off)
        return replace(reply, notices=(*reply.notices, *more))

    async def used(self, uses: Sequence[Question], peer: Peer) -> bool:
        """Count uses of answers, without an answer.

        Returns:
            True where they are stored within a second; False where the database cannot be used now.
        """
        del peer
        for question in uses:
            try:
                self._note_use(self._answerer.find(question), question)
            except NotNowError:  # no answer yet; its use counts all the same
                self._backlog.uses.add(self._answerer.key(question), question.demand)
            self._maintenance.used()
            await asyncio.sleep(0)  # each takes a millisecond where many workloads run together
        return not self._storage.trouble

    def _note_use(self, prepared: PreparedReply, question: Question) -> None:
        """Count a question for what is tuned next, and what the uses that a client reports have saved."""
        self._backlog.uses.add(prepared.key, question.demand)
        self._maintenance.used()
        reply, count = prepared.reply, question.count or 0.0
        saved = None if reply.stale else measured_saving(reply.answer)
        if saved is not None and count > 0:
            self._metrics.saved(str(reply.device["uuid"]), count * saved.joules, count * saved.uncertainty_j)

    # --- status --------------------------------------------------------------------------------------

    def summary(self) -> str:
        """The work of this moment, for the service manager."""
        running = ", ".join(map(str, self._queues.running))
        work = f"job {running} runs" if running else "no job runs"
        waiting = sum(job.state is JobState.QUEUED for job in self._board.jobs)
        reasons = "; ".join(self._queues.block_reasons)
        return f"{work}, {waiting} wait{f' ({reasons})' if reasons else ''}"

    async def status(self) -> Status:
        """State of the daemon, its devices, queue, budgets and windows, as ``GET /v1/status`` has it."""
        document = self._steady()
        document["uptime_s"] = round(time.monotonic() - self._begun_s)
        document["devices"] = self._devices()
        document["host"] = self._host()
        document["followers"] = self._followers
        return document

    def _steady(self) -> Status:
        """Return the part of the status that does not change by itself, without the devices."""
        counts = Counter(job.state for job in self._board.jobs)
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "begun_at": self._begun_at.isoformat(timespec="seconds"),
            **self._state.places,
            "notices": [*self._state.notices, *self._scrub.kept_aside, *self._scrub.notices],
            "troubles": [
                f"{subject}: {trouble}"
                for subject, troubles in self._troubles().items()
                for trouble in troubles
                if trouble
            ],
            "not_understood": list(self._board.not_understood),
            "queue": {state.value: counts[state] for state in ACTIVE},
            "users": self._shares.table(self._board.jobs),
            "windows": _windows(self._state.settings, self._wall()),
        }

    def _devices(self) -> list[DeviceStatus]:
        budget, today = self._state.settings.budget, self._wall().date().isoformat()
        documents: list[DeviceStatus] = []
        for device, identity in self._state.identities.items():
            queue, spent = self._queues[device], self._budgets.on(today, identity.uuid)
            documents.append(
                {
                    **cast(DeviceStatus, vars(identity)),
                    "job": None if queue.running is None else queue.running.id,
                    "holds": queue.block_reason,
                    "spent_today_s": spent.seconds,
                    "spent_today_j": spent.joules,
                    "budget_s": budget.seconds_per_day,
                    "budget_j": budget.joules_per_day,
                }
            )
        return documents

    def _host(self) -> HostDocument:
        budget = self._state.settings.budget
        spent = self._budgets.of_host(self._wall().date().isoformat())
        return {
            "spent_today_s": spent.seconds,
            "spent_today_j": spent.joules,
            "budget_s": budget.host_seconds_per_day,
            "budget_j": budget.host_joules_per_day,
        }

    def _troubles(self) -> dict[str, list[str]]:
        """Return the present problems by subject."""
        return {
            "database": [self._storage.trouble],
            "jobs": [
                *_absent(self._board.jobs, self._board.placement),
                *self._board.not_understood,
            ],
            **self._state.troubles,
        }

    def not_ready(self) -> list[str]:
        """Reasons to send no client here, for people; none where the database and a device can be used."""
        database = [f"the database: {trouble}" for trouble in self._troubles()["database"] if trouble]
        return database if self._state.identities else [*database, "no device is known"]

    def _states(self) -> list[FollowedState]:
        """Return the states that followers of everything get again whenever they have changed."""
        return [("status", self._steady()), *(("device", device) for device in self._devices())]

    @property
    def _followers(self) -> int:
        return self._subscriptions.count + self._live.count

    def metrics(self) -> bytes:
        """The metrics in Prometheus' text format."""
        jobs, (fresh, stale) = self._board.jobs, self._answerer.counts()
        self._metrics.shares(self._shares.table(jobs))
        return self._metrics.render(
            jobs,
            fresh=fresh,
            stale=stale,
            followers=self._followers,
            troubles=self._troubles(),
            token_ends_s=self._state.tokens.ends_s(),
        )


def _by(peer: Peer) -> str:
    return f"by token {peer.token}" if peer.uid is None else f"by user {peer.uid}"


def _windows(settings: Settings, now: datetime) -> Windows:
    """Return the state of the whole host's windows, and its next change; ``summary`` is for people.

    Of windows for some devices, the devices tell.
    """
    windows = [window for window in settings.window if not window.devices]
    status = window_status(windows, now)
    until = "for ever" if status.changes_at is None else f"until {moment(status.changes_at)}"
    summary = f"{'open' if status.open else 'closed'} {until}"
    return {
        "open": status.open,
        "changes_at": None if status.changes_at is None else status.changes_at.isoformat(),
        "count": len(windows),
        "summary": summary if windows else "none, tuning is allowed always",
    }


def _absent(jobs: Iterable[Job], placement: Placement) -> list[str]:
    """Devices that jobs wait for and that are absent, for people."""
    queued = (placement.absence(job) for job in jobs if job.state is JobState.QUEUED)
    counts = Counter(absence.removesuffix(ABSENT) for absence in queued if absence)
    return [
        f"{count} {'wait' if count > 1 else 'waits'} for {missed}, which{ABSENT}"
        for missed, count in sorted(counts.items())
    ]
