"""The meter: samples while something runs, fresh ones, and answers for windows of it."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import IDLE_W, Source
from tuner.power.base import ClockReading, Recording, Sample, SensorInfo
from tuner.power.energy.mean_power import mean_power
from tuner.power.energy.meter import SampledRecording, SamplingMeter
from tuner.power.energy.samples import gaps, screened
from tuner.power.sensors.changes import Freshness
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


# --- Fresh samples of a value that stands until it is updated: none missed, none twice, none impossible.

PERIOD_S = 0.04


def looks(
    values: list[float], gap_s: float, phase_s: float, period_s: float
) -> Iterator[tuple[float, float]]:
    """Looks every ``gap_s`` at a register that takes the next value every ``period_s``, from time 0 on."""
    for number in itertools.count():
        time_s = phase_s + number * gap_s
        if time_s >= len(values) * period_s:
            return
        yield time_s, values[int(time_s / period_s)]


def sampled(fresh: Freshness, seen: Iterator[tuple[float, float]]) -> list[Sample]:
    found = (fresh.look(time_s, value) for time_s, value in seen)
    return [sample for sample in found if sample is not None]


@given(
    st.lists(st.sampled_from([4.0, 4.04, 4.08]), min_size=8, max_size=60),
    st.floats(0.1, 0.25),
    st.floats(0.0, 0.9),
)
def test_each_update_is_one_sample(values: list[float], looks_per_period: float, phase: float) -> None:
    """An update that changes the value and one that repeats it both give one sample, at its time."""
    seen = looks(values, looks_per_period * PERIOD_S, phase * PERIOD_S, PERIOD_S)
    samples = sampled(Freshness(PERIOD_S), seen)

    # The first look is of unknown age, and what no change has shown yet is dated from it.
    assert abs(len(samples) - (len(values) - 1)) <= 2
    assert [s.time_s for s in samples] == sorted({s.time_s for s in samples})
    changed = [n for n in range(2, len(values)) if values[n] != values[n - 1]]
    for number in changed[:-1]:
        nearest = min(samples, key=lambda s: abs(s.time_s - number * PERIOD_S))
        assert nearest.value == values[number]
        assert abs(nearest.time_s - number * PERIOD_S) <= 3.0**0.5 * nearest.time_sigma_s + 1e-9


@given(st.lists(st.sampled_from([4.0, 9.0]), min_size=40, max_size=80), st.floats(0.1, 0.25))
def test_repeats_do_not_bias_the_mean(values: list[float], looks_per_period: float) -> None:
    """A value that stands longer weighs more, as it must."""
    samples = sampled(Freshness(PERIOD_S), looks(values, looks_per_period * PERIOD_S, 0.0, PERIOD_S))

    mean = sum(s.value for s in samples) / len(samples)
    assert mean == pytest.approx(sum(values) / len(values), abs=5.0 * 3 / len(values))


@given(st.floats(1.0, 30.0))
def test_looks_further_apart_than_updates_are_all_fresh(periods: float) -> None:
    """Who looks less often than the sensor updates sees a new sample each time, half a period old."""
    fresh = Freshness(PERIOD_S)
    times_s = [periods * PERIOD_S * number * 1.3 for number in range(20)]

    samples = sampled(fresh, ((time_s, 5.0) for time_s in times_s))

    assert len(samples) == 19
    for sample, time_s in zip(samples, times_s[1:], strict=True):
        assert time_s - PERIOD_S <= sample.time_s <= time_s
    assert samples[-1].time_sigma_s <= PERIOD_S / 12.0**0.5 + 1e-12


@pytest.mark.parametrize("change", [float, lambda n: float(n % 3 == 0), lambda n: float(n // 4)])
def test_the_period_is_learnt_from_the_changes(change: Callable[[int], float]) -> None:
    """Where the period is not known, changes teach it, though most updates may repeat the value."""
    fresh = Freshness(0.01, learn=True)
    values = [change(number) for number in range(400)]

    samples = sampled(fresh, looks(values, 0.01, 0.003, PERIOD_S))

    assert fresh.period_s in (pytest.approx(PERIOD_S, abs=0.011), pytest.approx(4 * PERIOD_S, abs=0.011))
    late = [sample for sample in samples if sample.time_s > 8.0]
    assert 200 * PERIOD_S / fresh.period_s * 0.7 <= len(late) <= 200 * PERIOD_S / fresh.period_s * 1.4


def test_before_anything_is_learnt_every_look_counts() -> None:
    """A source whose looks are assumed to be a period apart gives one sample each, changed or not."""
    fresh = Freshness(0.1, learn=True)

    assert len(sampled(fresh, ((0.1 * number, 7.0) for number in range(11)))) >= 9


def test_both_halves_of_one_update_are_one_sample() -> None:
    """Of two numbers that are read one after the other the second may change a look later."""
    fresh = Freshness(PERIOD_S)
    seen = [(0.0, 1.0), (0.01, 1.0), (0.02, 2.0), (0.03, 3.0), (0.04, 3.0), (0.05, 3.0), (0.062, 5.0)]

    assert [sample.value for sample in sampled(fresh, iter(seen))] == [2.0, 5.0]


def test_a_change_after_a_pause_is_recent() -> None:
    """What is first seen after a long time without looks was updated within the last period."""
    fresh = Freshness(PERIOD_S)

    samples = sampled(fresh, iter([(0.0, 1.0), (60.0, 2.0)]))

    assert samples[0].time_s == pytest.approx(60.0 - PERIOD_S / 2.0)
    assert samples[0].time_sigma_s == pytest.approx(PERIOD_S / 12.0**0.5)


def test_time_that_goes_backwards_begins_anew() -> None:
    """A look before the last one is no sample, and the next change is dated on the new time."""
    fresh = Freshness(PERIOD_S)
    seen = [(5.0, 1.0), (5.01, 2.0), (1.0, 3.0), (1.05, 3.5)]

    samples = sampled(fresh, iter(seen))

    assert [sample.value for sample in samples[-1:]] == [3.5]
    assert samples[-1].time_s == pytest.approx(1.03)


COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)
STREAM = SensorInfo("stream", "stream", "gpu", 0.1)
RAIL = SensorInfo("rail", "stream", "VDD_GPU (gpu)", 0.1, may_be_zero=True)

anything = st.floats(allow_nan=True, allow_infinity=True)


def kinds(notes: tuple[str, ...]) -> list[str]:
    return [note.partition(":")[0] for note in notes]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -50.0, 1e7])
def test_impossible_watts_are_left_out(odd: float) -> None:
    """Not a number, infinity, watts given back or drawn by no board: left out, and counted."""
    trace, notes = screened([Sample(0.0, 100.0), Sample(0.1, odd), Sample(0.2, 100.0)], STREAM)

    assert trace.values.tolist() == [100.0, 100.0]
    assert notes == ("sensor-values: 1 of 3 samples cannot be",)


def test_small_negative_watts_are_an_offset() -> None:
    """A rail without load may show -0.4 W: that is kept, and nothing is told."""
    trace, notes = screened([Sample(0.1 * i, -0.4) for i in range(5)], RAIL)

    assert len(trace) == 5
    assert notes == ()


def test_zero_is_no_reading_but_of_a_part() -> None:
    """A GPU that is read draws power, a counter grows, and only a part of a board may be off."""
    zeros = [Sample(0.1 * i, 0.0) for i in range(5)]
    assert len(screened(zeros, RAIL)[0]) == 5
    for info in (STREAM, COUNTER):
        trace, notes = screened(zeros, info)
        assert len(trace) == 0
        assert kinds(notes) == ["sensor-values"]
    with pytest.raises(PowerError, match="gave too little"):
        mean_power(screened(zeros, STREAM)[0], 0.0, 0.4, STREAM)


def test_samples_out_of_order_are_left_out() -> None:
    """A sample that is not later than all before it, as after a stepped clock, is dropped and told."""
    samples = [Sample(t, v) for t, v in ((1.0, 1.0), (2.0, 2.0), (1.5, 9.0), (2.0, 9.0), (3.0, 3.0))]

    trace, notes = screened(samples, STREAM)

    assert trace.times_s.tolist() == [1.0, 2.0, 3.0]
    assert trace.values.tolist() == [1.0, 2.0, 3.0]
    assert notes == ("sensor-time: 2 of 5 samples are not later than the one before",)


@pytest.mark.parametrize("origin", [-1e5, 0.0, 1e9])
def test_a_counter_that_begins_anew_is_used_on_one_side(origin: float) -> None:
    """A driver that is loaded anew moves the counter: no joules are taken across that, and it is told."""
    before = [Sample(0.1 * i, 1e5 + 30.0 * i) for i in range(5)]
    after = [Sample(0.1 * i, 1e5 + origin + 30.0 * i - 150.0) for i in range(5, 25)]
    samples = [*before, *after] if origin else [*before, *(Sample(s.time_s, s.value - 1e5) for s in after)]

    trace, notes = screened(samples, COUNTER)

    assert kinds(notes) == ["sensor-reset"]
    assert mean_power(trace, 0.4, 2.4, COUNTER).watts == pytest.approx(300.0)
    with pytest.raises(PowerError, match="no sample for"):
        mean_power(trace, 0.0, 0.5, COUNTER)


def test_a_late_tick_is_no_reset() -> None:
    """A tick that polling saw 60 ms late leaves 40 ms to the next: that is no impossible power."""
    times = [0.0, 0.1, 0.2, 0.36, 0.4, 0.5]
    ticks = [Sample(t, 70.0 * i, 0.02) for i, t in enumerate(times)]

    assert screened(ticks, COUNTER)[1] == ()


@given(
    st.lists(st.builds(Sample, anything, anything, anything), max_size=30), st.sampled_from((COUNTER, STREAM))
)
def test_whatever_a_sensor_says(samples: list[Sample], info: SensorInfo) -> None:
    """Any numbers at all give a trace in order, a finite mean, or a refusal."""
    trace, notes = screened(samples, info)

    assert (len(trace) == len(samples)) == (notes == ())
    assert all(later > earlier for earlier, later in zip(trace.times_s, trace.times_s[1:], strict=False))
    try:
        mean = mean_power(trace, 0.0, 1.0, info)
    except PowerError:
        return
    assert math.isfinite(mean.watts)
    assert mean.uncertainty_w >= 0.0


def test_pauses_are_those_of_more_than_three_periods() -> None:
    """A missed sample is none; four are, and so is a window that goes on after the last."""
    times = [0.1 * i for i in range(30) if i not in (5, *range(10, 14))]
    trace, _ = screened([Sample(t, 100.0) for t in times], STREAM)

    assert [pytest.approx(gap) for gap in gaps(trace, 0.0, 3.5, STREAM)] == [(0.9, 1.4), (2.9, 3.5)]


def test_ticks_on_one_place_of_the_rhythm_give_no_power_of_their_own() -> None:
    """Where both ticks of a window are put on one place, those around it answer."""
    trace, _ = screened([Sample(0.1 * i, 30.0 * i) for i in range(20)], COUNTER)
    trace.times_s[6] = trace.times_s[5]

    assert mean_power(trace, 0.45, 0.65, COUNTER).watts == pytest.approx(300.0, rel=0.5)


@pytest.mark.parametrize(("place", "ticks"), [(5, slice(5, 8)), (9, slice(7, 10))])
def test_half_a_window_on_one_place_of_the_rhythm_shows_no_slope(place: int, ticks: slice) -> None:
    """Where the ticks of a half are put on one place, the power of the window is that of all its ticks."""
    trace, _ = screened([Sample(0.1 * i, 30.0 * i) for i in range(20)], COUNTER)
    trace.times_s[ticks] = trace.times_s[place]

    assert mean_power(trace, 0.45, 0.95, COUNTER).watts == pytest.approx(300.0)
