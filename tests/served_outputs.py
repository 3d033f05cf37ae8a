"""A device for worker processes: a model that also leaves outputs, those of ``y = factor * x``."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.devices.base import Check
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan
from tuner.model.trial import Status


class OutputModel(SimulatedDevice):
    """Wrong by one where ``block_size_x`` is 64."""

    def describe(self) -> tuple[DeviceIdentity, DeviceLimits]:
        return self.identity, self.limits

    def outputs(self, plan: Plan, seed: int, names: Sequence[str], folder: str) -> Check:
        """See ``CudaDevice.outputs``."""
        del seed
        (x,) = (buffer for buffer in plan.buffers if buffer.name == "x")
        assert x.input is not None
        assert x.input.file is not None
        values = np.load(x.input.file.path)
        factor, block = int(plan.configuration["factor"]), plan.configuration["block_size_x"]
        arrays = {"x": values, "y": factor * values + (block == 64)}
        types = {buffer.name: buffer.dtype for buffer in plan.buffers}
        for name in names:
            np.save(Path(folder) / f"{name}.npy", arrays[name].astype(types[name]))
        return Check(Status.OK)
