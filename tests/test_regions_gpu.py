"""``tuner.energy`` on a GPU: asynchronous work is waited for, and its joules are those of the counter."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
import pytest

import tuner
from tuner.devices.choice import identify

pytestmark = pytest.mark.gpu
GPU = "cuda:0"
LOAD_S = 1.0
CALM_S = 0.4  # some ticks of the counter
SENSOR_OFF = 0.02  # of joules: what idle power before and after the load is not known to


@pytest.fixture
def load(cp: Any) -> Any:
    """Enqueues about a second of matrix products, and returns at once."""
    x = cp.ones((4096, 4096), dtype=cp.float32)
    y = x @ x
    cp.cuda.Device().synchronize()
    begun = time.perf_counter()
    for _ in range(20):
        cp.matmul(x, x, out=y)
    cp.cuda.Device().synchronize()
    count = int(20 * LOAD_S / (time.perf_counter() - begun))

    def enqueue(stream: Any) -> None:
        with stream:
            for _ in range(count):
                cp.matmul(x, x, out=y)

    return enqueue


class CounterLog:
    """Ticks of NVML's energy counter: seconds and joules, each when its value was new."""

    def __init__(self) -> None:
        self.ticks: list[tuple[float, float]] = []

    def joules(self, start_s: float, end_s: float) -> float:
        """Between two times at which the GPU idles, and whole ticks around them, less their idle energy."""
        before = [tick for tick in self.ticks if tick[0] < start_s]
        after = [tick for tick in self.ticks if tick[0] > end_s + 0.15]  # the counter is late by a tick
        (first_s, first_j), (begin_s, begin_j), (last_s, last_j) = before[0], before[-1], after[0]
        idle_w = (begin_j - first_j) / (begin_s - first_s)
        return last_j - begin_j - idle_w * ((start_s - begin_s) + (last_s - end_s))


@contextmanager
def counting() -> Iterator[CounterLog]:
    """Logs the counter of the GPU that CUDA calls 0, a while before and after the block."""
    log, ended = CounterLog(), threading.Event()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(identify(GPU).uuid)

    def poll() -> None:
        last = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        while not ended.wait(0.002):
            value = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            if value != last:
                log.ticks.append((time.perf_counter(), value / 1e3))
            last = value

    thread = threading.Thread(target=poll)
    thread.start()
    ended.wait(CALM_S)
    try:
        yield log
        ended.wait(2 * CALM_S)
    finally:
        ended.set()
        thread.join()
        pynvml.nvmlShutdown()


def test_a_region_waits_for_what_it_enqueued(cp: Any, load: Any) -> None:
    """Launching takes milliseconds; the region is as long as the work."""
    with tuner.energy(device=GPU) as region:
        begun = time.perf_counter()
        load(cp.cuda.Stream(non_blocking=True))
        launched_s = time.perf_counter() - begun

    result = region.result()
    assert launched_s < 0.5 * LOAD_S < result.seconds
    assert result.synchronized
    assert not [note for note in result.notes if note.startswith("not-synchronized")]
    assert 0 < result.uncertainty_j < 0.1 * result.joules


def test_its_joules_are_those_of_the_counter(cp: Any, load: Any) -> None:
    """A log of the counter that shares nothing with the region agrees within both uncertainties."""
    with tuner.energy(device=GPU):  # warm
        load(cp.cuda.Stream())
    with counting() as log:
        begun = time.perf_counter()
        with tuner.energy(device=GPU) as region:
            load(cp.cuda.Stream(non_blocking=True))
        ended = time.perf_counter()
    told_j = log.joules(begun, ended)

    assert abs(region.joules - told_j) < 3.0 * region.uncertainty_j + SENSOR_OFF * told_j


def test_without_waiting_it_says_so(cp: Any, load: Any) -> None:
    """What was enqueued runs on after the region."""
    with tuner.energy(device=GPU, synchronize=False) as region:
        load(cp.cuda.Stream(non_blocking=True))
    cp.cuda.Device().synchronize()

    result = region.result()
    assert result.seconds < 0.5 * LOAD_S
    assert not result.synchronized
    assert any(note.startswith("not-synchronized") for note in result.notes)


def test_one_stream_is_waited_for(cp: Any, load: Any) -> None:
    """The region ends with it, whatever other streams do."""
    mine, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with tuner.energy(device=GPU, synchronize=mine) as region:
        load(mine)
    assert mine.done
    with tuner.energy(device=GPU, synchronize=mine) as short:
        load(other)
    cp.cuda.Device().synchronize()

    assert region.result().seconds > 0.5 * LOAD_S
    assert short.result().seconds < 0.5 * LOAD_S
