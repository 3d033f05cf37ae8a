"""The arithmetic of launches in operations of single-precision lanes; those of other units by their rates.

Rates are those of the table "Throughput of Native Arithmetic Instructions" of the CUDA C++ Programming Guide,
and for tensor cores those that the vendor's peaks of dense products come to.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tuner.compiler.ptx_walk import ISSUED, MOST_STEPS, REQUESTS, UNITS, Place, counted, executed
from tuner.devices.gpu_models import GpuModel
from tuner.model.plan import Plan, Scalar, Scratch, Stage, StructValue, TensorMap

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
