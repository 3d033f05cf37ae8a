"""Runs with stages of libraries, put into streams step by step; as ``tuner.devices.cuda.packed.Run``."""

import math
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tuner.devices.cuda.foreign_streams import stream_of
from tuner.devices.cuda.lanes import SideStreams
from tuner.devices.cuda.launches import Program, StageLaunch, Step
from tuner.devices.cuda.types import Array, Graph, Stream


class SteppedRun:
    """One run of a program, again and again, on buffers that are addresses.

    It keeps the code loaded and keeps no array. The context of the code must be the current one. All of this
    belongs to one thread at a time.

    Args:
        cp: CuPy.
        program: the plan, loaded.
        forms: shape and NumPy dtype of each buffer of the plan, by name, in the order of the addresses.
    """

    def __init__(
        self, cp: ModuleType, program: Program, forms: Mapping[str, tuple[tuple[int, ...], "np.dtype[Any]"]]
    ) -> None:
        self._cp = cp
        self._program = program
        self._forms = dict(forms)
        self._sides = SideStreams(cp)
        self._addresses: tuple[int, ...] = ()
        self._steps: Sequence[Step] = ()

    def point(self, addresses: Sequence[int]) -> None:
        """Have the following runs work on other buffers.

        Raises:
            LaunchRefusedError: a library is not there, or a tensor map cannot be made of its buffer.
        """
        if self._addresses == tuple(addresses):
            return
        arrays = {
            name: self._array(address, *form)
            for (name, form), address in zip(self._forms.items(), addresses, strict=True)
        }
        self._steps = (*self._program.prepared(arrays), *self._program.bound(arrays))
        self._addresses = tuple(addresses)

    def enqueue(self, stream: int) -> None:
        """Put one run into a stream, given by its handle; CuPy's errors come through.

        Raises:
            LaunchRefusedError: a library refuses a call.
        """
        self._put(stream_of(self._cp, stream), self._sides)

    def graph(self) -> Graph:
        """A run on the present buffers as a CUDA graph; CuPy's errors come through.

        Raises:
            LaunchRefusedError: a library refuses a call.
        """
        stream = self._cp.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            self._put(stream, SideStreams(self._cp))  # a capture that breaks spoils its streams
        finally:
            captured: Graph = stream.end_capture()
        return captured

    def _put(self, stream: Stream, sides: SideStreams) -> None:
        if any(isinstance(step, StageLaunch) and step.side for step in self._steps):
            sides.enqueue(self._steps, stream)
        else:
            for step in self._steps:
                step.enqueue(stream)

    def _array(self, address: int, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """The memory at an address; it belongs to the caller."""
        cp, size = self._cp, math.prod(shape) * dtype.itemsize
        memory = cp.cuda.UnownedMemory(address, size, None, cp.cuda.runtime.getDevice())
        made: Array = cp.ndarray(shape, dtype, cp.cuda.MemoryPointer(memory, 0))
        return made
