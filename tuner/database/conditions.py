"""What the answer of a run is true for, and why a stored answer is stale."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.model import DeviceIdentity

PROTOCOL = 1  # of measuring; raised when numbers made before and after cannot be compared


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


def staleness(
    stored: Mapping[str, Any],
    *,
    device: DeviceIdentity,
    sources: Mapping[str, str],
    batches: Mapping[str, int],
) -> list[str]:
    """Why a stored answer need not be true any more; empty when it is fresh.

    Args:
        stored: the record of the conditions a run was made under.
        device: the present GPU with its driver and CUDA.
        sources: kernel name -> present hash of its sources.
        batches: workload -> batch asked for now, the kernel file's where none is named.
    """
    known = stored.get("device", {})
    reasons = [
        f"{label} was {known.get(field) or 'unknown'}, is {getattr(device, field) or 'unknown'}"
        for field, label in (("uuid", "GPU"), ("name", "GPU name"), ("driver", "driver"), ("runtime", "CUDA"))
        if known.get(field) != getattr(device, field)
    ]
    before = stored.get("sources", {})
    reasons += [
        f"the source of {kernel} has changed"
        for kernel, hashed in sources.items()
        if before.get(kernel) != hashed
    ]
    measured = dict(stored.get("workloads", []))
    tuned = {**measured, **stored.get("asked", {})}
    reasons += [
        f"{name} was tuned for a batch of {tuned.get(name)}, is asked for {batch}"
        for name, batch in batches.items()
        if batch not in (tuned.get(name), measured.get(name))
    ]
    if stored.get("protocol") != PROTOCOL:
        reasons.append("another version of tuner measured it, in another way")
    return reasons
