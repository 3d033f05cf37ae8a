"""Queues the jobs that the daemon does by itself."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from tuner.daemon.backlog.backlog import MOST_CANDIDATES, CandidateJob, priority, worth_of
from tuner.daemon.interface import NotNowError
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.specs import topic, verifies
from tuner.model.errors import StoreError
from tuner.model.jobs import OWN, JobKind, JobRecord, JobSpec, JobState, Origin

_WORTH_WRITING = 0.05  # a worth that has changed by a smaller share changes no priority: that is written
_LOG = logging.getLogger(__name__)


class AutoQueue:
    """Queues the daemon's own jobs, each once, and keeps room for those of clients.

    Args:
        board: where jobs go.
        most_waiting: number of jobs that may wait, those of clients included.
    """

    def __init__(self, board: Board, most_waiting: Callable[[], int]) -> None:
        self._board = board
        self._most_waiting = most_waiting
        self._lock = asyncio.Lock()
        self._proposing = asyncio.Lock()

    async def queue(self, spec: JobSpec, origin: Origin, priority: float) -> JobRecord | None:
        """The job that gives the answer of a spec; it is queued now if there is none.

        Returns:
            None where it cannot be queued now; it will be proposed again.
        """
        async with self._lock:
            known = self._known(spec, origin)
            if known is not None:
                return known
            try:
                job = await self._board.add(
                    spec, origin=origin, priority=priority, most_waiting=self._most_waiting()
                )
            except (NotNowError, StoreError) as error:
                _LOG.warning("%s is not queued now: %s", " ".join(spec.workloads), error)
                return None
        _LOG.info("job %d queued by the daemon (%s): %s", job.id, origin.value, " ".join(spec.workloads))
        return job

    async def propose(self, candidates: Sequence[CandidateJob]) -> None:
        """Queue candidates that will run soon; what is queued stays so.

        A candidate is queued where nothing that goes before it waits for its device, and where no job of a
        client or a set is to answer its question in another way: it comes up again when that has ended. So
        at most one of the daemon's own jobs waits for a device, and begins as soon as that is free. Half of
        all places stay for clients.

        Args:
            candidates: the most worthwhile first.
        """
        async with self._proposing:
            await self._weigh(candidates)
            for _ in candidates:
                one = self._next(candidates)
                if one is None or await self.queue(one.spec, one.origin, one.priority) is None:
                    return

    def _next(self, candidates: Sequence[CandidateJob]) -> CandidateJob | None:
        """The first candidate that is to be queued now; None where there is none."""
        active = [job for job in self._board.jobs if job.state is not JobState.PAUSED]
        first: dict[str, float] = {}  # priority of the job that goes first, by device; own jobs stay first
        own = 0
        for job in active:
            if job.state is JobState.QUEUED:
                own += job.origin in OWN
                rank = math.inf if job.origin in OWN else job.priority
                for device in self._board.devices_of(job):
                    first[device] = max(rank, first.get(device, -math.inf))
        if own >= self._most_waiting() // 2:
            return None
        return next(
            (
                one
                for one in candidates
                if first.get(one.spec.device, -math.inf) < one.priority
                and not self._is_asked(one.spec)
                and (verifies(one.spec) or not self.searched_elsewhere(one.spec))
                and self._known(one.spec, one.origin) is None
            ),
            None,
        )

    def _is_asked(self, spec: JobSpec) -> bool:
        """True where a job of a client or a set is to answer what a spec asks, or may, on its device."""
        return any(
            job.origin not in OWN
            and job.state is not JobState.PAUSED
            and spec.device in self._board.devices_of(job)
            for job in self._board.alike(spec)
        )

    def searched_elsewhere(self, spec: JobSpec) -> bool:
        """True where another GPU of the kind searches for what a spec asks, or will.

        When it has an answer, that only has to be verified.
        """
        others = set(self._board.placement.alike(spec.device)) - {spec.device}
        return any(
            job.spec.kind is JobKind.TUNE
            and job.state is not JobState.PAUSED
            and not verifies(job.spec)
            and not others.isdisjoint(self._board.devices_of(job))
            for job in self._board.alike(spec)
        )

    async def _weigh(self, candidates: Sequence[CandidateJob]) -> None:
        """Give the daemon's own jobs that wait the priorities of what they are worth now.

        A job that is not among so many candidates is worth no more than the last of them.
        """
        most_j = candidates[-1].worth_j if len(candidates) >= MOST_CANDIDATES else math.inf
        listed = {job.id: one.worth_j for one in candidates for job in self._alike(one.spec, one.topic)}
        priorities: dict[int, float] = {}
        for job in self._board.jobs:
            if job.origin in OWN and job.state is JobState.QUEUED:
                before_j = worth_of(job.priority)
                worth_j = listed.get(job.id, min(before_j, most_j))
                if not math.isclose(worth_j, before_j, rel_tol=_WORTH_WRITING):
                    priorities[job.id] = priority(worth_j)
        try:
            await self._board.prioritise(priorities)
        except StoreError as error:  # at the next look
            _LOG.warning("priorities stay as they are for now: %s", error)

    def _known(self, spec: JobSpec, origin: Origin) -> JobRecord | None:
        """The job that gives the answer of a spec; one that a client has paused does not count.

        A set does not count on the daemon's own job, which goes after everybody's.
        """
        for job in self._alike(spec, topic(spec)):
            waits_for_client = job.origin is Origin.CLIENT and job.state is JobState.PAUSED
            gives_way = origin is Origin.SET and job.origin in OWN
            if not waits_for_client and not gives_way:
                return job
        return None

    def _alike(self, spec: JobSpec, searched: str) -> list[JobRecord]:
        """Jobs that have not ended and give the answer of a spec."""
        if spec.kind is JobKind.TUNE:
            return self._board.searches(searched)
        job = self._board.find(spec)
        return [] if job is None else [job]
