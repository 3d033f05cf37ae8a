"""Answers questions from memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.daemon.answers import replies
from tuner.daemon.answers.questions import normalised, question_key
from tuner.daemon.answers.replies import PreparedReply, SampleTask
from tuner.daemon.answers.snapshot import AnswerIndex, AnswerSnapshot
from tuner.daemon.interface import NotNowError, Question
from tuner.daemon.queue.job_specs import without_batch
from tuner.daemon.state import State
from tuner.database import Ledger, Store
from tuner.database.answers import SampleHistory, stored_answer
from tuner.model import DeviceIdentity
from tuner.model.jobs import JobSpec

MOST_PREPARED = 2048
"""Workloads of replies that are kept, 2 KiB each; the reply that was asked for longest ago makes room."""

MOST_ANALYTICAL = 4096
"""Analytical answers that are kept, 1 KiB each; the newest."""

Analyse = Callable[[str, DeviceIdentity], None]
"""Called with a workload without an analytical answer, every time it is asked for."""


class Answerer:
    """The answers of the daemon, in memory.

    Every method belongs to the event loop, except ``read``, which belongs to the thread of the database.

    Args:
        state: settings, kernels and devices.
        analyse: called with workloads without an analytical answer.
    """

    def __init__(self, state: State, *, analyse: Analyse = lambda _workload, _device: None) -> None:
        self._analyse = analyse
        self._prepared: dict[Question, PreparedReply] = {}
        self._workloads = 0  # in the prepared replies
        self.snapshot = AnswerSnapshot.of(state)

    def find(self, question: Question) -> PreparedReply:
        """The best known now.

        Raises:
            InputError: the question is wrong, or a kernel file is at this size.
            NotNowError: a kernel without a default has no prediction yet.
        """
        prepared = self._prepared.pop(question, None)
        if prepared is None:
            prepared = self._prepare(question)
            self._workloads += len(question.workloads)
        self._prepared[question] = prepared  # asked for last
        while self._workloads > MOST_PREPARED:
            oldest = next(iter(self._prepared))
            self._workloads -= len(self._prepared.pop(oldest).reply.workloads)
        for name in prepared.unpredicted:
            self._analyse(name, prepared.device)
        return prepared

    def _prepare(self, question: Question) -> PreparedReply:
        asked = normalised(question, self.snapshot)
        try:
            return replies.prepare(asked, self.snapshot)
        except NotNowError:
            for spec in asked.workloads:
                self._analyse(without_batch(spec), self.snapshot.identities[asked.device])
            raise

    def key(self, question: Question) -> str:
        """The key that uses of an answer are counted by.

        Raises:
            InputError: the question is wrong.
        """
        return question_key(normalised(question, self.snapshot))

    def sample_task(self, spec: JobSpec) -> SampleTask | None:
        """See ``replies.sample_task``."""
        return replies.sample_task(spec, self.snapshot)

    def answering_run(self, spec: JobSpec) -> int | None:
        """See ``replies.answering_run``."""
        return replies.answering_run(spec, self.snapshot)

    def counts(self) -> tuple[int, int]:
        """How many stored answers are fresh, and how many are stale."""
        index = self.snapshot.index
        stale = len(index.stale)
        return sum(map(len, index.sets.values())) - stale, stale

    # --- changes ---------------------------------------------------------------------------------

    def read(self, store: Store, names: Sequence[str] | None = None) -> AnswerIndex:
        """Read stored answers and their samples for ``take``; belongs to the thread of the database.

        Args:
            store: the database.
            names: a co-running set whose answers have changed, with or without batches; None for all.
        """
        runs = store.all_answered() if names is None else store.answered([*map(without_batch, names)], None)
        ledger = Ledger(store.database)
        found = (stored_answer(run, ledger.samples(run.id)) for run in runs)
        return AnswerIndex.of((answer for answer in found if answer is not None), self.snapshot.stale)

    def take(self, read: AnswerIndex, names: Sequence[str] | None = None) -> None:
        """Answer with what was read."""
        if names is not None:
            read = self.snapshot.index.with_set([*map(without_batch, names)], read)
        self._adopt(replace(self.snapshot, index=read))

    def take_samples(self, run: int, samples: SampleHistory) -> None:
        """Answer with what the samples of a run say of its answer."""
        index = self.snapshot.index
        answer = next(answer for answer in index.answers if answer.run == run)
        answers = [
            replace(one, samples=samples) if one.run == run else one for one in index.sets[answer.together]
        ]
        self.take(AnswerIndex.of(answers, self.snapshot.stale), answer.names)

    def adopt(self, state: State) -> None:
        """Answer for another state; reading then finds older answers that are fresh again."""
        new = AnswerSnapshot.of(state)
        self._adopt(replace(new, index=self.snapshot.index, predictions=self.snapshot.predictions))

    def remember(self, analytical: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer with further analytical answers, by their keys."""
        new = {
            key: {name: document.get(name) for name in ("configuration", "rule", "considered", "default")}
            for key, document in analytical.items()
        }
        old = [one for one in self.snapshot.predictions.items() if one[0] not in new]
        self._adopt(replace(self.snapshot, predictions=dict([*old, *new.items()][-MOST_ANALYTICAL:])))

    def forget_outdated(self) -> frozenset[str]:
        """Drop analytical answers of other sources than now; returns the keys of those kept."""
        snapshot = self.snapshot
        kept = {key: document for key, document in snapshot.predictions.items() if not snapshot.outdated(key)}
        if len(kept) < len(snapshot.predictions):
            self._adopt(replace(snapshot, predictions=kept))
        return frozenset(kept)

    def _adopt(self, snapshot: AnswerSnapshot) -> None:
        self.snapshot = snapshot
        self._prepared.clear()
        self._workloads = 0
