"""Factorisations of one large matrix on a GPU: a sample of configurations is right."""

from collections.abc import Iterator

import pytest
from linalg_large import sampled_plans
from linalg_runs import DTYPES

from tuner.devices.cuda.device import CudaDevice
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

NAMES = ("potrf", "getrf", "geqrf")


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [256, 1000, 2048])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_right(device: CudaDevice, name: str, n: int, dtype: str) -> None:
    """Each value of each tunable: own panels, updates by cuBLAS, and the order of streams."""
    for plan in sampled_plans(name, n, dtype):
        check = device.check(plan, 7)
        if check.status is not Status.COMPILE_ERROR:  # it spills, or is for other devices
            assert check.status is Status.OK, f"{plan.label()}: {check.detail}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 30, 256, 1000])
@pytest.mark.parametrize("name", ["potrf-hybrid", "getrf-hybrid", "geqrf-hybrid"])
def test_host_stages_are_right(device: CudaDevice, name: str, n: int, dtype: str) -> None:
    """Panels by the CPU, updates by cuBLAS, copies between them; more threads than processors are refused."""
    for plan in sampled_plans(name, n, dtype):
        check = device.check(plan, 7)
        if check.status is Status.LAUNCH_ERROR and "threads of the CPU" in check.detail:
            continue
        assert check.status is Status.OK, f"{plan.label()}: {check.detail}"
        result = device.run([plan], 0.05).results[0]
        assert result.status is Status.OK, f"{plan.label()}: {result.detail}"
        assert result.time_s is not None
        assert 0 < result.restore_s < result.time_s
