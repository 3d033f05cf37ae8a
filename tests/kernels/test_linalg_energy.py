"""The benchmark of joules against NVIDIA's libraries: what is taken off, chosen and stated, on a fake GPU."""

import json
import time
from collections.abc import Callable, Iterator
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

N, OURS_S, THEIRS_S = 40, 1e-4, 3e-3
IDLE_W, BUSY_W, SIGMA = 100.0, 400.0, 1e-3
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


class FakeMeter:
    """Joules of virtual time: of an idle GPU, or of one that works. Nothing is computed in a window."""

    def __init__(self, cp: rodinia_machine.ComputingCupy) -> None:
        self._cp = cp
        self._slept_s = 0.0
        self._began_s = 0.0
        self._energy: Any = None

    def __enter__(self) -> "FakeMeter":  # noqa: PYI034 - typing.Self needs Python 3.11
        self._cp.timing = True
        self._began_s = self._now_s()
        return self

    def __exit__(self, *_: object) -> None:
        self._cp.timing = False
        seconds = self._now_s() - self._began_s
        slept_s, self._slept_s = self._slept_s, 0.0
        joules = IDLE_W * slept_s + BUSY_W * seconds
        part = SimpleNamespace(device="cuda:0", scope="gpu", sensor="fake")
        self._energy = SimpleNamespace(
            joules=joules, uncertainty_j=SIGMA * joules, seconds=seconds + slept_s, parts=[part], notes=()
        )

    def result(self) -> Any:
        return self._energy

    def sleep(self, seconds: float) -> None:
        """Of the process; what it sleeps between windows does not count."""
        if self._cp.timing:
            self._slept_s += seconds

    def _now_s(self) -> float:
        """All that was launched is done."""
        self._cp.now_s = max(self._cp.now_s, *(lane.ready_s for lane in self._cp.streams.values()))
        return float(self._cp.now_s)


@pytest.fixture(scope="module")
def energy() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_energy")


@pytest.fixture
def measured(energy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the script on a fake GPU with a fake meter."""
    cp = rodinia_machine.ComputingCupy()
    cp.current_stream()
    library = LargeFakeLibrary(cp, THEIRS_S)
    made = energy.LargeLibraries

    meter = FakeMeter(cp)
    windows = import_module("linalg_energy")
    repeated = windows.repeat

    def repeat(loop: Callable[[], Any], count: int) -> None:
        """Takes time and computes nothing: what is restored is no part of a captured graph here."""
        before, cp.timing = cp.timing, True
        repeated(loop, count)
        cp.timing = before

    monkeypatch.setattr(windows, "repeat", repeat)
    monkeypatch.setattr(windows, "time", SimpleNamespace(sleep=meter.sleep, monotonic=time.monotonic))
    monkeypatch.setattr(fake_cupy, "__getattr__", lambda name: getattr(np, name), raising=False)
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    monkeypatch.setattr(energy.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(energy.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(energy, "Compiler", lambda _: HostCompiler(cp, OURS_S))
    monkeypatch.setattr(energy, "LargeLibraries", lambda _: made(cp, library, library))
    monkeypatch.setattr(energy, "meter_of", lambda *_: meter)
    monkeypatch.setattr(energy, "BATCH", 13)
    monkeypatch.setattr("linalg_contest.LEAST_S", 0.0)
    monkeypatch.setattr("linalg_contest._LEAD_BYTES", 1)
    monkeypatch.setattr("cold_timing.FLUSH_BYTES", 1)
    monkeypatch.setattr("linalg_libraries.MOST", 3)

    def run(*words: str, code: int = 0) -> dict[str, Any]:
        out = tmp_path / "rows.json"
        command = ["--budget", "1e-3", "--window", "0.02", "--windows", "4", "--out", str(out), *words]
        assert energy.main(command) == code
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return run


@on_host
@pytest.mark.parametrize(("operation", "n"), [("potrf", N), ("potrf-batched", 5)])
def test_joules_of_a_run(measured: Any, operation: str, n: int) -> None:
    """A run takes its time at the power of the busy GPU; net of it, without the idle power."""
    found = measured("--only", operation, "--n", str(n), "--dtype", "float32")
    assert not found["failed"]
    (row,) = found["rows"]
    assert row["counted"] == [{"device": "cuda:0", "scope": "gpu", "sensor": "fake"}]
    assert row["idle_w"]["value"] == pytest.approx(IDLE_W)
    peer = row["peer"]
    assert peer["us"] == pytest.approx(1e6 * THEIRS_S, rel=0.02)
    assert peer["gross_j"]["value"] == pytest.approx(BUSY_W * THEIRS_S, rel=0.02)
    assert peer["net_j"]["value"] == pytest.approx((BUSY_W - IDLE_W) * THEIRS_S, rel=0.02)
    assert peer["w"]["value"] == pytest.approx(BUSY_W, rel=1e-6)
    assert peer["gflops_per_w"]["value"] == pytest.approx(1e-9 * row["flops"] / BUSY_W / THEIRS_S, rel=0.02)
    assert peer["gross_j"]["half"] >= 1.96 * SIGMA * peer["gross_j"]["value"] / 2**0.5
    fastest = row["fastest"]
    assert row["gain"]["value"] == pytest.approx(peer["us"] / fastest["us"], rel=0.02)
    assert row["same"]


@on_host
def test_joules_of_the_hybrid_scheme(measured: Any) -> None:
    """Of its own time; a note says that the CPU's joules are not counted."""
    words = ("--only", "getrf", "--n", str(N), "--dtype", "float32", "--hybrid", "1e-3")
    (row,) = measured(*words)["rows"]
    assert row["hybrid"]["us"] == pytest.approx(1e6 * 2 * HOST_S, rel=0.02)
    assert row["hybrid"]["gross_j"]["value"] == pytest.approx(BUSY_W * 2 * HOST_S, rel=0.02)
    assert row["hybrid"]["configuration"]["threads"] in {0, 1}
    assert not row["hybrid"]["graph"]
    assert [note for note in row["notes"] if "joules of the CPU" in note and "--scope gpu+cpu" in note]
    assert row["fastest"]["graph"]


@pytest.mark.usefixtures("energy")
def test_the_joules_of_the_cpu_may_be_counted() -> None:
    """Where a rail of the host is among those that were read, there is no note."""
    energy = import_module("linalg_energy")
    parts = [{"device": "cuda:0", "scope": "gpu"}, {"device": "host", "scope": "package"}]
    assert energy._uncounted(energy.Windows({}, parts)) == []
    assert energy._uncounted(energy.Windows({}, parts[:1]))


@pytest.mark.usefixtures("energy")
def test_a_thrifty_configuration_need_not_be_the_fastest() -> None:
    """Each is chosen by the first half of the windows, and the second half is reported."""
    energy = import_module("linalg_energy")

    def made(seconds: float, joules: float) -> Any:
        return energy.Window(seconds, joules, 0.001 * joules)

    contenders = [SimpleNamespace(name=name, configuration=None, graph=True) for name in ("peer", "a", "b")]
    peer, quick, thrifty = contenders
    field = SimpleNamespace(right_peers=[peer], right_own=[quick, thrifty])
    plan = SimpleNamespace(work=SimpleNamespace(operations=2e9))
    space = SimpleNamespace(item=SimpleNamespace(default="of the file"), plans={"of the file": plan})
    found = energy.Windows(
        {
            "peer": [made(3.1, 9.1), made(3.1, 9.1)],
            "a": [made(1.1, 5.1), made(1.1, 3.1)],
            "b": [made(2.1, 4.1), made(2.1, 4.6)],
            energy.RESTORING: [made(0.1, 0.1)] * 2,
            energy.IDLE: [made(1.0, 1.0)] * 2,
        }
    )
    row = energy.figures(space, field, found, half=1, sets=1)
    assert (row["fastest"]["name"], row["thriftiest"]["name"], row["same"]) == ("a", "b", False)
    assert row["thriftiest"]["gross_j"]["value"] == pytest.approx(4.5)
    assert row["thriftiest"]["net_j"]["value"] == pytest.approx(4.5 - 2.0)
    assert row["thriftiest"]["gflops_per_w"]["value"] == pytest.approx(2 / 4.5)
    assert row["gain"]["value"] == pytest.approx(9.0 / 4.5)
    assert row["net_gain"]["value"] == pytest.approx((9.0 - 3.0) / (4.5 - 2.0))
    assert row["default"] is None


@pytest.mark.usefixtures("energy")
def test_intervals_hold_what_sensors_state_and_how_windows_scatter() -> None:
    """The wider of both; of one window only what the sensor states."""
    figure = import_module("linalg_energy").Figure
    assert figure.of([10.0], [0.5]).half == pytest.approx(0.98)
    assert figure.of([10.0, 10.0], [0.5, 0.5]).half == pytest.approx(1.96 * 0.5 / 2**0.5)
    assert figure.of([9.0, 10.0, 11.0], [0.1] * 3).half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


@pytest.mark.usefixtures("energy")
def test_windows_that_tell_nothing_are_refused() -> None:
    """A run that seems to take no time has no watts."""
    windows = import_module("linalg_energy")
    same = {name: [windows.Window(1.0, 1.0, 0.1)] for name in ("a", windows.RESTORING, windows.IDLE)}
    with pytest.raises(ValueError, match="a takes no longer than restoring; --window must be longer"):
        windows.taken(same, "a", slice(0, 1))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--windows", "3"], "'3' is no number of windows; they must be even, 2 or more"),
        (["--window", "0"], "'0' are no seconds"),
        (["--only", "lud"], "invalid choice: 'lud'"),
        (["--n", "40000"], "'40000' is no order; orders are 2 to 32768"),
    ],
)
def test_wrong_options_are_refused(
    energy: Any, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """The message names the value and what would be right."""
    with pytest.raises(SystemExit) as end:
        energy.parsed(words)
    assert end.value.code == 2
    assert told in capsys.readouterr().err


def test_orders_that_no_kernel_takes_are_refused(energy: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Batched kernels have small orders."""
    assert energy.main(["--only", "potrf-batched", "--n", "4096"]) == 2
    assert "batched kernels take orders up to 128" in capsys.readouterr().err


def test_rows_of_both_kinds(energy: Any) -> None:
    """Batched rows stop at order 128, and small orders come first."""
    found = energy.cases(energy.parsed(["--only", "potrf", "potrf-batched", "--dtype", "float64"]))
    assert [(case.operation, case.n) for case in found] == [
        ("potrf-batched", 16),
        ("potrf-batched", 64),
        *(("potrf", n) for n in (1024, 4096, 16384)),
    ]
