"""The temperature of a GPU: NVML's where it answers, else that of the kernel's thermal zone of the GPU."""

import contextlib
from pathlib import Path

from tuner.errors import SensorUnavailableError

from .health import temperature_c
from .library import NvmlGpu

_MILLI = 1e-3  # the kernel counts millidegrees
_COLDEST_C = -40.0  # a zone of a GPU whose power is gated shows less, as -256


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
            self._zone = _zone(thermal)

    def read(self) -> float | None:
        """Degrees Celsius, or None where nobody tells."""
        if self._zone is not None:
            return _zone_c(self._zone)
        return temperature_c(self._gpu) if self._gpu is not None else None

    def close(self) -> None:
        """Release NVML."""
        if self._gpu is not None:
            self._gpu.close()


def _zone(thermal: Path) -> Path | None:
    """The zone of the GPU: its type is ``GPU-therm`` or ``gpu-thermal``."""
    for zone in sorted(thermal.glob("thermal_zone*")):
        try:
            kind = (zone / "type").read_text()
        except OSError:
            continue
        if kind.lower().startswith("gpu"):
            return zone
    return None


def _zone_c(zone: Path) -> float | None:
    try:
        celsius = int((zone / "temp").read_text()) * _MILLI
    except (OSError, ValueError):  # a gated GPU answers with an error
        return None
    return celsius if celsius > _COLDEST_C else None
