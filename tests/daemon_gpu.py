"""The GPU of ``nvml_gpu`` in a worker process, as a real one is; its kernels hang, crash or lie when told.

What the next kernel does wrong is the content of the file ``kernel-fault`` of the scene; it does so once.
"""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from modelled import NoNvrtc
from nvml_gpu import NvmlGpu, attached

from tuner.devices.base import Check, RunRecord
from tuner.devices.choice import OpenedDevice
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.worker import WorkerDevice
from tuner.model.errors import CompileError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan, Progress, Resources
from tuner.model.trial import Status

KERNEL_FAULTS = ("hang", "crash", "wrong-answer")
_FAULT = "kernel-fault"
_LONGEST_S = 1.0  # that a kernel may take here: one that hangs is found out soon


def next_kernel(folder: Path, fault: str) -> None:
    """Let the next kernel fail so."""
    whole = folder / f"{_FAULT}.new"
    whole.write_text(fault)
    whole.rename(folder / _FAULT)


def forgive(folder: Path) -> None:
    """Let the next kernel run after all, if none has failed yet."""
    (folder / _FAULT).unlink(missing_ok=True)


class FaultyGpu(NvmlGpu):
    """What the worker hosts; built in the worker."""

    def __init__(self) -> None:
        super().__init__(attached())
        self._folder = Path(os.environ["PLAYED_FOLDER"])

    def describe(self) -> tuple[DeviceIdentity, DeviceLimits]:
        return self.identity, self.limits

    def check(self, plan: Plan, seed: int) -> Check:
        if self._suffers() == "wrong-answer":
            return Check(Status.WRONG_ANSWER, "told to be wrong", 0.0)
        return super().check(plan, seed)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        self._suffers()
        return super().run(plans, window_s)

    def _suffers(self) -> str:
        """Fail as told; the name of what the caller is to do itself."""
        taken = self._folder / f"{_FAULT}.{os.getpid()}"
        try:
            (self._folder / _FAULT).rename(taken)
        except FileNotFoundError:
            return ""
        fault = taken.read_text()
        taken.unlink()
        if fault == "hang":
            threading.Event().wait()
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        return fault


class PlayedWorker(WorkerDevice):
    """The runner's side: a real worker process; resources are those that kernel files declare."""

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        return SimulatedDevice("h200", 0, NoNvrtc()).resources(plans, progress)


def opened(spec: str, seed: int = 0, *, run_timeout_s: float = _LONGEST_S, **others: object) -> OpenedDevice:
    """Stands for ``tuner.devices.choice.open_device``."""
    del seed, others
    device = PlayedWorker(spec, target="daemon_gpu:FaultyGpu", run_timeout_s=min(run_timeout_s, _LONGEST_S))
    return OpenedDevice(device, "")
