"""Checks of the driver and of what is installed beside it. Nothing here opens a GPU."""

import ctypes
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from tuner.compiler.nvrtc import library_files
from tuner.devices.cuda.probe import driver_problem, kernel_module_version
from tuner.devices.sensors import is_jetson
from tuner.doctor.finding import Finding

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # class of PCI devices that GPUs belong to
_CUPY = re.compile(r"cupy(?:-cuda(\d+)\w*)?", re.IGNORECASE)
_NO_GPU = "simulated devices (sim:...) work all the same"


def driver(root: Path, libcuda: str) -> Iterator[Finding]:
    """Is there a GPU, and a driver that answers for it?

    Args:
        root: below which ``/sys``, ``/proc`` and ``/dev`` are.
        libcuda: name or path of the driver's library.
    """
    problem = driver_problem(libcuda, root / "dev/nvidiactl")
    version = kernel_module_version(root / "proc/driver/nvidia/version")
    if problem is None:
        yield Finding("driver", "ok", f"NVIDIA driver {version or 'of unknown version'}")
        return
    if not expects_gpu(root):
        yield Finding("driver", "note", f"no NVIDIA GPU in this machine; {_NO_GPU}")
        return
    remedy = "install the NVIDIA driver, or in a container pass the GPU in (docker run --gpus all)"
    if "permission" in problem:
        remedy = "add the user to the group that owns /dev/nvidiactl (often video or render)"
    yield Finding("driver", "error", problem, remedy)


def expects_gpu(root: Path) -> bool:
    """True on a machine that has an NVIDIA GPU, whether or not a driver serves it."""
    version = kernel_module_version(root / "proc/driver/nvidia/version")
    return bool(_pci_gpus(root)) or is_jetson(root) or version is not None


def _pci_gpus(root: Path) -> list[Path]:
    found = []
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            found.append(device)
    return found


def cupy(installed: dict[str, str] | None = None, libcuda: str = "libcuda.so.1") -> Iterator[Finding]:
    """Is there exactly one CuPy, and does the driver serve its CUDA?

    Args:
        installed: name and version of the packages; those of this environment if None.
        libcuda: name or path of the driver's library.
    """
    packages = _installed() if installed is None else installed
    found = {name: version for name, version in packages.items() if _CUPY.fullmatch(name)}
    if not found:
        yield Finding(
            "CuPy",
            "note",
            "not installed: nothing can run on a GPU",
            "in tuner's checkout: pip install '.[cuda12]' or '.[cuda13]'",
        )
        return
    named = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
    if len(found) > 1:
        yield Finding(
            "CuPy", "error", f"several are installed and share their files: {named}", "keep one of them"
        )
        return
    (name,) = found
    wanted = _CUPY.fullmatch(name)
    served = _cuda_of_driver(libcuda)
    if wanted and wanted[1] and served and int(wanted[1]) > served:
        yield Finding(
            "CuPy",
            "error",
            f"{named} needs CUDA {wanted[1]}, and the driver serves CUDA {served}",
            f"in tuner's checkout: pip install '.[cuda{served}]', or a newer driver",
        )
        return
    yield Finding("CuPy", "ok", named)


def _installed() -> dict[str, str]:
    found = ((entry.metadata["Name"], entry.version) for entry in importlib.metadata.distributions())
    return {name.lower(): version for name, version in found if name}


def _cuda_of_driver(libcuda: str) -> int | None:
    """Major version of CUDA that the driver serves; asking for it starts nothing."""
    version = ctypes.c_int()
    try:
        result = ctypes.CDLL(libcuda).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if result else version.value // 1000


def nvml_binding() -> Iterator[Finding]:
    """Can NVML be called at all?"""
    if importlib.util.find_spec("pynvml") is None:
        yield Finding(
            "NVML binding",
            "note",
            "nvidia-ml-py is not installed: no power and no clocks of GPUs other than a Jetson's",
            "pip install nvidia-ml-py",
        )
        return
    yield Finding("NVML binding", "ok", "nvidia-ml-py is installed")


def nvrtc() -> Iterator[Finding]:
    """Is there a compiler? Whether it serves a GPU is asked where the GPU is known."""
    files = library_files()
    if not files:
        yield Finding(
            "compiler", "error", "no NVRTC: no kernel can be compiled", "pip install nvidia-cuda-nvrtc-cu12"
        )
        return
    yield Finding("compiler", "ok", f"NVRTC: {', '.join(sorted({path.name for path in files}))}")
