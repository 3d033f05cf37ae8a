"""What compiled stages of tridiagonal kernels take, against what their kernel files declare."""

from collections.abc import Sequence
from pathlib import Path

from compiled_stages import compiled_stages

from tuner.model.plan import Stage


def check_resources(
    stages: Sequence[Stage], architecture: str, cubins: Path, within: tuple[float, float] = (0.6, 1.6)
) -> None:
    """Nothing spills, shared memory is as declared, and registers are in a range by those compiled."""
    results = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, results, strict=True):
        found, declared = result.resources, stage.declared
        assert declared is not None
        assert found.spill_bytes == found.local_bytes == 0, stage.entry
        assert found.static_shared_bytes == declared.static_shared_bytes, stage.entry
        ratio = declared.registers_per_thread / found.registers_per_thread
        assert within[0] <= ratio <= within[1], stage.entry
