"""One run of a plan: clearing of buffers, then the launches of its stages, in one stream or several."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Union

import numpy as np
from numpy.typing import NDArray

from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.types import Array, CudaFunction, Stream
from tuner.model.arguments import TensorMap
from tuner.model.chains import LibraryCall
from tuner.model.errors import DeviceError
from tuner.model.trial import Status


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
"""What a stage puts into a stream."""

Step = StageLaunch | Clearing | Restoring | SymbolCopy
"""One piece of work of a run."""


def has_host_stage(steps: Iterable[Step]) -> bool:
    """True when the thread that puts the steps into streams computes some of them."""
    return any(isinstance(step, LibraryLaunch) and step.call.on_host for step in steps)


class Libraries(Protocol):
    """Makes calls of libraries ready (``tuner.devices.cuda.libraries`` does)."""

    def bound(self, call: LibraryCall, arrays: Mapping[str, Array], side: int) -> LibraryLaunch:
        """A call on some arrays."""


def _identity(argument: Any) -> Hashable:  # noqa: ANN401 - a pointer of CuPy's, or what NumPy holds
    """An address, or the bytes of a value."""
    return argument.ptr if hasattr(argument, "ptr") else (argument.dtype.str, argument.tobytes())


@dataclass(frozen=True)
class ArrayOffset:
    """An array from one of its bytes on, as an argument."""

    buffer: str
    offset_bytes: int


LoadedArgument = Union[str, ArrayOffset, "np.generic[Any]", "NDArray[Any]", TensorMap]
"""The name of a buffer, a part of one, a NumPy scalar, an array without axes, or a tensor map."""


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
        if not isinstance(item, TensorMap):
            return item
        try:
            return driver.tensor_map(arrays[item.buffer].data.ptr, item)
        except DriverCallError as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {self.name}: {error}") from error


@dataclass(frozen=True)
class LibraryStage:
    """A stage that a library runs and that lacks only its arrays; the last fields as of ``LoadedStage``."""

    name: str
    call: LibraryCall
    libraries: Libraries
    side: int = 0
    after: tuple[int, ...] = ()
    place: int = 0

    def bound(self, arrays: Mapping[str, Array], driver: DriverCalls) -> LibraryLaunch:
        """The call on some arrays."""
        del driver
        made = self.libraries.bound(self.call, arrays, self.side)
        return replace(made, side=self.side, after=self.after, place=self.place)


@dataclass(frozen=True)
class Program:
    """A plan on the device that lacks only its arrays.

    Attributes:
        stages: what every run launches.
        zeroed: buffers that are set to zero before every run.
        setup: stages that are launched once for the arrays, before runs.
        symbols: variables that are filled before runs.
    """

    stages: tuple[LoadedStage | LibraryStage, ...]
    zeroed: tuple[str, ...]
    driver: DriverCalls
    setup: tuple[LoadedStage | LibraryStage, ...] = ()
    symbols: tuple[SymbolAddress, ...] = ()

    def prepared(self, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """What comes before runs on some arrays, in order; set-up stages find ``zeroed`` arrays cleared.

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
