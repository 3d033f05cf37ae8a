"""Batched LU and QR on a GPU: all configurations are right."""

from collections.abc import Iterator

import pytest
from adaptive_kernels import CATALOGUE
from lu_qr import DTYPES

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 16, 21, 32, 33, 48, 64, 65, 96, 127, 128])
@pytest.mark.parametrize("name", ["getrf-batched", "geqrf-batched"])
def test_every_configuration_is_right(device: CudaDevice, name: str, n: int, dtype: str) -> None:
    """No configuration gives a wrong answer, in a batch whose last block is not full."""
    kernel = load_kernel_file(CATALOGUE / name / "kernel.toml")
    workload = kernel.workload({"n": n, "dtype": dtype}, 1001)
    for configuration in kernel.space(workload):
        check = device.check(kernel.plan(workload, configuration), 7)
        assert check.status is Status.OK, f"{workload} {configuration}: {check.detail}"
