"""Stages as NVRTC compiles them, where there is one for the architecture."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.model.errors import CompilerUnavailableError
from tuner.model.plan import Stage


def compiled_stages(stages: Sequence[Stage], architecture: str, cubins: Path) -> list[CompiledStage]:
    """What stages are compiled to, in their order; none may fail. Without NVRTC the test is skipped.

    Args:
        stages: of plans.
        architecture: as ``sm_90``.
        cubins: where they are kept.
    """
    try:
        with Compiler(architecture, cubins) as compiler:
            results = compiler.compile(stages)
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    made = [result for result in results if isinstance(result, CompiledStage)]
    failed = [str(result) for result in results if not isinstance(result, CompiledStage)]
    assert not failed, f"{len(failed)} of {len(results)} for {architecture}: {failed[0]}"
    return made
