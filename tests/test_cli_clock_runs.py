"""``tuner run --clocks`` through NVML, on models and recordings: set, verified, chosen, and restored."""

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
from cli_process import TX1, await_rows, begun, document, rows, tuner
from clock_kills import children
from clock_lines import FLAT, flat_recording
from fake_nvml_state import NO_PERMISSION, UUID, State, fake_nvml, library, lose
from nvml_gpu import NvmlGpu, play
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths

from tuner.daemon.answers.replies import clock_reason
from tuner.daemon.settings import Settings, TuningTable
from tuner.devices.base import RunRecord
from tuner.devices.choice import OpenedDevice
from tuner.measurement import settle
from tuner.model.plan import Plan

WORDS = ("scan-lf:N=4", "--clocks", "345:1980:105", "--objective", "energy")
LONG_S, SHORT_S = "0.1", "0.02"  # windows: long enough to see the clock in, and for all else
FEW = ("--policy", "random", "--budget", "2", "--energy-precision", "20%")
CLOCKS_MHZ = set(range(1980, 344, -105))
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
    words = ("scan-lf:N=4", "--objective", "energy", "--power-limits", "450,700")
    few = ("--policy", "random", "--budget", "4")
    path = tmp_path / "run.json"
    result = tuner(
        *("run", *words, *few, "--window", SHORT_S, "--energy-precision", "20%"),
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


# --- tuner run --clocks auto ----------------------------------------------------------------------


AUTO = ("run", "scan-lf:N=4", *TX1, "--objective", "energy", "--clocks", "auto")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the database of one run."""
    path = tmp_path_factory.mktemp("auto")
    tuner(*AUTO, "--database", path / "tuner.db", "--json", path / "run.json")
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """The document of this run."""
    return dict(json.loads((folder / "run.json").read_text()))


def test_fewer_clocks_are_measured_than_there_are(found: dict[str, Any]) -> None:
    """The answer was measured at its clock, and the run says how many clocks that took."""
    answer = found["best"]
    at = {one["clock_mhz"] for one in found["trials"] if one["configurations"] == answer["configurations"]}

    assert found["clocks"] == "auto"
    assert len(found["space"]["clocks_mhz"]) == 13
    assert answer["clock_mhz"] in at
    assert len({one["clock_mhz"] for one in found["trials"]}) <= 9
    assert any(notice.startswith("clocks auto: ") for notice in found["notices"])


def test_the_best_and_its_neighbours_were_repeated(found: dict[str, Any]) -> None:
    """Paired repeats hold the best clock against those beside it."""
    of_curve = [one for one in found["trials"] if one["configurations"] == found["clock_curve_of"]]
    repeated = sorted(one["clock_mhz"] for one in of_curve if one["bursts"] > 1)

    assert len(repeated) >= 2


def test_the_curve_says_what_was_measured(found: dict[str, Any]) -> None:
    """Measured points are the trials; modelled ones are named so, lie between, and have intervals."""
    trials = {
        one["clock_mhz"]: one
        for one in found["trials"]
        if one["configurations"] == found["clock_curve_of"] and one["status"] == "ok"
    }
    curve = found["clock_curve"]
    clocks = [point["clock_mhz"] for point in curve]

    assert clocks == sorted(clocks, reverse=True)
    assert {point["kind"] for point in curve} == {"measured", "modelled"}
    assert {point["clock_mhz"] for point in curve if point["kind"] == "measured"} == set(trials)
    assert (curve[0]["time_ratio"], curve[0]["joules_ratio"]) == (1.0, 1.0)
    for point in curve:
        assert point["power_limit_w"] is None
        assert point["time_ratio"] == pytest.approx(point["time_s"] / curve[0]["time_s"], rel=0.02)
        assert point["joules_uncertainty"] > 0
        if point["kind"] == "measured":
            assert point["joules"] == trials[point["clock_mhz"]]["energy_j"]
        if point["saving_per_slowdown"] is not None:
            slower = point["time_ratio"] - 1
            assert slower > point["time_ratio_interval"]
            assert point["saving_per_slowdown"] == pytest.approx((1 - point["joules_ratio"]) / slower)


def test_the_report_says_what_a_lower_clock_brings(folder: Path, found: dict[str, Any]) -> None:
    """A table and a sentence, labelled; and a run without clocks has neither."""
    shown = tuner("show", "--database", folder / "tuner.db").stdout

    assert "clocks of " in shown
    assert "per % slower" in shown
    assert f"{found['best']['clock_mhz']} MHz" in shown
    assert "modelled; against 998 MHz; ± is 95 %" in shown
    assert "no clock below" in shown or "from the answer's" in shown
    without = {**found, "clock_curve": [], "clock_curve_of": None}
    (folder / "without.json").write_text(json.dumps(without))
    assert "clocks of " not in tuner("show", folder / "without.json").stdout


def test_a_search_for_time_has_a_curve_of_times(tmp_path: Path) -> None:
    """Nothing is said of joules that nobody measured."""
    path = tmp_path / "run.json"
    result = tuner(*AUTO, "--objective", "time", "--database", tmp_path / "tuner.db", "--json", path)
    document = json.loads(path.read_text())

    assert "saved per" not in result.stdout
    assert {point["joules"] for point in document["clock_curve"]} == {None}
    assert max(point["time_ratio"] for point in document["clock_curve"]) > 1.0


def test_the_curve_is_drawn(folder: Path, found: dict[str, Any], tmp_path: Path) -> None:
    """As SVG; other names and runs without a curve are refused before anything is shown."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    assert tuner("show", "--database", folder / "tuner.db", "--clock-curve", picture).exit_code == 0
    assert picture.read_text().count("<svg") == 1

    bad = tuner("show", "--database", folder / "tuner.db", "--clock-curve", tmp_path / "curve.gif")
    assert (bad.exit_code, "must end in one of .png" in bad.stderr) == (2, True)
    (tmp_path / "none.json").write_text(json.dumps({**found, "clock_curve": []}))
    none = tuner("show", tmp_path / "none.json", "--clock-curve", picture)
    assert (none.exit_code, "has no clock curve" in none.stderr) == (2, True)


def test_a_run_that_was_cut_is_resumed(found: dict[str, Any], tmp_path: Path) -> None:
    """It goes on at the clocks that an uninterrupted run takes, measures nothing twice, and ends as well.

    What the sensor's noise is, each process learns anew, so that later choices may differ.
    """
    database = tmp_path / "tuner.db"
    cut = document(*AUTO, "--budget", "5", "--database", database)
    whole = document(*AUTO, "--resume", "--database", database)

    assert (cut["status"], whole["status"]) == ("limited", "finished")
    assert whole["resumed"] == 5
    line, uncut = ([one["clock_mhz"] for one in run["trials"][:7]] for run in (whole, found))
    assert line == uncut
    measured = [(str(one["configurations"]), one["clock_mhz"]) for one in whole["trials"]]
    assert len(set(measured)) == len(measured)
    assert whole["best"]["energy_j"] == pytest.approx(found["best"]["energy_j"], rel=0.01)


def test_a_recording_with_clocks_is_searched(tmp_path: Path) -> None:
    """On a time that is the same from 1,400 MHz on, within 2 %: a low clock, after few of 110."""
    recording = flat_recording(tmp_path / "flat.zip")
    words = ("run", "--device", f"replay:{recording}", "--objective", "energy", "--clocks", "auto")
    found = document(*words, "--max-slowdown", "2%", "--database", tmp_path / "tuner.db")

    assert found["best"]["clock_mhz"] <= 1410
    assert FLAT.time_s(found["best"]["clock_mhz"]) <= 1.02 * FLAT.time_s(1980) * 1.0001
    assert len({one["clock_mhz"] for one in found["trials"]}) <= 12
    assert {point["kind"] for point in found["clock_curve"]} == {"measured", "modelled"}


@pytest.mark.usefixtures("gpu")
def test_clocks_are_set_by_the_lock_and_given_back(nvml: State, tmp_path: Path) -> None:
    """Every clock that was chosen was seen under load, and none is left set."""
    words = ("scan-lf:N=4", "--clocks", "auto", "--policy", "random", "--budget", "4", "--window", "0.1")
    joules = ("--objective", "energy", "--energy-precision", "20%")
    found = document("run", *words, *joules, "--database", tmp_path / "tuner.db")

    assert len({one["clock_mhz"] for one in found["trials"]}) == 4
    for one in found["trials"]:
        assert one["clock_seen_mhz"] == pytest.approx(one["clock_mhz"], abs=15)
    assert nvml.sets == nvml.resets >= 4
    assert nvml.locked_max_mhz == 0
    assert [path for path in (tmp_path / "run").glob("*") if path.name != f"nvml-{UUID}.lock"] == []


@pytest.mark.parametrize(
    ("choice", "holds"), [("off", False), ("auto", True), ("all", True), ("900,800", True), ("1:899", False)]
)
def test_a_daemon_that_lets_the_model_choose_allows_every_clock(choice: str, holds: bool) -> None:
    """An answer's clock may be served if the daemon's own searches may set it."""
    settings = Settings(tuning=TuningTable(clocks=choice))
    assert (clock_reason(900, settings) == "") is holds
