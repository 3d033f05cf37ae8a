"""GPU clocks through NVML: read freely, set only when asked, restored on every way out."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import ClockError, ClockPermissionError
from tuner.interfaces import ClockReading

from .guard import ClockGuard, restore_stale
from .journal import Entry, Place, runtime_directory
from .nvml_library import NvmlGpu, translated

CONTROL = "nvml"  # how journal entries name this control
_VOLTA = 5  # NVML's number of the first architecture whose clocks can be locked
_LOG = logging.getLogger(__name__)

# Bits of nvmlDeviceGetCurrentClocksEventReasons that hold a clock back. Left out are GpuIdle (0x1), normal
# between kernels, and ApplicationsClocksSetting (0x2), which a lock of our own raises too.
REASONS: tuple[tuple[int, str], ...] = (
    (0x004, "sw-power-cap"),
    (0x008, "hw-slowdown"),
    (0x010, "sync-boost"),
    (0x020, "sw-thermal-slowdown"),
    (0x040, "hw-thermal-slowdown"),
    (0x080, "hw-power-brake"),
    (0x100, "display-clock-setting"),
)


class NvmlClocks:
    """Implements ``tuner.interfaces.ClockControl`` over NVML; opening and reading change nothing.

    NVML tells no lock that was there before, so what is restored is "not locked", by
    nvmlDeviceResetGpuLockedClocks. That happens at the end of ``locked``; should this process die inside it,
    by SIGKILL even, the guardian process does it (see ``guard``).

    Args:
        gpu: UUID (as CUDA names it) or NVML's index.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        runtime_dir: directory of journal and lock; None for the default of ``runtime_directory``.

    Raises:
        ClockError: no driver or no such GPU.
    """

    def __init__(
        self, gpu: str | int, *, library: str | None = None, runtime_dir: Path | None = None
    ) -> None:
        self._gpu = NvmlGpu.open(gpu, library, error=ClockError)
        self._library = library
        self._runtime_dir = runtime_dir
        self._guard: ClockGuard | None = None
        self._locked_mhz: int | None = None
        self._supported: tuple[int, ...] | None = None

    def supported_mhz(self) -> tuple[int, ...]:
        """Graphics clocks at the highest memory clock, highest first; empty where none can be locked."""
        if self._supported is None:
            self._supported = self._read_supported()
        return self._supported

    def read(self) -> ClockReading:
        """Present SM clock and throttle reasons; never changes anything.

        Raises:
            ClockError: the GPU stopped answering.
        """
        nvml, handle = self._gpu.nvml, self._gpu.handle
        mhz = self._optional("the clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        bits = self._optional(
            "throttle reasons",
            lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
            lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),  # its name before driver 535
        )
        reasons = tuple(name for bit, name in REASONS if (bits or 0) & bit)
        return ClockReading(None if mhz is None else float(mhz), reasons)

    @contextmanager
    def locked(self, mhz: int) -> Iterator[None]:
        """Lock the GPU at ``mhz`` while the block runs and reset the lock on every way out.

        Whether the GPU follows is for the measurer to see: NVML only confirms that the lock was asked for.

        Raises:
            ClockPermissionError: this process may not set clocks.
            ClockError: the clock is not supported, another process holds this GPU's clocks, or they could
                not be set or reset.
        """
        self._demand(mhz)
        self._guarded().prepare(mhz)
        self._locked_mhz = mhz
        try:
            self._set(mhz)
            yield
        except BaseException:
            self._release(quietly=True)
            raise
        self._release(quietly=False)

    def close(self) -> None:
        """Reset the clock if it is still locked and release everything."""
        if self._locked_mhz is not None:
            self._release(quietly=True)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        self._gpu.close()

    @staticmethod
    def restore_stale(runtime_dir: Path | None = None, library: str | None = None) -> list[str]:
        """Reset the GPUs whose clocks a process left locked that was killed together with its guardian.

        To be called when the program starts. A GPU whose owner lives is left alone; a failure is logged,
        keeps its journal entry and stops no other.

        Returns:
            UUIDs of the GPUs that were reset.
        """
        try:
            directory = runtime_dir or runtime_directory()
        except ClockError:  # no place for journals: none was written
            return []
        return restore_stale(directory, CONTROL, lambda entry: reset(entry, library))

    def _read_supported(self) -> tuple[int, ...]:
        nvml, handle = self._gpu.nvml, self._gpu.handle
        if 0 < self._gpu.architecture() < _VOLTA:
            return ()
        try:
            memory = nvml.nvmlDeviceGetSupportedMemoryClocks(handle)
            clocks = nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, max(memory)) if memory else []
        except nvml.NVMLError_NotSupported:
            return ()
        except nvml.NVMLError as error:
            raise ClockError(f"the clocks of {self._gpu.name} cannot be listed: {error}") from error
        return tuple(sorted(set(clocks), reverse=True))

    def _optional(self, what: str, *reads: Callable[[], int]) -> int | None:
        """The first of ``reads`` that this GPU and driver have; None where they have none."""
        nvml = self._gpu.nvml
        with translated(ClockError, f"{what} of {self._gpu.uuid} cannot be read"):
            for read in reads:
                try:
                    return read()
                except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):  # noqa: PERF203 - two at most
                    continue
        return None

    def _demand(self, mhz: int) -> None:
        if self._locked_mhz is not None:
            raise ClockError(f"{self._gpu.uuid} is locked at {self._locked_mhz} MHz already")
        supported = self.supported_mhz()
        if not supported:
            raise ClockError(f"the clocks of {self._gpu.name} cannot be locked: use --clocks off")
        if mhz not in supported:
            near = sorted(sorted(supported, key=lambda clock: abs(clock - mhz))[:3])
            raise ClockError(
                f"{self._gpu.name} has no clock of {mhz} MHz; near it are {', '.join(map(str, near))}"
            )

    def _guarded(self) -> ClockGuard:
        if self._guard is None:
            directory = self._runtime_dir or runtime_directory()
            self._guard = ClockGuard(
                Place(directory, CONTROL, self._gpu.uuid),
                lambda entry: reset(entry, self._library),
                ("--library", str(Path(self._library).absolute())) if self._library else (),
            )
        return self._guard

    def _set(self, mhz: int) -> None:
        nvml = self._gpu.nvml
        try:
            nvml.nvmlDeviceSetGpuLockedClocks(self._gpu.handle, mhz, mhz)
        except nvml.NVMLError_NoPermission as error:
            self._forget()
            raise ClockPermissionError(_how_to_set(self._gpu.name)) from error
        except nvml.NVMLError_NotSupported as error:
            self._forget()
            raise ClockError(f"the clocks of {self._gpu.name} cannot be locked: use --clocks off") from error
        except nvml.NVMLError as error:
            raise ClockError(f"{self._gpu.name} cannot be locked at {mhz} MHz: {error}") from error

    def _forget(self) -> None:
        """A lock that the driver refused is none: there is nothing to reset."""
        self._locked_mhz = None
        if self._guard is not None:
            self._guard.clear()

    def _release(self, *, quietly: bool) -> None:
        """Reset the lock; a failure keeps the journal, so that the guardian tries again."""
        if self._locked_mhz is None:
            return
        try:
            with translated(ClockError, f"the clock lock of {self._gpu.uuid} could not be reset"):
                self._gpu.nvml.nvmlDeviceResetGpuLockedClocks(self._gpu.handle)
        except ClockError as error:
            _LOG.error("%s; it is tried again when this process ends", error)
            if not quietly:
                raise
            return
        self._forget()


def reset(entry: Entry, library: str | None = None) -> None:
    """Undo what a journal entry of this control announces.

    Raises:
        ClockError: the driver is gone or refuses.
    """
    gpu = NvmlGpu.open(entry.gpu, library, error=ClockError)
    try:
        with translated(ClockError, f"the clock lock of {entry.gpu} could not be reset"):
            gpu.nvml.nvmlDeviceResetGpuLockedClocks(gpu.handle)
    finally:
        gpu.close()


def _how_to_set(name: str) -> str:
    return (
        f"this process may not set the clocks of {name}: run as root (in a container with "
        "--cap-add SYS_ADMIN), ask an administrator, or use --clocks off"
    )
