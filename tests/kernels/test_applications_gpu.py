"""Kernels of the applications on a GPU: all configurations are right."""

import math
from collections.abc import Iterator, Mapping

import pytest
from adaptive_kernels import CATALOGUE

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import TunableValue
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

SIZES: dict[str, tuple[dict[str, int], ...]] = {
    "hotspot": (
        {"ROWS": 1024, "COLUMNS": 1024},
        {"ROWS": 257, "COLUMNS": 1999, "STEPS": 7},
        {"ROWS": 1, "COLUMNS": 65536},
        {"ROWS": 7, "COLUMNS": 3},
        {"ROWS": 11, "COLUMNS": 10, "STEPS": 200},
    ),
    "lud": tuple({"N": n} for n in (1, 100, 257, 1024, 1999)),  # which fill blocks or do not
    "particle-filter": (
        {"N": 100000, "H": 128, "W": 128},
        {"N": 1000, "H": 1080, "W": 1920},
        {"N": 1000003, "H": 333, "W": 77},
    ),
    "streamcluster": (
        {"N": 65536, "DIM": 256, "K": 16},
        {"N": 10007, "DIM": 33, "K": 200},
        {"N": 1000003, "DIM": 3, "K": 5},
        {"N": 1000, "DIM": 8192, "K": 1},
    ),
}
KERNELS = {name: load_kernel_file(CATALOGUE / name / "kernel.toml") for name in SIZES}
HOTSPOT = KERNELS["hotspot"]


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize(("name", "sizes"), [(name, sizes) for name in SIZES for sizes in SIZES[name]])
def test_every_configuration_is_right(device: CudaDevice, name: str, sizes: Mapping[str, int]) -> None:
    """No configuration of the space gives a wrong answer or writes past its arrays."""
    kernel = KERNELS[name]
    workload = kernel.workload(sizes)
    for configuration in kernel.space(workload):
        check = device.check(kernel.plan(workload, configuration), 7)
        assert check.status is Status.OK, f"{workload} {configuration}: {check.detail}"


def test_strips_of_a_large_grid_are_right(device: CudaDevice) -> None:
    """The default, and a form of several steps that do not divide all, where the law looks at strips only."""
    workload = HOTSPOT.workload({"ROWS": 8192, "COLUMNS": 8192})
    wide: dict[str, TunableValue] = {"X": 64, "Y": 4, "R": 16, "T": 6, "BUFFERS": 2, "POWER": "register"}
    for configuration in (HOTSPOT.default(workload), HOTSPOT.configuration(workload, wide)):
        check = device.check(HOTSPOT.plan(workload, configuration), 7)
        assert check.status is Status.OK, f"{configuration}: {check.detail}"


def test_indices_beyond_31_bits_are_right(device: CudaDevice) -> None:
    """A grid of more than 2^31 cells is right to its last row."""
    workload = HOTSPOT.workload({"ROWS": 65536, "COLUMNS": 32771, "STEPS": 1})
    plan = HOTSPOT.plan(workload, HOTSPOT.default(workload))
    if device.free_memory_bytes() < 2 * sum(4 * math.prod(buffer.shape) for buffer in plan.buffers):
        pytest.skip("needs 52 GB of free device memory")
    check = device.check(plan, 7)
    assert check.status is Status.OK, check.detail
