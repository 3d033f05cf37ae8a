"""Whether a GPU has nothing else to do: what others draw would be taken for the answer of its sensors."""

from tuner.devices import power
from tuner.errors import DeviceError, SensorUnavailableError


def refuse_company(gpu: str | int, ours: int = 0) -> float | None:
    """Make sure that nobody else computes on a GPU, as far as NVML tells.

    Processes are counted, not named: in a container they have other numbers than the driver knows.

    Args:
        gpu: UUID or NVML's index.
        ours: how many of its processes are our own.

    Returns:
        Degrees Celsius of its chip; None where NVML does not tell, as on a Jetson.

    Raises:
        DeviceError: others compute on it, or it is cut into instances.
    """
    try:
        facts = power.gpu_health(gpu)
    except SensorUnavailableError:
        return None
    if facts.mig:
        raise DeviceError(f"{facts.name}: MIG is on, and its sensors show all instances together")
    pids = [process.pid for process in facts.processes or ()]
    if len(pids) > ours:
        who = "processes" if len(pids) > 1 else "process"
        raise DeviceError(
            f"{facts.name}: others compute on it, and what they draw would be taken for its sensors' answer"
            f" ({who} {', '.join(map(str, pids))}{', our own among them' if ours else ''}): end them, or wait"
        )
    return facts.temperature_c
