"""Runs a loaded kernel on a caller's arrays, again and again: checks that can change, and the launch."""

import threading
from collections.abc import Sequence
from types import ModuleType

from tuner.application.binding import ALIGNED, LoadedKernel
from tuner.application.signature import Array, Stream, checked_stream
from tuner.devices.cuda.packed import PackedRun
from tuner.errors import DeviceError


class KernelRunner:
    """Runs a kernel on arrays whose forms were checked. May be used by several threads.

    Args:
        cp: CuPy.
        loaded: the kernel.
    """

    def __init__(self, cp: ModuleType, loaded: LoadedKernel) -> None:
        self.loaded = loaded
        self._cp = cp
        self._packed = loaded.packed(cp)
        self._lock = threading.Lock()  # the driver reads the packed arguments while it takes a launch
        self._refusals = (cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError)
        self._current = loaded.home.current
        self._stream_of = cp.cuda.get_current_stream
        self._device = loaded.device
        self._tally = loaded.tally
        single = len(loaded.results) == 1
        self._result = loaded.results[0] if single else -1
        self._pairs = _output_pairs(loaded)

    def run(
        self, arrays: Sequence[Array], outs: Sequence[Array], stream: Stream | None
    ) -> Array | tuple[Array, ...]:
        """Put a run into a stream; outputs are allocated where none are given.

        Raises:
            InputError: an address or the stream cannot be used, or an output overlaps another array.
            DeviceError: memory runs out, or the driver refuses the launch.
        """
        if self._current() != self.loaded.home.handle:
            with self.loaded.home.entered():
                return self._run(arrays, outs, stream)
        return self._run(arrays, outs, stream)

    def enqueue(self, packed: PackedRun, stream: Stream | None) -> None:
        """Put a run on bound buffers into a stream; the caller sees to it that nobody else does.

        Raises:
            InputError: the stream is not one of CuPy's on this GPU.
            DeviceError: the driver refuses the launch.
        """
        if self._current() != self.loaded.home.handle:
            with self.loaded.home.entered():
                self._enqueue(packed, self._handle(stream))
        else:
            self._enqueue(packed, self._handle(stream))

    def _run(
        self, arrays: Sequence[Array], outs: Sequence[Array], stream: Stream | None
    ) -> Array | tuple[Array, ...]:
        addresses = [array.data.ptr for array in arrays]
        addresses += [array.data.ptr for array in outs]
        self.check_addresses(addresses, arrays, outs)
        handle = self._handle(stream)
        made = self._allocated(outs, stream)
        addresses += [array.data.ptr for array in made]
        with self._lock:
            self._packed.point(addresses)
            self._enqueue(self._packed, handle)
        given = (*arrays, *outs, *made)
        if self._result >= 0:
            return given[self._result]
        return tuple(given[place] for place in self.loaded.results)

    def check_addresses(
        self, addresses: Sequence[int], arrays: Sequence[Array], outs: Sequence[Array]
    ) -> None:
        """Refuse what ``LoadedKernel.check_memory`` refuses, in half a microsecond where there is nothing.

        Raises:
            InputError: the message names the array and what would be right.
        """
        bits = 0
        for address in addresses:
            bits |= address
        wrong = bits & ALIGNED
        if outs and not wrong:
            for one, other, size, other_size in self._pairs:
                begin, other_begin = addresses[one], addresses[other]
                if begin < other_begin + other_size and other_begin < begin + size:
                    wrong = 1
        if wrong:
            self.loaded.check_memory(arrays, outs)

    def _handle(self, stream: Stream | None) -> int:
        if stream is None:
            return int(self._stream_of(self._device).ptr)
        return int(checked_stream(stream, self._device).ptr)

    def _allocated(self, outs: Sequence[Array], stream: Stream | None) -> list[Array]:
        """The outputs that are not given, and the scratch arrays, of the stream's own memory."""
        loaded = self.loaded
        wanted = loaded.scratch if outs or not loaded.outputs else (*loaded.outputs, *loaded.scratch)
        if not wanted:
            return []
        if stream is None:
            return loaded.allocated(self._cp, wanted)
        with stream:
            return loaded.allocated(self._cp, wanted)

    def _enqueue(self, packed: PackedRun, handle: int) -> None:
        self._tally.count += 1
        try:
            packed.enqueue(handle)
        except self._refusals as error:
            raise DeviceError(f"the GPU refuses the launch: {error}") from error


def _output_pairs(loaded: LoadedKernel) -> tuple[tuple[int, int, int, int], ...]:
    """Places and sizes of every output with each array before it: they must not share memory."""
    arrays = (*loaded.inputs, *loaded.outputs)
    return tuple(
        (one, other, arrays[one].nbytes, arrays[other].nbytes)
        for one in range(len(loaded.inputs), len(arrays))
        for other in range(one)
    )
