"""Which GPU ``cuda:N`` is, asked of the driver without opening a context: the GPU is left at rest."""

import ctypes
import uuid

from tuner.devices.cuda.probe import cuda_version, driver_problem, kernel_module_version
from tuner.errors import DeviceUnavailableError
from tuner.system.process import Child

_ASK_S = 60.0  # a driver that has to be loaded first takes seconds


def who(index: int) -> tuple[str, str]:
    """UUID and driver version of ``cuda:index``, as its ``DeviceIdentity`` has them.

    A child asks, so that the driver is not loaded in this process for the rest of its life.

    Raises:
        DeviceUnavailableError: no driver, or no such GPU.
        ChildError: the driver crashed or hangs.
    """
    problem = driver_problem()
    if problem is not None:
        raise DeviceUnavailableError(f"cuda:{index}: {problem}")
    with Child("importlib:import_module", "tuner.devices.cuda.who", name=f"cuda:{index}") as child:
        found, driver = child.call("ask", index, timeout_s=_ASK_S)
    return found, driver


def ask(index: int, library: str = "libcuda.so.1") -> tuple[str, str]:
    """What ``who`` returns, asked in this process.

    Raises:
        DeviceUnavailableError: no such GPU, or the driver does not start.
    """
    driver = ctypes.CDLL(library)
    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    raw = (ctypes.c_ubyte * 16)()
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        raise DeviceUnavailableError(f"cuda:{index}: the driver offers no GPU")
    if driver.cuDeviceGet(ctypes.byref(device), index) or get_uuid(ctypes.byref(raw), device):
        known = ", ".join(f"cuda:{i}" for i in range(count.value)) or "none"
        raise DeviceUnavailableError(f"cuda:{index}: no such GPU; choose from {known}")
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}", kernel_module_version() or cuda_version(version.value)
