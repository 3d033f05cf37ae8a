"""Sizes of a kernel that were tuned, and which of them are near to another one.

Stored answers in memory: what a reply needs of each, and which of several counts.
"""

import heapq
import logging
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from tuner.config import KernelFile
from tuner.daemon.answers.drift import Standing, standing
from tuner.database import StoredRun
from tuner.errors import KernelFileError
from tuner.model import Configuration, DeviceIdentity, TunableValue, Workload

T = TypeVar("T")

Sizes = tuple[tuple[tuple[str, str], ...], tuple[float, ...]]
"""Those that are no number above zero, as text by name, and the logarithms of the others."""
_LOG = logging.getLogger(__name__)

_TRIAL = (
    *("time_s", "time_s_uncertainty", "energy_j", "energy_j_uncertainty", "power_w", "sensor", "scope"),
    *("clock_seen_mhz", "bursts", "window_s", "flags"),
)
_DOCUMENT = ("status", "modelled", "against_default", "trade_off", "repeatability")


@dataclass(frozen=True)
class Neighbours(Generic[T]):
    """What is known at sizes of one kernel; looked through once, not for each question.

    Attributes:
        alike: sizes that are no number -> logarithms of the others -> what is known there.
    """

    alike: dict[tuple[tuple[str, str], ...], dict[tuple[float, ...], list[T]]] = field(default_factory=dict)

    def add(self, sizes: Sizes, known: T) -> None:
        """Take note of something."""
        texts, logarithms = sizes
        self.alike.setdefault(texts, {}).setdefault(logarithms, []).append(known)

    def nearest(self, sizes: Sizes, most: int, rank: Callable[[T], tuple[int, ...]]) -> list[T]:
        """The first by ``rank`` of each of so many sizes, the nearest first, this size itself left out."""
        texts, logarithms = sizes
        there = self.alike.get(texts, {})
        distances = ((_distance(logarithms, one), one) for one in there if one != logarithms)
        found = [(distance, min(there[one], key=rank)) for distance, one in heapq.nsmallest(most, distances)]
        return [known for _, known in sorted(found, key=lambda one: (one[0], rank(one[1])))]


def _distance(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Sum of the logarithms of the ratios of sizes."""
    total: float = sum(map(abs, map(operator.sub, one, other)))
    return total


def sizes_of(workload: Workload) -> Sizes:
    """The sizes of a workload."""
    return _parted(workload.sizes)


def sizes_named(kernel: KernelFile, name: str) -> Sizes | None:
    """Sizes of a stored workload as the kernel file has them now; None where it has not."""
    given = dict(pair.split("=", 1) for pair in name.partition(":")[2].split(",") if pair)
    full = {size: given.get(size, str(values[0])) for size, values in kernel.sizes.items()}
    if set(given) - set(full):
        return None
    return _parted((size, int(text) if text.isdecimal() else text) for size, text in full.items())


def _parted(sizes: Iterable[tuple[str, int | str]]) -> Sizes:
    texts, logarithms = [], []
    for name, value in sizes:
        if isinstance(value, int) and value > 0:
            logarithms.append(math.log(value))
            texts.append((name, ""))
        else:
            texts.append((name, str(value)))
    return tuple(texts), tuple(logarithms)


@dataclass(frozen=True)
class Known:
    """The answer of a stored run.

    Attributes:
        run: its number.
        status: of the run; ``finished`` where its search came to its end.
        at: when it ended, UTC, ISO 8601.
        objective: as stored, with the slowdown limit.
        max_slowdown: of the objective.
        names: the co-running workloads, in the order of the run.
        conditions: what the answer is bound to.
        configurations: workload -> values.
        clock_mhz: that it sets; None for as found.
        answer: times, joules and intervals, as the run's document has them.
        standing: what measuring it again has shown.
    """

    run: int
    status: str
    at: str
    objective: str
    max_slowdown: float | None
    names: tuple[str, ...]
    conditions: Mapping[str, Any]
    configurations: Mapping[str, Mapping[str, TunableValue]]
    clock_mhz: int | None
    answer: Mapping[str, Any]
    standing: Standing = field(default_factory=Standing)

    @property
    def clocks_as_found(self) -> bool:
        """True where the run set no clock."""
        return bool(self.conditions["clocks"] == "off")

    @property
    def uuid(self) -> str:
        """Of the GPU that was measured."""
        return str(self.conditions["device"]["uuid"])

    @property
    def together(self) -> tuple[str, ...]:
        """The co-running workloads, sorted."""
        return tuple(sorted(self.names))

    @property
    def group(self) -> tuple[object, ...]:
        """Answers of one group answer the same questions: the best of them is kept."""
        tuned = {**dict(self.conditions["workloads"]), **self.conditions.get("asked", {})}
        return self.uuid, self.objective, self.clocks_as_found, tuple(sorted(tuned.items()))

    def on(self, device: DeviceIdentity) -> bool:
        """True on this GPU, or another of its model: what was tuned for another model need not even start."""
        measured = self.conditions["device"]
        return bool(measured["name"] == device.name and measured["modelled"] == device.modelled)


def known_from(run: StoredRun, samples: Sequence[Mapping[str, Any]] = ()) -> Known | None:
    """What a reply needs of a run; None where it has no answer, or a damaged one, which is logged.

    Args:
        run: as stored.
        samples: of its answer, the oldest first.
    """
    try:
        document = run.answer or {}
        best = document.get("best")
        if best is None:
            return None
        names = tuple(str(name) for name, _ in run.conditions["workloads"])
        return Known(
            run=run.id,
            status=run.status,
            at=run.ended_at or run.started_at,
            objective=run.objective,
            max_slowdown=document.get("max_slowdown"),
            names=names,
            conditions=_bound(run.conditions),
            configurations={name: dict(best["configurations"][name]) for name in names},
            clock_mhz=best["clock_mhz"],
            answer={
                **{key: document.get(key) for key in _DOCUMENT},
                "best": _trial(best),
                "default": None if document.get("default") is None else _trial(document["default"]),
            },
            standing=standing(samples),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        _LOG.warning("run %d is skipped, its record is damaged (%r)", run.id, error)
        return None


def _bound(conditions: Mapping[str, Any]) -> dict[str, Any]:
    """What staleness looks at; raises LookupError where something is missing."""
    fields = ("workloads", "sources", "device", "clocks")
    return {name: conditions[name] for name in fields} | {
        "asked": conditions.get("asked", {}),
        "protocol": conditions.get("protocol"),
    }


def _trial(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: record.get(name) for name in _TRIAL}


Staleness = Callable[[Known], Sequence[str]]


@dataclass(frozen=True)
class Index:
    """Stored answers by their co-running set, and those of single workloads by their kernel.

    Attributes:
        sets: names, sorted -> answers, the newest first.
        singles: kernel -> answers of one of its workloads alone.
        stale: answers that were stale when they were read.
        parsed: kernel file and name -> sizes, as they were needed.
        neighbours: kernel file, objective and model of GPU -> answers by their sizes, likewise.
    """

    sets: Mapping[tuple[str, ...], tuple[Known, ...]] = field(default_factory=dict)
    singles: Mapping[str, tuple[Known, ...]] = field(default_factory=dict)
    stale: tuple[Known, ...] = ()
    parsed: dict[tuple[str, str], Sizes | None] = field(default_factory=dict, compare=False)
    neighbours: dict[tuple[object, ...], Neighbours[Known]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, answers: Iterable[Known], stale: Staleness) -> "Index":
        """Keep the best answer of each group.

        Args:
            answers: in any order.
            stale: why an answer is stale now, its batches apart.
        """
        groups: dict[tuple[object, ...], tuple[tuple[bool, bool, int], Known]] = {}
        for known in answers:
            rank = (bool(stale(known)), known.status != "finished", -known.run)
            key = (known.together, known.group)
            if key not in groups or rank < groups[key][0]:
                groups[key] = rank, known
        newest = sorted(groups.values(), key=lambda one: one[0][2])
        sets: dict[tuple[str, ...], list[Known]] = {}
        for _, known in newest:
            sets.setdefault(known.together, []).append(known)
        return cls._of_sets(
            {names: tuple(found) for names, found in sets.items()},
            tuple(known for rank, known in newest if rank[0]),
        )

    def with_set(self, names: Sequence[str], other: "Index") -> "Index":
        """The same, with what another index has of one set."""
        changed = tuple(sorted(names))
        sets = {names: found for names, found in self.sets.items() if names != changed}
        if changed in other.sets:
            sets[changed] = other.sets[changed]
        kept = [known for known in self.stale if known.together != changed]
        new = [known for known in other.stale if known.together == changed]
        return replace(self._of_sets(sets, (*new, *kept)), parsed=self.parsed)

    @classmethod
    def _of_sets(cls, sets: Mapping[tuple[str, ...], tuple[Known, ...]], stale: tuple[Known, ...]) -> "Index":
        singles: dict[str, list[Known]] = {}
        for names, found in sets.items():
            if len(names) == 1:
                singles.setdefault(names[0].partition(":")[0], []).extend(found)
        return cls(sets, {kernel: tuple(found) for kernel, found in singles.items()}, stale)

    @property
    def answers(self) -> Iterator[Known]:
        """All of them."""
        return (known for found in self.sets.values() for known in found)

    def of_set(
        self, names: Sequence[str], objective: str, device: DeviceIdentity, *, clocks_as_found: bool
    ) -> list[Known]:
        """Answers for exactly these workloads, on this GPU or one of its model; the newest first."""
        return [
            known
            for known in self.sets.get(tuple(sorted(names)), ())
            if known.objective == objective
            and known.on(device)
            and not (clocks_as_found and not known.clocks_as_found)
        ]

    def nearest(
        self, kernel: KernelFile, workload: Workload, objective: str, device: DeviceIdentity, most: int
    ) -> list[Known]:
        """Answers of the kernel at other sizes, the nearest first; of a size, rather one without a clock."""
        key = (kernel.text_sha256, objective, device.name, device.modelled)
        if key not in self.neighbours:
            self.neighbours[key] = self._neighbours(kernel, objective, device)
        return self.neighbours[key].nearest(
            sizes_of(workload),
            most,
            lambda known: (known.uuid != device.uuid, known.clock_mhz is not None, -known.run),
        )

    def _neighbours(self, kernel: KernelFile, objective: str, device: DeviceIdentity) -> Neighbours[Known]:
        found: Neighbours[Known] = Neighbours()
        for known in self.singles.get(kernel.name, ()):
            if known.objective != objective or not known.on(device):
                continue
            name = known.names[0]
            key = kernel.text_sha256, name
            if key not in self.parsed:
                self.parsed[key] = sizes_named(kernel, name)
            sizes = self.parsed[key]
            if sizes is not None:
                found.add(sizes, known)
        return found


def allowed(
    kernel: KernelFile, workload: Workload, values: Mapping[str, TunableValue]
) -> Configuration | None:
    """The values as the kernel file writes them; None where they are no configuration of the workload."""
    tunables = kernel.tunables
    if set(values) != set(tunables) or any(values[n] not in choices for n, choices in tunables.items()):
        return None
    configuration = Configuration(
        [(name, choices[choices.index(values[name])]) for name, choices in tunables.items()]
    )
    try:
        return configuration if kernel.broken_rule(workload, configuration) is None else None
    except KernelFileError:  # a rule has no result: nobody knows that it is allowed
        return None
