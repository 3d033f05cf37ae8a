"""Mean power of a window, and joules between two times: right, or refused or flagged."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import IDLE_W, Source
from tuner.power.base import PowerReading, Response, Sample, SensorInfo, Span, SpanEnergy
from tuner.power.energy.mean_power import mean_power
from tuner.power.energy.meter import SamplingMeter, total_joules
from tuner.power.energy.samples import SampleSeries
from tuner.power.energy.spans import span_energy
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.model.errors import PowerError

COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)
STREAM = SensorInfo("stream", "stream", "gpu", 0.1)
BOXCAR = Response("boxcar", window_s=0.1)


def trace(*samples: tuple[float, float]) -> SampleSeries:
    return SampleSeries.of([Sample(time_s, value) for time_s, value in samples])


def ramp(window_s: float) -> SensorInfo:
    return SensorInfo("mean", "stream", "gpu", 0.1, response=Response("ramp", window_s=window_s))


def measured(options: dict[str, Any], seed: int, window_s: float, watts: float = 200.0) -> PowerReading:
    """A steady window that follows an idle time of random length."""
    source = Source()
    meter = SamplingMeter(SimulatedSampler(source, seed=seed, **options), None, source.now_s)
    source.draw(2.0 + np.random.default_rng(seed).random(), IDLE_W)
    with meter.recording() as recording:
        source.draw(0.05, watts)
        start_s = source.now_s()
        source.draw(window_s, watts)
        end_s = source.now_s()
        source.draw(options.get("delay_s", 0.0), watts)
    reading: PowerReading | None = recording.reading(start_s, end_s)
    assert reading is not None
    return reading


SENSORS: dict[str, dict[str, Any]] = {
    "k20c": {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.833},
    "boxcar": {"kind": "stream", "period_s": 0.1, "window_s": 0.025},
    "tiling": {"kind": "stream", "period_s": 0.1, "window_s": 0.1},
    "late": {"kind": "stream", "period_s": 0.1, "window_s": 0.025, "delay_s": 0.15},
    "late-counter": {"kind": "counter", "period_s": 0.1, "delay_s": 0.08},
    "h200-ring": {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.017},
    "h200-counter": {"kind": "counter", "period_s": 0.1},
    "long-mean": {"kind": "stream", "period_s": 0.1, "window_s": 1.0},
}


@pytest.mark.parametrize("name", SENSORS)
@pytest.mark.parametrize("window_s", [0.5, 2.5])
def test_steady_power_is_recovered(name: str, window_s: float) -> None:
    """Without noise every sensor gives the true power of a steady window, whatever came before it."""
    reading = measured(SENSORS[name], seed=1, window_s=window_s)

    assert reading.watts == pytest.approx(200.0, rel=1e-4)
    assert reading.uncertainty_w < 0.2


def test_running_means_are_inverted_where_none_lies_inside() -> None:
    """A mean over a second answers for half a second by its exact inverse, and says that it did."""
    reading = measured({**SENSORS["long-mean"], "noise": 0.001}, seed=3, window_s=0.5)

    assert reading.sensor == "simulated-stream (inverted means)"
    assert abs(reading.watts - 200.0) < 3.0 * reading.uncertainty_w


def test_uncorrected_lag_is_wrong() -> None:
    """What equation (6) is for: with C = 0 a lagging sensor misses a fifth of a short window's power."""
    reading = measured({**SENSORS["k20c"], "known_capacitance_s": 0.0}, seed=1, window_s=0.5)

    assert reading.watts < 160.0


@given(
    st.lists(st.tuples(st.floats(0.05, 0.15), st.floats(1, 700)), min_size=3, max_size=3),
    st.floats(0.0, 0.2),
    st.floats(0.25, 0.4),
)
def test_few_ticks_are_read_from_tick_to_tick(
    steps: list[tuple[float, float]], start_s: float, end_s: float
) -> None:
    """The mean is the counter's growth between the first and the last tick of the window, exactly."""
    gaps, watts = (np.array(column) for column in zip(*steps, strict=True))
    times, joules = np.cumsum(gaps), np.cumsum(gaps * watts)
    inside = np.flatnonzero((times >= start_s) & (times <= end_s))

    if len(inside) >= 2:
        mean = mean_power(trace(*zip(times, joules, strict=True)), start_s, end_s, COUNTER)
        first, last = inside[0], inside[-1]
        expected = (joules[last] - joules[first]) / (times[last] - times[first])
        assert mean.watts == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert mean.sensor == COUNTER.name


@given(st.floats(0.0, 0.1), st.floats(0.0, 0.1), st.floats(-100.0, 100.0))
def test_a_drift_is_carried_to_the_windows_middle(before_s: float, after_s: float, slope: float) -> None:
    """Of power that drifts evenly the mean is that of the window, wherever the ticks lie in it."""
    times = before_s + 0.1 * np.arange(11)
    end_s = float(times[-1]) + after_s
    ticks = trace(*zip(times, 400.0 * times + slope * times**2 / 2.0, strict=True))

    assert mean_power(ticks, 0.0, end_s, COUNTER).watts == pytest.approx(400.0 + slope * end_s / 2.0)


def test_too_few_ticks_are_interpolated_and_said() -> None:
    """With one tick in the window those around it serve, at an uncertainty of the power they do not know."""
    ticks = trace((0.0, 0.0), (0.1, 20.0), (0.2, 40.0))

    between = mean_power(ticks, 0.05, 0.15, COUNTER)

    assert between.watts == pytest.approx(200.0)
    assert between.sensor == f"{COUNTER.name} (interpolated)"
    assert between.uncertainty_w == pytest.approx(200.0 * 0.1 / 0.1 / math.sqrt(3.0), rel=1e-2)


@pytest.mark.parametrize(
    ("samples", "info"),
    [
        ([], COUNTER),
        ([(0.5, 1.0)], COUNTER),
        ([(5.0, 1.0), (5.1, 2.0)], COUNTER),
        ([], STREAM),
        ([(0.5, 100.0)], STREAM),
        ([(0.9, 100.0)], ramp(1.0)),
    ],
)
def test_too_little_is_no_answer(samples: list[tuple[float, float]], info: SensorInfo) -> None:
    """Nothing to interpolate or a single sample: refused, with the lengths of window and period."""
    with pytest.raises(PowerError, match=r"too little in a window of 1 s \(one sample every 0.1 s\)"):
        mean_power(trace(*samples), 0.0, 1.0, info)


def test_an_empty_window_has_no_power() -> None:
    """A window without length has no mean."""
    with pytest.raises(PowerError, match="empty"):
        mean_power(trace((0.0, 1.0), (1.0, 2.0)), 0.5, 0.5, COUNTER)


def test_a_sensor_that_stopped_is_no_answer() -> None:
    """Samples for less than half of a window do not stand for it; for more they do, and the pause is told."""
    samples = trace(*((0.1 * i, 100.0) for i in range(21)))

    told = mean_power(samples, 0.0, 3.0, STREAM)

    assert told.notes == ("sensor-gap: no sample for 1 s of 3 s",)
    assert told.watts == pytest.approx(100.0)
    with pytest.raises(PowerError, match="no sample for 3 s of it"):
        mean_power(samples, 0.0, 5.0, STREAM)


def test_a_pause_of_a_counter_costs_no_joules() -> None:
    """A counter goes on while nobody reads it: the energy is right, and the pause is told."""
    ticks = trace(*((0.1 * i, 30.0 * i) for i in range(31) if not 10 < i < 18))

    mean = mean_power(ticks, 0.0, 3.0, COUNTER)

    assert mean.watts == pytest.approx(300.0)
    assert mean.notes == ("sensor-gap: no sample for 0.8 s of 3 s",)


def test_a_reading_that_aliases_is_flagged() -> None:
    """Where a calibration found that a reading does not see all of the time, each window says so."""
    info = SensorInfo("a", "stream", "gpu", 0.1, response=Response("boxcar", window_s=0.02, averages=False))

    mean = mean_power(trace(*((0.1 * i, 100.0) for i in range(11))), 0.0, 1.0, info)

    assert [note.partition(":")[0] for note in mean.notes] == ["aliasing"]


def test_an_average_must_lie_in_the_window() -> None:
    """Samples whose averaging window reaches back before the window are left out."""
    samples = trace((0.1, 999.0), (0.2, 100.0), *((0.1 * i, 100.0) for i in range(3, 11)))

    assert mean_power(samples, 0.0, 1.0, ramp(0.2)).watts == pytest.approx(100.0)


def test_a_delay_moves_the_samples() -> None:
    """A reading that is a second late shows in a window what it shows a second after it."""
    samples = trace(*((0.1 * i, 100.0 if i <= 10 else 300.0) for i in range(41)))
    info = SensorInfo("late", "stream", "gpu", 0.1, response=Response(delay_s=1.0))

    assert mean_power(samples, 0.5, 2.5, info).watts == pytest.approx(300.0)


# --- what the uncertainty is made of -------------------------------------------------------------


def test_tick_timing_enters_the_uncertainty() -> None:
    """Two ticks, each off by s, make the power of a window T uncertain by P sqrt(2) s / T."""
    ticks = SampleSeries.of([Sample(0.0, 0.0, 0.001), Sample(1.0, 300.0, 0.001)])
    info = SensorInfo("counter", "counter", "gpu", 1.0)

    mean = mean_power(ticks, 0.0, 1.0, info)

    assert mean.uncertainty_w == pytest.approx(300.0 * math.sqrt(2.0) * 0.001, rel=1e-3)


def part(full: PowerReading, without: PowerReading) -> float:
    """What one part adds to an uncertainty."""
    return math.sqrt(full.uncertainty_w**2 - without.uncertainty_w**2)


def test_the_capacitances_own_uncertainty_enters() -> None:
    """An uncertain C moves the mean by sigma_C * (Pm(last) - Pm(first)) / T."""
    samples = trace(*((0.1 * i, 10.0 * i) for i in range(11)))
    sigma = SensorInfo("lag", "stream", "gpu", 0.1, response=Response("lag", 0.5, capacitance_sigma_s=0.05))
    known = SensorInfo("lag", "stream", "gpu", 0.1, response=Response("lag", 0.5))

    with_sigma, without = (mean_power(samples, 0.0, 1.0, info) for info in (sigma, known))

    assert part(with_sigma, without) == pytest.approx(0.05 * 100.0 / 1.0)


def test_the_delays_own_uncertainty_enters() -> None:
    """An uncertain delay moves the mean by its sigma times the change of power over the window, by T."""
    samples = trace(*((0.1 * i, 100.0 + 10.0 * i) for i in range(11)))
    sigma = SensorInfo("late", "stream", "gpu", 0.1, response=Response(delay_sigma_s=0.02))
    known = SensorInfo("late", "stream", "gpu", 0.1)

    with_sigma, without = (mean_power(samples, 0.0, 1.0, info) for info in (sigma, known))

    assert part(with_sigma, without) == pytest.approx(0.02 * 100.0 / 1.0, rel=0.15)


def test_a_reading_that_never_toggles_is_as_uncertain_as_its_step() -> None:
    """Rounding by the same amount each time is a step by sqrt(12), however many samples there are."""
    info = SensorInfo("coarse", "stream", "VDD_IN", 0.1, resolution=0.04, response=BOXCAR)

    mean = mean_power(trace(*((0.1 * i, 5.0) for i in range(100))), 0.0, 10.0, info)

    assert mean.uncertainty_w == pytest.approx(0.04 / math.sqrt(12.0))


def test_pulses_do_not_pass_for_noise() -> None:
    """Where samples tile the time, pulses that they show make the window's edges unsure, not its mean."""
    source = Source()
    meter = SamplingMeter(
        SimulatedSampler(source, "ring", period_s=0.02, window_s=0.02, noise=0.01), None, source.now_s
    )
    with meter.recording() as recording:
        for _ in range(40):
            source.draw(0.05, 600.0)
            source.draw(0.05, 100.0)

    reading = recording.reading(0.0, 4.0)

    assert reading is not None
    assert abs(reading.watts - 350.0) < 1.96 * reading.uncertainty_w
    assert reading.uncertainty_w < 0.01 * 350.0 < 250.0 / math.sqrt(200)


# --- a counter against the ring beside it --------------------------------------------------------

RING: dict[str, Any] = {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.0132, "noise": 0.003}
PART = {"window_s": 0.025}  # of every 100 ms


def held_against(
    ring: dict[str, Any], counter: dict[str, Any], *, period_s: float, seed: int = 0
) -> tuple[PowerReading, float]:
    """A counter's window of 2 s of pulses, with a ring beside it, and the true power.

    Its ticks come 30 to 45 ms after every 100 ms from the window's start.
    """
    source = Source()
    source.draw(2.32 - 0.005 * seed, IDLE_W)
    beside = SamplingMeter(SimulatedSampler(source, seed=seed, **ring), None, source.now_s)
    sampler = SimulatedSampler(source, "counter", noise=0.0005, seed=seed, **counter)
    meter = SamplingMeter(sampler, None, source.now_s, beside=beside)
    with meter.recording() as recording:
        source.draw(0.05, 350.0)
        start_s = source.now_s()
        while source.now_s() < start_s + 2.0:
            source.draw(period_s / 2.0, 600.0)
            source.draw(period_s / 2.0, 100.0)
        end_s = source.now_s()
    reading: PowerReading | None = recording.reading(start_s, end_s, period_s)
    assert reading is not None
    return reading, source.joules(start_s, end_s) / (end_s - start_s)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("counter", "ring", "period_s", "told"),
    [
        ({}, RING, 0.1, False),
        ({}, RING, 0.002, False),
        (PART, RING, 0.1, True),  # it sees one phase of the pulses, and the ring all of them
        (PART, RING, 0.002, False),  # the mean of many pulses is that of all
        (PART, RING | {"period_s": 5.0}, 0.1, False),  # a ring that is slower than the window tells nothing
    ],
)
def test_a_counter_is_held_against_the_ring(
    counter: dict[str, Any], ring: dict[str, Any], period_s: float, told: bool, seed: int
) -> None:
    """Where they differ the note names both in watts, and the interval holds what either shows."""
    reading, watts = held_against(ring, counter, period_s=period_s, seed=seed)

    notes = [note for note in reading.notes if note.startswith("sensors-differ: ")]
    assert bool(notes) == told
    if told:
        assert abs(reading.watts - watts) < 1.96 * reading.uncertainty_w
        assert re.search(r"simulated-counter .* ± .* W and simulated-ring .* ± .* W: one is wrong", notes[0])
    else:
        alone, _ = held_against(RING | {"period_s": 60.0}, counter, period_s=period_s, seed=seed)
        assert alone == reading


@pytest.mark.parametrize("seed", range(4))
def test_rounds_in_step_with_the_ring_are_no_disagreement(seed: int) -> None:
    """A ring that rounds of its own period may mislead is as uncertain as that."""
    reading, watts = held_against(RING, {}, period_s=0.02, seed=seed)

    assert reading.notes == ()
    assert abs(reading.watts - watts) < 0.005 * watts


class Still:
    """A reading that always shows the same, or nothing; or that has failed."""

    def __init__(self, info: SensorInfo, answer: list[float] | PowerError, now: Callable[[], float]) -> None:
        self.info, self.answer, self.now = info, answer, now
        self.due_s = 0.0

    def poll(self) -> list[Sample]:
        if isinstance(self.answer, PowerError):
            raise self.answer
        return [Sample(self.now() - 1.0 + 0.02 * i, value) for i, value in enumerate(self.answer)]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("answer", [[], PowerError("GPU is lost")])
def test_a_ring_that_shows_nothing_is_no_alarm(answer: list[float] | PowerError) -> None:
    """An empty ring, and one that fails, cost neither the reading nor its interval."""
    source = Source()
    still = Still(SensorInfo("ring", "ring", "gpu", 0.02), answer, source.now_s)
    meters = [
        SamplingMeter(SimulatedSampler(source, "counter"), None, source.now_s, beside=beside)
        for beside in (None, SamplingMeter(still, None, source.now_s))
    ]
    with meters[0].recording() as alone, meters[1].recording() as recording:
        source.draw(3.0, 300.0)

    assert recording.reading(0.5, 2.5) == alone.reading(0.5, 2.5) is not None


def test_a_counter_that_stands_still_is_not_a_disagreement() -> None:
    """It has no joules, whatever the ring shows, and the reason is its own."""
    source = Source()
    beside = SamplingMeter(SimulatedSampler(source, **RING), None, source.now_s)
    still = Still(COUNTER, [5.0] * 40, source.now_s)
    with SamplingMeter(still, None, source.now_s, beside=beside).recording() as recording:
        source.draw(3.0, 300.0)

    assert recording.reading(2.0, 3.0) is None
    assert "the counter stands still" in recording.problem
    assert "differ" not in recording.problem


# --- joules of a recording -----------------------------------------------------------------------


def test_joules_without_samples() -> None:
    """No samples, no energy; one power sample stands for all of a recording, one counter tick for none."""
    assert total_joules(trace(), 1.0, STREAM) == 0.0
    assert total_joules(trace((0.1, 50.0)), 2.0, STREAM) == 100.0
    assert total_joules(trace((0.1, 50.0)), 2.0, COUNTER) == 0.0


# --- Joules between any two times: right within what is stated, whatever the load and the sensor.

LOAD_W = 600.0
SPAN_COUNTER: dict[str, Any] = {"kind": "counter", "noise": 0.0005}
SPAN_RING: dict[str, Any] = {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.0132, "noise": 0.003}
MEANS: dict[str, Any] = {"kind": "stream", "period_s": 0.1, "window_s": 0.1, "noise": 0.003}
LAG: dict[str, Any] = {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.8, "noise": 0.003}
SPAN_SENSORS = {
    "counter and ring": [SPAN_COUNTER, SPAN_RING],
    "counter": [SPAN_COUNTER],
    "ring": [SPAN_RING],
    "means of 100 ms": [MEANS],
    "lag of 0.8 s": [LAG],
}


def begins_with_the_region(source: Source, seconds: float, _: np.random.Generator) -> tuple[float, float]:
    start_s = source.now_s()
    source.draw(seconds, LOAD_W)
    return start_s, source.now_s()


def begins_late(source: Source, seconds: float, _: np.random.Generator) -> tuple[float, float]:
    start_s = source.now_s()
    source.draw(0.3 * seconds, 1.2 * IDLE_W)
    source.draw(0.7 * seconds, LOAD_W)
    return start_s, source.now_s()


def goes_on(source: Source, seconds: float, _: np.random.Generator) -> tuple[float, float]:
    source.draw(2.0, LOAD_W)
    start_s = source.now_s()
    source.draw(seconds, LOAD_W)
    end_s = source.now_s()
    source.draw(2.0, LOAD_W)
    return start_s, end_s


def pulses(source: Source, seconds: float, random: np.random.Generator) -> tuple[float, float]:
    start_s, left_s = source.now_s(), seconds
    while left_s > 1e-9:
        pulse_s = min(left_s, float(random.uniform(0.01, 0.2)))
        source.draw(pulse_s, float(random.choice([1.2 * IDLE_W, LOAD_W])))
        left_s -= pulse_s
    return start_s, source.now_s()


LOADS = (begins_with_the_region, begins_late, goes_on, pulses)


def played(
    sensors: list[dict[str, Any]],
    load: Callable[[Source, float, np.random.Generator], tuple[float, float]],
    seconds: float,
    random: np.random.Generator,
) -> tuple[SpanEnergy, float]:
    """What the sensors say of a load, and its joules."""
    source = Source()
    source.draw(5.0 + random.random(), IDLE_W)
    samplers = [SimulatedSampler(source, **sensor, seed=int(random.integers(2**30))) for sensor in sensors]
    source.draw(2.0 + random.random(), IDLE_W)
    start_s, end_s = load(source, seconds, random)
    source.draw(2.0, IDLE_W)
    found = span_energy([(sampler.info, sampler.poll()) for sampler in samplers], Span(start_s, end_s))
    assert found is not None
    return found, source.joules(start_s, end_s)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("sensors", SPAN_SENSORS.values(), ids=SPAN_SENSORS.keys())
@pytest.mark.parametrize("seconds", [0.005, 0.05, 0.3, 2.0])
def test_intervals_cover(
    sensors: list[dict[str, Any]],
    load: Callable[[Source, float, np.random.Generator], tuple[float, float]],
    seconds: float,
) -> None:
    """At least 10 of 12 intervals of 95 % hold the truth, from regions within an update to many of them."""
    random = np.random.default_rng(17)
    results = [played(sensors, load, seconds, random) for _ in range(12)]
    held = sum(abs(found.joules - joules) <= 1.96 * found.sigma_j for found, joules in results)
    assert held >= 10


@pytest.mark.parametrize(
    ("sensors", "load"),
    [("counter and ring", begins_with_the_region), ("ring", begins_with_the_region), ("counter", goes_on)],
)
def test_intervals_of_long_regions_are_narrow(
    sensors: str, load: Callable[[Source, float, np.random.Generator], tuple[float, float]]
) -> None:
    """Two seconds of load are known to a percent: the intervals say something."""
    found, joules = played(SPAN_SENSORS[sensors], load, 2.0, np.random.default_rng(3))
    assert found.joules == pytest.approx(joules, rel=0.005)
    assert found.sigma_j < 0.01 * joules
    assert found.peak_w == pytest.approx(LOAD_W, rel=0.02)
    assert not found.notes


def test_regions_within_an_update_say_so() -> None:
    """Five milliseconds between samples 20 ms apart are told as too short, and known as badly."""
    found, joules = played(SPAN_SENSORS["ring"], goes_on, 0.005, np.random.default_rng(4))
    assert [note.split(":")[0] for note in found.notes] == ["too-short"]
    assert found.sigma_j > 0.5 * joules


def test_regions_side_by_side_add_up() -> None:
    """What one region has another has not, where both cut a steady load."""
    random = np.random.default_rng(5)
    source = Source()
    sampler = SimulatedSampler(source, **SPAN_COUNTER)
    ring = SimulatedSampler(source, **SPAN_RING)
    source.draw(3.0, IDLE_W)
    source.draw(4.0, LOAD_W)
    source.draw(2.0, IDLE_W)
    readings = [(one.info, one.poll()) for one in (sampler, ring)]
    cuts_s = [3.0, *sorted(random.uniform(3.2, 6.8, 3)), 7.0]
    spans = [Span(a, b) for a, b in itertools.pairwise(cuts_s)]
    parts = [span_energy(readings, span) for span in spans]
    whole = span_energy(readings, Span(3.0, 7.0))
    assert whole is not None
    assert sum(part.joules for part in parts if part is not None) == pytest.approx(whole.joules, rel=0.003)


def test_a_counter_alone_gives_its_own_peak() -> None:
    """The highest power between two ticks, over their distance."""
    found, _ = played(SPAN_SENSORS["counter"], begins_with_the_region, 2.0, np.random.default_rng(6))
    assert found.peak_w == pytest.approx(LOAD_W, rel=0.01)
    assert found.peak_window_s == pytest.approx(0.1)


@pytest.mark.parametrize("origin", ["assumed", "calibrated"])
@pytest.mark.parametrize("averages", [True, False])
def test_a_counter_that_may_be_blind_is_told(
    origin: Literal["assumed", "calibrated"], averages: bool
) -> None:
    """Also beside a ring; where nobody has calibrated the board the note says that it is not known."""
    unchecked = SPAN_COUNTER | {"response": Response(origin=origin, averages=averages)}
    found, _ = played([unchecked, SPAN_RING], goes_on, 2.0, np.random.default_rng(6))

    assert [note.partition(":")[0] for note in found.notes] == ["aliasing"] * (not averages)
    assert any("for tuner power calibrate to find" in note for note in found.notes) == (
        not averages and origin == "assumed"
    )


def test_beyond_its_last_tick_a_counter_goes_on_by_a_curve() -> None:
    """By the power of the other reading; alone by its own, which may be none or twice as much."""
    source = Source()
    counter, ring = SimulatedSampler(source, **SPAN_COUNTER), SimulatedSampler(source, **SPAN_RING)
    for seconds, watts in ((3.0, IDLE_W), (2.0, LOAD_W), (0.2, 0.2 * LOAD_W), (1.0, IDLE_W)):
        source.draw(seconds, watts)
    ticks = counter.info, [sample for sample in counter.poll() if sample.time_s < 4.95]
    span, joules = Span(3.0, 5.2), source.joules(3.0, 5.2)
    alone, both = span_energy([ticks], span), span_energy([ticks, (ring.info, ring.poll())], span)
    assert alone is not None
    assert both is not None
    assert 0.05 * joules < alone.joules - joules < 1.96 * alone.sigma_j
    assert both.joules == pytest.approx(joules, rel=0.01)


def test_what_no_sample_shows_is_not_made_up() -> None:
    """Without samples in or around a span there is no energy."""
    source = Source()
    sampler = SimulatedSampler(source, **SPAN_RING)
    source.draw(1.0, IDLE_W)
    samples: list[Sample] = sampler.poll()
    assert span_energy([(sampler.info, samples)], Span(50.0, 51.0)) is None
    assert span_energy([(sampler.info, [])], Span(0.0, 1.0)) is None


def test_a_pause_of_the_sensor_widens_the_interval() -> None:
    """Half a second without samples is told, and may have had any power up to twice the mean."""
    source = Source()
    sampler = SimulatedSampler(source, **SPAN_RING)
    source.draw(2.0, LOAD_W)
    kept = [sample for sample in sampler.poll() if not 0.8 < sample.time_s < 1.3]
    found = span_energy([(sampler.info, kept)], Span(0.5, 1.6))
    assert found is not None
    assert any(note.startswith("sensor-gap: no sample for 0.5") for note in found.notes)
    assert found.sigma_j > 0.1 * found.joules
