"""The backlog: what should be tuned or measured next, and how much that is worth.

The worth of a job is what its answer would save: uses per day times the joules that each use saves. It orders
the daemon's own jobs among each other; jobs of clients and of daemon.toml go first.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from tuner.daemon.answers.answerer import Answerer, may_verify, sample_document
from tuner.daemon.answers.replies import (
    AnswerSnapshot,
    answering_run,
    normalised,
    question_key,
    question_of,
    sample_task,
    sampling_spec,
    searched,
    stored_answer_to,
    tuning_spec,
)
from tuner.daemon.interface import NotNowError, Question, measured_saving
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.specs import topic, verifies, verifying
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import ServedAnswer
from tuner.model.errors import InputError, StoreError
from tuner.model.jobs import OWN, Job, JobKind, JobSpec, JobState, Origin
from tuner.model.options import SINGLE
from tuner.model.records import WorkloadName
from tuner.model.run_document import SampleDocument, TrialRecord
from tuner.model.typed import canonical

# --- How often answers are used, by counts that fade, and how long a job that was tried is left alone.

HALF_LIFE_DAYS = 7.0
"""A use counts half after a week: week-ends do not empty the table, and last year's work does not fill it."""

MOST_QUESTIONS = 2048
"""Questions that are counted at a time; the least used makes room. A client may ask for any batch, and the
longest question has some 3 KiB."""

BACK_OFF_S = 6 * 3600.0
"""A job that was tried is not proposed again for so long; whatever prevented a result may be gone by then."""

LONGEST_BACK_OFF_S = 7 * 86_400.0
"""The back-off doubles with every further try without a result, up to this."""

MOST_BACKED_OFF = 1024
"""Jobs that are remembered as tried."""

_MOST_DOUBLINGS = 10  # beyond the longest back-off

_DAY_S = 86_400.0
_FADED = 1e-3  # a count below this is forgotten: ten half-lives after a single use


class UseCounter:
    """Counts by question.

    Time is the daemon's own running time: a wall clock that jumps changes no count, and a day on which the
    machine was off fades nothing.
    """

    def __init__(
        self, flushed: Mapping[str, float] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._now_s = monotonic()
        self._counts: dict[str, float] = {}
        self._flushed: dict[str, float] = {}
        self._touched: set[str] = set()  # used since they were flushed last
        self.restore(flushed or {})

    def restore(self, flushed: Mapping[str, float]) -> None:
        """Add the counts that were flushed before this process began."""
        usable = {key: value for key, value in flushed.items() if math.isfinite(value)}
        self._flushed |= usable
        for key, value in usable.items():
            if value > 0.0:
                self._counts[key] = self._counts.get(key, 0.0) + value
        while len(self._counts) > MOST_QUESTIONS:
            self._make_room()

    def add(self, key: str, count: float) -> None:
        """Count uses of an answer now."""
        if count <= 0.0:
            return
        self._fade()
        if key not in self._counts and len(self._counts) >= MOST_QUESTIONS:
            self._make_room()
        self._counts[key] = self._counts.get(key, 0.0) + count
        self._touched.add(key)

    def per_day(self) -> dict[str, float]:
        """Uses per day by question, the most used first: what a steady use would have led to these counts."""
        self._fade()
        rate = math.log(2.0) / HALF_LIFE_DAYS
        ordered = sorted(self._counts.items(), key=lambda item: -item[1])
        return {key: count * rate for key, count in ordered}

    def take(self, *, used_only: bool = False) -> dict[str, float]:
        """Return the changes that bring the counts on the disk up to date; negative if a count has faded.

        Args:
            used_only: leave out counts that have only faded since the last call, which are many.
        """
        self._fade()
        keys = set(self._touched) if used_only else self._counts.keys() | self._flushed.keys()
        self._touched.clear()
        changes = {key: self._counts.get(key, 0.0) - self._flushed.get(key, 0.0) for key in keys}
        for key in keys:
            if key in self._counts:
                self._flushed[key] = self._counts[key]
            else:
                self._flushed.pop(key, None)
        return {key: change for key, change in changes.items() if change != 0.0}

    def put_back(self, changes: Mapping[str, float]) -> None:
        """Undo ``take``: the disk did not take them."""
        for key, change in changes.items():
            self._flushed[key] = self._flushed.get(key, 0.0) - change
        self._touched.update(changes)

    def __len__(self) -> int:
        return len(self._counts)

    def _make_room(self) -> None:
        """Forget the least used; of new ones that were asked once each, the oldest."""
        del self._counts[min(self._counts, key=self._counts.__getitem__)]

    def _fade(self) -> None:
        now_s = self._monotonic()
        if now_s - self._now_s < 1.0:  # nothing fades within a second that could be seen
            return
        factor = 0.5 ** ((now_s - self._now_s) / (HALF_LIFE_DAYS * _DAY_S))
        self._now_s = now_s
        faded = {key: count * factor for key, count in self._counts.items()}
        self._counts = {key: count for key, count in faded.items() if count >= _FADED}


class BackOff:
    """Jobs by a key, and until when each is left alone."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until_s: dict[str, float] = {}
        self._in_vain: dict[str, int] = {}  # how often in a row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until_s.get(key, 0.0) > self._monotonic()

    def begin(self, key: str, seconds: float) -> None:
        """Leave a job alone for so long."""
        self._until_s.pop(key, None)
        self._until_s[key] = self._monotonic() + seconds
        _bound(self._until_s)

    def tried(self, key: str, *, in_vain: bool) -> None:
        """Leave a job alone that was tried; for longer where it had no result again."""
        times = self._in_vain.pop(key, 0) if in_vain else 0
        self.begin(key, min(BACK_OFF_S * 2.0**times, LONGEST_BACK_OFF_S))
        if in_vain:
            self._in_vain[key] = min(times + 1, _MOST_DOUBLINGS)
            _bound(self._in_vain)
        else:
            self._in_vain.pop(key, None)

    def end(self, key: str) -> None:
        """Let a job be proposed again."""
        self._until_s.pop(key, None)

    def clear(self) -> None:
        """Let all be proposed again."""
        self._until_s.clear()
        self._in_vain.clear()


def _bound(table: dict[str, float] | dict[str, int]) -> None:
    while len(table) > MOST_BACKED_OFF:
        del table[next(iter(table))]


# --- What jobs would be worth, and the backlog of them.

ASSUMED_POWER_W = 100.0
"""Of a GPU at work whose power nobody has measured: it turns seconds into joules, to compare jobs by."""

ASSUMED_SAVING_J = 0.01
"""Of one use of what was never tuned, where nothing else was either: a tenth of a round of 1 ms at 100 W."""

LEAST_SAVING = 0.01
"""Share of an answer's cost that tuning again is taken to save at least: answers that tie with the default
may have lost more than that."""

MOST_CANDIDATES = 64
"""Jobs that are proposed at a time, and the most used questions that are looked at for them: a GPU does few
in a day, and looking must not keep the event loop from answering."""

SAMPLE_SHARE = 0.1
"""Of the worth of an answer, what measuring it again is worth: few samples find that it has drifted."""

REST_SHARE = 0.1
"""Of what an answer saves, what the rest of its search may bring, where a limit or a stop ended it."""

SAMPLE_BACK_OFF_S = 900.0
"""An answer that is being measured again is not proposed for so long, unless a result comes earlier."""

ENDING_S = 60.0
"""A job whose attempt has ended is not proposed for so long, while its result is read."""

_AT_ONCE = 8  # workloads that are looked at before others have their turn; each takes 0.1 ms


@dataclass(frozen=True)
class CandidateJob:
    """A job that the daemon proposes by itself.

    Attributes:
        spec: what to do.
        topic: of the spec.
        origin: why.
        priority: from -1 to 0, where 0 is what clients and daemon.toml ask for by default.
        reason: in words.
        worth_j: joules per day that it is expected to save.
    """

    spec: JobSpec
    topic: str
    origin: Origin
    priority: float
    reason: str
    worth_j: float


def priority(worth_j: float) -> float:
    """Of a job that saves this many joules per day: rises with it, and stays below 0."""
    return -1.0 / (1.0 + max(0.0, worth_j))


def saving_j(answer: StoredAnswer) -> float:
    """Joules that one use of an answer saves against the default, by the measurements of its run.

    Of an answer for time, seconds count with the power that was measured.
    """
    best, default = answer.answer["best"], answer.answer.get("default")
    measured = None if answer.objective == "time" else measured_saving(answer.answer)
    cost_j, saved_j = best.get("energy_j"), None if measured is None else measured.joules
    if saved_j is None:
        power_w = best.get("power_w") or ASSUMED_POWER_W
        cost_j = power_w * (best.get("time_s") or 0.0)
        saved_j = power_w * ((default or {}).get("time_s") or 0.0) - cost_j
    saved_j = max(float(saved_j), LEAST_SAVING * float(cost_j or 0.0))
    return saved_j if math.isfinite(saved_j) else ASSUMED_SAVING_J


def worth_of(priority: float) -> float:
    """Joules per day, of a priority that ``priority`` gave."""
    return max(0.0, -1.0 / priority - 1.0) if priority < 0.0 else math.inf


class CandidateJobs:
    """The jobs that would make the answers of a snapshot better or surer."""

    def __init__(self, snapshot: AnswerSnapshot) -> None:
        self.snapshot = snapshot
        self._assessments: dict[str, _Assessment | None] = {}
        self._stale: dict[int, _Assessment | None] = {}  # by run
        # What other hosts have measured is only tuned here where somebody asks for it.
        own = (answer for answer in snapshot.index.stale if not answer.merged_from)
        self._stale_answers = list(itertools.islice(own, MOST_CANDIDATES))
        self._savings: dict[tuple[str, str], list[float]] = {}
        for answer in snapshot.index.answers:
            device = str(answer.conditions["device"]["name"])
            each_j = saving_j(answer) / len(answer.names)
            for kernel in ("", *(WorkloadName.parse(name).kernel for name in answer.names)):
                self._savings.setdefault((device, kernel), []).append(each_j)

    def best(
        self,
        per_day: Mapping[str, float],
        now: datetime,
        backed_off: Callable[[JobSpec], bool] = lambda _spec: False,
    ) -> list[CandidateJob]:
        """Jobs worth doing, the best first; at most ``MOST_CANDIDATES``.

        Args:
            per_day: uses by question, the most used first.
            now: the present, for samples.
            backed_off: whether a job is left alone for a while.
        """
        candidates: dict[str, CandidateJob] = {}
        for key, uses in itertools.islice(per_day.items(), MOST_CANDIDATES):
            assessment = self._question(key)
            candidate = None if assessment is None else self._of(assessment, uses, now)
            if candidate is not None and not backed_off(candidate.spec):
                candidates[key] = candidate
        for answer in self._stale_answers:
            assessment = self._of_stale(answer)
            if assessment is None or assessment.key in per_day:
                continue
            candidate = self._of(assessment, 0.0, now)
            if candidate is not None and not backed_off(candidate.spec):
                candidates[assessment.key] = candidate
        return sorted(candidates.values(), key=lambda candidate: -candidate.priority)[:MOST_CANDIDATES]

    def work_out(self, per_day: Mapping[str, float]) -> bool:
        """Do some of the work of ``best``; True where more is left, for after others had a turn."""
        remaining = _AT_ONCE
        new: Iterator[str | StoredAnswer] = itertools.chain(
            (key for key in itertools.islice(per_day, MOST_CANDIDATES) if key not in self._assessments),
            (answer for answer in self._stale_answers if answer.run not in self._stale),
        )
        for subject in new:
            if remaining <= 0:
                return True
            assessment = self._question(subject) if isinstance(subject, str) else self._of_stale(subject)
            remaining -= 1 if assessment is None else len(assessment.question.workloads)
        return False

    def expected_saving_j(self, question: Question) -> float:
        """Joules that tuning what was never tuned is taken to save per use.

        Of each workload the mean of what answers of its kernel save, else of what all answers save, else
        ``ASSUMED_SAVING_J``; the sum over the workloads.
        """
        device = self.snapshot.identities[question.device].name
        every = self._savings.get((device, "")) or [ASSUMED_SAVING_J]
        values = [
            self._savings.get((device, WorkloadName.parse(spec).kernel)) or every
            for spec in question.workloads
        ]
        return math.fsum(math.fsum(each_j) / len(each_j) for each_j in values)

    def _of(self, assessment: "_Assessment", uses: float, now: datetime) -> CandidateJob | None:
        """Return the job that would make the answer to a question better or surer; None if no job would."""
        online, served = self.snapshot.settings.online, assessment.served
        if served is not None and not served.stale:
            if not uses:
                return None
            if online.refine and not searched(served.answer, assessment.spec):
                worth_j, reason = REST_SHARE * uses * saving_j(served.answer), "its search did not finish"
                return assessment.search(Origin.REQUEST, worth_j, reason)
            return self._sample(assessment, served.answer, uses, now)
        if served is not None:
            origin = Origin.DRIFT if served.answer.samples.drifted else Origin.STALE
            worth_j, reason = uses * saving_j(served.answer), "; ".join(served.stale)
            return assessment.search(origin, worth_j, reason) if online.retune_stale else None
        worth_j = uses * self.expected_saving_j(assessment.question)
        return assessment.search(Origin.REQUEST, worth_j, "never tuned") if online.refine and uses else None

    def _sample(
        self, assessment: "_Assessment", answer: StoredAnswer, uses: float, now: datetime
    ) -> CandidateJob | None:
        if not answer.samples.due(answer.at, now, self.snapshot.settings.online.sample_every_hours):
            return None
        worth_j, reason = uses * saving_j(answer), "the last sample was outside its interval"
        if not answer.samples.doubted:
            worth_j, reason = SAMPLE_SHARE * worth_j, "measured again now and then"
        spec = sampling_spec(assessment.question, answer, self.snapshot)
        return CandidateJob(spec, topic(spec), Origin.CHECK, priority(worth_j), reason, worth_j)

    def _question(self, key: str) -> "_Assessment | None":
        """The question that is counted by a key; None where it cannot be asked any more."""
        if key not in self._assessments:
            try:
                self._assessments[key] = self._assess(question_of(key))
            except InputError:  # its kernel, size or device is gone: it counts until it fades
                self._assessments[key] = None
        return self._assessments[key]

    def _of_stale(self, answer: StoredAnswer) -> "_Assessment | None":
        """The question that an answer was made for; None where it cannot be asked any more."""
        if answer.run not in self._stale:
            device = self.snapshot.device(answer)
            tuned = {**dict(answer.conditions["workloads"]), **answer.conditions["asked"]}
            specs = tuple(str(WorkloadName.parse(name).with_batch(tuned[name])) for name in answer.names)
            objective = answer.objective.split(" ", 1)[0]
            self._stale[answer.run] = None
            with contextlib.suppress(InputError):  # its kernel or size is gone
                if device is not None:
                    timing = SINGLE if answer.timing == SINGLE else ""
                    question = Question(
                        specs, objective, device.spec, answer.max_slowdown, timing=timing, count=0.0
                    )
                    self._stale[answer.run] = self._assess(question)
        return self._stale[answer.run]

    def _assess(self, question: Question) -> "_Assessment":
        question = normalised(question, self.snapshot)
        spec = tuning_spec(question, self.snapshot)
        if may_verify(question, spec, self.snapshot):
            spec = verifying(spec)
        served = stored_answer_to(question, self.snapshot)
        return _Assessment(question, question_key(question), served, spec, topic(spec))


class _Assessment(NamedTuple):
    """Assessment of a question, valid until something changes."""

    question: Question
    key: str
    served: ServedAnswer | None
    spec: JobSpec
    topic: str

    def search(self, origin: Origin, worth_j: float, reason: str) -> CandidateJob:
        """Its search."""
        return CandidateJob(self.spec, self.topic, origin, priority(worth_j), reason, worth_j)


class Backlog:
    """Jobs that the daemon would start by itself, and the uses of answers that decide on them.

    Every method belongs to the event loop.

    Attributes:
        uses: of answers, by ``question_key``.
    """

    def __init__(
        self,
        answerer: Answerer,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self.uses = UseCounter(monotonic=monotonic)
        self._answerer = answerer
        self._now = now
        self._back_off = BackOff(monotonic)
        self._sampling: dict[int, str] = {}  # run -> key of the job that measures its answer again
        self._candidates: CandidateJobs | None = None

    def candidates(self) -> list[CandidateJob]:
        """Jobs that would make answers better or surer, the most worthwhile first."""
        return self._current().best(self.uses.per_day(), self._now(), self.backed_off)

    def work_out(self) -> bool:
        """Do some of the work of ``candidates``; True where more is left, for after others had a turn."""
        return self._current().work_out(self.uses.per_day())

    def _current(self) -> CandidateJobs:
        snapshot = self._answerer.snapshot
        if self._candidates is None or self._candidates.snapshot is not snapshot:
            self._candidates = CandidateJobs(snapshot)
        return self._candidates

    def backed_off(self, spec: JobSpec) -> bool:
        """True for a job that was tried lately."""
        return _key(spec) in self._back_off

    def ending(self, spec: JobSpec) -> None:
        """Leave a job alone whose attempt has ended, until ``tried`` knows what it has brought."""
        if not self.backed_off(spec):
            self._back_off.begin(_key(spec), ENDING_S)

    def tried(self, spec: JobSpec) -> None:
        """Leave a job alone for a while that was tried."""
        self._back_off.tried(_key(spec), in_vain=answering_run(spec, self._answerer.snapshot) is None)

    def reconsider(self) -> None:
        """End all back-off: settings, kernels or devices have changed."""
        self._back_off.clear()

    def sample_task(self, spec: JobSpec) -> tuple[int, TrialRecord] | None:
        """Return the run and the trial of a job of the kind ``sample``; None without a fresh answer.

        Raises:
            InputError: its workloads or its device are not known any more.
        """
        task = sample_task(spec, self._answerer.snapshot)
        if task is not None:
            self._sampling[task[0]] = _key(spec)
            self._back_off.begin(_key(spec), SAMPLE_BACK_OFF_S)
        return task

    def sampled(self, run: int, measurement: Mapping[str, Any]) -> SampleDocument | None:
        """Judge a sample; replies take account of it from now on.

        Args:
            run: whose answer was measured again.
            measurement: as ``tuner.model.records.measurement_record`` writes it.

        Returns:
            What ``Ledger.add_sample`` is to keep; None where the answer is served no more.

        Raises:
            StoreError: the record is no measurement.
        """
        self._back_off.end(self._sampling.pop(run, ""))
        answers = self._answerer.snapshot.index.answers
        answer = next((answer for answer in answers if answer.run == run), None)
        if answer is None:
            return None
        document = sample_document(answer.objective, answer.answer, measurement, self._now())
        samples = answer.samples.after(document)
        self._answerer.take_samples(run, samples)
        if samples.drifted:
            self._back_off.clear()  # the search that gave this answer was not in vain
        return document


def _key(spec: JobSpec) -> str:
    """Equal for jobs that have no result for the same reason, in whatever order the workloads are named."""
    return canonical(
        [sorted(spec.workloads), spec.objective, spec.device, spec.kind.value, dict(spec.options)]
    )


# --- The jobs that the daemon queues itself.

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

    async def queue(self, spec: JobSpec, origin: Origin, priority: float) -> Job | None:
        """The job that gives the answer of a spec; it is queued now if there is none.

        Returns:
            None where it cannot be queued now; it will be proposed again.
        """
        async with self._lock:
            queued = self._known(spec, origin)
            if queued is not None:
                return queued
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
                candidate = self._next(candidates)
                if candidate is None:
                    return
                if await self.queue(candidate.spec, candidate.origin, candidate.priority) is None:
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
                candidate
                for candidate in candidates
                if first.get(candidate.spec.device, -math.inf) < candidate.priority
                and not self._is_asked(candidate.spec)
                and (verifies(candidate.spec) or not self.searched_elsewhere(candidate.spec))
                and self._known(candidate.spec, candidate.origin) is None
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
            job.kind is JobKind.TUNE
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
        listed = {
            job.id: candidate.worth_j
            for candidate in candidates
            for job in self._alike(candidate.spec, candidate.topic)
        }
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

    def _known(self, spec: JobSpec, origin: Origin) -> Job | None:
        """The job that gives the answer of a spec; one that a client has paused does not count.

        A set does not count on the daemon's own job, which goes after everybody's.
        """
        for job in self._alike(spec, topic(spec)):
            waits_for_client = job.origin is Origin.CLIENT and job.state is JobState.PAUSED
            gives_way = origin is Origin.SET and job.origin in OWN
            if not waits_for_client and not gives_way:
                return job
        return None

    def _alike(self, spec: JobSpec, searched: str) -> list[Job]:
        """Jobs that have not ended and give the answer of a spec."""
        if spec.kind is JobKind.TUNE:
            return self._board.searches(searched)
        job = self._board.find(spec)
        return [] if job is None else [job]
