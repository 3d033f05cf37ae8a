"""Who uses a GPU, as often as asked: how many processes compute on it, and how much it has to do."""

from tuner.errors import SensorUnavailableError

from .health import told
from .library import NvmlGpu


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
        """How many processes compute on it; None where that is withheld."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        found = told(self._gpu, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return None if found is None else len(found)

    def load_percent(self) -> float | None:
        """Share of the last second or less in which something ran on it; None where that is withheld."""
        nvml, handle = self._gpu.nvml, self._gpu.handle
        found = told(self._gpu, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        return None if found is None else float(found.gpu)

    def close(self) -> None:
        """Release NVML; again is harmless."""
        self._gpu.close()
