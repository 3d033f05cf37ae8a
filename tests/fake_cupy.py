"""A CuPy of NumPy arrays and virtual time, for what the CUDA device does apart from arithmetic.

Kernels are Python functions with a duration. Streams advance in virtual time, events carry it, captured work
is replayed, launches may be refused, faults kill the context, memory runs out.
"""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


@dataclass(frozen=True)
class Address:
    """A pointer that keeps nothing alive."""

    ptr: int


class Pointer:
    """What ``array.data`` is: a kernel argument that can be filled, at once or in a stream's turn."""

    def __init__(self, array: "DeviceArray") -> None:
        self.array = array
        _ARRAYS[self.ptr] = array

    @property
    def device_id(self) -> int:
        return self.array.gpu

    @property
    def ptr(self) -> int:
        return int(self.array.__array_interface__["data"][0])

    def __add__(self, offset_bytes: int) -> "Pointer":
        flat: Any = self.array.reshape(-1)[offset_bytes // self.array.itemsize :]
        _VIEWS.setdefault(id(self.array), []).append(flat)  # a graph holds its address
        return Pointer(flat)

    def copy_from_device_async(self, source: "Pointer", size: int, stream: "Stream") -> None:
        assert size == self.array.nbytes == source.array.nbytes

        def copy() -> None:
            np.copyto(self.array, source.array)
            stream.ready_s = max(stream.ready_s, stream.cp.now_s) + stream.cp.copy_s

        stream.do(copy)

    def memset_async(self, value: int, size: int, stream: "Stream | None" = None) -> None:
        assert 0 < size == self.array.nbytes

        def fill() -> None:
            self.array.view(np.uint8).reshape(-1)[...] = value
            if stream is not None:
                stream.cp.filled_bytes.append(size)
                stream.ready_s = max(stream.ready_s, stream.cp.now_s) + stream.cp.fill_s

        if stream is None:
            fill()
        else:
            stream.do(fill)


_VIEWS: dict[int, list[Any]] = {}
_ARRAYS: "weakref.WeakValueDictionary[int, DeviceArray]" = weakref.WeakValueDictionary()


class DeviceArray(np.ndarray[Any, Any]):
    gpu = 0

    def __array_finalize__(self, other: Any) -> None:
        self.gpu = getattr(other, "gpu", 0)

    @property
    def data(self) -> Pointer:  # type: ignore[override]  # CuPy's is a pointer too
        return Pointer(self)

    def get(self) -> Any:
        return np.array(self)


class Kernel:
    """A ``__global__`` function: what it does, how long it takes, how often it ran, and on which grids.

    ``blocks_per_sm`` fit on a multiprocessor; the source declares a ``cluster``, 0 for none, and ``clusters``
    fit on the device.
    """

    def __init__(self, action: Callable[..., None], seconds: float) -> None:
        self.action = action
        self.seconds = seconds
        self.blocks_per_sm = 8
        self.cluster = 0
        self.clusters = 0
        self.runs = 0
        self.cooperative = False
        self.grids: set[tuple[int, ...]] = set()
        self.streams: set[Stream] = set()
        self.attributes: dict[object, int] = {}

    def launch(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        """Do what it does; a Python function does all of it, whatever the geometry."""
        del grid, block
        self.action(*args)


class FakeCupy(ModuleType):
    """Stands for the module ``cupy`` and for the GPU behind it."""

    def __init__(self, kernels: dict[str, Kernel], memory_bytes: int = 2**30) -> None:
        super().__init__("cupy")
        self.kernels = kernels
        self.library: Any = None  # the driver's, where a test reaches for it
        self.ndarray = DeviceArray
        self.gpu = 0
        self.current: list[Stream] = []
        self.now_s = 100.0
        self.dead = ""
        self.memory_bytes = memory_bytes
        self.allocated_bytes = 0
        self.capture_works = True
        self.captured: list[Callable[[], None]] | None = None
        self.launched: list[str] = []
        self.stamped = 0
        self.unjoined: set[int] = set()
        self.most_queued_s = 0.0
        self.host_call_s = 0.0
        self.copy_s = 0.0
        self.fill_s = 0.0
        self.filled_bytes: list[int] = []  # in streams, in their order
        self.graph_gap_s = 0.0
        self.first_launch_s = 0.0
        self.busy_until_s = 0.0
        self.events: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
        self.streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
        self.idle: list[tuple[float, float]] = []
        self.graphs: list[Graph] = []
        self.symbols: dict[tuple[int, str], np.ndarray[Any, Any]] = {}  # of modules, by their pointers
        self.declared: dict[str, tuple[str, int]] = {}  # kernel -> the variable of its source, and its bytes
        self.random = SimpleNamespace(Philox4x3210=np.random.Philox, Generator=np.random.Generator)
        self.cuda = SimpleNamespace(
            Stream=lambda non_blocking, priority=0: Stream(self, non_blocking, priority),
            ExternalStream=lambda pointer: self.streams[pointer],  # as CuPy before 14 has it
            Device=lambda index: Gpu(self, index),
            Event=lambda **options: Event(self, **options),
            get_elapsed_time=lambda begin, end: (end.at_s - begin.at_s) * 1e3,
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                deviceSynchronize=self.synchronize,
                getDevice=lambda: self.gpu,
                memGetInfo=lambda: (self.memory_bytes - self.allocated_bytes, self.memory_bytes),
                memcpyHostToDevice=1,
                memcpyDeviceToHost=2,
                memcpyAsync=lambda to, at, size, kind, stream: self._copy(
                    *(to, size, at, size, size, 1), kind, stream
                ),
                memcpy2DAsync=self._copy,
            ),
            driver=SimpleNamespace(
                CUDADriverError=CUDADriverError,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared",
                funcSetAttribute=self._set_attribute,
                funcGetAttribute=lambda number, pointer: {11: self.kernel_at(pointer).cluster}[number],
                occupancyMaxActiveBlocksPerMultiprocessor=self._blocks_per_sm,
            ),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            alloc_pinned_memory=bytearray,
            function=SimpleNamespace(Module=lambda: Module(self)),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any = np.float64) -> DeviceArray:
        memory = np.empty(shape, dtype)
        if self.allocated_bytes + memory.nbytes > self.memory_bytes:
            raise OutOfMemoryError(f"Out of memory allocating {memory.nbytes:,} bytes")
        self.allocated_bytes += memory.nbytes
        weakref.finalize(memory, self._free, memory.nbytes)
        array = memory.view(DeviceArray)
        array.gpu = self.gpu
        return array

    def _free(self, size: int) -> None:
        self.allocated_bytes -= size

    def asarray(self, values: Any) -> DeviceArray:
        return np.asarray(values).view(DeviceArray)

    def _copy(  # noqa: PLR0917 - in CUDA's order
        self, to: int, to_pitch: int, at: int, at_pitch: int, width: int, height: int, kind: int, stream: int
    ) -> None:
        """Rows of a matrix between host and device, in a stream's turn."""
        assert kind in (1, 2)
        assert min(to_pitch, at_pitch) >= width
        lane = self.streams[stream]

        def copy() -> None:
            for row in range(height):
                ctypes.memmove(to + row * to_pitch, at + row * at_pitch, width)
            lane.ready_s = max(lane.ready_s, self.now_s) + self.copy_s

        self.do(copy)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_all_blocks=lambda **_: None, free_bytes=lambda: 0)

    def synchronize(self) -> None:
        if self.captured is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
        if self.dead:
            raise CUDARuntimeError(self.dead)

    def do(self, action: Callable[[], None]) -> None:
        """Do now, or record into the graph that is being captured; the call takes the host some time."""
        self.now_s += self.host_call_s
        if self.captured is not None:
            self.captured.append(action)
        else:
            action()

    def current_stream(self) -> "Stream":
        if not self.current:
            self.current.append(Stream(self, non_blocking=True))
        return self.current[-1]

    def kernel_name(self, kernel: Kernel) -> str:
        return next(name for name, one in self.kernels.items() if one is kernel)

    def pointer(self, name: str) -> int:
        return 1 + list(self.kernels).index(name)

    def kernel_at(self, pointer: int) -> Kernel:
        return list(self.kernels.values())[pointer - 1]

    def _set_attribute(self, pointer: int, attribute: object, value: int) -> None:
        self.kernel_at(pointer).attributes[attribute] = value

    def _blocks_per_sm(self, pointer: int, threads: int, shared_bytes: int) -> int:
        assert threads >= 1
        kernel = self.kernel_at(pointer)
        if shared_bytes > 48 * 1024:
            assert kernel.attributes["shared"] == shared_bytes  # asked for before
        return kernel.blocks_per_sm


class Module:
    def __init__(self, cp: FakeCupy) -> None:
        self._cp = cp
        self.ptr = id(self)

    def load(self, cubin: bytes) -> None:
        if not cubin:
            raise CUDADriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")

    def get_function(self, name: str) -> "Function":
        if name in self._cp.declared:
            symbol, size = self._cp.declared[name]
            self._cp.symbols[self.ptr, symbol] = np.zeros(size, np.uint8)
        return Function(self._cp, name)


class Function:
    def __init__(self, cp: FakeCupy, name: str) -> None:
        self._cp = cp
        self.ptr = cp.pointer(name)

    def __call__(  # noqa: PLR0917 - CuPy's
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_mem: int,
        stream: "Stream | None",
        enable_cooperative_groups: bool = False,
    ) -> None:
        assert len(grid) == len(block) == 3
        lane = stream or self._cp.current_stream()
        cp, kernel = self._cp, self._cp.kernel_at(self.ptr)
        if kernel.seconds < 0:
            raise CUDADriverError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested")
        if shared_mem > 48 * 1024 and kernel.attributes.get("shared") != shared_mem:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        kernel.cooperative = enable_cooperative_groups
        arrays: list[Any] = [getattr(item, "array", item) for item in args]
        if cp.captured is not None:  # a graph holds addresses: the memory may be gone when it is replayed
            arrays = [item.data if isinstance(item, DeviceArray) else item for item in arrays]
            arrays = [Address(item.ptr) if isinstance(item, Pointer) else item for item in arrays]

        def run() -> None:
            held = [_ARRAYS[item.ptr] if isinstance(item, Address) else item for item in arrays]
            kernel.runs += 1
            kernel.grids.add(tuple(grid))
            kernel.streams.add(lane)
            kernel.launch(grid, block, held)
            begin_s = max(lane.ready_s, cp.now_s)
            if begin_s > cp.busy_until_s + 1e-9:
                cp.idle.append((cp.busy_until_s, begin_s))
            lane.ready_s = begin_s + kernel.seconds
            cp.busy_until_s = max(cp.busy_until_s, lane.ready_s)
            cp.most_queued_s = max(cp.most_queued_s, lane.ready_s - cp.now_s)

        cp.launched.append(cp.kernel_name(kernel))
        lane.do(run)


class Event:
    def __init__(self, cp: FakeCupy, *, block: bool = False, disable_timing: bool = False) -> None:
        assert block != disable_timing  # waited for, or only waited on by streams
        self._cp = cp
        self.at_s = 0.0
        self.lane = 0
        self.timed = not disable_timing
        self.ptr = id(self)
        cp.events[self.ptr] = self

    def record(self, stream: "Stream") -> None:
        """In a capture it only orders streams: it can neither be timed nor waited for."""
        self.lane = id(stream)
        assert self._cp.captured is None or not self.timed
        self._record(stream)

    def stamp(self, stream: "Stream") -> None:
        """Recorded as a node of the graph that is captured."""
        self._cp.stamped += 1
        self._record(stream)

    def _record(self, stream: "Stream") -> None:
        def run() -> None:
            self.at_s = max(stream.ready_s, self._cp.now_s)

        stream.do(run)

    def synchronize(self) -> None:
        self._cp.synchronize()
        self._cp.now_s = max(self._cp.now_s, self.at_s)


UPLOAD_S = 3e-6  # of the host, for each launch of a graph that is put onto the device


class Graph:
    """What was captured: launches of ``kernels`` and ``stamps`` of events to be timed among its actions.

    The first launch of a graph that was not uploaded puts it onto the device while the device waits. Before a
    graph begins the device waits for ``graph_gap_s``, before its first launch for ``first_launch_s``.
    """

    def __init__(
        self, cp: FakeCupy, actions: list[Callable[[], None]], kernels: list[str], stamps: int
    ) -> None:
        self._cp = cp
        self.actions = actions
        self.kernels = kernels
        self.stamps = stamps
        self._uploaded = False
        self._launched = False
        self.graph = self.graphExec = id(self)
        cp.graphs.append(self)

    def upload(self, stream: "Stream") -> None:
        del stream
        assert self._cp.captured is None
        if not self._uploaded:
            self._uploaded = True
            self._cp.now_s += UPLOAD_S * len(self.kernels)

    def launch(self, stream: "Stream") -> None:
        assert self._cp.captured is None
        self.upload(stream)
        gap_s = self._cp.graph_gap_s if self._launched else self._cp.first_launch_s
        stream.ready_s = max(stream.ready_s, self._cp.now_s) + gap_s
        self._launched = True
        for action in self.actions:
            action()


class Gpu:
    """Makes a GPU the current one for a while."""

    def __init__(self, cp: FakeCupy, index: int) -> None:
        self._cp = cp
        self._index = index
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(self._cp.gpu)
        self._cp.gpu = self._index

    def __exit__(self, *_: object) -> None:
        self._cp.gpu = self._before.pop()


class Stream:
    def __init__(self, cp: FakeCupy, non_blocking: bool, priority: int = 0) -> None:
        assert non_blocking
        assert priority <= 0  # CUDA counts downwards
        self._cp = cp
        self.priority = priority
        self.ptr = id(self)
        cp.streams[self.ptr] = self
        self.device_id = cp.gpu
        self.ready_s = 0.0
        self.multiprocessors: int | None = None  # of its green context

    def __enter__(self) -> None:
        self._cp.current.append(self)

    def __exit__(self, *_: object) -> None:
        assert self._cp.current.pop() is self

    @property
    def cp(self) -> FakeCupy:
        return self._cp

    def do(self, action: Callable[[], None]) -> None:
        self._cp.do(action)

    def wait_event(self, event: Event) -> None:
        if self._cp.captured is not None:
            self._cp.unjoined.discard(event.lane)
            self._cp.unjoined.add(id(self))

        def run() -> None:
            self.ready_s = max(self.ready_s, event.at_s)

        self.do(run)

    def record(self) -> Event:
        event = Event(self._cp, disable_timing=True)
        event.record(self)
        return event

    def begin_capture(self) -> None:
        if not self._cp.capture_works:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted")
        self._cp.captured = []
        self._cp.launched, self._cp.stamped = [], 0
        self._cp.unjoined = {id(self)}

    def end_capture(self) -> Graph:
        actions, self._cp.captured = self._cp.captured, None
        if actions is None or self._cp.unjoined != {id(self)}:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined: capture has unjoined work")
        return Graph(self._cp, actions, self._cp.launched, self._cp.stamped)

    def synchronize(self) -> None:
        self._cp.synchronize()
        self._cp.now_s = max(self._cp.now_s, self.ready_s)
