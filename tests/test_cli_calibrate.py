"""``tuner power calibrate``: what it prints, stores and refuses."""

import json
from pathlib import Path

import pytest
from cli_process import tuner

from tuner.devices.sensors import calibrated, open_meter, user_file
from tuner.devices.simulated.device import SimulatedDevice
from tuner.joules.watching import Gpu
from tuner.model.errors import DeviceError, DeviceUnavailableError

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
