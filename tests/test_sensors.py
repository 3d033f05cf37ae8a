"""The choice of a power sensor for a device, and what the survey of readings says of each."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from cli_process import PATIENCE_S, SMALL
from fake_nvml_state import (
    NOT_SUPPORTED,
    UUID,
    State,
    count,
    h200_at,
    users,
)
from fake_setup import Watched
from jetson_trees import build
from modelled import NoNvrtc
from sampler_rigs import no_board
from tuner.power.base import PowerSampler, Reading, Response, Sample, SensorInfo
from tuner.power.response import calibrations

from tuner.devices.base import Device
from tuner.devices.sensors import (
    SensorReport,
    device_readings,
    is_jetson,
    open_meter,
    open_reading,
    survey,
    user_file,
)
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model import registry
from tuner.model.errors import InputError, PowerError, SensorUnavailableError, UnknownNameError

ALIASING = Response("boxcar", window_s=0.02, origin="calibrated", averages=False)


def real(driver: str = "580.159") -> Device:
    """What a real GPU is to the choice: its identity and its clock."""
    identity = replace(Watched().identity, spec="cuda:0", uuid=UUID, driver=driver, modelled=False)
    return cast("Device", SimpleNamespace(identity=identity, now_s=lambda: 0.0))


@pytest.fixture(autouse=True)
def _no_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no rails, no tegrastats, no jtop and no calibrations, whatever it is."""
    no_board(tmp_path, monkeypatch)
    monkeypatch.setattr("tuner.devices.sensors.is_jetson", lambda: False)


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with h200_at(tmp_path, 500.0) as state:
        yield state


@pytest.fixture
def jetson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine is an Orin NX."""
    tree = build(tmp_path / "board", "orin-nx")
    listed = partial(registry.load("readings", "ina3221").func, sysfs=tree)
    monkeypatch.setattr("tuner.power.sensors.jetson.monitor_readings", listed)
    monkeypatch.setattr("tuner.devices.sensors.is_jetson", lambda: True)
    return tree


def chosen(sensor: str | None = None) -> str:
    """Name of the reading that is taken, or why there is none."""
    meter, why = open_meter(real(), sensor=sensor)
    if meter is None:
        return why
    name = meter.info.name
    meter.close()
    return name


def calibrate(**responses: Response) -> None:
    found = {name.replace("_", "-"): (response, 0.1) for name, response in responses.items()}
    calibrations.store(user_file(), UUID, "580.159", found)


def test_the_first_reading_that_answers_is_taken(nvml: State) -> None:
    """Counter before ring before means over a second before instant power, as one after the other fails."""
    names = []
    for failing in ("energy", "ring", "average", "usage"):
        names.append(chosen())
        setattr(nvml, failing, NOT_SUPPORTED)
    names.append(chosen())

    assert names == [
        *("nvml-energy-counter", "nvml-power-ring", "nvml-power-average"),
        *("nvml-power-usage", "nvml-power-instant"),
    ]


def test_no_reading_is_a_reason(nvml: State) -> None:
    """Where nothing answers, every reading that was tried is named with its reason."""
    nvml.energy = nvml.ring = nvml.average = nvml.usage = nvml.instant = NOT_SUPPORTED

    why = chosen()

    for words in ("nvml-energy-counter: Not Supported", "nvml-power-ring: Not Supported", "no INA3221"):
        assert words in why


def test_no_binding_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML's binding the reason says how to get it."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert "pip install nvidia-ml-py" in chosen()


def test_a_machine_without_vendor_packages_tunes(tmp_path: Path) -> None:
    """Neither joules of a simulated GPU nor the list of clocks need a package of a vendor."""
    tune = ("run", *SMALL, "--objective", "energy", "--budget", "2", "--json", "-")
    both = f"""
import sys
sys.modules.update(dict.fromkeys(("pynvml", "cupy", "jtop")))
from tuner.cli.main import main
main({[*tune, "--database", str(tmp_path / "runs.db")]!r}, standalone_mode=False)
sys.argv = ["tuner", "clocks", "show"]
from tuner.__main__ import main
main()
"""
    done = subprocess.run(
        (sys.executable, "-c", both), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert json.loads(done.stdout)["best"]["energy_j"] > 0.0, done.stderr
    assert (done.returncode, "pip install nvidia-ml-py" in done.stderr) == (1, True), done.stderr


def test_a_jetson_is_measured_by_its_rails(nvml: State, jetson: Path) -> None:
    """On a Jetson its power monitor comes before NVML, and NVML takes over where the monitor is not there."""
    assert nvml.uuid
    assert chosen() == "ina3221:VDD_IN"
    shutil.rmtree(jetson)

    assert chosen() == "nvml-energy-counter"


def test_a_card_is_measured_by_nvml_first(nvml: State, jetson: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere NVML comes first, and a power monitor is taken where NVML answers no power query."""
    assert jetson.exists()
    monkeypatch.setattr("tuner.devices.sensors.is_jetson", lambda: False)
    assert chosen() == "nvml-energy-counter"
    nvml.energy = nvml.ring = nvml.average = nvml.usage = nvml.instant = NOT_SUPPORTED

    assert chosen() == "ina3221:VDD_IN"


def test_a_reading_is_taken_by_name(nvml: State) -> None:
    """A reading that is named is taken, not the best."""
    assert nvml.uuid
    for reading in device_readings(real()):
        if reading.name.startswith("nvml-"):
            assert chosen(reading.name) == reading.name


def test_an_unknown_name_lists_the_readings(nvml: State) -> None:
    """A name that is none of the device's is refused with those it has."""
    assert nvml.uuid
    with pytest.raises(UnknownNameError, match=r"--sensor ring: .*nvml-energy-counter, nvml-power-ring, "):
        open_meter(real(), sensor="ring")


def test_a_named_reading_that_fails_is_bad_input(nvml: State) -> None:
    """A reading that is named and does not answer is refused with the reason, and no other is taken."""
    nvml.usage = NOT_SUPPORTED
    with pytest.raises(InputError, match="--sensor nvml-power-usage: nvml-power-usage: Not Supported"):
        open_reading(real(), "nvml-power-usage")


def test_a_recorded_trace_sees_no_run(nvml: State) -> None:
    """A trace is no sensor of what runs now, and the message says what it is good for."""
    assert nvml.uuid
    with pytest.raises(InputError, match=r"--sensor replay:a.json: a recorded trace does not see what runs"):
        open_meter(real(), sensor="replay:a.json")


def test_a_calibrated_response_is_found(nvml: State) -> None:
    """The response stored for this GPU and driver is that of the reading; for another driver it is not."""
    assert nvml.uuid
    lag = Response("lag", capacitance_s=0.02, capacitance_sigma_s=0.001, origin="calibrated")
    calibrate(nvml_power_ring=lag)

    sampler = open_reading(real(), "nvml-power-ring")
    assert sampler.info.response == lag
    sampler.close()

    sampler = open_reading(real("590.1"), "nvml-power-ring")
    assert sampler.info.response.origin == "assumed"
    sampler.close()


def test_what_was_found_to_alias_is_not_taken(nvml: State) -> None:
    """A reading that its calibration found to alias is passed over, unless it is named."""
    nvml.energy = NOT_SUPPORTED
    calibrate(nvml_power_ring=ALIASING)
    assert chosen() == "nvml-power-average"
    assert chosen("nvml-power-ring") == "nvml-power-ring"

    nvml.average = nvml.usage = nvml.instant = NOT_SUPPORTED
    assert "--sensor nvml-power-ring takes it" in chosen()


@pytest.mark.parametrize(
    ("fails", "alias", "sensor", "read"),
    [
        ("", False, None, True),
        ("", False, "nvml-energy-counter", True),
        ("", False, "nvml-power-average", False),
        ("", True, None, False),  # what misreads power is held against nothing
        ("ring", False, None, False),
    ],
)
def test_a_ring_is_read_beside_the_counter(
    nvml: State, fails: str, alias: bool, sensor: str | None, read: bool
) -> None:
    """Where it answers and no calibration speaks against it; both are closed with the meter."""
    if fails:
        setattr(nvml, fails, NOT_SUPPORTED)
    if alias:
        calibrate(nvml_power_ring=ALIASING)
    before = users()
    meter, why = open_meter(real(), sensor=sensor)
    assert meter is not None, why
    assert users() == before + 1 + read
    asked = count(nvml, "ring")
    with meter.recording():
        pass
    meter.close()

    assert (count(nvml, "ring") > asked) is read
    assert users() == before


def test_damaged_calibrations_are_told(nvml: State, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file of calibrations costs the calibrations, not the measuring, and is named."""
    assert nvml.uuid
    user_file().parent.mkdir(parents=True)
    user_file().write_text("{")

    assert chosen() == "nvml-energy-counter"
    assert str(user_file()) in caplog.text


@pytest.mark.parametrize(
    ("board", "names"),
    [
        ("k40c", ["simulated-stream"]),
        ("h200", [f"simulated-{name}" for name in ("counter", "ring", "instant", "average")]),
        ("gtx680", []),
    ],
)
def test_a_simulated_device_has_the_readings_of_its_model(board: str, names: list[str]) -> None:
    """A simulated GPU has the readings of its model, best first, or none."""
    device = SimulatedDevice(board, 0, NoNvrtc())

    assert [reading.name for reading in device_readings(device)] == names
    meter, why = open_meter(device)
    assert why == ("" if names else f"{device.identity.name} has no power sensor")
    assert (meter is None) == (not names)
    with pytest.raises(InputError, match=r"--sensor ring: .*(simulated-|has no power sensor)"):
        open_reading(device, "ring")


def test_a_simulated_reading_can_be_calibrated() -> None:
    """What was stored for a simulated GPU is what is known of its reading."""
    device = SimulatedDevice("k40c", 0, NoNvrtc())
    lag = Response("lag", capacitance_s=0.8, capacitance_sigma_s=0.01, origin="calibrated")
    identity = device.identity
    found = {"simulated-stream": (lag, 0.015)}
    calibrations.store(user_file(), identity.uuid, identity.driver, found)

    assert open_reading(device, "simulated-stream").info.response == lag


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("proc/device-tree/compatible", b"nvidia,p3767\0nvidia,tegra234\0", True),
        ("proc/device-tree/compatible", b"raspberrypi,4\0", False),
        ("etc/nv_tegra_release", b"# R36", True),
        ("etc/os-release", b"ID=debian", False),
    ],
)
def test_a_jetson_is_told_by_its_device_tree(
    tmp_path: Path, file: str, content: bytes, expected: bool
) -> None:
    """A Tegra in the device tree, or the release file of a Jetson's system, makes a Jetson."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_bytes(content)

    assert is_jetson(tmp_path) is expected


COUNTER = SensorInfo("counter", "counter", "gpu", period_s=0.2)
STREAM = SensorInfo("stream", "stream", "gpu", period_s=0.2, poll_interval_s=0.01)


class Sensor:
    """A sensor of a period at 80 W, whose clock moves when waited for."""

    def __init__(self, info: SensorInfo, period_s: float = 0.1, fails_s: float = 1e9) -> None:
        self.known = info
        self.period_s = period_s
        self.fails_s = fails_s
        self.time_s = self.due_s = 0.0
        self.seen = 0
        self.polls = 0
        self.closed = 0

    @property
    def info(self) -> SensorInfo:
        return replace(self.known, period_s=self.period_s) if self.seen > 3 else self.known

    def poll(self) -> list[Sample]:
        self.polls += 1
        if self.time_s > self.fails_s:
            raise PowerError("it broke")
        numbers = range(self.seen + 1, int(self.time_s / self.period_s) + 1)
        self.seen += len(numbers)
        times = [number * self.period_s for number in numbers]
        return [Sample(t, 80.0 * t if self.known.kind == "counter" else 80.0) for t in times]

    def close(self) -> None:
        self.closed += 1


def surveyed(*sensors: Sensor | str) -> list[SensorReport]:
    """The reports of sensors; a text is a reading that is not there, for that reason."""
    clock = [0.0]

    def reading(found: Sensor | str) -> Reading:
        def opened() -> PowerSampler:
            if isinstance(found, str):
                raise SensorUnavailableError(f"missing: {found}")
            return found

        return Reading("missing" if isinstance(found, str) else found.known.name, opened)

    def pause(seconds: float) -> None:
        clock[0] += seconds
        for sensor in sensors:
            if isinstance(sensor, Sensor):
                sensor.time_s = clock[0]

    reports = survey(map(reading, sensors), seconds=1.0, now=lambda: clock[0], pause=pause)
    assert all(sensor.closed == 1 for sensor in sensors if isinstance(sensor, Sensor))
    return reports


def test_each_reading_is_looked_at() -> None:
    """Period and power of every reading are those it showed; the first is taken, and the reason says so."""
    first, second = surveyed(Sensor(COUNTER), Sensor(STREAM))

    assert (first.measured, second.measured) == (True, True)
    assert first.info is not None
    assert first.info.period_s == 0.1
    assert [first.watts, second.watts] == pytest.approx([80.0, 80.0])
    assert (first.chosen, first.why) == (True, "")
    assert (second.chosen, second.why) == (False, "works; counter comes first")


def test_what_is_not_there_has_a_reason() -> None:
    """A reading that does not answer keeps its place and its reason, its name said once."""
    missing, first = surveyed("no driver", Sensor(COUNTER))

    assert (missing.name, missing.info, missing.why) == ("missing", None, "no driver")
    assert first.chosen


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (Response("boxcar", window_s=0.02, averages=False), "may miss part of a periodic load"),
        (Response("ramp", window_s=1.0), "a mean over 1 s, which answers late"),
        (
            Response("boxcar", window_s=0.02, origin="calibrated", averages=False),
            "misreads power, as its calibration found: no energy is to be taken from it",
        ),
    ],
)
def test_weaknesses_are_named(response: Response, why: str) -> None:
    """What is weaker about a reading than about the one taken is said."""
    _, second = surveyed(Sensor(COUNTER), Sensor(replace(STREAM, response=response)))

    assert second.why == why


def test_an_aliasing_reading_is_not_taken() -> None:
    """What its calibration found to alias is passed over, even alone."""
    aliasing = Response("boxcar", window_s=0.02, origin="calibrated", averages=False)
    blind = replace(STREAM, name="blind", response=aliasing)

    assert [r.chosen for r in surveyed(Sensor(blind), Sensor(STREAM))] == [False, True]
    assert [r.chosen for r in surveyed(Sensor(blind))] == [False]


def test_a_reading_that_breaks_is_not_taken() -> None:
    """A sensor that fails while it is looked at is not asked again, and another is taken."""
    broken = Sensor(STREAM, fails_s=0.2)
    first, second = surveyed(broken, Sensor(COUNTER))

    assert (first.chosen, first.why) == (False, "it broke")
    assert second.chosen
    assert broken.polls <= 22


def test_a_slow_reading_keeps_what_is_expected_of_it() -> None:
    """Too few samples measure no period."""
    (report,) = surveyed(Sensor(STREAM, period_s=0.4))

    assert not report.measured
    assert report.info is not None
    assert report.info.period_s == 0.2
