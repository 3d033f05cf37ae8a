"""What the answer of a run is true for, and why a stored answer is stale."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.model import DeviceIdentity


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
    """

    workloads: tuple[tuple[str, int], ...]
    sources: Mapping[str, str]
    device: DeviceIdentity
    objective: str
    policy: str
    seed: int
    clocks: str
    settings: Mapping[str, Any]

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
        }


def staleness(stored: Mapping[str, Any], present: Conditions) -> list[str]:
    """Why a stored answer need not be true any more; empty when it is fresh.

    Args:
        stored: the record of the conditions a run was made under.
        present: the conditions now (policy, seed and settings are not compared: they decide how an answer
            is found, not what it is true for).
    """
    reasons = []
    device = present.device
    known = stored.get("device", {})
    for field, label in (("uuid", "GPU"), ("name", "GPU name"), ("driver", "driver"), ("runtime", "CUDA")):
        before, now = known.get(field), getattr(device, field)
        if before != now:
            reasons.append(f"{label} was {before or 'unknown'}, is {now or 'unknown'}")
    sources = stored.get("sources", {})
    reasons += [
        f"the source of {kernel} has changed"
        for kernel, hashed in present.sources.items()
        if sources.get(kernel) != hashed
    ]
    batches = dict(stored.get("workloads", []))
    reasons += [
        f"{name} was tuned for a batch of {batches.get(name)}, is asked for {batch}"
        for name, batch in present.workloads
        if batches.get(name) != batch
    ]
    return reasons
