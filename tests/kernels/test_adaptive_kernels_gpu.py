"""The kernels with pragmas on a GPU: all configurations are right, at sizes that fill blocks or do not."""

from collections.abc import Iterator, Mapping

import pytest
from adaptive_kernels import KERNELS

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

SIZES: Mapping[str, tuple[Mapping[str, int | str], ...]] = {
    "convolution-columns": (
        {"H": 1001, "W": 777, "R": 8},
        {"H": 65, "W": 2048, "R": 16},
        {"H": 1000000, "W": 3, "R": 2},
    ),
    "convolution-rows": (
        {"H": 777, "W": 1001, "R": 8},
        {"H": 65, "W": 2048, "R": 16},
        {"H": 1000000, "W": 3, "R": 2},
    ),
    "matmul-split-k": (
        {"M": 333, "N": 257, "K": 129},
        {"M": 128, "N": 128, "K": 8192},
        {"M": 1048576, "N": 3, "K": 5},
    ),
    "mvmul": (
        {"H": 1001, "W": 777},
        {"H": 100, "W": 131072},
        {"H": 1000000, "W": 3},
        {"H": 1, "W": 10000000},
    ),
    "reduction": ({"N": 1}, {"N": 1000003}, {"N": 2**28 + 1}),
    "scalar-product": ({"P": 1, "L": 1000003}, {"P": 5000, "L": 4096}, {"P": 1000000, "L": 3}),
    "transpose": ({"H": 1001, "W": 777}, {"H": 4096, "W": 2048}, {"H": 5000000, "W": 4}),
    "transpose-naive": ({"H": 1001, "W": 777}, {"H": 1000000, "W": 3}),
}


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        pytest.param(KERNELS[name], sizes, id=f"{name}-{'-'.join(map(str, sizes.values()))}")
        for name, every in SIZES.items()
        for sizes in every
    ],
)
def test_every_configuration_is_right(
    device: CudaDevice, kernel: KernelFile, sizes: Mapping[str, int | str]
) -> None:
    """No configuration of the space gives a wrong answer or writes past its arrays."""
    workload = kernel.workload(sizes)
    for configuration in kernel.space(workload):
        check = device.check(kernel.plan(workload, configuration), 7)
        assert check.status is Status.OK, f"{workload} {configuration}: {check.detail}"
