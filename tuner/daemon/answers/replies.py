"""Questions in one form, and replies to them from a snapshot of answers, kernels and devices.

A question also names the job specs that would answer it better.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.daemon.interface import MOST_LETTERS, MOST_WORKLOADS, NotNowError, Question, Reply
from tuner.daemon.jobs.specs import answer_key, choices_of, sets_on, topic, with_defaults
from tuner.daemon.settings import Settings
from tuner.daemon.state import State
from tuner.database.answer_lock import LockInForce
from tuner.database.answers import ANALYSIS_VERSION, StoredAnswer
from tuner.database.best_known import best_known, worked_out
from tuner.database.ranking import (
    AnswerQuery,
    Neighbour,
    ServedAnswer,
    SizePoint,
    misfit,
    named_point,
    served_answer,
)
from tuner.devices.gpu_models import limits_of
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, UnknownNameError, suggestion
from tuner.model.jobs import DeviceChoice, DeviceIdentity, JobKind, JobSpec
from tuner.model.objective import described
from tuner.model.options import LIMITS, SINGLE
from tuner.model.records import RunStatus, WorkloadName
from tuner.model.run_document import AnalyticalDocument, TrialRecord
from tuner.model.typed import UnfitError, canonical, document, typed
from tuner.prediction.model import SelectionModel
from tuner.search.option_checks import check_options

# --- A snapshot of what replies are made of: stored answers, kernels, devices and settings.

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerIndex:
    """Stored answers by their co-running set, and those of single workloads by their kernel.

    Attributes:
        sets: names, sorted -> answers, the newest first.
        singles: kernel -> answers of one of its workloads alone.
        stale: answers that were stale when they were read.
        parsed: kernel file and name -> sizes, as they were needed.
    """

    sets: Mapping[tuple[str, ...], tuple[StoredAnswer, ...]] = field(default_factory=dict)
    singles: Mapping[str, tuple[StoredAnswer, ...]] = field(default_factory=dict)
    stale: tuple[StoredAnswer, ...] = ()
    parsed: dict[tuple[str, str], SizePoint | None] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls, answers: Iterable[StoredAnswer], stale: Callable[[StoredAnswer], Sequence[str]]
    ) -> "AnswerIndex":
        """Keep the best answer of each group.

        Args:
            answers: in any order.
            stale: why an answer is stale now, its batches apart.
        """
        groups: dict[tuple[object, ...], tuple[tuple[bool, bool, int], StoredAnswer]] = {}
        for answer in answers:
            rank = (bool(stale(answer)), not answer.finished, -answer.run)
            key = (answer.together, _group(answer))
            if key not in groups or rank < groups[key][0]:
                groups[key] = rank, answer
        newest = sorted(groups.values(), key=lambda ranked: ranked[0][2])
        sets: dict[tuple[str, ...], list[StoredAnswer]] = {}
        for _, answer in newest:
            sets.setdefault(answer.together, []).append(answer)
        return cls._of_sets(
            {names: tuple(members) for names, members in sets.items()},
            tuple(answer for rank, answer in newest if rank[0]),
        )

    def with_set(self, names: Sequence[str], other: "AnswerIndex") -> "AnswerIndex":
        """The same, with what another index has of one set."""
        changed = tuple(sorted(names))
        sets = {names: answers for names, answers in self.sets.items() if names != changed}
        if changed in other.sets:
            sets[changed] = other.sets[changed]
        others = [answer for answer in self.stale if answer.together != changed]
        new = [answer for answer in other.stale if answer.together == changed]
        return replace(self._of_sets(sets, (*new, *others)), parsed=self.parsed)

    @classmethod
    def _of_sets(
        cls, sets: Mapping[tuple[str, ...], tuple[StoredAnswer, ...]], stale: tuple[StoredAnswer, ...]
    ) -> "AnswerIndex":
        singles: dict[str, list[StoredAnswer]] = {}
        for names, answers in sets.items():
            if len(names) == 1:
                singles.setdefault(WorkloadName.parse(names[0]).kernel, []).extend(answers)
        return cls(sets, {kernel: tuple(answers) for kernel, answers in singles.items()}, stale)

    @property
    def answers(self) -> Iterator[StoredAnswer]:
        """All of them."""
        return (answer for answers in self.sets.values() for answer in answers)

    def neighbours(self, kernel: KernelFile) -> Iterator[Neighbour]:
        """Answers of one workload of a kernel, alone, with their sizes."""
        for answer in self.singles.get(kernel.name, ()):
            key = kernel.text_sha256, answer.names[0]
            if key not in self.parsed:
                self.parsed[key] = named_point(kernel, answer.names[0])
            point = self.parsed[key]
            if point is not None:
                yield point, answer


def _group(answer: StoredAnswer) -> tuple[object, ...]:
    """Answers of one group answer the same questions: the best of them is kept."""
    batches = tuple(sorted(answer.batches.items())), tuple(sorted(answer.asked.items()))
    return answer.uuid, answer.objective, answer.clocks_as_found, batches


@dataclass(frozen=True)
class AnswerSnapshot:
    """Everything that replies are made of; replaced as a whole when something of it changes.

    Attributes:
        catalog: the kernels.
        identities: device -> identity; the first is the default.
        settings: of the daemon.
        sources: kernel -> hash of its sources.
        searches: question (``answer_key``) -> job spec of the first set of daemon.toml that asks it.
        index: stored answers.
        predictions: key (``analytical_key``) -> analytical answer.
        trained: kernel -> trained models.
    """

    catalog: Catalog
    identities: Mapping[str, DeviceIdentity]
    settings: Settings
    sources: Mapping[str, str]
    searches: Mapping[str, JobSpec]
    index: AnswerIndex = field(default_factory=AnswerIndex)
    predictions: Mapping[str, AnalyticalDocument] = field(default_factory=dict)
    trained: Mapping[str, Sequence[SelectionModel]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> "AnswerSnapshot":
        """A snapshot of the daemon's state, without answers."""
        searches: dict[str, JobSpec] = {}
        for device, identity in state.identities.items():
            for choice in choices_of(identity, state.settings):
                for spec in sets_on(choice, state.settings, state.catalog).specs.values():
                    on_device = replace(spec, device=device)
                    searches.setdefault(answer_key(on_device), on_device)
        return cls(
            state.catalog,
            dict(state.identities),
            state.settings,
            {name: kernel.fingerprint for name, kernel in state.catalog.kernels.items()},
            searches,
        )

    def stale(self, answer: StoredAnswer) -> list[str]:
        """Return the reasons that a stored answer is stale at its own batches; empty if it is fresh."""
        device = self.device(answer)
        if device is None:
            return ["its GPU is not here"]
        return [*answer.reasons(device, self.sources, {}), *self.doubts(answer)]

    def may_serve(self, answer: StoredAnswer) -> bool:
        """False for a merged answer of GPUs or sources that are not here, or that its kernel does not have.

        Others would only take memory, or the place of an answer that can be served.
        """
        if not answer.merged_from:
            return True
        if self.device(answer) is None or answer.of_other_sources(self.sources):
            return False
        why = misfit(self.catalog.kernels, answer)
        if why:
            _LOG.warning("%s", why)
        return not why

    def device(self, answer: StoredAnswer) -> DeviceIdentity | None:
        """The GPU that an answer is given for: its own, else one of its model; None without either."""
        alike = [identity for identity in self.identities.values() if answer.on(identity)]
        return min(alike, key=lambda identity: identity.uuid != answer.uuid, default=None)

    def doubts(self, answer: StoredAnswer) -> Iterator[str]:
        """Yield the reasons that the settings forbid an answer."""
        if reason := clock_reason(answer.clock_mhz, self.settings):
            yield reason
        if answer.power_limit_w is not None:
            yield f"it sets a power limit of {answer.power_limit_w} W, which no job does"

    def of_set(self, names: Sequence[str]) -> Iterable[StoredAnswer]:
        """See ``tuner.database.best_known.AnswerSource``."""
        return self.index.sets.get(tuple(sorted(names)), ())

    def neighbours(self, kernel: KernelFile) -> Iterable[Neighbour]:
        """See ``tuner.database.best_known.AnswerSource``."""
        return self.index.neighbours(kernel)

    def analytical(self, key: str) -> AnalyticalDocument | None:
        """See ``tuner.database.best_known.AnswerSource``."""
        return self.predictions.get(key)

    def models(self, kernel: KernelFile) -> Sequence[SelectionModel]:
        """See ``tuner.database.best_known.AnswerSource``."""
        return self.trained.get(kernel.name, ())

    def outdated(self, key: str) -> bool:
        """True for the key of an analytical answer of other sources than now, or of another version."""
        *_, source, version = key.split(" | ")
        return source not in self.sources.values() or version != str(ANALYSIS_VERSION)


def clock_reason(clock_mhz: int | None, settings: Settings) -> str:
    """Return the reason that an answer's clock may no longer be set; empty if it may, or if it sets none.

    Args:
        clock_mhz: that the answer sets.
        settings: what the administrator allows: ``[tuning] clocks``, those of sets, or any a client asks for.
    """
    if clock_mhz is None or settings.tuning.client_clocks:
        return ""
    choices = [settings.tuning.clocks, *(group.clocks for group in settings.set if group.clocks is not None)]
    if any(_holds(choice, clock_mhz) for choice in choices):
        return ""
    return f"it sets the GPU clock to {clock_mhz} MHz, and [tuning] clocks is {settings.tuning.clocks!r} now"


def _holds(choice: str, clock_mhz: int) -> bool:
    """True where a choice of clocks has this one.

    Args:
        choice: ``off``, ``auto``, ``all``, ``875,810`` or ``MIN:MAX[:STEP]``.
        clock_mhz: one of the GPU's.
    """
    if choice in ("off", "auto", "all"):
        return choice != "off"
    if ":" in choice:
        low, high = (int(bound) for bound in choice.split(":")[:2])
        return low <= clock_mhz <= high
    return clock_mhz in {int(text) for text in choice.split(",")}


# --- Questions in one form, with their keys and job specs; replies prepared from a snapshot.

MOST_COUNT = 1e9
"""The most uses that one question may report: more than a client makes between two questions."""


def normalised(question: Question, snapshot: AnswerSnapshot) -> Question:
    """The question with its device named and its workloads written in one way.

    Raises:
        InputError: it cannot be answered; the message says what would be right.
    """
    check(question)
    device = _device(question.device, snapshot.identities)
    specs = snapshot.catalog.exact(question.workloads)
    return replace(question, workloads=specs, device=device.spec)


def check(question: Question) -> None:
    """Refuse what is wrong for any kernels and devices.

    Raises:
        InputError: the message names the field and what would be right.
    """
    names = ("objective", "max_slowdown", "timing")
    check_options({name: getattr(question, name) or None for name in names})
    if not question.workloads:
        raise InputError("workload: name at least one, such as scan-lf:N=1024")
    if len(question.workloads) > MOST_WORKLOADS:
        raise InputError(
            f"workload: {len(question.workloads)} are named; at most {MOST_WORKLOADS} run together"
        )
    longest = max(question.workloads, key=len)
    if len(longest) > MOST_LETTERS:
        raise InputError(f"workload {longest[:40]!r}...: {len(longest)} letters, at most {MOST_LETTERS}")
    if not 0.0 <= question.demand <= MOST_COUNT:
        raise InputError(f"count: {question.demand:g} is not a number of uses from 0 to {MOST_COUNT:g}")


def _device(spec: str, identities: Mapping[str, DeviceIdentity]) -> DeviceIdentity:
    if spec in identities:
        return identities[spec]
    if not identities:
        raise InputError("device: the daemon has found no GPU to tune; status says why")
    if not spec:
        return next(iter(identities.values()))
    names = ", ".join(identities)
    raise UnknownNameError(
        f"device: {spec!r} is not tuned here; choose from {names}{suggestion(spec, identities)}"
    )


def question_key(question: Question) -> str:
    """The key that uses of a normalised question are counted by, whatever the order of its workloads."""
    return canonical(
        {
            "workloads": sorted(question.workloads),
            "objective": question.objective,
            "max_slowdown": question.max_slowdown,
            "clocks_as_found": question.clocks_as_found,
            "device": question.device,
            **({"timing": question.timing} if question.timing else {}),  # absent in keys of before
        }
    )


def question_of(key: str) -> Question:
    """The question of a key.

    Raises:
        InputError: the text is no key.
    """
    try:
        question: Question = typed(Question, document(key))
    except UnfitError as error:
        raise InputError(f"{key[:80]!r} is no question that was counted") from error
    return question


def query_of(question: Question, snapshot: AnswerSnapshot) -> AnswerQuery:
    """The look-up that answers a normalised question."""
    device = snapshot.identities[question.device]
    return AnswerQuery(
        workloads=tuple(map(snapshot.catalog.workload, question.workloads)),
        kernels=snapshot.catalog.kernels,
        sources=snapshot.sources,
        objective=described(question.objective, question.max_slowdown, timing=question.timing),
        device=device,
        limits=limits_of(device),
        clocks_as_found=question.clocks_as_found,
        doubts=snapshot.doubts,
    )


def tuning_spec(question: Question, snapshot: AnswerSnapshot) -> JobSpec:
    """The search that answers a normalised question: a set's of daemon.toml, else by ``[tuning]``."""
    tuning = snapshot.settings.tuning
    asked: dict[str, Any] = {}
    if question.max_slowdown is not None:
        asked["max_slowdown"] = question.max_slowdown
    if question.timing == SINGLE:
        asked["timing"] = SINGLE
    spec = JobSpec(
        workloads=question.workloads,
        objective=question.objective,
        policy=tuning.policy,
        clocks=tuning.clocks,
        device=question.device,
        options=with_defaults(asked, tuning),
    )
    spec = snapshot.searches.get(answer_key(spec), spec)
    return replace(spec, clocks="off") if question.clocks_as_found else spec


def sampling_spec(question: Question, answer: StoredAnswer, snapshot: AnswerSnapshot) -> JobSpec:
    """The job that measures the answer to a normalised question again."""
    return JobSpec(
        workloads=question.workloads,
        objective=question.objective,
        clocks="off" if answer.clock_mhz is None else str(answer.clock_mhz),
        device=question.device,
        kind=JobKind.SAMPLE,
        options=tuning_spec(question, snapshot).options,
    )


def question_answered_by(spec: JobSpec, *, clocks_as_found: bool = False) -> Question:
    """The question that a job answers; it counts as no use."""
    return Question(
        spec.workloads,
        spec.objective,
        spec.device,
        spec.options.get("max_slowdown"),
        clocks_as_found=clocks_as_found,
        timing=SINGLE if spec.options.get("timing") == SINGLE else "",
        count=0.0,
    )


@dataclass(frozen=True)
class PreparedReply:
    """A reply, and what follows from the questions that it answers.

    Attributes:
        reply: the reply.
        key: the key that uses are counted by.
        unpredicted: workloads whose analytical answer would be better than what is known, and is missing.
        device: that was asked for.
        search: the job that would give a better answer.
        topic: of that job.
    """

    reply: Reply
    key: str
    unpredicted: tuple[str, ...]
    device: DeviceIdentity
    search: JobSpec
    topic: str

    def notices(self, question: Question, snapshot: AnswerSnapshot, *, backed_off: bool) -> tuple[str, ...]:
        """Return sentences on missing predictions and on the search for an answer that no job refines yet."""
        sentences = [f"{name}: prediction pending" for name in self.unpredicted]
        switch = "retune_stale" if self.reply.origin == "stored" else "refine"
        if not getattr(snapshot.settings.online, switch):
            why = f"[online] {switch} is off"
        elif backed_off:
            why = "it was tried or cancelled lately"
        elif question.demand:
            return (*sentences, "a search is queued when it is the most worthwhile: ask again for its number")
        else:
            return tuple(sentences)
        return (*sentences, f"no search is queued: {why}; submit one")


def prepare(question: Question, snapshot: AnswerSnapshot, lock: LockInForce | None) -> PreparedReply:
    """The reply to a question.

    Raises:
        InputError: the question is wrong, or a kernel file is at this size.
        NotNowError: a kernel without a default has no prediction yet.
    """
    question = normalised(question, snapshot)
    query = query_of(question, snapshot)
    query = replace(query, any_timing=not question.timing)
    best = best_known(query, snapshot, lock)
    search = tuning_spec(question, snapshot)
    for name, part in best.parts.items():
        if part is None:
            kernel = WorkloadName.parse(name).kernel
            raise NotNowError(f"{name}: prediction pending, and {kernel} names no default; ask again")
    reply = Reply(**vars(best.answer(query)))
    unpredicted = tuple(
        str(workload)
        for workload in query.workloads
        if reply.workloads[str(workload)].origin in ("nearest", "default")
        and worked_out(query, workload, snapshot) is None
    )
    return PreparedReply(reply, question_key(question), unpredicted, query.device, search, topic(search))


def stored_answer_to(question: Question, snapshot: AnswerSnapshot) -> ServedAnswer | None:
    """The stored answer of a reply to a normalised question; None without one."""
    query = query_of(question, snapshot)
    return served_answer(query, snapshot.of_set(tuple(query.batches)))


def sample_task(spec: JobSpec, snapshot: AnswerSnapshot) -> tuple[int, TrialRecord] | None:
    """Return the run and the trial of a job of the kind ``sample``; None without a fresh answer.

    Raises:
        InputError: its workloads or its device are not known any more.
    """
    served = stored_answer_to(normalised(question_answered_by(spec), snapshot), snapshot)
    if served is None or served.stale:
        return None
    configurations = {name: dict(values) for name, values in served.configurations.items()}
    return served.answer.run, {"configurations": configurations, "clock_mhz": served.answer.clock_mhz}


def answering_run(spec: JobSpec, snapshot: AnswerSnapshot) -> int | None:
    """The run whose answer, fresh and of a search as far as the job's, is what a job asks for.

    Of a job for one of several devices, that of the first that has one.
    """
    choice = DeviceChoice.parse(spec.device)
    allowed = [device for device, identity in snapshot.identities.items() if choice.allows(identity)]
    runs = (_answering_run(replace(spec, device=device), snapshot) for device in allowed)
    return next((run for run in runs if run is not None), None)


def _answering_run(spec: JobSpec, snapshot: AnswerSnapshot) -> int | None:
    as_found = spec.clocks == "off"
    try:
        question = normalised(question_answered_by(spec, clocks_as_found=as_found), snapshot)
    except InputError:  # its kernel, size or device is gone
        return None
    served = stored_answer_to(question, snapshot)
    if served is None or served.stale or served.answer.clocks_as_found is not as_found:
        return None
    return served.answer.run if searched(served.answer, spec) else None


def searched(answer: StoredAnswer, spec: JobSpec) -> bool:
    """True where the search of an answer came to its end; a limit is an end for jobs with limits only."""
    if answer.status is RunStatus.LIMITED:
        return not LIMITS.isdisjoint(spec.options)
    return answer.finished
