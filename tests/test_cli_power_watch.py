"""``tuner power watch``: lines, JSON, and how it ends."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import PATIENCE_S, begun, tuner
from fake_nvml_state import State, fake_nvml, follow_real_time, library, lose, script, sensors_of_h200
from tuner.power.base import Sample, SensorInfo
from tuner.power.sensors.recorded import TraceFile

FAST = ("--interval", "0.2")


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """An H200 that draws 250 W."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
    with fake_nvml(tmp_path) as state:
        script(state, (0.0, 250.0))
        sensors_of_h200(state)
        follow_real_time(state)
        state.millijoules = 1
        yield state


def test_lines_and_a_summary(nvml: State) -> None:
    """Each line has a reading's power, mean, joules with their interval, clock and temperature."""
    nvml.reason_bits = 0x4
    result = tuner("power", "watch", *FAST, "--count", "3")
    lines = [line for line in result.stdout.splitlines() if "nvml-power-ring (gpu): 2" in line]

    assert result.exit_code == 0, result.output
    assert len(lines) >= 3
    for text in ("W (shows 2", "mean 2", " ± ", "s; 1980 MHz, held back by sw-power-cap, 40 °C"):
        assert text in lines[0]
    assert "throttled meanwhile: sw-power-cap" in result.stdout
    assert "nvml-energy-counter" in result.stdout
    assert (nvml.sets, nvml.resets) == (0, 0)


def test_json_lines(nvml: State, tmp_path: Path) -> None:
    """A document on every line, with the truth within the uncertainty; - has standard output for itself."""
    assert nvml.segment_count == 1
    result = tuner("power", "watch", *FAST, "--seconds", "0.6", "--json", "-", "--sensor", "nvml-power-ring")
    rows = [json.loads(line) for line in result.stdout.splitlines()]

    assert len(rows) == 3
    last = rows[-1]["readings"][0]
    assert last["reading"] == "nvml-power-ring"
    assert abs(last["joules"] - 250.0 * last["seconds"]) < 6.0 * last["joules_uncertainty"]
    assert rows[-1]["clock_mhz"] == 1980.0
    assert rows[-1]["temperature_c"] == 40.0
    path = tmp_path / "watch.jsonl"
    tuner("power", "watch", *FAST, "--count", "2", "--json", path)
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("limit", "number", "code"),
    [((), signal.SIGTERM, 0), (("--count", "9999"), signal.SIGINT, 130)],
)
def test_signals_end_it_with_a_summary(
    nvml: State, limit: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    """Ctrl-C is how an endless watch ends; one that was to go on for longer was interrupted."""
    assert nvml.segment_count == 1
    code_text = (
        "import ctypes, pynvml, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.stdout.reconfigure(line_buffering=True)\n"
        f"pynvml.nvmlLib = ctypes.CDLL({library()!r})\n"
        "from tuner.__main__ import main; main()"
    )
    process = begun("power", "watch", "--device", "0", *FAST, *limit, code=code_text)
    assert process.stdout is not None
    assert "nvml-energy-counter" in process.stdout.readline()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == code, err
    assert "± is 95 %" in out
    assert "Traceback" not in err


def test_a_lost_gpu_is_told(nvml: State) -> None:
    """When the GPU is lost the readings say so, and the watch ends: nothing is left to show."""
    lose(nvml, nth=80)
    result = tuner("power", "watch", *FAST, "--count", "999")

    assert result.exit_code == 1
    assert "failed: " in result.stdout
    assert "failed: nvml-" not in result.stdout
    assert "± is 95 %" in result.stdout
    assert "no reading is left" in result.stderr
    assert "Traceback" not in result.output


def test_a_recorded_trace_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """replay:FILE needs no GPU."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    info = SensorInfo("old-sensor", "stream", "module", 0.02)
    recorded = TraceFile(info=info, samples=tuple(Sample(0.02 * i, 7.5) for i in range(200)))
    recorded.write(tmp_path / "old.json")
    result = tuner("power", "watch", *FAST, "--count", "2", "--sensor", f"replay:{tmp_path / 'old.json'}")

    assert result.exit_code == 0, result.output
    assert "replay:old-sensor (module): 7.500 W (shows 7.500 W)" in result.stdout


def test_a_watch_ends_with_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded trace that ended is no fault: a summary, and exit code 0, whatever was asked for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    info = SensorInfo("old-sensor", "stream", "module", 0.02)
    recorded = TraceFile(info=info, samples=tuple(Sample(0.02 * i, 7.5) for i in range(10)))
    recorded.write(tmp_path / "old.json")
    result = tuner("power", "watch", "--count", "99", "--sensor", f"replay:{tmp_path / 'old.json'}")

    assert result.exit_code == 0, result.output
    assert "failed" not in result.output
    assert "replay:old-sensor (module): the trace has ended" in result.stdout
    assert " ms, mean 7.500 W; the trace has ended" in result.stdout
