"""GPUs opened and read through NVML: handles, health, temperature, users; its errors translated."""

import contextlib
import ctypes
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tuner.model.errors import PowerError, SensorUnavailableError, TunerError

from ..base import Sample, SensorInfo
from ..sensors.changes import SampleGaps, StallDetector, check_answers


class NvmlGpu:
    """A GPU opened through NVML; reading only, whoever sets something does so knowingly."""

    def __init__(self, nvml: ModuleType | Any, handle: Any, uuid: str, name: str) -> None:  # noqa: ANN401 - pynvml ships no types
        self.nvml = nvml
        self.handle = handle
        self.uuid = uuid
        self.name = name
        self._open = True

    @staticmethod
    def open(gpu: str | int, library: str | None = None, *, error: type[TunerError]) -> "NvmlGpu":
        """Open a GPU by UUID (as CUDA names it, so that both mean the same one) or by NVML's index.

        Args:
            gpu: UUID with its ``GPU-`` prefix, or index; an instance (``MIG-...``) stands for its GPU, which
                alone has power, clocks and users.
            library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
            error: class of what is raised.

        Raises:
            TunerError: of class ``error``: no binding, no driver, no such GPU, no permission.
        """
        nvml = _binding(library, error)
        with translated(error, "NVML cannot be opened"):
            nvml.nvmlInit()
        try:
            with translated(error, f"NVML cannot open GPU {gpu}"):
                by_uuid = isinstance(gpu, str)
                find = nvml.nvmlDeviceGetHandleByUUID if by_uuid else nvml.nvmlDeviceGetHandleByIndex
                handle = find(gpu)
                if isinstance(gpu, str) and gpu.upper().startswith("MIG-"):
                    handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
                return NvmlGpu(nvml, handle, nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle))
        except TunerError:
            nvml.nvmlShutdown()
            raise

    @staticmethod
    def count(library: str | None = None) -> int:
        """Return the number of GPUs that NVML reports; 0 without a driver or a binding."""
        try:
            nvml = _binding(library, TunerError)
        except TunerError:
            return 0
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return 0
        try:
            return int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError:
            return 0
        finally:
            nvml.nvmlShutdown()

    def architecture(self) -> int:
        """NVML's number of the architecture (5 is Volta, 7 Ampere); 0 where it tells none."""
        try:
            return int(self.nvml.nvmlDeviceGetArchitecture(self.handle))
        except self.nvml.NVMLError:
            return 0

    def close(self) -> None:
        """Release NVML; again is harmless. A driver that is gone by now has released it."""
        if self._open:
            self._open = False  # NVML counts its users: one too many would close it under another
            with contextlib.suppress(self.nvml.NVMLError):
                self.nvml.nvmlShutdown()


@contextmanager
def translated(error: type[TunerError], what: str) -> Iterator[None]:
    """Raise NVML's errors inside the block as ``error``, with ``what`` failed in front."""
    import pynvml  # noqa: PLC0415 - see _binding

    try:
        yield
    except pynvml.NVMLError as cause:
        raise error(f"{what}: {cause}") from cause


def _binding(library: str | None, error: type[TunerError]) -> Any:  # noqa: ANN401 - pynvml ships no types
    """Import the binding, and make it load ``library`` instead of what the system loader would find."""
    try:
        import pynvml  # noqa: PLC0415 - an optional dependency, and 4 MB that a machine without a GPU is spared
    except ImportError as cause:
        raise error(
            "NVML is read through nvidia-ml-py, which is not installed: pip install nvidia-ml-py"
        ) from cause
    if library is None or getattr(pynvml.nvmlLib, "_name", None) == library:
        return pynvml
    if pynvml.nvmlLib is not None:
        raise error(f"this process has loaded another NVML than {library} already")
    try:
        pynvml.nvmlLib = ctypes.CDLL(library)
    except OSError as cause:
        raise error(f"NVML cannot be loaded from {library}: {cause}") from cause
    return pynvml


# --- Reads of NVML: checked power fields and counters, and the driver's ring of power samples.
#
# A driver takes the samples of its ring in a steady rhythm, but now and then stamps one late. On an H200 that
# is every fifth, by the 3 ms in which its energy counter is updated, and in some minutes every sixth, by 10
# ms, half a period. The next one is stamped in time again: that is how such a sample is known, and where it
# belongs. With its stamp as it is, a lag fits a known load four times worse (7.4 W rms for 1.9 W of a step of
# 150 W) and comes out a tenth too long.

MILLI = 1e-3  # NVML counts milliwatts and millijoules
UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
_MICRO = 1e-6  # samples are stamped in microseconds
_ORIGIN_S = 10.0  # no other origin comes so near the present time by chance
_SILENT_S = 1.0  # without a sample: the clock of the stamps may have been set back
_SLACK_S = 0.05  # a stamp may be so far ahead of the clocks that were read after it
_LATE = (1.1, 1.9)  # periods since the stamp before: of a sample that may be stamped late
_TWO = 0.25  # of a period: so near to two periods are the gaps around it together


class CheckedRead:
    """A number that is read again and again; reading it once shows that it answers, and not with zero.

    Args:
        read: reads it.
        info: the reading; a counter must not go back.
        gpu: whose it is.
        silence: told of every read.

    Raises:
        SensorUnavailableError: it reads zero.
    """

    def __init__(
        self,
        read: Callable[[], float],
        info: SensorInfo,
        gpu: NvmlGpu,
        silence: StallDetector,
    ) -> None:
        self._read = read
        self._what = f"{info.name} of {gpu.uuid}"
        self._silence = silence
        self._forward = info.kind == "counter"
        self._last = read()
        check_answers(info, [self._last * MILLI])

    def __call__(self) -> float:
        """The number.

        Raises:
            PowerError: it stopped moving, or a counter went back.
        """
        value = self._read()
        if self._forward and value < self._last:
            raise PowerError(
                f"{self._what} went back from {self._last * MILLI:.3f} J to {value * MILLI:.3f} J:"
                " the driver was loaded anew"
            )
        moved, self._last = value != self._last, value
        self._silence.note(moved=moved)
        return value


def power_field(gpu: NvmlGpu, field: int) -> tuple[Callable[[], float], str]:
    """Return the reader of a power field and its scope: the GPU, or the module if only that answers.

    On a GH200 power fields of the GPU fail, and those of the module tell what GPU and CPU draw together.

    Raises:
        NVMLError: neither answers; the error is that of the GPU.
    """
    nvml = gpu.nvml
    own = partial(_field, gpu, field, nvml.NVML_POWER_SCOPE_GPU)
    whole = partial(_field, gpu, field, nvml.NVML_POWER_SCOPE_MODULE)
    with contextlib.suppress(nvml.NVMLError):
        if own():
            return own, "gpu"
    with contextlib.suppress(nvml.NVMLError):
        if whole():
            return whole, "module"
    own()  # raises, or reads zero
    return own, "gpu"


def _field(gpu: NvmlGpu, field: int, scope: int) -> float:
    """One field value of NVML, as a number."""
    value: Any = gpu.nvml.nvmlDeviceGetFieldValues(gpu.handle, [(field, scope)])[0]
    if value.nvmlReturn:
        raise gpu.nvml.NVMLError(value.nvmlReturn)
    return float(getattr(value.value, UNION[value.valueType]))


class RingSource:
    """Fresh samples out of the driver's ring of power samples, on the meter's clock.

    The driver stamps with the host's real-time clock, which is mapped anew at every call, so that a clock
    that is stepped moves no later sample; what a step puts before the last sample or after the present time
    is left out. Stamps of another origin are mapped once, by the newest sample's being young; that shifts
    windows by less than a sample or two. A sample that may be stamped late is reported with the next one.

    Args:
        gpu: an opened GPU.
        now: clock of the samples, in seconds.
        wall: the host's real-time clock, in seconds.
        silence: told of every poll.
    """

    def __init__(
        self, gpu: NvmlGpu, now: Callable[[], float], wall: Callable[[], float], silence: StallDetector
    ) -> None:
        self._gpu = gpu
        self._now = now
        self._wall = wall
        self._silence = silence
        self._stamp = 0  # of the newest sample seen
        self._origin_s: float | None = None
        self._by_wall = False
        self._newest_s = float("-inf")
        self._reported_s: list[float] = []  # the stamp of the last sample that was reported
        self._pending: list[tuple[float, float]] = []
        self._grown_s = now()
        self.due_s = 0.0
        self.gaps = SampleGaps()

    def poll(self) -> list[Sample]:
        """Samples that entered the ring since the last call.

        Raises:
            PowerError: none has for too long.
        """
        fresh = self._fresh()
        self._silence.note(moved=bool(fresh))
        return fresh

    def _fresh(self) -> list[Sample]:
        stamped = self._since(self._stamp)
        if not stamped and self._now() > self._grown_s + _SILENT_S:
            stamped = self._since(0)
        if not stamped:
            return []
        self._stamp = stamped[-1][0]
        origin_s = self._map(self._stamp * _MICRO)
        latest_s = self._now() + _SLACK_S
        mapped = [(stamp * _MICRO + origin_s, watts) for stamp, watts in stamped]
        rows = [(time_s, watts) for time_s, watts in mapped if self._newest_s < time_s <= latest_s]
        if not rows:
            return []
        self._grown_s, self._newest_s = self._now(), rows[-1][0]
        return self._in_rhythm([*self._pending, *rows])

    def _in_rhythm(self, rows: Sequence[tuple[float, float]]) -> list[Sample]:
        """Samples of rows of (time, watts), and for the next call a last one that may be late."""
        stamps_s = [*self._reported_s, *(time_s for time_s, _ in rows)]
        gaps_s = [b - a for a, b in itertools.pairwise(stamps_s)]
        period_s = self.gaps.median_s or statistics.median(gaps_s or [0.0])
        may_be_late = bool(gaps_s) and _LATE[0] * period_s < gaps_s[-1] < _LATE[1] * period_s
        count = len(rows) - may_be_late
        times_s = in_rhythm(stamps_s, period_s)[len(self._reported_s) :]
        self._reported_s, self._pending = [stamps_s[len(stamps_s) - 1 - may_be_late]], list(rows[count:])
        samples = [Sample(time_s, watts) for time_s, (_, watts) in zip(times_s, rows[:count], strict=False)]
        for sample in samples:
            self.gaps.add(sample.time_s)
        return samples

    def _since(self, stamp: int) -> list[tuple[int, float]]:
        """(stamp, watts) of the samples after a stamp, oldest first."""
        nvml = self._gpu.nvml
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(self._gpu.handle, nvml.NVML_TOTAL_POWER_SAMPLES, stamp)
        except nvml.NVMLError_NotFound:  # nothing newer
            return []
        latest = (self._wall() + _SLACK_S) / _MICRO if self._by_wall else float("inf")
        rows = {s.timeStamp: getattr(s.sampleValue, UNION[kind]) * MILLI for s in samples}
        return sorted((int(at), watts) for at, watts in rows.items() if stamp < at <= latest)

    def _map(self, newest_s: float) -> float:
        """Seconds to add to a stamp."""
        now_s, wall_s = self._now(), self._wall()
        if abs(wall_s - newest_s) < _ORIGIN_S:
            self._by_wall = True
            return now_s - wall_s
        if self._origin_s is None:
            self._origin_s = now_s - newest_s
        return self._origin_s


def in_rhythm(stamps_s: Sequence[float], period_s: float) -> list[float]:
    """The same times, but of a sample that is stamped late, and followed by one in time, the middle."""
    times_s = list(stamps_s)
    for i, (before, late, after) in enumerate(zip(stamps_s, stamps_s[1:], stamps_s[2:], strict=False), 1):
        two_s = after - before
        if late - before > _LATE[0] * period_s and abs(two_s - 2.0 * period_s) < _TWO * period_s:
            times_s[i] = before + two_s / 2.0
    return times_s


# --- Health, temperature and users of a GPU; nothing is set.

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
