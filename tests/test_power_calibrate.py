"""The calibration procedure: its load, readings side by side, and what happens when something fails."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import sensed
from tuner.power.base import ClockReading, Sample, SensorInfo
from tuner.power.response.calibrate import PulseTrain, calibrate, grouped, rhythm, schedule
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.devices.simulated.device import SimulatedClocks, SimulatedDevice
from tuner.model.errors import DeviceError, PowerError


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
