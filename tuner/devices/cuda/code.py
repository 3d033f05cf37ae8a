"""Kernels on the device: cubins loaded once, bound to arrays, ready to launch."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from tuner.compiler import Compiler
from tuner.devices.cuda.types import Array, Function, Stream
from tuner.errors import CompileError, DeviceError
from tuner.model import DeviceLimits, Plan, Scalar, Stage, Status

_KEPT = 512  # loaded functions; a module takes tens of kilobytes of device memory
_SHARED_WITHOUT_ASKING = 48 * 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)


class RefusedError(DeviceError):
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

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[object, ...]

    def enqueue(self, stream: Stream) -> None:
        """Put the launch into a stream."""
        self.function(self.grid, self.block, self.arguments, shared_mem=self.shared_bytes, stream=stream)


class CodeCache:
    """Functions of plans, compiled through the disk cache and loaded onto the device once."""

    def __init__(self, cp: ModuleType, compiler: Compiler, limits: DeviceLimits) -> None:
        self._cp = cp
        self._compiler = compiler
        self._limits = limits
        self._functions: OrderedDict[tuple[object, ...], Function] = OrderedDict()

    def launches(self, plan: Plan, arrays: Mapping[str, Array]) -> tuple[Launch, ...]:
        """The launches of one run of a plan on one set of arrays, in the order of its stages.

        Raises:
            RefusedError: a stage does not compile, or asks for more than the device has.
        """
        return tuple(self._launch(stage, arrays) for stage in plan.stages)

    def _launch(self, stage: Stage, arrays: Mapping[str, Array]) -> Launch:
        arguments = tuple(_argument(item, arrays) for item in stage.arguments)
        return Launch(self._function(stage), stage.grid, stage.block, stage.shared_bytes, arguments)

    def _function(self, stage: Stage) -> Function:
        key = (stage.source.sha256, stage.entry, stage.options, stage.shared_bytes)
        function = self._functions.get(key)
        if function is None:
            function = self._load(stage)
            self._functions[key] = function
            if len(self._functions) > _KEPT:
                self._functions.popitem(last=False)
        self._functions.move_to_end(key)
        self._fits(stage)
        return function

    def _load(self, stage: Stage) -> Function:
        try:
            compiled = self._compiler.compile_one(stage)
        except CompileError as error:
            raise RefusedError(Status.COMPILE_ERROR, str(error)) from error
        driver = self._cp.cuda.driver
        try:
            module = self._cp.cuda.function.Module()
            module.load(compiled.cubin)
            function: Function = module.get_function(compiled.lowered_name)
            if stage.shared_bytes + compiled.resources.static_shared_bytes > _SHARED_WITHOUT_ASKING:
                attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.funcSetAttribute(function.ptr, attribute, stage.shared_bytes)
        except driver.CUDADriverError as error:
            raise _refused(f"stage {stage.name}: cannot be loaded: {error}") from error
        return function

    def _fits(self, stage: Stage) -> None:
        """Refuse what the driver would only call an invalid value (a grid too large is even cut silently)."""
        if any(not 1 <= blocks <= most for blocks, most in zip(stage.grid, _MAX_GRID, strict=True)):
            raise _refused(f"stage {stage.name}: grid {stage.grid} is not within 1 … {_MAX_GRID}")
        threads = math.prod(stage.block)
        if not 1 <= threads <= self._limits.max_threads_per_block:
            raise _refused(
                f"stage {stage.name}: {threads} threads per block;"
                f" the device takes 1 … {self._limits.max_threads_per_block}"
            )
        if stage.shared_bytes > self._limits.shared_bytes_per_block:
            raise _refused(
                f"stage {stage.name}: {stage.shared_bytes} bytes of shared memory per block;"
                f" the device has {self._limits.shared_bytes_per_block}"
            )


def _refused(message: str) -> RefusedError:
    return RefusedError(Status.LAUNCH_ERROR, message)


def _argument(item: str | Scalar, arrays: Mapping[str, Array]) -> object:
    if isinstance(item, Scalar):
        return np.dtype(item.dtype).type(item.value)
    return arrays[item].data
