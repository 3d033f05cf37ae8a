"""Stream priorities on a GPU: the urgent one of two workloads ends earlier than it does as the other."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tuner.devices.cuda.device import CudaDevice
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Plan
from tuner.model.trial import Status

pytestmark = pytest.mark.gpu

CHAIN, GRIDS = "lud:N=768", "hotspot:ROWS=6144,COLUMNS=6144"
WINDOW_S = 0.2


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The first GPU, in this process."""
    opened = CudaDevice(0)
    yield opened
    opened.close()


def _plan(spec: str, priority: int) -> Plan:
    catalog = Catalog.load(())
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    return replace(kernel.plan(workload, kernel.default(workload)), stream_priority=priority)


def _times_s(device: CudaDevice, chain: int, grids: int) -> tuple[float, float]:
    """Own times of a chain of small launches and of a few large grids, at these priorities."""
    record = device.run([_plan(CHAIN, chain), _plan(GRIDS, grids)], WINDOW_S)
    assert [one.status for one in record.results] == [Status.OK, Status.OK]
    chain_s, grids_s = (one.time_s for one in record.results)
    assert chain_s is not None
    assert grids_s is not None
    return chain_s, grids_s


def test_the_urgent_workload_ends_earlier(device: CudaDevice) -> None:
    """A chain of small launches no longer waits behind large grids, and the other way round."""
    first_s, _ = _times_s(device, 1, 0)
    last_s, _ = _times_s(device, 0, 1)
    alike_s, _ = _times_s(device, 0, 0)
    assert first_s < 0.95 * last_s
    assert first_s < 0.95 * alike_s
