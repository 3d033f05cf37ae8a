"""Kernels on the device: cubins loaded once, with the attributes and the grids that their stages ask for."""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np

from tuner.compiler import CompiledStage
from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.devices.cuda.launches import (
    ArrayOffset,
    LaunchRefusedError,
    LibraryStage,
    LoadedArgument,
    LoadedStage,
    Program,
    Step,
    SymbolAddress,
)
from tuner.devices.cuda.libraries import GpuLibraries
from tuner.devices.cuda.types import Array, CudaFunction
from tuner.errors import CompileError
from tuner.model import (
    BufferView,
    DeviceLimits,
    Plan,
    Scalar,
    Stage,
    StageArgument,
    Status,
    StructValue,
    TensorMap,
    Workload,
)
from tuner.model.elements import element_dtype, scalar_value

_KEPT = 512  # loaded functions; a module takes tens of kilobytes of device memory
_SHARED_WITHOUT_ASKING = 48 * 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)
_CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it
_PORTABLE_CLUSTER = 8

# CUfunction_attribute of cuda.h, where CuPy has no name for it
_REQUIRED_CLUSTER_WIDTH = 11
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15
_LOAD_BALANCING = 2  # CUclusterSchedulingPolicy


class StageCompiler(Protocol):
    """Compiles the stages of a plan together (``tuner.compiler.Compiler`` does)."""

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        """For each stage, in order, the code or the error."""


@dataclass(frozen=True)
class _LoadedModule:
    """A function on the device.

    Attributes:
        held: blocks of a stage that the device holds at the same time; None where the stage does not ask.
        symbols: variables that arrays are copied to.
    """

    function: CudaFunction
    held: int | None
    symbols: tuple[SymbolAddress, ...] = ()


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
        self._functions: OrderedDict[tuple[object, ...], _LoadedModule] = OrderedDict()
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

    def program(self, plan: Plan) -> Program:
        """A plan on the device, for any arrays.

        Raises:
            LaunchRefusedError: a stage does not compile, or asks for more than the device has.
        """
        own = {_key(stage, plan.workload): stage for stage in plan.stages if stage.library is None}
        for stage in plan.stages:
            if stage.library is None:
                self._fits(stage)
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
            try:
                self._functions[key] = self._loaded(stage, compiled, plan)
            except (self._cp.cuda.driver.CUDADriverError, DriverCallError) as error:
                raise _refused(stage, f"cannot be loaded: {error}") from error

    def _loaded(self, stage: Stage, compiled: CompiledStage, plan: Plan) -> _LoadedModule:
        driver = self._cp.cuda.driver
        shared_bytes = stage.shared_bytes + compiled.resources.static_shared_bytes
        if shared_bytes > self._limits.shared_bytes_per_block:
            raise _refused(
                stage,
                f"{shared_bytes} bytes of shared memory per block;"
                f" the device has {self._limits.shared_bytes_per_block}",
            )
        module = self._cp.cuda.function.Module()
        module.load(compiled.cubin)
        function: CudaFunction = module.get_function(compiled.lowered_name)
        if shared_bytes > _SHARED_WITHOUT_ASKING:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, attribute, stage.shared_bytes)
        symbols = self._symbols(stage, module.ptr, compiled, plan) if stage.symbols else ()
        if stage.cluster > 1:
            return _LoadedModule(function, self._held_in_clusters(stage, function), symbols)
        asks = stage.resident or stage.cooperative
        return _LoadedModule(function, self._held(stage, function) if asks else None, symbols)

    def _symbols(
        self, stage: Stage, module: int, compiled: CompiledStage, plan: Plan
    ) -> tuple[SymbolAddress, ...]:
        """Where the variables of a module are, when they hold the arrays that they are filled from."""
        found = []
        for (name, buffer), lowered in zip(stage.symbols, compiled.symbols, strict=True):
            array = next(one for one in plan.buffers if one.name == buffer)
            address, size = self._driver.variable(module, lowered)
            wanted = array.elements * element_dtype(array.dtype).itemsize
            if size < wanted:
                raise _refused(
                    stage,
                    f"{stage.source.path}: the variable {name} has {size} bytes, and the argument {buffer}"
                    f" that fills it has {wanted} ({array.dtype} of shape {array.shape})",
                )
            found.append(SymbolAddress(buffer, address, wanted))  # from its beginning on
        return tuple(found)

    def _check_held(self, stage: Stage, held: int) -> None:
        """Refuse a cooperative grid that is not on the device as a whole.

        Raises:
            LaunchRefusedError: it is not; the message has the numbers.
        """
        if stage.blocks > held:
            raise _refused(
                stage,
                f"a cooperative grid of {stage.blocks} blocks is more than the {held} that the device holds"
                f" at a time ({self._limits.multiprocessors} multiprocessors); resident = true cuts it",
            )

    def _held(self, stage: Stage, function: CudaFunction) -> int:
        threads = stage.threads_per_block
        per_sm: int = self._cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.ptr, threads, stage.shared_bytes
        )
        if per_sm < 1:
            raise _refused(stage, f"no block of {threads} threads fits on a multiprocessor")
        return per_sm * self._limits.multiprocessors

    def _held_in_clusters(self, stage: Stage, function: CudaFunction) -> int | None:
        """Ask for clusters, and make sure that the device has room for one."""
        driver, cluster = self._cp.cuda.driver, stage.cluster
        declared = driver.funcGetAttribute(_REQUIRED_CLUSTER_WIDTH, function.ptr)
        if declared != cluster:
            raise _refused(stage, f"clusters of {cluster}, and the source has __cluster_dims__({declared})")
        if cluster > _PORTABLE_CLUSTER:
            driver.funcSetAttribute(function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        driver.funcSetAttribute(function.ptr, _CLUSTER_SCHEDULING_POLICY_PREFERENCE, _LOAD_BALANCING)
        clusters = self._driver.max_active_clusters(function.ptr, stage.block, stage.shared_bytes, cluster)
        if clusters < 1:
            raise _refused(
                stage,
                f"no cluster of {cluster} blocks of {stage.threads_per_block} threads and"
                f" {stage.shared_bytes} bytes of dynamic shared memory fits on the device",
            )
        return clusters * cluster if stage.resident or stage.cooperative else None

    def _fits(self, stage: Stage) -> None:
        """Refuse what the driver would only call an invalid value (a grid too large is even cut silently)."""
        major, minor = self._limits.compute_capability
        needed = stage.min_architecture
        if stage.cluster > 1 or any(isinstance(item, TensorMap) for item in stage.arguments):
            needed = max(needed, _CLUSTER_ARCHITECTURE)
        if 10 * major + minor < needed:
            raise _refused(
                stage,
                f"needs compute capability {needed // 10}.{needed % 10}; the device has {major}.{minor}",
            )
        if any(not 1 <= blocks <= most for blocks, most in zip(stage.grid, _MAX_GRID, strict=True)):
            raise _refused(stage, f"grid {stage.grid} is not within 1 … {_MAX_GRID}")
        if stage.grid[0] % stage.cluster:
            raise _refused(
                stage, f"a grid of {stage.grid[0]} blocks is not made of clusters of {stage.cluster}"
            )
        threads = math.prod(stage.block)
        if not 1 <= threads <= self._limits.max_threads_per_block:
            raise _refused(
                stage,
                f"{threads} threads per block; the device takes 1 … {self._limits.max_threads_per_block}",
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


def _refused(stage: Stage, message: str) -> LaunchRefusedError:
    return LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {stage.name}: {message}")


def _argument(item: StageArgument, item_bytes: Mapping[str, int]) -> LoadedArgument:
    if isinstance(item, BufferView):
        return ArrayOffset(item.buffer, item.offset_elements * item_bytes[item.buffer])
    if isinstance(item, StructValue):  # an array without axes is passed by value, whatever its size
        return np.array(np.void(item.bytes))
    return scalar_value(item) if isinstance(item, Scalar) else item
