"""Which device a run takes: by name, or the machine's GPU, or a simulated one where there is none."""

from collections.abc import Sequence
from typing import NamedTuple

from tuner.devices.base import Device
from tuner.devices.cuda.probe import driver_problem, nvidia_card, nvidia_device_file
from tuner.devices.replay import PREFIX, ReplayDevice
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.worker import WorkerDevice, cuda_index
from tuner.model.device import DeviceIdentity
from tuner.model.errors import CompilerUnavailableError, DeviceUnavailableError

AUTO = "auto"
STAND_IN = "sim:jetson-tx1"
"""What is simulated where a machine has no GPU."""


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
        return OpenedDevice(SimulatedDevice(spec, seed), "")
    if spec.startswith(PREFIX):
        return OpenedDevice(ReplayDevice(spec, workloads), "")
    return OpenedDevice(WorkerDevice(f"cuda:{cuda_index(spec)}", run_timeout_s=run_timeout_s), "")


def identify(spec: str | None = None) -> DeviceIdentity:
    """Who a device is, as ``open_device`` would choose it; it is closed again.

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
    notice = f"no GPU answers ({why}): {STAND_IN} stands in, and every number is modelled"
    return OpenedDevice(SimulatedDevice(STAND_IN, seed), notice)


def why_nothing_stands_in(why: str) -> str:
    """That this machine has a GPU, which no simulated one stands in for; empty where it shows none.

    Args:
        why: no GPU answers.
    """
    file = nvidia_device_file()
    return f"this machine has an NVIDIA GPU ({file}), and it does not answer: {why}" if file else ""
