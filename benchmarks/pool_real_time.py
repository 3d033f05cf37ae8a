"""Lets time pass in simulated devices, so that workers of a pool take as long as GPUs would.

Dask runs this file in every worker process (``distributed.worker.preload``). The environment variable
TUNER_BENCHMARK_SPEED says how many virtual seconds pass in a real one.
"""

import os
import time
from typing import Any

from tuner.devices.simulated.time_model import Timeline

SPEED = "TUNER_BENCHMARK_SPEED"


def dask_setup(_worker: Any) -> None:
    """Make virtual time pass for real from now on."""
    speed = float(os.environ.get(SPEED, "1"))
    virtual = Timeline.pass_time

    def pass_time(self: Timeline, seconds: float, watts: float) -> None:
        virtual(self, seconds, watts)
        if seconds > 0:
            time.sleep(seconds / speed)

    Timeline.pass_time = pass_time  # type: ignore[method-assign]  # this is what the file is for
