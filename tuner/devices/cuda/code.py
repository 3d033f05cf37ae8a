"""Kernels on the device: cubins loaded once, with the attributes and the grids that their stages ask for."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Protocol

import numpy as np

from tuner.compiler.compiler import CompiledStage
from tuner.compiler.contract import misfit
from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.launches import (
    ArrayOffset,
    LaunchRefusedError,
    LibraryStage,
    LoadedArgument,
    LoadedStage,
    Program,
    Step,
)
from tuner.devices.cuda.libraries import GpuLibraries
from tuner.devices.cuda.loading import LoadedFunction, StageLoader, refused
from tuner.devices.cuda.types import Array
from tuner.model.arguments import Scalar, StructValue
from tuner.model.chains import BufferView
from tuner.model.device import DeviceLimits
from tuner.model.elements import element_dtype, scalar_value
from tuner.model.errors import CompileError
from tuner.model.plan import Plan, Stage, StageArgument, Workload
from tuner.model.trial import Flag, Status

_KEPT = 512  # loaded functions; a module takes tens of kilobytes of device memory


class StageCompiler(Protocol):
    """Compiles the stages of a plan together (``tuner.compiler.compiler.Compiler`` does)."""

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        """For each stage, in order, the code or the error."""


class CodeCache:
    """Functions of plans, compiled through the disk cache and loaded onto the device once.

    Args:
        cp: CuPy, with the device current whenever a method is called.
        compiler: compiles for the device.
        limits: of the device.
        driver: the calls of the driver that CuPy lacks; those of the system if not given.
    """

    def __init__(
        self,
        cp: ModuleType,
        compiler: StageCompiler,
        limits: DeviceLimits,
        driver: DriverCalls | None = None,
    ) -> None:
        self._cp = cp
        self._compiler = compiler
        self._limits = limits
        self._driver = driver or DriverCalls()
        self._loader = StageLoader(cp, limits, self._driver)
        self._functions: OrderedDict[tuple[object, ...], LoadedFunction] = OrderedDict()
        self._libraries = GpuLibraries(cp)

    def launches(self, plan: Plan, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """One run of a plan on one set of arrays, in order.

        Raises:
            LaunchRefusedError: a stage does not compile, or asks for more than the device has.
        """
        return self.program(plan).bound(arrays)

    def preparation(self, plan: Plan, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """What comes before runs of a plan on a set of arrays: variables are filled, set-up stages launched.

        Raises:
            LaunchRefusedError: as ``program``.
        """
        if not any(stage.symbols or stage.setup for stage in plan.stages):
            return ()
        return self.program(plan).prepared(arrays)

    def flags(self, plan: Plan) -> tuple[Flag, ...]:
        """What should be told of how a plan runs."""
        return self._libraries.flags(stage.library for stage in plan.stages if stage.library is not None)

    def program(self, plan: Plan) -> Program:
        """A plan on the device, for any arrays.

        Raises:
            LaunchRefusedError: a stage does not compile, or asks for more than the device has.
        """
        own = {_key(stage, plan.workload): stage for stage in plan.stages if stage.library is None}
        for stage in plan.stages:
            if stage.library is None:
                self._loader.check(stage)
        self._load(plan, {key: stage for key, stage in own.items() if key not in self._functions})
        zeroed = tuple(buffer.name for buffer in plan.buffers if buffer.role == "zeroed")
        program = Program(
            tuple(self._staged(place, plan) for place in plan.timed),
            zeroed,
            self._driver,
            setup=tuple(self._staged(place, plan) for place, stage in enumerate(plan.stages) if stage.setup),
            symbols=tuple(symbol for key in own for symbol in self._functions[key].symbols),
        )
        while len(self._functions) > _KEPT:
            self._functions.popitem(last=False)
        return program

    def _staged(self, place: int, plan: Plan) -> LoadedStage | LibraryStage:
        stage = plan.stages[place]
        order = (stage.stream, tuple(one for one in stage.after if not plan.stages[one].setup), place)
        if stage.library is not None:
            return LibraryStage(stage.name, stage.library, self._libraries, *order)
        key = _key(stage, plan.workload)
        loaded = self._functions[key]
        self._functions.move_to_end(key)
        if stage.cooperative and not stage.resident and loaded.held is not None:
            self._check_held(stage, loaded.held)
        item_bytes = {buffer.name: element_dtype(buffer.dtype).itemsize for buffer in plan.buffers}
        return LoadedStage(
            stage.name,
            loaded.function,
            _cut(stage, loaded.held) if stage.resident and loaded.held is not None else stage.grid,
            stage.block,
            stage.shared_bytes,
            tuple(_argument(item, item_bytes) for item in stage.arguments),
            *order,
            stage.cooperative,
        )

    def _load(self, plan: Plan, missing: Mapping[tuple[object, ...], Stage]) -> None:
        if not missing:
            return
        stages = list(missing.values())
        for (key, stage), compiled in zip(missing.items(), self._compiler.compile(stages), strict=True):
            if isinstance(compiled, CompileError):
                raise LaunchRefusedError(Status.COMPILE_ERROR, str(compiled)) from compiled
            text = misfit(plan, stage, compiled)
            if text:
                raise refused(stage, text)
            try:
                self._functions[key] = self._loader.loaded(stage, compiled, plan.buffers)
            except (self._cp.cuda.driver.CUDADriverError, DriverCallError) as error:
                raise refused(stage, f"cannot be loaded: {error}") from error

    def _check_held(self, stage: Stage, held: int) -> None:
        """Refuse a cooperative grid that is not on the device as a whole.

        Raises:
            LaunchRefusedError: it is not; the message has the numbers.
        """
        if stage.blocks > held:
            raise refused(
                stage,
                f"a cooperative grid of {stage.blocks} blocks is more than the {held} that the device holds"
                f" at a time ({self._limits.multiprocessors} multiprocessors); resident = true cuts it",
            )


def _key(stage: Stage, workload: Workload) -> tuple[object, ...]:
    """All that decides what is loaded, and how many of its blocks the device holds.

    Variables hold what is the workload's own.
    """
    return (
        *(stage.source.sha256, stage.entry, stage.options),
        *(stage.shared_bytes, stage.block, stage.resident or stage.cooperative, stage.cluster),
        *((stage.symbols, workload) if stage.symbols else ()),
    )


def _cut(stage: Stage, held: int) -> tuple[int, int, int]:
    """The grid, along x cut to what the device holds at the same time: whole clusters, and one at least."""
    x, y, z = stage.grid
    most = held // (y * z * stage.cluster) * stage.cluster
    return max(stage.cluster, min(x, most)), y, z


def _argument(item: StageArgument, item_bytes: Mapping[str, int]) -> LoadedArgument:
    if isinstance(item, BufferView):
        return ArrayOffset(item.buffer, item.offset_elements * item_bytes[item.buffer])
    if isinstance(item, StructValue):  # an array without axes is passed by value, whatever its size
        return np.array(np.void(item.bytes))
    return scalar_value(item) if isinstance(item, Scalar) else item
