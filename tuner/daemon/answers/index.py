"""Stored answers in memory: the best of each question, by their co-running set and by their kernel."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.config import KernelFile
from tuner.database.answers import StoredAnswer
from tuner.database.neighbours import Neighbour, SizePoint, named_point
from tuner.model import WorkloadName

Staleness = Callable[[StoredAnswer], Sequence[str]]


@dataclass(frozen=True)
class Index:
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
    def of(cls, answers: Iterable[StoredAnswer], stale: Staleness) -> "Index":
        """Keep the best answer of each group.

        Args:
            answers: in any order.
            stale: why an answer is stale now, its batches apart.
        """
        groups: dict[tuple[object, ...], tuple[tuple[bool, bool, int], StoredAnswer]] = {}
        for known in answers:
            rank = (bool(stale(known)), not known.finished, -known.run)
            key = (known.together, _group(known))
            if key not in groups or rank < groups[key][0]:
                groups[key] = rank, known
        newest = sorted(groups.values(), key=lambda one: one[0][2])
        sets: dict[tuple[str, ...], list[StoredAnswer]] = {}
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
    def _of_sets(
        cls, sets: Mapping[tuple[str, ...], tuple[StoredAnswer, ...]], stale: tuple[StoredAnswer, ...]
    ) -> "Index":
        singles: dict[str, list[StoredAnswer]] = {}
        for names, found in sets.items():
            if len(names) == 1:
                singles.setdefault(WorkloadName.parse(names[0]).kernel, []).extend(found)
        return cls(sets, {kernel: tuple(found) for kernel, found in singles.items()}, stale)

    @property
    def answers(self) -> Iterator[StoredAnswer]:
        """All of them."""
        return (known for found in self.sets.values() for known in found)

    def of_set(self, names: Sequence[str]) -> tuple[StoredAnswer, ...]:
        """Answers of exactly these workloads together."""
        return self.sets.get(tuple(sorted(names)), ())

    def neighbours(self, kernel: KernelFile) -> Iterator[Neighbour]:
        """Answers of one workload of a kernel, alone, with their sizes."""
        for known in self.singles.get(kernel.name, ()):
            key = kernel.text_sha256, known.names[0]
            if key not in self.parsed:
                self.parsed[key] = named_point(kernel, known.names[0])
            point = self.parsed[key]
            if point is not None:
                yield point, known


def _group(known: StoredAnswer) -> tuple[object, ...]:
    """Answers of one group answer the same questions: the best of them is kept."""
    batches = tuple(sorted(known.batches.items())), tuple(sorted(known.asked.items()))
    return known.uuid, known.objective, known.clocks_as_found, batches
