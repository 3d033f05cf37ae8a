"""Opening a CUDA GPU: which GPU an index names, what is missing, and its identity."""

import ctypes
import importlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from tuner.model.errors import DeviceUnavailableError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.system.processes import Child

_ASK_S = 60.0  # a driver that has to be loaded first takes seconds
_NAME_BYTES = 256  # as CUDA's runtime has for the name of a GPU
_CONTROL_NODE = Path("/dev/nvidiactl")
_DEVICE_FILES = ("nvidia[0-9]*", "nvidiactl", "nvhost-gpu", "nvhost-ctrl-gpu")  # the last two of a Jetson
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor, and the class of display controllers
_VERSION_FILE = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)*)\s")


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
    with Child("importlib:import_module", "tuner.devices.cuda.probe", name=f"cuda:{index}") as child:
        answer: tuple[str, str] = child.call("ask", index, timeout_s=_ASK_S)
    return answer


def ask(index: int, library: str = "libcuda.so.1") -> tuple[str, str]:
    """Return the result of ``who``, read in this process.

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
        choices = ", ".join(f"cuda:{i}" for i in range(count.value)) or "none"
        raise DeviceUnavailableError(f"cuda:{index}: no such GPU; choose from {choices}")
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}", kernel_module_version() or cuda_version(version.value)


def gpus(library: str = "libcuda.so.1") -> list[DeviceIdentity]:
    """Return the identities of CUDA's GPUs, by index, read in this process; no context is made.

    Returns:
        Without ``runtime``, which a compiler says; empty where the driver does not start.

    Raises:
        DeviceUnavailableError: the driver does not tell who one of them is.
    """
    driver = ctypes.CDLL(library)
    count, version = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    driver.cuDriverGetVersion(ctypes.byref(version))
    served = kernel_module_version() or cuda_version(version.value)
    return [_identity(driver, index, served) for index in range(count.value)]


def _identity(driver: ctypes.CDLL, index: int, version: str) -> DeviceIdentity:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetName(name, _NAME_BYTES, device):
        raise DeviceUnavailableError(f"cuda:{index}: the driver does not tell the GPU's name")
    return DeviceIdentity(
        spec=f"cuda:{index}",
        name=name.value.decode(errors="replace"),
        uuid=_uuid(driver, index),
        driver=version,
        runtime="",
        modelled=False,
    )


def driver_problem(library: str = "libcuda.so.1", control_node: Path = _CONTROL_NODE) -> str | None:
    """Return the reason that no GPU can answer, without starting the driver; None if one may."""
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return f"no NVIDIA driver ({error})"
    if control_node.exists() and not os.access(control_node, os.R_OK | os.W_OK):
        return f"no permission to open {control_node}: add the user to the group that owns it"
    return None


def nvidia_device_file(devices: Path = Path("/dev")) -> str | None:
    """A device file of an NVIDIA GPU, such as ``/dev/nvidia0``; None where the machine shows none."""
    for pattern in _DEVICE_FILES:
        file = next(iter(sorted(devices.glob(pattern))), None)
        if file is not None:
            return str(file)
    return None


def nvidia_card(cards: Path = Path("/sys/bus/pci/devices")) -> str | None:
    """The PCI address of an NVIDIA display controller, with or without a driver; None where there is none."""
    for card in sorted(cards.glob("*")):
        try:
            vendor, kind = ((card / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            return card.name
    return None


def open_cupy(index: int) -> ModuleType:
    """CuPy with GPU ``index`` made current.

    Raises:
        DeviceUnavailableError: no driver, no permission, no CuPy, no such GPU, or one that does not open.
    """
    cp = import_cupy(f"cuda:{index}")
    try:
        count = cp.cuda.runtime.getDeviceCount()
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise DeviceUnavailableError(f"cuda:{index}: the driver offers no GPU: {error}") from error
    if not 0 <= index < count:
        choices = ", ".join(f"cuda:{i}" for i in range(count))
        raise DeviceUnavailableError(f"cuda:{index}: no such GPU; choose from {choices}")
    _use(cp, index)
    return cp


def import_cupy(caller: str) -> ModuleType:
    """CuPy, where there is a driver for it; nothing of a GPU is opened.

    Raises:
        DeviceUnavailableError: no driver, no permission, or no CuPy.
    """
    problem = driver_problem()
    if problem is not None:
        raise DeviceUnavailableError(f"{caller}: {problem}")
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceUnavailableError(
            f"{caller}: CuPy cannot be imported ({error}):"
            " pip install 'gpu-tuner[cuda12]' or 'gpu-tuner[cuda13]', whichever the driver serves"
        ) from error


def gpu_count() -> int:
    """Number of GPUs CuPy can see; 0 where driver or CuPy is missing."""
    if driver_problem() is not None:
        return 0
    try:
        runtime = importlib.import_module("cupy").cuda.runtime
    except ImportError:
        return 0
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


def _use(cp: ModuleType, index: int) -> None:
    """Make the GPU current and open its context; CuPy compiles nothing, here or in a trial."""
    try:
        cp.cuda.Device(index).use()
        cp.cuda.runtime.memGetInfo()
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise DeviceUnavailableError(f"cuda:{index}: cannot be opened: {error}") from error


def gpu_uuid(index: int) -> str:
    """UUID of a GPU as NVML writes it, ``GPU-…``.

    CuPy returns the 16 bytes as a C string, cut at the first zero; so the driver is asked itself.

    Raises:
        DeviceUnavailableError: the driver does not tell.
    """
    return _uuid(ctypes.CDLL("libcuda.so.1"), index)


def _uuid(driver: ctypes.CDLL, index: int) -> str:
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)
    device = ctypes.c_int()
    raw = (ctypes.c_ubyte * 16)()
    if driver.cuDeviceGet(ctypes.byref(device), index) or get_uuid(ctypes.byref(raw), device):
        raise DeviceUnavailableError(f"cuda:{index}: the driver does not tell the GPU's UUID")
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def driver_version(cp: ModuleType) -> str:
    """Driver version, e.g. ``580.159.03``; the CUDA version it serves where the kernel module is silent."""
    return kernel_module_version() or cuda_version(cp.cuda.runtime.driverGetVersion())


def kernel_module_version(version_file: Path = _VERSION_FILE) -> str | None:
    """Version of the loaded kernel module; None where it is silent."""
    try:
        match = _VERSION.search(version_file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return match.group(1) if match else None


def cuda_version(number: int) -> str:
    """CUDA's own number of a version, in words."""
    return f"CUDA {number // 1000}.{number % 1000 // 10}"


def gpu_name(cp: ModuleType, index: int) -> str:
    """Product name."""
    name: bytes = cp.cuda.runtime.getDeviceProperties(index)["name"]
    return name.decode(errors="replace")


def gpu_limits(cp: ModuleType, index: int) -> DeviceLimits:
    """Limits as the GPU states them; allocation units, which it does not state, by compute capability."""
    runtime = cp.cuda.runtime

    def attribute(name: str) -> int:
        return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), index))

    from tuner.space.occupancy import device_limits  # noqa: PLC0415 - who asks for a name needs no NumPy

    properties = runtime.getDeviceProperties(index)
    limits = device_limits(
        (int(properties["major"]), int(properties["minor"])),
        multiprocessors=attribute("MultiProcessorCount"),
        memory_bytes=int(properties["totalGlobalMem"]),
        l2_bytes=attribute("L2CacheSize"),
    )
    warp_size, threads = attribute("WarpSize"), attribute("MaxThreadsPerMultiProcessor")
    return replace(
        limits,
        warp_size=warp_size,
        max_threads_per_block=attribute("MaxThreadsPerBlock"),
        max_threads_per_sm=threads,
        max_warps_per_sm=threads // warp_size,
        max_blocks_per_sm=attribute("MaxBlocksPerMultiprocessor"),
        registers_per_sm=attribute("MaxRegistersPerMultiprocessor"),
        registers_per_block=attribute("MaxRegistersPerBlock"),
        shared_bytes_per_sm=attribute("MaxSharedMemoryPerMultiprocessor"),
        shared_bytes_per_block=max(
            attribute("MaxSharedMemoryPerBlock"), attribute("MaxSharedMemoryPerBlockOptin")
        ),
        shared_reserved_bytes=attribute("ReservedSharedMemoryPerBlock"),
    )


# --- Which GPU is ``cuda:0`` by the environment, where CUDA itself cannot be asked.
#
# CUDA's programming guide, "CUDA Environment Variables": ``CUDA_VISIBLE_DEVICES`` lists indices or UUIDs,
# which may be cut short, of GPUs or of their instances; what follows the first that names none is not seen.
# Indices count as ``CUDA_DEVICE_ORDER`` says: by PCI bus, as NVML counts, or the fastest first.

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_INSTANCE = "MIG-"


def first_visible(gpus: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> str:
    """UUID of ``cuda:0``, of a GPU or of an instance (``MIG-...``); see ``visible``."""
    return visible(gpus, environment)[0]


def visible(gpus: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> list[str]:
    """UUIDs of ``cuda:0`` and those behind it, of GPUs or instances; all GPUs where nothing is said.

    Args:
        gpus: UUID and name of each, as NVML counts them; at least one.
        environment: the variables.

    Raises:
        DeviceUnavailableError: no GPU is to be seen, or it is not known which one.
    """
    listed = environment.get(VISIBLE)
    if listed is None:
        return [uuid for uuid, _ in gpus]
    uuids: list[str] = []
    for entry in map(str.strip, listed.split(",")):
        uuid = _named(entry, gpus, environment)
        if uuid is None:
            break
        if uuid in uuids:
            raise DeviceUnavailableError(
                f"{VISIBLE}={listed} names {entry} twice, and CUDA shows no GPU then"
            )
        uuids.append(uuid)
    if not uuids:
        raise DeviceUnavailableError(f"{VISIBLE}={listed!r} shows no GPU; change it, or name one by its UUID")
    return uuids


def _named(entry: str, gpus: Sequence[tuple[str, str]], environment: Mapping[str, str]) -> str | None:
    """The GPU, or instance, of an entry; None where there is none."""
    if entry.upper().startswith(_INSTANCE):
        return entry
    if not re.fullmatch("[0-9]{1,9}", entry):
        matches = [uuid for uuid, _ in gpus if entry and uuid.lower().startswith(entry.lower())]
        return matches[0] if len(matches) == 1 else None
    if int(entry) >= len(gpus):
        return None
    if environment.get(ORDER) != "PCI_BUS_ID" and len({name for _, name in gpus}) > 1:
        raise DeviceUnavailableError(
            f"{VISIBLE}: CUDA counts the fastest GPU first, and cannot be asked which that is: set"
            f" {ORDER}=PCI_BUS_ID, or name the GPU by its UUID"
        )
    return gpus[int(entry)][0]
