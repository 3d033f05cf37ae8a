"""The child's side of a worker process: a device that answers calls with plain values."""

import importlib
from collections.abc import Callable, Sequence
from typing import Protocol

from tuner.devices.base import Check, LoadSource, RunRecord
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.plan import Plan


class HostedDevice(LoadSource, Protocol):
    """What a worker hosts: the verbs of a device that it is asked for."""

    @property
    def identity(self) -> DeviceIdentity:
        """See ``Device.identity``."""

    @property
    def limits(self) -> DeviceLimits:
        """See ``Device.limits``; a GPU's are known."""

    def check(self, plan: Plan, seed: int) -> Check:
        """See ``Device.check``."""

    def prepare(self, plan: Plan, seed: int) -> None:
        """Make what the plan's answers are held against."""

    def outputs(self, plan: Plan, seed: int, names: Sequence[str], folder: str) -> Check:
        """Run a plan once, and write arrays of it to files."""

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """See ``Device.run``."""

    def free_memory_bytes(self) -> int:
        """See ``Device.free_memory_bytes``."""

    def close(self) -> None:
        """See ``Device.close``."""


class DeviceServer:
    """Builds a device and answers for it.

    Args:
        target: ``module:callable`` that builds the device.
        args: of the callable.
    """

    def __init__(self, target: str, *args: object) -> None:
        module, _, attribute = target.partition(":")
        build: Callable[..., HostedDevice] = getattr(importlib.import_module(module), attribute)
        self._device = build(*args)

    def describe(self) -> tuple[DeviceIdentity, DeviceLimits]:
        """Who it is, and its limits."""
        return self._device.identity, self._device.limits

    def check(self, plan: Plan, seed: int) -> Check:
        """See ``Device.check``."""
        return self._device.check(plan, seed)

    def prepare(self, plan: Plan, seed: int) -> None:
        """See ``HostedDevice.prepare``."""
        self._device.prepare(plan, seed)

    def outputs(self, plan: Plan, seed: int, names: Sequence[str], folder: str) -> Check:
        """See ``HostedDevice.outputs``."""
        return self._device.outputs(plan, seed, names, folder)

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        """See ``Device.run``."""
        return self._device.run(plans, window_s)

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """See ``LoadSource.pulse``."""
        return self._device.pulse(pulses)

    def free_memory_bytes(self) -> int:
        """See ``Device.free_memory_bytes``."""
        return self._device.free_memory_bytes()

    def close(self) -> None:
        """See ``Device.close``."""
        self._device.close()
