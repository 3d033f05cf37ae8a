"""The meter: collecting samples while something runs, and answering for windows of it."""

import threading
from typing import Any, Literal

import pytest
from power_source import IDLE_W, Source
from tuner.power.base import ClockReading, Recording, Sample, SensorInfo
from tuner.power.energy.meter import SampledRecording, SamplingMeter
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.model.errors import ClockError, PowerError


@pytest.mark.parametrize("kind", ["counter", "ring"])
def test_joules_of_a_recording(kind: Literal["counter", "ring"]) -> None:
    """The whole recording is accounted for, whatever the window."""
    source = Source()
    meter = SamplingMeter(SimulatedSampler(source, kind, period_s=0.02), None, source.now_s)
    source.draw(0.5, IDLE_W)
    with meter.recording() as recording:
        source.draw(1.0, 100.0)
        source.draw(3.0, 300.0)

    assert recording.joules() == pytest.approx(1000.0, rel=0.01)
    meter.close()


class Script:
    """A sensor and a clock that say what the test wrote, and count in an event when they have."""

    def __init__(self, polls: list[list[Sample] | PowerError], poll_interval_s: float = 1e-4) -> None:
        self.info = SensorInfo("script", "stream", "gpu", 0.1, poll_interval_s=poll_interval_s)
        self.polls = polls
        self.clock: list[ClockReading | ClockError] = []
        self.done = threading.Event()
        self.due_s = 0.0
        self.log: list[str] = []

    def poll(self) -> list[Sample]:
        self.log.append("poll")
        if not self.polls:
            self.done.set()
            return []
        answer = self.polls.pop(0)
        if isinstance(answer, PowerError):
            self.done.set()
            raise answer
        return answer

    def read(self) -> ClockReading:
        self.log.append("clock")
        answer = self.clock.pop(0) if len(self.clock) > 1 else self.clock[0]
        if isinstance(answer, ClockError):
            self.done.set()
            raise answer
        return answer

    def supported_mhz(self) -> tuple[int, ...]:
        return ()

    def locked(self, mhz: int) -> Any:
        raise AssertionError(mhz)

    def close(self) -> None:
        pass


def record(script: Script, *, clocks: Script | None = None) -> Recording:
    ticking = iter(range(10**9))
    meter = SamplingMeter(script, clocks, lambda: float(next(ticking)), clock_interval_s=0.0)
    with meter.recording() as made:
        assert script.done.wait(60)
    recording: Recording = made
    return recording


def test_a_thread_polls_a_sensor_that_must_be_polled() -> None:
    """All samples of all polls are collected, what came before the recording is not part of the window."""
    polls: list[list[Sample] | PowerError] = [
        [Sample(1.0, 1e6), Sample(2.0, 100.0)],
        [Sample(3.0, 100.0)],
        [],
        [Sample(4.0, 200.0), Sample(5.0, 200.0)],
    ]

    reading = record(Script(polls)).reading(2.5, 6.0)

    assert reading is not None
    assert reading.watts == pytest.approx((150.0 + 200.0) / 2.0)


def test_a_failing_sensor_ends_the_collecting_only() -> None:
    """A sensor that dies in the thread costs no exception there; who asks for a window hears of it."""
    polls: list[list[Sample] | PowerError] = [[], [Sample(3.0, 100.0)], PowerError("GPU is lost")]
    recording = record(Script(polls))

    with pytest.raises(PowerError, match="script stopped answering: GPU is lost"):
        recording.reading(0.0, 9.0)
    assert recording.joules() > 0.0


def test_samples_that_cannot_be_are_told() -> None:
    """Impossible samples are left out of the mean, and the reading says so."""
    polls: list[list[Sample] | PowerError] = [
        [Sample(1.0, 100.0)],
        [Sample(2.0, float("nan")), Sample(3.0, 100.0)],
        [Sample(4.0, 1e9), Sample(5.0, 100.0)],
    ]

    reading = record(Script(polls)).reading(1.0, 6.0)

    assert reading is not None
    assert reading.watts == pytest.approx(100.0)
    assert any(note.startswith("sensor-values: 2 of 5") for note in reading.notes)


def test_the_block_keeps_its_own_exception() -> None:
    """An exception in the block passes through, and the thread has ended."""
    script = Script([])
    meter = SamplingMeter(script, None, lambda: 0.0)
    threads = threading.active_count()

    with pytest.raises(KeyboardInterrupt), meter.recording():
        raise KeyboardInterrupt

    assert threading.active_count() == threads


def test_clock_is_a_median_and_reasons_are_collected() -> None:
    """Of the clock readings in a window the median counts, and every throttle reason seen."""
    script = Script([[Sample(float(i), 100.0)] for i in range(8)])
    script.clock = [
        ClockReading(1980.0, ("sw-power-cap",)),
        ClockReading(None),
        ClockReading(1500.0, ("hw-slowdown",)),
        ClockReading(1965.0),
    ]
    recording = record(script, clocks=script)

    seen = recording.clock(0.0, 1e9)

    assert seen.mhz == 1965.0
    assert seen.throttle_reasons == ("hw-slowdown", "sw-power-cap")
    assert recording.clock(-2.0, -1.0) == ClockReading(None)


def test_a_failing_clock_does_not_cost_the_energy(caplog: pytest.LogCaptureFixture) -> None:
    """Where the clock cannot be read any more, power still is."""
    script = Script([[Sample(1.0, 100.0)], [Sample(2.0, 100.0)], [Sample(3.0, 100.0)]])
    script.clock = [ClockError("no clock")]

    reading = record(script, clocks=script).reading(1.5, 4.0)

    assert reading is not None
    assert "no clock" in caplog.text


class Turns(threading.Event):
    """Lets a collecting loop take so many turns, and notes how long it would have waited after each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.waits_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        return len(self.waits_s) == self.count


def test_the_thread_sleeps_until_the_sensor_is_due() -> None:
    """In the time in which a sensor has nothing new the thread does not wake."""
    script, turns = Script([], poll_interval_s=0.001), Turns(2)
    recording = SampledRecording(script, None, lambda: 100.0)

    recording.collect(turns, 0.05)
    script.due_s, turns.count = 100.08, 3
    recording.collect(turns, 0.05)

    assert turns.waits_s == [0.001, 0.001, pytest.approx(0.08)]


def test_the_clock_is_read_right_after_a_sample() -> None:
    """Reading the clock delays no read that looks out for a sample, unless the sensor has fallen silent."""
    script = Script([[], [], [Sample(1.0, 1.0)], [], [], [], [Sample(2.0, 2.0)], [], [], [], [], [], [], []])
    script.clock = [ClockReading(1980.0)]
    ticking = iter(range(100))
    recording = SampledRecording(script, script, lambda: 0.02 * next(ticking))

    recording.collect(Turns(14), 0.05)

    turns = " ".join(script.log).split(" clock")
    assert [turn.split() for turn in turns] == [["poll"] * 3, ["poll"] * 4, ["poll"] * 7, []]


def test_a_window_without_samples_is_said() -> None:
    """A window too short for the sensor gives no reading and a reason with both lengths."""
    source = Source()
    meter = SamplingMeter(SimulatedSampler(source, "stream", period_s=0.1), None, source.now_s)
    with meter.recording() as recording:
        source.draw(0.05, 100.0)

    assert recording.reading(0.0, 0.05) is None
    assert "0.05 s (one sample every 0.1 s)" in recording.problem
