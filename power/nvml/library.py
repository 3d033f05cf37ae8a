"""Opens a GPU through NVML, and translates its errors."""

import contextlib
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tuner.model.errors import TunerError

try:
    import pynvml
except ImportError:  # an optional dependency: NvmlGpu.open says how to get it
    pynvml = None

NVML: Any = pynvml


class NvmlGpu:
    """A GPU opened through NVML; reading only, whoever sets something does so knowingly.

    Attributes:
        nvml: the binding.
        handle: NVML's handle of the GPU.
        uuid: e.g. ``GPU-6f0...``.
        name: product name.
    """

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
        if NVML is None:
            raise error("NVML is read through nvidia-ml-py, which is not installed: pip install nvidia-ml-py")
        with translated(error, "NVML cannot be opened"):
            _use(library, error)
            NVML.nvmlInit()
        try:
            with translated(error, f"NVML cannot open GPU {gpu}"):
                by_uuid = isinstance(gpu, str)
                find = NVML.nvmlDeviceGetHandleByUUID if by_uuid else NVML.nvmlDeviceGetHandleByIndex
                handle = find(gpu)
                if isinstance(gpu, str) and gpu.upper().startswith("MIG-"):
                    handle = NVML.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
                return NvmlGpu(NVML, handle, NVML.nvmlDeviceGetUUID(handle), NVML.nvmlDeviceGetName(handle))
        except TunerError:
            NVML.nvmlShutdown()
            raise

    @staticmethod
    def count(library: str | None = None) -> int:
        """How many GPUs NVML knows; 0 where there is no driver or no binding."""
        if NVML is None:
            return 0
        try:
            _use(library, TunerError)
            NVML.nvmlInit()
        except (TunerError, NVML.NVMLError):
            return 0
        try:
            return int(NVML.nvmlDeviceGetCount())
        except NVML.NVMLError:
            return 0
        finally:
            NVML.nvmlShutdown()

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
    try:
        yield
    except NVML.NVMLError as cause:
        raise error(f"{what}: {cause}") from cause


def _use(library: str | None, error: type[TunerError]) -> None:
    """Make the binding load ``library`` instead of what the system loader would find."""
    if library is None or getattr(NVML.nvmlLib, "_name", None) == library:
        return
    if NVML.nvmlLib is not None:
        raise error(f"this process has loaded another NVML than {library} already")
    try:
        NVML.nvmlLib = ctypes.CDLL(library)
    except OSError as cause:
        raise error(f"NVML cannot be loaded from {library}: {cause}") from cause
