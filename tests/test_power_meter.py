"""The meter: windows of samples to watts with an uncertainty that can be believed."""

import logging
import math
import threading
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import IDLE_W, Source
from tuner.power.meter import SampledRecording, SamplingMeter
from tuner.power.simulated import SimulatedSampler
from tuner.power.ticks import Trace
from tuner.power.windows import mean_power, student_factor, total_joules

from tuner.errors import ClockError, PowerError
from tuner.interfaces import ClockReading, Recording, Response, Sample, SensorInfo

COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)
STREAM = SensorInfo("stream", "stream", "gpu", 0.1)


def trace(*samples: tuple[float, float]) -> Trace:
    return Trace.of([Sample(time_s, value) for time_s, value in samples])


def measured(
    options: dict[str, Any], seed: int, window_s: float, watts: float = 200.0
) -> tuple[float, float]:
    """Mean power and its uncertainty of a steady window that follows an idle time of random length."""
    source = Source()
    meter = SamplingMeter(SimulatedSampler(source, seed=seed, **options), None, source.now_s)
    source.draw(1.0 + np.random.default_rng(seed).random(), IDLE_W)
    with meter.recording() as recording:
        source.draw(0.05, watts)
        start_s = source.now_s()
        source.draw(window_s, watts)
    reading = recording.reading(start_s, source.now_s())
    assert reading is not None
    return reading.watts, reading.uncertainty_w


SENSORS: dict[str, dict[str, Any]] = {
    "k20c": {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.833},
    "boxcar": {"kind": "stream", "period_s": 0.1, "window_s": 0.025},
    "h200-ring": {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.017},
    "h200-counter": {"kind": "counter", "period_s": 0.1},
}


@pytest.mark.parametrize("name", SENSORS)
def test_steady_power_is_recovered(name: str) -> None:
    """Without noise every sensor gives the true power of a steady window, whatever came before it."""
    watts, uncertainty = measured(SENSORS[name], seed=1, window_s=0.5)

    assert watts == pytest.approx(200.0, rel=1e-4)
    assert uncertainty < 0.2


@pytest.mark.parametrize("name", SENSORS)
def test_the_uncertainty_is_believable(name: str) -> None:
    """Over many noisy windows the error is about as large as its standard uncertainty says."""
    options = {**SENSORS[name], "noise": 0.003}
    scores = [
        (watts - 200.0) / uncertainty
        for watts, uncertainty in (measured(options, seed, 1.0) for seed in range(60))
    ]

    assert 0.2 < math.sqrt(np.mean(np.square(scores))) < 1.5


def test_uncorrected_lag_is_wrong() -> None:
    """What equation (6) is for: with C = 0 a lagging sensor misses a fifth of a short window's power."""
    watts, _ = measured({**SENSORS["k20c"], "known_capacitance_s": 0.0}, seed=1, window_s=0.5)

    assert watts < 160.0


@given(
    st.lists(st.tuples(st.floats(0.01, 0.2), st.floats(0, 700)), min_size=5, max_size=30),
    st.floats(0.0, 0.3),
    st.floats(0.3, 1.0),
)
def test_a_counter_is_read_from_tick_to_tick(
    steps: list[tuple[float, float]], start_s: float, end_s: float
) -> None:
    """The mean is the counter's growth between the first and the last tick of the window, exactly."""
    gaps, watts = (np.array(column) for column in zip(*steps, strict=True))
    times, joules = np.cumsum(gaps), np.cumsum(gaps * watts)
    inside = np.flatnonzero((times >= start_s) & (times <= end_s))

    mean = mean_power(trace(*zip(times, joules, strict=True)), start_s, end_s, COUNTER)

    if len(inside) >= 2:
        first, last = inside[0], inside[-1]
        assert mean is not None
        expected = (joules[last] - joules[first]) / (times[last] - times[first])
        assert mean.watts == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert mean.method == ""


def test_too_few_ticks_are_interpolated_and_said() -> None:
    """With one tick in the window those around it serve, at an uncertainty of the power they do not know."""
    ticks = trace((0.0, 0.0), (0.1, 20.0), (0.2, 40.0))

    between = mean_power(ticks, 0.05, 0.15, COUNTER)
    aligned = mean_power(ticks, 0.0, 0.2, COUNTER)

    assert between is not None
    assert aligned is not None
    assert (between.watts, between.method) == (pytest.approx(200.0), "interpolated")
    assert between.uncertainty_w == pytest.approx(200.0 * 0.1 / 0.1 / math.sqrt(3.0), rel=1e-3)
    assert aligned.uncertainty_w < 0.01


@pytest.mark.parametrize(
    ("samples", "info"),
    [
        ([], COUNTER),
        ([(0.5, 1.0)], COUNTER),
        ([(5.0, 1.0), (5.1, 2.0)], COUNTER),
        ([], STREAM),
        ([(0.5, 100.0)], STREAM),
        (
            [(0.5, 100.0), (0.6, 100.0)],
            SensorInfo("mean", "stream", "gpu", 0.1, response=Response("ramp", window_s=1.0)),
        ),
    ],
)
def test_too_little_is_no_answer(samples: list[tuple[float, float]], info: SensorInfo) -> None:
    """Nothing to interpolate, a single sample, or a mean longer than the window: None."""
    assert mean_power(trace(*samples), 0.0, 1.0, info) is None


def test_an_empty_window_has_no_power() -> None:
    """A window without length has no mean."""
    assert mean_power(trace((0.0, 1.0), (1.0, 2.0)), 0.5, 0.5, COUNTER) is None


def test_an_average_must_lie_in_the_window() -> None:
    """Samples whose averaging window reaches back before the window are left out."""
    info = SensorInfo("mean", "stream", "gpu", 0.1, response=Response("ramp", window_s=0.2))
    samples = trace((0.1, 999.0), (0.2, 100.0), (0.3, 100.0), (0.4, 100.0))

    mean = mean_power(samples, 0.0, 0.4, info)

    assert mean is not None
    assert mean.watts == pytest.approx(100.0)


def test_tick_timing_enters_the_uncertainty() -> None:
    """Two ticks, each off by s, make the power of a window T uncertain by P sqrt(2) s / T."""
    ticks = Trace.of([Sample(0.0, 0.0, 0.001), Sample(1.0, 300.0, 0.001)])

    mean = mean_power(ticks, 0.0, 1.0, COUNTER)

    assert mean is not None
    assert mean.uncertainty_w == pytest.approx(300.0 * math.sqrt(2.0) * 0.001, rel=1e-3)


def test_the_capacitances_own_uncertainty_enters() -> None:
    """An uncertain C moves the mean by sigma_C * (Pm(last) - Pm(first)) / T."""
    samples = trace(*((0.1 * i, 10.0 * i) for i in range(11)))
    sigma = SensorInfo("lag", "stream", "gpu", 0.1, response=Response("lag", 0.5, capacitance_sigma_s=0.05))
    known = SensorInfo("lag", "stream", "gpu", 0.1, response=Response("lag", 0.5))

    with_sigma, without = (mean_power(samples, 0.0, 1.0, info) for info in (sigma, known))

    assert with_sigma is not None
    assert without is not None
    added = math.sqrt(with_sigma.uncertainty_w**2 - without.uncertainty_w**2)
    assert added == pytest.approx(0.05 * 100.0 / 1.0)


def test_drift_enters_the_uncertainty() -> None:
    """Power that differs between the parts of a window makes its mean uncertain."""
    flat = trace(*((0.1 * i, 200.0 * 0.1 * i) for i in range(17)))
    drifting = trace(*((0.1 * i, 200.0 * 0.1 * i + 10.0 * (0.1 * i) ** 2) for i in range(17)))

    steady, drift = (mean_power(t, 0.0, 1.6, COUNTER) for t in (flat, drifting))

    assert steady is not None
    assert drift is not None
    assert steady.uncertainty_w < 0.01
    assert 1.0 < drift.uncertainty_w < 10.0


@pytest.mark.parametrize(("degrees", "factor"), [(1, 1.8374), (2, 1.3213), (4, 1.1416), (60, 1.0085)])
def test_students_factor(degrees: int, factor: float) -> None:
    """The expansion is within 1.5 % of the tables."""
    assert student_factor(degrees) == pytest.approx(factor, rel=0.015)


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


def test_joules_without_samples() -> None:
    """No samples, no energy; one power sample stands for all of a recording, one counter tick for none."""
    assert total_joules(trace(), 1.0, STREAM) == 0.0
    assert total_joules(trace((0.1, 50.0)), 2.0, STREAM) == 100.0
    assert total_joules(trace((0.1, 50.0)), 2.0, COUNTER) == 0.0


def test_samples_out_of_order_are_left_out() -> None:
    """A sample that is not later than its predecessor, as after a stepped clock, is dropped."""
    samples = trace((1.0, 1.0), (2.0, 2.0), (1.5, 9.0), (2.0, 9.0), (3.0, 3.0))

    assert samples.times_s.tolist() == [1.0, 2.0, 3.0]
    assert samples.values.tolist() == [1.0, 2.0, 3.0]


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


def test_a_failing_sensor_costs_the_energy_only(caplog: pytest.LogCaptureFixture) -> None:
    """A sensor that dies in the thread ends the collecting: no reading, a warning, no exception."""
    polls: list[list[Sample] | PowerError] = [[], [Sample(3.0, 100.0)], PowerError("GPU is lost")]

    with caplog.at_level(logging.WARNING):
        recording = record(Script(polls))

    assert recording.reading(0.0, 9.0) is None
    assert "GPU is lost" in caplog.text


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


def test_a_window_without_samples_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A window too short for the sensor gives no reading and a warning with both lengths."""
    source = Source()
    meter = SamplingMeter(SimulatedSampler(source, "stream", period_s=0.1), None, source.now_s)
    with meter.recording() as recording:
        source.draw(0.05, 100.0)

    assert recording.reading(0.0, 0.05) is None
    assert "0.05 s (one every 0.1 s)" in caplog.text
