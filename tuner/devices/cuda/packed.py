"""Runs whose arguments lie packed in memory, put into streams by the driver's own call.

CuPy's call of a function looks at every argument, finds the stream and packs anew. Here the addresses of the
buffers are written to their slots, which the arguments of all stages point to, and the driver is called.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from tuner.devices.cuda.driver import DriverCallError
from tuner.devices.cuda.launches import LaunchRefusedError, LoadedStage, Program
from tuner.model import Status, TensorMap

_MAP_BYTES = 128  # of a CUtensorMap
_MAP_ALIGNMENT = 64


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
        self._launch = cp.cuda.driver.launchKernel
        self._clear = cp.cuda.runtime.memsetAsync
        places = {name: place for place, name in enumerate(sizes)}
        self._slots = (ctypes.c_uint64 * len(sizes))()
        self._write = struct.Struct(f"={len(sizes)}Q").pack_into
        self._zeroed = tuple((places[name], sizes[name]) for name in program.zeroed)
        self._maps: list[_EncodedMap] = []
        self._kept: list[object] = [stage.function for stage in program.stages]
        self._launches = tuple(
            ((stage.function.ptr, *stage.grid, *stage.block, stage.shared_bytes), parameters)
            for stage in program.stages
            for parameters in [self._parameters(stage, program, places)]
        )

    def point(self, addresses: Sequence[int]) -> None:
        """Have the following runs work on other buffers.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its buffer.
        """
        self._write(self._slots, 0, *addresses)
        for encoded in self._maps:
            encoded.point(addresses)

    def enqueue(self, stream: int) -> None:
        """Put one run into a stream, given by its handle; CuPy's errors come through."""
        for place, size in self._zeroed:
            self._clear(self._slots[place], 0, size, stream)
        for shape, parameters in self._launches:
            self._launch(*shape, stream, parameters, 0)

    def _parameters(self, stage: LoadedStage, program: Program, places: Mapping[str, int]) -> int:
        """Address of the list of addresses of a stage's arguments."""
        parameters = (ctypes.c_void_p * len(stage.arguments))()
        for number, item in enumerate(stage.arguments):
            if isinstance(item, str):
                parameters[number] = ctypes.addressof(self._slots) + 8 * places[item]
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
