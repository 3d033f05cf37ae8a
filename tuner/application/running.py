"""Runs a loaded kernel on a caller's arrays, again and again: checks that can change, and the launch."""

import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tuner.application.binding import CallArray, LoadedKernel
from tuner.application.capture import ALLOCATES_OUTPUT, ALLOCATES_SCRATCH, captured, is_captured
from tuner.application.keys import ALIGNED, Stream, checked_stream
from tuner.application.rows import Array
from tuner.devices.cuda.packed import RunGraphs
from tuner.model.errors import DeviceError, InputError


class KernelRunner:
    """Runs a kernel on arrays whose forms were checked. May be used by several threads.

    Args:
        cp: CuPy.
        loaded: the kernel.
    """

    def __init__(self, cp: ModuleType, loaded: LoadedKernel) -> None:
        self.loaded = loaded
        self._cp = cp
        self._graphs = loaded.graphs(cp)
        self._lock = threading.Lock()  # the driver reads the packed arguments while it takes a launch
        self._refusals = (cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError)
        self._current, self._home = loaded.home.current, loaded.home.handle
        self._stream_of = cp.cuda.get_current_stream
        self._device = loaded.device
        self._tally = loaded.tally
        self._result = loaded.results[0] if len(loaded.results) == 1 else -1
        self._inputs = len(loaded.inputs)
        self._always = loaded.scratch
        self._unless_given = (*loaded.outputs, *loaded.scratch)
        self._pairs = _output_pairs(loaded)
        self._replaced = loaded.replaced

    def run(self, given: Sequence[Array], addresses: list[int], stream: Stream | None) -> Any:  # noqa: ANN401 - arrays
        """Put a run into a stream; outputs are allocated where none are given.

        Args:
            given: inputs, then outputs or none.
            addresses: theirs.
            stream: None for the current one.

        Returns:
            The output, or a tuple of several.

        Raises:
            InputError: an address or the stream cannot be used, an output overlaps another array, or memory
                would be allocated in a capture.
            DeviceError: memory runs out, or the driver refuses the launch.
        """
        if self._current() != self._home:
            with self.loaded.home.entered():
                return self._run(given, addresses, stream)
        return self._run(given, addresses, stream)

    def _run(self, given: Sequence[Array], addresses: list[int], stream: Stream | None) -> Any:  # noqa: ANN401 - arrays
        self.check_addresses(given, addresses)
        handle = self._handle(stream)
        wanted = self._unless_given if len(addresses) == self._inputs else self._always
        if wanted:
            if is_captured(self._cp, handle):
                fault = ALLOCATES_SCRATCH if self._always else ALLOCATES_OUTPUT
                raise InputError(captured(self.loaded.kernel, fault))
            made = self._allocated(wanted, stream)
            given = (*given, *made)
            addresses += [array.data.ptr for array in made]
        self.put(self._graphs, self._lock, tuple(addresses), handle)
        return self.results(given)

    def launch(
        self, graphs: RunGraphs, lock: threading.Lock, addresses: tuple[int, ...], stream: Stream | None
    ) -> None:
        """Put a run on checked buffers into a stream: inputs, outputs and scratch arrays.

        Args:
            graphs: of this kernel.
            lock: theirs.
            addresses: of the buffers.
            stream: None for the current one.

        Raises:
            InputError: the stream is not one on this GPU.
            DeviceError: the driver refuses the launch.
        """
        if self._current() != self._home:
            with self.loaded.home.entered():
                self.put(graphs, lock, addresses, self._handle(stream))
        else:
            self.put(graphs, lock, addresses, self._handle(stream))

    def _handle(self, stream: Stream | None) -> Any:  # noqa: ANN401 - an int, says CuPy without types
        on = self._stream_of(self._device) if stream is None else self._checked(stream)
        return on.ptr

    def _checked(self, stream: Stream) -> Stream:
        return checked_stream(self._cp, stream, self._device)

    def put(self, graphs: RunGraphs, lock: threading.Lock, addresses: tuple[int, ...], handle: int) -> None:
        """Put a run into a stream given by its handle, in the context of the code; see ``launch``.

        Raises:
            DeviceError: the driver refuses the launch.
        """
        self._tally.count += 1
        try:
            with lock:
                graphs.run(addresses, handle)
        except self._refusals as error:
            raise DeviceError(f"the GPU refuses the launch: {error}") from error

    def check_addresses(self, given: Sequence[Array], addresses: Sequence[int]) -> None:
        """Refuse what ``LoadedKernel.check_memory`` refuses, at little cost where there is nothing.

        Raises:
            InputError: the message names the array and what would be right.
        """
        bits = 0
        for address in addresses:
            bits |= address
        if bits & ALIGNED or (len(addresses) > self._inputs and self._overlap(addresses)):
            self.loaded.check_memory(given)

    def results(self, given: Sequence[Array]) -> Any:  # noqa: ANN401 - arrays
        """What a run on these arrays returns."""
        if self._result >= 0:
            return given[self._result]
        return tuple(given[place] for place in self.loaded.results)

    def _overlap(self, addresses: Sequence[int]) -> bool:
        """Whether outputs may share memory with other arrays, or not where they must."""
        if self._replaced is not None and addresses[self._inputs] != addresses[self._replaced]:
            return True
        for one, other, size, other_size in self._pairs:
            begin, other_begin = addresses[one], addresses[other]
            if begin < other_begin + other_size and other_begin < begin + size:
                return True
        return False

    def _allocated(self, wanted: Sequence[CallArray], stream: Stream | None) -> list[Array]:
        """New arrays of the stream's own memory."""
        if stream is None:
            return self.loaded.allocated(self._cp, wanted)
        with self._checked(stream):
            return self.loaded.allocated(self._cp, wanted)


def _output_pairs(loaded: LoadedKernel) -> tuple[tuple[int, int, int, int], ...]:
    """Places and sizes of every output with each array before it: they must not share memory."""
    arrays = (*loaded.inputs, *loaded.outputs)
    return tuple(
        (one, other, arrays[one].nbytes, arrays[other].nbytes)
        for one in range(len(loaded.inputs), len(arrays))
        for other in range(one)
        if other != loaded.replaced
    )
