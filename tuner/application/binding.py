"""A kernel at one problem and one configuration, loaded, and the checks of the arrays it is run on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from tuner.application.advice import LaunchCount
from tuner.application.choice import Chosen
from tuner.application.keys import ArrayForm, check_alignment, check_array, is_flat, shape_of, taken
from tuner.application.rows import Array, overlap, row_pitch
from tuner.devices.cuda.launches import LibraryStage, Program
from tuner.devices.cuda.libraries import workspaces
from tuner.devices.cuda.packed import HomeContext, PackedRun, RunGraphs
from tuner.devices.cuda.stepped import SteppedRun
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.elements import element_dtype
from tuner.model.errors import DeviceError, InputError
from tuner.model.plan import Buffer, Plan, Workload
from tuner.model.row_layout import DENSE, RowLayout


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
        results: places of what is returned among inputs and outputs, in the order of the kernel file.
        replaced: place of the input whose memory the output is; None where it is an array of its own.
        tally: counts its launches.
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

    def graphs(self, cp: ModuleType) -> RunGraphs:
        """Runs on buffers in the order inputs, outputs, scratch."""
        arrays = (*self.inputs, *self.outputs, *self.scratch)
        if any(isinstance(stage, LibraryStage) for stage in self.program.stages):
            forms = {one.name: (one.shape, one.dtype) for one in arrays}
            return RunGraphs(cp, SteppedRun(cp, self.program, forms))
        return RunGraphs(cp, PackedRun(cp, self.program, {one.name: one.nbytes for one in arrays}))

    def allocated(self, cp: ModuleType, arrays: Sequence[CallArray]) -> list[Array]:
        """New arrays from CuPy's pool of the current GPU and stream.

        Raises:
            DeviceError: they do not fit.
        """
        try:
            return [cp.ndarray(one.shape, one.dtype) for one in arrays]  # what cupy.empty does, and no more
        except cp.cuda.memory.OutOfMemoryError as error:
            raise DeviceError(f"{self.kernel}: output and scratch arrays do not fit: {error}") from error

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
            names = ", ".join(one.name for one in self.outputs)
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
        """What messages call the outputs."""
        return ["out"] if len(self.outputs) == 1 else [f"out ({one.name})" for one in self.outputs]

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
    for one in outputs:
        if one.pitch is not None and one.pitch < math.prod(one.shape[1:]):
            raise InputError(f"{file.name}: rows of out overlap ({one.form})")
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
    )
