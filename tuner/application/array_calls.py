"""Calls on arrays of other libraries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tuner.application.borrowing import (
    BorrowedArray,
    TorchMemory,
    Value,
    borrow,
    borrowed_tensor,
    gpu_of,
    is_waited_for,
    on_host,
    torch_of,
    torch_streams,
)
from tuner.application.call_keys import ApplicationCall, Settings, asked_of
from tuner.application.keys import Array, Stream, checked_stream, examined
from tuner.application.running import WAITS, KernelRunner, LoadedKernel, is_captured, refuse_capture
from tuner.devices.cuda.lanes import stream_of
from tuner.model.errors import DeviceError, InputError


@dataclass(frozen=True)
class BorrowedCall:
    """A call on arrays of whatever libraries.

    If one is a torch tensor, PyTorch's current stream and allocator serve the call. Otherwise CuPy's do.
    Arrays of CuPy beside tensors are lent by CuPy's current stream, which is waited for and waits in turn.

    Attributes:
        cp: CuPy.
        torch: PyTorch; None where no array is a tensor.
        kernel: what messages call the kernel.
        device: number of the GPU of the first array.
        stream: where it runs, as CuPy's; None for CuPy's current one.
        arrays: the inputs.
        outs: the outputs that are given.
        lender: CuPy's current stream, where it lends arrays to the stream of the call.
    """

    cp: ModuleType
    torch: ModuleType | None
    kernel: str
    device: int
    stream: Stream | None
    arrays: tuple[BorrowedArray, ...]
    outs: tuple[BorrowedArray, ...] = ()
    lender: Stream | None = None

    def asked(self, configuration: Settings, sizes: Mapping[str, int | str]) -> ApplicationCall:
        """The arguments of the call, by its arrays."""
        return asked_of(self.kernel, self.arrays, self.outs, configuration, sizes)

    def run(self, runner: KernelRunner, *, given: bool) -> Any:  # noqa: ANN401 - arrays
        """Put a run into the stream of the call, and return what the caller gets.

        Args:
            runner: of the kernel.
            given: whether the outputs are those of the call.

        Raises:
            InputError: an output cannot be used, or shares memory with another array.
            DeviceError: memory runs out, or the driver refuses the launch.
        """
        lent = (*self.arrays, *self.outputs(runner.loaded, given=given))
        arrays = [one.array for one in lent]
        _, addresses = examined(arrays)
        runner.run(arrays, addresses, self.stream)
        self.give_back()
        return runner.results([self.returned(one) for one in lent])

    @contextmanager
    def computing(self) -> Iterator[Callable[[Array], Value]]:
        """Have functions of CuPy serve the call; what is yielded makes their arrays results of the call.

        Raises:
            DeviceError: the GPU has no room for what they allocate.
        """
        full: tuple[type[BaseException], ...] = (self.cp.cuda.memory.OutOfMemoryError,)
        try:
            with self.entered():
                if self.torch is None:
                    yield lambda array: self.returned(BorrowedArray(array, None, array.dtype.name))
                else:
                    full = (*full, self.torch.cuda.OutOfMemoryError)
                    memory = TorchMemory(self.cp, self.torch, self.device)
                    with self.cp.cuda.using_allocator(memory.allocate):
                        yield memory.tensor
        except full as error:
            raise DeviceError(f"{self.kernel}: copies and results do not fit on the GPU: {error}") from error
        finally:
            self.give_back()

    def give_back(self) -> None:
        """Have CuPy's current stream wait for the call where it lent arrays: to read, or to free them."""
        if self.lender is not None and self.stream is not None:
            with self.entered():
                self.lender.wait_event(self.stream.record())

    def outputs(self, loaded: LoadedKernel, *, given: bool) -> Sequence[BorrowedArray]:
        """The caller's outputs, or new ones of the library that serves the call.

        Raises:
            InputError: an output cannot be used; the message names it and what would be right.
            DeviceError: the GPU has no room for them.
        """
        if given:
            loaded.check_outputs([out.array for out in self.outs])
            return self.outs
        with self.entered():
            if self.torch is not None:
                return self._tensors(self.torch, loaded)
            made = loaded.allocated(self.cp, loaded.outputs)
        return [BorrowedArray(array, None, array.dtype.name) for array in made]

    def returned(self, one: BorrowedArray) -> Value:
        """An array as the caller gets it; a new one as the library of the first array has it, if it takes it.

        The library is told by DLPack, or the CUDA array interface, to wait for the stream of the call.
        It gets rows that are contiguous: JAX takes no columns.
        """
        if one.original is not None:
            return one.original
        first = self.arrays[0].original
        with self.entered():
            namespace = getattr(first, "__array_namespace__", None)
            take = None if namespace is None else getattr(namespace(), "from_dlpack", None)
            if take is not None and not isinstance(first, self.cp.ndarray):
                return take(self.cp.ascontiguousarray(one.array))
        return one.array

    def entered(self) -> AbstractContextManager[object]:
        """Make GPU and stream of the call CuPy's current ones: memory is then of this stream."""
        return entered(self.cp, self.device, self.stream)

    def _tensors(self, torch: ModuleType, loaded: LoadedKernel) -> list[BorrowedArray]:
        """New torch tensors, of the memory of the stream of the call."""
        on = torch.device("cuda", self.device)
        try:
            with self._torch_stream(torch):
                made = [
                    torch.empty(output.shape, dtype=getattr(torch, output.element), device=on)
                    for output in loaded.outputs
                ]
        except AttributeError as error:
            raise InputError(f"{self.kernel}: this release of PyTorch lacks a type: {error}") from error
        except torch.cuda.OutOfMemoryError as error:
            raise DeviceError(f"{self.kernel}: outputs do not fit: {error}") from error
        return [borrowed_tensor(self.cp, tensor) for tensor in made]

    def _torch_stream(self, torch: ModuleType) -> AbstractContextManager[object]:
        """Make the stream of the call PyTorch's current one, where it is not."""
        handle = 0 if self.stream is None else self.stream.ptr
        if torch_streams(torch)(self.device) == handle:
            return nullcontext()
        default = torch.cuda.default_stream(self.device)
        named = torch.cuda.ExternalStream(handle, device=self.device) if handle else default
        entering: AbstractContextManager[object] = torch.cuda.stream(named)
        return entering


def borrowed_call(
    cp: ModuleType,
    kernel: str,
    arrays: Sequence[tuple[str, Value, bool]],
    outs: Sequence[Value],
    stream: Stream | None,
    *,
    refused: str = "",
) -> BorrowedCall:
    """A call on arrays of whatever libraries.

    Args:
        cp: CuPy.
        kernel: what messages call the kernel.
        arrays: the inputs: what messages call one, the array, and whether the kernel writes it.
        outs: the outputs that are given.
        stream: None for the current one of the library that serves the call.
        refused: why no current stream may be captured; empty where that depends on the arrays.

    Raises:
        InputError: an array or the stream cannot be used, or the stream is being captured; the message names
            what, and what would be right.
    """
    values = [value for _, value, _ in arrays]
    device, torch = gpu_of(cp, values[0]), torch_of([one for one in (*values, *outs) if not on_host(one)])
    on = None
    if stream is not None:
        on = checked_stream(cp, stream, device)
    elif torch is not None:
        on = torch_stream(cp, torch, device)
    given, current, lender = (*values, *outs), None, None
    lends = stream is None and on is not None and any(isinstance(value, cp.ndarray) for value in given)
    if refused or lends:
        with cp.cuda.Device(device):
            current = cp.cuda.get_current_stream(device)
    with entered(cp, device, on):
        if refused:
            refuse_capture(cp, kernel, current, device, refused)
        if refused or any(is_waited_for(cp, value) for value in given):
            refuse_capture(cp, kernel, on, device, refused or WAITS)
        if lends:
            lender = _waited_lender(cp, kernel, device, current, on)
        lent = tuple(borrow(cp, kernel, name, one, written=written) for name, one, written in arrays)
        lent_outs = tuple(borrow(cp, kernel, "out", out, written=True) for out in outs)
    return BorrowedCall(cp, torch, kernel, device, on, lent, lent_outs, lender)


def _waited_lender(
    cp: ModuleType, kernel: str, device: int, current: Stream, stream: Stream
) -> Stream | None:
    """CuPy's current stream, once that of the call waits for it; None where the two are in order already.

    Launches in a graph read arrays when it is replayed, in the order that its owner gives it.

    Raises:
        InputError: CuPy's current stream alone is being captured: the other one would be, too.
    """
    if current.ptr == stream.ptr or is_captured(cp, stream.ptr):
        return None
    refuse_capture(cp, kernel, current, device, WAITS)
    stream.wait_event(current.record())
    return current


def torch_stream(cp: ModuleType, torch: ModuleType, device: int) -> Stream:
    """PyTorch's current stream of a GPU as CuPy's."""
    with cp.cuda.Device(device):
        return stream_of(cp, torch_streams(torch)(device))


@contextmanager
def entered(cp: ModuleType, device: int, stream: Stream | None) -> Iterator[None]:
    """Make a GPU, and a stream of it unless None, CuPy's current ones."""
    with cp.cuda.Device(device), nullcontext() if stream is None else stream:
        yield
