"""What ``tuner devices`` lists: GPUs or what is missing to use one, simulated GPUs, shipped recordings."""

from contextlib import ExitStack, closing
from dataclasses import dataclass

from tuner.devices.choice import open_device
from tuner.devices.cuda.probe import driver_problem
from tuner.devices.gpus import gpu_names
from tuner.devices.replay import PREFIX, ReplayDevice
from tuner.devices.sensors import open_clocks, open_meter
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.errors import ChildError, CompilerUnavailableError, DeviceUnavailableError
from tuner.recordings.opening import SHIPPED, open_recording
from tuner.system.processes import Child

_START_S = 180.0  # opening a context, and CuPy's first compilations


@dataclass(frozen=True)
class DeviceReport:
    """One line of ``tuner devices``.

    Attributes:
        spec: how the user names it; ``cuda`` where no GPU can be told from another.
        identity: who it is; None where it cannot be opened.
        limits: its limits; None where it cannot be opened.
        clocks_mhz: GPU clocks that can be locked, highest first.
        sensor: its power reading and what that sees; empty where there is none.
        missing: what is missing, and why; empty where nothing is.
    """

    spec: str
    identity: DeviceIdentity | None = None
    limits: DeviceLimits | None = None
    clocks_mhz: tuple[int, ...] = ()
    sensor: str = ""
    missing: tuple[str, ...] = ()


def describe_devices() -> list[DeviceReport]:
    """All GPUs of this machine, or what is missing to use one, all simulated GPUs, shipped recordings."""
    simulated = (_report(f"sim:{name}") for name in gpu_names())
    return [*_cuda_reports(), *simulated, *(_recorded(f"{PREFIX}{name}") for name in SHIPPED)]


def _cuda_reports() -> list[DeviceReport]:
    why = driver_problem()
    count = 0
    if why is None:
        try:
            count = count_gpus()
        except ChildError as error:
            why = str(error)
    if why is not None:
        return [DeviceReport("cuda", missing=(why,))]
    return [_report(f"cuda:{index}") for index in range(max(count, 1))]  # opening one says why there is none


def count_gpus() -> int:
    """Number of GPUs that CUDA shows; a child asks, so that the driver is not loaded in this process.

    Raises:
        ChildError: the driver crashed or hangs.
    """
    with Child("importlib:import_module", "tuner.devices.cuda.probe", name="cuda") as child:
        count: int = child.call("gpu_count", timeout_s=_START_S)
    return count


def list_gpus() -> list[DeviceIdentity]:
    """Who the GPUs are that CUDA shows, by index, without ``runtime``; none where no driver answers.

    A child asks, so that the driver is not loaded in this process; no context is made.

    Raises:
        ChildError: the driver crashed or hangs.
        DeviceUnavailableError: it does not tell who a GPU is.
    """
    if driver_problem() is not None:
        return []
    with Child("importlib:import_module", "tuner.devices.cuda.probe", name="cuda") as child:
        found: list[DeviceIdentity] = child.call("gpus", timeout_s=_START_S)
    return found


def _report(spec: str) -> DeviceReport:
    with ExitStack() as stack:
        try:
            device = stack.enter_context(closing(open_device(spec).device))
        except (DeviceUnavailableError, CompilerUnavailableError) as error:
            return DeviceReport(spec, missing=(str(error),))
        clocks, no_clocks = open_clocks(device)
        if clocks is not None:
            stack.callback(clocks.close)
        meter, no_meter = open_meter(device, clocks)
        if meter is not None:
            stack.callback(meter.close)
        return DeviceReport(
            spec,
            device.identity,
            device.limits,
            () if clocks is None else clocks.supported_mhz(),
            "" if meter is None else f"{meter.info.name} ({meter.info.scope})",
            tuple(reason for reason in (no_clocks, no_meter) if reason),
        )


def _recorded(spec: str) -> DeviceReport:
    """Of a recording, by a space of most workloads."""
    device = ReplayDevice(spec, max(open_recording(spec.removeprefix(PREFIX)).names, key=len))
    return DeviceReport(spec, device.identity, device.limits, device.space.clocks_mhz, device.space.sensor)
