"""The SM resources of plans on a simulated device: compiled with NVRTC, else declared.

Rates are those of the table "Throughput of Native Arithmetic Instructions" of the CUDA C++ Programming Guide,
and for tensor cores those that the vendor's peaks of dense products come to.
"""

import logging
import threading
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.contract import code_of, resources_of
from tuner.compiler.ptx_walk import ISSUED, MOST_STEPS, REQUESTS, UNITS, Place, counted, executed
from tuner.devices.gpu_models import GpuModel
from tuner.model.errors import CompileError, CompilerUnavailableError, DeviceError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import (
    Configuration,
    Plan,
    Progress,
    Resources,
    Scalar,
    Scratch,
    Stage,
    StructValue,
    TensorMap,
    Workload,
)

# --- The arithmetic of launches, in operations of single-precision lanes.

_LEAST_STEPS = 2_000
_ARRAY_BYTES = 1 << 40  # between the made-up addresses of two arrays
_DOUBLES = ("float64", "complex128")


class UnitRates(NamedTuple):
    """Fused operations per clock and multiprocessor; 0 where the unit is not there, and fp32 lanes stand in.

    Attributes:
        fp64: double precision.
        fp16: half precision, on lanes.
        tensor: half precision, on tensor cores.
        tensor64: double precision, on tensor cores.
    """

    fp64: int
    fp16: int = 0
    tensor: int = 0
    tensor64: int = 0


RATES = {
    (2, 0): UnitRates(4),  # of a GeForce: an eighth of its lanes
    (3, 0): UnitRates(8),
    (3, 5): UnitRates(64),
    (5, 3): UnitRates(4, 256),
    (7, 0): UnitRates(32, 128, 512),
    (7, 2): UnitRates(32, 128, 512),
    (8, 0): UnitRates(32, 256, 1024, 64),
    (8, 7): UnitRates(2, 128, 1024),
    (9, 0): UnitRates(64, 256, 1892, 128),  # 989 TFLOP/s at 1980 MHz
}
"""By compute capability, of all GPUs that are modelled."""


class StageArithmetic(NamedTuple):
    """Operations and instructions of a stage.

    Attributes:
        weight: operations of fp32 lanes that stand for one stated operation.
        operations: of fp32 lanes, by its compiled code; 0 where its work is stated, or nothing was compiled.
        issued: instructions of all threads, by its compiled code; 0 likewise.
        requests: loads and stores among them.
    """

    weight: float = 1.0
    operations: float = 0.0
    issued: float = 0.0
    requests: float = 0.0


def per_clock(gpu: GpuModel, unit: str) -> float:
    """Fused operations of a unit per clock and multiprocessor; ``unit`` as in ``ptx.UNITS``."""
    rates = RATES[gpu.limits.compute_capability]
    tensor = rates.tensor or gpu.fp32_lanes
    return float(
        {
            "fp32": gpu.fp32_lanes,
            "fp64": rates.fp64,
            "fp16": rates.fp16 or gpu.fp32_lanes,
            "tensor64": rates.tensor64 or rates.fp64,
            "tensor32": tensor / 2,
            "tensor16": tensor,
            "tensor8": 2 * tensor,
            "tensor4": 4 * tensor,
            "tensor1": 16 * tensor,
        }[unit]
    )


def stage_arithmetic(plan: Plan, stages: Mapping[int, str], gpu: GpuModel) -> tuple[StageArithmetic, ...]:
    """Return the arithmetic of each stage of a plan.

    Args:
        plan: the plan.
        stages: PTX by the place of the stage; without those that libraries run, or that are not compiled.
        gpu: whose rates count.
    """
    doubles = any(buffer.dtype in _DOUBLES for buffer in plan.buffers)
    declared = StageArithmetic(gpu.fp32_lanes / per_clock(gpu, "fp64") if doubles else 1.0)
    by_code: dict[object, StageArithmetic] = {}
    stages_arithmetic = []
    most_steps = max(_LEAST_STEPS, MOST_STEPS // max(1, len(stages)))
    for index, stage in enumerate(plan.stages):
        ptx = stages.get(index, "")
        key = (ptx, stage.arguments, stage.block, stage.grid) if plan.work.assumed else ptx
        if key not in by_code:
            by_code[key] = _of_code(plan, stage, ptx, gpu, most_steps) if ptx else declared
        stages_arithmetic.append(by_code[key])
    return tuple(stages_arithmetic)


def _of_code(plan: Plan, stage: Stage, ptx: str, gpu: GpuModel, most_steps: int) -> StageArithmetic:
    if not plan.work.assumed:
        counts = counted(ptx)
        total = sum(counts[unit] for unit in UNITS)
        return StageArithmetic(_lane_operations(counts, gpu) / total if total else 1.0)
    middle = tuple(size // 2 for size in stage.block), tuple(size // 2 for size in stage.grid)
    counts = executed(ptx, _values(plan, stage), Place(*middle, stage.block, stage.grid), most_steps)
    threads = stage.blocks * stage.threads_per_block
    operations = threads * _lane_operations(counts, gpu)
    return StageArithmetic(1.0, operations, threads * counts[ISSUED], threads * counts[REQUESTS])


def _lane_operations(counts: Counter[str], gpu: GpuModel) -> float:
    lanes = gpu.fp32_lanes
    return sum(counts[unit] * lanes / per_clock(gpu, unit) for unit in UNITS)


def _values(plan: Plan, stage: Stage) -> tuple[int | None, ...]:
    """Return the arguments as a walk takes them: whole numbers, and an address of its own for each array."""
    addresses = {buffer.name: _ARRAY_BYTES * number for number, buffer in enumerate(plan.buffers, 1)}
    values: list[int | None] = []
    for argument in stage.arguments:
        if isinstance(argument, Scalar):
            values.append(int(argument.value) if argument.dtype.startswith(("int", "uint", "bool")) else None)
        elif isinstance(argument, (StructValue, TensorMap, Scratch)):
            values.append(None)
        else:
            values.append(addresses[argument if isinstance(argument, str) else argument.buffer])
    return tuple(values)


# --- The resources of a plan: compiled, else declared.

_LOG = logging.getLogger(__name__)
_OLDEST_FOR_NVRTC = (5, 0)  # Fermi and Kepler are past its reach: compiled for sm_50 and labelled so

Answer = tuple[Resources, ...] | CompileError


class ModelResources:
    """Finds the resources of plans and remembers them; may be used by several threads."""

    def __init__(self, limits: DeviceLimits, compiler: Compiler | None) -> None:
        """Use a compiler, or open one for the GPU's architecture when it is first needed.

        Args:
            limits: of the simulated GPU.
            compiler: compiles for ``architecture``; opened (and then closed) here when None.
        """
        self._limits = limits
        self._compiler: Compiler | None = compiler
        self._owned = compiler is None
        self._opening = threading.Lock()
        self._closed = False
        self._version = ""
        self._absent = False
        self._why_absent = ""
        self._ptx: dict[tuple[object, ...], bytes] = {}  # compressed
        self._arithmetic: dict[tuple[Workload, Configuration], tuple[StageArithmetic, ...]] = {}
        self._known: dict[tuple[Workload, Configuration], tuple[Plan, Answer]] = {}

    @property
    def architecture(self) -> str:
        """Architecture that code is compiled for: the GPU's own architecture, or ``sm_50`` for older ones."""
        if self._limits.compute_capability < _OLDEST_FOR_NVRTC:
            return "sm_50"
        return self._limits.architecture

    @property
    def nvrtc_version(self) -> str:
        """Version of the compiler, or empty where there is none."""
        if not self._closed:
            compiler = self._open()
            self._version = compiler.nvrtc_version if compiler else ""
        return self._version

    def of(self, plans: Sequence[Plan], progress: Progress | None = None) -> list[Answer]:
        """Resources of each plan's stages, or the error of a plan that does not compile."""
        unknown = {(plan.workload, plan.configuration): plan for plan in plans if self._recall(plan) is None}
        if unknown:
            stages: dict[tuple[object, ...], Stage] = {}
            for stage in (stage for plan in unknown.values() for stage in plan.stages):
                if stage.library is None:
                    stages.setdefault(code_of(stage), stage)
            compiled = dict(zip(stages, self._of_stages(list(stages.values()), progress), strict=True))
            for code, result in compiled.items():
                if not isinstance(result, CompileError) and result.ptx:
                    self._ptx[code] = zlib.compress(result.ptx.encode(), 1)
            for key, plan in unknown.items():
                self._known[key] = plan, _of_the_host(plan) or resources_of(plan, compiled)
                self._arithmetic.pop(key, None)
        return [self._known[plan.workload, plan.configuration][1] for plan in plans]

    def arithmetic(self, plan: Plan, gpu: GpuModel) -> tuple[StageArithmetic, ...]:
        """Return the arithmetic of each stage, by its compiled code, for plans that ``of`` compiled."""
        key = plan.workload, plan.configuration
        if key not in self._arithmetic:
            answer = self.of([plan])[0]
            plan = plan if isinstance(answer, CompileError) else plan.as_compiled(answer)
            own = {index: stage for index, stage in enumerate(plan.stages) if stage.library is None}
            code = {index: self._ptx.get(code_of(stage), b"") for index, stage in own.items()}
            text = {packed: zlib.decompress(packed).decode() for packed in set(code.values()) if packed}
            stages = {index: text[packed] for index, packed in code.items() if packed}
            self._arithmetic[key] = stage_arithmetic(plan, stages, gpu)
        return self._arithmetic[key]

    def close(self) -> None:
        """Close the compiler that was opened here."""
        with self._opening:
            self._closed = True
        if self._owned and self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def _recall(self, plan: Plan) -> Answer | None:
        """Return the stored answer to a plan; the same names with other code are another plan."""
        stored = self._known.get((plan.workload, plan.configuration))
        if stored is None or not (stored[0] is plan or stored[0].stages == plan.stages):
            return None
        return stored[1]

    def _open(self) -> Compiler | None:
        with self._opening:
            if self._absent:
                return None
            if self._compiler is None:
                if self._closed:
                    raise DeviceError("nothing is compiled for a closed device")
                try:
                    self._compiler = Compiler(self.architecture)
                except CompilerUnavailableError as error:
                    self._give_up(error)
            return self._compiler

    def _give_up(self, error: CompilerUnavailableError) -> None:
        self._absent = True
        self._why_absent = str(error)

    def _of_stages(
        self, stages: list[Stage], progress: Progress | None
    ) -> list[CompiledStage | CompileError]:
        compiler = self._open()
        if compiler is not None:
            try:
                compiled = compiler.compile(stages, progress)
            except CompilerUnavailableError as error:
                if self._closed:  # by another thread
                    raise
                self._give_up(error)
            else:
                return [
                    result
                    if isinstance(result, CompileError)
                    else replace(result, resources=self._fit(result.resources))
                    for result in compiled
                ]
        if self._why_absent:  # told once, and only where it matters: a list of devices needs no compiler
            _LOG.warning("resources are those the kernel files declare: %s", self._why_absent)
            self._why_absent = ""
        return [_declared(stage) for stage in stages]

    def _fit(self, resources: Resources) -> Resources:
        """Return the resources of newer code on an older GPU: registers past its limit are spilled."""
        excess = resources.registers_per_thread - self._limits.max_registers_per_thread
        if excess <= 0:
            return resources
        return replace(
            resources,
            registers_per_thread=self._limits.max_registers_per_thread,
            spill_bytes=resources.spill_bytes + 8 * excess,  # a store and a load of four bytes each
        )


def _of_the_host(plan: Plan) -> CompileError | None:
    """Return the error for a plan of which the CPU computes a part, or None."""
    stage = next((each for each in plan.stages if each.library is not None and each.library.on_host), None)
    if stage is None:
        return None
    return CompileError(
        f"{plan.label()}: stage {stage.name!r} is LAPACK on the CPU, which no simulated device models;"
        " run it on cuda:N"
    )


def _declared(stage: Stage) -> CompiledStage | CompileError:
    """Return the resources that a kernel file declares, in the place of code."""
    if stage.declared is not None:
        return CompiledStage(b"", stage.entry, replace(stage.declared, compiled=False), "")
    return CompileError(
        f"stage {stage.name!r} of {stage.source.path}: no NVRTC to compile it, and its kernel file declares"
        " no [resources]; install nvidia-cuda-nvrtc-cu12 or declare registers"
    )
