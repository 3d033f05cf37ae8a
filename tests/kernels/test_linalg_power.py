"""Power over time of schemes that factor a matrix: joules, runs of the child, the picture."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_cupy
import host_build
import numpy as np
import pytest
import rodinia_machine
from benchmark_scripts import ROOT, benchmark
from fake_cuda import LIMITS
from fake_linalg_large import HOST_S, HostLibraries, LargeFakeLibrary
from test_linalg_peers import HostCompiler
from test_tracing import COUNTER as FAST_COUNTER
from test_tracing import FakeSampler
from tuner.power.base import Sample, SensorInfo, Span

from tuner.model.errors import InputError

N, OURS_S, THEIRS_S = 40, 1e-4, 3e-3
IDLE_W, BUSY_W, HOST_W = 100.0, 400.0, 50.0
RING = SensorInfo("ring", "ring", "gpu", 0.02, resolution=0.001)
RAIL = SensorInfo("powercap:package", "counter", "package", 0.02, resolution=0.001)
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture(scope="module")
def power() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_power")


class FakeTrace:
    """Virtual time; power is that of a busy GPU while a scheme runs."""

    def __init__(
        self, cp: rodinia_machine.ComputingCupy, trace: Any, run: Callable[[Sequence[str]], int]
    ) -> None:
        self._cp, self._trace, self._run = cp, trace, run
        self.seen_s: list[float] = []

    def now_s(self) -> float:
        """Asked for when a scheme begins and ends, and at last when nothing runs."""
        self.seen_s.append(self._cp.now_s)
        return self.seen_s[-1]

    def sleep(self, seconds: float) -> None:
        self._cp.now_s += seconds

    def synchronize(self) -> None:
        self._cp.now_s = max(self._cp.now_s, *(lane.ready_s for lane in self._cp.streams.values()))

    def traced(self, command: Sequence[str], scope: str, sensor: str | None) -> Any:
        assert sensor is None
        code = self._run(command[2:])
        parts = [[(RING, self._ring())]]
        if scope == "gpu+cpu":
            times = [sample.time_s for sample in self._ring()]
            parts.append([(RAIL, tuple(Sample(at, HOST_W * at) for at in times))])
        return self._trace.Traced(code, parts)

    def _ring(self) -> tuple[Sample, ...]:
        times = np.arange(self.seen_s[0] - 1.0, self.seen_s[-1] + 1.0, RING.period_s)
        busy = np.searchsorted(self.seen_s[:-2], times) % 2 == 1
        return tuple(Sample(float(at), BUSY_W if on else IDLE_W) for at, on in zip(times, busy, strict=True))


@pytest.fixture
def measured(power: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the script on a fake GPU with a fake trace; the child runs in this process."""
    cp = rodinia_machine.ComputingCupy()
    cp.current_stream()
    library = LargeFakeLibrary(cp, THEIRS_S)
    trace = FakeTrace(cp, import_module("linalg_power"), power.main)
    repeated, made = power.repeat, power.LargeLibraries

    def repeat(loop: Callable[[], Any], count: int) -> None:
        """Takes time and computes nothing."""
        before, cp.timing = cp.timing, True
        repeated(loop, count)
        cp.timing = before

    monkeypatch.setattr(power, "repeat", repeat)
    monkeypatch.setattr(power, "traced", trace.traced)
    monkeypatch.setattr(power, "now_s", trace.now_s)
    monkeypatch.setattr(power, "time", SimpleNamespace(sleep=trace.sleep, monotonic=time.monotonic))
    monkeypatch.setattr(cp.cuda.runtime, "deviceSynchronize", trace.synchronize)
    monkeypatch.setattr(fake_cupy, "__getattr__", lambda name: getattr(np, name), raising=False)
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    monkeypatch.setattr(power.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(power.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(power, "Compiler", lambda _: HostCompiler(cp, OURS_S))
    monkeypatch.setattr(power, "LargeLibraries", lambda _: made(cp, library, library))
    monkeypatch.setattr("linalg_contest._LEAD_BYTES", 1)
    monkeypatch.setattr("cold_timing.FLUSH_BYTES", 1)

    def run(*words: str, code: int = 0, **changes: Any) -> dict[str, Any]:
        for name, value in changes.items():
            setattr(library, name, value)
        out = tmp_path / "power.json"
        command = ["--n", str(N), "--budget", "1e-3", "--seconds", "0.3", "--out", str(out), *words]
        assert power.main(command) == code
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return run


@on_host
def test_joules_and_curve_of_each_scheme(measured: Any, tmp_path: Path) -> None:
    """Of a run the power of the busy GPU for its time; the curve shows that, and the idle GPU before it."""
    pytest.importorskip("matplotlib")
    plot = tmp_path / "power.svg"
    found = measured("--only", "getrf", "--plot", str(plot))
    assert set(found["schemes"]) == {"hybrid", "gpu-only", "cusolver"}
    assert (found["operation"], found["n"], found["dtype"], found["missing"]) == ("getrf", N, "float64", [])
    for name, seconds in (("hybrid", 2 * HOST_S), ("cusolver", THEIRS_S)):
        one = found["schemes"][name]
        assert one["seconds"] == pytest.approx(seconds, rel=0.02)
        assert one["runs"] == pytest.approx(0.3 / seconds, rel=0.04)
        assert one["joules"]["value"] == pytest.approx(BUSY_W * seconds, rel=0.1)
        assert one["net_joules"]["value"] == pytest.approx((BUSY_W - IDLE_W) * seconds, rel=0.12)
        assert one["joules"]["half"] > 0
        assert one["gflops_per_w"]["value"] == pytest.approx(1e-9 * one["flops"] / one["joules"]["value"])
        watts = dict(zip(one["times_s"], one["watts"], strict=True))
        assert {round(w) for at, w in watts.items() if at < -0.05} == {IDLE_W}
        assert {round(w) for at, w in watts.items() if 0.05 < at < 0.25} == {BUSY_W}
    assert found["schemes"]["hybrid"]["configuration"]["threads"] in {0, 1}
    assert "which factors the panels of hybrid, are not counted" in plot.read_text()
    assert "Gflop/s/W" in plot.read_text()


@on_host
def test_joules_of_the_host_are_added(measured: Any) -> None:
    """Where they are asked for, and nothing is said to be missing; gemm alone is the paper's figure 7."""
    found = measured("--only", "potrf", "--schemes", "hybrid", "gemm", "--scope", "gpu+cpu")
    hybrid = found["schemes"]["hybrid"]
    assert [part["scope"] for part in hybrid["counted"]] == ["gpu", "package"]
    assert hybrid["joules"]["value"] == pytest.approx((BUSY_W + HOST_W) * HOST_S, rel=0.1)
    assert found["schemes"]["gemm"]["flops"] == 2 * N**3
    assert import_module("linalg_power").uncounted(found) == ""


@on_host
def test_schemes_that_answer_wrong_are_left_out(measured: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """And named; the others are measured."""
    found = measured(
        "--only", "potrf", "--schemes", "cusolver", "gpu-only", computed=lambda answer: 1.1 * answer
    )
    assert (list(found["schemes"]), found["missing"]) == (["gpu-only"], ["cusolver"])
    assert found["cpu"] is None
    assert "nothing answers right: cusolver" in capsys.readouterr().err


@pytest.mark.usefixtures("power")
def test_what_the_sensors_do_not_show_is_refused() -> None:
    """The message has the sensor and the time."""
    trace = import_module("linalg_power")
    found = trace.Traced(0, [[(RING, ())]])
    with pytest.raises(InputError, match=r"ring showed nothing of 1 s; --seconds must be longer"):
        trace.spent(found, Span(1.0, 2.0))


def test_a_sensor_that_is_missing_is_told(
    power: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with exit code 2; so is a counter, which draws no curve."""
    trace = import_module("linalg_power")
    monkeypatch.setattr(trace, "gpu_for", lambda *_: None)
    monkeypatch.setattr(trace, "opened_host", lambda _: _Opened(()))
    monkeypatch.setattr(trace, "opened", lambda *_: _Opened((SimpleNamespace(info=RAIL),)))
    assert power.main(["--n", "64"]) == 2
    told = capsys.readouterr().err
    assert "powercap:package: a counter shows no power over time; name another --sensor" in told


def test_pictures_that_cannot_be_drawn_are_refused_early(
    power: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Before anything is measured."""

    def traced(*_: object) -> None:
        raise AssertionError("something is measured")

    monkeypatch.setattr(power, "traced", traced)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert power.main(["--plot", str(tmp_path / "power.svg")]) == 2
    assert "--plot needs matplotlib" in capsys.readouterr().err


class _Opened:
    """Samplers that are open while a block runs."""

    def __init__(self, samplers: tuple[Any, ...]) -> None:
        self._samplers = samplers

    def __enter__(self) -> tuple[Any, ...]:
        return self._samplers

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("power")
def test_samples_come_while_the_child_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings of the GPU are one part, each of the host's another; the exit code is that of the child."""
    trace = import_module("linalg_power")
    monkeypatch.setattr(trace, "_IDLE_S", 0.02)
    monkeypatch.setattr(trace, "gpu_for", lambda *_: None)
    samplers = FakeSampler(), FakeSampler(replace(FAST_COUNTER, name="powercap:package", scope="package"))
    monkeypatch.setattr(trace, "opened", lambda *_: _Opened(samplers[:1]))
    monkeypatch.setattr(trace, "opened_host", lambda _: _Opened(samplers[1:]))
    found = trace.traced([sys.executable, "-c", "raise SystemExit(3)"], "gpu+cpu", None)
    assert found.code == 3
    assert [[info.scope for info, _ in readings] for readings in found.parts] == [["gpu"], ["package"]]
    assert all(len(samples) > 2 for readings in found.parts for _, samples in readings)


@pytest.mark.usefixtures("power")
def test_counters_are_read_again_and_again() -> None:
    """A trace alone would read them at its ends, which tells nothing of what lies between."""
    trace = import_module("linalg_power")
    sampler = SimpleNamespace(info=RAIL, due_s=3.0, poll=lambda: [Sample(1.0, 2.0)], close=lambda: None)
    often = trace.OftenRead(sampler)
    assert import_module("tuner.joules.traces").pause_s(often.info) == pytest.approx(0.02)
    assert (often.due_s, often.poll()) == (3.0, [Sample(1.0, 2.0)])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--n", "1"], "'1' is no order; orders are 2 to 32768"),
        (["--only", "gemm"], "invalid choice: 'gemm'"),
        (["--schemes", "magma"], "invalid choice: 'magma'"),
        (["--seconds", "0"], "'0' are no seconds"),
    ],
)
def test_wrong_options_are_refused(
    power: Any, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """The message names the value and what would be right."""
    with pytest.raises(SystemExit) as end:
        power.parsed(words)
    assert end.value.code == 2
    assert told in capsys.readouterr().err
