"""Simulated GPUs with declared resources, and scans for them to run."""

import math
from collections.abc import Sequence

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.devices.simulated.device import Faults, SimulatedDevice
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import (
    Buffer,
    Configuration,
    Plan,
    ProblemSpec,
    Progress,
    Resources,
    Source,
    Stage,
    Work,
    Workload,
)

ELEMENTS = 2**26
# What such a scan takes of registers on an H200, by elements per thread.
REGISTERS = {2: 18, 4: 22, 8: 30, 16: 42, 32: 66, 64: 118}


class NoNvrtc(Compiler):
    """Stands where no compiler serves the architecture."""

    nvrtc_version = ""

    def __init__(self) -> None:
        pass

    def compile(
        self, stages: Sequence[Stage], progress: Progress | None = None
    ) -> list[CompiledStage | CompileError]:
        raise CompilerUnavailableError(f"no NVRTC for {len(stages)} stages ({progress})")

    def close(self) -> None:
        pass


def scan(
    P: int,
    L: int,
    *,
    kernel: str = "scan",
    work: Work | None = None,
    declared: Resources | None = None,
    shared_bytes: int = 0,
    text: str = "",
) -> Plan:
    """A scan of 2**26 floats in rows of P x L: P elements per thread, L threads per block."""
    rows = ELEMENTS // (P * L)
    stage = Stage(
        name="scan",
        source=Source("scan.cu", text),
        entry="scan",
        options=(),
        grid=(rows, 1, 1),
        block=(L, 1, 1),
        shared_bytes=shared_bytes,
        arguments=("x", "y"),
        declared=declared or Resources(REGISTERS[P], static_shared_bytes=128),
    )
    return Plan(
        workload=Workload(kernel, (("N", P * L),), rows),
        configuration=Configuration({"P": P, "L": L, "pad": shared_bytes}),
        stages=(stage,),
        buffers=(
            Buffer("x", "float32", (rows, P * L), "in"),
            Buffer("y", "float32", (rows, P * L), "out"),
        ),
        problem=ProblemSpec("scan"),
        work=work or Work(bytes=8 * ELEMENTS, operations=ELEMENTS, steps=math.log2(P * L)),
    )


def device(
    name: str = "h200", *, noise: float = 0.0, seed: int = 0, faults: Faults | None = None
) -> SimulatedDevice:
    """A simulated GPU that uses declared resources."""
    return SimulatedDevice(name, seed, NoNvrtc(), noise=noise, faults=faults)


def makespan(gpu: SimulatedDevice, *plans: Plan) -> float:
    """Makespan of a round of the plans."""
    found = gpu.run(plans, 0.1).makespan_s
    assert found is not None
    return found


def joules(gpu: SimulatedDevice, *plans: Plan) -> float:
    """True energy of one round of the plans: power of the window, integrated, per round."""
    record = gpu.run(plans, 0.1)
    pieces = gpu.power_segments(record.start_s)
    return sum((min(end, record.end_s) - start) * watts for start, end, watts in pieces) / record.rounds
