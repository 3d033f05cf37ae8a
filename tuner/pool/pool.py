"""A pool: calls to its home, and trials spread over all of its members."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.model.errors import (
    InputError,
    PoolError,
    PoolLostError,
    TunerError,
    UncheckableError,
    WorkerLostError,
)
from tuner.model.trial import SAME_GPU, AnchorRatio, Measurement, PoolGpu, Status, Trial, WorkloadResult
from tuner.pool.scaling import NetEnergies, measured_on, ratio_of, scaled
from tuner.pool.worker import (
    START_S,
    Answer,
    SetupOrder,
    WorkerFacts,
    WorkerTotals,
    call_setup,
    describe_setup,
    stop_setup,
)
from tuner.pool.worker_calls import PoolWorker, Workers
from tuner.power.base import SpentEnergy

# --- One worker of a pool, as the driver sees it.


@dataclass(eq=False)
class Member:
    """One worker of a pool, with what it has opened.

    Attributes:
        workers: through whom it is called.
        worker: the process.
        order: what it opens.
        facts: what it is; None until it has told.
        ratio: of the anchors; None until it has measured its own.
        anchor: the default trial as it measured it.
        anchor_j: joules that its anchor took; they are counted with its next trial.
        totals: of its setups, by their numbers.
    """

    workers: Workers
    worker: PoolWorker
    order: SetupOrder
    facts: WorkerFacts | None = None
    ratio: AnchorRatio | None = None
    anchor: Measurement | None = None
    anchor_j: float = 0.0
    totals: dict[int, WorkerTotals] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the member in messages."""
        if self.facts is None:
            return self.worker.address
        who = f"{self.facts.host} {self.facts.identity.spec}"
        return f"{who} (worker {self.worker.name})" if self.facts.identity.modelled else who

    @property
    def gpu(self) -> PoolGpu:
        """Description of the member's GPU for the record of its trials."""
        facts = self.known
        return PoolGpu(facts.host, facts.identity.uuid, facts.identity.driver, self.ratio or SAME_GPU)

    @property
    def known(self) -> WorkerFacts:
        """Its facts, which it has told.

        Raises:
            LookupError: it has not.
        """
        if self.facts is None:
            raise LookupError(f"{self.worker.address} has not told what it is")
        return self.facts

    def describe(self) -> "Future[Answer]":
        """Have it open its setup and tell what it is."""
        living = self.workers.living()
        return self.workers.submit(
            describe_setup, self.order, living, worker=self.worker.address, lease_s=self.order.lease_s
        )

    def submit(self, owner: str, method: str, *args: object) -> "Future[Answer]":
        """Call a method of its device or measurer."""
        where, lease_s = self.worker.address, self.order.lease_s
        return self.workers.submit(
            call_setup, self.order, owner, method, *args, worker=where, lease_s=lease_s
        )

    def call(self, owner: str, method: str, *args: object) -> Any:  # noqa: ANN401 - of the method
        """Call a method, and wait for what it returns.

        Raises:
            WorkerLostError: the worker has gone.
            PoolLostError: the scheduler has gone.
            TunerError: what the method raised.
        """
        answer: Answer = self.workers.wait(self.submit(owner, method, *args))
        return self.heard(answer)

    def named(self, error: InputError) -> InputError:
        """An error that it has told, with its host: files of another host are not those of this one."""
        hint = "; files do not travel: put it there under the same path"
        needs = hint if isinstance(error, UncheckableError) else ""
        return type(error)(f"host {self.known.host}: {error}{needs}")

    def heard(self, answer: Answer) -> Any:  # noqa: ANN401 - of the call
        """Take note of the totals of an answer; returns its value."""
        self.totals[answer.setup] = answer.totals
        return answer.value

    @property
    def now_s(self) -> float:
        """Of its device's clock, as far as it was heard."""
        return max((totals.now_s for totals in self.totals.values()), default=0.0)

    @property
    def windows_s(self) -> float:
        """Length of all its windows."""
        return sum(totals.windows_s for totals in self.totals.values())

    @property
    def spent(self) -> list[SpentEnergy]:
        """Joules of each of its setups that tells them."""
        return [totals.spent for totals in self.totals.values() if totals.spent is not None]

    @property
    def notices(self) -> list[str]:
        """Messages of the member's measurers, with its name."""
        notices = dict.fromkeys(notice for totals in self.totals.values() for notice in totals.notices)
        return [f"{self.name}: {notice}" for notice in notices]

    def misfit(self, home: WorkerFacts) -> str:
        """Return the differences from home that exclude the member from its pool; empty without any."""
        own = self.known
        pairs = (
            ("GPU", own.identity.name, home.identity.name),
            ("driver", own.identity.driver, home.identity.driver),
            ("CUDA", own.identity.runtime, home.identity.runtime),
            ("sensor", own.sensor, home.sensor),
            ("window", own.window_s, home.window_s),
        )
        differing = [f"{what} {here}, not {there}" for what, here, there in pairs if here != there]
        return "; ".join(differing)


def joined(spent: list[SpentEnergy]) -> SpentEnergy | None:
    """Joules of several meters together; None of none."""
    if not spent:
        return None
    total = spent[0]
    for other in spent[1:]:
        total = replace(
            total,
            joules=total.joules + other.joules,
            sigma_j=math.hypot(total.sigma_j, other.sigma_j),
            unseen_j=total.unseen_j + other.unseen_j,
            unseen_sigma_j=math.hypot(total.unseen_sigma_j, other.unseen_sigma_j),
            unseen_s=total.unseen_s + other.unseen_s,
        )
    return total


class Crew:
    """Members of one kind, each with a GPU of its own; one of them is home.

    Attributes:
        told: the sentences so far.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._members: dict[str, Member] = {}
        self._gone: list[Member] = []
        self._refused: set[str] = set()
        self._home: Member | None = None
        self.told: list[str] = []

    @property
    def home(self) -> Member:
        """The member on which all is measured that is compared turn by turn; it may be lost just now.

        Raises:
            PoolLostError: there never was one.
        """
        if self._home is None:
            raise PoolLostError("the pool has no home")
        return self._home

    @property
    def members(self) -> Sequence[Member]:
        """Those that are there."""
        return list(self._members.values())

    @property
    def all_members(self) -> Sequence[Member]:
        """Those that have gone too."""
        return [*self._gone, *self.members]

    def clock_of(self, name: str) -> float:
        """Return the time on a lost worker's device clock, in seconds; 0 for a new name."""
        return max((member.now_s for member in self._gone if member.worker.name == name), default=0.0)

    def knows(self, address: str) -> bool:
        """True for a member, and for a worker that was refused."""
        return address in self._members or address in self._refused

    def found(self, opened: Sequence[Member], preferred: Sequence[str]) -> None:
        """Begin with the workers that have opened their setups.

        Args:
            opened: one at least.
            preferred: UUIDs of the GPUs that are to be home where they are there, the first one first.
        """
        ranks = {uuid: rank for rank, uuid in enumerate(preferred)}

        def rank(member: Member) -> tuple[int, str, str]:
            return ranks.get(member.known.identity.uuid, len(ranks)), member.name, member.worker.address

        ranked = sorted(opened, key=rank)
        self._home = ranked[0]
        for member in ranked:
            self._take(member)
        gpus = "1 GPU" if len(self._members) == 1 else f"{len(self._members)} GPUs"
        kind = self._home.known.identity.name
        self._say(f"pool: {gpus}, {kind}; contenders are confirmed on {self._home.name}")

    def join(self, member: Member) -> None:
        """Take in a worker that came later; it is home where it has the GPU of a home that was lost."""
        home = self.home
        is_home = member.known.identity == home.known.identity and not member.misfit(home.known)
        if is_home and home.worker.address not in self._members:
            self._home = member
        if self._take(member):
            self._say(f"pool: {member.name} has joined")

    def refuse(self, member: Member, why: str) -> None:
        """Let a worker measure no more, for a reason."""
        self._refused.add(member.worker.address)
        self._leave(member)
        self._say(f"pool: {why}")

    def leave_out(self, address: str, why: str) -> None:
        """A worker may not take part; each reason is told once."""
        sentence = f"pool: {address} is left out: {why}"
        if sentence not in self.told:
            self._say(sentence)

    def lose(self, member: Member) -> None:
        """A worker has gone."""
        if self._leave(member):
            self._say(f"pool: {member.name} is lost")

    def keep(self, present: Container[str]) -> None:
        """Those whose addresses are not present have gone."""
        for member in self.members:
            if member.worker.address not in present:
                self.lose(member)

    def _take(self, member: Member) -> bool:
        """Take a member in that has told what it is, or refuse it."""
        if member is not self._home:
            why = member.misfit(self.home.known)
            if why:
                self.refuse(member, f"{member.name} is refused: {why}")
                return False
            own = member.known.identity
            for other in self.members:  # simulated GPUs are as many as there are workers
                if other.known.identity.uuid == own.uuid and not own.modelled:
                    why = f"{other.name} is the same GPU ({own.uuid})"
                    self.refuse(member, f"{member.name} is refused: {why}")
                    return False
        member.ratio = SAME_GPU if member is self._home else None
        self._members[member.worker.address] = member
        return True

    def _leave(self, member: Member) -> bool:
        if self._members.pop(member.worker.address, None) is None:
            return False
        self._gone.append(member)
        return True

    def _say(self, sentence: str) -> None:
        self.told.append(sentence)
        self._tell(sentence)


# --- Trials that wait for a member.

MOST_LOSSES = 3
"""Workers lost with one trial, until it is taken to be what kills them."""


class TrialQueue:
    """Hands out trials one by one, and those again whose worker was lost.

    Args:
        trials: asked for the next one when it is wanted.
    """

    def __init__(self, trials: Iterator[PlannedTrial]) -> None:
        self._trials = trials
        self._again: deque[PlannedTrial] = deque()
        self._losses: Counter[Trial] = Counter()
        self._exhausted = False

    @property
    def exhausted(self) -> bool:
        """True when nothing is left to hand out."""
        return self._exhausted and not self._again

    def next(self) -> PlannedTrial | None:
        """The next trial; None when there is none."""
        if self._again:
            return self._again.popleft()
        planned = None if self._exhausted else next(self._trials, None)
        self._exhausted = planned is None
        return planned

    def lose(self, planned: PlannedTrial) -> tuple[Trial, Measurement] | None:
        """Put a trial back whose worker was lost; after too many losses it has failed."""
        self._losses[planned.trial] += 1
        if self._losses[planned.trial] < MOST_LOSSES:
            self._again.append(planned)
            return None
        detail = f"{MOST_LOSSES} workers of the pool were lost with it"
        failed = tuple(WorkloadResult(Status.CRASHED, detail=detail) for _ in planned.trial.configurations)
        return planned.trial, Measurement(failed)


# --- The pool.

HOME_BACK_S = START_S
"""Longest wait for a lost home, in s: its process is started anew, or its host comes back."""

_POLL_S = 0.5


@dataclass(frozen=True)
class _Job:
    """Task of a member: open its setup, measure its anchor, or measure a trial."""

    member: Member
    planned: PlannedTrial | None = None
    is_anchor: bool = False


class Pool:
    """Implements ``TrialPool`` by the workers of a scheduler.

    Every member opens the setup that the run asks for. Members may come and go at any time. Each does one
    thing at a time, and is given the next trial when it has ended one, so that it is held against what is
    known by then.

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
        members = [Member(self._workers, worker, self._order) for worker in self._workers.present.values()]
        opening = [(member, member.describe()) for member in members]
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
                if job.planned is None:
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
        self, trials: Iterator[PlannedTrial], anchor: ReferenceTrial
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

    def _hand_out(self, queue: TrialQueue, anchor: ReferenceTrial) -> None:
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
            target = self._as_seen(planned, job.member)
            answer = job.member.submit("measurer", "measure", planned.trial, planned.plans, target)
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
        as_home = measured_on(replace(measured, energy_total_j=cost_j), member.gpu)
        self.learn(job.planned.trial, as_home)
        return job.planned.trial, as_home

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

    def _as_seen(self, planned: PlannedTrial, member: Member) -> ComparisonTarget | None:
        """The comparison target of a trial, with the times and joules that a member would measure."""
        target, back = planned.target, member.gpu.ratio.inverse
        if target is None or target.best is None:
            return target
        trial, measurement = target.best
        elsewhere = self._energies.at(planned.trial.setting, back)
        return replace(target, best=(trial, scaled(measurement, back)), elsewhere=elsewhere)
