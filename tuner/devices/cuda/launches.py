"""One run of a plan in a stream: clearing of buffers, then the launches of its stages."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.types import Array, CudaFunction, Stream
from tuner.errors import DeviceError
from tuner.model import Status, TensorMap


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
    """One kernel launch with its arguments, to be put into any stream."""

    function: CudaFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[object, ...]

    def enqueue(self, stream: Stream | None) -> None:
        """Put the launch into a stream; None is CuPy's current one."""
        self.function(self.grid, self.block, self.arguments, shared_mem=self.shared_bytes, stream=stream)

    @property
    def identity(self) -> Hashable:
        """Equal for launches of one function, while it is loaded, that do the same to the same memory."""
        return (
            self.function.ptr,
            self.grid,
            self.block,
            self.shared_bytes,
            tuple(_identity(argument) for argument in self.arguments),
        )


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


Step = Launch | Clearing
"""One piece of work of a run."""


def _identity(argument: Any) -> Hashable:  # noqa: ANN401 - a pointer of CuPy's, or what NumPy holds
    """An address, or the bytes of a value."""
    return argument.ptr if hasattr(argument, "ptr") else (argument.dtype.str, argument.tobytes())


@dataclass(frozen=True)
class LoadedStage:
    """A stage on the device that lacks only its arrays.

    Attributes:
        grid: blocks that are launched; of a resident stage, those the device holds.
        arguments: names of buffers, NumPy scalars, tensor maps.
    """

    name: str
    function: CudaFunction
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple["str | np.generic[Any] | TensorMap", ...]

    def bound(self, arrays: Mapping[str, Array], driver: DriverCalls) -> Launch:
        """The launch on some arrays.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its array.
        """
        arguments = tuple(self._argument(item, arrays, driver) for item in self.arguments)
        return Launch(self.function, self.grid, self.block, self.shared_bytes, arguments)

    def _argument(
        self, item: "str | np.generic[Any] | TensorMap", arrays: Mapping[str, Array], driver: DriverCalls
    ) -> object:
        if isinstance(item, str):
            return arrays[item].data
        if not isinstance(item, TensorMap):
            return item
        try:
            return driver.tensor_map(arrays[item.buffer].data.ptr, item)
        except DriverCallError as error:
            raise LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {self.name}: {error}") from error


@dataclass(frozen=True)
class Program:
    """A plan on the device that lacks only its arrays.

    Attributes:
        zeroed: buffers that are set to zero before every run.
    """

    stages: tuple[LoadedStage, ...]
    zeroed: tuple[str, ...]
    driver: DriverCalls

    def bound(self, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """One run on some arrays, in order.

        Raises:
            LaunchRefusedError: a tensor map cannot be made of its array.
        """
        return (
            *(Clearing(arrays[name]) for name in self.zeroed),
            *(stage.bound(arrays, self.driver) for stage in self.stages),
        )
