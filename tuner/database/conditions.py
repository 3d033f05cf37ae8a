"""Why a stored answer is stale."""

from collections.abc import Mapping
from typing import Any

from tuner.model import DeviceIdentity
from tuner.model.run import PROTOCOL


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
