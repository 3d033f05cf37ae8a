"""Calibration: its load, readings side by side, failures, and the store of its results."""

import json
import multiprocessing
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import sensed
from tuner.power.base import ClockReading, Response, Sample, SensorInfo
from tuner.power.response.calibrate import PulseTrain, calibrate, grouped, rhythm, schedule
from tuner.power.response.calibrations import entries, load, prepare, store
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.devices.sensors import calibrated
from tuner.devices.simulated.device import SimulatedClocks, SimulatedDevice
from tuner.model.errors import DeviceError, PowerError, StoreError
from tuner.model.jobs import DeviceIdentity


def test_readings_are_calibrated_side_by_side() -> None:
    """One load serves all readings of a device, each with its own model, in the order of the samplers."""
    device, lagging = sensed(3, period_s=0.02, capacitance_s=0.02)
    mean = SimulatedSampler(device, "stream", period_s=0.1, window_s=1.0, noise=0.01, seed=4)
    counter = SimulatedSampler(device, "counter", period_s=0.1, noise=0.001)
    begun_s = device.now_s()

    found = calibrate(device, [lagging, mean, counter], seconds=30.0)

    assert [one.response.kind for one in found if one.response] == ["lag", "ramp", "identity"]
    assert [one.usable for one in found] == [True, True, True]
    assert found[0].idle_w == pytest.approx(48.0, rel=0.02)
    assert device.now_s() - begun_s < 1.1 * 30.0


def test_progress_is_told() -> None:
    """Progress goes up to the end, in steps of a few seconds."""
    device, sampler = sensed(0, period_s=0.1)
    told: list[tuple[float, float]] = []

    calibrate(device, [sampler], seconds=20.0, progress=lambda done, total: told.append((done, total)))

    done = [0.0, *(seconds for seconds, _ in told)]
    assert np.all(np.diff(done) > 0)
    assert np.max(np.diff(done)) < 6.0
    assert all(total >= 20.0 for _, total in told)


class Broken:
    """A reading that answers once and then fails."""

    info = SensorInfo("broken", "ring", "gpu", 0.1)
    due_s = 0.0

    def poll(self) -> list[Sample]:
        raise PowerError("the GPU is lost")

    def close(self) -> None:
        pass


def test_a_reading_that_fails_costs_only_itself() -> None:
    """Of a reading that stops answering nothing is identified; the others are calibrated."""
    device, sampler = sensed(0, period_s=0.1, window_s=0.1)

    broken, good = calibrate(device, [Broken(), sampler], seconds=20.0)

    assert broken.response is None
    assert "only 0 fresh samples" in broken.reason
    assert "the GPU is lost" in broken.reason
    assert good.response is not None


class Throttled(SimulatedClocks):
    """Clocks that are held back; never set."""

    def read(self) -> ClockReading:
        return ClockReading(1000.0, ("sw-power-cap",))


def test_a_load_that_is_held_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Throttling while the load is played is a warning: its power is then not what the models suppose."""
    device, sampler = sensed(0, period_s=0.1, window_s=0.1)

    calibrate(device, [sampler], clocks=Throttled(device), seconds=20.0)

    (warning,) = caplog.messages
    assert "held back under the load (sw-power-cap)" in warning


class InterruptedDevice(SimulatedDevice):
    """A device whose load ends in the middle."""

    end: BaseException = KeyboardInterrupt()

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        if self.now_s() > 5.0:
            raise self.end
        return super().pulse(pulses)


class Polled:
    """A reading that asks to be polled and never has news."""

    info = SensorInfo("polled", "stream", "gpu", 0.1, poll_interval_s=0.001)
    due_s = 0.0

    def poll(self) -> list[Sample]:
        return []

    def close(self) -> None:
        pass


@pytest.mark.parametrize("end", [KeyboardInterrupt(), DeviceError("the GPU has fallen off the bus")])
def test_a_calibration_that_ends_early_leaves_nothing_running(end: BaseException) -> None:
    """Ctrl-C and a lost GPU pass through, and no thread goes on polling."""
    device = InterruptedDevice("sim:k20c")
    device.end = end

    with pytest.raises(type(end)):
        calibrate(device, [Polled()], seconds=30.0)

    assert not [thread for thread in threading.enumerate() if thread.name == "tuner-meter"]


@given(
    st.lists(st.sampled_from([0.01, 0.015, 0.02, 0.1, 0.1018, 0.5, 1.0]), min_size=1, max_size=5),
    st.floats(15.0, 120.0),
    st.integers(0, 99),
)
def test_the_load_keeps_to_its_time(periods: list[float], seconds: float, seed: int) -> None:
    """However many readings there are, the load takes no longer than asked for, and steps are among it."""
    rng = np.random.default_rng(seed)
    bursts = [*rhythm(seconds, rng), *schedule(periods, seconds, rng)]
    pulses = [pulse for burst in bursts for pulse in burst.pulses]

    assert sum(burst.duration_s for burst in bursts) < 1.1 * seconds + 2.0
    assert all(busy_s > 0 and idle_s > 0 for busy_s, idle_s in pulses)
    assert sum(busy_s > seconds / 25.0 for busy_s, _ in pulses) >= 4


def test_squares_have_the_period_of_a_reading() -> None:
    """Each group of periods has its square waves, busy half of the time, where they are short enough."""
    bursts = schedule([0.1, 0.02, 0.1018, 5.0], 60.0, np.random.default_rng(0))
    squares = [burst for burst in bursts if burst.square]

    found = {round(burst.duration_s / len(burst.pulses), 4) for burst in squares}
    assert found == {0.02, 0.1009}  # none of 5 s: there is no time for them
    assert all(busy_s == idle_s for burst in squares for busy_s, idle_s in burst.pulses)


def test_similar_periods_share_their_load() -> None:
    """Periods within 5 % are one group, represented by their median."""
    assert grouped([0.1018, 0.02, 0.1, 0.1002]) == [0.02, 0.1002]


def test_a_burst_knows_its_length() -> None:
    """Busy and idle times count."""
    assert PulseTrain(((0.5, 0.25), (1.0, 0.0))).duration_s == 1.75


GPU, DRIVER = "GPU-1234", "580.1"
LAG = Response(
    "lag",
    capacitance_s=0.0145,
    capacitance_sigma_s=2e-4,
    delay_s=-0.002,
    delay_sigma_s=1e-4,
    origin="calibrated",
)
BLIND = Response("boxcar", window_s=0.025, origin="calibrated", averages=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sensors.json"


def test_what_is_stored_is_loaded(path: Path) -> None:
    """Responses come back as they were, with period, date and version beside them."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02), "instant": (BLIND, 0.1)})

    assert load(path, GPU, DRIVER) == {"ring": LAG, "instant": BLIND}
    first, _ = entries(path)
    assert first.period_s == 0.02
    assert first.date.endswith("+00:00")
    assert first.tuner


@pytest.mark.parametrize(("gpu", "driver"), [(GPU, "590.2"), ("GPU-5678", DRIVER), ("sim:h200", DRIVER)])
def test_another_gpu_or_driver_has_none(path: Path, gpu: str, driver: str) -> None:
    """A calibration is that of one board under one driver; a simulated one is never a real one's."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})

    assert load(path, gpu, driver) == {}


def test_only_the_same_is_replaced(path: Path) -> None:
    """Calibrating again replaces the readings calibrated, and leaves others, other GPUs and other drivers."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02), "instant": (BLIND, 0.1)})
    store(path, GPU, "590.2", {"ring": (BLIND, 0.02)})
    store(path, "GPU-5678", DRIVER, {"ring": (BLIND, 0.02)})

    store(path, GPU, DRIVER, {"ring": (replace(LAG, capacitance_s=0.015), 0.02)})

    assert load(path, GPU, DRIVER)["ring"].capacitance_s == 0.015
    assert load(path, GPU, DRIVER)["instant"] == BLIND
    assert load(path, GPU, "590.2") == load(path, "GPU-5678", DRIVER) == {"ring": BLIND}


def test_no_file_is_no_calibration(path: Path) -> None:
    """Without a file nothing is calibrated, and looking makes none."""
    assert load(path, GPU, DRIVER) == {}
    assert not path.parent.exists()


def damaged(path: Path, change: Any) -> None:
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    document = json.loads(path.read_text())
    change(document["calibrations"][0])
    del document["checksum"]  # as an earlier version wrote it
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda item: item.pop("gpu"), "'gpu' is missing"),
        (lambda item: item.update(driver=580), "driver is 580, not a text"),
        (lambda item: item.update(response=None), "NoneType"),
        (lambda item: item["response"].update(kind="laag"), "'laag', not one of identity, lag, boxcar, ramp"),
        (lambda item: item["response"].update(capacitance_s=-0.1), "capacitance_s is -0.1, less than 0"),
        (lambda item: item["response"].update(capacitance_s=0), "a lag has a capacitance_s of 0"),
        (lambda item: item["response"].update(window_s=1), "a lag has a window_s of 1"),
        (lambda item: item["response"].update(delay_s="soon"), "delay_s is 'soon', not a number"),
        (lambda item: item["response"].update(delay_s=float("nan")), "delay_s is nan, not a number"),
        (lambda item: item["response"].update(delay_s=10**400), "too large"),
        (lambda item: item["response"].update(averages="yes"), "averages is 'yes', not true or false"),
        (lambda item: item.update(period_s=True), "period_s is True, not a number"),
    ],
)
def test_a_damaged_entry_is_named(path: Path, change: Any, says: str) -> None:
    """A value that cannot be is an error that names file, value and remedy; storing sets the file aside."""
    damaged(path, change)
    before = path.read_bytes()

    with pytest.raises(StoreError) as caught:
        load(path, GPU, DRIVER)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "tuner power calibrate" in str(caught.value)
    prepare(path)
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})

    assert path.with_name("sensors.json.damaged").read_bytes() == before
    assert load(path, GPU, DRIVER) == {"ring": LAG}


def test_a_digit_that_changed_is_seen(path: Path) -> None:
    """A response that could be, and is not the one that was stored, is not used."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    path.write_text(path.read_text().replace("0.0145", "0.0175"))

    with pytest.raises(StoreError, match="checksum"):
        load(path, GPU, DRIVER)


def test_a_file_of_an_earlier_version_is_used(path: Path) -> None:
    """A file without a checksum counts, and gets one when something is stored."""
    damaged(path, lambda _: None)
    assert load(path, GPU, DRIVER) == {"ring": LAG}

    store(path, GPU, DRIVER, {"instant": (BLIND, 0.1)})

    assert "checksum" in json.loads(path.read_text())
    assert load(path, GPU, DRIVER) == {"ring": LAG, "instant": BLIND}


@given(st.data())
def test_no_flipped_bit_gives_other_numbers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After any flip of a bit the responses are those that were stored, or none."""
    path = tmp_path_factory.mktemp("flip") / "sensors.json"
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)

    try:
        found = load(path, GPU, DRIVER)
    except StoreError:
        return
    assert found == {"ring": LAG}


@given(
    st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda x: (
                st.lists(x, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["version", "calibrations", "gpu", "response"]), x, max_size=3
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_other_file_is_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever stands in the file, reading it gives calibrations or an error that names it."""
    path = tmp_path_factory.mktemp("any") / "sensors.json"
    path.write_bytes(content)

    try:
        found = load(path, GPU, DRIVER)
    except StoreError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found == {}


def test_an_unwritable_place_is_told(tmp_path: Path) -> None:
    """Where the directory cannot be made, the error names the file."""
    (tmp_path / "state").write_text("a file where the directory should be")

    with pytest.raises(StoreError, match=r"sensors\.json"):
        prepare(tmp_path / "state" / "sensors.json")


def test_nothing_is_left_beside_the_file(path: Path) -> None:
    """After a success, and after a failure in the middle of writing, no temporary file remains."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        store(path, GPU, DRIVER, {"ring": (replace(LAG, delay_s=float("inf")), 0.02)})

    assert path.read_bytes() == before
    assert {entry.name for entry in path.parent.iterdir()} == {"sensors.json", ".sensors.json.lock"}


def _store_one(path: str, number: int) -> None:
    store(Path(path), GPU, DRIVER, {f"reading-{number}": (LAG, 0.02)})


def test_two_at_once_lose_nothing(path: Path) -> None:
    """Processes that store at the same time all find their entries in the file."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_store_one, args=(str(path), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert set(load(path, GPU, DRIVER)) == {f"reading-{number}" for number in range(4)}


def test_a_user_comes_before_the_system(tmp_path: Path) -> None:
    """What a user calibrated counts more than an administrator's, which fills in the rest."""
    user, system = tmp_path / "user.json", tmp_path / "system.json"
    store(user, GPU, DRIVER, {"ring": (LAG, 0.02)})
    store(system, GPU, DRIVER, {"ring": (BLIND, 0.02), "instant": (BLIND, 0.1)})
    identity = DeviceIdentity("cuda:0", "GPU", GPU, DRIVER, "", modelled=False)

    found = calibrated(identity, user, system)

    assert found("ring") == LAG
    assert found("instant") == BLIND
    assert found("average") is None
