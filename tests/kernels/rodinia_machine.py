"""A fake GPU in virtual time whose kernels are computed on the host, for the benchmark against Rodinia.

What is launched between two events only takes its time: nobody looks at those answers.
"""

from collections.abc import Sequence
from typing import Any

import host_build
import numpy as np
from fake_cupy import DeviceArray, Event, FakeCupy, Kernel

from tuner.compiler.compiler import CompiledStage
from tuner.model.errors import CompileError
from tuner.model.plan import Resources, Stage


class ComputedKernel(Kernel):
    """A kernel of any source."""

    def __init__(self, cp: "ComputingCupy", stage: Stage, seconds: float) -> None:
        super().__init__(lambda *_: None, seconds)
        self._cp = cp
        self._stage = stage

    def launch(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        if self._cp.timing:
            return
        stage = self._stage
        plain = [np.asarray(arg) if isinstance(arg, DeviceArray) else arg for arg in args]
        values = [arg[()] if isinstance(arg, np.ndarray) and not arg.ndim else arg for arg in plain]
        host_build.run(
            *(stage.source, stage.entry, tuple(grid), tuple(block), stage.shared_bytes, values),
            options=stage.options,
        )


class HostCompiler:
    """Compiles stages with g++; their launches last as long as is said."""

    def __init__(self, cp: "ComputingCupy", seconds: float) -> None:
        self._cp = cp
        self._seconds = seconds

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        return [self._compiled(stage) for stage in stages]

    def _compiled(self, stage: Stage) -> CompiledStage:
        name = " ".join((stage.source.sha256, stage.entry, *stage.options))
        self._cp.kernels.setdefault(name, ComputedKernel(self._cp, stage, self._seconds))
        return CompiledStage(b"cubin", name, Resources(32, architecture="sm_90"), "")

    def versions(self) -> list[str]:
        return ["g++"]


class _PlainEvent(Event):
    """Recorded when all that was launched is done; two of them surround what is timed."""

    def __init__(self, cp: "ComputingCupy") -> None:
        super().__init__(cp, block=True)
        self._machine = cp

    def record(self, stream: Any = None) -> None:
        del stream
        cp = self._machine
        cp.timing = not cp.timing
        self.at_s = max(cp.now_s, *(lane.ready_s for lane in cp.streams.values()))


class ComputingCupy(FakeCupy):
    """CuPy without a kernel yet."""

    def __init__(self) -> None:
        super().__init__({})
        self.timing = False
        self.cuda.Event = lambda **options: Event(self, **options) if options else _PlainEvent(self)
        self.cuda.get_current_stream = self.current_stream
