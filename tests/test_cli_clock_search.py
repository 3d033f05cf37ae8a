"""``tuner run --clocks auto``: on modelled GPUs, recordings and a fake driver; resumed, refused and shown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import TX1, document, tuner
from clock_lines import FLAT, flat_recording
from fake_nvml_state import UUID, State, fake_nvml, library
from nvml_gpu import NvmlGpu, play
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths

from tuner.daemon.answers.replies import clock_reason
from tuner.daemon.settings import Settings, TuningTable
from tuner.devices.choice import OpenedDevice
from tuner.measurement import settle

AUTO = ("run", "scan-lf:N=4", *TX1, "--clocks", "auto")


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
    assert "saved per % slower" in shown
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
    words = ("run", "--device", f"replay:{recording}", "--clocks", "auto", "--max-slowdown", "2%")
    found = document(*words, "--database", tmp_path / "tuner.db")

    assert found["best"]["clock_mhz"] <= 1410
    assert FLAT.time_s(found["best"]["clock_mhz"]) <= 1.02 * FLAT.time_s(1980) * 1.0001
    assert len({one["clock_mhz"] for one in found["trials"]}) <= 12
    assert {point["kind"] for point in found["clock_curve"]} == {"measured", "modelled"}


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """A GPU behind the fake driver that commands of this process find."""
    with fake_nvml(tmp_path) as state:
        play(state)
        nothing = tmp_path / "nothing"
        where = ClockPaths(library(), nothing, nothing, tmp_path / "run", tmp_path / "clockd.sock")
        monkeypatch.setattr(control, "SYSTEM", where)
        monkeypatch.setattr(settle, "APART_S", 0.0)  # the power of this GPU is settled at once
        gpu = NvmlGpu(state)
        monkeypatch.setattr("tuner.search.setup.open_device", lambda *_, **__: OpenedDevice(gpu, ""))
        yield state


def test_clocks_are_set_by_the_lock_and_given_back(nvml: State, tmp_path: Path) -> None:
    """Every clock that was chosen was seen under load, and none is left set."""
    words = ("scan-lf:N=4", "--clocks", "auto", "--policy", "random", "--budget", "4", "--window", "0.1")
    found = document("run", *words, "--energy-precision", "20%", "--database", tmp_path / "tuner.db")

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
