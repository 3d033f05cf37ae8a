import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from modelled import device, scan

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.devices.gpu_models import GpuModel, VoltageCurve, gpu_model, gpu_names
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.errors import CompileError, CompilerUnavailableError, UnknownNameError
from tuner.model.plan import Progress, Resources, Stage
from tuner.model.trial import Status

ALL = [gpu_model(name) for name in gpu_names()]


@pytest.mark.parametrize(
    ("name", "clocks_mhz", "column"),
    [
        ("k40c", (875, 810, 745, 666), ((3, 5), 15, 2048, 16)),
        ("k20c", (758, 705, 666, 640, 614), ((3, 5), 13, 2048, 16)),
        ("gtx680", (1058,), ((3, 0), 8, 2048, 16)),
        ("gtx580", (1594,), ((2, 0), 16, 1536, 8)),
    ],
)
def test_papers_gpus(
    name: str, clocks_mhz: tuple[int, ...], column: tuple[tuple[int, int], int, int, int]
) -> None:
    """The GPUs of the multi-kernel paper are those of its Table III."""
    limits = gpu_model(name).limits
    assert gpu_model(name).clocks_mhz == clocks_mhz
    assert column == (
        limits.compute_capability,
        limits.multiprocessors,
        limits.max_threads_per_sm,
        limits.max_blocks_per_sm,
    )


def test_jetson_tx1() -> None:
    """The TX1 is the one of the embedded paper's section II, with the 13 clocks of its driver."""
    gpu = gpu_model("jetson-tx1")
    assert gpu.limits.multiprocessors == 2
    assert gpu.limits.l2_bytes == 256 * 1024
    assert gpu.limits.compute_capability == (5, 3)
    assert gpu.clocks_mhz[0] == 998
    assert gpu.clocks_mhz[-1] == 76
    assert len(gpu.clocks_mhz) == 13


def test_h200_clocks() -> None:
    """The H200 has the 110 clocks its driver lists: 345 to 1980 MHz in steps of 15."""
    assert gpu_model("h200").clocks_mhz == tuple(range(1980, 344, -15))


def test_prefix_is_optional() -> None:
    """The name may carry the prefix users type."""
    assert gpu_model("sim:k20c") is gpu_model("k20c")


def test_further_gpus_of_a_kind_differ_in_watts_alone() -> None:
    """sim:NAME.2 to .8 are other GPUs of one product, with limits, clocks and power limit of the first."""
    first, fourth = gpu_model("h200"), gpu_model("sim:h200.4")
    assert fourth.name == "h200.4"
    assert fourth.power.memory_w == pytest.approx(1.08 * first.power.memory_w)
    assert replace(fourth, name=first.name, power=first.power) == first
    assert fourth.power.limit_w == first.power.limit_w
    with pytest.raises(UnknownNameError):
        gpu_model("h200.9")


def test_unknown_name_lists_choices_and_nearest() -> None:
    """A misspelt GPU is answered with the nearest name and all of them."""
    with pytest.raises(UnknownNameError, match=r"jetson-tx1.*h200; did you mean 'k40c'\?"):
        gpu_model("k40")


@pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)
def test_table_is_sane(gpu: GpuModel) -> None:
    """Clocks fall strictly, parts of the power are positive, and full load is past half of the limit."""
    assert all(a > b > 0 for a, b in itertools.pairwise(gpu.clocks_mhz))
    power = gpu.power
    parts = (power.idle_w, power.clock_w, power.active_w, power.memory_w, power.transport_w, power.issue_w)
    assert min(parts) > 0
    assert sum(parts) > power.limit_w / 2
    assert power.idle_w + power.clock_w < power.limit_w / 2
    assert gpu.voltage.top_mhz == pytest.approx(gpu.clocks_mhz[0], abs=1)


@pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)
def test_voltage_rises_with_the_clock(gpu: GpuModel) -> None:
    """Voltage never falls with the clock and ends at its top value."""
    volts = [gpu.voltage.volts(mhz) for mhz in reversed(gpu.clocks_mhz)]
    assert all(a <= b for a, b in itertools.pairwise(volts))
    assert volts[-1] == pytest.approx(gpu.voltage.high_v, rel=0.01)


def test_voltage_curve_is_flat_then_linear() -> None:
    """Below the knee the voltage is constant, half-way above it it is half-way up."""
    curve = VoltageCurve(low_v=0.8, high_v=1.0, knee_mhz=500.0, top_mhz=1000.0)
    assert curve.volts(100.0) == curve.volts(500.0) == 0.8
    assert curve.volts(750.0) == pytest.approx(0.9)
    assert curve.squared(1000.0) == 1.0


def test_geforces_have_no_power_sensor() -> None:
    """Table IV's footnote: the GTX 680 and 580 have no built-in power sensor; the Teslas lag by C."""
    assert gpu_model("gtx680").sensors == ()
    assert gpu_model("gtx580").sensors == ()
    k20c, k40c = gpu_model("k20c").sensors[0], gpu_model("k40c").sensors[0]
    assert k20c is not None
    assert k40c is not None
    assert (k20c.capacitance_s, k40c.capacitance_s) == (0.833, 0.79)


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
