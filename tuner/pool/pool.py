"""A pool: its members, which of them is home, and trials spread over all of them."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tuner.errors import PoolError, PoolLostError, TunerError, WorkerLostError
from tuner.interfaces import Anchor, Contest, PlannedTrial
from tuner.model import SAME_GPU, Measurement, Trial
from tuner.pool.member import Member
from tuner.pool.scaling import measured_on, ratio_of, scaled
from tuner.pool.trial_queue import MOST_LOSSES, TrialQueue
from tuner.pool.worker_setup import Answer, SetupOrder, stop_setup
from tuner.pool.workers import Workers

HOME_BACK_S = 60.0
"""How long a lost home is waited for: its process is started anew, or its host comes back."""

_POLL_S = 0.5


@dataclass(frozen=True)
class _Job:
    """What a member does: opens its setup, measures its anchor, or a trial."""

    member: Member
    planned: PlannedTrial | None = None
    is_anchor: bool = False

    @property
    def is_opening(self) -> bool:
        """True where it opens its setup."""
        return self.planned is None


class Pool:
    """Implements ``TrialPool`` by the workers of a scheduler.

    Every member opens the setup that the run asks for, and is refused where it is of another kind than home.
    Members may come and go at any time. Each does one thing at a time, and is given the next trial when it
    has ended one, so that it is held against what is known by then.

    Args:
        workers: the processes.
        order: what each opens.
        tell: takes a sentence for the user.

    Attributes:
        told: the sentences so far.
    """

    def __init__(self, workers: Workers, order: SetupOrder, tell: Callable[[str], None]) -> None:
        self._workers = workers
        self._order = order
        self._tell = tell
        self._members: dict[str, Member] = {}
        self._gone: list[Member] = []
        self._refused: set[str] = set()
        self._jobs: dict[Future[Any], _Job] = {}
        self._home: Member | None = None
        self._alone_s = math.inf  # when nobody was there any more
        self.told: list[str] = []

    # --- who is there ---------------------------------------------------------------------------

    @property
    def home(self) -> Member:
        """The member on which all is measured that is compared turn by turn.

        Raises:
            PoolLostError: there is none.
        """
        if self._home is None:
            raise PoolLostError("the pool has no home")
        return self._home

    @property
    def members(self) -> Sequence[Member]:
        """Those that are there, and have told what they are."""
        return [member for member in self._members.values() if member.facts is not None]

    @property
    def all_members(self) -> Sequence[Member]:
        """Those that have gone too."""
        return [*self._gone, *self.members]

    @property
    def parallel(self) -> int:
        """See ``TrialPool.parallel``."""
        return max(1, len(self.members))

    def open(self, preferred: Sequence[str] = ()) -> None:
        """Have all workers open their setups, and choose home.

        Args:
            preferred: UUIDs of the GPUs that are to be home where they are there, the first one first.

        Raises:
            TunerError: no worker can measure; the reason of the first.
        """
        self._workers.refresh()
        found = [Member(self._workers, worker, self._order) for worker in self._workers.present.values()]
        opening = {member.worker.address: (member, member.describe()) for member in found}
        problems: list[TunerError] = []
        opened: list[Member] = []
        for address, (member, answer) in opening.items():
            while not answer.done():
                wait([answer], timeout=_POLL_S)
                self._workers.refresh()
            try:
                member.facts = member.heard(answer.result())
                opened.append(member)
            except PoolLostError:
                raise
            except TunerError as error:
                problems.append(error)
                self._refuse(member, f"the worker at {address} cannot measure: {error}")
        if not opened:
            raise problems[0] if problems else PoolError("no worker is left")
        order = {uuid: place for place, uuid in enumerate(preferred)}
        opened.sort(key=lambda m: (order.get(m.known.identity.uuid, len(order)), m.name, m.worker.address))
        self._home = opened[0]
        for member in opened:
            self._take(member)
        gpus = "1 GPU" if self.parallel == 1 else f"{self.parallel} GPUs"
        kind = self.home.known.identity.name
        self._say(f"pool: {gpus}, {kind}; contenders are confirmed on {self.home.name}")

    def close(self) -> None:
        """Have all members give back GPU and clocks, whatever they do."""
        self._workers.run_everywhere(stop_setup, self._order.run)

    def _take(self, member: Member) -> None:
        """Take a member that has told what it is into the pool, or refuse it."""
        address, home = member.worker.address, self._home
        if home is not None and home is not member:
            why = member.misfit(home.known)
            if why:
                self._refuse(member, f"{member.name} is refused: {why}")
                return
            same = next((one for one in self.members if member.is_same_gpu(one.known)), None)
            if same is not None and same is not member:
                uuid = member.known.identity.uuid
                self._refuse(member, f"{member.name} is refused: {same.name} is the same GPU ({uuid})")
                return
        member.ratio = SAME_GPU if member is home else None
        self._members[address] = member

    def _refuse(self, member: Member, why: str) -> None:
        self._refused.add(member.worker.address)
        if self._members.pop(member.worker.address, None) is not None:
            self._gone.append(member)
        self._say(f"pool: {why}")

    def _say(self, sentence: str) -> None:
        self.told.append(sentence)
        self._tell(sentence)

    def _meet(self) -> None:
        """Have workers that are new open their setups, and forget those that have gone."""
        self._workers.refresh()
        present = self._workers.present
        for address in [address for address in self._members if address not in present]:
            self._lose(self._members[address])
        busy = {job.member.worker.address for job in self._jobs.values()}
        for address, worker in present.items():
            if address not in self._members and address not in self._refused and address not in busy:
                member = Member(self._workers, worker, self._order)
                self._jobs[member.describe()] = _Job(member)

    def _lose(self, member: Member) -> None:
        if self._members.pop(member.worker.address, None) is not None:
            self._gone.append(member)
            self._say(f"pool: {member.name} is lost")

    def _joined(self, job: _Job, answer: "Future[Answer]") -> None:
        """A worker has opened its setup, or could not."""
        member = job.member
        try:
            member.facts = member.heard(answer.result())
        except WorkerLostError:
            return
        except PoolLostError:
            raise
        except TunerError as error:
            self._refuse(member, f"the worker at {member.worker.address} cannot measure: {error}")
            return
        lost_home = self._home is not None and self._home.worker.address not in self._members
        if lost_home and self._is_home_again(member):
            self._home = member
        self._take(member)
        if member.worker.address in self._members:
            self._say(f"pool: {member.name} has joined")

    def _is_home_again(self, member: Member) -> bool:
        return member.known.identity == self.home.known.identity and not member.misfit(self.home.known)

    # --- home -----------------------------------------------------------------------------------

    def at_home(self, owner: str, method: str, *args: object) -> Any:  # noqa: ANN401 - of the method
        """Call a method of home's device or measurer; where home is lost, again when it is back.

        Raises:
            PoolLostError: the scheduler has gone, or home has and does not come back.
            TunerError: what the method raised.
        """
        for _ in range(MOST_LOSSES):
            with suppress(WorkerLostError):
                return self.home.call(owner, method, *args)
            self._lose(self.home)
            self._wait_for_home()
        raise PoolLostError(f"{self.home.name} was lost {MOST_LOSSES} times with the same call")

    def _wait_for_home(self) -> None:
        lost, until = self.home, time.monotonic() + HOME_BACK_S
        while self._home is lost:
            if time.monotonic() > until:
                raise PoolLostError(
                    f"{lost.name}, on which contenders are confirmed, was lost and is not back within"
                    f" {HOME_BACK_S:g} s"
                )
            self._meet()
            for job, answer in self._ended_jobs():
                if job.is_opening:
                    self._joined(job, answer)
                elif job.is_anchor and answer.exception() is None:
                    self._anchored(job.member, job.member.heard(answer.result()))

    # --- trials ---------------------------------------------------------------------------------

    def prepare(self, anchor: PlannedTrial) -> None:
        """See ``TrialPool.prepare``."""
        for member in self.members:
            if member is not self._home and member.anchor is None:
                self._begin(_Job(member, anchor, is_anchor=True))

    def measure_all(
        self, trials: Iterator[PlannedTrial], anchor: Anchor
    ) -> Iterator[tuple[Trial, Measurement]]:
        """See ``TrialPool.measure_all``."""
        queue = TrialQueue(trials)
        while True:
            self._meet()
            self._hand_out(queue, anchor)
            trials_left = any(job.planned and not job.is_anchor for job in self._jobs.values())
            if queue.exhausted and not trials_left:
                return
            for job, answer in self._ended_jobs():
                try:
                    ended = self._take_in(job, answer)
                except WorkerLostError:
                    self._lose(job.member)
                    ended = None if job.planned is None or job.is_anchor else queue.lose(job.planned)
                if ended is not None:
                    yield ended

    def _hand_out(self, queue: TrialQueue, anchor: Anchor) -> None:
        """Give every member that is free its anchor, or a trial."""
        busy = {job.member.worker.address for job in self._jobs.values()}
        for member in self.members:
            if member.worker.address in busy:
                continue
            if member.anchor is not None and member.ratio is None:
                member.ratio = ratio_of(anchor.measurement, member.anchor)
            if member.ratio is None and not queue.exhausted:
                self._begin(_Job(member, PlannedTrial(anchor.trial, anchor.plans), is_anchor=True))
                continue
            planned = queue.next()
            if planned is None:
                return
            self._begin(_Job(member, planned))

    def _ended_jobs(self) -> list[tuple[_Job, "Future[Answer]"]]:
        """Jobs that have ended, after some waiting.

        Raises:
            PoolLostError: nobody is there, and nobody comes.
        """
        if self._jobs:
            self._alone_s = math.inf
            ended = wait(self._jobs, timeout=_POLL_S, return_when=FIRST_COMPLETED).done
            return [(self._jobs.pop(answer), answer) for answer in ended]
        self._alone_s = min(self._alone_s, time.monotonic())
        if time.monotonic() - self._alone_s > HOME_BACK_S:
            raise PoolLostError(f"all workers were lost, and none came within {HOME_BACK_S:g} s")
        time.sleep(_POLL_S)
        return []

    def _begin(self, job: _Job) -> None:
        """Have a member measure a trial, held against what is known in its own units."""
        planned = job.planned
        if planned is not None:
            contest = _as_seen(planned.contest, job.member)
            answer = job.member.submit("measurer", "measure", planned.trial, planned.plans, contest)
            self._jobs[answer] = job

    def _take_in(self, job: _Job, answer: "Future[Answer]") -> tuple[Trial, Measurement] | None:
        """Take in what a job gave; returns the trial that it measured, if it was one.

        Raises:
            WorkerLostError: the worker has gone, or its GPU has failed.
            PoolLostError: the scheduler has gone.
            TunerError: home has failed.
        """
        if job.planned is None:
            self._joined(job, answer)
            return None
        member = job.member
        try:
            measured: Measurement = member.heard(answer.result())
        except (WorkerLostError, PoolLostError):
            raise
        except TunerError as error:
            if member is self._home:
                raise
            self._refuse(member, f"{member.name} measures no more: {error}")
            raise WorkerLostError(str(error)) from error
        if job.is_anchor:
            self._anchored(member, measured)
            return None
        cost_j, member.anchor_j = measured.energy_total_j + member.anchor_j, 0.0
        return job.planned.trial, measured_on(replace(measured, energy_total_j=cost_j), member.gpu)

    def _anchored(self, member: Member, measured: Measurement) -> None:
        member.anchor_j = measured.energy_total_j
        if measured.ok:
            member.anchor = measured
            return
        detail = next((result.detail for result in measured.results if result.detail), "")
        why = f"the default trial ends as {measured.status.value} there{detail and f': {detail}'}"
        self._refuse(member, f"{member.name} is refused: {why}")


def _as_seen(contest: Contest | None, member: Member) -> Contest | None:
    """A contest whose best trial has the times and joules that a member would measure."""
    if contest is None or contest.best is None or member.ratio in (None, SAME_GPU):
        return contest
    trial, measurement = contest.best
    return replace(contest, best=(trial, scaled(measurement, member.gpu.ratio.inverse)))
