"""A pool: calls to its home, and trials spread over all of its members."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tuner.measurement.base import Anchor, Contest, PlannedTrial
from tuner.model.errors import InputError, PoolError, PoolLostError, TunerError, WorkerLostError
from tuner.model.trial import Measurement, Trial
from tuner.pool.crew import Crew
from tuner.pool.member import Member
from tuner.pool.net_energies import NetEnergies
from tuner.pool.scaling import measured_on, ratio_of, scaled
from tuner.pool.trial_queue import MOST_LOSSES, TrialQueue
from tuner.pool.worker import Answer, SetupOrder, stop_setup
from tuner.pool.worker_process import START_S
from tuner.pool.workers import Workers

HOME_BACK_S = START_S
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

    Every member opens the setup that the run asks for. Members may come and go at any time. Each does one
    thing at a time, and is given the next trial when it has ended one, so that it is held against what is
    known by then.

    Args:
        workers: the processes.
        order: what each opens.
        tell: takes a sentence for the user.
        home_back_s: how long a lost home is waited for.

    Attributes:
        crew: the members.
    """

    def __init__(
        self,
        workers: Workers,
        order: SetupOrder,
        tell: Callable[[str], None],
        *,
        home_back_s: float = HOME_BACK_S,
    ) -> None:
        self.crew = Crew(tell)
        self._home_back_s = home_back_s
        self._workers = workers
        self._order = order
        self._jobs: dict[Future[Any], _Job] = {}
        self._energies = NetEnergies()
        self._alone_s = math.inf  # when nobody was there any more

    @property
    def parallel(self) -> int:
        """See ``TrialPool.parallel``."""
        return max(1, len(self.crew.members))

    # --- who is there ---------------------------------------------------------------------------

    def open(self, preferred: Sequence[str] = ()) -> None:
        """Have all workers open their setups, and choose home.

        Args:
            preferred: UUIDs of the GPUs that are to be home where they are there, the first one first.

        Raises:
            TunerError: no worker can measure; the reason of the first.
        """
        self._look()
        found = [Member(self._workers, worker, self._order) for worker in self._workers.present.values()]
        opening = [(member, member.describe()) for member in found]
        opened, problems = list[Member](), list[TunerError]()
        for member, answer in opening:
            while not answer.done():
                wait([answer], timeout=_POLL_S)
                self._workers.refresh()
            problem = self._described(member, answer)
            if problem is None:
                opened.append(member)
            else:
                problems.append(problem)
        if not opened:
            raise problems[0] if problems else PoolError("no worker is left")
        self.crew.found(opened, preferred)

    def close(self) -> None:
        """Have all members give back GPU and clocks, whatever they do; who is frozen is not waited for."""
        with suppress(PoolLostError):
            self._workers.refresh()
            self.crew.keep(self._workers.present)
        self._workers.run_everywhere(stop_setup, self._order.run)

    def _described(self, member: Member, answer: "Future[Answer]") -> TunerError | None:
        """Hear what a worker is; returns why it cannot measure."""
        try:
            member.facts = member.heard(answer.result())
        except PoolLostError:
            raise
        except WorkerLostError as error:
            return error
        except TunerError as error:
            self.crew.refuse(member, f"the worker at {member.worker.address} cannot measure: {error}")
            return error
        return None

    def _look(self) -> None:
        """See who is there, and tell who may not take part."""
        self._workers.refresh()
        for address, why in self._workers.left_out.items():
            self.crew.leave_out(address, why)

    def _meet(self) -> None:
        """Have workers that are new open their setups, and forget those that have gone."""
        self._look()
        present = self._workers.present
        self.crew.keep(present)
        busy = {job.member.worker.address for job in self._jobs.values()}
        for address, worker in present.items():
            if address not in busy and not self.crew.knows(address):
                order = replace(self._order, clock_s=self.crew.clock_of(worker.name))
                member = Member(self._workers, worker, order)
                self._jobs[member.describe()] = _Job(member)

    def _joined(self, member: Member, answer: "Future[Answer]") -> None:
        """A worker has opened its setup, or could not."""
        if self._described(member, answer) is None:
            self.crew.join(member)

    # --- home -----------------------------------------------------------------------------------

    def at_home(self, owner: str, method: str, *args: object) -> Any:  # noqa: ANN401 - of the method
        """Call a method of home's device or measurer; where home is lost, again when it is back.

        Raises:
            PoolLostError: the scheduler has gone, or home has and does not come back.
            TunerError: what the method raised.
        """
        for _ in range(MOST_LOSSES):
            home = self.crew.home
            try:
                return home.call(owner, method, *args)
            except WorkerLostError:
                self.crew.lose(home)
            except InputError as error:
                raise home.named(error) from error
            finally:
                self.crew.keep(self._workers.present)  # the others too
            self._wait_for_home()
        raise PoolLostError(f"{self.crew.home.name} was lost {MOST_LOSSES} times with the same call")

    def _wait_for_home(self) -> None:
        lost, until = self.crew.home, time.monotonic() + self._home_back_s
        while self.crew.home is lost:
            if time.monotonic() > until:
                raise PoolLostError(
                    f"{lost.name}, on which contenders are confirmed, was lost and is not back within"
                    f" {self._home_back_s:g} s"
                )
            self._meet()
            for job, answer in self._ended_jobs():
                if job.is_opening:
                    self._joined(job.member, answer)
                elif job.is_anchor and answer.exception() is None:
                    self._anchored(job.member, job.member.heard(answer.result()))

    # --- trials ---------------------------------------------------------------------------------

    def prepare(self, anchor: PlannedTrial) -> None:
        """See ``TrialPool.prepare``."""
        for member in self.crew.members:
            if member is not self.crew.home and member.anchor is None:
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
                    self.crew.lose(job.member)
                    ended = None if job.planned is None or job.is_anchor else queue.lose(job.planned)
                if ended is not None:
                    yield ended

    def _hand_out(self, queue: TrialQueue, anchor: Anchor) -> None:
        """Give every member that is free its anchor, or a trial."""
        busy = {job.member.worker.address for job in self._jobs.values()}
        for member in self.crew.members:
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
        if time.monotonic() - self._alone_s > self._home_back_s:
            raise PoolLostError(f"all workers were lost, and none came within {self._home_back_s:g} s")
        time.sleep(_POLL_S)
        return []

    def _begin(self, job: _Job) -> None:
        """Have a member measure a trial, held against what is known in its own units."""
        planned = job.planned
        if planned is not None:
            contest = self._as_seen(planned, job.member)
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
            self._joined(job.member, answer)
            return None
        member = job.member
        try:
            measured: Measurement = member.heard(answer.result())
        except (WorkerLostError, PoolLostError):
            raise
        except TunerError as error:
            if member is self.crew.home:
                raise (member.named(error) if isinstance(error, InputError) else error) from error
            self.crew.refuse(member, f"{member.name} measures no more: {error}")
            raise WorkerLostError(str(error)) from error
        if job.is_anchor:
            self._anchored(member, measured)
            return None
        cost_j, member.anchor_j = measured.energy_total_j + member.anchor_j, 0.0
        found = measured_on(replace(measured, energy_total_j=cost_j), member.gpu)
        self.learn(job.planned.trial, found)
        return job.planned.trial, found

    def learn(self, trial: Trial, measured: Measurement) -> None:
        """Take note of what a trial shows of power, in home's units, for the GPUs that did not measure it."""
        self._energies.add(trial.setting, measured)

    def _anchored(self, member: Member, measured: Measurement) -> None:
        member.anchor_j = measured.energy_total_j
        if measured.ok:
            member.anchor = measured
            return
        detail = next((result.detail for result in measured.results if result.detail), "")
        why = f"the default trial ends as {measured.status.value} there{detail and f': {detail}'}"
        self.crew.refuse(member, f"{member.name} is refused: {why}")

    def _as_seen(self, planned: PlannedTrial, member: Member) -> Contest | None:
        """The contest of a trial, with the times and joules that a member would measure."""
        contest, back = planned.contest, member.gpu.ratio.inverse
        if contest is None or contest.best is None:
            return contest
        trial, measurement = contest.best
        elsewhere = self._energies.at(planned.trial.setting, back)
        return replace(contest, best=(trial, scaled(measurement, back)), elsewhere=elsewhere)
