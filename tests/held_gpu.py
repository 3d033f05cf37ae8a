"""A modelled GPU in real time, in the worker of an attempt: all that the worker imports."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from modelled import NoNvrtc

from tuner.devices.base import Check, RunRecord
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan

_HOLD_S = 30.0  # between two looks at nothing
_BURST_S = 0.002


class HeldGpu:
    """What the worker hosts: a modelled GPU in real time, one burst of which may never end."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._model = SimulatedDevice("jetson-tx1", 0, NoNvrtc())
        self.identity: DeviceIdentity = replace(
            self._model.identity, spec="cuda:0", name="played", uuid="GPU-played", modelled=False
        )
        self.limits: DeviceLimits = self._model.limits
        (self._folder / f"worker-{os.getpid()}").touch()

    def describe(self) -> tuple[DeviceIdentity, DeviceLimits]:
        return self.identity, self.limits

    def check(self, plan: Plan, seed: int) -> Check:
        return self._model.check(plan, seed)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        with (self._folder / "bursts").open("a") as file:
            file.write(".")
            number = file.tell()
        if self._hold(number):
            (self._folder / "held").touch()
            while True:
                time.sleep(_HOLD_S)
        record = self._model.run(plans, window_s)
        start_s = time.monotonic()
        time.sleep(_BURST_S)
        return replace(record, start_s=start_s, end_s=start_s + record.end_s - record.start_s)

    def _hold(self, number: int) -> bool:
        try:
            return number == int((self._folder / "hold").read_text())
        except FileNotFoundError:
            return False

    def free_memory_bytes(self) -> int:
        return self._model.free_memory_bytes()

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return self._model.pulse(pulses)

    def close(self) -> None:
        self._model.close()
