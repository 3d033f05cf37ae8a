"""What NVML tells of a GPU beside power and clocks that a measurement depends on; it only reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tuner.errors import SensorUnavailableError

from .library import NvmlGpu

T = TypeVar("T")


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU: its number, as the driver sees it, and its memory there."""

    pid: int
    memory_bytes: int | None = None


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
        processes: what computes on it now.
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
    processes: tuple[GpuProcess, ...] | None = None
    temperature_c: float | None = None


def health(gpu: str | int, library: str | None = None) -> GpuHealth:
    """Read the facts of a GPU.

    Args:
        gpu: UUID or NVML's index.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.

    Raises:
        SensorUnavailableError: it cannot be opened.
    """
    opened = NvmlGpu.open(gpu, library, error=SensorUnavailableError)
    try:
        return _health(opened)
    finally:
        opened.close()


def _health(gpu: NvmlGpu) -> GpuHealth:
    nvml, handle = gpu.nvml, gpu.handle
    capability = told(gpu, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    mig = told(gpu, lambda: nvml.nvmlDeviceGetMigMode(handle))
    mode = told(gpu, lambda: nvml.nvmlDeviceGetVirtualizationMode(handle))
    return GpuHealth(
        index=told(gpu, lambda: int(nvml.nvmlDeviceGetIndex(handle))) or 0,
        uuid=gpu.uuid,
        name=gpu.name,
        driver=told(gpu, nvml.nvmlSystemGetDriverVersion),
        cuda=_cuda(told(gpu, nvml.nvmlSystemGetCudaDriverVersion)),
        capability=None if capability is None else (int(capability[0]), int(capability[1])),
        persistence=told(gpu, lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle))),
        mig=None if mig is None else any(mig),
        virtual=None if mode is None else mode == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
        processes=_processes(told(gpu, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))),
        temperature_c=temperature_c(gpu),
    )


def told(gpu: NvmlGpu, read: Callable[[], T]) -> T | None:
    """What a read gives; None where the board, the driver or the permissions withhold it."""
    try:
        return read()
    except gpu.nvml.NVMLError:
        return None


def _cuda(version: int | None) -> str | None:
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _processes(found: Sequence[Any] | None) -> tuple[GpuProcess, ...] | None:
    if found is None:
        return None
    return tuple(GpuProcess(int(process.pid), process.usedGpuMemory) for process in found)


def temperature_c(gpu: NvmlGpu) -> float | None:
    """Degrees Celsius of a GPU's chip; None where it does not tell."""
    nvml = gpu.nvml
    value = told(gpu, lambda: nvml.nvmlDeviceGetTemperature(gpu.handle, nvml.NVML_TEMPERATURE_GPU))
    return None if value is None else float(value)
