"""What should be tuned or measured next, and how much that is worth.

The worth of a job is what its answer would save: uses per day times the joules that each use saves. It orders
the daemon's own jobs among each other; jobs of clients and of daemon.toml go first.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from tuner.daemon.answers.answerer import Answerer, sample_document
from tuner.daemon.answers.replies import (
    SampleTask,
    normalised,
    question_key,
    question_of,
    sampling_spec,
    searched,
    stored_answer_to,
    tuning_spec,
)
from tuner.daemon.answers.snapshot import AnswerSnapshot
from tuner.daemon.answers.verifiable import may_verify
from tuner.daemon.backlog.uses import BackOff, UseCounter
from tuner.daemon.interface import Question, measured_saving
from tuner.daemon.jobs.specs import topic, verifying, with_batch
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import ServedAnswer
from tuner.model.errors import InputError
from tuner.model.jobs import JobSpec, Origin
from tuner.model.records import canonical
from tuner.model.workload_name import WorkloadName

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
    """The jobs that would make the answers of a snapshot better or surer.

    Args:
        snapshot: what replies are made of.
    """

    def __init__(self, snapshot: AnswerSnapshot) -> None:
        self.snapshot = snapshot
        self._looks: dict[str, _Assessment | None] = {}
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
        found: dict[str, CandidateJob] = {}
        for key, uses in itertools.islice(per_day.items(), MOST_CANDIDATES):
            look = self._question(key)
            one = None if look is None else self._of(look, uses, now)
            if one is not None and not backed_off(one.spec):
                found[key] = one
        for answer in self._stale_answers:
            look = self._of_stale(answer)
            if look is None or look.key in per_day:
                continue
            one = self._of(look, 0.0, now)
            if one is not None and not backed_off(one.spec):
                found[look.key] = one
        return sorted(found.values(), key=lambda one: -one.priority)[:MOST_CANDIDATES]

    def work_out(self, per_day: Mapping[str, float]) -> bool:
        """Do some of the work of ``best``; True where more is left, for after others had a turn."""
        left = _AT_ONCE
        new: Iterator[str | StoredAnswer] = itertools.chain(
            (key for key in itertools.islice(per_day, MOST_CANDIDATES) if key not in self._looks),
            (answer for answer in self._stale_answers if answer.run not in self._stale),
        )
        for one in new:
            if left <= 0:
                return True
            look = self._question(one) if isinstance(one, str) else self._of_stale(one)
            left -= 1 if look is None else len(look.question.workloads)
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
        return math.fsum(math.fsum(one) / len(one) for one in values)

    def _of(self, look: "_Assessment", uses: float, now: datetime) -> CandidateJob | None:
        """What would make the answer to a question better or surer; None where nothing would."""
        online, found = self.snapshot.settings.online, look.found
        if found is not None and not found.stale:
            if not uses:
                return None
            if online.refine and not searched(found.answer, look.spec):
                worth_j, reason = REST_SHARE * uses * saving_j(found.answer), "its search did not finish"
                return look.search(Origin.REQUEST, worth_j, reason)
            return self._sample(look, found.answer, uses, now)
        if found is not None:
            origin = Origin.DRIFT if found.answer.samples.drifted else Origin.STALE
            worth_j, reason = uses * saving_j(found.answer), "; ".join(found.stale)
            return look.search(origin, worth_j, reason) if online.retune_stale else None
        worth_j = uses * self.expected_saving_j(look.question)
        return look.search(Origin.REQUEST, worth_j, "never tuned") if online.refine and uses else None

    def _sample(
        self, look: "_Assessment", answer: StoredAnswer, uses: float, now: datetime
    ) -> CandidateJob | None:
        if not answer.samples.due(answer.at, now, self.snapshot.settings.online.sample_every_hours):
            return None
        worth_j, reason = uses * saving_j(answer), "the last sample was outside its interval"
        if not answer.samples.doubted:
            worth_j, reason = SAMPLE_SHARE * worth_j, "measured again now and then"
        spec = sampling_spec(look.question, answer, self.snapshot)
        return CandidateJob(spec, topic(spec), Origin.CHECK, priority(worth_j), reason, worth_j)

    def _question(self, key: str) -> "_Assessment | None":
        """The question that is counted by a key; None where it cannot be asked any more."""
        if key not in self._looks:
            try:
                self._looks[key] = self._look(question_of(key))
            except InputError:  # its kernel, size or device is gone: it counts until it fades
                self._looks[key] = None
        return self._looks[key]

    def _of_stale(self, answer: StoredAnswer) -> "_Assessment | None":
        """The question that an answer was made for; None where it cannot be asked any more."""
        if answer.run not in self._stale:
            device = self.snapshot.device(answer)
            tuned = {**dict(answer.conditions["workloads"]), **answer.conditions["asked"]}
            specs = tuple(with_batch(name, tuned[name]) for name in answer.names)
            objective = answer.objective.split(" ", 1)[0]
            self._stale[answer.run] = None
            with contextlib.suppress(InputError):  # its kernel or size is gone
                if device is not None:
                    question = Question(specs, objective, device.spec, answer.max_slowdown, count=0.0)
                    self._stale[answer.run] = self._look(question)
        return self._stale[answer.run]

    def _look(self, question: Question) -> "_Assessment":
        asked = normalised(question, self.snapshot)
        spec = tuning_spec(asked, self.snapshot)
        if may_verify(asked, spec, self.snapshot):
            spec = verifying(spec)
        found = stored_answer_to(asked, self.snapshot)
        return _Assessment(asked, question_key(asked), found, spec, topic(spec))


class _Assessment(NamedTuple):
    """What is known of a question, as long as nothing changes."""

    question: Question
    key: str
    found: ServedAnswer | None
    spec: JobSpec
    topic: str

    def search(self, origin: Origin, worth_j: float, reason: str) -> CandidateJob:
        """Its search."""
        return CandidateJob(self.spec, self.topic, origin, priority(worth_j), reason, worth_j)


class Backlog:
    """What the daemon would do by itself, and the uses that decide about it.

    Every method belongs to the event loop.

    Args:
        answerer: the answers.
        monotonic: seconds, for counts that fade and for back-off.
        now: the present, for samples.

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
        self._back_off.tried(_key(spec), in_vain=self._answerer.answering_run(spec) is None)

    def reconsider(self) -> None:
        """End all back-off: settings, kernels or devices have changed."""
        self._back_off.clear()

    def sample_task(self, spec: JobSpec) -> SampleTask | None:
        """What a job of the kind ``sample`` is to measure; None where there is no fresh answer any more.

        Raises:
            InputError: its workloads or its device are not known any more.
        """
        task = self._answerer.sample_task(spec)
        if task is not None:
            self._sampling[task.run] = _key(spec)
            self._back_off.begin(_key(spec), SAMPLE_BACK_OFF_S)
        return task

    def sampled(self, run: int, measurement: Mapping[str, Any]) -> dict[str, Any] | None:
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
