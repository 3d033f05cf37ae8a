"""``tuner power trace``: a command's joules, its exit code, trace files and pictures."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND, PATIENCE_S, tuner
from click.testing import Result
from fake_nvml_state import (
    NOT_SUPPORTED,
    State,
    fake_nvml,
    follow_real_time,
    library,
    lose,
    script,
    sensors_of_h200,
)
from tuner.power.recorded import Recorded

TESTS = Path(__file__).parent
PROGRAM = str(TESTS / "traced_program.py")
BUSY_S = 0.3
NET_J = (600.0 - 120.0) * BUSY_S
BRIEF = ("--idle", "0.3")


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """An idle H200 whose power the traced program plays."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TUNER_MARKS", raising=False)
    with fake_nvml(tmp_path) as state:
        script(state, (0.0, 120.0))
        sensors_of_h200(state)
        follow_real_time(state)
        state.millijoules = 1
        yield state


def traced(*options: str | Path, code: int = 0) -> Result:
    return tuner("power", "trace", *BRIEF, *options, "--", sys.executable, PROGRAM, str(BUSY_S), str(code))


def provenance(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())["provenance"])


def test_joules_of_a_command(nvml: State, tmp_path: Path) -> None:
    """Total and net joules are those that the program drew, within the uncertainty that is stated."""
    path = tmp_path / "trace.json"
    result = traced("--json", path)
    found = provenance(path)

    assert result.exit_code == 0, result.output
    assert abs(found["net_j"] - NET_J) < 5 * found["net_j_uncertainty"]
    assert found["total_j"] - found["net_j"] == pytest.approx(found["idle_w"] * found["duration_s"])
    assert found["energy_sensor"] == "nvml-energy-counter"
    assert found["notes"] == ""
    for text in ("energy ", "net of idle ", " ± ", "nvml-power-ring (gpu; lag, C = 17", "peak ", "overhead "):
        assert text in result.stderr
    assert (nvml.sets, nvml.resets) == (0, 0)


def test_without_a_counter_the_ring_gives_the_joules(nvml: State, tmp_path: Path) -> None:
    """Where there is no energy counter, the corrected ring has the same joules, less well known."""
    nvml.energy = NOT_SUPPORTED
    path = tmp_path / "trace.json"
    traced("--json", path)
    found = provenance(path)

    assert found["energy_sensor"] == "nvml-power-ring"
    assert abs(found["net_j"] - NET_J) < 5 * found["net_j_uncertainty"]


def test_trace_files_hold_the_trace(nvml: State, tmp_path: Path) -> None:
    """Both files can be read again: samples from idle to idle, marks where the power changed, 0 the start."""
    assert nvml.segment_count == 1
    result = traced("--json", tmp_path / "a.json", "--csv", tmp_path / "a.csv")
    trace, table = Recorded.read(tmp_path / "a.json"), Recorded.read(tmp_path / "a.csv")
    times_s = [sample.time_s for sample in trace.samples]
    (busy, done) = trace.marks

    assert result.exit_code == 0
    assert trace.samples == table.samples
    assert (busy[1], done[1]) == ("busy", "done")
    assert times_s[0] < 0.0 < busy[0] < done[0] < times_s[-1]
    shown = [s.value for s in trace.samples if busy[0] + 0.1 < s.time_s < busy[0] + BUSY_S - 0.05]
    assert shown
    assert min(shown) > 590.0
    assert trace.samples[-1].value < 130.0
    assert trace.provenance["command"] == f"{sys.executable} {PROGRAM} {BUSY_S} 0"


def test_pictures_are_drawn(nvml: State, tmp_path: Path) -> None:
    """The picture is written where it was asked for."""
    assert nvml.segment_count == 1
    result = traced("--plot", tmp_path / "a.svg")

    assert result.exit_code == 0, result.output
    assert (tmp_path / "a.svg").stat().st_size > 5000


def test_the_exit_code_passes_through(nvml: State) -> None:
    """The command's exit code is the trace's."""
    assert nvml.segment_count == 1
    assert traced(code=7).exit_code == 7


def test_the_command_keeps_its_output(nvml: State) -> None:
    """Standard output is the command's alone; what was found goes to standard error."""
    assert nvml.segment_count == 1
    words = (*COMMAND, "power", "trace", *BRIEF, sys.executable, PROGRAM, str(BUSY_S), "5")
    done = subprocess.run(
        _with_fake(words), check=False, capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ
    )

    assert done.returncode == 5, done.stderr
    assert done.stdout == "the program's own output\n"
    assert "energy " in done.stderr


def _with_fake(words: tuple[str, ...]) -> list[str]:
    """The same command in a process that has the fake NVML."""
    code = (
        "import ctypes, pynvml\n"
        f"pynvml.nvmlLib = ctypes.CDLL({library()!r})\n"
        "from tuner.cli import main; main(prog_name='tuner')"
    )
    return [sys.executable, "-c", code, *words[len(COMMAND) :]]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_and_not_the_results(
    nvml: State, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """A signal to the tracer ends the command, and what was recorded until then is written."""
    assert nvml.segment_count == 1
    path, ready = tmp_path / "trace.json", tmp_path / "ready"
    sleeper = f"import pathlib, signal, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    if number == signal.SIGINT:  # as a shell sees a program that Ctrl-C ended
        sleeper = f"import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); {sleeper}"
    words = (*COMMAND, "power", "trace", *BRIEF, "--json", str(path), "--", sys.executable, "-c", sleeper)
    process = subprocess.Popen(_with_fake(words), stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not ready.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == code, err
    assert provenance(path)["exit_code"] == code
    assert "energy " in err


def test_a_lost_gpu_costs_the_joules_and_nothing_else(nvml: State, tmp_path: Path) -> None:
    """When the GPU is lost meanwhile, the command still runs to its end, and the loss is told."""
    lose(nvml, nth=60)
    path = tmp_path / "trace.json"
    result = tuner("power", "trace", "--idle", "1.0", "--json", path, "--", "sh", "-c", "exit 4")

    assert result.exit_code == 4
    assert "no joules" in result.stderr
    assert "stopped answering" in result.stderr
    assert provenance(path)["total_j"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--device", "sim:jetson-tx1", "true"), "needs a real sensor"),
        (("--device", "cuda:x", "true"), "choose cuda:N"),
        (("no-such-program-anywhere",), "no such program"),
        (("--sensor", "thermometer", "true"), "choose from nvml-energy-counter, nvml-power-ring"),
        (("--idle", "0", "true"), "--idle"),
        (("--idle", "nan", "true"), "--idle"),
        (("--json", "-", "true"), "must end in .json"),
        (("--csv", "trace.txt", "true"), "must end in .csv"),
        (("--plot", "trace.jpeg", "true"), "must end in one of .png, .svg, .pdf"),
        (
            ("--plot", "/nowhere/a.png", "true"),
            "--plot /nowhere/a.png: the directory /nowhere does not exist",
        ),
        ((), "COMMAND"),
    ],
)
def test_what_cannot_be_traced(nvml: State, words: tuple[str, ...], says: str) -> None:
    """Bad input is refused with exit code 2, and nothing is run."""
    assert nvml.segment_count == 1
    result = tuner("power", "trace", *words)

    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


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
