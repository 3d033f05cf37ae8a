"""Runs whose arguments lie packed in memory, put into streams by the driver's own call.

CuPy's call of a function looks at every argument, finds the stream and packs anew. Here the addresses of the
buffers are written to their slots, which the arguments of all stages point to, and the driver is called.
"""

import ctypes
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Protocol

import numpy as np

from tuner.devices.cuda.driver import DriverCallError
from tuner.devices.cuda.launches import ArrayOffset, LaunchRefusedError, LibraryStage, LoadedStage, Program
from tuner.devices.cuda.types import Graph
from tuner.model.arguments import TensorMap
from tuner.model.trial import Status

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
        places = {name: place for place, name in enumerate(sizes)}
        self._stages = tuple(_own_launch(stage) for stage in (*program.setup, *program.stages))
        self._copy = program.driver.copy
        self._symbols = tuple((one.address, places[one.buffer], one.bytes) for one in program.symbols)
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
        for number, (view, place) in enumerate(self._views.items(), len(addresses)):
            self._slots[number] = addresses[place] + view.offset_bytes
        for encoded in self._maps:
            encoded.point(addresses)

    def enqueue(self, stream: int) -> None:
        """Put one run into a stream, given by its handle; CuPy's errors come through."""
        for address, place, size in self._symbols:
            self._copy(address, self._slots[place], size, stream)
        for place, size in self._zeroed:
            self._clear(self._slots[place], 0, size, stream)
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


def _own_launch(stage: LoadedStage | LibraryStage) -> LoadedStage:
    """The stage, when it is no library's.

    Raises:
        LaunchRefusedError: it is.
    """
    if isinstance(stage, LibraryStage):
        raise LaunchRefusedError(
            Status.LAUNCH_ERROR, f"stage {stage.name}: calls of {stage.call.routine} of a library"
        )
    return stage


class RunGraphs:
    """A run, as CUDA graphs where the buffers come again: the driver takes a graph much sooner.

    Graphs hold addresses and no arrays. Of one graph one launch runs at a time, in whatever streams. All of
    this belongs to one thread at a time.

    Args:
        cp: CuPy.
        run: on buffers that are addresses.
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

    def __init__(self, stage: str, wanted: TensorMap, place: int, program: Program) -> None:
        self._stage = stage
        self._wanted = wanted
        self._place = place
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
            raise LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {self._stage}: {error}") from error
        ctypes.memmove(self.address, encoded.ctypes.data, _MAP_BYTES)
        self._of = buffer


class HomeContext:
    """The context that code was loaded into, which has to be the current one for its launches.

    Attributes:
        current: handle of the current context, 0 in a thread without one; one call of the driver.
        handle: of this context.

    Args:
        cp: CuPy, with the GPU current.
        device: the GPU's number.
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
