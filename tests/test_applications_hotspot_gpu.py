"""Steps of the heat equation on a GPU: all configurations are right."""

from collections.abc import Iterator, Mapping

import pytest
from adaptive_kernels import CATALOGUE

from tuner.config import load_kernel_file
from tuner.devices.cuda.device import CudaDevice
from tuner.model import Status

pytestmark = pytest.mark.gpu

KERNEL = load_kernel_file(CATALOGUE / "hotspot" / "kernel.toml")
SIZES = (
    {"ROWS": 1024, "COLUMNS": 1024},
    {"ROWS": 257, "COLUMNS": 1999, "STEPS": 7},
    {"ROWS": 1, "COLUMNS": 65536},
    {"ROWS": 7, "COLUMNS": 3},
    {"ROWS": 11, "COLUMNS": 10, "STEPS": 200},
)


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(map(str, sizes.values())))
def test_every_configuration_is_right(device: CudaDevice, sizes: Mapping[str, int | str]) -> None:
    """No configuration of the space gives a wrong answer or writes past its arrays."""
    workload = KERNEL.workload(sizes)
    for configuration in KERNEL.space(workload):
        check = device.check(KERNEL.plan(workload, configuration), 7)
        assert check.status is Status.OK, f"{workload} {configuration}: {check.detail}"


@pytest.mark.parametrize(
    "sizes", [{"ROWS": 8192, "COLUMNS": 8192}, {"ROWS": 65536, "COLUMNS": 32771, "STEPS": 1}]
)
def test_large_grids_are_right(device: CudaDevice, sizes: Mapping[str, int | str]) -> None:
    """Also where the law looks at strips only, and beyond 2^31 cells."""
    workload = KERNEL.workload(sizes)
    check = device.check(KERNEL.plan(workload, KERNEL.default(workload)), 7)
    assert check.status is Status.OK, check.detail
