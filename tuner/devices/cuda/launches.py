"""One run of a plan: launches of its stages, packed or step by step, and host stages of LAPACK."""

import ctypes
import logging
import os
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol, Union

import numpy as np
from numpy.typing import NDArray

from tuner.devices.cuda.driver import (
    Array,
    CudaEvent,
    CudaFunction,
    DriverCallError,
    DriverCalls,
    Graph,
    Stream,
)
from tuner.model.errors import DeviceError
from tuner.model.plan import LibraryCall, TensorMap
from tuner.model.trial import Flag, FlagKind, Status


class LaunchRefusedError(DeviceError):
    """One workload of a trial cannot be compiled, loaded or launched.

    Attributes:
        status: how that workload ends.
        lane: its position in the trial; None while it is not known.
    """

    def __init__(self, status: Status, message: str, lane: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.lane = lane


@dataclass(frozen=True)
class Launch:
    """One kernel launch with its arguments, to be put into any stream.

    Attributes:
        side: 0 for the stream of its workload; others run beside that.
        after: places of stages that must have ended.
        place: of its stage, among those of the plan.
    """

    function: CudaFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[object, ...]
    side: int = 0
    after: tuple[int, ...] = ()
    place: int = 0
    cooperative: bool = False

    def enqueue(self, stream: Stream | None) -> None:
        """Put the launch into a stream; None is CuPy's current one."""
        self.function(
            self.grid,
            self.block,
            self.arguments,
            shared_mem=self.shared_bytes,
            stream=stream,
            enable_cooperative_groups=self.cooperative,
        )

    @cached_property
    def identity(self) -> Hashable:
        """Equal for launches of one function, while it is loaded, that do the same to the same memory."""
        return (
            self.function.ptr,
            self.grid,
            self.block,
            self.shared_bytes,
            tuple(_identity(argument) for argument in self.arguments),
            self.side,
            self.after,
            self.cooperative,
        )


@dataclass(frozen=True)
class LibraryLaunch:
    """A call of a library, to be put into any stream; the last fields are those of ``Launch``.

    Attributes:
        call: what is computed.
        run: puts it into a stream, None for CuPy's current one.
        addresses: of the operands.
    """

    call: LibraryCall
    run: Callable[[Stream | None], None]
    addresses: tuple[int, ...]
    side: int = 0
    after: tuple[int, ...] = ()
    place: int = 0

    def enqueue(self, stream: Stream | None) -> None:
        """Put the call into a stream; None is CuPy's current one."""
        self.run(stream)

    @property
    def identity(self) -> Hashable:
        """Equal for calls that do the same to the same memory."""
        return (self.call, self.addresses, self.side, self.after)


@dataclass(frozen=True)
class Clearing:
    """Zeros for one array, to be put into any stream."""

    array: Array

    def enqueue(self, stream: Stream | None) -> None:
        """Put the zeros into a stream; None is CuPy's current one."""
        self.array.data.memset_async(0, self.array.nbytes, stream)

    @property
    def identity(self) -> Hashable:
        """Equal for clearings of the same memory."""
        return (self.array.data.ptr, self.array.nbytes)


@dataclass(frozen=True)
class Restoring:
    """Copies what an array held before the first run back into it, to be put into any stream."""

    array: Array
    original: Array

    def enqueue(self, stream: Stream | None) -> None:
        """Put the copy into a stream; None is CuPy's current one."""
        self.array.data.copy_from_device_async(self.original.data, self.array.nbytes, stream)

    @property
    def identity(self) -> Hashable:
        """Equal for copies between the same memory."""
        return (self.array.data.ptr, self.original.data.ptr, self.array.nbytes)


@dataclass(frozen=True)
class SymbolAddress:
    """A variable of a loaded module, and the buffer that it is filled from."""

    buffer: str
    address: int
    bytes: int


@dataclass(frozen=True)
class SymbolCopy:
    """Copies an array to a variable of a module, to be put into a stream."""

    symbol: SymbolAddress
    array: Array
    driver: DriverCalls

    def enqueue(self, stream: Stream | None) -> None:
        """Put the copy into a stream; None is the default one."""
        to = 0 if stream is None else stream.ptr
        self.driver.copy(self.symbol.address, self.array.data.ptr, self.symbol.bytes, to)

    @property
    def identity(self) -> Hashable:
        """Equal for copies between the same memory."""
        return (self.symbol, self.array.data.ptr)


StageLaunch = Launch | LibraryLaunch
"""Step that a stage puts into a stream."""

Step = StageLaunch | Clearing | Restoring | SymbolCopy
"""One piece of work of a run."""


def has_host_stage(steps: Iterable[Step]) -> bool:
    """True when the thread that puts the steps into streams computes some of them."""
    return any(isinstance(step, LibraryLaunch) and step.call.on_host for step in steps)


def _identity(argument: Any) -> Hashable:  # noqa: ANN401 - a pointer of CuPy's, or what NumPy holds
    """An address, or the bytes of a value."""
    return argument.ptr if hasattr(argument, "ptr") else (argument.dtype.str, argument.tobytes())


@dataclass(frozen=True)
class ArrayOffset:
    """An array from one of its bytes on, as an argument."""

    buffer: str
    offset_bytes: int


@dataclass(frozen=True)
class ScratchMemory:
    """Device memory of one launch of a program, which the code asks for behind its parameters."""

    pointer: Any


LoadedArgument = Union[str, ArrayOffset, "np.generic[Any]", "NDArray[Any]", TensorMap, ScratchMemory]
"""The name of a buffer, a part of one, a NumPy scalar, an array without axes, a tensor map, or scratch."""


@dataclass(frozen=True)
class LoadedStage:
    """A stage on the device that lacks only its arrays.

    Attributes:
        grid: blocks that are launched; of a resident stage, those the device holds.
        arguments: in the order of the function's parameters.
        side: 0 for the stream of its workload; others run beside that.
        after: places of stages of the plan that must have ended.
        place: its own.
    """

    name: str
    function: CudaFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[LoadedArgument, ...]
    side: int = 0
    after: tuple[int, ...] = ()
    place: int = 0
    cooperative: bool = False

    def bound(self, arrays: Mapping[str, Array], driver: DriverCalls) -> Launch:
        """The launch on some arrays.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its array.
        """
        arguments = tuple(self._argument(item, arrays, driver) for item in self.arguments)
        return Launch(
            *(self.function, self.grid, self.block, self.shared_bytes, arguments),
            side=self.side,
            after=self.after,
            place=self.place,
            cooperative=self.cooperative,
        )

    def _argument(self, item: LoadedArgument, arrays: Mapping[str, Array], driver: DriverCalls) -> object:
        if isinstance(item, str):
            return arrays[item].data
        if isinstance(item, ArrayOffset):
            return arrays[item.buffer].data + item.offset_bytes
        if isinstance(item, ScratchMemory):
            return item.pointer
        if not isinstance(item, TensorMap):
            return item
        try:
            return driver.tensor_map(arrays[item.buffer].data.ptr, item)
        except DriverCallError as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {self.name}: {error}") from error


@dataclass(frozen=True)
class LibraryStage:
    """A stage that a library runs and that lacks only its arrays; the last fields as of ``LoadedStage``.

    Attributes:
        bind: makes a call ready on some arrays, beside the stream of its workload.
    """

    name: str
    call: LibraryCall
    bind: Callable[[LibraryCall, Mapping[str, Array], int], LibraryLaunch]
    side: int = 0
    after: tuple[int, ...] = ()
    place: int = 0

    def bound(self, arrays: Mapping[str, Array], driver: DriverCalls) -> LibraryLaunch:
        """The call on some arrays."""
        del driver
        launch = self.bind(self.call, arrays, self.side)
        return replace(launch, side=self.side, after=self.after, place=self.place)


@dataclass(frozen=True)
class Program:
    """A plan on the device that lacks only its arrays.

    Attributes:
        stages: what every run launches.
        zeroed: buffers that are set to zero before every run.
        setup: stages that are launched once for the arrays, before runs.
        symbols: variables that are filled before runs.
        tables: buffers that the set-up stages fill from nothing but sizes, so that once is enough.
    """

    stages: tuple[LoadedStage | LibraryStage, ...]
    zeroed: tuple[str, ...]
    driver: DriverCalls
    setup: tuple[LoadedStage | LibraryStage, ...] = ()
    symbols: tuple[SymbolAddress, ...] = ()
    tables: tuple[str, ...] = ()

    @property
    def with_tables(self) -> "Program":
        """The program as it is launched again and again, where tables are filled already."""
        return replace(self, setup=()) if self.tables else self

    @property
    def tabulation(self) -> "Program":
        """The set-up stages alone, as a run of their own."""
        return replace(self, stages=self.setup, setup=(), symbols=())

    def prepared(self, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """Return the steps before runs on some arrays, in order; set-up stages get ``zeroed`` arrays cleared.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its array.
        """
        return (
            *(SymbolCopy(symbol, arrays[symbol.buffer], self.driver) for symbol in self.symbols),
            *(Clearing(arrays[name]) for name in self.zeroed if self.setup),
            *(stage.bound(arrays, self.driver) for stage in self.setup),
        )

    def bound(self, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """One run on some arrays, in order.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its array.
        """
        return (
            *(Clearing(arrays[name]) for name in self.zeroed),
            *(stage.bound(arrays, self.driver) for stage in self.stages),
        )


_WHEEL = "scipy.libs"  # where SciPy's wheels keep their BLAS; NumPy's have one of their own
_INSTALL = "pip install threadpoolctl"


class CpuThreads:
    """Sets the threads of SciPy's BLAS, and says what came of it.

    Args:
        processors: that this process may use; those of its affinity if not given.
        find: gives threadpoolctl's controllers of that library; asks threadpoolctl if not given.

    Attributes:
        unknown: why nobody tells how many threads there are; empty where it is known.
    """

    def __init__(
        self, processors: int | None = None, find: Callable[[], Sequence[Any]] | None = None
    ) -> None:
        self._processors = processors or len(os.sched_getaffinity(0))
        self._find = find or _libraries
        self._libraries: Sequence[Any] | None = None
        self._in_use = -1
        self.unknown = ""

    def use(self, requested: int) -> int | None:
        """Have the BLAS compute with so many threads, 0 for as many as this process may use.

        Returns:
            How many there are; None where nobody tells.

        Raises:
            LaunchRefusedError: there are fewer processors, or the BLAS has fewer threads, or nothing sets
                them.
        """
        if requested > self._processors:
            raise _refused(
                f"asks for {requested} threads of the CPU, and this process may use {self._processors}"
                f" processor{'' if self._processors == 1 else 's'}"
            )
        libraries = self._found()
        if not libraries:
            if requested == 0:
                return None
            raise _refused(f"the threads of the CPU cannot be set: {self.unknown}")
        count = requested or self._processors
        if count != self._in_use:
            for library in libraries:
                library.set_num_threads(count)
            self._in_use = count
        actual: int = min(library.num_threads for library in libraries)
        if actual < requested:
            raise _refused(f"asks for {requested} threads of the CPU, and {self.name} computes with {actual}")
        return actual

    @property
    def name(self) -> str:
        """The BLAS, for people."""
        versions = dict.fromkeys(
            f"{library.internal_api} {library.version}" for library in self._libraries or ()
        )
        return f"SciPy's BLAS ({', '.join(versions) or 'unknown'})"

    def _found(self) -> Sequence[Any]:
        """The library, looked for once; nothing where it is not known."""
        if self._libraries is None:
            try:
                self._libraries = self._find()
            except ImportError:
                self._libraries, self.unknown = (), _INSTALL
            else:
                self.unknown = "" if self._libraries else "threadpoolctl does not know this BLAS"
        return self._libraries


def _libraries() -> Sequence[Any]:
    import scipy.linalg.lapack  # noqa: F401, PLC0415 - loads the library that is looked for
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - an extra

    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [library for library in libraries if _WHEEL in library.filepath]
    return own or libraries


def _refused(message: str) -> LaunchRefusedError:
    return LaunchRefusedError(Status.LAUNCH_ERROR, message)


# --- Host stages: a matrix is copied to the host, factored there by SciPy's LAPACK, and copied back.
#
# The thread that puts such a stage into a stream waits for the matrix and computes. What it has put into
# other streams before runs on the GPU meanwhile. No graph can capture this.

_LETTER = {"float32": "s", "float64": "d"}
_WORD_BYTES, _LINE_BYTES = 8, 64  # a pivot, tau or info has a word


class HostLapack:
    """Factors matrices of the device in this thread.

    Stages of one run follow each other in its order, so that ``info`` of the first panel that fails is kept.

    Args:
        cp: CuPy, with the device current.
        threads: sets those of the CPU; those of the system if not given.
    """

    def __init__(self, cp: ModuleType, threads: CpuThreads | None = None) -> None:
        self._cp = cp
        self._threads = threads or CpuThreads()
        self._staging = _Staging(cp)
        self._info = 0  # of the factorisation that is under way

    def action(self, call: LibraryCall, addresses: Mapping[str, int]) -> Callable[[Stream | None], None]:
        """Return the function that runs a call in a stream, None for CuPy's current one, and waits for it.

        Raises:
            LaunchRefusedError: so many threads are not to be had.
        """
        self._threads.use(call.threads)
        self._staging.make_room(call)

        def run(stream: Stream | None) -> None:
            self._run(call, addresses, self._cp.cuda.get_current_stream() if stream is None else stream)

        return run

    def flag(self, call: LibraryCall) -> Flag | None:
        """Return a flag for the threads of a call: there is only one, or their number is unknown."""
        threads = self._threads.use(call.threads)
        if threads is None:
            detail = f"nobody tells how many threads SciPy's BLAS computes with: {self._threads.unknown}"
        elif threads == 1 and call.threads != 1:
            detail = f"{self._threads.name} computes with 1 thread"
        else:
            return None
        return Flag(FlagKind.CPU_THREADS, detail)

    def _run(self, call: LibraryCall, addresses: Mapping[str, int], stream: Stream) -> None:
        staging = self._staging
        staging.copy(call, addresses["a"], stream, to_host=True)
        stream.synchronize()
        self._threads.use(call.threads)
        results, info = factored(call, staging.matrix(call))
        staging.copy(call, addresses["a"], stream, to_host=False)
        for name, values in results.items():
            staging.send(0, values, addresses[name], stream)
        if "info" in addresses and (call.first == 0 or (info and not self._info)):
            self._info = info and call.first + info
            staging.send(min(call.m, call.n), np.array([self._info], "int32"), addresses["info"], stream)
        staging.all_sent(stream)


def factored(call: LibraryCall, matrix: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], int]:
    """Factor a matrix in place; what LAPACK says of it by the names of the operands, and its info."""
    from scipy.linalg import lapack  # noqa: PLC0415 - takes long to import, and most runs have no host stage

    routine = call.routine.removeprefix("lapack-")
    function = getattr(lapack, _LETTER[call.dtype] + routine)
    if routine == "potrf":
        _, info = function(matrix, lower=1, clean=0, overwrite_a=1)
        wrong = np.isnan(matrix.diagonal())  # which OpenBLAS lets pass, and LAPACK's own routine does not
        return {}, int(info) or int(wrong.any() and 1 + wrong.argmax())
    if routine == "getrf":
        _, pivots, info = function(matrix, overwrite_a=1)
        return {"pivots": (pivots + (1 + call.first)).astype("int32")}, int(info)
    work_size, _ = getattr(lapack, f"{_LETTER[call.dtype]}geqrf_lwork")(*matrix.shape)
    _, tau, _, info = function(matrix, lwork=int(work_size), overwrite_a=1)
    return {"tau": tau}, int(info)


class _Staging:
    """Pinned memory for one stage at a time: words, and behind them a matrix without gaps.

    Whoever takes it waits, on the device, until all that was sent from it before has arrived.
    """

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        self._bytes: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._arrived: CudaEvent = cp.cuda.Event(disable_timing=True)

    def make_room(self, call: LibraryCall) -> None:
        """Take more memory where a call needs it."""
        needed = _words_bytes(call) + call.m * call.n * _item_bytes(call)
        if needed > self._bytes.size:
            self._arrived.synchronize()
            self._bytes = np.frombuffer(self._cp.cuda.alloc_pinned_memory(needed), np.uint8, needed)

    def matrix(self, call: LibraryCall) -> NDArray[Any]:
        """The matrix of a call, (m, n), column-major."""
        first, size = _words_bytes(call), call.m * call.n * _item_bytes(call)
        return self._bytes[first : first + size].view(call.dtype).reshape(call.n, call.m).T

    def send(self, word: int, values: NDArray[Any], address: int, stream: Stream) -> None:
        """Copy values to the device, by way of the words from one on."""
        runtime, staged = self._cp.cuda.runtime, self._bytes[word * _WORD_BYTES :][: values.nbytes]
        staged[...] = values.view(np.uint8)
        kind = runtime.memcpyHostToDevice
        runtime.memcpyAsync(address, staged.ctypes.data, values.nbytes, kind, stream.ptr)

    def all_sent(self, stream: Stream) -> None:
        """Note that nothing more is sent."""
        self._arrived.record(stream)

    def copy(self, call: LibraryCall, address: int, stream: Stream, *, to_host: bool) -> None:
        """Copy the matrix to the device; or from it, when what was sent before has arrived there."""
        if to_host:
            stream.wait_event(self._arrived)
        runtime, item = self._cp.cuda.runtime, _item_bytes(call)
        host = (self._bytes.ctypes.data + _words_bytes(call), call.m * item)
        device = (address, call.operand("a").leading * item)
        kind = runtime.memcpyDeviceToHost if to_host else runtime.memcpyHostToDevice
        ends = (*host, *device) if to_host else (*device, *host)
        runtime.memcpy2DAsync(*ends, call.m * item, call.n, kind, stream.ptr)


def _item_bytes(call: LibraryCall) -> int:
    return int(np.dtype(call.dtype).itemsize)


def _words_bytes(call: LibraryCall) -> int:
    """Room for pivots or tau, and info, in whole lines of the cache."""
    return -(-(min(call.m, call.n) + 1) * _WORD_BYTES // _LINE_BYTES) * _LINE_BYTES


# --- Runs whose arguments lie packed in memory, put into streams by the driver's own call.
#
# CuPy's call of a function looks at every argument, finds the stream and packs anew. Here the addresses of
# the buffers are written to their slots, which the arguments of all stages point to, and the driver is
# called.

_LOG = logging.getLogger(__name__)

_MOST_GRAPHS = 4  # of a run; each takes some tens of kilobytes of the driver's memory
_MOST_ONCE = 16
_UNUSED = 1000  # runs without a graph, after which the graphs are taken to be of freed arrays
_MAP_BYTES = 128  # of a CUtensorMap
_MAP_ALIGNMENT = 64


class Run(Protocol):
    """One run of a program, again and again (``PackedRun``, and ``SteppedRun`` with stages of libraries)."""

    def point(self, addresses: Sequence[int]) -> None:
        """Have the following runs work on other buffers."""

    def enqueue(self, stream: int) -> None:
        """Put one run into a stream, given by its handle."""

    def graph(self) -> Graph:
        """A run on the present buffers as a CUDA graph."""


class PackedRun:
    """One run of a program, again and again, on buffers that are addresses.

    It keeps the code loaded and keeps no array. The context of the code must be the current one. The driver
    reads the arguments while it takes a launch: ``point`` and ``enqueue`` belong to one thread at a time.

    Args:
        cp: CuPy.
        program: the plan, loaded.
        sizes: bytes of each buffer of the plan, by name, in the order of the addresses.
    """

    def __init__(self, cp: ModuleType, program: Program, sizes: Mapping[str, int]) -> None:
        self._cp = cp
        self._clear = cp.cuda.runtime.memsetAsync
        places = {name: index for index, name in enumerate(sizes)}
        stages = (*program.setup, *program.stages)
        for stage in stages:
            if isinstance(stage, LibraryStage):
                raise _refused(f"stage {stage.name}: calls of {stage.call.routine} of a library")
        self._stages = tuple(stage for stage in stages if isinstance(stage, LoadedStage))
        self._copy = program.driver.copy
        self._symbols = tuple(
            (symbol.address, places[symbol.buffer], symbol.bytes) for symbol in program.symbols
        )
        self._views = {
            item: places[item.buffer]
            for stage in self._stages
            for item in stage.arguments
            if isinstance(item, ArrayOffset)
        }
        self._slots = (ctypes.c_uint64 * (len(sizes) + len(self._views)))()
        self._write = struct.Struct(f"={len(sizes)}Q").pack_into
        self._zeroed = tuple((places[name], sizes[name]) for name in program.zeroed)
        self._maps: list[_EncodedMap] = []
        self._kept: list[object] = [stage.function for stage in self._stages]
        self._view_slots = {view: len(sizes) + number for number, view in enumerate(self._views)}
        self._launches = tuple(
            (
                cp.cuda.driver.launchCooperativeKernel if stage.cooperative else cp.cuda.driver.launchKernel,
                (stage.function.ptr, *stage.grid, *stage.block, stage.shared_bytes),
                (parameters,) if stage.cooperative else (parameters, 0),
            )
            for stage in self._stages
            for parameters in [self._parameters(stage, program, places)]
        )

    def point(self, addresses: Sequence[int]) -> None:
        """Have the following runs work on other buffers.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its buffer.
        """
        self._write(self._slots, 0, *addresses)
        for number, (view, index) in enumerate(self._views.items(), len(addresses)):
            self._slots[number] = addresses[index] + view.offset_bytes
        for encoded in self._maps:
            encoded.point(addresses)

    def enqueue(self, stream: int) -> None:
        """Put one run into a stream, given by its handle; CuPy's errors come through."""
        for address, index, size in self._symbols:
            self._copy(address, self._slots[index], size, stream)
        for index, size in self._zeroed:
            self._clear(self._slots[index], 0, size, stream)
        for launch, shape, parameters in self._launches:
            launch(*shape, stream, *parameters)

    def graph(self) -> Graph:
        """A run on the present buffers as a CUDA graph; CuPy's errors come through."""
        stream = self._cp.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            self.enqueue(stream.ptr)
        finally:
            captured: Graph = stream.end_capture()
        return captured

    def _parameters(self, stage: LoadedStage, program: Program, places: Mapping[str, int]) -> int:
        """Address of the list of addresses of a stage's arguments."""
        parameters = (ctypes.c_void_p * len(stage.arguments))()
        for number, item in enumerate(stage.arguments):
            if isinstance(item, str):
                parameters[number] = ctypes.addressof(self._slots) + 8 * places[item]
            elif isinstance(item, ArrayOffset):
                parameters[number] = ctypes.addressof(self._slots) + 8 * self._view_slots[item]
            elif isinstance(item, ScratchMemory):  # calls in two streams would share it
                raise _refused(
                    f"stage {stage.name}: its code takes scratch memory, which no call gives it yet"
                )
            elif isinstance(item, TensorMap):
                encoded = _EncodedMap(stage.name, item, places[item.buffer], program)
                self._maps.append(encoded)
                parameters[number] = encoded.address
            else:
                value = np.array(item)
                self._kept.append(value)
                parameters[number] = value.ctypes.data
        self._kept.append(parameters)
        return ctypes.addressof(parameters)


class RunGraphs:
    """A run, as CUDA graphs where the buffers come again: the driver takes a graph much sooner.

    Graphs hold addresses and no arrays. Of one graph one launch runs at a time, in whatever streams. All of
    this belongs to one thread at a time.
    """

    def __init__(self, cp: ModuleType, run: Run) -> None:
        self._run = run
        self._capturing = cp.cuda.runtime.streamIsCapturing
        self._replay = cp.cuda.runtime.graphLaunch
        self._refusals = (cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError)
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._once: set[tuple[int, ...]] = set()
        self._unused = 0
        self._works = True

    def run(self, addresses: tuple[int, ...], stream: int) -> None:
        """Put a run on these buffers into a stream, given by its handle; CuPy's errors come through.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of a buffer.
        """
        graph = self._graphs.get(addresses)
        if graph is not None and not self._capturing(stream):  # captures take launches, and no graphs
            self._unused = 0
            self._replay(graph.graphExec, stream)
            return
        self._run.point(addresses)
        self._run.enqueue(stream)
        self._note(addresses, stream)

    def keep(self, addresses: tuple[int, ...]) -> None:
        """Make the graph for these buffers now; where the driver makes none, runs are launched singly.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of a buffer.
        """
        self._run.point(addresses)
        try:
            self._graphs[addresses] = self._run.graph()
        except (*self._refusals, LaunchRefusedError) as error:
            self._works = False
            _LOG.info("kernels are launched without CUDA graphs: %s", error)

    def _note(self, addresses: tuple[int, ...], stream: int) -> None:
        """Make a graph for buffers that came twice, while there are few; drop those that nobody uses."""
        self._unused += 1
        if self._unused >= _UNUSED:
            self._unused = 0
            self._graphs.clear()
        if addresses not in self._once:
            if len(self._once) >= _MOST_ONCE:
                self._once.clear()
            self._once.add(addresses)
        elif self._works and len(self._graphs) < _MOST_GRAPHS and not self._capturing(stream):
            self.keep(addresses)


class _EncodedMap:
    """A tensor map, encoded anew when its buffer is another."""

    def __init__(self, stage: str, tensor: TensorMap, index: int, program: Program) -> None:
        self._stage = stage
        self._wanted = tensor
        self._place = index
        self._driver = program.driver
        self._of = -1
        self._room = (ctypes.c_ubyte * (_MAP_BYTES + _MAP_ALIGNMENT))()
        self.address = ctypes.addressof(self._room) + -ctypes.addressof(self._room) % _MAP_ALIGNMENT

    def point(self, addresses: Sequence[int]) -> None:
        buffer = addresses[self._place]
        if buffer == self._of:
            return
        try:
            encoded = self._driver.tensor_map(buffer, self._wanted)
        except DriverCallError as error:
            raise _refused(f"stage {self._stage}: {error}") from error
        ctypes.memmove(self.address, encoded.ctypes.data, _MAP_BYTES)
        self._of = buffer


class HomeContext:
    """The context that code was loaded into, which has to be the current one for its launches.

    Attributes:
        current: handle of the current context, 0 in a thread without one; one call of the driver.
        handle: of this context.
    """

    def __init__(self, cp: ModuleType, device: int) -> None:
        self._cp = cp
        self._device = device
        self.current: Callable[[], int] = cp.cuda.driver.ctxGetCurrent
        if not self.current():
            cp.cuda.runtime.setDevice(device)  # of a thread that has none yet
        self.handle = self.current()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make it current: of another GPU for a while, in a thread without one for good, as CuPy does."""
        with self._cp.cuda.Device(self._device):
            self._cp.cuda.runtime.setDevice(self._device)  # the number is right in a new thread, too
            yield
