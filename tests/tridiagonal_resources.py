"""What compiled stages of tridiagonal kernels take, against what their kernel files declare."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.compiler import CompiledStage, Compiler
from tuner.errors import CompilerUnavailableError
from tuner.model import Stage


def check_resources(
    stages: Sequence[Stage], architecture: str, cubins: Path, within: tuple[float, float] = (0.6, 1.6)
) -> None:
    """Nothing spills, shared memory is as declared, and registers are in a range by those compiled."""
    try:
        with Compiler(architecture, cubins) as compiler:
            results = compiler.compile(stages)
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    for stage, result in zip(stages, results, strict=True):
        assert isinstance(result, CompiledStage), result
        found, declared = result.resources, stage.declared
        assert declared is not None
        assert found.spill_bytes == found.local_bytes == 0, stage.entry
        assert found.static_shared_bytes == declared.static_shared_bytes, stage.entry
        ratio = declared.registers_per_thread / found.registers_per_thread
        assert within[0] <= ratio <= within[1], stage.entry
