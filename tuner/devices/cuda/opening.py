"""The beginning of a worker: the GPU's context is made while everything else is imported.

The driver is called through ctypes, which lets go of the interpreter, so that a context and the imports of
NumPy, CuPy and this package take as long together as the longer of both.
"""

import ctypes
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.devices.cuda.device import CudaDevice


def opened(index: int = 0, library: str = "libcuda.so.1") -> "CudaDevice":
    """Return the device of a GPU, its context made beside the imports.

    Raises:
        DeviceUnavailableError: see ``CudaDevice``, as for the next.
        CompilerUnavailableError: no NVRTC compiles for this GPU.
    """
    context = threading.Thread(target=make_context, args=(index, library), name="context", daemon=True)
    context.start()
    from tuner.devices.cuda import device, probe  # noqa: PLC0415 - as the docstring says

    probe.import_cupy(f"cuda:{index}")
    context.join()
    return device.CudaDevice(index)


def make_context(index: int, library: str) -> bool:
    """Make the primary context of a GPU, which CuPy then finds; what cannot be made, CuPy says."""
    try:
        driver = ctypes.CDLL(library)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), index):
            return False
        return int(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)) == 0
    except (OSError, AttributeError):
        return False
