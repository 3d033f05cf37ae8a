"""GPUs: which one a CUDA number means, and whether it has nothing else to do."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml_state import UUID, State, fake_nvml

from tuner.devices.cuda import probe as module
from tuner.devices.cuda.probe import ORDER, VISIBLE, ask, first_visible, gpus, who
from tuner.devices.gpu_users import require_exclusive_gpu
from tuner.model.errors import DeviceError, DeviceUnavailableError


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """A GPU of 41 degrees on which nobody computes."""
    with fake_nvml(tmp_path) as state:
        state.temperature_c = 41
        yield state


def test_an_idle_gpu_tells_its_temperature(nvml: State) -> None:
    """Nobody but ourselves is no company."""
    assert require_exclusive_gpu(UUID) == 41.0
    nvml.process_count, nvml.pids[0] = 1, 4711
    assert require_exclusive_gpu(UUID, ours=1) == 41.0


@pytest.mark.parametrize("ours", [0, 1])
def test_others_are_refused(nvml: State, ours: int) -> None:
    """One process more than our own is too many; all are told, since ours may have another number there."""
    nvml.process_count = ours + 1
    for slot in range(ours + 1):
        nvml.pids[slot] = 4711 + slot

    with pytest.raises(DeviceError, match=r"others compute on it.*4711.*end them, or wait") as caught:
        require_exclusive_gpu(UUID, ours)
    assert ("our own among them" in str(caught.value)) == bool(ours)


def test_instances_are_refused(nvml: State) -> None:
    """The sensors of a GPU that is cut into instances see all of them."""
    nvml.mig_mode = 1

    with pytest.raises(DeviceError, match="MIG is on"):
        require_exclusive_gpu(UUID)


def test_who_tells_nothing_has_no_company(nvml: State) -> None:
    """Where NVML knows no such GPU, as on a Jetson, nothing is known and nothing refused."""
    assert nvml.uuid
    assert require_exclusive_gpu("GPU-other") is None


# --- Which GPU a CUDA number means, asked of a libcuda that is compiled for the test.

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


# --- where CUDA cannot be asked ------------------------------------------------------------------

ALIKE = [("GPU-aaaa1111", "H200"), ("GPU-aabb2222", "H200"), ("GPU-cccc3333", "H200")]
UNLIKE = [("GPU-aaaa1111", "T400"), ("GPU-aabb2222", "H200")]
BY_BUS = {ORDER: "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("environment", "gpus", "first"),
    [
        ({}, ALIKE, "GPU-aaaa1111"),
        ({VISIBLE: "1"}, ALIKE, "GPU-aabb2222"),
        ({VISIBLE: " 2 , 0"}, ALIKE, "GPU-cccc3333"),
        ({VISIBLE: "1,9,1"}, ALIKE, "GPU-aabb2222"),
        ({VISIBLE: "1,none,1"}, ALIKE, "GPU-aabb2222"),
        ({VISIBLE: "GPU-cccc3333"}, ALIKE, "GPU-cccc3333"),
        ({VISIBLE: "gpu-AAB,0"}, ALIKE, "GPU-aabb2222"),
        ({VISIBLE: "MIG-GPU-cccc3333/1/0"}, ALIKE, "MIG-GPU-cccc3333/1/0"),
        ({VISIBLE: "MIG-1234"}, ALIKE, "MIG-1234"),
        ({VISIBLE: "1", **BY_BUS}, UNLIKE, "GPU-aabb2222"),
        ({VISIBLE: "GPU-aabb2222"}, UNLIKE, "GPU-aabb2222"),
    ],
)
def test_the_environment_says_which_gpu_is_first(
    environment: dict[str, str], gpus: list[tuple[str, str]], first: str
) -> None:
    """By index or UUID, also cut short, of a GPU or of an instance, up to the first entry that names none."""
    assert first_visible(gpus, environment) == first


@pytest.mark.parametrize(
    ("environment", "gpus", "words"),
    [
        ({VISIBLE: ""}, ALIKE, "CUDA_VISIBLE_DEVICES='' shows no GPU"),
        ({VISIBLE: "-1"}, ALIKE, "shows no GPU"),
        ({VISIBLE: "3"}, ALIKE, "shows no GPU"),
        ({VISIBLE: "9" * 5000}, ALIKE, "shows no GPU"),
        ({VISIBLE: "NoDevFiles"}, ALIKE, "shows no GPU"),
        ({VISIBLE: ",1"}, ALIKE, "shows no GPU"),
        ({VISIBLE: "1.0"}, ALIKE, "shows no GPU"),
        ({VISIBLE: "GPU-aa"}, ALIKE, "shows no GPU"),
        ({VISIBLE: "1,GPU-aabb"}, ALIKE, "names GPU-aabb twice"),
        ({VISIBLE: "0,0"}, ALIKE, "names 0 twice"),
        ({VISIBLE: "0"}, UNLIKE, "set CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        ({VISIBLE: "1", ORDER: "FASTEST_FIRST"}, UNLIKE, "set CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ],
)
def test_no_other_gpu_is_taken(environment: dict[str, str], gpus: list[tuple[str, str]], words: str) -> None:
    """Where the environment shows none, or nobody knows which, that is told."""
    with pytest.raises(DeviceUnavailableError, match=words):
        first_visible(gpus, environment)
