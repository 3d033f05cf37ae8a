"""What lanes are told before an attempt at a job, and what becomes of what it tells and brings."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tuner.daemon.attempts.messages import Ending, Errand
from tuner.daemon.backlog.backlog import Backlog
from tuner.daemon.backlog.maintenance import Maintenance
from tuner.daemon.devices.budgets import Budgets, Spent
from tuner.daemon.interface import NotNowError
from tuner.daemon.metrics import Metrics
from tuner.daemon.queue.board import Board
from tuner.daemon.queue.job_specs import without_batch
from tuner.daemon.queue.storage import Storage
from tuner.daemon.queue.subscriptions import HandingOn
from tuner.daemon.state import Situation
from tuner.errors import StoreError
from tuner.model.jobs import JobKind, JobRecord


class Office:
    """Whom lanes ask what to tell their attempts, and tell what came of them.

    Args:
        situation: settings, kernels, devices.
        storage: the database.
        board: of jobs.
        handing_on: of events.
        budgets: what was spent.
        backlog: what should be tuned next.
        metrics: count.
        maintenance: what follows later.
        wall: local time.
    """

    def __init__(
        self,
        situation: Situation,
        *,
        storage: Storage,
        board: Board,
        handing_on: HandingOn,
        budgets: Budgets,
        backlog: Backlog,
        metrics: Metrics,
        maintenance: Maintenance,
        wall: Callable[[], datetime],
    ) -> None:
        self._situation = situation
        self._storage = storage
        self._board = board
        self._handing_on = handing_on
        self._budgets = budgets
        self._backlog = backlog
        self._metrics = metrics
        self._maintenance = maintenance
        self._wall = wall
        self._counted: dict[int, Spent] = {}
        self._sampled: dict[int, int] = {}

    async def has_ended(self, job: JobRecord) -> bool:
        """True where the run of a job has come to its end, and its process had no time to say so."""
        if job.run is None and not job.attempts:
            return False
        return await self._storage.run(lambda books: books.jobs.has_ended(job.id))

    def errand(self, job: JobRecord) -> Errand:
        """What an attempt is told.

        Raises:
            NotNowError: there is nothing to do any more.
            InputError: what it names is not known any more.
        """
        idle = self._situation.settings.idle
        return Errand(
            job=job.id,
            order=job.spec,
            database=Path(self._storage.path),
            kernel_directories=self._situation.directories,
            idle_test=idle.test,
            others_allowed=idle.others_allowed,
            sample=self._again(job) if job.spec.kind is JobKind.SAMPLE else None,
        )

    def heard(self, job: JobRecord, kind: str, data: Mapping[str, Any]) -> None:
        """An attempt tells something."""
        if kind == "trial":
            uuid = self._situation.uuid(job.spec.device)
            self._metrics.sensed(uuid, data.get("watts"), data.get("clock_mhz"))
            if not data.get("confirming"):  # what is measured again is no further trial
                self._metrics.trial(uuid, str(data.get("status")))
        if self._board.get(job.id) is not None:  # nobody listens to a cancelled job any more
            self._handing_on.tell(job.id, kind, data)

    def spent(self, job: JobRecord, seconds: float, joules: float) -> None:
        """What an attempt has taken so far; what was not counted yet is counted."""
        uuid = self._situation.uuid(job.spec.device)
        before = self._counted.get(job.id, Spent())
        more = Spent(max(0.0, seconds - before.seconds), max(0.0, joules - before.joules))
        if more == Spent():
            return
        self._counted[job.id] = Spent(before.seconds + more.seconds, before.joules + more.joules)
        self._budgets.spend(uuid, self._wall().date().isoformat(), *more)
        self._metrics.spent(uuid, *more)
        self._maintenance.spent()

    async def received(self, job: JobRecord, ending: Ending) -> Ending:
        """Store all that an attempt told and brought, before its job is concluded: then nothing can be lost.

        Returns:
            The ending; another one where what it brought is of no use.
        """
        await self._handing_on.done()
        run = self._sampled.pop(job.id, None)
        if run is None or ending.sample is None:
            return ending
        try:
            document = self._backlog.sampled(run, ending.sample)
        except StoreError as error:
            return replace(ending, status="refused", message=f"run {run} was measured again in vain: {error}")
        if document is not None:
            await self._storage.insist(lambda books: books.ledger.add_sample(run, document))
        return ending

    async def concluded(self, job: JobRecord, ending: Ending) -> None:
        """An attempt has ended, and its job is in its next state."""
        self.spent(job, ending.seconds, ending.joules)
        self._counted.pop(job.id, None)
        self._metrics.ended(ending.status)
        self._metrics.idle(self._situation.uuid(job.spec.device))
        for gpu in ending.clocks_left:
            self._metrics.clock_not_restored(gpu)
        self._sampled.pop(job.id, None)
        if ending.run is not None:
            await self._maintenance.refresh([without_batch(spec) for spec in job.spec.workloads])
        if job.spec.kind is JobKind.TUNE and self._board.get(job.id) is None:
            self._backlog.tried(job.spec)  # whatever came of it, the same again brings no more
        await self._maintenance.flush()
        self._maintenance.backlog_may_have_changed()

    def _again(self, job: JobRecord) -> Mapping[str, Any]:
        """The trial that is to be measured again."""
        again = self._backlog.sample_task(job.spec)
        if again is None:
            raise NotNowError("its answer is not served any more: there is nothing to measure again")
        self._sampled[job.id] = again.run
        return again.trial
