"""A run: what its answer is true for, and where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tuner.model.device import DeviceIdentity

PROTOCOL = 1  # of measuring; raised when numbers made before and after cannot be compared


class RunStatus(str, Enum):
    """Where a run of the database stands."""

    RUNNING = "running"  # or killed: its process says which
    FINISHED = "finished"
    LIMITED = "limited"  # a budget or a time limit ended it
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Conditions:
    """What a run's answer is true for.

    Attributes:
        workloads: the co-running workloads as the user names them, with their batches.
        sources: kernel name -> hash of its sources, kernel file and options.
        device: the GPU.
        objective: name, with the slowdown limit if there is one.
        policy: search strategy.
        seed: of the strategy.
        clocks: ``off`` or the list of clocks that could be chosen.
        settings: everything else that decides which trials are made, or how.
        asked: workload -> batch before it was capped to fit the memory; empty where none was capped.
    """

    workloads: tuple[tuple[str, int], ...]
    sources: Mapping[str, str]
    device: DeviceIdentity
    objective: str
    policy: str
    seed: int
    clocks: str
    settings: Mapping[str, Any]
    asked: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The workloads without their batches."""
        return tuple(name for name, _ in self.workloads)

    def record(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "workloads": [list(pair) for pair in self.workloads],
            "sources": dict(self.sources),
            "device": vars(self.device),
            "objective": self.objective,
            "policy": self.policy,
            "seed": self.seed,
            "clocks": self.clocks,
            "settings": dict(self.settings),
            "asked": dict(self.asked),
            "protocol": PROTOCOL,
        }


@dataclass(frozen=True)
class StoredRun:
    """A row of the history.

    Attributes:
        owner: the process that measures or measured it (``tuner.system.owner``).
        answer: the document of its answer; None while nothing valid was measured.
    """

    id: int
    status: RunStatus
    owner: str
    objective: str
    started_at: str
    ended_at: str | None
    conditions: dict[str, Any]
    answer: dict[str, Any] | None
    trials: int
