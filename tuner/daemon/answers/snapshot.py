"""A snapshot of what replies are made of: stored answers, kernels, devices and settings."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.daemon.jobs.specs import answer_key, choices_of, sets_on
from tuner.daemon.settings.tables import Settings
from tuner.daemon.state import State
from tuner.database.answers import ANALYSIS_VERSION, StoredAnswer
from tuner.database.neighbours import Neighbour, SizePoint, named_point
from tuner.database.ranking import misfit
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.device import DeviceIdentity
from tuner.model.jobs import JobSpec
from tuner.model.workload_name import WorkloadName
from tuner.prediction.model import SelectionModel

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
        newest = sorted(groups.values(), key=lambda one: one[0][2])
        sets: dict[tuple[str, ...], list[StoredAnswer]] = {}
        for _, answer in newest:
            sets.setdefault(answer.together, []).append(answer)
        return cls._of_sets(
            {names: tuple(found) for names, found in sets.items()},
            tuple(answer for rank, answer in newest if rank[0]),
        )

    def with_set(self, names: Sequence[str], other: "AnswerIndex") -> "AnswerIndex":
        """The same, with what another index has of one set."""
        changed = tuple(sorted(names))
        sets = {names: found for names, found in self.sets.items() if names != changed}
        if changed in other.sets:
            sets[changed] = other.sets[changed]
        kept = [answer for answer in self.stale if answer.together != changed]
        new = [answer for answer in other.stale if answer.together == changed]
        return replace(self._of_sets(sets, (*new, *kept)), parsed=self.parsed)

    @classmethod
    def _of_sets(
        cls, sets: Mapping[tuple[str, ...], tuple[StoredAnswer, ...]], stale: tuple[StoredAnswer, ...]
    ) -> "AnswerIndex":
        singles: dict[str, list[StoredAnswer]] = {}
        for names, found in sets.items():
            if len(names) == 1:
                singles.setdefault(WorkloadName.parse(names[0]).kernel, []).extend(found)
        return cls(sets, {kernel: tuple(found) for kernel, found in singles.items()}, stale)

    @property
    def answers(self) -> Iterator[StoredAnswer]:
        """All of them."""
        return (answer for found in self.sets.values() for answer in found)

    def of_set(self, names: Sequence[str]) -> tuple[StoredAnswer, ...]:
        """Answers of exactly these workloads together."""
        return self.sets.get(tuple(sorted(names)), ())

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
    predictions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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
        """Why a stored answer is stale now at its own batches; empty where it is fresh."""
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

    def doubts(self, answer: StoredAnswer) -> Iterable[str]:
        """Why the settings forbid an answer as it is."""
        return filter(None, [clock_reason(answer.clock_mhz, self.settings), _limit_reason(answer)])

    def of_set(self, names: Sequence[str]) -> Iterable[StoredAnswer]:
        """See ``tuner.database.best_known.AnswerSource``."""
        return self.index.of_set(names)

    def neighbours(self, kernel: KernelFile) -> Iterable[Neighbour]:
        """See ``tuner.database.best_known.AnswerSource``."""
        return self.index.neighbours(kernel)

    def analytical(self, key: str) -> Mapping[str, Any] | None:
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
    """Why an answer's clock may not be set any more; empty where it may, or where it sets none.

    Args:
        clock_mhz: that the answer sets.
        settings: what the administrator allows: ``[tuning] clocks``, those of sets, or any a client asks for.
    """
    if clock_mhz is None or settings.tuning.client_clocks:
        return ""
    choices = [settings.tuning.clocks, *(one.clocks for one in settings.set if one.clocks is not None)]
    if any(_holds(choice, clock_mhz) for choice in choices):
        return ""
    return f"it sets the GPU clock to {clock_mhz} MHz, and [tuning] clocks is {settings.tuning.clocks!r} now"


def _limit_reason(answer: StoredAnswer) -> str:
    """Why an answer's power limit may not be set; empty where it sets none."""
    limit_w = answer.power_limit_w
    return "" if limit_w is None else f"it sets a power limit of {limit_w} W, which no job does"


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
    return clock_mhz in {int(one) for one in choice.split(",")}
