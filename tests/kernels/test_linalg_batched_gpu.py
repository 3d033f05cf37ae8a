"""Batched dense linear algebra on a GPU: every configuration is right."""

from collections.abc import Iterator

import pytest
from linalg_batched import DTYPES, kernel_of

from tuner.devices.cuda.device import CudaDevice
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

NAMES = ("potrf-batched", "trsm-batched", "gemv-batched", "gemm-batched")
SIZES = (1, 4, 13, 16, 32, 33, 48, 64, 96, 127, 128)


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_is_right(device: CudaDevice, name: str, n: int, dtype: str) -> None:
    """No configuration of the space gives a wrong answer or writes past its arrays, in blocks not full."""
    kernel = kernel_of(name)
    workload = kernel.workload({"n": n, "dtype": dtype}, 1001)
    for configuration in kernel.space(workload):
        check = device.check(kernel.plan(workload, configuration), 7)
        if check.status is not Status.COMPILE_ERROR:  # it spills, or is for other devices
            assert check.status is Status.OK, f"{workload} {configuration}: {check.detail}"
