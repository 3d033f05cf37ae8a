"""Code on the device: loaded cubins, and stages of cuBLAS, cuFFT and LAPACK."""

import ctypes
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from tuner.compiler.compiler import CompiledStage
from tuner.compiler.contract import misfit
from tuner.devices.cuda.driver import Array, CudaFunction, DriverCallError, DriverCalls, Stream
from tuner.devices.cuda.launches import (
    ArrayOffset,
    HostLapack,
    LaunchRefusedError,
    LibraryLaunch,
    LibraryStage,
    LoadedArgument,
    LoadedStage,
    Program,
    ScratchMemory,
    Step,
    SymbolAddress,
)
from tuner.model.elements import element_dtype, scalar_value
from tuner.model.errors import CompileError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import (
    Buffer,
    BufferView,
    LibraryCall,
    Plan,
    Resources,
    Scalar,
    Scratch,
    Stage,
    StageArgument,
    StructValue,
    Workload,
)
from tuner.model.trial import Flag, Status
from tuner.space.occupancy import refusal

# --- The calls of cuBLAS that stages make, past CuPy: CuPy refuses them while a stream is captured.
#
# The library is the one that CuPy has loaded. Names and numbers are those of ``cublas_api.h``.

WORKSPACE_BYTES = 32 * 2**20
"""Of a stream; what NVIDIA recommends for Hopper GPUs."""

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_FILL = {"lower": 0, "upper": 1}
_SIDE = {"left": 0, "right": 1}
_DEFAULT_MATH = 0
_LETTER = {"float32": "S", "float64": "D"}
_MAPS = Path("/proc/self/maps")


class Cublas:
    """A handle of this process's own, in the default math mode: float32 is computed without TF32.

    Every stream has a workspace of its own, so that calls in several streams share none. Threads take turns.

    Raises:
        ImportError: CuPy finds no cuBLAS.
    """

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        handle = cp.cuda.cublas.create()  # loads the library
        cp.cuda.cublas.setMathMode(handle, _DEFAULT_MATH)
        self._handle = ctypes.c_void_p(handle)
        self._library = loaded_library()
        self._workspaces: dict[int, Array] = {}
        self._lock = threading.Lock()  # the handle has one stream at a time

    def action(
        self, call: LibraryCall, addresses: Mapping[str, int], workspace: int | None = None
    ) -> Callable[[Stream | None], None]:
        """Return the function that puts a call into a stream, None for CuPy's current one.

        Args:
            call: of gemm, syrk or trsm.
            addresses: of the operands, by letter.
            workspace: address of ``WORKSPACE_BYTES`` that no other call uses meanwhile; None for that of the
                stream, which graphs must not outlive.
        """
        function = getattr(self._library, f"cublas{_LETTER[call.dtype]}{call.routine}_v2")
        factors = np.array([call.alpha, call.beta], call.dtype)  # cuBLAS reads them when it is called
        alpha = factors.ctypes.data
        arguments = _arguments(call, addresses, alpha, alpha + factors.itemsize)

        def put(stream: Stream | None) -> None:
            with self._lock:
                self._use(self._cp.cuda.get_current_stream() if stream is None else stream, workspace)
                _checked(call.routine, function(self._handle, *arguments), factors)

        return put

    def _use(self, stream: Stream, workspace: int | None) -> None:
        """Have the next call run in a stream, with a workspace."""
        if workspace is None:
            array = self._workspaces.get(stream.ptr)
            if array is None:
                array = self._workspaces[stream.ptr] = self._cp.empty(WORKSPACE_BYTES, dtype="uint8")
            workspace = int(array.data.ptr)
        _checked("set stream", self._library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream.ptr)))
        size, address = ctypes.c_size_t(WORKSPACE_BYTES), ctypes.c_void_p(workspace)
        _checked("set workspace", self._library.cublasSetWorkspace_v2(self._handle, address, size))


def loaded_library() -> ctypes.CDLL:
    """The cuBLAS that this process has loaded.

    Raises:
        ImportError: it has loaded none.
    """
    for line in _MAPS.read_text().splitlines():
        path = line.rpartition(" ")[2]
        if path.rpartition("/")[2].startswith("libcublas.so"):
            return ctypes.CDLL(path)
    raise ImportError("libcublas.so is not among the libraries of this process")


def _checked(what: str, status: int, *operands: object) -> None:
    """Refuse what did not succeed; ``operands`` live until the call has returned."""
    del operands
    if status:
        raise LaunchRefusedError(
            Status.LAUNCH_ERROR, f"cuBLAS: {what} ends with status {status} (cublasStatus_t)"
        )


def _arguments(call: LibraryCall, addresses: Mapping[str, int], alpha: int, beta: int) -> tuple[Any, ...]:
    """The arguments of a routine behind its handle."""
    alpha_at, beta_at = ctypes.c_void_p(alpha), ctypes.c_void_p(beta)
    at = {letter: ctypes.c_void_p(address) for letter, address in addresses.items()}
    leading = {letter: operand.leading for letter, operand in call.operands}
    turned = {
        letter: _TRANSPOSE if operand.transposed else _NO_TRANSPOSE for letter, operand in call.operands
    }
    if call.routine == "gemm":
        matrices = (alpha_at, at["a"], leading["a"], at["b"], leading["b"], beta_at, at["c"], leading["c"])
        return (turned["a"], turned["b"], call.m, call.n, call.k, *matrices)
    if call.routine == "syrk":
        form = (_FILL[call.fill], turned["a"], call.n, call.k)
        return (*form, alpha_at, at["a"], leading["a"], beta_at, at["c"], leading["c"])
    form = (_SIDE[call.side], _FILL[call.fill], turned["a"], int(call.unit))
    return (*form, call.m, call.n, alpha_at, at["a"], leading["a"], at["b"], leading["b"])


# --- Stages that cuBLAS and cuFFT run, which CuPy finds and loads, and those of LAPACK on the host.

# cufft.h
_TRANSFORM = {"complex64": 0x29, "complex128": 0x69}
_FORWARD, _INVERSE = -1, 1


def workspaces(program: Program) -> dict[str, int]:
    """Arrays that the calls of a program work in where they are among its arrays: bytes by name.

    Calls that share none may run at the same time, whatever streams they are in.
    """
    called = [stage for stage in program.stages if isinstance(stage, LibraryStage)]
    sides = {stage.side for stage in called if stage.call.routine != "fft" and not stage.call.on_host}
    return {workspace_name(side): WORKSPACE_BYTES for side in sorted(sides)}


def workspace_name(side: int) -> str:
    """Name of the array that calls in a stream of the workload work in; no kernel file has it."""
    return f"cuBLAS workspace {side}"


@dataclass(frozen=True)
class _Matrix:
    """Array as cuFFT takes it: its pointer."""

    data: Any


class GpuLibraries:
    """Makes calls of libraries ready.

    Args:
        cp: CuPy, with the device current whenever a method is called.
    """

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        self._blas: Cublas | None = None
        self._lapack: HostLapack | None = None
        self._transforms: dict[tuple[object, ...], Any] = {}

    def flags(self, calls: Iterable[LibraryCall]) -> tuple[Flag, ...]:
        """Return the flags of the calls that run on the host."""
        flags = (self._on_host().flag(call) for call in calls if call.on_host)
        return tuple(dict.fromkeys(flag for flag in flags if flag is not None))

    def bound(self, call: LibraryCall, arrays: Mapping[str, Array], side: int) -> LibraryLaunch:
        """A call on some arrays.

        Args:
            call: what is computed.
            arrays: by name, those of ``workspaces`` or not among them.
            side: the stream of the workload it runs in; transforms of two streams share no workspace.

        Raises:
            LaunchRefusedError: the library is not installed, or does not have the threads of the CPU.
        """
        pointers = {
            letter: arrays[operand.buffer].data
            + operand.offset_elements * arrays[operand.buffer].dtype.itemsize
            for letter, operand in call.operands
        }
        addresses = {letter: int(pointer.ptr) for letter, pointer in pointers.items()}
        try:
            if call.routine == "fft":
                run = self._transform(call, pointers, side)
            elif call.on_host:
                run = self._on_host().action(call, addresses)
            else:
                self._blas = self._blas or Cublas(self._cp)
                workspace = arrays.get(workspace_name(side))
                address = None if workspace is None else int(workspace.data.ptr)
                run = self._blas.action(call, addresses, address)
        except ImportError as error:
            name = "cuFFT" if call.routine == "fft" else "cuBLAS"
            raise LaunchRefusedError(
                Status.LAUNCH_ERROR,
                f"{call.routine}: CuPy finds no {name} ({error}); install it, as with pip install"
                f" nvidia-{name.lower()}-cu12",
            ) from error
        return LibraryLaunch(call, run, tuple(addresses.values()), side)

    def _on_host(self) -> HostLapack:
        self._lapack = self._lapack or HostLapack(self._cp)
        return self._lapack

    def _transform(
        self, call: LibraryCall, pointers: Mapping[str, Any], side: int
    ) -> Callable[[Stream | None], None]:
        key = (call.dtype, call.n, call.m, side)
        plan = self._transforms.get(key)
        if plan is None:
            plan = self._cp.cuda.cufft.Plan1d(call.n, _TRANSFORM[call.dtype], call.m)
            self._transforms[key] = plan
        source, result = _Matrix(pointers["a"]), _Matrix(pointers["c"])
        direction = _INVERSE if call.inverse else _FORWARD

        def run(stream: Stream | None) -> None:
            if stream is None:
                plan.fft(source, result, direction)
            else:
                with stream:
                    plan.fft(source, result, direction)

        return run


# --- Loads compiled stages onto the device, with the attributes that they ask for.

_SHARED_WITHOUT_ASKING = 48 * 1024
_PORTABLE_CLUSTER = 8

# CUfunction_attribute of cuda.h, where CuPy has no name for it
_REQUIRED_CLUSTER_WIDTH = 11
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
_CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15
_LOAD_BALANCING = 2  # CUclusterSchedulingPolicy


@dataclass(frozen=True)
class LoadedFunction:
    """A function on the device, with what its stage asks for.

    Attributes:
        held: blocks of a stage that the device holds at the same time; None where the stage does not ask.
        symbols: variables that arrays are copied to.
        resources: what it takes, and what its launches must have.
    """

    function: CudaFunction
    held: int | None
    symbols: tuple[SymbolAddress, ...]
    resources: Resources


class StageLoader:
    """Loads stages onto a device, and refuses those that it cannot launch.

    Args:
        cp: CuPy, with the device current whenever a method is called.
        limits: of the device.
        driver: the calls of the driver that CuPy lacks.
    """

    def __init__(self, cp: ModuleType, limits: DeviceLimits, driver: DriverCalls) -> None:
        self._cp = cp
        self._limits = limits
        self._driver = driver

    def check(self, stage: Stage) -> None:
        """Refuse what no compiler could make fit.

        Raises:
            LaunchRefusedError: the device lacks what the stage needs.
        """
        reason = refusal(stage, self._limits)
        if reason:
            raise refused(stage, reason)

    def loaded(self, stage: Stage, compiled: CompiledStage, buffers: Sequence[Buffer]) -> LoadedFunction:
        """The function of a stage, loaded.

        Raises:
            LaunchRefusedError: it asks for more than the device has, or a variable is smaller than its array.
            CUDADriverError: the driver does not load it (CuPy's).
            DriverCallError: the same, of calls that CuPy lacks.
        """
        driver = self._cp.cuda.driver
        stage = stage.as_compiled(compiled.resources)
        self.check(stage)
        shared_bytes = stage.shared_bytes + compiled.resources.static_shared_bytes
        if shared_bytes > self._limits.shared_bytes_per_block:
            raise refused(
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
        symbols = self._symbols(stage, module.ptr, compiled, buffers) if stage.symbols else ()
        if stage.cluster > 1:
            held = self._held_in_clusters(stage, function)
        else:
            held = self._held(stage, function) if stage.resident or stage.cooperative else None
        return LoadedFunction(function, held, symbols, compiled.resources)

    def _symbols(
        self, stage: Stage, module: int, compiled: CompiledStage, buffers: Sequence[Buffer]
    ) -> tuple[SymbolAddress, ...]:
        """Return the addresses of a module's variables, which must hold the arrays that fill them."""
        symbols = []
        for (name, buffer), lowered in zip(stage.symbols, compiled.symbols, strict=True):
            array = next(candidate for candidate in buffers if candidate.name == buffer)
            address, size = self._driver.variable(module, lowered)
            needed = array.elements * element_dtype(array.dtype).itemsize
            if size < needed:
                raise refused(
                    stage,
                    f"{stage.source.path}: the variable {name} has {size} bytes, and the argument {buffer}"
                    f" that fills it has {needed} ({array.dtype} of shape {array.shape})",
                )
            symbols.append(SymbolAddress(buffer, address, needed))  # from its beginning on
        return tuple(symbols)

    def _held(self, stage: Stage, function: CudaFunction) -> int:
        threads = stage.threads_per_block
        per_sm: int = self._cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.ptr, threads, stage.shared_bytes
        )
        if per_sm < 1:
            raise refused(stage, f"no block of {threads} threads fits on a multiprocessor")
        return per_sm * self._limits.multiprocessors

    def _held_in_clusters(self, stage: Stage, function: CudaFunction) -> int | None:
        """Ask for clusters, and make sure that the device has room for one."""
        driver, cluster = self._cp.cuda.driver, stage.cluster
        declared = driver.funcGetAttribute(_REQUIRED_CLUSTER_WIDTH, function.ptr)
        if declared != cluster:
            raise refused(stage, f"clusters of {cluster}, and the source has __cluster_dims__({declared})")
        if cluster > _PORTABLE_CLUSTER:
            driver.funcSetAttribute(function.ptr, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        driver.funcSetAttribute(function.ptr, _CLUSTER_SCHEDULING_POLICY_PREFERENCE, _LOAD_BALANCING)
        clusters = self._driver.max_active_clusters(function.ptr, stage.block, stage.shared_bytes, cluster)
        if clusters < 1:
            raise refused(
                stage,
                f"no cluster of {cluster} blocks of {stage.threads_per_block} threads and"
                f" {stage.shared_bytes} bytes of dynamic shared memory fits on the device",
            )
        return clusters * cluster if stage.resident or stage.cooperative else None


def refused(stage: Stage, message: str) -> LaunchRefusedError:
    """The error of a stage that cannot be launched."""
    return LaunchRefusedError(Status.LAUNCH_ERROR, f"stage {stage.name}: {message}")


# --- Loaded code by what was compiled, and plans made ready.

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
        """One run of a plan on one set of arrays, in order, its grids those of its share if it has one.

        Raises:
            LaunchRefusedError: a stage does not compile, or asks for more than the device has.
        """
        return self.program(plan, plan.sm_share or None).bound(arrays)

    def preparation(self, plan: Plan, arrays: Mapping[str, Array]) -> tuple[Step, ...]:
        """Return the steps before runs of a plan on some arrays: fill variables, launch set-up stages.

        Raises:
            LaunchRefusedError: as ``program``.
        """
        if not any(stage.symbols or stage.setup for stage in plan.stages):
            return ()
        return self.program(plan).prepared(arrays)

    def flags(self, plan: Plan) -> tuple[Flag, ...]:
        """Return the flags of the library calls of a plan."""
        return self._libraries.flags(stage.library for stage in plan.stages if stage.library is not None)

    def program(self, plan: Plan, multiprocessors: int | None = None) -> Program:
        """A plan on the device, for any arrays.

        Args:
            plan: what is loaded.
            multiprocessors: that its launches run on, which is what holds resident and cooperative grids; all
                if not given.

        Raises:
            LaunchRefusedError: a stage does not compile, or asks for more than the device has.
        """
        own = {_key(stage, plan.workload): stage for stage in plan.stages if stage.library is None}
        for stage in plan.stages:
            if stage.library is None:
                self._loader.check(stage)
        self._load(plan, {key: stage for key, stage in own.items() if key not in self._functions})
        zeroed = tuple(buffer.name for buffer in plan.buffers if buffer.zeroed)
        program = Program(
            tuple(self._staged(index, plan, multiprocessors) for index in plan.timed),
            zeroed,
            self._driver,
            setup=tuple(self._staged(index, plan) for index, stage in enumerate(plan.stages) if stage.setup),
            symbols=tuple(symbol for key in own for symbol in self._functions[key].symbols),
            tables=tuple(
                buffer.name for buffer in plan.buffers if buffer.role == "table" and buffer.elements
            ),
        )
        while len(self._functions) > _KEPT:
            self._functions.popitem(last=False)
        return program

    def _staged(
        self, index: int, plan: Plan, multiprocessors: int | None = None
    ) -> LoadedStage | LibraryStage:
        stage = plan.stages[index]
        after = tuple(earlier for earlier in stage.after if not plan.stages[earlier].setup)
        order = (stage.stream, after, index)
        if stage.library is not None:
            return LibraryStage(stage.name, stage.library, self._libraries.bound, *order)
        key = _key(stage, plan.workload)
        loaded = self._functions[key]
        self._functions.move_to_end(key)
        stage = stage.as_compiled(loaded.resources)
        held, all_of_them = loaded.held, self._limits.multiprocessors
        if held is not None:
            held = held * (multiprocessors or all_of_them) // all_of_them
        if stage.cooperative and not stage.resident and held is not None:
            self._check_held(stage, held, multiprocessors or all_of_them)
        item_bytes = {buffer.name: element_dtype(buffer.dtype).itemsize for buffer in plan.buffers}
        grid = _cut(stage, held) if stage.resident and held is not None else stage.grid
        return LoadedStage(
            stage.name,
            loaded.function,
            grid,
            stage.block,
            stage.shared_bytes,
            tuple(
                _argument(item, item_bytes, lambda scratch: self._scratch(scratch, math.prod(grid)))
                for item in stage.arguments
            ),
            *order,
            stage.cooperative,
        )

    def _scratch(self, scratch: Scratch, blocks: int) -> LoadedArgument:
        """Memory of a launch's own, as an argument; a null pointer where none is asked for."""
        if not scratch.block_bytes:
            return np.uint64(0)
        array = self._cp.empty(scratch.block_bytes * blocks + scratch.alignment, dtype="uint8")
        return ScratchMemory(array.data + -array.data.ptr % scratch.alignment)

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

    def _check_held(self, stage: Stage, resident: int, multiprocessors: int) -> None:
        """Refuse a cooperative grid that is not on the device, or its share of it, as a whole.

        Raises:
            LaunchRefusedError: it is not; the message has the numbers.
        """
        if stage.blocks > resident:
            raise refused(
                stage,
                f"a cooperative grid of {stage.blocks} blocks is more than the {resident} that the device"
                f" holds at a time ({multiprocessors} multiprocessors); resident = true cuts it",
            )


def _key(stage: Stage, workload: Workload) -> tuple[object, ...]:
    """All that decides what is loaded, and how many of its blocks the device holds.

    Variables hold what is the workload's own.
    """
    return (
        *stage.code,
        *(stage.shared_bytes, stage.block, stage.resident or stage.cooperative, stage.cluster),
        *((workload,) if stage.symbols else ()),
    )


def _cut(stage: Stage, resident: int) -> tuple[int, int, int]:
    """The grid, along x cut to what the device holds at the same time: whole clusters, and one at least."""
    x, y, z = stage.grid
    most = resident // (y * z * stage.cluster) * stage.cluster
    return max(stage.cluster, min(x, most)), y, z


def _argument(
    item: StageArgument, item_bytes: Mapping[str, int], allocated: Callable[[Scratch], LoadedArgument]
) -> LoadedArgument:
    if isinstance(item, Scratch):
        return allocated(item)
    if isinstance(item, BufferView):
        return ArrayOffset(item.buffer, item.offset_elements * item_bytes[item.buffer])
    if isinstance(item, StructValue):  # an array without axes is passed by value, whatever its size
        return np.array(np.void(item.bytes))
    return scalar_value(item) if isinstance(item, Scalar) else item
