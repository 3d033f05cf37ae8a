"""Stream priorities and shares of the multiprocessors on a GPU, as two workloads feel them."""

import os
import signal
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tuner.devices.cuda.device import CudaDevice
from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.lanes import Lanes, SmShares, StreamPlace
from tuner.devices.cuda.launches import Launch
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Plan
from tuner.model.trial import FlagKind, Status
from tuner.space.occupancy import shared_out, sm_unit

pytestmark = pytest.mark.gpu

CHAIN, GRIDS = "lud:N=768", "hotspot:ROWS=6144,COLUMNS=6144"
WINDOW_S = 0.2


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


# --- Shares of the multiprocessors on a GPU: launches stay on theirs, in a graph too; answers and contexts.


WHERE = """
extern "C" __global__ void where(unsigned* blocks_of) { // long enough that blocks spread over all they may
    unsigned sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    long long begin = clock64();
    while (clock64() - begin < 200000) {}
    if (threadIdx.x == 0) atomicAdd(blocks_of + sm, 1);
}
"""
HOTSPOT, SCAN = "hotspot:ROWS=6144,COLUMNS=6144", "scan-lf:N=1024"


def _plan_of_two(spec: str, share: int, priority: int = 0) -> Plan:
    catalog = Catalog.load(())
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    plan = kernel.plan(workload, kernel.default(workload))
    return replace(plan, sm_share=share, stream_priority=priority)


@pytest.mark.parametrize("captured", [False, True], ids=["streams", "graph"])
@pytest.mark.parametrize("priority", [0, 1])
def test_launches_stay_on_their_multiprocessors(device: CudaDevice, captured: bool, priority: int) -> None:
    """Blocks of each workload are seen on as many multiprocessors as it has, and on no other's."""
    import cupy as cp  # noqa: PLC0415 - only where there is a GPU

    unit, total = sm_unit(device.limits), device.limits.multiprocessors
    driver = DriverCalls()
    shares = SmShares(cp, driver, unit)
    wanted = [unit, 2 * unit, 0]
    laid = shares.shared_out(wanted)
    places = [StreamPlace(priority * lane, units) for lane, (units, _) in enumerate(laid)]
    lanes = Lanes(cp, driver, shares)
    lanes.open(len(wanted))
    lanes.arrange(places)
    function = cp.RawModule(code=WHERE).get_function("where").kernel
    seen = cp.zeros((len(wanted), 1024), cp.uint32)
    parts = [[Launch(function, (total * 16, 1, 1), (128, 1, 1), 0, (seen[lane].data,))] for lane in range(3)]
    play = partial(lanes.round, parts)
    graph = lanes.capture(play) if captured else None
    if graph is None:
        play()
    else:
        graph.launch(lanes.main)
    lanes.main.synchronize()
    used = seen.get() > 0
    sizes = [size for _, size in laid]
    assert used.sum(axis=1).tolist() == sizes
    assert sizes[:2] == wanted[:2]
    assert (used.sum(axis=0) <= 1).all()
    assert seen.get().sum(axis=1).tolist() == [total * 16] * 3
    del lanes, graph
    shares.close()
    assert shares.made == 0


def test_rounds_with_shares(device: CudaDevice) -> None:
    """They are replayed from graphs; a workload on few multiprocessors takes longer than on most."""
    unit, total = sm_unit(device.limits), device.limits.multiprocessors
    few, most = 2 * unit, (total // unit - 2) * unit
    times_s = []
    for share in (few, most):
        record = device.run([_plan_of_two(HOTSPOT, share), _plan_of_two(SCAN, 0)], 0.2)
        assert [one.status for one in record.results] == [Status.OK, Status.OK], record.results
        assert FlagKind.NO_GRAPH not in {flag.kind for flag in record.flags}, record.flags
        times_s.append(record.results[0].time_s or 0.0)
    assert times_s[0] > 2 * times_s[1]


def test_shares_that_overlap(device: CudaDevice) -> None:
    """More than there are: they are laid round again, and both workloads run."""
    unit, total = sm_unit(device.limits), device.limits.multiprocessors
    three_quarters = 3 * total // 4 // unit * unit
    record = device.run([_plan_of_two(HOTSPOT, three_quarters), _plan_of_two(SCAN, three_quarters)], 0.1)
    assert [one.status for one in record.results] == [Status.OK, Status.OK], record.results


def test_many_splits_cost_no_memory_for_good(device: CudaDevice) -> None:
    """Contexts of shares that were tried are freed when there are many."""
    unit, total = sm_unit(device.limits), device.limits.multiprocessors
    units = total // unit
    device.run([_plan_of_two(SCAN, unit), _plan_of_two(HOTSPOT, 0)], 0.0)
    first = device.free_memory_bytes()
    for turn in range(2):
        for count in range(1, units):
            record = device.run(
                [_plan_of_two(SCAN, unit * count), _plan_of_two(HOTSPOT, unit * (units - count) // 2)], 0.0
            )
            assert [one.status for one in record.results] == [Status.OK, Status.OK], (turn, record.results)
    assert len(shared_out([unit, 0], unit, units)[1]) == units
    assert first - device.free_memory_bytes() < 2**31


def test_a_killed_worker_leaves_nothing() -> None:
    """A worker that is killed in a round with shares is replaced, and the next one splits as before."""
    worker = WorkerDevice("cuda:0", run_timeout_s=60.0)
    try:
        unit = sm_unit(worker.limits)
        plans = [_plan_of_two(HOTSPOT, 4 * unit), _plan_of_two(SCAN, 0)]
        assert worker.run(plans, 0.1).results[0].status is Status.OK
        pid: Any = worker.pid
        os.kill(pid, signal.SIGKILL)
        records = [worker.run(plans, 0.1) for _ in range(2)]
        assert records[-1].results[0].status is Status.OK
        assert worker.pid != pid
    finally:
        worker.close()


def test_answers_are_right_with_shares(device: CudaDevice) -> None:
    """What is computed on a share is what is computed on all of it."""
    plan = _plan_of_two(SCAN, 0)
    assert device.check(plan, 1).status is Status.OK
    device.run([replace(plan, sm_share=sm_unit(device.limits)), _plan_of_two(HOTSPOT, 0)], 0.0)
    assert device.check(plan, 1).status is Status.OK
    assert np.isfinite(device.run([plan], 0.0).makespan_s or np.nan)
