"""Runs with packed arguments: what is handed to the driver, and which runs become CUDA graphs."""

import ctypes
import logging
from typing import Any

import numpy as np
import pytest
from fake_apply import Bench, DriverCupy
from fake_cuda import scan
from fake_cupy import CUDARuntimeError, Kernel
from fake_driver import FakeLibrary

from tuner.devices.cuda import launches as packed
from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.launches import (
    HomeContext,
    LaunchRefusedError,
    LoadedStage,
    PackedRun,
    Program,
    RunGraphs,
)
from tuner.model.plan import TensorMap


class Sums:
    """The runs of a plan of sums, by array."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.plan("sums", (3, 64))
        (runner,) = bench.application._calls.values()
        self.loaded = runner.loaded
        self.graphs = self.loaded.graphs(bench.cp)
        self.scratch = bench.array(3, 2, dtype="int32")
        self.outs = [bench.array(3, 64) for _ in range(40)]
        self.x = bench.array(3, 64)

    def run(self, number: int, stream: int = 0) -> int:
        """Run into one of the outputs; returns how many graphs were launched for it."""
        before, y = self.bench.cp.replays, self.outs[number]
        y[...] = -1
        self.graphs.run((self.x.data.ptr, y.data.ptr, self.scratch.data.ptr), stream)
        assert np.array_equal(y, np.cumsum(self.x, axis=1)) or self.bench.cp.by_handle[stream].works
        return self.bench.cp.replays - before


@pytest.fixture
def sums(bench: Bench) -> Sums:
    return Sums(bench)


def test_buffers_that_come_again(sums: Sums) -> None:
    """From the third run on the same buffers a graph is launched, also with others between."""
    assert [sums.run(0) for _ in range(4)] == [0, 0, 1, 1]
    assert [sums.run(number) for number in (1, 2, 1, 2, 1, 2, 0)] == [0, 0, 0, 0, 1, 1, 1]


def test_graphs_are_few(sums: Sums) -> None:
    """Only so many buffers have graphs; those that come once cost nothing."""
    for _ in range(3):
        for number in range(10):
            sums.run(number)
    assert len(sums.bench.cp.executables) == packed._MOST_GRAPHS
    for number in range(40):
        sums.run(number)
    assert len(sums.graphs._once) <= packed._MOST_ONCE


def test_unused_graphs_go(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of arrays that are gone make room for others."""
    monkeypatch.setattr(packed, "_UNUSED", 30)
    for number in (0, 1, 2, 3) * 2:
        sums.run(number)
    held = list(sums.graphs._graphs.values())
    assert len(held) == 4
    for _ in range(15):
        sums.run(10)
        sums.run(11)
    assert not [graph for graph in sums.graphs._graphs.values() if graph in held]
    assert [sums.run(10), sums.run(11)] == [1, 1]


def test_no_graph_while_the_caller_captures(sums: Sums) -> None:
    """In a stream that is being captured runs are recorded, and no graph is made."""
    stream = sums.bench.cp.cuda.Stream(non_blocking=True)
    for _ in range(3):
        sums.run(1)
    stream.begin_capture()
    for _ in range(4):
        assert sums.run(0, stream.ptr) == sums.run(1, stream.ptr) == 0
    graph = stream.end_capture()
    assert len(graph.works) == 16  # a clearing and a launch each
    assert len(sums.bench.cp.executables) == 2
    sums.outs[0][...] = 0
    sums.bench.cp.cuda.runtime.graphLaunch(graph.graphExec, stream.ptr)
    assert np.array_equal(sums.outs[0], np.cumsum(sums.x, axis=1))


def test_without_graphs(sums: Sums, caplog: pytest.LogCaptureFixture) -> None:
    """Where none can be made, runs are launched singly; that is said once."""
    sums.bench.cp.capture_works = False
    with caplog.at_level(logging.INFO, logger="tuner"):
        assert [sums.run(number) for number in (0, 0, 0, 1, 1, 1)] == [0] * 6
    (message,) = caplog.messages
    assert message.startswith("kernels are launched without CUDA graphs: cudaErrorStreamCaptureUnsupported")


def test_failed_launch_leaves_no_capture(sums: Sums) -> None:
    """A launch that is refused while it is captured ends the capture, and later runs work."""
    kernel = sums.bench.cp.kernels["sums"]
    sums.run(0)

    def refused(*_: object) -> None:
        raise CUDARuntimeError("refused")

    packed: Any = sums.graphs._run
    launches = packed._launches
    packed._launches = tuple((refused, shape, parameters) for _, shape, parameters in launches)
    sums.graphs.keep((sums.x.data.ptr, sums.outs[0].data.ptr, sums.scratch.data.ptr))
    packed._launches = launches
    assert [sums.run(0) for _ in range(3)] == [0, 0, 0]
    assert kernel.runs == 4


def test_plans_make_their_graph_at_once(bench: Bench) -> None:
    """Every run of a plan on its own arrays is a graph."""
    plan = bench.plan("sums", bench.array(3, 64))
    plan()
    plan()
    assert bench.cp.replays == 2


def test_tensor_maps() -> None:
    """A tensor map is encoded for its buffer, aligned to 64 bytes, and again when the buffer changes."""
    cp = DriverCupy({"scan": Kernel(scan, 1e-3)})
    library = FakeLibrary(cp)
    wanted = TensorMap("x", "float32", (128, 64), (64, 8), 128)
    launched = []
    cp.cuda.driver.launchKernel = lambda *numbers: launched.append(numbers)
    module = cp.cuda.function.Module()
    stage = LoadedStage(
        "scan", module.get_function("scan"), (1, 1, 1), (32, 1, 1), 0, (wanted, "y", np.int32(7))
    )
    program = Program((stage,), (), DriverCalls(lambda: library))
    run = PackedRun(cp, program, {"x": 4 * 128 * 64, "y": 4})
    for address in (4096, 4096, 8192):
        run.point([address, 77])
        run.enqueue(0)
        pointers = (ctypes.c_size_t * 3).from_address(launched[-1][-2])
        assert pointers[0] % 64 == 0
        assert ctypes.c_uint64.from_address(pointers[0]).value == address
        assert ctypes.c_uint64.from_address(pointers[1]).value == 77
        assert ctypes.c_int32.from_address(pointers[2]).value == 7
    assert len(library.maps) == 2
    with pytest.raises(LaunchRefusedError, match="stage scan: no tensor map of buffer 'x'"):
        RunGraphs(cp, run).run((4097, 77), 0)


def test_home_context() -> None:
    """The context is that of the GPU; a thread without one gets it, and others have theirs back."""
    cp = DriverCupy({})
    with cp.cuda.Device(1):
        home = HomeContext(cp, 1)
    assert home.current() != home.handle
    with home.entered():
        assert home.current() == home.handle
    assert cp.gpu == 0
    del cp.contexts.any
    assert home.current() == 0
    with home.entered():
        assert home.current() == home.handle
    assert HomeContext(cp, 0).handle == home.current() != 0
