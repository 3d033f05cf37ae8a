"""One frame of a particle filter on a GPU: all configurations are right."""

from collections.abc import Iterator, Mapping

import pytest
from adaptive_kernels import CATALOGUE

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

KERNEL = load_kernel_file(CATALOGUE / "particle-filter" / "kernel.toml")
SIZES = (
    {"N": 100000, "H": 128, "W": 128},
    {"N": 1000, "H": 1080, "W": 1920},
    {"N": 1000003, "H": 333, "W": 77},
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
