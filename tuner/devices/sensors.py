"""The power meter and the clock control that belong to a device, or why there is none."""

from tuner import registry
from tuner.errors import ClockError, SensorUnavailableError
from tuner.interfaces import ClockControl, Device, Meter


def restore_stale_clocks() -> None:
    """Give back what a killed tuner left locked on this machine; troubles are logged, never raised.

    Only journals of this program are acted on: without one, nothing is set.
    """
    registry.load("clock-care", "restore-stale")()


def open_clocks(device: Device) -> tuple[ClockControl | None, str]:
    """Clock control of a device, which sets nothing by being opened; or None and the reason."""
    try:
        if device.identity.modelled:
            return registry.load("clocks", "simulated")(device), ""
        return registry.load("clocks", "automatic")(device.identity.uuid), ""
    except (ClockError, SensorUnavailableError, ImportError) as error:
        return None, _reason(error)


def open_meter(device: Device, clocks: ClockControl | None = None) -> tuple[Meter | None, str]:
    """Power meter of a device, or None and the reason.

    Args:
        device: whose power; its clock stamps the samples.
        clocks: read while recording, for the clock and throttle reasons seen in a window.
    """
    try:
        if device.identity.modelled:
            sensor = getattr(device, "sensor", None)
            if sensor is None:
                return None, f"{device.identity.name} has no power sensor"
            sampler = registry.load("sampler", "simulated")(device, **sensor)
        else:
            sampler = registry.load("sampler", "nvml").open(device.identity.uuid)
    except (SensorUnavailableError, ImportError) as error:
        return None, _reason(error)
    return registry.load("meter", "sampling")(sampler, clocks, device.now_s), ""


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"{error} (pip install nvidia-ml-py)"
    return str(error)
