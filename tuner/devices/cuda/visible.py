"""Which GPU is ``cuda:0`` by the environment, where CUDA itself cannot be asked.

CUDA's programming guide, "CUDA Environment Variables": ``CUDA_VISIBLE_DEVICES`` lists indices or UUIDs, which
may be cut short, of GPUs or of their instances; what follows the first that names none is not seen. Indices
count as ``CUDA_DEVICE_ORDER`` says: by PCI bus, as NVML counts, or the fastest first.
"""

import re
from collections.abc import Mapping, Sequence

from tuner.model.errors import DeviceUnavailableError

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_INSTANCE = "MIG-"


def first_visible(gpus: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> str:
    """UUID of ``cuda:0``, of a GPU or of an instance (``MIG-...``); the first GPU where nothing is said.

    Args:
        gpus: UUID and name of each, as NVML counts them; at least one.
        environment: the variables.

    Raises:
        DeviceUnavailableError: no GPU is to be seen, or it is not known which one.
    """
    listed = environment.get(VISIBLE)
    if listed is None:
        return gpus[0][0]
    shown: list[str] = []
    for entry in map(str.strip, listed.split(",")):
        uuid = _named(entry, gpus, environment)
        if uuid is None:
            break
        if uuid in shown:
            raise DeviceUnavailableError(
                f"{VISIBLE}={listed} names {entry} twice, and CUDA shows no GPU then"
            )
        shown.append(uuid)
    if not shown:
        raise DeviceUnavailableError(f"{VISIBLE}={listed!r} shows no GPU; change it, or name one by its UUID")
    return shown[0]


def _named(entry: str, gpus: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> str | None:
    """The GPU, or instance, of an entry; None where there is none."""
    if entry.upper().startswith(_INSTANCE):
        return entry
    if not re.fullmatch("[0-9]{1,9}", entry):
        found = [uuid for uuid, _ in gpus if entry and uuid.lower().startswith(entry.lower())]
        return found[0] if len(found) == 1 else None
    if int(entry) >= len(gpus):
        return None
    if environment.get(ORDER) != "PCI_BUS_ID" and len({name for _, name in gpus}) > 1:
        raise DeviceUnavailableError(
            f"{VISIBLE}: CUDA counts the fastest GPU first, and cannot be asked which that is: set"
            f" {ORDER}=PCI_BUS_ID, or name the GPU by its UUID"
        )
    return gpus[int(entry)][0]
