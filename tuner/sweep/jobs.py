"""The jobs of a sweep: every combination of what its groups list."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.model.options import OPTIONS
from tuner.model.records import canonical
from tuner.model.workload_name import WorkloadName
from tuner.sweep.tables import Choice, GroupTable, SweepDocument, Value
from tuner.untrusted.text import plain_line

MOST_JOBS = 100_000
"""Of one file; more are a mistake in a list, or several sweeps."""


@dataclass(frozen=True)
class SweepJob:
    """One search of a sweep.

    Attributes:
        group: name of its group.
        workloads: that run together.
        device: empty for the first.
        options: those that the file chooses, beside the objective.
        place: of its group in the file, for messages.
    """

    group: str
    workloads: tuple[str, ...]
    objective: str = "energy"
    device: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""

    @property
    def key(self) -> str:
        """The same text for jobs that ask for the same search."""
        return canonical([sorted(self.workloads), self.objective, self.device, dict(self.options)])

    @property
    def title(self) -> str:
        """The job in a line."""
        chosen = [f"{OPTIONS[name].flag} {shown(value)}" for name, value in self.options.items()]
        where = [f"on {self.device}"] if self.device else []
        return plain_line(" ".join([*self.workloads, self.objective, *where, *chosen]))

    def attributes(self) -> dict[str, set[str]]:
        """What exclusions are held against: each name with the values that the job has of it."""
        found: dict[str, set[str]] = {"objective": {self.objective}, "device": {self.device}, "kernel": set()}
        for text in self.workloads:
            name = WorkloadName.parse(text)
            found["kernel"].add(name.kernel)
            pairs = [*name.sizes, *([] if name.batch is None else [("batch", name.batch)])]
            for size, value in pairs:
                found.setdefault(size, set()).add(value)
        for option, value in self.options.items():
            found.setdefault(option, set()).add(shown(value))
        return found


def shown(value: Value) -> str:
    """A value of TOML as workloads and messages write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(choice: Choice) -> tuple[Value, ...]:
    """The values of a choice."""
    return choice if isinstance(choice, tuple) else (choice,)


def options_of(group: GroupTable, document: SweepDocument) -> dict[str, Choice]:
    """The options of a group, those of all groups included."""
    return {**document.options, **group.options}


def count(group: GroupTable, document: SweepDocument) -> int:
    """How many jobs a group stands for, before exclusions; nothing is built."""
    sized = math.prod(len(listed(choice)) for choice in group.sizes.values()) * len(group.kernels or ())
    beside = math.prod(len(listed(choice)) for choice in options_of(group, document).values())
    return (sized + len(group.workloads or ())) * beside * len(group.objectives) * len(group.devices)


def jobs_of(group: GroupTable, document: SweepDocument, place: str) -> Iterator[SweepJob]:
    """The jobs of a group, before exclusions, in the order of the file.

    Args:
        group: of the file.
        document: the file.
        place: of the group, for messages.
    """
    for device, objective in itertools.product(group.devices, group.objectives):
        for workloads in _workloads(group):
            for options in _combinations(options_of(group, document)):
                yield SweepJob(group.name, workloads, objective, device, options, place)


def is_excluded(job: SweepJob, exclude: Sequence[Mapping[str, Choice]]) -> list[int]:
    """Which exclusions leave a job out, counted from 0."""
    has = job.attributes()
    return [number for number, one in enumerate(exclude) if _matches(has, one)]


def _matches(has: Mapping[str, set[str]], exclusion: Mapping[str, Choice]) -> bool:
    return all(
        has.get(name, set()) & {shown(value) for value in listed(choice)}
        for name, choice in exclusion.items()
    )


def _workloads(group: GroupTable) -> Iterator[tuple[str, ...]]:
    for kernel in group.kernels or ():
        for sizes in _combinations(group.sizes):
            pairs = ",".join(f"{name}={shown(value)}" for name, value in sizes.items())
            yield (f"{kernel}:{pairs}" if pairs else kernel,)
    for one in group.workloads or ():
        yield (one,) if isinstance(one, str) else one


def _combinations(choices: Mapping[str, Choice]) -> Iterator[dict[str, Value]]:
    """Each name with one of its values, in every combination; the first name moves slowest."""
    for values in itertools.product(*map(listed, choices.values())):
        yield dict(zip(choices, values, strict=True))
