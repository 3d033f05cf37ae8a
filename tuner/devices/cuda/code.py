"""Kernels on the device: cubins loaded once, with the attributes and the grids that their stages ask for.

``DirectGpu`` is a GPU in this process, for arrays, streams and memory that belong to the caller.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np

from tuner.compiler import CompiledStage, Compiler
from tuner.compiler.compiler import plan_resources
from tuner.devices.cuda import probe
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
from tuner.devices.cuda.types import Array, CudaFunction
from tuner.errors import CompileError, DeviceError
from tuner.interfaces import Progress
from tuner.model import (
    BufferView,
    DeviceIdentity,
    DeviceLimits,
    Plan,
    Resources,
    Scalar,
    Stage,
    Status,
    TensorMap,
)

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
    """

    function: CudaFunction
    held: int | None


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

    def program(self, plan: Plan) -> Program:
        """A plan on the device, for any arrays.

        Raises:
            LaunchRefusedError: a stage does not compile, or asks for more than the device has.
        """
        own = {_key(stage): stage for stage in plan.stages if stage.library is None}
        for stage in plan.stages:
            if stage.library is None:
                self._fits(stage)
        self._load([stage for key, stage in own.items() if key not in self._functions])
        zeroed = tuple(buffer.name for buffer in plan.buffers if buffer.role == "zeroed")
        item_bytes = {buffer.name: np.dtype(buffer.dtype).itemsize for buffer in plan.buffers}
        stages = tuple(self._staged(stage, place, item_bytes) for place, stage in enumerate(plan.stages))
        program = Program(stages, zeroed, self._driver)
        while len(self._functions) > _KEPT:
            self._functions.popitem(last=False)
        return program

    def _staged(self, stage: Stage, place: int, item_bytes: Mapping[str, int]) -> LoadedStage | LibraryStage:
        order = (stage.stream, stage.after, place)
        if stage.library is not None:
            return LibraryStage(stage.name, stage.library, self._libraries, *order)
        key = _key(stage)
        loaded = self._functions[key]
        self._functions.move_to_end(key)
        return LoadedStage(
            stage.name,
            loaded.function,
            stage.grid if loaded.held is None else _cut(stage, loaded.held),
            stage.block,
            stage.shared_bytes,
            tuple(_argument(item, item_bytes) for item in stage.arguments),
            *order,
        )

    def _load(self, stages: Sequence[Stage]) -> None:
        if not stages:
            return
        for stage, compiled in zip(stages, self._compiler.compile(stages), strict=True):
            if isinstance(compiled, CompileError):
                raise LaunchRefusedError(Status.COMPILE_ERROR, str(compiled)) from compiled
            try:
                self._functions[_key(stage)] = self._loaded(stage, compiled)
            except (self._cp.cuda.driver.CUDADriverError, DriverCallError) as error:
                raise _refused(stage, f"cannot be loaded: {error}") from error

    def _loaded(self, stage: Stage, compiled: CompiledStage) -> _LoadedModule:
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
        if stage.cluster > 1:
            return _LoadedModule(function, self._held_in_clusters(stage, function))
        return _LoadedModule(function, self._held(stage, function) if stage.resident else None)

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
        return clusters * cluster if stage.resident else None

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


def _key(stage: Stage) -> tuple[object, ...]:
    """All that decides what is loaded, and how many of its blocks the device holds."""
    return (
        *(stage.source.sha256, stage.entry, stage.options),
        *(stage.shared_bytes, stage.block, stage.resident, stage.cluster),
    )


def _cut(stage: Stage, held: int) -> tuple[int, int, int]:
    """The grid, along x cut to what the device holds at the same time: whole clusters, and one at least."""
    x, y, z = stage.grid
    most = held // (y * z * stage.cluster) * stage.cluster
    return max(stage.cluster, min(x, most)), y, z


def _refused(stage: Stage, message: str) -> LaunchRefusedError:
    return LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {stage.name}: {message}")


def _argument(item: str | BufferView | Scalar | TensorMap, item_bytes: Mapping[str, int]) -> LoadedArgument:
    if isinstance(item, BufferView):
        return ArrayOffset(item.buffer, item.offset_elements * item_bytes[item.buffer])
    return np.dtype(item.dtype).type(item.value) if isinstance(item, Scalar) else item


class DirectGpu:
    """GPU ``index`` as the caller's CuPy has it; its context, streams and memory pool are left alone.

    Args:
        cp: CuPy.
        index: as CUDA counts.

    Raises:
        DeviceUnavailableError: the driver does not tell who the GPU is.
        CompilerUnavailableError: no NVRTC compiles for it.
    """

    def __init__(self, cp: ModuleType, index: int) -> None:
        self._cp = cp
        self.limits = probe.gpu_limits(cp, index)
        compiler = _BriefCompiler(self.limits.architecture)
        self._code = CodeCache(cp, compiler, self.limits)
        self.identity = DeviceIdentity(
            spec=f"cuda:{index}",
            name=probe.gpu_name(cp, index),
            uuid=probe.gpu_uuid(index),
            driver=probe.driver_version(cp),
            runtime=compiler.nvrtc_version,
            modelled=False,
        )

    def program(self, plan: Plan) -> Program:
        """The plan, compiled and loaded, for any arrays; the GPU must be current.

        Raises:
            CompileError: a stage does not compile.
            DeviceError: a stage asks for more than the GPU has.
        """
        try:
            return self._code.program(plan)
        except LaunchRefusedError as error:
            kind = CompileError if error.status is Status.COMPILE_ERROR else DeviceError
            raise kind(f"{plan.label()}: {error}") from error

    @contextmanager
    def compiling(self) -> Iterator["CompilingGpu"]:
        """The GPU for those who only compile, with children that end with the block."""
        with Compiler(self.limits.architecture) as compiler:
            yield CompilingGpu(self.identity, self.limits, compiler)


@dataclass(frozen=True)
class CompilingGpu:
    """As much of a ``tuner.interfaces.Device`` as candidates are compiled with."""

    identity: DeviceIdentity
    limits: DeviceLimits
    compiler: Compiler

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """See ``Device.resources``; nothing is loaded."""
        return plan_resources(self.compiler, plans, progress)


class _BriefCompiler:
    """Compiles in children that end with each call, so that none is left behind in a caller's program."""

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture
        with Compiler(architecture) as compiler:
            self.nvrtc_version = compiler.nvrtc_version

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        """See ``Compiler.compile``."""
        with Compiler(self._architecture) as compiler:
            return compiler.compile(stages)
