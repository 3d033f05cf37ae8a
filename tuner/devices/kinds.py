"""Which kind a device is, told without importing what only that kind needs."""

from typing import TYPE_CHECKING

from tuner.devices.base import Device

if TYPE_CHECKING:
    from tuner.devices.replay import ReplayDevice
    from tuner.devices.simulated.device import SimulatedDevice

PREFIX = "replay:"
"""Begins the names of devices that replay recordings."""


def replayed(device: Device) -> "ReplayDevice | None":
    """The device as one that replays a recording; None where trials run on it."""
    if not device.identity.recorded:
        return None
    from tuner.devices.replay import ReplayDevice  # noqa: PLC0415 - most runs replay nothing

    return device if isinstance(device, ReplayDevice) else None


def simulated(device: Device) -> "SimulatedDevice | None":
    """The device as a simulated one; None for any other, and for one that plays a real GPU."""
    if not device.identity.modelled:
        return None
    from tuner.devices.simulated.device import SimulatedDevice  # noqa: PLC0415 - not for a GPU

    return device if isinstance(device, SimulatedDevice) else None
