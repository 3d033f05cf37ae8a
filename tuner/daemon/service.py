"""The service: what clients can ask, on top of the board of jobs, the lanes of devices and the answers."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from typing import Any

from tuner.catalog import Catalog
from tuner.daemon.answering.answerer import Answerer
from tuner.daemon.board import Board, names_of
from tuner.daemon.budgets import Budgets, Spent
from tuner.daemon.chores import Chores
from tuner.daemon.desk import NoSuchJobError, NotNowError, Peer, Question, Reply
from tuner.daemon.errands import Places, errand
from tuner.daemon.following import Following, follow
from tuner.daemon.gates import Gates, Look
from tuner.daemon.metrics import Metrics, Snapshot
from tuner.daemon.orders import checked, within
from tuner.daemon.running.errand import Ending, Errand
from tuner.daemon.savings import saving
from tuner.daemon.scheduling import Lane, Launch
from tuner.daemon.settings import Settings
from tuner.daemon.standing import device_document, queue_document, troubles, windows_document
from tuner.daemon.storage import Storage
from tuner.daemon.telling import Telling
from tuner.daemon.wanting import Queuing, missing
from tuner.daemon.windows import local_zone
from tuner.errors import InputError, StoreError, TunerError
from tuner.jobs import Event, Job, Kind, Order, Origin, State
from tuner.model import DeviceIdentity

_WISH_S = 0.2  # from a question to the queue: several at once are looked at together
_SAMPLES_S = 60.0  # whether an answer that is used should be measured again
_FLUSH_S = 10.0  # what was counted is in the database after so long
_STOP_S = 7.0  # for lanes to stop: below the ten seconds that a service has, with something left for the rest
_LOG = logging.getLogger(__name__)


def local_now() -> datetime:
    """The local time with its zone, summer time and all."""
    return datetime.now(local_zone())


class Service:
    """Implements ``tuner.daemon.desk.Desk``; ``begin`` before anything is asked, ``end`` at last.

    Args:
        settings: what daemon.toml says.
        storage: the database.
        catalog: of the kernels that may be named.
        identities: devices that are tuned on, the first first.
        places: where things are, for those who run jobs.
        launch: starts an attempt at a job.
        look: asks who else is on a GPU.
        answerer: knows what is best.
        metrics: count what happens.
        wall: local time.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        storage: Storage,
        catalog: Catalog,
        identities: Mapping[str, DeviceIdentity],
        places: Places,
        launch: Launch,
        look: Look,
        answerer: Answerer,
        metrics: Metrics,
        wall: Callable[[], datetime] = local_now,
    ) -> None:
        self.settings = settings
        self.troubles: dict[str, list[str]] = {}
        self._begun_at = wall()
        self._storage = storage
        self._catalog = catalog
        self._identities = dict(identities)
        self._places = places
        self._answerer = answerer
        self._metrics = metrics
        self._wall = wall
        self._following = Following()
        self._board = Board(storage, self._following, self._changed)
        self._budgets = Budgets(storage)
        self._telling = Telling(storage, self._following)
        self._lanes = {
            device: Lane(
                device,
                self._board,
                Gates(
                    device,
                    identity.uuid,
                    settings=lambda: self.settings,
                    budgets=self._budgets,
                    look=look,
                    wall=wall,
                ),
                self,
                launch,
            )
            for device, identity in identities.items()
        }
        self._queuing = Queuing(self._board, lambda: self.settings.limits.queue)
        self._counted: dict[int, Spent] = {}
        self._sampled: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._chores = Chores()

    # --- its life ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Take over what is stored, and start to work.

        Raises:
            StoreError: the database cannot be used.
        """
        for device, identity in self._identities.items():
            self._metrics.device(identity.uuid, device, identity.name, modelled=identity.modelled)
        recovered = await self._board.load()
        for job in recovered:
            _LOG.info("job %d was running when the daemon ended: now %s", job.id, job.state.value)
        uuids = {device: identity.uuid for device, identity in self._identities.items()}
        await self._budgets.load(self._wall().date().isoformat(), uuids)
        self._answerer.restore_uses(await self._storage.run(lambda books: books.ledger.uses()))
        self._answerer.remember(await self._storage.run(lambda books: books.ledger.analytical()))
        await self._refresh(None)
        await self._queue_sets()
        self._look_for_wishes(0.0)
        self._tasks = [asyncio.create_task(lane.live(), name=device) for device, lane in self._lanes.items()]

    async def end(self) -> None:
        """Stop what runs, and put away what is only in memory; takes some seconds at most."""
        for lane in self._lanes.values():
            lane.stop("the daemon was stopped")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_STOP_S)
            for task in late:
                task.cancel()
        self._following.close()
        self._chores.close()
        await self._flush()

    def sentence(self) -> str:
        """What is done just now, for the service manager."""
        running = [lane.running.id for lane in self._lanes.values() if lane.running is not None]
        waiting = sum(job.state is State.QUEUED for job in self._board.jobs)
        work = f"job {', '.join(map(str, running))} runs" if running else "no job runs"
        holds = "; ".join(sorted({lane.holds for lane in self._lanes.values() if lane.holds}))
        return f"{work}, {waiting} wait{f' ({holds})' if holds else ''}"

    @property
    def alive(self) -> bool:
        """False where a lane has ended that should not have."""
        return not any(task.done() for task in self._tasks)

    async def database_answers(self) -> None:
        """Return when the thread of the database has time, whether or not the file can be used."""
        with contextlib.suppress(StoreError):
            await self._storage.run(lambda _: None)

    async def adopt(self, settings: Settings, catalog: Catalog, places: Places) -> None:
        """Go on with other settings and kernels."""
        self.settings, self._catalog, self._places = settings, catalog, places
        self._answerer.adopt(catalog=catalog, settings=settings)
        await self._refresh(None)
        await self._queue_sets()
        self._look_for_wishes(0.0)
        self._changed()

    # --- jobs ----------------------------------------------------------------------------------------

    async def submit(self, order: Order, peer: Peer, priority: float = 0.0) -> Job:
        """See ``Desk.submit``."""
        if order.kind is not Kind.TUNE:
            raise InputError("kind: clients order searches; what is measured again, the daemon decides")
        order = checked(within(order, self.settings.tuning), self._catalog, list(self._identities))
        return await self._board.add(
            order,
            origin=Origin.CLIENT,
            priority=priority,
            submitter=peer.uid,
            most_waiting=self.settings.limits.queue,
        )

    async def job(self, number: int) -> Job:
        """See ``Desk.job``."""
        job = await self._storage.run(lambda books: books.jobs.job(number))
        if job is None:
            raise NoSuchJobError(f"there is no job {number}")
        return job

    async def jobs(
        self, states: Sequence[State] = (), limit: int = 100, before: int | None = None
    ) -> list[Job]:
        """See ``Desk.jobs``."""
        return await self._storage.run(lambda books: books.jobs.jobs(states, limit, before))

    async def cancel(self, number: int, peer: Peer) -> Job:
        """See ``Desk.cancel``."""
        return await self._board.change(number, State.CANCELLED, _by(peer))

    async def pause(self, number: int, peer: Peer) -> Job:
        """See ``Desk.pause``."""
        return await self._board.change(number, State.PAUSED, _by(peer))

    async def resume(self, number: int, peer: Peer) -> Job:
        """See ``Desk.resume``."""
        del peer
        return await self._board.change(number, State.QUEUED, of=(State.PAUSED, State.QUEUED))

    def events(self, number: int, after: int = 0) -> AsyncIterator[Event]:
        """See ``Desk.events``."""
        return follow(number, after, following=self._following, storage=self._storage)

    # --- answers -------------------------------------------------------------------------------------

    def best(self, question: Question, peer: Peer) -> Reply:
        """See ``Desk.best``."""
        del peer
        reply = self._answerer.reply(question)
        self._metrics.best("stale" if reply.origin == "stored" and reply.stale else reply.origin)
        self._note_use(reply, question.count)
        if reply.origin == "stored" and not reply.stale:
            return reply
        refinement = self._board.refining(reply)
        if refinement is None:
            self._look_for_wishes(_WISH_S)
            return reply
        return replace(reply, refinement=refinement)

    async def used(self, uses: Sequence[Question], peer: Peer) -> None:
        """See ``Desk.used``."""
        del peer
        for question in uses:
            try:
                self._note_use(self._answerer.reply(question), question.count)
            except NotNowError:  # noqa: PERF203 - nothing is known of it yet; that it is used counts
                self._answerer.used(question)

    async def status(self) -> Mapping[str, Any]:
        """See ``Desk.status``."""
        now = self._wall()
        return {
            "version": version("tuner"),
            "pid": os.getpid(),
            "begun_at": self._begun_at.isoformat(),
            "troubles": troubles({"database": [self._storage.trouble], **self.troubles}),
            "queue": queue_document(self._board.jobs),
            "windows": windows_document(self.settings, now),
            "devices": [
                device_document(identity, self._lanes[device], self._budgets, self.settings, now)
                for device, identity in self._identities.items()
            ],
            "followers": self._following.count,
        }

    def metrics(self) -> bytes:
        """See ``Desk.metrics``."""
        states = [job.state for job in self._board.jobs]
        return self._metrics.render(
            Snapshot(
                jobs={state: states.count(state) for state in set(states)},
                waiting=states.count(State.QUEUED),
                followers=self._following.count,
            )
        )

    # --- what the lanes ask and tell (``tuner.daemon.scheduling.Office``) ----------------------------

    def errand(self, job: Job) -> Errand:
        """What an attempt is told."""
        again = None
        if job.order.kind is Kind.SAMPLE:
            again = self._answerer.again(job.order)
            if again is None:
                raise NotNowError("its answer is not served any more: there is nothing to measure again")
            self._sampled[job.id] = again.run
        return errand(job, self.settings, self._places, None if again is None else again.trial)

    def heard(self, job: Job, kind: str, data: Mapping[str, Any]) -> None:
        """An attempt tells something."""
        uuid = self._identities[job.order.device].uuid
        if kind == "trial":
            self._metrics.trial(uuid, str(data["status"]))
        self._telling.tell(job.id, kind, data)

    async def concluded(self, job: Job, ending: Ending) -> None:
        """An attempt has ended, and its job is in its next state."""
        self.spent(job, ending.seconds, ending.joules)
        self._counted.pop(job.id, None)
        self._metrics.ended(ending.status)
        self._metrics.idle(self._identities[job.order.device].uuid)
        await self._telling.told()
        if job.order.kind is Kind.SAMPLE:
            await self._keep_sample(self._sampled.pop(job.id, None), ending)
        elif self._board.get(job.id) is None:
            self._answerer.tried(job.order)
        if ending.run is not None:
            await self._refresh(names_of(job.order))
        await self._flush()
        self._look_for_wishes(0.0)

    async def _keep_sample(self, run: int | None, ending: Ending) -> None:
        """Store what measuring again has given."""
        if run is None or ending.sample is None:
            return
        document = self._answerer.sampled(run, ending.sample)
        if document is not None:
            await self._storage.insist(lambda books: books.ledger.add_sample(run, document))

    def spent(self, job: Job, seconds: float, joules: float) -> None:
        """What an attempt has taken so far; what was not counted yet is counted."""
        uuid = self._identities[job.order.device].uuid
        before = self._counted.get(job.id, Spent())
        more = Spent(max(0.0, seconds - before.seconds), max(0.0, joules - before.joules))
        if more == Spent():
            return
        self._counted[job.id] = Spent(before.seconds + more.seconds, before.joules + more.joules)
        self._budgets.spend(uuid, self._wall().date().isoformat(), *more)
        self._metrics.spent(uuid, *more)
        self._chores.soon("flush", _FLUSH_S, self._flush)

    # --- chores --------------------------------------------------------------------------------------

    def _changed(self) -> None:
        for lane in self._lanes.values():
            lane.look()

    async def _refresh(self, names: Sequence[str] | None) -> None:
        """Read answers again that may have changed; where that fails now, all of them later."""
        try:
            read = await self._storage.run(lambda books: self._answerer.read(books.store, names))
        except StoreError:
            self._chores.soon("refresh", _FLUSH_S, lambda: self._refresh(None))
            return
        self._answerer.take(read, names)

    async def _flush(self) -> None:
        """Put what was counted into the database, or do so later."""
        uses = self._answerer.take_uses()
        try:
            await self._storage.run(lambda books: books.ledger.add_uses(uses))
        except StoreError:
            self._answerer.put_back_uses(uses)
            self._chores.soon("flush", _FLUSH_S, self._flush)
            return
        with contextlib.suppress(StoreError):
            await self._budgets.store()

    def _note_use(self, reply: Reply, count: float) -> None:
        """Count what uses of an answer have saved; put that and the uses into the database some time."""
        self._chores.soon("flush", _FLUSH_S, self._flush)
        self._chores.soon("samples", _SAMPLES_S, self._queue_wanted)
        saved = None if reply.stale else saving(reply.answer)
        if saved is not None and count > 0:
            self._metrics.saved(str(reply.device["uuid"]), count * saved.joules, count * saved.uncertainty_j)

    def _look_for_wishes(self, within_s: float) -> None:
        self._chores.soon("wishes", within_s, self._queue_wanted)

    async def _queue_wanted(self) -> None:
        """Queue what would make answers better or surer."""
        for wanted in self._answerer.wanted():
            if await self._queuing.queue(wanted.order, wanted.origin, wanted.priority) is None:
                return

    async def _queue_sets(self) -> None:
        """Queue what daemon.toml wants tuned and never was."""
        if not self.settings.set:
            return
        known = await self._storage.run(lambda books: books.jobs.jobs())
        orders, self.troubles["sets"] = missing(self.settings, self._catalog, list(self._identities), known)
        for order, priority in orders:
            if not self._fresh(order):
                await self._queuing.queue(order, Origin.SET, priority)

    def _fresh(self, order: Order) -> bool:
        """True where what an order asks for is known, and true."""
        question = Question(
            workloads=order.workloads,
            objective=order.objective,
            device=order.device,
            max_slowdown=order.options.get("max_slowdown"),
            clocks_as_found=order.clocks == "off",
            count=0.0,
        )
        try:
            reply = self._answerer.reply(question)
        except TunerError:
            return False
        return reply.origin == "stored" and not reply.stale


def _by(peer: Peer) -> str:
    return "by a client" if peer.uid is None else f"by user {peer.uid}"
