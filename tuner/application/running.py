"""Loaded kernels on a caller's arrays: bound, checked and launched again and again."""

import math
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from tuner.application.borrowing import borrowed_tensor, torch_streams
from tuner.application.choice import Chosen, LaunchCount
from tuner.application.keys import (
    ALIGNED,
    Array,
    ArrayForm,
    Stream,
    check_alignment,
    check_array,
    checked_stream,
    is_flat,
    overlap,
    row_pitch,
    shape_of,
    taken,
)
from tuner.devices.cuda.code import workspaces
from tuner.devices.cuda.direct import SteppedRun
from tuner.devices.cuda.launches import HomeContext, LibraryStage, PackedRun, Program, Run, RunGraphs
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.elements import element_dtype
from tuner.model.errors import DeviceError, InputError
from tuner.model.plan import DENSE, Buffer, Plan, RowLayout, Workload

# --- A kernel at one problem and one configuration, loaded, and the checks of the arrays it is run on.


@dataclass(frozen=True)
class CallArray:
    """An array of a call, with its batch axis as the caller has it.

    Attributes:
        name: of the kernel file.
        shape: as the caller has it.
        element: name of its type, as kernel files have it.
        pitch: elements from one row to the next; None for a contiguous array.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    pitch: int | None = None

    @property
    def form(self) -> ArrayForm:
        """As arrays of a call must be."""
        return ArrayForm(self.shape, self.dtype.name, self.pitch)

    @cached_property
    def dtype(self) -> "np.dtype[Any]":
        """NumPy's type of its elements."""
        return element_dtype(self.element)

    @cached_property
    def nbytes(self) -> int:
        """Bytes from its beginning to its end."""
        if self.pitch is None:
            return math.prod(self.shape) * self.dtype.itemsize
        return (self.shape[0] - 1) * self.strides[0] + math.prod(self.shape[1:]) * self.dtype.itemsize

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        steps = np.cumprod([self.dtype.itemsize, *self.shape[:0:-1]])[::-1]
        contiguous = tuple(int(step) for step in steps[: len(self.shape)])
        return contiguous if self.pitch is None else (self.pitch * self.dtype.itemsize, *contiguous[1:])


@dataclass(frozen=True)
class Tables:
    """Arrays that the set-up stages of a kernel filled, and the addresses of all its tables."""

    arrays: Sequence[Array]
    addresses: Sequence[int]


KEPT_BYTES = 2**28
"""Tables that calls hold on to, beside the newest."""


class TableCache:
    """Tables that calls and plans share: one serves all batches of a length and a type.

    The newest are kept, up to 256 MiB, and those that plans hold. May be used by several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: weakref.WeakValueDictionary[Hashable, Tables] = weakref.WeakValueDictionary()
        self._kept: dict[Hashable, Tables] = {}
        self._streams: dict[int, Stream] = {}

    def of(self, cp: ModuleType, loaded: "LoadedKernel") -> Tables:
        """The tables of a kernel; the first call fills them, and waits for that.

        Raises:
            DeviceError: they do not fit, or the driver refuses a launch.
        """
        with self._lock:
            found = self._made.get(loaded.table_key)
            if found is None:
                found = self._made[loaded.table_key] = self._filled(cp, loaded)
                self._kept[loaded.table_key] = found
                while len(self._kept) > 1 and self._kept_bytes() > KEPT_BYTES:
                    del self._kept[next(iter(self._kept))]
            return found

    def _kept_bytes(self) -> int:
        return sum(array.nbytes for tables in self._kept.values() for array in tables.arrays)

    def _filled(self, cp: ModuleType, loaded: "LoadedKernel") -> Tables:
        if loaded.device not in self._streams:
            self._streams[loaded.device] = cp.cuda.Stream(non_blocking=True)
        stream = self._streams[loaded.device]
        try:
            with loaded.home.entered(), stream:
                # A table that was dropped may still serve a run, and its memory comes again here alone
                cp.cuda.runtime.deviceSynchronize()
                scratch, tables = loaded.allocated(cp, loaded.scratch), loaded.allocated(cp, loaded.tables)
                addresses = [array.data.ptr if array.nbytes else 0 for array in tables]
                run = loaded.run_of(cp, loaded.program.tabulation)
                given = [0] * (len(loaded.inputs) + len(loaded.outputs))
                run.point([*given, *(array.data.ptr for array in scratch), *addresses])
                run.enqueue(stream.ptr)
                stream.synchronize()
                del scratch
                cp.get_default_memory_pool().free_all_blocks(stream=stream)  # of all the batch
        except (cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError) as error:
            raise DeviceError(f"{loaded.kernel}: the GPU refuses to fill its tables: {error}") from error
        return Tables(tables, addresses)


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel at one problem and one configuration, on one GPU.

    Attributes:
        kernel: what messages call it.
        workload: the problem.
        chosen: the configuration, and its origin.
        device: number of the GPU.
        program: the code, loaded.
        home: the context it is loaded into.
        inputs: arrays that are handed over, in their order.
        outputs: arrays that the caller may provide.
        scratch: further arrays, of a run alone.
        tables: what follows them, the same for all runs.
        table_key: what decides what the tables hold.
        cache: of the tables.
        results: places of what is returned among inputs and outputs, in the order of the kernel file.
        replaced: place of the input whose memory the output is; None where it is an array of its own.
        tally: counts its launches.
        anywhere: inputs may begin at any address, and outputs are new.
        refusal: why no current stream may be captured; empty where that depends on what is allocated.
    """

    kernel: str
    workload: Workload
    chosen: Chosen
    device: int
    program: Program
    home: HomeContext
    inputs: tuple[CallArray, ...]
    outputs: tuple[CallArray, ...]
    scratch: tuple[CallArray, ...]
    results: tuple[int, ...]
    replaced: int | None
    tally: LaunchCount
    anywhere: bool = False
    refusal: str = ""
    tables: tuple[CallArray, ...] = ()
    table_key: Hashable = None
    cache: TableCache = field(default_factory=TableCache, compare=False)

    def graphs(self, cp: ModuleType) -> RunGraphs:
        """Runs on buffers in the order inputs, outputs, scratch, tables."""
        return RunGraphs(cp, self.run_of(cp, self.program.with_tables))

    def run_of(self, cp: ModuleType, program: Program) -> Run:
        """A run of some of its stages, on buffers in the order of ``graphs``."""
        arrays = (*self.inputs, *self.outputs, *self.scratch, *self.tables)
        if any(isinstance(stage, LibraryStage) for stage in program.stages):
            return SteppedRun(cp, program, {array.name: (array.shape, array.dtype) for array in arrays})
        return PackedRun(cp, program, {array.name: array.nbytes for array in arrays})

    def tabulated(self, cp: ModuleType) -> Tables:
        """Its tables, filled; those without elements need nothing.

        Raises:
            DeviceError: they do not fit, or the driver refuses a launch.
        """
        return self.cache.of(cp, self) if self.program.tables else Tables((), [0] * len(self.tables))

    def allocated(self, cp: ModuleType, arrays: Sequence[CallArray]) -> list[Array]:
        """New arrays from CuPy's pool of the current GPU and stream.

        Raises:
            DeviceError: they do not fit.
        """
        made: list[Array] = []
        try:
            # what cupy.empty does, and no more
            for array in arrays:
                made.append(cp.ndarray(array.shape, array.dtype))  # noqa: PERF401 - which is known
        except cp.cuda.memory.OutOfMemoryError as error:
            raise self.no_room(arrays[len(made)].name, error) from error
        return made

    def no_room(self, name: str, error: BaseException) -> DeviceError:
        """The error of an output or scratch array that does not fit."""
        del name
        return DeviceError(f"{self.kernel}: output and scratch arrays do not fit: {error}")

    def check_inputs(self, arrays: Sequence[Array]) -> None:
        """Refuse arrays of another number, form or GPU than those it was made for.

        Raises:
            InputError: the message names the array and what would be right.
        """
        self.check_count(len(arrays))
        for made, array in zip(self.inputs, arrays, strict=True):
            check_array(self.kernel, made.name, array, self.device)
            self._check_form(made, array, made.name)

    def check_count(self, count: int) -> None:
        """Refuse another number of inputs than it takes.

        Raises:
            InputError: the message names those that are taken.
        """
        if count != len(self.inputs):
            names = ", ".join(one.name for one in self.inputs)
            wanted = "1 array" if len(self.inputs) == 1 else f"{len(self.inputs)} arrays"
            raise InputError(f"{self.kernel} takes {wanted} ({names}); {count} given")

    def check_outputs(self, outs: Sequence[Array]) -> None:
        """Refuse output arrays of another number, form or GPU.

        Raises:
            InputError: the message names the array and what would be right.
        """
        if len(outs) != len(self.outputs):
            names = ", ".join(output.name for output in self.outputs)
            wanted = f"{len(self.outputs)} ({names})" if names else "none: the kernel works in place"
            raise InputError(f"{self.kernel}: out has {len(outs)} arrays; it takes {wanted}")
        for made, label, array in zip(self.outputs, self._labels, outs, strict=True):
            check_array(self.kernel, label, array, self.device)
            self._check_form(made, array, label)

    def check_memory(self, given: Sequence[Array]) -> None:
        """Refuse addresses that kernels cannot load from, and outputs that share memory with others.

        Args:
            given: inputs, then outputs or none.

        Raises:
            InputError: the message names the array and what would be right.
        """
        labels = [*(one.name for one in self.inputs), *self._labels]
        self._check_replaced(given, labels)
        for label, array in zip(labels, given, strict=False):
            check_alignment(self.kernel, label, array)
        names = [one.name for one in (*self.inputs, *self.outputs)]
        for place in range(len(self.inputs), len(given)):
            for other in range(place):
                if other != self.replaced and overlap(given[place], given[other]):
                    raise InputError(
                        f"{self.kernel}: {labels[place]} overlaps {names[other]};"
                        " it must be an array of its own"
                    )

    def _check_replaced(self, given: Sequence[Array], labels: Sequence[str]) -> None:
        """Refuse an output apart from the input that it was to replace."""
        place = len(self.inputs)
        if self.replaced is None or len(given) == place:
            return
        if given[place].data.ptr != given[self.replaced].data.ptr:
            raise InputError(
                f"{self.kernel}: {labels[place]} must be {labels[self.replaced]}: this plan works in place"
            )

    @property
    def _labels(self) -> list[str]:
        """Names of the outputs in messages."""
        return ["out"] if len(self.outputs) == 1 else [f"out ({output.name})" for output in self.outputs]

    def _check_form(self, made: CallArray, array: Array, label: str) -> None:
        form = ArrayForm(array.shape, array.dtype.name, row_pitch(array))
        if form[:2] == made.form[:2] and made.pitch is None and form.pitch is not None:
            raise InputError(
                f"{self.kernel}: {label} is not contiguous ({form}); this plan is for a contiguous array"
            )
        if form != made.form:
            raise InputError(f"{self.kernel}: {label} is {form}; it must be {made.form}")


def loaded_kernel(
    file: KernelFile,
    plan: Plan,
    forms: Sequence[ArrayForm],
    chosen: Chosen,
    *,
    layout: RowLayout = DENSE,
    device: int,
    program: Program,
    home: HomeContext,
    tally: LaunchCount,
    cache: TableCache,
) -> LoadedKernel:
    """A kernel for arrays of some forms and layout; see ``LoadedKernel``.

    Raises:
        InputError: a stage of it is cuFFT's, or runs on the host; or rows of an output overlap.
    """
    for stage in plan.stages:
        call = stage.library
        if call is not None and (call.routine == "fft" or call.on_host):  # one workspace for all runs, waits
            raise InputError(
                f"{file.name}: stage {stage.name} is {call.routine}, and of libraries tuner.apply calls only"
                " cuBLAS; tune this kernel with tuner run"
            )
    pitches = dict(layout.pitches)
    flat = any(is_flat(recipe, form.shape) for recipe, form in zip(taken(file), forms, strict=True))
    recipes = {recipe.name: recipe for recipe in file.recipe.buffers}
    buffers = {buffer.name: buffer for buffer in plan.buffers}

    def of_caller(buffer: Buffer) -> CallArray:
        shape = shape_of(recipes[buffer.name], buffer, flat=flat)
        return CallArray(buffer.name, shape, buffer.dtype, pitches.get(buffer.name))

    inputs = tuple(
        CallArray(recipe.name, form.shape, buffers[recipe.name].dtype, pitches.get(recipe.name))
        for recipe, form in zip(taken(file), forms, strict=True)
    )
    outputs = tuple(of_caller(buffer) for buffer in plan.buffers if buffer.role == "out")
    for output in outputs:
        if output.pitch is not None and output.pitch < math.prod(output.shape[1:]):
            raise InputError(f"{file.name}: rows of out overlap ({output.form})")
    names = [one.name for one in (*inputs, *outputs)]
    replaced = next((recipes[one.name].in_place for one in outputs), None) if layout.in_place else None
    return LoadedKernel(
        kernel=file.name,
        workload=plan.workload,
        chosen=chosen,
        device=device,
        program=program,
        home=home,
        inputs=inputs,
        outputs=outputs,
        scratch=(
            *(CallArray(b.name, b.shape, b.dtype) for b in plan.buffers if b.role in ("scratch", "zeroed")),
            *(CallArray(name, (size,), "uint8") for name, size in workspaces(program).items()),
        ),
        results=tuple(names.index(b.name) for b in plan.buffers if b.role in ("out", "inout")),
        replaced=None if replaced is None else names.index(replaced),
        tally=tally,
        tables=tuple(CallArray(b.name, b.shape, b.dtype) for b in plan.buffers if b.role == "table"),
        table_key=(
            *(device, *(buffer for buffer in plan.buffers if buffer.role == "table")),
            *(
                (stage.code, stage.grid, stage.block, stage.shared_bytes, stage.arguments)
                for stage in plan.stages
                if stage.setup
            ),
        ),
        cache=cache,
    )


# --- Calls whose stream is being captured into a CUDA graph.
#
# A capture takes launches alone. Loading code, allocating and waiting make it fail, and memory that goes back
# to a pool afterwards is written by every replay. Such calls are refused before they do any of it.

COMPILES = "the first call for these arrays compiles the kernel; make a tuner.plan before the capture"
PLANS = "a plan allocates memory and loads the kernel; make it before the capture"
ALLOCATES = "it allocates copies and results; call it before the capture, or capture a tuner.plan"
ALLOCATES_OUTPUT = "this call allocates its output; give out, or capture a tuner.plan"
ALLOCATES_SCRATCH = "this call allocates scratch arrays or tables; make a tuner.plan before the capture"
ALLOCATES_OUTPUT_OF_PLAN = "the plan allocates its output; give out, or call it once before the capture"
WAITS = "it waits for the stream of an array; bind that array to a tuner.plan before the capture"


def is_captured(cp: ModuleType, handle: int, *others: int) -> bool:
    """True while a stream of the current GPU, given by its handle, is being captured into a CUDA graph.

    So is PyTorch's current one, whichever is asked for: a capture by PyTorch forbids allocations in all.
    Others are asked last: the default one cannot be asked while a stream that it waits for is captured.

    Raises:
        DeviceError: it is the default stream, which other streams that are captured wait for.
    """
    torch = getattr(sys.modules.get("torch"), "cuda", None)  # without it PyTorch is half imported
    asked = cp.cuda.runtime.streamIsCapturing
    try:
        if asked(handle) or (
            torch is not None and torch.is_initialized() and torch.is_current_stream_capturing()
        ):
            return True
        return any(map(asked, others))
    except RuntimeError as error:  # CuPy's is one, too
        raise DeviceError(f"the GPU refuses a call beside a capture: {error}") from error


def refuse_capture(cp: ModuleType, kernel: str, stream: Stream | None, device: int, fault: str) -> None:
    """Refuse what a capture cannot take.

    Args:
        cp: CuPy.
        kernel: what messages call the kernel.
        stream: of the call, as CuPy's; None for CuPy's current one.
        device: number of the current GPU.
        fault: what the call would do, and what would be right.

    Raises:
        InputError: the stream is being captured.
    """
    on = cp.cuda.get_current_stream(device) if stream is None else stream
    if is_captured(cp, on.ptr):
        raise InputError(captured(kernel, fault))


def captured(kernel: str, fault: str) -> str:
    """Return the error message of a call that is refused during graph capture."""
    return f"{kernel}: its stream is being captured into a CUDA graph: {fault}"


class KernelRunner:
    """Runs a kernel on arrays whose forms were checked. May be used by several threads."""

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
        self._always: Sequence[Any] = loaded.scratch
        self._unless_given: Sequence[Any] = (*loaded.outputs, *loaded.scratch)
        self._held: Callable[[], Tables | None] = lambda: None
        self._tabulates, self._no_tables = bool(loaded.program.tables), Tables((), [0] * len(loaded.tables))
        self._owns = bool(loaded.scratch) or self._tabulates
        self._pairs = () if loaded.anywhere else _output_pairs(loaded)
        self._replaced = loaded.replaced
        self._refusal, self._captures = loaded.refusal, False  # whether outputs can be made in a capture
        self._aligned = 0 if loaded.anywhere else ALIGNED

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
        if wanted or self._owns:
            if (self._owns or not self._captures) and self._is_captured(handle):
                fault = self._refusal or (ALLOCATES_SCRATCH if self._owns else ALLOCATES_OUTPUT)
                raise InputError(captured(self.loaded.kernel, fault))
            made, places = self._allocated(wanted, stream)
            given = (*given, *made)
            addresses += places
        tables = self._tables() if self._tabulates else self._no_tables  # held until the run is in its stream
        addresses += tables.addresses
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

    def _tables(self) -> Tables:
        """The tables, made again where they were dropped meanwhile."""
        tables = self._held()
        if tables is None:
            tables = self.loaded.tabulated(self._cp)
            self._held = weakref.ref(tables)
        return tables

    def _handle(self, stream: Stream | None) -> Any:  # noqa: ANN401 - an int, says CuPy without types
        on = self._stream_of(self._device) if stream is None else self._checked(stream)
        return on.ptr

    def _is_captured(self, handle: int) -> bool:
        return is_captured(self._cp, handle)

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
        if self._suspicious(addresses):
            self.loaded.check_memory(given)

    def results(self, given: Sequence[Array]) -> Any:  # noqa: ANN401 - arrays
        """Return the result of a run on these arrays."""
        if self._result >= 0:
            return given[self._result]
        return tuple(given[place] for place in self.loaded.results)

    def _suspicious(self, addresses: Sequence[int]) -> bool:
        """Return True if an address is not aligned, or outputs may lie where they must not."""
        bits = 0
        for address in addresses:
            bits |= address
        return bool(bits & self._aligned) or (len(addresses) > self._inputs and self._overlap(addresses))

    def _overlap(self, addresses: Sequence[int]) -> bool:
        """Return True if outputs may share memory with other arrays, or do not where they must."""
        if self._replaced is not None and addresses[self._inputs] != addresses[self._replaced]:
            return True
        for one, other, size, other_size in self._pairs:
            begin, other_begin = addresses[one], addresses[other]
            if begin < other_begin + other_size and other_begin < begin + size:
                return True
        return False

    def _allocated(self, wanted: Sequence[Any], stream: Stream | None) -> tuple[Sequence[Array], list[int]]:
        """New arrays of the stream's own memory, and their addresses."""
        if stream is None:
            made = self.loaded.allocated(self._cp, wanted)
        else:
            with self._checked(stream):
                made = self.loaded.allocated(self._cp, wanted)
        return made, [array.data.ptr for array in made]


class TensorRunner(KernelRunner):
    """Runs a kernel on torch tensors whose forms were checked, in PyTorch's current stream and memory."""

    def __init__(self, cp: ModuleType, torch: ModuleType, loaded: LoadedKernel) -> None:
        super().__init__(cp, loaded)
        self._current_stream = torch_streams(torch)
        self._torch, self._on = torch, torch.device("cuda", loaded.device)
        self._captures = not loaded.refusal
        self._names = [[one.name for one in arrays] for arrays in (self._always, self._unless_given)]
        outputs = [(one.shape, getattr(torch, one.element)) for one in loaded.outputs]
        self._always = [((one.nbytes,), torch.uint8) for one in loaded.scratch]  # old releases lack types
        self._unless_given = [*outputs, *self._always]

    def check_addresses(self, given: Sequence[Array], addresses: Sequence[int]) -> None:
        """Refuse what ``KernelRunner.check_addresses`` refuses.

        Raises:
            InputError: the message names the array and what would be right.
        """
        if self._suspicious(addresses):
            self.loaded.check_memory([borrowed_tensor(self._cp, tensor).array for tensor in given])

    def _handle(self, stream: Stream | None) -> Any:  # noqa: ANN401 - an int, says PyTorch without types
        del stream
        return self._current_stream(self._device)

    def _allocated(self, wanted: Sequence[Any], stream: Stream | None) -> tuple[Sequence[Array], list[int]]:
        del stream
        empty, on = self._torch.empty, self._on
        made: list[Array] = []
        try:
            for shape, dtype in wanted:
                made.append(empty(shape, dtype=dtype, device=on))
        except self._torch.cuda.OutOfMemoryError as error:
            name = self._names[wanted is self._unless_given][len(made)]
            raise self.loaded.no_room(name, error) from error
        return made, [tensor.data_ptr() for tensor in made]

    def _is_captured(self, handle: int) -> bool:
        other = self._stream_of(self._device).ptr if self._refusal else handle  # CuPy's current one
        return is_captured(self._cp, other, *(() if other == handle else (handle,)))


def _output_pairs(loaded: LoadedKernel) -> tuple[tuple[int, int, int, int], ...]:
    """Places and sizes of every output with each array before it: they must not share memory."""
    arrays = (*loaded.inputs, *loaded.outputs)
    return tuple(
        (one, other, arrays[one].nbytes, arrays[other].nbytes)
        for one in range(len(loaded.inputs), len(arrays))
        for other in range(one)
        if other != loaded.replaced
    )
