"""``tuner program`` on a fake GPU: clocks set, joules taken, the answer run, and everything restored."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND, PATIENCE_S, begun, tuner
from click.testing import Result
from fake_nvml_state import (
    CLOCKS_MHZ,
    NO_PERMISSION,
    SECOND_UUID,
    UUID,
    State,
    fake_nvml,
    follow_real_time,
    library,
    script,
    sensors_of_h200,
)
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths

FIRST = ("--device", "0")
IDLE_W, CORES_W = 120.0, 480.0  # at the highest clock; that of the cores falls with its third power
# The command in a process of its own, on the fake GPU.
OWN = """
import ctypes, pynvml, sys
from pathlib import Path
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths
library, folder = sys.argv.pop(1), Path(sys.argv.pop(1))
pynvml.nvmlLib = ctypes.CDLL(library)
nothing = folder / "nothing"
control.SYSTEM = ClockPaths(library, nothing, nothing, folder / "run", nothing)
"""


@contextmanager
def power_follows_the_clock(state: State) -> Iterator[None]:
    """Let the GPU draw what its clock calls for, busy or not."""
    segments, done = [(0.0, IDLE_W + CORES_W)], threading.Event()

    def follow() -> None:
        while not done.wait(0.005):
            share = (state.locked_max_mhz or CLOCKS_MHZ[0]) / CLOCKS_MHZ[0]
            if segments[-1][1] != (watts := IDLE_W + CORES_W * share**3):
                segments.append((time.monotonic(), watts))
                script(state, *segments)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def gpu(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[State]:
    """An H200 that commands of this process find, and a database."""
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    patch.setenv("TUNER_DATABASE", str(folder / "tuner.db"))
    patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    patch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
    nothing = folder / "nothing"
    patch.setattr(control, "SYSTEM", ClockPaths(library(), nothing, nothing, folder / "run", nothing))
    with fake_nvml(folder) as state:
        script(state, (0.0, IDLE_W + CORES_W))
        sensors_of_h200(state)
        follow_real_time(state)
        state.millijoules = 1
        with power_follows_the_clock(state):
            yield state


def untagged(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


@dataclass(frozen=True)
class Tuned:
    """A program that was tuned at three clocks: what was printed and written, and the GPU as it is left."""

    result: Result
    folder: Path
    state: State

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "run.json").read_text()))

    def executed(self, *command: str) -> "subprocess.Popen[str]":
        """``tuner program exec`` with the answer, as a process of its own."""
        words = ("program", "exec", *FIRST, "--use", "1", "--", *command)
        return begun(library(), self.folder, *words, code=OWN + COMMAND[2])

    def await_lock(
        self, is_right: Callable[[int], bool], process: "subprocess.Popen[str] | None" = None
    ) -> None:
        """Return when the lock of the GPU is as it should be."""
        until_s = time.monotonic() + PATIENCE_S
        while not is_right(int(self.state.locked_max_mhz)):
            assert time.monotonic() < until_s
            assert process is None or process.poll() is None, process.communicate()
            threading.Event().wait(0.01)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuned]:
    folder = tmp_path_factory.mktemp("program")
    with pytest.MonkeyPatch.context() as patch, gpu(folder, patch) as state:
        options = ("--clocks", "1980,1500,900", "--budget", "7", "--energy-precision", "10%")
        words = ("--json", folder / "run.json", "--", "sleep", "0.4")
        yield Tuned(tuner("program", "run", *FIRST, *options, *words), folder, state)


def test_the_clock_of_least_joules(tuned: Tuned) -> None:
    """The answer is the clock at which the GPU draws least, with joules that it drew, and a line to paste."""
    best, default = tuned.document["best"], tuned.document["default"]

    assert tuned.result.exit_code == 0, tuned.result.stderr
    assert not re.search("compiled|compiling", tuned.result.stderr)  # a program is not
    assert (best["clock_mhz"], default["clock_mhz"]) == (900, 1980)
    for trial, mhz in ((best, 900), (default, 1980)):
        watts = IDLE_W + CORES_W * (mhz / 1980) ** 3
        assert trial["energy_j"] == pytest.approx(watts * trial["time_s"], rel=0.05)
    assert "use: tuner program exec --use 1 -- sleep 0.4" in tuned.result.stdout
    assert len(tuned.document["trials"]) == 3
    assert tuned.document["clock_curve"]
    assert (tuned.state.locked_max_mhz, tuned.state.sets) == (0, 6)  # three, and there and back at the end


def test_a_year_of_it_is_told(tuned: Tuned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kilowatt-hours that the answer saves, and what they cost by the user's own factors."""
    assert re.search(
        r"a year without a break: [\d,]+ ± [\d,.]+ kWh less for the same work", tuned.result.stdout
    )
    monkeypatch.setenv("TUNER_PER_KWH", "0.5 EUR, 400 g")
    (line,) = (line for line in tuner("show", "1").stdout.splitlines() if "a year without" in line)
    kwh, eur, grams = (float(value.replace(",", "")) for value in re.findall(r"([\d.,]+) ±", line))
    assert [eur, grams] == pytest.approx([0.5 * kwh, 400 * kwh], rel=0.01)
    default = tuned.document["default"]
    saved_w = (default["energy_j"] - tuned.document["best"]["energy_j"]) / default["time_s"]
    assert kwh == pytest.approx(saved_w * 8766 / 1000, rel=0.05)
    monkeypatch.setenv("TUNER_PER_KWH", "EUR")
    refused = tuner("program", "run", "--clocks", "900", "--", "true")
    assert (refused.exit_code, "TUNER_PER_KWH=EUR: write numbers with units" in refused.stderr) == (2, True)


def test_a_run_is_tuned_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks are tried in windows of its steps; the best is held to its end, and its exit code passed on."""
    held = tmp_path / "held"
    steps = (
        "import pathlib, sys, time; from tuner.system.marks import phase\n"
        "def step():\n"
        "    with phase('step'): time.sleep(0.02)\n"
        f"while not pathlib.Path({str(held)!r}).exists(): step()\n"
        "for _ in range(5): step()\n"
        "print('out'); sys.exit(3)"
    )
    options = ("--clocks", "1980,900", "--budget", "6", "--energy-precision", "10%", "--window", "0.2")
    words = ("program", "run", *FIRST, *options, "--phase", "step", "--json", tmp_path / "run.json", "--")
    with gpu(tmp_path, monkeypatch) as state:
        process = begun(library(), tmp_path, *words, sys.executable, "-c", steps, code=OWN + COMMAND[2])
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if "held for the rest of the run" in line:
                assert state.locked_max_mhz == 900
                held.touch()
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, state.locked_max_mhz) == (3, 0), lines
    document = json.loads((tmp_path / "run.json").read_text())
    best, default = document["best"], document["default"]

    assert (best["clock_mhz"], default["clock_mhz"]) == (900, 1980)
    for trial, mhz in ((best, 900), (default, 1980)):
        watts = IDLE_W + CORES_W * (mhz / 1980) ** 3
        assert trial["energy_j"] / trial["time_s"] == pytest.approx(watts, abs=0.25 * CORES_W)
    assert out.startswith("out\n")
    assert any("were saved" in line for line in lines)


def test_what_is_stored_is_shown(tuned: Tuned) -> None:
    """Other commands show a program like a run of kernels."""
    for words in (("history",), ("show", "1"), ("report", "1", "--output", str(tuned.folder / "run.html"))):
        result = tuner(*words)
        assert result.exit_code == 0, result.output
    assert "sleep@" in tuner("history").stdout
    page = (tuned.folder / "run.html").read_text()
    repeated = re.search("tuner program run --device 0 --objective energy .*-- sleep 0.4", untagged(page))
    assert repeated is not None
    assert tuner("db", "check").exit_code == 0
    name = tuned.document["workloads"][0]["name"]
    for words in (("best", name), ("lock", name, "--output", str(tuned.folder / "tuner.lock"))):
        result = tuner(*words)
        assert result.exit_code == 2
        assert "tuner program exec --use RUN" in result.stderr


def test_the_answer_is_held_while_a_command_runs(tuned: Tuned) -> None:
    """The command finds the clock of the answer, its exit code passes, and the clock comes back."""
    seen = tuned.folder / "seen"
    process = tuned.executed("sh", "-c", f"echo ready; until test -e {seen}; do sleep 0.02; done; exit 7")
    tuned.await_lock(lambda mhz: mhz == 900, process)
    seen.touch()
    out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, tuned.state.locked_max_mhz) == (7, 0), err
    assert "ready" in out
    assert "held while it runs: 900 MHz" in err


def test_a_command_finds_its_latest_run(tuned: Tuned) -> None:
    """Without a number: the same words, the same files, such a GPU."""
    words = ("program", "exec", *FIRST, "--", "sleep", "0.4")
    process = begun(library(), tuned.folder, *words, code=OWN + COMMAND[2])
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, tuned.state.locked_max_mhz) == (0, 0)
    assert "held while it runs: 900 MHz" in err


@pytest.mark.parametrize(("shown", "others"), [(None, 1), (UUID, 0), (f"{UUID},{SECOND_UUID}", 1)])
def test_other_gpus_are_told(
    tuned: Tuned, shown: str | None, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that may use GPUs beside the one whose joules are counted is warned of."""
    monkeypatch.setattr(tuned.state, "gpu_count", 2)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    result = tuner("program", "run", *FIRST, "--clocks", "all", "--", "false")
    assert ("the program may use 1 more; CUDA_VISIBLE_DEVICES=" in result.stderr) == bool(others)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_clock_comes_back_however_it_ends(tuned: Tuned, number: signal.Signals) -> None:
    """A signal reaches the command; of a kill the guardian makes good."""
    process = tuned.executed("sh", "-c", "echo $$; exec sleep 60")
    tuned.await_lock(lambda mhz: mhz == 900, process)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(number)
    process.wait(PATIENCE_S)
    tuned.await_lock(lambda mhz: mhz == 0)

    if number == signal.SIGKILL:
        os.kill(pid, number)  # what it ran goes on without it
    else:
        assert process.returncode == 128 + number
    process.communicate()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("exec", "--use", "9"), "there is no such run"),
        (("exec",), "name the COMMAND"),
        (("exec", *FIRST, "--", "sleep", "0.5"), "no run has tuned this command"),
        (("run", "--phase", "step", "--clocks", "1", "--", "no-such", "x"), "no such program"),
        (("run", "--phase", "step", "--clocks", "1", "--", "false"), "does not have 1 MHz"),
        (("run", "--phase", "x" * 120, "--clocks", "900", "--", "true"), "give it a short name"),
        (
            ("run", "--phase", "beat", "--sensor", "nvml-energy-counter", "--clocks", "900", "--", "true"),
            "no reading shows the power",
        ),
        (("run", "--window", "3", "--clocks", "900", "--", "true"), "--window 3: whole runs"),
        (("run", "--let", "x", "--", "true"), "write NAME=VALUE"),
        (("run", "--let", "x=1", "--", "true"), "nothing in the command says {x}"),
        (("run", "--let", "x=1", "--tunable", "x=1,2", "--", "echo", "{x}"), "x is a tunable"),
        (("exec", "--use", "1", "--database", "/nowhere/tuner.db"), "/nowhere/tuner.db"),
        (("run", "--", "no-such-program"), "no such program"),
        (("run", "--", "true"), "there is nothing to choose"),
        (("run", "--clocks", "1", "--", "true"), "does not have 1 MHz"),
        (("run", "--power-limits", "0%:", "--", "true"), "is not a choice of power limits"),
        (("run", "--clocks", "all", "--budget", "3", "--", "true"), "take 6 runs"),
        (("run", "--objective", "pareto", "--clocks", "all", "--", "true"), "a program has few runs"),
        (("run", "--objective", "speed", "--clocks", "all", "--", "true"), "unknown objective 'speed'"),
        (("run", "--clocks", "all", "--", "false"), "fails as it stands: exit code 1"),
        (("run", "--device", "sim:h200", "--clocks", "all", "--", "true"), "a simulated device"),
        (("run", "--clocks", "all", "--metric", "a: (.)", "--", "true"), "nothing that it printed matches"),
        (("run", "--clocks", "all", "--metric", "a: (.+)", "--", "echo", "a: nan"), "as it stands: a is nan"),
        (("run", "--clocks", "all", "--metric", "a: (x+)+$", "--", "echo", f"a: {'x' * 40}y"), "than 0.05 s"),
    ],
)
def test_what_cannot_be_is_refused(
    tuned: Tuned, words: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message, exit code 2, and nothing set."""
    monkeypatch.setattr("tuner.programs.program._MATCHING_S", 0.05)
    device = () if words[0] == "exec" or "--device" in words else FIRST
    result = tuner("program", words[0], *device, *words[1:])

    assert result.exit_code == 2, result.output
    assert says in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert tuned.state.locked_max_mhz == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "--clocks", "900"), 2, "not have 900 MHz; it has 1 from 345 to 345 MHz that may be set"),
        (("run", "--power-limits", "700"), 2, "not have 700 W; it has 101 from 300 to 400 W that may be set"),
        (("exec", "--use", "1"), 1, "has no clock of 900 MHz that may be set; near it are 345"),
    ],
)
def test_what_the_administrator_does_not_allow(
    tuned: Tuned, words: tuple[str, ...], code: int, says: str
) -> None:
    """Limits of the file are told before anything runs, and hold for an answer from before them."""
    rules = control.SYSTEM.config
    rules.write_text('[limits]\n"*" = [345, 500]\n[power_limits]\n"*" = [300, 400]\n')
    try:
        result = tuner("program", words[0], *FIRST, *words[1:], "--", "sleep", "0.4")
    finally:
        rules.unlink()
    assert (result.exit_code, tuned.state.locked_max_mhz) == (code, 0), result.output
    assert says in " ".join(result.stderr.split())


WAYS = {
    "plain": ("true", "ok", ""),
    "fails": ("echo no memory; exit 9", "crashed", "exit code 9: loss: 1 | no memory"),
    "once": ("test -e {ran} || {{ touch {ran}; exit 9; }}", "ok", ""),
    "silent": ("exit 0", "wrong-answer", "nothing that it printed matches 'loss: (.+)'; it printed nothing"),
    "nan": ("echo loss: nan", "wrong-answer", "loss is nan"),
    "daemon": ("setsid sleep 600 &", "ok", "left one process running, which ended with the run"),
    "stubborn": ("trap '' TERM; sleep 600", "timeout", "ended after 1 s, as it took too long"),
    "clock": ("{python} -c '{write}'", "ok", "off-clock: 1980 MHz seen, 900 MHz set"),
}
"""What a program does at a value of its tunable, in the words of a shell, and what is told of it."""


def test_whatever_a_program_does_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to misbehave fails its own trial or is told with it, and spoils no other's."""
    monkeypatch.setattr("tuner.joules.traces.GRACE_S", 0.2)
    monkeypatch.setattr("tuner.joules.traces.IDLE_S", 0.2)
    place = slice(State.locked_max_mhz.offset, State.locked_max_mhz.offset + State.locked_max_mhz.size)
    write = (
        'import mmap, os; m = mmap.mmap(os.open(os.environ["FAKE_NVML_STATE"], os.O_RDWR), 0);'
        f' m[{place.start}:{place.stop}] = (1980).to_bytes(4, "little")'
    )
    known = {"ran": tmp_path / "ran", "python": sys.executable, "write": write}
    cases = "".join(f"{way}) {does.format(**known)};; " for way, (does, _, _) in WAYS.items())
    script = f"sleep 0.3; test {{way}} = silent || echo loss: 1; case {{way}} in {cases}esac"
    options = ("--clocks", "900", "--tunable", f"way={','.join(WAYS)}", "--metric", "loss: (.+)")
    words = ("--budget", "12", "--energy-precision", "10%", "--json", tmp_path / "run.json")
    with gpu(tmp_path, monkeypatch) as state:
        result = tuner("program", "run", *FIRST, *options, *words, "--", "sh", "-c", script)
        assert (result.exit_code, state.locked_max_mhz) == (0, 0), result.output

    document = json.loads((tmp_path / "run.json").read_text())
    for trial in document["trials"]:
        (way,) = (configuration["way"] for configuration in trial["configurations"].values())
        (one,) = trial["workloads"].values()
        _, status, told = WAYS[way]
        assert (way, trial["status"]) == (way, status)
        told_of_it = (*trial["flags"], one["detail"])
        assert told in told_of_it if told else not any("off-clock" in text for text in told_of_it)
    assert "tried once more: exit code 9" in result.stderr
    assert "the clock is 1980 MHz after a run at 900 MHz: the program, or somebody else" in result.stderr
    assert len(document["trials"]) == len(WAYS)


@pytest.mark.usefixtures("tuned")
def test_a_program_that_marks_other_steps() -> None:
    """It goes to its end, and what it should have marked is told beside what it has marked."""
    marks = "from tuner.system.marks import phase\nfor _ in range(9):\n    with phase('stp'): pass"
    options = ("--phase", "step", "--clocks", "900")
    result = tuner("program", "run", *FIRST, *options, "--", sys.executable, "-c", marks)

    assert result.exit_code == 0  # its own
    assert "has marked no 'step', but 'stp'; it does so by `with tuner.phase('step'):`" in result.stderr


def test_a_program_that_ends_before_its_beat_is_found(tuned: Tuned) -> None:
    """Its own exit code is passed on, with the reason that nothing was tuned."""
    result = tuner(
        "program", "run", *FIRST, "--phase", "beat", "--clocks", "900,1500", "--", "sh", "-c", "exit 3"
    )
    assert result.exit_code == 3
    assert "nothing was measured: the program has ended, and no beat was found" in " ".join(
        result.stderr.split()
    )
    assert tuned.state.locked_max_mhz == 0


def test_a_clock_that_may_not_be_set(tuned: Tuned) -> None:
    """Who may not set clocks is told so; nothing is left set."""
    tuned.state.set = NO_PERMISSION
    try:
        result = tuner("program", "run", *FIRST, "--clocks", "900", "--power-limits", "50%:", "--", "true")
    finally:
        tuned.state.set = 0
    assert result.exit_code != 0
    assert "Error" in result.stderr
    assert tuned.state.locked_max_mhz == 0
