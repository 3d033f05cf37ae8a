"""A GPU in this process, for arrays, streams and memory that belong to the caller."""

import math
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.driver import Array, Graph, Stream
from tuner.devices.cuda.lanes import MAIN, PrioritisedGraph, SideStreams, new_stream, stream_of
from tuner.devices.cuda.launches import LaunchRefusedError, Program, StageLaunch, Step
from tuner.model.errors import CompileError, DeviceError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Plan, Stage
from tuner.model.trial import Status


class DirectGpu:
    """GPU ``index`` as the caller's CuPy has it; its context, streams and memory pool are left alone.

    Code is compiled in children that end when nothing has been compiled for two seconds.

    Raises:
        DeviceUnavailableError: the driver does not tell who the GPU is.
        CompilerUnavailableError: no NVRTC compiles for it.
    """

    def __init__(self, cp: ModuleType, index: int) -> None:
        self._cp = cp
        self.limits = probe.gpu_limits(cp, index)
        self._compiler = Compiler(self.limits.architecture)
        self._code = CodeCache(cp, self, self.limits)
        self.identity = DeviceIdentity(
            spec=f"cuda:{index}",
            name=probe.gpu_name(cp, index),
            uuid=probe.gpu_uuid(index),
            driver=probe.driver_version(cp),
            runtime=self._compiler.nvrtc_version,
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

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        """For each stage, in order, the code or the error."""
        if self._compiler.closed:  # by Triton, an error or an interrupt, after which a notebook goes on
            self._compiler = Compiler(self.limits.architecture)
        try:
            return self._compiler.compile(stages)
        finally:
            if any(stage.source.language == "triton" for stage in stages):
                self._compiler.close()  # its children hold much memory, and stay for a minute


class SteppedRun:
    """One run of a program, again and again, on buffers that are addresses.

    It keeps the code loaded and keeps no array. The context of the code must be the current one. All of this
    belongs to one thread at a time.

    Args:
        cp: CuPy.
        program: the plan, loaded.
        forms: shape and NumPy dtype of each buffer of the plan, by name, in the order of the addresses.
    """

    def __init__(
        self, cp: ModuleType, program: Program, forms: Mapping[str, tuple[tuple[int, ...], "np.dtype[Any]"]]
    ) -> None:
        self._cp = cp
        self._program = program
        self._forms = dict(forms)
        self._sides = SideStreams(cp)
        self._addresses: tuple[int, ...] = ()
        self._steps: Sequence[Step] = ()

    def point(self, addresses: Sequence[int]) -> None:
        """Have the following runs work on other buffers.

        Raises:
            LaunchRefusedError: a library is not there, or a tensor map cannot be made of its buffer.
        """
        if self._addresses == tuple(addresses):
            return
        arrays = {
            name: self._array(address, *form)
            for (name, form), address in zip(self._forms.items(), addresses, strict=True)
        }
        self._steps = (*self._program.prepared(arrays), *self._program.bound(arrays))
        self._addresses = tuple(addresses)

    def enqueue(self, stream: int) -> None:
        """Put one run into a stream, given by its handle; CuPy's errors come through.

        Raises:
            LaunchRefusedError: a library refuses a call.
        """
        self._put(stream_of(self._cp, stream), self._sides)

    def graph(self) -> Graph:
        """A run on the present buffers as a CUDA graph; CuPy's errors come through.

        Raises:
            LaunchRefusedError: a library refuses a call.
        """
        stream, sides = new_stream(self._cp, MAIN), SideStreams(self._cp)  # a capture that breaks spoils them
        stream.begin_capture()
        try:
            self._put(stream, sides)
        finally:
            captured: Graph = stream.end_capture()
        return PrioritisedGraph(captured, self._program.driver) if sides.used else captured

    def _put(self, stream: Stream, sides: SideStreams) -> None:
        if any(isinstance(step, StageLaunch) and step.side for step in self._steps):
            sides.enqueue(self._steps, stream)
        else:
            for step in self._steps:
                step.enqueue(stream)

    def _array(self, address: int, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
        """The memory at an address; it belongs to the caller."""
        cp, size = self._cp, math.prod(shape) * dtype.itemsize
        memory = cp.cuda.UnownedMemory(address, size, None, cp.cuda.runtime.getDevice())
        array: Array = cp.ndarray(shape, dtype, cp.cuda.MemoryPointer(memory, 0))
        return array


def synchronize(index: int) -> str:
    """Wait until a GPU has done what CuPy, or torch, has queued on all streams of this process.

    Returns:
        Why it was not waited for; empty where it was.
    """
    torch = getattr(sys.modules.get("torch"), "cuda", None)
    cupy = getattr(sys.modules.get("cupy"), "cuda", None)
    try:
        if torch is not None and torch.is_initialized():
            if torch.is_current_stream_capturing():
                return "torch captures a CUDA graph"
            torch.synchronize(index)
            return ""
        if cupy is not None:
            if cupy.get_current_stream().is_capturing():
                return "CuPy captures a CUDA graph"
            cupy.Device(index).synchronize()
            return ""
    except (RuntimeError, AttributeError) as error:  # AttributeError: half imported, or an old release
        return f"{type(error).__name__}: {error}"
    return "neither CuPy nor torch has used a GPU in this process"
