"""A worker process of a pool: how it is started, whoever starts it."""

import os
from typing import Any

DEVICE_VARIABLE = "TUNER_WORKER_DEVICE"
"""Environment variable of a worker process: the device that it owns; unset for the first GPU that it sees."""

SETTINGS: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": {},  # Dask's own would give stages on the CPU one thread
    "distributed.worker.memory.terminate": False,  # a worker is not killed for a workload's arrays
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Configuration of Dask while a pool's processes are started."""


def own_device(asked: str = "") -> str:
    """The device that this worker process owns.

    Args:
        asked: by the run, for simulated devices; empty where it asks for none.
    """
    return asked or os.environ.get(DEVICE_VARIABLE) or "cuda:0"
