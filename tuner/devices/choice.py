"""The choice of a device by name, and the list of those that a machine has."""

import logging
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import NamedTuple

from tuner.devices.base import Device
from tuner.devices.cuda.probe import driver_problem, gpu_count, nvidia_card, nvidia_device_file
from tuner.devices.gpu_models import gpu_names
from tuner.devices.kinds import PREFIX
from tuner.devices.sensors import open_clocks, open_meter, restore_stale_clocks
from tuner.devices.worker import WorkerDevice, cuda_index
from tuner.model.errors import ChildError, CompilerUnavailableError, DeviceUnavailableError, TunerError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.system.processes import Child

AUTO = "auto"
STAND_IN = "sim:jetson-tx1"
"""Device that is simulated on a machine without a GPU."""


class OpenedDevice(NamedTuple):
    """A device, and what the user should know of how it was chosen (empty when there is nothing)."""

    device: Device
    notice: str


def open_device(
    spec: str | None = None,
    seed: int = 0,
    *,
    run_timeout_s: float = 60.0,
    workloads: Sequence[str] = (),
    allow_simulated: bool = False,
) -> OpenedDevice:
    """Open a device by name; without one, a GPU that answers, else ``sim:jetson-tx1`` with a notice.

    A machine that has an NVIDIA GPU which does not answer is an error without a name: modelled numbers are
    not what its user wants.

    Args:
        spec: ``cuda:N``, ``sim:NAME``, ``replay:NAME``, ``replay:FILE``; None or ``auto`` for the choice.
        seed: of a simulated device's noise.
        run_timeout_s: see ``WorkerDevice``.
        workloads: that will run together: a recording has their space, and no other.
        allow_simulated: a simulated device may stand in for a GPU that does not answer.

    Raises:
        InputError: a recording cannot be used, or is of other workloads.
        UnknownNameError: no such kind of device or no such simulated GPU.
        DeviceUnavailableError: the GPU named, or that of the machine, cannot be opened.
        CompilerUnavailableError: no NVRTC compiles for the GPU named.
    """
    if spec is None or spec == AUTO:
        return _open_any(seed, run_timeout_s, allow_simulated=allow_simulated)
    if spec.startswith("sim:"):
        return OpenedDevice(_simulated(spec, seed), "")
    if spec.startswith(PREFIX):
        from tuner.devices.replay import ReplayDevice  # noqa: PLC0415 - what is chosen is imported

        return OpenedDevice(ReplayDevice(spec, workloads), "")
    return OpenedDevice(WorkerDevice(f"cuda:{cuda_index(spec)}", run_timeout_s=run_timeout_s), "")


def identify(spec: str | None = None) -> DeviceIdentity:
    """Return the identity of the device that ``open_device`` would choose; it is closed again.

    Raises:
        InputError: a recording cannot be used.
        UnknownNameError: no such device.
        DeviceUnavailableError: it cannot be opened.
    """
    device = open_device(spec).device
    try:
        return device.identity
    finally:
        device.close()


def _open_any(seed: int, run_timeout_s: float, *, allow_simulated: bool) -> OpenedDevice:
    why = driver_problem()
    if why is None:
        try:
            return OpenedDevice(WorkerDevice("cuda:0", run_timeout_s=run_timeout_s), "")
        except (DeviceUnavailableError, CompilerUnavailableError) as error:
            why = str(error)
    problem = why_nothing_stands_in(why)
    if problem and not allow_simulated:
        raise DeviceUnavailableError(
            f"{problem}; `tuner doctor` says more. For modelled numbers choose --device {STAND_IN},"
            " or `tuner run --allow-simulated`"
        )
    card = nvidia_card()
    if not problem and card is not None:
        why = f"{why}; the NVIDIA card {card} has no driver here"
    return OpenedDevice(_simulated(STAND_IN, seed), _stand_in_notice(f" ({why})"))


def _simulated(spec: str, seed: int) -> Device:
    from tuner.devices.simulated.device import SimulatedDevice  # noqa: PLC0415 - what is chosen is imported

    return SimulatedDevice(spec, seed)


def _stand_in_notice(reason: str = "") -> str:
    return f"no GPU answers{reason}: {STAND_IN} stands in, and every number is modelled"


def why_nothing_stands_in(why: str) -> str:
    """That this machine has a GPU, which no simulated one stands in for; empty where it shows none."""
    file = nvidia_device_file()
    return f"this machine has an NVIDIA GPU ({file}), and it does not answer: {why}" if file else ""


# --- What ``tuner devices`` lists: GPUs or what is missing to use one, simulated GPUs, shipped recordings.

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
    from tuner.recordings.files import SHIPPED  # noqa: PLC0415 - few list them

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
    """Return the identities, without ``runtime``, of CUDA's GPUs, by index; none if no driver answers.

    A child asks, so that the driver is not loaded in this process; no context is made.

    Raises:
        ChildError: the driver crashed or hangs.
        DeviceUnavailableError: it does not tell who a GPU is.
    """
    if driver_problem() is not None:
        return []
    with Child("importlib:import_module", "tuner.devices.cuda.probe", name="cuda") as child:
        identities: list[DeviceIdentity] = child.call("gpus", timeout_s=_START_S)
    return identities


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
    from tuner.devices.replay import ReplayDevice  # noqa: PLC0415 - few list them
    from tuner.recordings.files import open_recording  # noqa: PLC0415 - same

    device = ReplayDevice(spec, max(open_recording(spec.removeprefix(PREFIX)).names, key=len))
    return DeviceReport(spec, device.identity, device.limits, device.space.clocks_mhz, device.space.sensor)


# --- Finds the devices of a machine, in a child process: drivers may hang or crash there.


def restore_clocks() -> list[str]:
    """Restore clocks that a killed tuner left set; logs to standard error.

    Returns:
        UUIDs of GPUs whose clocks could not be restored.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    return restore_stale_clocks()


def find(
    specs: Sequence[str], without: Collection[str] = ()
) -> tuple[dict[str, DeviceIdentity], dict[str, str]]:
    """Open devices one after the other.

    Args:
        specs: as named; empty for every GPU.
        without: those that are not opened.

    Returns:
        Identities by the names of devices, and why others cannot be used. A GPU that is there under a second
        name is one device: two jobs on it would disturb each other.
    """
    identities, missing = dict[str, DeviceIdentity](), dict[str, str]()
    names = dict[str, str]()  # by UUID
    for spec in specs or _gpus():
        if spec in without:
            continue
        try:
            identity = identify(spec)
        except TunerError as error:
            missing[spec] = str(error).removeprefix(f"{spec}: ")
            continue
        first = names.setdefault(identity.uuid, identity.spec)
        if first == identity.spec and first not in identities:
            identities[first] = identity
        else:
            missing[spec] = f"is the same GPU as {first} ({identity.uuid}), which is tuned on once"
    return identities, missing


def stand_in() -> tuple[DeviceIdentity, str]:
    """The simulated device that replaces a GPU, and the notice that it does."""
    return identify(STAND_IN), _stand_in_notice()


def _gpus() -> list[str]:
    """Every GPU that the driver knows of, as it is named."""
    if driver_problem() is not None:
        return []
    return [f"cuda:{index}" for index in range(gpu_count())]
