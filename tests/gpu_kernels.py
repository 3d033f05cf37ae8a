"""Kernels on the GPU of tests: which of them it can run, and their code compiled ahead."""

from collections.abc import Iterable
from typing import Any

from tuner.compiler.compiler import Compiler
from tuner.model.errors import CompileError
from tuner.model.plan import Plan


def architecture(cp: Any) -> int:
    """Of the GPU, as ``Stage.min_architecture`` has it: 90 for compute capability 9.0."""
    return int(cp.cuda.Device().compute_capability)


def runs_here(cp: Any, plan: Plan) -> bool:
    """Whether the GPU has the instructions and the shared memory that a plan needs."""
    limit = cp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    own = architecture(cp)
    return all(stage.min_architecture <= own and stage.shared_bytes <= limit for stage in plan.stages)


def compile_ahead(cp: Any, plans: Iterable[Plan]) -> None:
    """Compile plans for the GPU into the cache on disk, by all cores at once, as far as it can run them."""
    own = architecture(cp)
    stages = [stage for plan in plans for stage in plan.stages if stage.min_architecture <= own]
    with Compiler(f"sm_{own}") as compiler:
        assert not [found for found in compiler.compile(stages) if isinstance(found, CompileError)]
