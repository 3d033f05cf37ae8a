"""The best known configuration of each workload, trained models included."""

import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tuner.database.answer_lock import LockInForce
from tuner.database.answers import StoredAnswer, analytical_key, stored_answer
from tuner.database.ledger import Ledger
from tuner.database.ranking import (
    AnswerQuery,
    Neighbour,
    RankedNeighbour,
    ServedAnswer,
    allowed,
    configurations_of,
    fills,
    neighbours,
    passed_over,
    rank_neighbours,
    rank_stored,
    served_answer,
    sizes_named,
)
from tuner.database.runs import Store
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import is_allowed
from tuner.model.errors import InputError
from tuner.model.objective import TIMED, timing_of
from tuner.model.options import BACK_TO_BACK, SINGLE
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.records import StoredRun, WorkloadName
from tuner.model.run_document import AnalyticalDocument, Best, WorkloadAnswer, device_document
from tuner.prediction.model import SelectionModel

# --- Trained models as answers: which one serves a workload that nobody tuned, and what to know beside.

_LOG = logging.getLogger(__name__)


def decoded_models(documents: Iterable[Mapping[str, object]]) -> tuple[SelectionModel, ...]:
    """The models that can be understood; of the others each is logged."""
    return tuple(model for document in documents if (model := _decoded(document)) is not None)


def _decoded(document: Mapping[str, object]) -> SelectionModel | None:
    try:
        return SelectionModel.of(document)
    except InputError as error:
        _LOG.warning("%s", error)
        return None


def predicted(
    query: AnswerQuery, kernel: KernelFile, workload: Workload, models: Sequence[SelectionModel]
) -> tuple[Configuration, str] | None:
    """The configuration that a model picks, and where it comes from; None where no model serves.

    A model serves if it was trained for the objective, which no model is for single launches, from the
    present sources, on a GPU of this model, modelled or not, and at the kernel file's own batch. The one of
    this very GPU and driver comes first. What differs is told, as it makes the stated accuracy less sure.
    """
    sizes = dict(workload.sizes)
    if workload.batch != kernel.workload(sizes).batch or timing_of(query.objective) == SINGLE:
        return None
    objective = query.objective.partition(" ")[0] or "time"
    fitting = [
        model
        for model in models
        if model.kernel == kernel.name
        and model.ranges.keys() == sizes.keys()
        and model.source == query.sources.get(kernel.name)
        and model.objective == objective
        and model.device.name == query.device.name
        and model.device.modelled == query.device.modelled
    ]
    for model in sorted(fitting, key=lambda each: len(_differences(each, query))):
        selection = model.select(sizes, partial(is_allowed, kernel, workload))
        if selection is not None:
            version, outside = selection
            configuration = kernel.configuration(workload, version)
            doubts = [*_differences(model, query), *([outside] if outside else [])]
            claim = f"{model.claim}, trained {model.date[:10]} on {len(model.inputs)} inputs"
            return configuration, "; ".join([claim, *doubts])
    return None


def _differences(model: SelectionModel, query: AnswerQuery) -> list[str]:
    """Return the differences between the GPU that a model was trained on and the GPU of the query."""
    doubts = []
    if model.device.uuid != query.device.uuid:
        doubts.append("on another GPU of this model, so that its accuracy is less sure")
    for name in ("driver", "runtime"):
        old, new = getattr(model.device, name), getattr(query.device, name)
        if old != new:
            doubts.append(f"with {name} {old}, now {new}")
    return doubts


# --- The best known configuration of each workload: stored, predicted, analytical, lent, or the default.

ORIGINS = ("stored", "predicted", "analytical", "nearest", "default")
"""From the best to the least."""

NEIGHBOURS = 4
"""Nearest sizes whose configurations are tried for a workload."""

MOST_TRIED = 16
"""Configurations that are tried for a query, one per workload at least: the rules of a kernel take two tenths
of a millisecond, and a reply of the daemon five milliseconds at most."""


class AnswerSource(Protocol):
    """Source of stored answers: a database, or the daemon's memory."""

    def of_set(self, names: Sequence[str]) -> Iterable[StoredAnswer]:
        """Answers of exactly these workloads together."""

    def neighbours(self, kernel: KernelFile) -> Iterable[Neighbour]:
        """Answers of one workload of a kernel, alone, with their sizes."""

    def analytical(self, key: str) -> AnalyticalDocument | None:
        """The analytical answer that is remembered by a key (``analytical_key``)."""

    def models(self, kernel: KernelFile) -> Sequence[SelectionModel]:
        """Trained models of a kernel."""


class DatabaseSource:
    """Looks answers up in a database; each run is read once.

    Args:
        store: the database, which stays open.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = Ledger(store.database)
        self._answers: dict[int, StoredAnswer | None] = {}
        self._of_sets: dict[tuple[str, ...], list[StoredAnswer]] = {}
        self._neighbours: dict[str, list[Neighbour]] = {}
        self._models: dict[str, Sequence[SelectionModel]] = {}

    def of_set(self, names: Sequence[str]) -> list[StoredAnswer]:
        """See ``AnswerSource``."""
        found = self._of_sets.get(tuple(names))
        if found is None:
            found = self._of_sets[tuple(names)] = self._read(self._store.answered(names, None))
        return found

    def neighbours(self, kernel: KernelFile) -> list[Neighbour]:
        """See ``AnswerSource``."""
        found = self._neighbours.get(kernel.name)
        if found is None:
            runs = self._store.answered_alone(kernel.name)
            found = self._neighbours[kernel.name] = neighbours(kernel, self._read(runs))
        return found

    def analytical(self, key: str) -> AnalyticalDocument | None:
        """See ``AnswerSource``."""
        return self._ledger.analytical_answer(key)

    def models(self, kernel: KernelFile) -> Sequence[SelectionModel]:
        """See ``AnswerSource``."""
        if kernel.name not in self._models:
            self._models[kernel.name] = decoded_models(self._ledger.models(kernel.name))
        return self._models[kernel.name]

    def _read(self, runs: Iterable[StoredRun]) -> list[StoredAnswer]:
        answers = []
        for run in runs:
            if run.id not in self._answers:
                self._answers[run.id] = stored_answer(run, self._ledger.samples(run.id))
            answers.append(self._answers[run.id])
        return [answer for answer in answers if answer is not None]


@dataclass(frozen=True)
class BestWorkload:
    """The best known configuration of one workload.

    Attributes:
        configuration: values of the kernel's tunables.
        origin: one of ``ORIGINS``.
        details: where it comes from, in words.
        stale: why a stored answer need not be true.
    """

    configuration: Configuration
    origin: str
    details: str
    stale: tuple[str, ...] = ()


@dataclass(frozen=True)
class BestKnown:
    """Best available answer for workloads that run together.

    Attributes:
        stored: the answer of a run of exactly these workloads; None without a near one.
        parts: else the best known of each; None of one whose kernel names no default.
        passed_over: why stored answers that would come first are not served.
    """

    stored: ServedAnswer | None
    parts: Mapping[str, BestWorkload | None]
    passed_over: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """The least of those of the workloads."""
        if self.stored is not None:
            return "stored"
        return max((part.origin if part else "default" for part in self.parts.values()), key=ORIGINS.index)

    def answer(self, query: AnswerQuery) -> Best:
        """The answer as it is served; workloads without a configuration are left out."""
        if self.stored is None:
            parts = {name: part for name, part in self.parts.items() if part is not None}
            return Best(
                origin=self.origin,
                device=device_document(query.device),
                objective=query.objective,
                workloads={
                    name: WorkloadAnswer(dict(part.configuration), part.origin, part.details)
                    for name, part in parts.items()
                },
                clock_mhz=None,
                answer=None,
                run=None,
                refinement=None,
                stale=tuple(reason for part in parts.values() for reason in part.stale),
                notices=self.notices(query),
            )
        stored = self.stored.answer
        fresh = not query.stale(stored, {})  # but, it may be, for its batches
        return Best(
            origin="stored",
            device=device_document(query.device),
            objective=query.objective,
            workloads={
                name: WorkloadAnswer(
                    dict(configuration),
                    "stored",
                    stored.told,
                    fresh=fresh,
                    source=query.sources[WorkloadName.parse(name).kernel],  # a client may have another
                )
                for name, configuration in self.stored.configurations.items()
            },
            clock_mhz=stored.clock_mhz,
            power_limit_w=stored.power_limit_w,
            stale=self.stored.stale,
            answer=stored.answer,
            run=stored.run or None,
            refinement=None,
            notices=self.notices(query),
        )

    def other_timing(self, query: AnswerQuery) -> tuple[str, ...]:
        """A notice where nobody asked for the timing of the answer, which is not the default one."""
        if not query.any_timing or self.stored is None or self.stored.answer.timing == BACK_TO_BACK:
            return ()
        return (f"its times are of {TIMED[SINGLE]}: no answer of {TIMED[BACK_TO_BACK]} is stored",)

    def notices(self, query: AnswerQuery) -> tuple[str, ...]:
        """Return the notices that go with the answer."""
        notices = [*self.passed_over, *self.other_timing(query)]
        if query.device.modelled:
            notices.append(f"{query.device.spec} is modelled, and so is every number measured on it")
        if len(self.parts) > 1:
            notices.append("these workloads were never tuned together: each has the best known of it alone")
        return tuple(notices)


def best_known(query: AnswerQuery, source: AnswerSource, lock: LockInForce | None = None) -> BestKnown:
    """Return the best available answer for the workloads of a query.

    Args:
        query: what is asked for.
        source: of stored answers.
        lock: is read first; None without one.

    Raises:
        KernelFileError: the default of a kernel breaks a rule at this size.
        InputError: the lock is frozen, and has an answer that is not served.
    """
    stored, over = (None, ()) if lock is None else lock.served(query)
    if stored is None:
        answers = tuple(source.of_set(tuple(query.batches)))
        stored = served_answer(query, answers)
        over = (*over, *passed_over(query, answers, stored))
    if stored is not None:
        return BestKnown(stored, {}, over)
    parts = {str(workload): best_of_part(query, workload, source) for workload in query.workloads}
    return BestKnown(None, parts, over)


def best_of_part(
    query: AnswerQuery, workload: Workload, source: AnswerSource, origins: Collection[str] = ORIGINS
) -> BestWorkload | None:
    """The best answer of some origins for one workload where none is stored for all; None without any."""
    most = max(1, MOST_TRIED // len(query.workloads))
    return next((one for one in _candidates(query, workload, source, most) if one.origin in origins), None)


def worked_out(query: AnswerQuery, workload: Workload, source: AnswerSource) -> AnalyticalDocument | None:
    """The analytical answer of a workload, which may have found no configuration; None without one."""
    return source.analytical(analytical_key(str(workload), query.device, query.sources[workload.kernel]))


def _candidates(
    query: AnswerQuery, workload: Workload, source: AnswerSource, most: int
) -> Iterator[BestWorkload]:
    """The steps of the order for one workload, best first."""
    kernel = query.kernels.get(workload.kernel)
    if kernel is None:
        return
    alone = query.alone(workload)
    if len(query.workloads) > 1:  # of one workload this was looked for already
        yield from _stored(query, alone, source, near=True)
    picked = predicted(query, kernel, workload, source.models(kernel))
    if picked is not None:
        yield BestWorkload(picked[0], "predicted", picked[1])
    document = worked_out(query, workload, source)
    yield from _analytical(kernel, workload, document)
    far = []
    for neighbour in rank_neighbours(alone, source.neighbours(kernel), min(NEIGHBOURS, most)):
        lent = _lent(alone, neighbour) if neighbour.near else None
        if lent is not None and _fills(alone, neighbour, lent.configuration):
            yield lent
        elif lent is not None or not neighbour.near:
            far.append(neighbour)
    yield from _defaults(kernel, workload, document, most)
    yield from _stored(query, alone, source, near=False)
    yield from filter(None, (_lent(alone, neighbour) for neighbour in far))


def _stored(
    query: AnswerQuery, alone: AnswerQuery, source: AnswerSource, *, near: bool
) -> Iterator[BestWorkload]:
    """Answers of a workload alone; of far ones nobody asks whether they fill the device."""
    (name,) = alone.batches
    others = ", ".join(other for other in query.batches if other != name)
    company = (f"{name} was tuned alone, is asked for with {others}",) if others else ()
    for ranked in rank_stored(alone, source.of_set([name]), lent=True):
        if near and not ranked.near:
            break
        configurations = configurations_of(alone if near else replace(alone, limits=None), ranked.answer)
        if configurations is not None:
            details = f"{ranked.answer.told}{_clocked(ranked.answer)}"
            yield BestWorkload(configurations[name], "stored", details, (*ranked.stale, *company))


def _analytical(
    kernel: KernelFile, workload: Workload, document: AnalyticalDocument | None
) -> Iterator[BestWorkload]:
    values = None if document is None else document.get("configuration")
    configuration = None if values is None else allowed(kernel, workload, values)
    if document is not None and configuration is not None:
        details = (
            f"by the rule {document['rule']!r} of {document['considered']} candidates; nothing was measured"
        )
        yield BestWorkload(configuration, "analytical", details)


def _lent(query: AnswerQuery, neighbour: RankedNeighbour) -> BestWorkload | None:
    """The configuration of another size; None where it is not allowed at this one."""
    (workload,) = query.workloads
    answer = neighbour.answer
    ((name, values),) = answer.configurations.items()
    configuration = allowed(query.kernels[workload.kernel], workload, values)
    if configuration is None:
        return None
    stale = query.stale(answer, {})
    doubt = f", stale: {'; '.join(stale)}" if stale else ""
    return BestWorkload(
        configuration, "nearest", f"the answer for {name}, {answer.told}{_clocked(answer)}{doubt}"
    )


def _fills(query: AnswerQuery, neighbour: RankedNeighbour, configuration: Configuration) -> bool:
    (workload,) = query.workloads
    kernel = query.kernels[workload.kernel]
    ((name, batch),) = neighbour.answer.batches.items()
    measured = kernel.workload(sizes_named(name), batch)
    return fills(kernel, configuration, measured, workload, query.limits)


def _defaults(
    kernel: KernelFile, workload: Workload, document: AnalyticalDocument | None, most: int
) -> Iterator[BestWorkload]:
    """The default of a kernel; of one that names none, its first configuration where that is soon found."""
    if kernel.recipe.default:
        yield BestWorkload(kernel.default(workload), "default", f"the default of {kernel.name}")
        return
    values = [document["default"] or {}] if document is not None else _first_values(kernel, most)
    for candidate in values:
        configuration = allowed(kernel, workload, candidate)
        if configuration is not None:
            yield BestWorkload(configuration, "default", "the first configuration that its rules allow")


def _first_values(kernel: KernelFile, most: int) -> list[dict[str, TunableValue]]:
    products = itertools.product(*kernel.tunables.values())
    return [dict(zip(kernel.tunables, values, strict=True)) for values in itertools.islice(products, most)]


def _clocked(answer: StoredAnswer) -> str:
    """Said of an answer that sets what is not set with it: its configuration need not be the best without."""
    clock = "" if answer.clock_mhz is None else f", tuned at {answer.clock_mhz} MHz"
    limit = answer.power_limit_w
    return clock if limit is None else f"{clock}, tuned at a power limit of {limit} W"
