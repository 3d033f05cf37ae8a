"""``tuner power sensors`` and ``calibrate``: what is found and measured of readings, and which is taken."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_process import document, refused, tuner
from fake_nvml_state import NOT_SUPPORTED, UUID, State, h200_at
from jetson_trees import build
from sampler_rigs import no_board

from tuner.devices.sensors import calibrated, open_meter, user_file
from tuner.devices.simulated.device import SimulatedDevice
from tuner.joules.watching import Gpu
from tuner.model import registry
from tuner.model.errors import DeviceError, DeviceUnavailableError


@pytest.fixture(autouse=True)
def _this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rails, no calibrations, and looks of a tenth of a second."""
    no_board(tmp_path, monkeypatch)
    monkeypatch.setattr("tuner.cli.power.LOOK_S", 0.1)


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with h200_at(tmp_path, 500.0) as state:
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


# --- tuner power calibrate ------------------------------------------------------------------------


QUICK = ("--seconds", "15")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_calibration_is_told_and_stored(tmp_path: Path) -> None:
    """Device, models tried, the chosen one with its uncertainty; it is found again for this device alone."""
    path = tmp_path / "calibration.json"
    result = tuner("power", "calibrate", "--device", "sim:k20c", *QUICK, "--json", path)
    found, shown = json.loads(path.read_text()), " ".join(result.stdout.split())

    assert result.exit_code == 0
    for text in ("(modelled)", "15 ms lag", "±", "lag by BIC (ramp +", "W idle", "sensors.json"):
        assert text in shown
    assert "best reading for energy is simulated-stream" in shown

    assert found["device"]["modelled"] is True
    (row,) = found["readings"]
    assert row["response"]["kind"] == "lag"
    assert row["response"]["capacitance_s"] == pytest.approx(0.833, rel=0.05)
    assert 0 < row["response"]["capacitance_sigma_s"] < 0.04
    assert {candidate["kind"] for candidate in row["candidates"]} == {"lag", "ramp", "identity"}
    assert row["rise_s"] == pytest.approx(row["fall_s"], rel=0.1)
    assert row["usable"] is True
    assert found["best"] == row["name"]
    assert found["stored"] == str(user_file())

    (entry,) = json.loads(user_file().read_text())["calibrations"]
    assert entry["gpu"] == "sim:k20c"
    response = calibrated(SimulatedDevice("k20c").identity)(entry["reading"])
    assert response is not None
    assert response.origin == "calibrated"
    assert calibrated(SimulatedDevice("k40c").identity)(entry["reading"]) is None


def test_the_age_of_a_counter_is_told() -> None:
    """Of a counter that is what matters, whatever its lag and delay are."""
    result = tuner("power", "calibrate", "--device", "sim:h200", "--sensor", "simulated-counter", *QUICK)

    assert "a tick has counted what was drawn up to 0.0 ms before it" in " ".join(result.stdout.split())


def test_an_aliasing_reading_is_refused_for_energy() -> None:
    """Of a GPU whose only reading aliases, the report says that none may be used."""
    result = tuner("power", "calibrate", "--device", "sim:a100", *QUICK)
    shown = " ".join(result.stdout.split())

    assert result.exit_code == 0
    assert "its mean under a periodic load is not the mean power" in shown
    assert "No reading may be used for energy." in shown


def test_no_simulated_gpu_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU and without a wish nothing is calibrated; what is missing is told."""

    def missing(_: int) -> None:
        raise DeviceUnavailableError("cuda:0: no NVIDIA driver")

    monkeypatch.setattr("tuner.joules.watching.who", missing)

    result = tuner("power", "calibrate", *QUICK)
    told = " ".join(result.stderr.split())

    assert result.exit_code == 1
    assert "no GPU to calibrate: cuda:0: no NVIDIA driver" in told
    assert "--device sim:NAME calibrates a simulated one" in told
    assert not user_file().exists()


def test_a_damaged_store_is_set_aside() -> None:
    """A file that is damaged is named and kept beside the one that is measured anew."""
    user_file().parent.mkdir(parents=True)
    user_file().write_text("{}")

    result = tuner("power", "calibrate", "--device", "sim:k20c", *QUICK)

    assert result.exit_code == 0
    assert user_file().with_name("sensors.json.damaged").read_text() == "{}"
    assert "checksum" in json.loads(user_file().read_text())


def test_an_interrupt_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of the load ends with 130 and no calibration."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedDevice, "pulse", stop)

    result = tuner("power", "calibrate", "--device", "sim:k20c", *QUICK)

    assert result.exit_code == 130
    assert "no calibration was stored" in result.stderr
    assert not user_file().exists()


def test_a_gpu_that_computes_for_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Company is found before anything is played or stored."""

    def company(gpu: str | int, ours: int = 0) -> None:
        raise DeviceError(f"{gpu}: others compute on it ({ours} ours)")

    monkeypatch.setattr("tuner.joules.watching.find_gpu", lambda *_: Gpu("GPU-1", "GPU-1", "580", "a GPU"))
    monkeypatch.setattr("tuner.devices.gpu_users.require_exclusive_gpu", company)
    monkeypatch.setattr("tuner.devices.choice.open_device", lambda _: pytest.fail("opened"))

    result = tuner("power", "calibrate", *QUICK)

    assert result.exit_code == 1
    assert "others compute on it (0 ours)" in result.stderr
    assert not user_file().exists()


def test_a_reading_that_does_not_follow_is_not_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading that the load does not move is stored as one that no energy is to be taken from."""
    monkeypatch.setattr(
        SimulatedDevice, "pulse", lambda device, pulses: _unmoved(device, [sum(pulse) for pulse in pulses])
    )

    result = tuner("power", "calibrate", "--device", "sim:k20c", *QUICK)

    assert "simulated-stream: does not follow the load" in " ".join(result.stdout.split())
    (entry,) = json.loads(user_file().read_text())["calibrations"]
    assert entry["response"]["averages"] is False
    meter, why = open_meter(SimulatedDevice("k20c"))
    assert meter is None
    assert "misreads power" in why


def _unmoved(device: SimulatedDevice, lengths_s: list[float]) -> list[tuple[float, float]]:
    """Idle all the time, while it is said to be busy for half of it."""
    busy = []
    for length_s in lengths_s:
        busy.append((device.now_s(), device.now_s() + length_s / 2.0))
        device.sleep(length_s)
    return busy
