"""Batched dense linear algebra on a GPU: every configuration is right."""

from collections.abc import Iterator

import pytest
from kernel_plans import kernel_of
from linalg_runs import DTYPES

from tuner.devices.cuda.device import CudaDevice
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

LARGER = (16, 32, 33, 48, 64, 96, 127, 128)
SIZES = {
    **dict.fromkeys(("potrf", "trsm", "gemv", "gemm"), (1, 4, 13, *LARGER)),
    **dict.fromkeys(("getrf", "geqrf"), (1, 2, 3, 7, 8, 21, 65, *LARGER)),
}


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "n"), [(name, n) for name, sizes in SIZES.items() for n in sizes])
def test_every_configuration_is_right(device: CudaDevice, name: str, n: int, dtype: str) -> None:
    """No configuration of the space gives a wrong answer or writes past its arrays, in blocks not full."""
    kernel = kernel_of(f"{name}-batched")
    workload = kernel.workload({"n": n, "dtype": dtype}, 1001)
    for configuration in kernel.space(workload):
        check = device.check(kernel.plan(workload, configuration), 7)
        if check.status is Status.COMPILE_ERROR and name not in ("getrf", "geqrf"):
            continue  # it spills, or is for other devices
        assert check.status is Status.OK, f"{workload} {configuration}: {check.detail}"
