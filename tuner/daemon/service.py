"""The service: what clients can ask, on top of the board of jobs, the lanes of devices and the answers."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tuner import __version__
from tuner.daemon import status as standing
from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.answers.replies import PreparedReply
from tuner.daemon.backlog.backlog import Backlog
from tuner.daemon.backlog.maintenance import Maintenance
from tuner.daemon.devices.admission import Look
from tuner.daemon.devices.budgets import Budgets
from tuner.daemon.devices.queue import Launch
from tuner.daemon.devices.queues import Lanes, absences, lanes, tell_absence
from tuner.daemon.devices.results import Office
from tuner.daemon.interface import NoSuchJobError, NotNowError, Peer, Question, Reply
from tuner.daemon.metrics import Metrics
from tuner.daemon.queue.board import Board
from tuner.daemon.queue.job_specs import checked, within
from tuner.daemon.queue.storage import Storage
from tuner.daemon.queue.subscriptions import Following, HandingOn, follow
from tuner.daemon.state import Situation, local_now
from tuner.daemon.status import saving
from tuner.errors import InputError, StoreError
from tuner.model.jobs import OWN, JobEvent, JobKind, JobRecord, JobSpec, JobState, Origin

_STOP_S = 7.0  # for lanes to stop: below the ten seconds that a service has, with something left for the rest
_CANCEL_S = 1.0  # for lanes that were cancelled to write down what they know
_RETRY_S = 1.0  # a database that cannot be used at the start
_LOG = logging.getLogger(__name__)


class Service:
    """Implements ``ServiceInterface``. Call ``begin`` first and ``end`` last.

    Args:
        situation: settings, kernels, devices; changed by its owner, who then calls ``adopt``.
        storage: the database.
        launch: starts an attempt at a job.
        look: asks who else is on a GPU.
        answerer: knows what is best.
        metrics: count what happens.
        wall: local time.
    """

    def __init__(
        self,
        situation: Situation,
        *,
        storage: Storage,
        launch: Launch,
        look: Look,
        answerer: Answerer,
        metrics: Metrics,
        wall: Callable[[], datetime] = local_now,
    ) -> None:
        self._situation = situation
        self._storage = storage
        self._answerer = answerer
        self._metrics = metrics
        self._wall = wall
        self._begun_at = wall()
        self._following = Following()
        self._handing_on = HandingOn(storage, self._following)
        self._board = Board(storage, self._following, self._changed)
        self._budgets = Budgets(storage)
        self._backlog = Backlog(answerer)
        self._maintenance = Maintenance(
            situation,
            storage=storage,
            board=self._board,
            budgets=self._budgets,
            answerer=answerer,
            backlog=self._backlog,
            wall=wall,
        )
        self._lanes = self._new_lanes(launch, look)
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()
        storage.failed = metrics.store_error

    def _new_lanes(self, launch: Launch, look: Look) -> Lanes:
        situation = self._situation
        office = Office(
            situation,
            storage=self._storage,
            board=self._board,
            handing_on=self._handing_on,
            budgets=self._budgets,
            backlog=self._backlog,
            metrics=self._metrics,
            maintenance=self._maintenance,
            wall=self._wall,
        )

        return lanes(
            situation,
            board=self._board,
            budgets=self._budgets,
            office=office,
            launch=launch,
            look=look,
            wall=self._wall,
        )

    # --- its life ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Take over what is stored, and start to work; where that cannot be read now, as soon as it can."""
        for device, identity in self._situation.identities.items():
            self._metrics.device(identity.uuid, device, identity.name, modelled=identity.modelled)
        if not await self._take_over():
            self._tasks = [asyncio.create_task(self._take_over_later(), name="beginning")]

    async def _take_over(self) -> bool:
        """Begin with what is stored; False where the database cannot be used."""
        try:
            for job in await self._board.load():
                _LOG.info("job %d was running when the daemon ended: now %s", job.id, job.state.value)
            await tell_absence(self._board, self._situation.devices)
            await self._maintenance.begin()
        except StoreError as error:
            _LOG.error("no job is done: %s", error)
            return False
        self._tasks = self._lanes.begin()
        return True

    async def _take_over_later(self) -> None:
        while not self._ending.is_set() and not await self._take_over():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _RETRY_S)

    async def end(self) -> None:
        """Stop what runs, and put away what is only in memory; takes some seconds at most."""
        self._ending.set()
        self._lanes.stop("the daemon was stopped")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CANCEL_S)
        self._handing_on.close()
        await self._board.settled()
        self._following.close()
        await self._maintenance.end()

    @property
    def alive(self) -> bool:
        """False where a lane has ended that should not have."""
        return not any(task.done() for task in self._tasks)

    def runs(self, device: str) -> bool:
        """True where a job runs on a device."""
        return self._lanes.runs(device)

    def idle(self, device: str) -> bool:
        """True where no job runs on a device or waits for it."""
        return self._lanes.idle(device)

    async def adopt(self) -> None:
        """Go on in a situation that has changed."""
        situation = self._situation
        self._answerer.adopt(situation)
        self._backlog.reconsider()
        await tell_absence(self._board, situation.devices)
        await self._maintenance.refresh(None)
        await self._maintenance.prune()
        await self._maintenance.queue_sets()
        self._maintenance.backlog_may_have_changed()
        self._changed()

    def _changed(self) -> None:
        self._lanes.look()

    # --- jobs ----------------------------------------------------------------------------------------

    async def submit(self, order: JobSpec, peer: Peer, priority: float = 0.0) -> JobRecord:
        """See ``ServiceInterface.submit``."""
        if order.kind is not JobKind.TUNE:
            raise InputError("kind: clients order searches; what is measured again, the daemon decides")
        situation = self._situation
        order = checked(within(order, situation.settings.tuning), situation.catalog, situation.devices)
        return await self._board.add(
            order,
            origin=Origin.CLIENT,
            priority=priority,
            submitter=peer.uid,
            most_waiting=situation.settings.limits.queue,
        )

    async def job(self, number: int) -> JobRecord:
        """See ``ServiceInterface.job``."""
        job = await self._storage.read(lambda books: books.jobs.job(number))
        if job is None:
            raise NoSuchJobError(f"there is no job {number}")
        return job

    async def jobs(
        self, states: Sequence[JobState] = (), limit: int = 100, before: int | None = None
    ) -> list[JobRecord]:
        """See ``ServiceInterface.jobs``."""
        return await self._storage.read(lambda books: books.jobs.jobs(states, limit, before))

    async def cancel(self, number: int, peer: Peer) -> JobRecord:
        """See ``ServiceInterface.cancel``."""
        job = await self._board.change(number, JobState.CANCELLED, _by(peer))
        if job.origin in OWN:  # else it would be queued again at once
            self._backlog.tried(job.spec)
        return job

    async def pause(self, number: int, peer: Peer) -> JobRecord:
        """See ``ServiceInterface.pause``."""
        return await self._board.change(number, JobState.PAUSED, _by(peer))

    async def resume(self, number: int, peer: Peer) -> JobRecord:
        """See ``ServiceInterface.resume``."""
        del peer
        job = await self._board.change(number, JobState.QUEUED, of=(JobState.PAUSED, JobState.QUEUED))
        await tell_absence(self._board, self._situation.devices)
        return self._board.get(number) or job

    def events(self, number: int, after: int = 0) -> AsyncIterator[JobEvent]:
        """See ``ServiceInterface.events``."""
        return follow(number, after, following=self._following, storage=self._storage)

    # --- answers -------------------------------------------------------------------------------------

    def best(self, question: Question, peer: Peer) -> Reply:
        """See ``ServiceInterface.best``."""
        del peer
        prepared = self._answerer.find(question)
        reply = prepared.reply
        self._metrics.best("stale" if reply.origin == "stored" and reply.stale else reply.origin)
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

    async def used(self, uses: Sequence[Question], peer: Peer) -> None:
        """See ``ServiceInterface.used``."""
        del peer
        for question in uses:
            try:
                self._note_use(self._answerer.find(question), question)
            except NotNowError:  # nothing is known of it yet; its use counts
                self._backlog.uses.add(self._answerer.key(question), question.demand)
            await asyncio.sleep(0)  # each takes a millisecond where many workloads run together

    def _note_use(self, prepared: PreparedReply, question: Question) -> None:
        """Count a question for what is tuned next, and what the uses that a client reports have saved."""
        self._backlog.uses.add(prepared.key, question.demand)
        self._maintenance.used()
        reply, count = prepared.reply, question.count or 0.0
        saved = None if reply.stale else saving(reply.answer)
        if saved is not None and count > 0:
            self._metrics.saved(str(reply.device["uuid"]), count * saved.joules, count * saved.uncertainty_j)

    # --- how it stands -------------------------------------------------------------------------------

    def sentence(self) -> str:
        """What is done just now, for the service manager."""
        return standing.sentence(self._lanes, self._board.jobs)

    async def status(self) -> Mapping[str, Any]:
        """See ``ServiceInterface.status``."""
        situation, now = self._situation, self._wall()
        here = {"database": [self._storage.trouble], "jobs": absences(self._board.jobs, situation.devices)}
        return {
            "version": __version__,
            "pid": os.getpid(),
            "begun_at": self._begun_at.isoformat(timespec="seconds"),
            "uptime_s": max(0, round((now - self._begun_at).total_seconds())),
            **situation.places,
            "notices": list(situation.notices),
            "troubles": standing.troubles({**here, **situation.troubles}),
            "queue": standing.queue_document(self._board.jobs),
            "windows": standing.windows_document(situation.settings, now),
            "devices": [
                standing.device_document(
                    identity, self._lanes[device], self._budgets, situation.settings, now
                )
                for device, identity in situation.identities.items()
            ],
            "followers": self._following.count,
        }

    def metrics(self) -> bytes:
        """See ``ServiceInterface.metrics``."""
        jobs, answers = self._board.jobs, self._answerer.counts()
        return self._metrics.render(standing.snapshot(jobs, answers, self._following.count))


def _by(peer: Peer) -> str:
    return "by a client" if peer.uid is None else f"by user {peer.uid}"
