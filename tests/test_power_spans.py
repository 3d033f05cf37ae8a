"""Joules between any two times: right within what is stated, whatever the load and the sensor."""

import itertools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from power_source import IDLE_W, Source
from tuner.power.base import Response, Sample, Span, SpanEnergy
from tuner.power.energy.spans import span_energy
from tuner.power.sensors.simulated import SimulatedSampler

LOAD_W = 600.0
COUNTER: dict[str, Any] = {"kind": "counter", "noise": 0.0005}
RING: dict[str, Any] = {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.0132, "noise": 0.003}
MEANS: dict[str, Any] = {"kind": "stream", "period_s": 0.1, "window_s": 0.1, "noise": 0.003}
LAG: dict[str, Any] = {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.8, "noise": 0.003}
SENSORS = {
    "counter and ring": [COUNTER, RING],
    "counter": [COUNTER],
    "ring": [RING],
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
@pytest.mark.parametrize("sensors", SENSORS.values(), ids=SENSORS.keys())
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
    found, joules = played(SENSORS[sensors], load, 2.0, np.random.default_rng(3))
    assert found.joules == pytest.approx(joules, rel=0.005)
    assert found.sigma_j < 0.01 * joules
    assert found.peak_w == pytest.approx(LOAD_W, rel=0.02)
    assert not found.notes


def test_regions_within_an_update_say_so() -> None:
    """Five milliseconds between samples 20 ms apart are told as too short, and known as badly."""
    found, joules = played(SENSORS["ring"], goes_on, 0.005, np.random.default_rng(4))
    assert [note.split(":")[0] for note in found.notes] == ["too-short"]
    assert found.sigma_j > 0.5 * joules


def test_regions_side_by_side_add_up() -> None:
    """What one region has another has not, where both cut a steady load."""
    random = np.random.default_rng(5)
    source = Source()
    sampler = SimulatedSampler(source, **COUNTER)
    ring = SimulatedSampler(source, **RING)
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
    found, _ = played(SENSORS["counter"], begins_with_the_region, 2.0, np.random.default_rng(6))
    assert found.peak_w == pytest.approx(LOAD_W, rel=0.01)
    assert found.peak_window_s == pytest.approx(0.1)


@pytest.mark.parametrize("origin", ["assumed", "calibrated"])
@pytest.mark.parametrize("averages", [True, False])
def test_a_counter_that_may_be_blind_is_told(
    origin: Literal["assumed", "calibrated"], averages: bool
) -> None:
    """Also beside a ring; where nobody has calibrated the board the note says that it is not known."""
    unchecked = COUNTER | {"response": Response(origin=origin, averages=averages)}
    found, _ = played([unchecked, RING], goes_on, 2.0, np.random.default_rng(6))

    assert [note.partition(":")[0] for note in found.notes] == ["aliasing"] * (not averages)
    assert any("for tuner power calibrate to find" in note for note in found.notes) == (
        not averages and origin == "assumed"
    )


def test_beyond_its_last_tick_a_counter_goes_on_by_a_curve() -> None:
    """By the power of the other reading; alone by its own, which may be none or twice as much."""
    source = Source()
    counter, ring = SimulatedSampler(source, **COUNTER), SimulatedSampler(source, **RING)
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
    sampler = SimulatedSampler(source, **RING)
    source.draw(1.0, IDLE_W)
    samples: list[Sample] = sampler.poll()
    assert span_energy([(sampler.info, samples)], Span(50.0, 51.0)) is None
    assert span_energy([(sampler.info, [])], Span(0.0, 1.0)) is None


def test_a_pause_of_the_sensor_widens_the_interval() -> None:
    """Half a second without samples is told, and may have had any power up to twice the mean."""
    source = Source()
    sampler = SimulatedSampler(source, **RING)
    source.draw(2.0, LOAD_W)
    kept = [sample for sample in sampler.poll() if not 0.8 < sample.time_s < 1.3]
    found = span_energy([(sampler.info, kept)], Span(0.5, 1.6))
    assert found is not None
    assert any(note.startswith("sensor-gap: no sample for 0.5") for note in found.notes)
    assert found.sigma_j > 0.1 * found.joules
