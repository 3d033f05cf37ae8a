"""``tuner power sensors``: what is found, and which reading is taken."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_process import document, refused, tuner
from fake_nvml_state import NOT_SUPPORTED, UUID, State, fake_nvml, script, sensors_of_h200
from jetson_trees import build

from tuner.model import registry


@pytest.fixture(autouse=True)
def _this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rails, no calibrations, and looks of a tenth of a second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tuner.devices.sensors.SYSTEM_FILE", tmp_path / "none.json")
    monkeypatch.setattr("tuner.cli.power.LOOK_S", 0.1)
    places = {
        "ina3221": "jetson.monitor_readings",
        "tegrastats": "jetson.tegrastats_readings",
        "jtop": "jtop.readings",
    }
    for name, option in (("ina3221", "sysfs"), ("tegrastats", "binary"), ("jtop", "socket")):
        listed = partial(registry.load("readings", name), **{option: tmp_path / "none"})
        monkeypatch.setattr(f"tuner.power.sensors.{places[name]}", listed)


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """An H200 at 500 W."""
    with fake_nvml(tmp_path) as state:
        script(state, (0.0, 500.0))
        sensors_of_h200(state)
        yield state


def rows(*words: str) -> dict[str, dict[str, Any]]:
    """The rows of the document by reading."""
    return {row["reading"]: row for row in document("power", "sensors", *words)["readings"]}


def test_every_reading_of_a_gpu_is_listed(nvml: State) -> None:
    """Readings that answer are described, others have a reason, and the first that answers is taken."""
    nvml.energy = NOT_SUPPORTED
    found = rows("--device", UUID)

    counter = found["nvml-energy-counter"]
    assert (counter["available"], counter["why"]) == (False, "Not Supported")
    ring = found["nvml-power-ring"]
    assert ring["chosen"] is True
    assert ring["watts"] == pytest.approx(500.0, rel=0.01)
    assert (ring["scope"], ring["kind"], ring["response"]["origin"]) == ("gpu", "ring", "assumed")
    assert [name for name, row in found.items() if row["chosen"]] == ["nvml-power-ring"]
    assert "no INA3221" in found["ina3221"]["why"]
    assert (nvml.sets, nvml.resets, nvml.app_sets) == (0, 0, 0)


def test_the_table_says_the_same(nvml: State) -> None:
    """The table has a line for each reading that answers, and says why others are not taken."""
    nvml.instant, nvml.module, nvml.rest_milliwatts = NOT_SUPPORTED, 0, 100_000
    shown = tuner("power", "sensors", "--device", UUID)

    assert shown.exit_code == 0
    lines = {line.split()[0]: line for line in shown.stdout.splitlines() if line.strip()}
    assert "NVIDIA H200, driver 580.159" in shown.stdout
    assert "`--sensor NAME` of run, watch and trace" in " ".join(shown.stdout.split())
    assert "module" in shown.stdout
    assert lines["nvml-energy-counter"].endswith("takes another.")
    assert "nvml-power-ring: works; nvml-energy-counter comes first" in shown.stdout


def test_a_machine_without_sensors_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing answers the command ends well and says what is missing of each."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    shown = tuner("power", "sensors")

    assert shown.exit_code == 0
    assert shown.stdout.startswith("this machine\n")
    for words in ("pip install nvidia-ml-py", "no INA3221", "tegrastats", "no energy can be measured"):
        assert words in " ".join(shown.stdout.split())


def test_only_what_answers_is_offered(nvml: State) -> None:
    """An unknown --sensor is refused with the readings that answer, or with why none does."""
    nvml.energy = NOT_SUPPORTED
    words = ("power", "watch", "--device", "0", "--count", "1", "--sensor", "foo")
    offered = tuner(*words)
    nvml.init = 18
    nothing = tuner(*words)

    assert (offered.exit_code, nothing.exit_code) == (2, 2)
    assert "choose from nvml-power-ring" in offered.stderr
    assert "nvml-energy-counter" not in offered.stderr
    assert "tegrastats" not in offered.stderr
    assert "none answers here: nvml: " in " ".join(nothing.stderr.split())


def test_a_jetson_shows_its_rails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Jetson the rails are listed with what they feed, and the best of them is taken."""
    tree = build(tmp_path / "board", "orin-nx")
    listed = partial(registry.load("readings", "ina3221").func, sysfs=tree)
    monkeypatch.setattr("tuner.power.sensors.jetson.monitor_readings", listed)
    monkeypatch.setattr("tuner.devices.sensors.is_jetson", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = rows()

    assert [name for name, row in found.items() if row["chosen"]] == ["ina3221:VDD_IN"]
    assert found["ina3221:VDD_CPU_GPU_CV"]["available"]


def test_a_simulated_reading_is_modelled() -> None:
    """A simulated device has the reading of its model, in virtual time, and is labelled as modelled."""
    told = document("power", "sensors", "--device", "sim:k40c")

    assert told["device"]["modelled"] is True
    assert "modelled" in told["device"]["name"]
    (row,) = told["readings"]
    assert (row["reading"], row["chosen"]) == ("simulated-stream", True)
    assert row["response"]["capacitance_s"] == 0.79
    assert row["watts"] > 10


def test_a_board_without_a_sensor_says_so() -> None:
    """A simulated board without a sensor has no reading."""
    shown = tuner("power", "sensors", "--device", "sim:gtx580")

    assert shown.exit_code == 0
    assert "no energy can be measured" in shown.stdout


def test_a_run_takes_the_reading_named(tmp_path: Path) -> None:
    """``tuner run --sensor`` measures with that reading, and refuses one the device has not."""
    database = tmp_path / "results.db"
    words = ("scan-lf:N=4", "--device", "sim:k40c", "--budget", "1", "--sensor")

    refused(database, (*words, "nvml-power-ring"), "--sensor nvml-power-ring", "simulated-stream")
    measured = document("run", "--database", database, *words, "simulated-stream")

    assert measured["best"]["sensor"] == "simulated-stream"
