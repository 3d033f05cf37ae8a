"""Reads what NVML tells of a GPU beside power and clocks: health, temperature, users.

Nothing here sets anything.
"""

import contextlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tuner.model.errors import SensorUnavailableError

from .library import NvmlGpu

T = TypeVar("T")
_MILLI = 1e-3  # the kernel counts millidegrees
_COLDEST_C = -40.0  # a zone of a GPU whose power is gated shows less, as -256


@dataclass(frozen=True)
class GpuHealth:
    """A GPU's facts; None for what it, its driver or this process's permissions do not tell.

    Attributes:
        index: NVML's number of the GPU.
        uuid: e.g. ``GPU-6f0...``.
        name: product name.
        driver: version of the driver, e.g. ``580.159.03``.
        cuda: version of CUDA that the driver serves, e.g. ``13.0``.
        capability: compute capability.
        persistence: True when the driver stays loaded between programs.
        mig: True when the GPU is, or at the next reset will be, cut into instances.
        virtual: True when it is a virtual GPU's guest side.
        processes: numbers of those that compute on it now, as the driver sees them.
        temperature_c: of the chip.
    """

    index: int
    uuid: str
    name: str
    driver: str | None = None
    cuda: str | None = None
    capability: tuple[int, int] | None = None
    persistence: bool | None = None
    mig: bool | None = None
    virtual: bool | None = None
    processes: tuple[int, ...] | None = None
    temperature_c: float | None = None


def health(gpu: str | int) -> GpuHealth:
    """Read the facts of a GPU, by UUID or NVML's index.

    Raises:
        SensorUnavailableError: it cannot be opened.
    """
    with closing(NvmlGpu.open(gpu, None, error=SensorUnavailableError)) as opened:
        nvml, handle = opened.nvml, opened.handle
        cuda = optional(opened, nvml.nvmlSystemGetCudaDriverVersion)
        capability = optional(opened, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
        mig = optional(opened, lambda: nvml.nvmlDeviceGetMigMode(handle))
        mode = optional(opened, lambda: nvml.nvmlDeviceGetVirtualizationMode(handle))
        processes = optional(opened, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return GpuHealth(
            index=optional(opened, lambda: int(nvml.nvmlDeviceGetIndex(handle))) or 0,
            uuid=opened.uuid,
            name=opened.name,
            driver=optional(opened, nvml.nvmlSystemGetDriverVersion),
            cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            capability=None if capability is None else (int(capability[0]), int(capability[1])),
            persistence=optional(opened, lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle))),
            mig=None if mig is None else any(mig),
            virtual=None if mode is None else mode == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
            processes=None if processes is None else tuple(int(process.pid) for process in processes),
            temperature_c=temperature_c(opened),
        )


def optional(gpu: NvmlGpu, read: Callable[[], T]) -> T | None:
    """Return the result of a read; None if the board, the driver or the permissions withhold it."""
    try:
        return read()
    except gpu.nvml.NVMLError:
        return None


def temperature_c(gpu: NvmlGpu) -> float | None:
    """Degrees Celsius of a GPU's chip; None where it does not tell."""
    nvml = gpu.nvml
    value = optional(gpu, lambda: nvml.nvmlDeviceGetTemperature(gpu.handle, nvml.NVML_TEMPERATURE_GPU))
    return None if value is None else float(value)


class GpuUsers:
    """A GPU held open to be asked who uses it; it only reads.

    Args:
        gpu: UUID or NVML's index.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.

    Raises:
        SensorUnavailableError: it cannot be opened.
    """

    def __init__(self, gpu: str | int, library: str | None = None) -> None:
        self._gpu = NvmlGpu.open(gpu, library, error=SensorUnavailableError)

    def processes(self) -> int | None:
        """Return the number of processes that compute on it; None if that is withheld."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        running = optional(self._gpu, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return None if running is None else len(running)

    def load_percent(self) -> float | None:
        """Share of the last second or less in which something ran on it; None where that is withheld."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        rates = optional(self._gpu, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        return None if rates is None else float(rates.gpu)

    def close(self) -> None:
        """Release NVML; again is harmless."""
        self._gpu.close()


class Thermometer:
    """Reads a GPU's temperature as often as asked; finding none is no error.

    Args:
        gpu: UUID or NVML's index; a Jetson has one GPU.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        thermal: the kernel's class of thermal zones.
    """

    def __init__(
        self, gpu: str | int, library: str | None = None, thermal: Path = Path("/sys/class/thermal")
    ) -> None:
        self._gpu: NvmlGpu | None = None
        self._zone: Path | None = None
        with contextlib.suppress(SensorUnavailableError):
            self._gpu = NvmlGpu.open(gpu, library, error=SensorUnavailableError)
        if self._gpu is None or temperature_c(self._gpu) is None:
            self._zone = gpu_zone(thermal)

    def read(self) -> float | None:
        """Degrees Celsius, or None where nobody tells."""
        if self._zone is not None:
            return zone_c(self._zone)
        return temperature_c(self._gpu) if self._gpu is not None else None

    def close(self) -> None:
        """Release NVML."""
        if self._gpu is not None:
            self._gpu.close()


def gpu_zone(thermal: Path) -> Path | None:
    """The thermal zone of a Jetson's GPU: its type is ``GPU-therm`` or ``gpu-thermal``; None without one."""
    for zone in sorted(thermal.glob("thermal_zone*")):
        try:
            kind = (zone / "type").read_text()
        except OSError:
            continue
        if kind.lower().startswith("gpu"):
            return zone
    return None


def zone_c(zone: Path) -> float | None:
    """Degrees Celsius of a thermal zone; None where it does not tell."""
    try:
        celsius = int((zone / "temp").read_text()) * _MILLI
    except (OSError, ValueError):  # a gated GPU answers with an error
        return None
    return celsius if celsius > _COLDEST_C else None
