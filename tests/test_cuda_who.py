"""Which GPU a CUDA number means, asked of a libcuda that is compiled for the test."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tuner.devices.cuda import probe as module
from tuner.devices.cuda.probe import ask, gpus, who
from tuner.errors import DeviceUnavailableError

SOURCE = """
#include <stdio.h>
#include <string.h>
int cuInit(unsigned flags) { return (int)flags + %(init)s; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index < 0 || index > 1 ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 16 * device, 16); return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { (void)uuid; return device + 1; }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "GPU %%d", device) < 0; }
int cuDriverGetVersion(int *version) { *version = 12090; return 0; }
"""


@pytest.fixture
def library(tmp_path: Path) -> str:
    return built(tmp_path, init=0)


def built(folder: Path, init: int) -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a libcuda with")
    (folder / "cuda.c").write_text(SOURCE % {"init": init})
    target = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", target, folder / "cuda.c"], check=True)
    return str(target)


def test_uuid_and_driver(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The UUID is written as NVML does; where no kernel module tells, CUDA's version is the driver's."""
    monkeypatch.setattr(module, "kernel_module_version", lambda: None)

    assert ask(0, library) == ("GPU-00000000-0000-0000-0000-000000000000", "CUDA 12.9")
    assert ask(1, library) == ("GPU-10101010-1010-1010-1010-101010101010", "CUDA 12.9")


def test_all_gpus(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU that CUDA shows is told with name, UUID and driver, under the name that opens it."""
    monkeypatch.setattr(module, "kernel_module_version", lambda: "580.1")
    first, second = gpus(library)

    assert (first.spec, first.name, first.driver) == ("cuda:0", "GPU 0", "580.1")
    assert (second.spec, second.name, second.uuid) == ("cuda:1", "GPU 1", ask(1, library)[0])


def test_no_such_gpu(library: str) -> None:
    """A number too high is answered with those there are."""
    with pytest.raises(DeviceUnavailableError, match="cuda:2: no such GPU; choose from cuda:0, cuda:1"):
        ask(2, library)


def test_a_driver_that_does_not_start(tmp_path: Path) -> None:
    """A driver without GPUs is told, and lists none."""
    library = built(tmp_path, init=100)

    assert gpus(library) == []
    with pytest.raises(DeviceUnavailableError, match="offers no GPU"):
        ask(0, library)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver no child is started."""
    monkeypatch.setattr(module, "driver_problem", lambda: "no NVIDIA driver (a test)")
    with pytest.raises(DeviceUnavailableError, match=r"cuda:3: no NVIDIA driver \(a test\)"):
        who(3)
