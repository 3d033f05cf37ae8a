"""Kernels to apply to arrays of a fake CuPy, on two fake GPUs, with an empty database."""

import ctypes
import inspect
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import LIMITS
from fake_cupy import (
    CUDADriverError,
    CUDARuntimeError,
    DeviceArray,
    Event,
    FakeCupy,
    Function,
    Kernel,
    Pointer,
    Stream,
)
from fake_driver import BY_NODE_PRIORITY

from tuner.application.bound_kernels import KernelPlan
from tuner.application.calls import Application
from tuner.application.choice import Chosen
from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda import code, direct, probe
from tuner.devices.cuda.driver import DriverCalls
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Resources, Stage

GPU = DeviceIdentity("cuda:0", "Fake GPU", "GPU-0", "580.1", "12.9", modelled=False)

SUMS = """
[kernel]
name = "sums"
source = "k.cu"
entry = "sums<{form}>"
[problem]
name = "scan"
batch = "2**20 // N"
optional = ["form", "dtype"]
[problem.sizes]
N = { from = 2, to = 4096 }
form = ["inclusive", "exclusive"]
dtype = ["float32", "float64", "int32"]
[[argument]]
buffer = "x"
dtype = "{dtype}"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"
dtype = "{dtype}"
shape = ["batch", "N"]
role = "out"
[[argument]]
buffer = "counters"
dtype = "int32"
shape = ["batch", 2]
role = "zeroed"
[[argument]]
scalar = "exclusive"
dtype = "int32"
value = "select(form == 'exclusive', 1, 0)"
[tunables]
P = [1, 2, 4, 8]
L = [32, 64]
[constraints]
rules = ["P <= N"]
[default]
P = 2
L = 64
[launch]
grid = "ceil_div(batch * N, P * L)"
block = "L"
[occupancy]
min = 0.8
[work]
bytes = "8 * N * batch"
operations = "N * batch"
"""

BLEND = """
[kernel]
name = "blend"
source = "k.cu"
entry = "blend"
[problem]
name = "consistent"
batch = "16"
[problem.sizes]
N = [4, 8]
[[argument]]
buffer = "a"
dtype = "float32"
shape = ["batch", "2 * N"]
role = "in"
[[argument]]
buffer = "weights"
dtype = "float32"
shape = ["N"]
role = "in"
[[argument]]
buffer = "total"
dtype = "float32"
shape = ["batch", "N"]
role = "inout"
[[argument]]
buffer = "left"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[[argument]]
buffer = "right"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[tunables]
P = [1, 2]
[launch]
grid = "batch"
block = "N"
[work]
bytes = "N"
operations = "N"
"""

PAIR = (
    SUMS.replace('"sums"', '"pair"')
    .replace('"scan"', '"consistent"')
    .replace('buffer = "x"', 'buffer = "a"')
    .replace(
        '[[argument]]\nbuffer = "y"',
        '''[[argument]]
buffer = "b"
dtype = "{dtype}"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"''',
    )
)


def sums(x: DeviceArray, y: DeviceArray, counters: DeviceArray, exclusive: int) -> None:
    assert counters.sum() == 0
    counters += 1
    y[...] = np.cumsum(x, axis=-1) - (x if exclusive else 0)


def blend(
    a: DeviceArray, weights: DeviceArray, total: DeviceArray, left: DeviceArray, right: DeviceArray
) -> None:
    left[...], right[...] = np.split(a, 2, axis=-1)
    total += weights * (left + right)


class DriverCupy(FakeCupy):
    """A fake CuPy whose driver takes launches with packed arguments, and knows the current context.

    A kernel is handed the array whose address was last asked for, as long as somebody holds it. A thread has
    no context before it sets its GPU, except for the one that made this.
    """

    def __init__(self, kernels: dict[str, Kernel]) -> None:
        super().__init__(kernels)
        self.allocations = 0
        self.adopted: Any = None  # memory that PyTorch takes for its own
        self.contexts = threading.local()
        self.contexts.any = True
        self.legacy = CapturingStream(self, non_blocking=True)
        self.legacy.ptr, self.legacy.device_id = 0, -1
        self.by_handle = weakref.WeakValueDictionary({0: self.legacy})
        self.executables: weakref.WeakValueDictionary[int, CapturedGraph] = weakref.WeakValueDictionary()
        self.replays = 0
        self.by_address: dict[int, weakref.ref[DeviceArray]] = {}
        self.cuda.Stream = Streams(self._stream, self.by_handle)
        self.cuda.UnownedMemory = lambda address, *_: address
        self.cuda.MemoryPointer = lambda address, _: self._array(address).data
        self.cuda.get_current_stream = self._current_stream
        self.cuda.driver.launchKernel = self._launch
        self.cuda.driver.ctxGetCurrent = self._context
        self.cuda.runtime.setDevice = self._set_device
        self.cuda.runtime.memsetAsync = self._memset
        self.cuda.runtime.graphLaunch = self._launch_graph
        self.cuda.runtime.streamIsCapturing = lambda stream: self.by_handle[stream].works is not None
        self.cuda.runtime.pointerGetAttributes = lambda address: SimpleNamespace(
            device=self._array(address).gpu
        )

    def empty(self, shape: Any, dtype: Any = np.float64) -> DeviceArray:
        self.allocations += 1
        behind: Any = self.current[-1] if self.current else self.legacy
        behind.settle()
        return super().empty(shape, dtype)

    def ascontiguousarray(self, array: DeviceArray) -> DeviceArray:
        return array if array.flags.c_contiguous else array.copy()

    def ndarray_at(
        self, _: object, shape: Any, dtype: Any, memptr: Pointer | None = None, strides: Any = None
    ) -> DeviceArray:
        """What ``cupy.ndarray`` makes: new memory, or the array whose memory is pointed to."""
        if memptr is None:
            return self.empty(shape, dtype)
        held = memptr.array
        assert (held.shape, held.dtype) == (tuple(shape), np.dtype(dtype))  # offsets are counted in elements
        assert strides is None or strides == held.strides
        return held

    def seen(self, array: DeviceArray, address: int) -> None:
        self.by_address[address] = weakref.ref(array)

    def _stream(self, non_blocking: bool, priority: int = 0) -> "CapturingStream":
        assert priority in (0, -1)  # -1: the main one of a graph with others beside it
        made = CapturingStream(self, non_blocking)
        self.by_handle[made.ptr] = made
        return made

    def _current_stream(self, device: int) -> Any:
        assert device == self.gpu
        return self.current[-1] if self.current else self.legacy

    def _context(self) -> int:
        return 1000 + self.gpu if hasattr(self.contexts, "any") else 0

    def _set_device(self, device: int) -> None:
        self.contexts.any = True
        self.gpu = device

    def _array(self, address: int) -> DeviceArray:
        if not address:  # of a table without elements
            return super().empty((0,), np.uint8)
        held = self.by_address[address]() if address in self.by_address else self._within(address)
        if held is None:
            raise CUDADriverError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
        return held

    def _within(self, address: int) -> Any:
        """An array from one of its elements on."""
        for begin, reference in self.by_address.items():
            array = reference()
            if array is not None and begin < address < begin + array.nbytes and array.flags.c_contiguous:
                rest: Any = array.reshape(-1)[(address - begin) // array.itemsize :]
                return rest
        return None

    def _memset(self, address: int, value: int, size: int, stream: int) -> None:
        def fill(_: Stream) -> None:
            array = self._array(address)
            assert size == array.nbytes
            array.view(np.uint8).reshape(-1).fill(value)

        self._put(stream, fill)

    def _launch(self, function: int, *numbers: int) -> None:
        if not self._context():
            raise CUDADriverError("CUDA_ERROR_INVALID_CONTEXT: invalid device context")
        *shape, shared, stream, parameters, extra = numbers
        assert extra == 0
        kinds = [
            one.annotation for one in inspect.signature(self.kernel_at(function).action).parameters.values()
        ]
        pointers = (ctypes.c_void_p * len(kinds)).from_address(parameters)
        values = [
            where if isinstance(kind, np.dtype) else held.from_address(where).value
            for kind, where in zip(kinds, pointers, strict=True)
            for held in (ctypes.c_int32 if kind is int else ctypes.c_uint64,)
        ]
        values = [
            np.frombuffer(ctypes.string_at(value, kind.itemsize), kind)[0]
            if isinstance(kind, np.dtype)
            else value
            for kind, value in zip(kinds, values, strict=True)
        ]
        loaded = Function(self, list(self.kernels)[function - 1])

        def run(lane: Stream) -> None:
            arguments = [
                value
                if isinstance(kind, np.dtype)
                else np.int32(value)
                if kind is int
                else self._array(value)
                for kind, value in zip(kinds, values, strict=True)
            ]
            loaded(shape[:3], shape[3:], arguments, shared_mem=shared, stream=lane)

        self._put(stream, run)

    def _put(self, stream: int, work: Callable[[Stream], None]) -> None:
        lane = self.by_handle[stream]
        if lane.works is not None:
            lane.works.append(work)
        else:
            work(lane)

    def _launch_graph(self, graph: int, stream: int) -> None:
        if not self._context():
            raise CUDARuntimeError("cudaErrorDeviceUninitialized: invalid device context")
        if self.by_handle[stream].works is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted")
        self.replays += 1
        for work in self.executables[graph].works:
            self._put(stream, work)


class Streams:
    """What ``cupy.cuda.Stream`` is: it makes streams, and takes those of others by CUDA's stream protocol."""

    def __init__(self, make: Callable[..., "CapturingStream"], by_handle: Any) -> None:
        self._make = make
        self._by_handle = by_handle

    def __call__(self, **options: Any) -> "CapturingStream":
        return self._make(**options)

    def from_external(self, foreign: Any) -> "CapturingStream":
        version, handle = foreign.__cuda_stream__()
        assert version == 0
        found: CapturingStream = self._by_handle[handle]
        return found


class CapturingStream(Stream):
    """A stream whose work can be captured while others run theirs.

    What is ``late`` is done when something comes behind it: an array is made in this stream, or another
    stream waits.
    """

    def __init__(self, cp: DriverCupy, non_blocking: bool) -> None:
        super().__init__(cp, non_blocking)
        self._driver_cupy = cp
        self.works: list[Callable[[Stream], None]] | None = None
        self.late: list[Callable[[], None]] = []

    def settle(self) -> None:
        while self.late:
            self.late.pop(0)()

    def do(self, action: Callable[[], None]) -> None:
        if self.works is None:
            action()
        else:
            self.works.append(lambda _: action())

    def wait_event(self, event: Event) -> None:
        """Behind an event that is captured, this stream is captured, too."""
        recorded: Any = self._driver_cupy.by_handle.get(event.lane)
        if recorded is not None and recorded.works is not None:
            self.works = recorded.works
        if recorded is not None:
            recorded.settle()
        super().wait_event(event)

    def begin_capture(self) -> None:
        if not self._driver_cupy.capture_works:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted")
        self.works = []

    def end_capture(self) -> Any:
        works, self.works = self.works, None
        assert works is not None
        graph = CapturedGraph(works)
        self._driver_cupy.executables[graph.graphExec] = graph
        return graph


class CapturedGraph:
    def __init__(self, works: list[Callable[[Stream], None]]) -> None:
        self.works = works
        self.graph = self.graphExec = id(self)


class GraphLibrary:
    """As much of libcuda as makes captured graphs ready with the priorities of their kernels."""

    def cuGraphInstantiateWithFlags(self, ready: Any, graph: Any, flags: Any) -> int:  # noqa: N802 - the driver's name
        assert flags.value == BY_NODE_PRIORITY
        ready._obj.value = graph.value
        return 0

    def cuGraphExecDestroy(self, ready: Any) -> int:  # noqa: N802 - the driver's name
        assert ready.value
        return 0


class FakeCompiler:
    """Compiles an entry to a kernel of its name, whatever its template arguments; keeps what it compiled."""

    nvrtc_version = GPU.runtime
    compiled: list[str]
    interrupted: bool  # in the next compilation, which closes the compiler
    last: "FakeCompiler"

    def __init__(self, architecture: str) -> None:
        assert architecture == LIMITS.architecture
        self.closed = False
        FakeCompiler.last = self

    def close(self) -> None:
        self.closed = True

    def compile(self, stages: Sequence[Stage], _: object = None) -> list[CompiledStage | CompileError]:
        assert not self.closed
        self.closed, FakeCompiler.interrupted = FakeCompiler.interrupted, False
        if self.closed:
            raise KeyboardInterrupt
        FakeCompiler.compiled += [stage.entry for stage in stages]
        return [
            CompiledStage(b"cubin", stage.entry.split("<")[0], Resources(32, architecture="sm_90"), "")
            for stage in stages
        ]


class Bench:
    """An application over a fake CuPy, called as ``tuner.apply``, ``tuner.plan`` and ``tuner.chosen`` are."""

    def __init__(self, cp: DriverCupy, folder: Path) -> None:
        self.cp = cp
        self.database = folder / "tuner.db"
        self.catalog = Catalog.load(search_path=[folder])
        self.application = Application(self.catalog, self.database)

    def apply(
        self,
        kernel: str,
        *arrays: Any,
        out: Any = None,
        stream: Any = None,
        configuration: Any = None,
        **sizes: Any,
    ) -> Any:
        return self.application.apply(
            kernel, arrays, sizes, out=out, stream=stream, configuration=configuration
        )

    def plan(
        self, kernel: str, *arrays: Any, out: Any = None, configuration: Any = None, **sizes: Any
    ) -> KernelPlan:
        return self.application.plan(kernel, arrays, sizes, out=out, configuration=configuration)

    def chosen(self, kernel: str, *arrays: Any, configuration: Any = None, **sizes: Any) -> Chosen:
        return self.application.chosen(kernel, arrays, sizes, configuration=configuration)

    def array(self, *shape: int, dtype: str = "float32") -> DeviceArray:
        made = self.cp.empty(shape, dtype)
        made[...] = np.arange(made.size).reshape(shape) % 7
        return made


def fake_bench(patch: pytest.MonkeyPatch, folder: Path) -> Bench:
    cp = DriverCupy({"sums": Kernel(sums, 1e-3), "blend": Kernel(blend, 1e-3)})
    pointed = vars(Pointer)["ptr"].__get__

    def ptr(pointer: Pointer) -> int:
        address: int = pointed(pointer)
        cp.seen(pointer.array, address)
        return address

    FakeCompiler.compiled, FakeCompiler.interrupted = [], False
    patch.setattr(Pointer, "ptr", property(ptr))
    # cupy.ndarray allocates; views do not come this way
    patch.setattr(DeviceArray, "__new__", cp.ndarray_at, raising=False)
    patch.setattr(direct, "Compiler", FakeCompiler)
    patch.setattr(code, "DriverCalls", partial(DriverCalls, GraphLibrary))
    patch.setattr(probe, "import_cupy", lambda _: cp)
    patch.setattr(probe, "gpu_limits", lambda *_: LIMITS)
    patch.setattr(probe, "gpu_name", lambda *_: GPU.name)
    patch.setattr(probe, "gpu_uuid", lambda index: replace(GPU, uuid=f"GPU-{index}").uuid)
    patch.setattr(probe, "driver_version", lambda _: GPU.driver)
    (folder / "k.cu").write_text("")
    (folder / "sums.toml").write_text(SUMS)
    (folder / "blend.toml").write_text(BLEND)
    (folder / "pair.toml").write_text(PAIR)
    return Bench(cp, folder)
