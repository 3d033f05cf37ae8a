"""``tuner run --clocks`` through NVML, end to end: clocks set, verified, and restored whatever happens."""

import fcntl
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_process import await_rows, begun, rows, tuner
from clock_kills import children
from fake_nvml_state import NO_PERMISSION, UUID, State, fake_nvml, library, lose
from nvml_gpu import NvmlGpu, play
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths

from tuner.devices.base import RunRecord
from tuner.devices.choice import OpenedDevice
from tuner.measurement import settle
from tuner.model.plan import Plan

WORDS = ("scan-lf:N=4", "--clocks", "345:1980:105", "--objective", "energy")
LONG_S, SHORT_S = "0.1", "0.02"  # windows: long enough to see the clock in, and for all else
FEW = ("--policy", "random", "--budget", "2", "--energy-precision", "20%")
CLOCKS_MHZ = set(range(1980, 344, -105))
LOST = 15
# The command in a process of its own, on the fake GPU.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = [sys.argv.pop(1)]
import nvml_gpu
import tuner.search.setup, tuner.measurement.settle
from pathlib import Path
from tuner.power.clocks import control as controls
from tuner.power.clocks.actuator import ClockPaths
library, folder = sys.argv.pop(1), Path(sys.argv.pop(1))
nothing = folder / "nothing"
controls.SYSTEM = ClockPaths(library, nothing, nothing, folder / "run", nothing)
tuner.search.setup.open_device = nvml_gpu.opened
tuner.measurement.settle.APART_S = 0.0
from tuner.__main__ import main
main()
"""


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with fake_nvml(tmp_path) as state:
        play(state)
        yield state


@pytest.fixture
def gpu(nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlGpu:
    """The GPU that commands of this process find."""
    device = NvmlGpu(nvml)
    where = ClockPaths(
        library(),
        devfreq=tmp_path / "nothing",
        config=tmp_path / "clockd.toml",
        directory=tmp_path / "run",
        socket=tmp_path / "clockd.sock",
    )
    monkeypatch.setattr(control, "SYSTEM", where)
    monkeypatch.setattr(settle, "APART_S", 0.0)  # the power of this GPU is settled at once
    monkeypatch.setattr("tuner.search.setup.open_device", lambda *_, **__: OpenedDevice(device, ""))
    return device


@contextmanager
def running(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`tuner run` in a process of its own."""
    places: tuple[str | Path, ...] = (Path(__file__).parent, library(), folder)
    command = (*places, "run", *WORDS, "--window", SHORT_S, *words, "--database", folder / "tuner.db")
    with begun(*command, code=COMMAND) as process:
        yield process
        process.kill()


def run(folder: Path, *words: str, window_s: str = SHORT_S) -> tuple[Any, dict[str, Any]]:
    """The command's result, and the document it wrote."""
    path = folder / "run.json"
    words = (*words, "--window", window_s)
    result = tuner("run", *WORDS, *words, "--database", folder / "tuner.db", "--json", path)
    return result, json.loads(path.read_text()) if path.exists() else {}


def journals(folder: Path) -> list[Path]:
    return [path for path in (folder / "run").glob("*") if path.suffix != ".lock"]


def wait_for_release(folder: Path) -> None:
    """Block until neither owner nor guardian lives: both hold the lock."""
    with (folder / "run" / f"nvml-{UUID}.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_run_sets_verifies_and_restores(nvml: State, gpu: NvmlGpu, tmp_path: Path) -> None:
    """Each trial ran at its clock, which was seen under load; its joules are right; nothing stays set."""
    result, found = run(tmp_path, window_s=LONG_S)

    assert result.exit_code == 0, result.stderr
    trials = found["trials"]
    assert {trial["clock_mhz"] for trial in trials} <= CLOCKS_MHZ
    assert len({trial["clock_mhz"] for trial in trials}) > 2
    for trial in trials:
        assert trial["clock_seen_mhz"] == trial["clock_mhz"]
        assert not [flag for flag in trial["flags"] if "clock" in flag]
    spared = ("estimated", "no-energy")  # a slow machine may miss samples, or spare a trial its window
    measured = [
        trial for trial in trials if not any(word in flag for flag in trial["flags"] for word in spared)
    ]
    assert len(measured) > 2
    for trial in measured:
        expected_j = gpu.joules[trial["clock_mhz"], trial["time_s"]]
        allowed_j = max(0.1 * expected_j, 3.0 * trial["energy_j_uncertainty"])  # of a busy machine
        assert trial["energy_j"] == pytest.approx(expected_j, abs=allowed_j)
    best = min(gpu.joules, key=gpu.joules.__getitem__)
    assert gpu.joules[found["best"]["clock_mhz"], found["best"]["time_s"]] <= 1.1 * gpu.joules[best]
    assert nvml.sets == nvml.resets > 2
    assert nvml.locked_max_mhz == 0
    assert journals(tmp_path) == []


def test_a_run_sets_and_restores_power_limits(
    nvml: State, gpu: NvmlGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial ran at its limit; nothing stays set, and the clock was not touched."""
    seen: dict[tuple[object, ...], int] = {}
    whole = gpu.run

    def run_at_limit(plans: Sequence[Plan], window_s: float) -> RunRecord:
        seen[tuple(plan.configuration for plan in plans), nvml.limit_milliwatts] = nvml.locked_max_mhz
        return whole(plans, window_s)

    monkeypatch.setattr(gpu, "run", run_at_limit)
    words = ("scan-lf:N=4", "--power-limits", "450,700", "--policy", "random", "--budget", "4")
    path = tmp_path / "run.json"
    result = tuner(
        *("run", *words, "--window", SHORT_S, "--energy-precision", "20%"),
        *("--database", tmp_path / "tuner.db", "--json", path),
    )

    assert result.exit_code == 0, result.stderr
    trials = json.loads(path.read_text())["trials"]
    assert {trial["power_limit_w"] for trial in trials} == {450, 700}
    limits = {limit for _, limit in seen}
    assert limits == {450_000, 700_000}
    assert set(seen.values()) == {0}
    assert nvml.limit_milliwatts == 700_000
    assert journals(tmp_path) == []


@pytest.mark.usefixtures("gpu")
def test_a_clock_that_comes_late_is_waited_for(nvml: State, tmp_path: Path) -> None:
    """A clock that takes its time is there when it is measured at."""
    nvml.settle_us = 150_000
    result, found = run(tmp_path, *FEW, window_s=LONG_S)

    assert result.exit_code == 0, result.stderr
    for trial in found["trials"]:
        assert trial["clock_seen_mhz"] == pytest.approx(trial["clock_mhz"], abs=15)
        assert not [flag for flag in trial["flags"] if "clock" in flag]


@pytest.mark.usefixtures("gpu")
def test_a_clock_that_is_not_followed_is_flagged(
    nvml: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that says yes and does nothing is found out under load, in every trial."""
    monkeypatch.setattr(settle, "SETTLE_S", 0.2)
    nvml.disobedient = 1
    result, found = run(tmp_path, *FEW, window_s=LONG_S)

    assert result.exit_code == 0, result.stderr
    for trial in found["trials"]:
        flagged = any(flag.startswith("off-clock") for flag in trial["flags"])
        assert flagged == (trial["clock_mhz"] != 1980)
    assert journals(tmp_path) == []


@pytest.mark.usefixtures("gpu")
def test_a_refused_clock_ends_the_run(nvml: State, tmp_path: Path) -> None:
    """Without permission the run says what to do, and resets nothing that it did not set."""
    nvml.set = NO_PERMISSION
    result, _ = run(tmp_path)

    assert result.exit_code == 1
    assert "run as root" in " ".join(result.stderr.split())
    assert (nvml.resets, journals(tmp_path)) == (0, [])


def test_a_gpu_lost_in_a_sweep(
    nvml: State, gpu: NvmlGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials that ended are kept, and so is the journal, until the GPU is back to be restored."""
    whole = gpu.run

    def run_until_lost(plans: Sequence[Plan], window_s: float) -> RunRecord:
        if nvml.locked_max_mhz and rows(tmp_path / "tuner.db"):
            lose(nvml)
        return whole(plans, window_s)

    monkeypatch.setattr(gpu, "run", run_until_lost)
    result, _ = run(tmp_path)

    assert result.exit_code == 1
    assert "GPU is lost" in result.stderr
    assert rows(tmp_path / "tuner.db") > 0
    assert nvml.locked_max_mhz
    assert len(journals(tmp_path)) == 1
    assert tuner("clocks", "restore").exit_code == 1

    nvml.lost_from = 0
    assert tuner("clocks", "restore").stdout == f"{UUID}: restored\n"
    assert (nvml.locked_max_mhz, journals(tmp_path)) == (0, [])


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_run_that_is_killed_leaves_no_clock_set(
    nvml: State, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """In the middle of a sweep, by whatever: the clock is free again, and the trials so far are kept."""
    with running(tmp_path) as process:
        await_rows(process, tmp_path / "tuner.db", 2)
        process.send_signal(number)
        assert process.wait() == code
        wait_for_release(tmp_path)

    assert (nvml.locked_max_mhz, journals(tmp_path)) == (0, [])
    assert rows(tmp_path / "tuner.db") >= 2


def test_a_run_whose_guardian_is_killed_ends(nvml: State, tmp_path: Path) -> None:
    """A clock that nobody holds any more is measured at by nobody, be it the only one of the run."""
    with running(tmp_path, "--clocks", "900") as process:
        await_rows(process, tmp_path / "tuner.db", 2)
        os.kill(next(children(process.pid)), signal.SIGKILL)
        stored = rows(tmp_path / "tuner.db")
        _, said = process.communicate()

    assert process.returncode == 1
    assert "the clock is not held: the guardian" in said
    assert rows(tmp_path / "tuner.db") <= stored + 1  # one may have been on its way
    assert (nvml.locked_max_mhz, journals(tmp_path)) == (0, [])


@pytest.mark.usefixtures("gpu")
def test_a_second_run_is_told_who_holds_the_clocks(nvml: State, tmp_path: Path) -> None:
    """Two runs at once: the second names the first and changes nothing."""
    first = control.open_control(UUID)
    with closing(first), first.locked(900):
        result, _ = run(tmp_path)
        assert result.exit_code == 1
        assert f"held by process {os.getpid()}: wait for it or end it" in " ".join(result.stderr.split())
        assert (nvml.sets, nvml.locked_max_mhz) == (1, 900)


@pytest.mark.usefixtures("gpu")
def test_without_clocks_nobody_is_asked_for_them(nvml: State, tmp_path: Path) -> None:
    """A run that sets no clock starts neither helper nor guardian, and minds no wrong clockd.toml."""
    where = control.SYSTEM
    where.config.write_text("[limits]\n'*' = 900\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as helper:
        helper.bind(str(where.socket))
        helper.listen()
        helper.setblocking(False)
        result, found = run(tmp_path, "--clocks", "off", "--budget", "2", window_s=LONG_S)
        assert result.exit_code == 0, result.stderr
        assert {trial["clock_seen_mhz"] for trial in found["trials"]} == {1980}
        with pytest.raises(BlockingIOError):
            helper.accept()
    assert not (tmp_path / "run").exists()
    assert nvml.sets == nvml.resets == 0

    result, _ = run(tmp_path)
    assert result.exit_code == 2
    assert f"{where.config}: limits.*" in " ".join(result.stderr.split())
