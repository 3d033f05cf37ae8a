import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from modelled import device, scan

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import Progress, Resources, Stage
from tuner.model.trial import Status


class FakeCompiler(Compiler):
    """Answers with given registers; fails stages whose text says so; counts what it is asked."""

    nvrtc_version = "12.9"

    def __init__(self, registers: int = 40) -> None:
        self.registers = registers
        self.asked = 0
        self.closed = False

    def compile(
        self, stages: Sequence[Stage], progress: Progress | None = None
    ) -> list[CompiledStage | CompileError]:
        self.asked += len(stages)
        if progress is not None:
            progress(len(stages), len(stages))
        return [
            CompileError("line 1: expected a ;")
            if "broken" in stage.source.text
            else CompiledStage(b"", stage.entry, Resources(self.registers, architecture="sm_50"), "")
            for stage in stages
        ]

    def close(self) -> None:
        self.closed = True


def test_declared_resources_and_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    """Without NVRTC the declared resources are used, marked as such, with a single notice."""
    sim = device()
    with caplog.at_level(logging.WARNING):
        (first,) = sim.resources([scan(4, 128)])
        sim.resources([scan(8, 128), scan(16, 128)])
    assert isinstance(first, tuple)
    assert (first[0].registers_per_thread, first[0].compiled) == (22, False)
    assert len(caplog.records) == 1
    assert sim.identity.runtime == ""


def test_nothing_declared_is_a_compile_error() -> None:
    """Without NVRTC a kernel file that declares nothing fails that plan with what to do."""
    plan = scan(4, 128)
    bare = replace(plan, stages=(replace(plan.stages[0], declared=None),))
    (found,) = device().resources([bare])
    assert isinstance(found, CompileError)
    assert "install nvidia-cuda-nvrtc-cu12" in str(found)


def test_compiled_once_and_remembered() -> None:
    """A plan is compiled once, and again only when its code differs."""
    compiler = FakeCompiler()
    sim = SimulatedDevice("h200", compiler=compiler)
    calls: list[tuple[int, int]] = []
    sim.resources([scan(4, 128), scan(4, 128)], lambda done, total: calls.append((done, total)))
    sim.run([scan(4, 128)], 0.1)
    assert compiler.asked == 1
    assert calls == [(1, 1)]
    sim.resources([scan(4, 128, text="changed")])
    assert compiler.asked == 2
    assert sim.identity.runtime == "12.9"
    sim.close()
    assert not compiler.closed  # it belongs to the caller


def test_compile_error_names_the_configuration_and_stops_no_other() -> None:
    """One configuration that does not compile is answered by its error, the others by their resources."""
    sim = SimulatedDevice("h200", compiler=FakeCompiler())
    bad, good = sim.resources([scan(4, 128, text="broken"), scan(8, 128)])
    assert isinstance(bad, CompileError)
    assert "P=4 L=128" in str(bad)
    assert isinstance(good, tuple)
    result = sim.run([scan(4, 128, text="broken")], 0.1).results[0]
    assert result.status is Status.COMPILE_ERROR


def test_registers_past_an_old_gpus_limit_are_spilled() -> None:
    """Code compiled for sm_50 with more than 63 registers spills on the GTX 680."""
    found = SimulatedDevice("gtx680", compiler=FakeCompiler(73)).resources([scan(4, 128)])[0]
    assert isinstance(found, tuple)
    assert (found[0].registers_per_thread, found[0].spill_bytes) == (63, 80)
    assert found[0].architecture == "sm_50"


def test_nvrtc_compiles_for_kepler_as_sm_50(cubins: Path) -> None:
    """The K20c is past NVRTC's reach: its resources are compiled facts of sm_50, labelled so."""
    sim = SimulatedDevice("k20c")
    assert sim.architecture == "sm_50"
    try:
        compiler = Compiler(sim.architecture, cache_dir=cubins, jobs=1)
    except CompilerUnavailableError as error:
        pytest.skip(str(error))
    with compiler:
        text = (
            'extern "C" __global__ void scan(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }'
        )
        (found,) = SimulatedDevice("k20c", compiler=compiler).resources([scan(4, 128, text=text)])
    assert isinstance(found, tuple)
    assert (found[0].architecture, found[0].compiled) == ("sm_50", True)
    assert 0 < found[0].registers_per_thread < 32
