"""Answers from memory, judged by samples: does a served answer still hold? Analytical ones are worked out.

The cost of a sample is held against the stored one. Their difference has three parts: what the answer's
cost is not known to, what the sample's is not known to, and how far trials scatter when they are repeated
later, which the run has learnt of its contenders. Each is half of a 95 % interval, and they are independent,
so that the joint one is the root of the sum of their squares. A sample outside it happens by chance, so that
a second one is made at once; only two in a row, outside on the same side, mean that the answer has drifted.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from tuner.daemon.answers.replies import (
    AnswerIndex,
    AnswerSnapshot,
    PreparedReply,
    normalised,
    prepare,
    query_of,
    question_answered_by,
    question_key,
)
from tuner.daemon.interface import NotNowError, Question
from tuner.daemon.jobs.specs import verifying, without_batch
from tuner.daemon.state import State
from tuner.database.answer_lock import LockInForce, in_force
from tuner.database.answers import SampleHistory, StoredAnswer, analytical_key, stored_answer
from tuner.database.best_known import decoded_models
from tuner.database.ledger import Ledger
from tuner.database.ranking import AnswerQuery
from tuner.database.runs import Store
from tuner.devices.gpu_models import stand_in
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildCrashedError, InputError, StoreError, TunerError, UnknownNameError
from tuner.model.jobs import DeviceChoice, DeviceIdentity, JobSpec
from tuner.model.objective import COVERAGE, UNITS, Objective
from tuner.model.records import WorkloadName, measurement_from
from tuner.model.run_document import AnalyticalDocument, AnswerDocument, SampleDocument
from tuner.model.trial import FlagKind
from tuner.prediction.model import SelectionModel
from tuner.system.processes import Child
from tuner.system.threads import is_shortage

LEAST_REPEATABILITY = 0.005
"""Relative standard deviation of a cost that is measured again on another day, at least.

What a run learns of its contenders are minutes of one day; windows of the same work on an H200, spread over
two minutes, had 0.36 to 0.49 %.
"""

_SERVED = ("configuration", "rule", "considered", "default")  # of an analytical answer
_VOID = frozenset({FlagKind.THROTTLED, FlagKind.OFF_CLOCK})  # it was not the answer that was measured
MOST_PREPARED = 2048
"""Workloads of replies that are kept, 2 KiB each; the reply that was asked for longest ago makes room."""

MOST_ANALYTICAL = 4096
"""Analytical answers that are kept, 1 KiB each; the newest."""

Analyse = Callable[[str, DeviceIdentity], None]
"""Called with a workload without an analytical answer, every time it is asked for."""


def sample_document(
    objective: str, answer: AnswerDocument, record: Mapping[str, Any], at: datetime
) -> SampleDocument:
    """Return the document that is stored of a sample.

    Args:
        objective: the answer's, as stored.
        answer: times, joules and intervals of the answer, as the run's document has them.
        record: what was measured now, as ``tuner.model.records.measurement_record`` writes it.
        at: when.

    Raises:
        StoreError: the record is no measurement.
    """
    name = objective.split(" ", 1)[0]
    measurement = measurement_from(record)
    if not measurement.results:
        raise StoreError("a measurement is not understood: it has no results")
    document: SampleDocument = {
        "at": at.isoformat(timespec="milliseconds"),
        "unit": UNITS[name],
        "cost": None,
        "expected": None,
        "interval": None,
        "verdict": "void",
        "told": "not counted: a cost is missing",
    }
    if _VOID & measurement.flag_kinds:
        return {**document, "told": f"not counted: {', '.join(map(str, measurement.flags))}"}
    if not measurement.ok:
        statuses = {result.status.value for result in measurement.results} - {"ok"}
        failure = ", ".join(sorted(statuses)) or "nothing measured"
        return {**document, "verdict": "failed", "told": f"it ends with {failure} now"}
    expected, unsure, repeats = _stored(name, answer)
    cost = Objective(name).cost(measurement)
    if not math.isfinite(cost) or expected is None:
        return document
    own = COVERAGE * Objective(name).uncertainty(measurement)
    joint = math.hypot(COVERAGE * unsure, own, repeats * expected)
    sentence = (
        f"{cost:.4g} ± {own:.2g} {UNITS[name]} on {at.date().isoformat()}, was {expected:.4g} ±"
        f" {COVERAGE * unsure:.2g} {UNITS[name]}, a difference of up to {joint:.2g} {UNITS[name]} is chance"
        f"{' (modelled)' if measurement.modelled else ''}"
    )
    return {
        **document,
        "cost": cost,
        "expected": expected,
        "interval": joint,
        "verdict": "inside" if abs(cost - expected) <= joint else "above" if cost > expected else "below",
        "told": sentence,
    }


def _stored(name: str, answer: AnswerDocument) -> tuple[float | None, float, float]:
    """Cost of an answer, its standard uncertainty, and half the relative 95 % interval of repeating it."""
    best = answer["best"]
    exponent = Objective(name).time_exponent
    time_s, time_unsure_s = best.get("time_s"), best.get("time_s_uncertainty") or 0.0
    repeatability = answer.get("repeatability") or {}
    assumed = COVERAGE * LEAST_REPEATABILITY
    time_repeats = max(repeatability.get("time_interval") or 0.0, assumed)
    if not time_s:
        return None, 0.0, 0.0
    if name == "time":
        return time_s, time_unsure_s, time_repeats
    joules, unsure_j = best.get("energy_j"), best.get("energy_j_uncertainty") or 0.0
    if not joules:
        return None, 0.0, 0.0
    repeats = math.hypot(max(repeatability.get("energy_interval") or 0.0, assumed), exponent * time_repeats)
    cost = joules * time_s**exponent
    unsure = cost * math.hypot(unsure_j / joules, exponent * time_unsure_s / time_s)
    return cost, unsure, repeats


class Answerer:
    """The answers of the daemon, in memory.

    Every method belongs to the event loop, except ``read``, which belongs to the thread of the database.

    Args:
        state: settings, kernels and devices.
        analyse: called with workloads without an analytical answer.
        most_prepared: workloads of replies that are kept.
        most_analytical: analytical answers that are kept.
    """

    def __init__(
        self,
        state: State,
        *,
        analyse: Analyse = lambda _workload, _device: None,
        most_prepared: int = MOST_PREPARED,
        most_analytical: int = MOST_ANALYTICAL,
    ) -> None:
        self._analyse = analyse
        self._most_prepared = most_prepared
        self._most_analytical = most_analytical
        self._prepared: dict[Question, PreparedReply] = {}
        self._lock: LockInForce | None = None  # that prepared replies are by
        self._workloads = 0  # in the prepared replies
        self.snapshot = AnswerSnapshot.of(state)

    def find(self, question: Question) -> PreparedReply:
        """The best known now.

        Raises:
            InputError: the question, a kernel file at this size, or the lock file in force is wrong.
            NotNowError: a kernel without a default has no prediction yet.
        """
        lock = in_force()
        if lock != self._lock:
            self._adopt(self.snapshot)
            self._lock = lock
        prepared = self._prepared.pop(question, None)
        if prepared is None:
            try:
                prepared = prepare(question, self.snapshot, lock)
            except NotNowError:
                unanswered = normalised(question, self.snapshot)
                for spec in unanswered.workloads:
                    self._analyse(without_batch(spec), self.snapshot.identities[unanswered.device])
                raise
            self._workloads += len(question.workloads)
        self._prepared[question] = prepared  # asked for last
        while self._workloads > self._most_prepared:
            oldest = next(iter(self._prepared))
            self._workloads -= len(self._prepared.pop(oldest).reply.workloads)
        for name in prepared.unpredicted:
            self._analyse(name, prepared.device)
        return prepared

    def key(self, question: Question) -> str:
        """The key that uses of an answer are counted by.

        Raises:
            InputError: the question is wrong.
        """
        return question_key(normalised(question, self.snapshot))

    def counts(self) -> tuple[int, int]:
        """Return the numbers of fresh and of stale stored answers."""
        index = self.snapshot.index
        stale = len(index.stale)
        return sum(map(len, index.sets.values())) - stale, stale

    # --- changes ---------------------------------------------------------------------------------

    def read(
        self, store: Store, names: Sequence[str] | None = None
    ) -> tuple[AnswerIndex, Mapping[str, Sequence[SelectionModel]] | None]:
        """Read stored answers with their samples, and trained models; belongs to the thread of the database.

        Args:
            store: the database.
            names: a co-running set whose answers have changed, with or without batches; None for all.

        Returns:
            Arguments of ``take``; models are read with all answers only, as a run trains none.
        """
        snapshot, ledger = self.snapshot, Ledger(store.database)
        trained = None
        if names is None:
            runs = store.all_answered()
            trained = {name: decoded_models(ledger.models(name)) for name in snapshot.sources}
        else:
            runs = store.answered([*map(without_batch, names)], None)
        answers = filter(None, (stored_answer(run, ledger.samples(run.id)) for run in runs))
        return AnswerIndex.of(filter(snapshot.may_serve, answers), snapshot.stale), trained

    def take(
        self,
        read: AnswerIndex,
        trained: Mapping[str, Sequence[SelectionModel]] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Answer with what ``read`` has returned for these names; no models leave those that are known."""
        if names is not None:
            read = self.snapshot.index.with_set([*map(without_batch, names)], read)
        models = self.snapshot.trained if trained is None else trained
        self._adopt(replace(self.snapshot, index=read, trained=models))

    def take_samples(self, run: int, samples: SampleHistory) -> None:
        """Answer with what the samples of a run say of its answer."""
        index = self.snapshot.index
        answer = next(answer for answer in index.answers if answer.run == run)
        answers = [
            replace(stored, samples=samples) if stored.run == run else stored
            for stored in index.sets[answer.together]
        ]
        self.take(AnswerIndex.of(answers, self.snapshot.stale), names=answer.names)

    def adopt(self, state: State) -> None:
        """Answer for another state; reading then finds older answers that are fresh again."""
        new = AnswerSnapshot.of(state)
        old = self.snapshot
        self._adopt(replace(new, index=old.index, predictions=old.predictions, trained=old.trained))

    def remember(self, analytical: Mapping[str, AnalyticalDocument]) -> None:
        """Answer with further analytical answers, by their keys; their reasons are for people only."""
        new = {
            key: cast("AnalyticalDocument", {name: document.get(name) for name in _SERVED})
            for key, document in analytical.items()
        }
        old = [item for item in self.snapshot.predictions.items() if item[0] not in new]
        newest = dict([*old, *new.items()][-self._most_analytical :])
        self._adopt(replace(self.snapshot, predictions=newest))

    def forget_outdated(self) -> frozenset[str]:
        """Drop analytical answers of other sources than now; returns the keys of those kept."""
        snapshot = self.snapshot
        current = {
            key: document for key, document in snapshot.predictions.items() if not snapshot.outdated(key)
        }
        if len(current) < len(snapshot.predictions):
            self._adopt(replace(snapshot, predictions=current))
        return frozenset(current)

    def _adopt(self, snapshot: AnswerSnapshot) -> None:
        self.snapshot = snapshot
        self._prepared.clear()
        self._workloads = 0


# --- Whether an answer of another GPU of the kind can be verified in place of a search.

_NAMED = ("off", "auto")  # choices of clocks that runs keep as written; of others they keep the clocks


def cheapest(spec: JobSpec, snapshot: AnswerSnapshot) -> JobSpec:
    """A search, or the verification that spares it where there is an answer to verify.

    Args:
        spec: of the search; where it may run on several devices, it stays a search.
        snapshot: with the answers.
    """
    if not DeviceChoice.parse(spec.device).one:
        return spec
    try:
        question = normalised(question_answered_by(spec, clocks_as_found=spec.clocks == "off"), snapshot)
    except InputError:  # its kernel, size or device is gone
        return spec
    return verifying(spec) if may_verify(question, spec, snapshot) else spec


def may_verify(question: Question, spec: JobSpec, snapshot: AnswerSnapshot) -> bool:
    """True where another GPU of the kind has an answer that a verification here would make fresh.

    Where one was refuted here already, under the present conditions, only a search helps.
    """
    query = query_of(question, snapshot)
    answers = [answer for answer in snapshot.of_set(tuple(query.batches)) if query.concerns(answer)]
    own = (answer for answer in answers if answer.uuid == query.device.uuid)
    if any(answer.refuted and query.stale(answer, query.batches) == (answer.refuted,) for answer in own):
        return False
    return any(_fresh_but_for_its_gpu(answer, query) and _of_these_clocks(answer, spec) for answer in answers)


def _fresh_but_for_its_gpu(answer: StoredAnswer, query: AnswerQuery) -> bool:
    if answer.uuid == query.device.uuid or not answer.finished:
        return False
    there = replace(query, device=replace(query.device, uuid=answer.uuid))
    return not there.stale(answer, query.batches)


def _of_these_clocks(answer: StoredAnswer, spec: JobSpec) -> bool:
    """True where a search would choose from the clocks that the answer was chosen from, as far as known."""
    clocks = answer.conditions["clocks"]
    if spec.clocks in _NAMED or clocks in _NAMED:
        return bool(clocks == spec.clocks)
    return True


# --- Analytical answers of workloads that were never tuned, worked out one at a time in a child process.
#
# No GPU is opened where its model is known: the limits of ``tuner.devices.gpu_models`` and the compiler are
# enough. Another GPU is opened only while ``may_open`` allows it.

MOST_QUEUED = 32
"""Workloads that wait; more are not taken, and may be asked for again: a client may ask for any size."""

MOST_FAILED = 1024
"""Workloads that are remembered as failed."""

TIMEOUT_S = 1800.0
"""For one workload; what was compiled by then is in the cache, so that the next try gets further."""

AGAIN_S = 3600.0
"""So long a workload that failed is not tried again."""

BUSY_S = 60.0
"""So long a workload waits whose GPU may not be opened."""

_LOG = logging.getLogger(__name__)

Remember = Callable[[str, AnalyticalDocument], Awaitable[None]]


@dataclass(frozen=True)
class _Task:
    key: str
    workload: str
    device: str  # that the child opens
    opens: bool  # a GPU, in the place of which nothing stands
    kernel_file: Path
    source: str


class Analyst:
    """Works out analytical answers.

    Every method belongs to the event loop.

    Args:
        catalog: the kernels, as they are now.
        remember: is told key and document of every answer.
        may_open: whether a device may be opened now, where its model is not known.
        timeout_s: for one workload.
        again_s: how long one that failed is not tried again.
        server: ``module:callable`` of the child.
        monotonic: seconds.

    Attributes:
        quiet: set while everything that was asked for has been worked out, or has failed.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        remember: Remember,
        *,
        may_open: Callable[[str], bool] = lambda _device: False,
        timeout_s: float = TIMEOUT_S,
        again_s: float = AGAIN_S,
        server: str = "tuner.search.explaining:Explainer",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._remember = remember
        self._may_open = may_open
        self._timeout_s = timeout_s
        self._again_s = again_s
        self._server = server
        self._monotonic = monotonic
        self._tasks: dict[str, _Task] = {}
        self._working: _Task | None = None
        self._not_before: dict[str, float] = {}
        self._news = asyncio.Event()
        self.quiet = asyncio.Event()
        self._child: Child | None = None
        self._closed = False
        self._told_to_leave = False

    def ask(self, workload: str, device: DeviceIdentity) -> None:
        """Have a workload worked out, if it is not already on its way, and did not fail just now.

        Args:
            workload: name without a batch: that of the kernel file counts.
            device: whose answer.
        """
        try:
            kernel = self._catalog().kernel(WorkloadName.parse(workload).kernel)
        except UnknownNameError:  # gone since it was asked for
            return
        key = analytical_key(workload, device, kernel.fingerprint)
        if key in self._tasks or (self._working is not None and key == self._working.key):
            return
        if self._not_before.get(key, 0.0) > self._monotonic() or len(self._tasks) >= MOST_QUEUED:
            return
        stands_in = stand_in(device)
        if stands_in is None and not self._may_open(device.spec):
            self._rest(key, BUSY_S)
            return
        self._tasks[key] = _Task(
            key, workload, stands_in or device.spec, stands_in is None, kernel.path, kernel.fingerprint
        )
        self._news.set()
        self.quiet.clear()

    def leave(self, device: str) -> None:
        """A job wants a GPU: a child that has opened it ends now; what it compiled stays on the disk."""
        working = self._working
        if working is not None and working.opens and working.device == device:
            self._told_to_leave = True
            child = self._child
            if child is not None:  # in a thread: who holds a GPU may take seconds to die
                asyncio.get_running_loop().run_in_executor(None, child.close, 0.0)

    @property
    def waiting(self) -> int:
        """Workloads that are worked out, or will be."""
        return len(self._tasks) + (self._working is not None)

    async def run(self) -> None:
        """Work out what is asked for, until this is cancelled."""
        try:
            while True:
                while not self._tasks:
                    self._news.clear()
                    self.quiet.set()
                    await self._news.wait()
                self._working = self._tasks.pop(next(iter(self._tasks)))
                try:
                    await self._one(self._working)
                except Exception:  # noqa: BLE001 - whatever one workload does, the next is worked out
                    _LOG.exception("%s: no analytical answer", self._working.workload)
                    self._rest(self._working.key, self._again_s)
                finally:
                    self._working = None
        finally:
            self.close()

    def close(self) -> None:
        """Kill the child, if one works; may be called again."""
        self._closed = True
        child = self._child
        if child is not None:
            child.close(grace_s=0.0)

    async def _one(self, task: _Task) -> None:
        begun_s = self._monotonic()
        self._told_to_leave = False
        if task.opens and not self._may_open(task.device):
            self._rest(task.key, BUSY_S)
            return
        try:
            document = await asyncio.to_thread(self._work, task)
            if document["source"] == task.source:  # else the files changed since it was asked for
                await self._remember(task.key, document)
        except TunerError as error:
            if self._told_to_leave:
                self._rest(task.key, BUSY_S)
                return
            _LOG.warning("%s: no analytical answer: %s", task.workload, error)
            short = error.__cause__ is not None and is_shortage(error.__cause__)
            self._rest(task.key, BUSY_S if short else self._again_s)
            return
        _LOG.info("%s: analytical answer after %.1f s", task.workload, self._monotonic() - begun_s)

    def _work(self, task: _Task) -> AnalyticalDocument:
        """In a thread: one child for one workload, so that nothing of it stays in memory."""
        child = Child(self._server, name=f"analysis of {task.workload}")
        self._child = child
        try:
            if self._closed or self._told_to_leave:
                raise ChildCrashedError("told to end")
            document: AnalyticalDocument = child.call(
                "explain", task.workload, task.device, task.kernel_file, timeout_s=self._timeout_s
            )
            return document
        finally:
            self._child = None
            child.close()

    def _rest(self, key: str, seconds: float) -> None:
        self._not_before.pop(key, None)
        self._not_before[key] = self._monotonic() + seconds
        while len(self._not_before) > MOST_FAILED:
            del self._not_before[next(iter(self._not_before))]
