"""``tuner power trace`` and ``watch``: joules of a command, lines, files and pictures, and how they end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND, PATIENCE_S, begun, tuner
from click.testing import Result
from fake_nvml_state import (
    NOT_SUPPORTED,
    SECOND_UUID,
    State,
    fake_nvml,
    follow_real_time,
    library,
    lose,
    script,
    sensors_of_h200,
)
from prepared_process import PreparedProcess
from tuner.power.base import Sample, SensorInfo
from tuner.power.sensors.recorded import TraceFile

TESTS = Path(__file__).parent
PROGRAM = str(TESTS / "traced_program.py")
BUSY_S = 0.3
NET_J = (600.0 - 120.0) * BUSY_S
BRIEF = ("--idle", "0.3")
FIRST = ("--device", "0")  # a GPU of this machine may be another


@contextmanager
def h200(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """An idle H200 whose power the traced program plays."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.delenv("TUNER_MARKS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
    with fake_nvml(folder) as state:
        script(state, (0.0, 120.0))
        sensors_of_h200(state)
        follow_real_time(state)
        state.millijoules = 1
        yield state


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    with h200(tmp_path, monkeypatch) as state:
        yield state


@dataclass(frozen=True)
class Traced:
    """A traced program that draws power and ends with 7: what was printed, written, and set on the GPU."""

    result: Result
    folder: Path
    sets: int


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder = tmp_path_factory.mktemp("traced")
    files = [word for kind in ("json", "csv") for word in (f"--{kind}", folder / f"trace.{kind}")]
    with pytest.MonkeyPatch.context() as patch, h200(folder, patch) as state:
        result = traced(*files, "--plot", folder / "trace.svg", code=7)
        return Traced(result, folder, state.sets + state.resets + state.app_sets + state.app_resets)


def traced(*options: str | Path, code: int = 0) -> Result:
    return tuner("power", "trace", *BRIEF, *options, "--", sys.executable, PROGRAM, str(BUSY_S), str(code))


def provenance(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())["provenance"])


def test_joules_of_a_command(done: Traced) -> None:
    """Total and net joules are those that the program drew, within the uncertainty that is stated."""
    found = provenance(done.folder / "trace.json")

    assert abs(found["net_j"] - NET_J) < 5 * found["net_j_uncertainty"]
    assert found["total_j"] - found["net_j"] == pytest.approx(found["idle_w"] * found["duration_s"])
    assert found["energy_sensor"] == "nvml-energy-counter"
    # on a loaded machine readings come late, and idle power seems to rise
    assert re.fullmatch(
        r"(nvml-energy-counter: unsteady-idle: power went up by about [^:]*)?", found["notes"]
    )
    for text in ("energy ", "net of idle ", " ± ", "nvml-power-ring (gpu; lag, C = 13", "peak ", "overhead "):
        assert text in done.result.stderr
    assert done.sets == 0


def test_the_exit_code_passes_through(done: Traced) -> None:
    """The command's exit code is the trace's."""
    assert done.result.exit_code == 7


def test_trace_files_hold_the_trace(done: Traced) -> None:
    """Both files can be read again: samples from idle to idle, marks where the power changed, 0 the start."""
    trace, table = (TraceFile.read(done.folder / f"trace.{kind}") for kind in ("json", "csv"))
    times_s = [sample.time_s for sample in trace.samples]
    (busy, ended) = trace.marks

    assert trace.samples == table.samples
    assert (busy[1], ended[1]) == ("busy", "done")
    assert times_s[0] < 0.0 < busy[0] < ended[0] < times_s[-1]
    shown = [s.value for s in trace.samples if busy[0] + 0.1 < s.time_s < busy[0] + BUSY_S - 0.05]
    assert shown
    assert min(shown) > 590.0
    assert trace.samples[-1].value < 130.0
    assert trace.provenance["command"] == f"{sys.executable} {PROGRAM} {BUSY_S} 7"


def test_pictures_are_drawn(done: Traced) -> None:
    """The picture is written where it was asked for."""
    assert (done.folder / "trace.svg").stat().st_size > 5000


def test_without_a_counter_the_ring_gives_the_joules(nvml: State, tmp_path: Path) -> None:
    """Where there is no energy counter, the corrected ring has the same joules, less well known."""
    nvml.energy = NOT_SUPPORTED
    path = tmp_path / "trace.json"
    traced("--json", path)
    found = provenance(path)

    assert found["energy_sensor"] == "nvml-power-ring"
    assert abs(found["net_j"] - NET_J) < 5 * found["net_j_uncertainty"]


def test_the_command_keeps_its_output(nvml: State, capfd: pytest.CaptureFixture[str]) -> None:
    """Standard output is the command's alone; what was found goes to standard error."""
    assert nvml.segment_count == 1
    result = tuner("power", "trace", *BRIEF, "--", "sh", "-c", "echo out; echo err >&2")
    out, err = capfd.readouterr()

    assert (out, err) == ("out\n", "err\n")
    assert result.stdout == ""
    assert "energy " in result.stderr


def test_a_signal_ends_the_command_and_not_the_results(nvml: State, tmp_path: Path) -> None:
    """A signal to the tracer ends the command, and what was recorded until then is written."""
    assert nvml.segment_count == 1
    path, ready = tmp_path / "trace.json", tmp_path / "ready"
    options = (*FIRST, *BRIEF, "--json", str(path))
    words = ("power", "trace", *options, "--", "sh", "-c", f"touch {ready}; exec sleep 600")
    fake = f"import ctypes, pynvml; pynvml.nvmlLib = ctypes.CDLL({library()!r})"
    process = begun(*words, code=f"{fake}\n{COMMAND[2]}")
    while not ready.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130, err
    assert provenance(path)["exit_code"] == 130
    assert "energy " in err


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """A sensor that needs no GPU: a recorded trace of half a minute."""
    info = SensorInfo("ring", "ring", "gpu", 0.02)
    samples = tuple(Sample(0.02 * i, 100.0) for i in range(1500))
    TraceFile(info, samples).write(tmp_path / "recorded.json")
    return f"replay:{tmp_path / 'recorded.json'}"


def test_results_that_nobody_reads_change_no_exit_code(recording: str) -> None:
    """Where standard error is full, or read no more, the command's exit code is told all the same."""
    words = ("power", "trace", *BRIEF, "--sensor", recording, "--", "sh", "-c", "exit 5")
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "w") as full, os.fdopen(writing, "w") as broken:  # noqa: PTH123 - a device
        files = (full.fileno(), broken.fileno())
        ends = [PreparedProcess(COMMAND[2], words, {2: file}, os.environ) for file in files]

    assert [process.wait(PATIENCE_S) for process in ends] == [5, 5]


def test_a_command_survives_its_tracer(recording: str, tmp_path: Path) -> None:
    """When the tracer is killed, the command goes on, and more marks than a pipe holds do not stop it."""
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f'read word < {go}; yes "a mark" | head -c 500000 > "$TUNER_MARKS"; echo unharmed'
    elsewhere = {**os.environ, "TMPDIR": str(tmp_path)}  # what a killed process leaves behind
    words = ("power", "trace", *BRIEF, "--sensor", recording, "--", "sh", "-c", script)
    tracer = begun(*words, environment=elsewhere)
    with go.open("w") as say:  # opens when the command does
        tracer.kill()
        assert tracer.wait(PATIENCE_S) == -signal.SIGKILL
        say.write("now\n")
    out, _ = tracer.communicate(timeout=PATIENCE_S)

    assert out == "unharmed\n"


def test_a_lost_gpu_costs_the_joules_and_nothing_else(nvml: State, tmp_path: Path) -> None:
    """When the GPU is lost meanwhile, the command still runs to its end, and the loss is told."""
    began, lost, path = tmp_path / "began", tmp_path / "lost", tmp_path / "trace.json"
    os.mkfifo(began)
    os.mkfifo(lost)

    def lose_meanwhile() -> None:
        began.read_text()
        lose(nvml)
        lost.write_text("\n")

    threading.Thread(target=lose_meanwhile, daemon=True).start()
    command = f"echo > {began}; read -r line < {lost}; exit 4"
    result = tuner("power", "trace", *BRIEF, "--json", path, "--", "sh", "-c", command)

    assert result.exit_code == 4
    assert "no joules" in result.stderr
    assert "stopped answering" in result.stderr
    assert provenance(path)["total_j"] is None


@pytest.mark.parametrize("visible", ["1", SECOND_UUID, f"MIG-{SECOND_UUID}/1/0"])
def test_the_gpu_that_the_environment_names_is_read(
    nvml: State, visible: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where CUDA cannot be asked, and it is named; where none is shown, nothing is run."""
    nvml.gpu_count = 2
    script(nvml.second, (0.0, 123.0))
    sensors_of_h200(nvml.second)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    path = tmp_path / "trace.json"
    result = tuner("power", "trace", *BRIEF, "--json", path, "--", "sleep", "0.3")

    assert result.exit_code == 0, result.output
    assert SECOND_UUID in result.stderr
    assert provenance(path)["idle_w"] == pytest.approx(123.0, rel=0.05)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refused = tuner("power", "trace", *BRIEF, "--", "touch", tmp_path / "run")
    assert refused.exit_code != 0
    assert "CUDA_VISIBLE_DEVICES='' shows no GPU" in refused.stderr
    assert not (tmp_path / "run").exists()


def test_no_sensor_at_all(monkeypatch: pytest.MonkeyPatch, nvml: State) -> None:
    """Without any power reading nothing is run, and why is said."""
    nvml.init = 9
    monkeypatch.setattr("tuner.devices.sensors.is_jetson", lambda: False)
    result = tuner("power", "trace", "true")

    assert result.exit_code == 1
    assert "Driver Not Loaded" in result.stderr


def test_a_file_that_cannot_be_written_after_all(nvml: State, tmp_path: Path) -> None:
    """A target that is gone by the end is told; the exit code of a command that failed is kept."""
    assert nvml.segment_count == 1
    folder = tmp_path / "folder"
    folder.mkdir()
    for code, expected in ((0, 1), (6, 6)):
        folder.mkdir(exist_ok=True)
        result = tuner(
            *("power", "trace", *BRIEF, "--json", str(folder / "a.json")),
            *("--", "sh", "-c", f"rmdir {folder}; exit {code}"),
        )

        assert result.exit_code == expected
        assert "a.json" in result.stderr
        assert "energy " in result.stderr


# --- tuner power watch ----------------------------------------------------------------------------


FAST = ("--interval", "0.2")


@pytest.fixture
def steady(nvml: State) -> State:
    """An H200 that draws 250 W."""
    script(nvml, (0.0, 250.0))
    return nvml


def test_lines_and_a_summary(steady: State) -> None:
    """Each line has a reading's power, mean, joules with their interval, clock and temperature."""
    steady.reason_bits = 0x4
    result = tuner("power", "watch", *FAST, "--count", "3")
    lines = [line for line in result.stdout.splitlines() if "nvml-power-ring (gpu): 2" in line]

    assert result.exit_code == 0, result.output
    assert len(lines) >= 3
    for text in ("W (shows 2", "mean 2", " ± ", "s; 1980 MHz, held back by sw-power-cap, 40 °C"):
        assert text in lines[0]
    assert "throttled meanwhile: sw-power-cap" in result.stdout
    assert "nvml-energy-counter" in result.stdout
    assert (steady.sets, steady.resets) == (0, 0)


def test_json_lines(steady: State, tmp_path: Path) -> None:
    """A document on every line, with the truth within the uncertainty; - has standard output for itself."""
    assert steady.segment_count == 1
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
    steady: State, limit: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    """Ctrl-C is how an endless watch ends; one that was to go on for longer was interrupted."""
    assert steady.segment_count == 1
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


def test_a_lost_gpu_is_told(steady: State) -> None:
    """When the GPU is lost the readings say so, and the watch ends: nothing is left to show."""
    lose(steady, nth=80)
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
