"""Answers what is best from memory, counts what is used, and knows what should be measured next."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from tuner.config.catalog import Catalog
from tuner.daemon.answers import replies as ordered
from tuner.daemon.answers.drift import sample_document
from tuner.daemon.answers.index import Index
from tuner.daemon.answers.questions import asked
from tuner.daemon.answers.replies import Kept, alike, coming, make
from tuner.daemon.answers.snapshot import Present, is_current, searches_of
from tuner.daemon.backlog.backlog import Rests, Wanted, Wishes
from tuner.daemon.backlog.uses import Uses
from tuner.daemon.interface import NotNowError, Question, Reply
from tuner.daemon.queue.job_specs import without_batch
from tuner.daemon.settings.tables import Settings
from tuner.database import Ledger, Store
from tuner.database.answers import stored_answer
from tuner.model import DeviceIdentity
from tuner.model.jobs import JobSpec

MOST_KEPT = 2048
"""Workloads of replies that are kept, 2 KiB each; the reply that was asked for longest ago makes room."""

MOST_ANALYTICAL = 4096
"""Analytical answers that are kept, 1 KiB each; the newest."""

SAMPLE_RESTS_S = 900.0
"""So long an answer that is being measured again is not wanted to be, unless that has brought something."""

Analyse = Callable[[str, DeviceIdentity], None]
"""Is told of a workload without an analytical answer, every time it is asked for."""


class Answerer:
    """The answers of the daemon, in memory.

    Every method belongs to the event loop, but for ``read``, which belongs to the thread of the database.

    Args:
        catalog: the kernels.
        identities: device -> who it is; the first is meant where a question names none.
        settings: of the daemon.
        analyse: told of workloads without an analytical answer.
        monotonic: seconds, for what fades.
        now: the present, for samples.
    """

    def __init__(
        self,
        catalog: Catalog,
        identities: Mapping[str, DeviceIdentity],
        settings: Settings | None = None,
        *,
        analyse: Analyse = lambda _workload, _device: None,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._uses = Uses(monotonic=monotonic)
        self._analyse = analyse
        self._monotonic = monotonic
        self._now = now
        self._rests = Rests(monotonic)
        self._sampling: dict[int, str] = {}  # run -> its order, as in tried
        self._replies: dict[tuple[object, ...], Kept] = {}
        self._kept = 0  # workloads in the replies
        self._wishes: Wishes | None = None
        settings = settings or Settings()
        self._present = Present(
            catalog,
            dict(identities),
            settings,
            Index(),
            sources_of(catalog),
            searches_of(settings, catalog, identities),
            {},
        )

    def reply(self, question: Question) -> Reply:
        """The best known now; the question counts as ``question.demand`` uses.

        Raises:
            InputError: the question is wrong, or a kernel file is at this size.
            NotNowError: a kernel that names no default was never worked out.
        """
        try:
            kept = self._found(question)
        except NotNowError:
            found = asked(question, self._present.catalog, self._present.identities)
            for name in found.names:
                self._analyse(name, found.device)
            raise
        self._uses.add(kept.key, question.demand)
        for name in kept.unknown:
            self._analyse(name, kept.device)
        return kept.reply

    def used(self, question: Question) -> None:
        """Count uses of an answer without giving one.

        Raises:
            InputError: the question is wrong.
        """
        found = asked(question, self._present.catalog, self._present.identities)
        self._uses.add(found.key, question.demand)

    def topic(self, question: Question) -> str:
        """The topic of the search that would answer a question better, see ``job_specs.topic``.

        Raises:
            InputError: the question is wrong.
            NotNowError: a kernel that names no default was never worked out.
        """
        return self._found(question).topic

    def coming(self, question: Question) -> tuple[str, ...]:
        """What follows from a question whose answer no job makes better yet, in sentences.

        Raises:
            InputError: the question is wrong.
            NotNowError: a kernel that names no default was never worked out.
        """
        kept = self._found(question)
        resting = alike(kept.search) in self._rests
        return coming(kept, question, self._present.settings.online, resting=resting)

    # --- what is known ---------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The kernels that questions may name."""
        return self._present.catalog

    def counts(self) -> tuple[int, int]:
        """How many stored answers are fresh, and how many are stale."""
        index = self._present.index
        stale = len(index.stale)
        return sum(map(len, index.sets.values())) - stale, stale

    def read(self, store: Store, names: Sequence[str] | None = None) -> Index:
        """Read stored answers, and what samples say of them, for ``take``; belongs to the database's thread.

        Args:
            store: the database.
            names: a co-running set whose answers have changed, with or without batches; None for all.
        """
        runs = store.all_answered() if names is None else store.answered([*map(without_batch, names)], None)
        ledger = Ledger(store.database)
        found = (stored_answer(run, ledger.samples(run.id)) for run in runs)
        return Index.of((known for known in found if known is not None), self._present.stale)

    def take(self, read: Index, names: Sequence[str] | None = None) -> None:
        """Answer with what was read."""
        if names is not None:
            read = self._present.index.with_set([*map(without_batch, names)], read)
        self._replace(index=read)

    def adopt(
        self,
        *,
        catalog: Catalog | None = None,
        identities: Mapping[str, DeviceIdentity] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Answer under what is true now; reading then finds older answers that have become true again."""
        now = self._present
        catalog, settings = catalog or now.catalog, settings or now.settings
        identities = dict(now.identities if identities is None else identities)
        self._rests.clear()
        self._replace(
            catalog=catalog,
            sources=sources_of(catalog),
            identities=identities,
            settings=settings,
            searches=searches_of(settings, catalog, identities),
        )

    def remember(self, analytical: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer with analytical answers too, from now on."""
        new = {
            key: {name: document.get(name) for name in ("configuration", "rule", "considered", "default")}
            for key, document in analytical.items()
        }
        known = [one for one in self._present.analytical.items() if one[0] not in new]
        self._replace(analytical=dict([*known, *new.items()][-MOST_ANALYTICAL:]))

    def forget_outdated(self) -> frozenset[str]:
        """Drop analytical answers of other sources than there are now; returns the keys of those kept."""
        sources = set(self._present.sources.values())
        kept = {
            key: document for key, document in self._present.analytical.items() if is_current(key, sources)
        }
        if len(kept) < len(self._present.analytical):
            self._replace(analytical=kept)
        return frozenset(kept)

    def _found(self, question: Question) -> Kept:
        form = (
            *(question.workloads, question.objective, question.device),
            *(question.max_slowdown, question.clocks_as_found),
        )
        kept = self._replies.pop(form, None)
        if kept is None:
            kept = make(asked(question, self._present.catalog, self._present.identities), self._present)
            self._kept += len(question.workloads)
        self._replies[form] = kept  # asked for last
        while self._kept > MOST_KEPT:
            oldest = next(iter(self._replies))
            self._kept -= len(self._replies.pop(oldest).reply.workloads)
        return kept

    def _replace(self, **changes: Any) -> None:  # noqa: ANN401 - fields of Present
        self._present = replace(self._present, **changes)
        self._replies.clear()
        self._kept = 0
        self._wishes = None

    # --- what is wanted --------------------------------------------------------------------------

    def wanted(self) -> list[Wanted]:
        """Jobs that would make answers better or surer, the most worthwhile first."""
        return self._looking().wanted(
            self._uses.per_day(), self._now(), lambda order: alike(order) in self._rests
        )

    def work_out(self) -> bool:
        """Do some of the work of ``wanted``; True where more is left, for after others had their turn."""
        return self._looking().work_out(self._uses.per_day())

    def _looking(self) -> Wishes:
        if self._wishes is None:
            self._wishes = Wishes(self._present)
        return self._wishes

    def tried(self, order: JobSpec) -> None:
        """An order was tried: do not want it again for a while."""
        self._rests.tried(alike(order), in_vain=self.answered(order) is None)

    def again(self, order: JobSpec) -> ordered.Again | None:
        """What an order of the kind ``sample`` is to measure; None where there is no fresh answer any more.

        Raises:
            InputError: its workloads or its device are not known any more.
        """
        found = ordered.again(order, self._present)
        if found is not None:
            self._sampling[found.run] = alike(order)
            self._rests.rest(alike(order), SAMPLE_RESTS_S)
        return found

    def answered(self, order: JobSpec) -> int | None:
        """The run whose answer, fresh and of a search as far as the order's, is what an order asks for."""
        return ordered.answered(order, self._present)

    def sampled(self, run: int, measurement: Mapping[str, Any]) -> dict[str, Any] | None:
        """Judge a sample; the answer's standing is known from now on.

        Args:
            run: whose answer was measured again.
            measurement: as ``tuner.model.records.measurement_record`` writes it.

        Returns:
            What ``Ledger.add_sample`` is to keep; None where the answer is served no more.

        Raises:
            StoreError: the record is no measurement.
        """
        self._rests.end(self._sampling.pop(run, ""))
        known = next((one for one in self._present.index.answers if one.run == run), None)
        if known is None:
            return None
        document = sample_document(known.objective, known.answer, measurement, self._now())
        changed = replace(known, samples=known.samples.after(document))
        answers = [changed if one.run == run else one for one in self._present.index.sets[known.together]]
        self.take(Index.of(answers, self._present.stale), known.names)
        if changed.samples.drifted:
            self._rests.clear()  # the search that gave this answer was not in vain
        return document

    # --- uses ------------------------------------------------------------------------------------

    def restore_uses(self, known: Mapping[str, float]) -> None:
        """Add what was counted before this process began."""
        self._uses.restore(known)

    def take_uses(self) -> dict[str, float]:
        """What to add to the counts of the database; negative where a count has faded."""
        return self._uses.take()

    def put_back_uses(self, changes: Mapping[str, float]) -> None:
        """Keep what ``take_uses`` gave: the database did not take it."""
        self._uses.put_back(changes)


def sources_of(catalog: Catalog) -> dict[str, str]:
    """Kernel -> hash of its sources."""
    return {name: kernel.fingerprint for name, kernel in catalog.kernels.items()}
