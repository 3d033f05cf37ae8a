"""A GPU in real time that lives in the fake NVML: its clock is what is set there, its power is read there.

Times and watts are those of the model of an H200 at the clock that the fake's lock leaves it; the fake's
power curve follows them. So a run sets, reads and restores clocks and takes joules through NVML, end to end.
"""

import mmap
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fake_nvml_state import UUID, State
from modelled import NoNvrtc

from tuner.devices.base import RunRecord
from tuner.devices.choice import OpenedDevice
from tuner.devices.gpu_models import gpu_model
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import idle_watts
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Plan

TICK_US = 1000  # of the energy counter: windows may be short
_HURRY = 0.1  # what an idle GPU is watched for, of the time asked for
_STEADY_S = 0.004  # some ticks before and after a window, so that the counter has seen its ends


class NvmlGpu(SimulatedDevice):
    """The device; the fake NVML must play no time of its own.

    Args:
        state: of the fake NVML.
    """

    def __init__(self, state: State) -> None:
        super().__init__("h200", 0, NoNvrtc(), noise=0.0)
        self._state = state
        self.joules: dict[tuple[int, float], float] = {}  # of a round, by clock and time of a round

    @property
    def identity(self) -> DeviceIdentity:
        known = super().identity
        return replace(known, spec="cuda:0", name="NVIDIA H200", uuid=UUID, modelled=False)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        mhz = int(self._state.locked_max_mhz or self._state.clock_mhz)
        self.set_clock_mhz(mhz)
        before_s = self._timeline.now_s  # of the model, whose time is its own
        modelled = super().run(plans, window_s)
        if modelled.makespan_s is None:
            return modelled
        watts = self._timeline.since(before_s, 0.0)[-1][2]
        self.joules[mhz, modelled.makespan_s] = watts * modelled.makespan_s
        _draw(self._state, watts)
        pause = threading.Event()
        pause.wait(_STEADY_S)
        start_s = time.monotonic()
        pause.wait(window_s)
        end_s = time.monotonic()
        pause.wait(_STEADY_S)
        rounds = max(1, round((end_s - start_s) / modelled.makespan_s))
        return replace(modelled, start_s=start_s, end_s=end_s, rounds=rounds)

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Draw idle power, for a short while of real time whatever is asked for."""
        _draw(self._state, idle_watts(self.gpu, self._set_mhz))
        threading.Event().wait(seconds * _HURRY)

    def resume_at(self, ended_s: float) -> None:
        pass


def _draw(state: State, watts: float) -> None:
    """Let the fake GPU draw so much from now on."""
    slot = state.segments[state.segment_count]
    slot.start_us, slot.milliwatts = time.monotonic_ns() // 1000, round(watts * 1e3)
    state.segment_count += 1  # now it counts


def play(state: State) -> None:
    """Make the GPU of the fake one for ``NvmlGpu``: clocks of an H200, a quick energy counter."""
    clocks_mhz = gpu_model("h200").clocks_mhz
    state.clock_count, state.clocks_mhz[: len(clocks_mhz)] = len(clocks_mhz), clocks_mhz
    state.counter_sensor.period_us = TICK_US
    _draw(state, 120.0)


def attached() -> State:
    """The state of the fake NVML that this process has inherited."""
    with Path(os.environ["FAKE_NVML_STATE"]).open("r+b") as file:
        return State.from_buffer(mmap.mmap(file.fileno(), 0))


def opened(spec: str | None, seed: int = 0, *, run_timeout_s: float = 60.0, **others: object) -> OpenedDevice:
    """Stands for ``tuner.devices.choice.open_device``."""
    del spec, seed, run_timeout_s, others
    return OpenedDevice(NvmlGpu(attached()), "")
