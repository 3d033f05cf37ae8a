"""A GPU in this process, for arrays, streams and memory that belong to the caller."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.resources import plan_resources
from tuner.devices.base import Progress
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.launches import LaunchRefusedError, Program
from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.errors import CompileError, DeviceError
from tuner.model.plan import Plan, Resources, Stage
from tuner.model.trial import Status


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
    """As much of a ``tuner.devices.base.Device`` as candidates are compiled with."""

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
