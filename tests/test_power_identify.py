"""Which response model a reading follows is found from its samples under a known load."""

from dataclasses import replace

import numpy as np
import pytest
from benchmark_scripts import benchmark
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from loads import BUSY_W, IDLE_W, calibrated, played, samples
from tuner.power.base import Response, Sample, SensorInfo
from tuner.power.energy.samples import SampleSeries
from tuner.power.response.calibrate import calibrate, identify
from tuner.power.response.fitting import Evidence, fit
from tuner.power.response.models import PowerCurve
from tuner.power.sensors.simulated import SimulatedSampler

STREAM = SensorInfo("sensor", "stream", "gpu", 0.1)
COUNTER = SensorInfo("counter", "counter", "gpu", 0.1)
BUSY, SQUARES, END_S = played([0.02, 0.1], 30.0)


def at(period_s: float, phase: float = 0.3) -> np.ndarray:
    return np.arange(phase * period_s, END_S, period_s)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("kind", "size", "allowed", "options"),
    [
        ("lag", 0.02, 0.05, {"period_s": 0.02, "capacitance_s": 0.02}),
        ("lag", 0.79, 0.05, {"period_s": 0.015, "capacitance_s": 0.79}),
        ("lag", 0.833, 0.05, {"period_s": 0.015, "capacitance_s": 0.833}),
        ("boxcar", 0.025, 0.10, {"period_s": 0.1, "window_s": 0.025}),
        ("boxcar", 0.1, 0.10, {"period_s": 0.1, "window_s": 0.1}),
        ("ramp", 1.0, 0.10, {"period_s": 0.1, "window_s": 1.0}),
        ("identity", 0.0, 0.0, {"kind": "counter", "period_s": 0.1}),
        ("boxcar", 0.025, 0.03, {"kind": "counter", "period_s": 0.1, "window_s": 0.025}),
        ("identity", 0.0, 0.0, {"period_s": 0.1}),
    ],
)
def test_simulated_sensors_are_recognised(
    kind: str, size: float, allowed: float, options: dict[str, float], seed: int
) -> None:
    """Model, C and window of a noisy, late sensor are found; a small ``benchmarks/sensor_models.py``."""
    delay = 0.4 * options["period_s"]

    found = calibrated(seed, 25.0, delay_s=delay, **options)

    response = found.response
    assert response is not None
    assert response.kind == kind
    assert response.origin == "calibrated"
    assert response.capacitance_s + response.window_s == pytest.approx(size, rel=allowed)
    early = options["period_s"] / 2.0 if found.kind == "counter" and size else 0.0  # a part stands for all
    assert response.delay_s == pytest.approx(delay - early, abs=0.1 * options["period_s"])
    assert found.period_s == pytest.approx(options["period_s"], rel=0.01)
    assert found.candidates[0].kind == kind
    assert [c.bic for c in found.candidates] == sorted(c.bic for c in found.candidates)
    if size:
        sigma = response.capacitance_sigma_s + response.window_sigma_s
        assert 0 < sigma < allowed * size
        assert response.capacitance_s + response.window_s == pytest.approx(size, abs=5 * sigma)


@FEW
@given(
    st.sampled_from(["lag", "mean"]),
    st.floats(np.log(0.008), np.log(2.0)),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
def test_without_noise_the_truth_is_found(kind: str, size: float, delay: float, phase: float) -> None:
    """From exact samples size and delay come back, whatever they and the phase of the updates are."""
    truth = (
        Response("lag", capacitance_s=np.exp(size), delay_s=0.1 * delay)
        if kind == "lag"
        else Response("ramp", window_s=np.exp(size), delay_s=0.1 * delay)
    )
    evidence = Evidence.of(SampleSeries.of(samples(BUSY, at(0.1, phase), truth)), counter=False, busy=BUSY)

    found = fit(evidence, "lag" if kind == "lag" else "mean")

    assert found.size_s == pytest.approx(np.exp(size), rel=0.02)
    assert found.response.delay_s == pytest.approx(0.1 * delay, abs=0.002)
    assert found.step_w == pytest.approx(BUSY_W - IDLE_W, rel=0.02)
    assert found.idle_w == pytest.approx(IDLE_W, abs=5.0)


@pytest.mark.parametrize(("rise", "fall"), [(0.1, 0.2), (0.9, 0.7), (0.02, 0.024)])
def test_rise_and_fall_must_agree(rise: float, fall: float) -> None:
    """A reading that rises with another time constant than it falls with is taken uncorrected, and why."""
    times = at(0.02)
    values = IDLE_W + (BUSY_W - IDLE_W) * PowerCurve.of_load(BUSY).lagged(times, fall, rising_s=rise)

    found = identify([Sample(*pair) for pair in zip(times, values, strict=True)], STREAM, BUSY, SQUARES)

    assert found.response is not None
    assert (found.response.kind, found.response.capacitance_s) == ("identity", 0.0)
    assert found.candidates[0].kind == "lag"
    assert found.rise_s == pytest.approx(rise, rel=0.02)
    assert found.fall_s == pytest.approx(fall, rel=0.02)
    assert found.response.delay_sigma_s == found.candidates[0].size_s  # it still remembers as much
    assert "uncorrected: rising power shows" in found.reason
    assert found.usable  # its mean is right all the same


sensor_models = benchmark("sensor_models")


@pytest.mark.parametrize(
    ("capacitance_s", "period_s", "trouble", "seed"),
    [
        (0.833, 0.015, {"warming": 0.04}, 0),
        (0.1, 0.02, {"warming": 0.04}, 1),
        (0.1, 0.02, {"rise_s": 0.015}, 0),
        (0.1, 0.02, {"rise_s": 0.015}, 1),
    ],
)
def test_what_the_load_does_is_not_booked_as_a_lag(
    capacitance_s: float, period_s: float, trouble: dict[str, float], seed: int
) -> None:
    """A load that warms by 4 %, or whose power rises within 15 ms, leaves C within 1 % and its interval."""
    load = sensor_models.TroubledLoad(**trouble)
    load.sleep(1.0)
    sampler = SimulatedSampler(
        load, "stream", period_s=period_s, capacitance_s=capacitance_s, noise=0.01, seed=seed
    )

    (found,) = calibrate(load, [sampler], seconds=60.0, seed=seed)

    response = found.response
    assert response is not None
    assert response.kind == "lag"
    assert response.capacitance_s == pytest.approx(capacitance_s, rel=0.012)
    assert abs(response.capacitance_s - capacitance_s) < 2.5 * response.capacitance_sigma_s
    assert ("second lag" in found.reason) == ("rise_s" in trouble)


def test_a_second_lag_is_found_and_its_owner_unknown() -> None:
    """Two lags in a row are told apart, and either may be the sensor's: C may be off by the shorter."""
    times = at(0.02)
    values = np.interp(times, *_twice_lagged(times[-1]))

    found = identify([Sample(*pair) for pair in zip(times, values, strict=True)], STREAM, BUSY, SQUARES)

    assert found.response is not None
    assert found.response.capacitance_s == pytest.approx(0.2, rel=0.03)
    assert found.response.capacitance_sigma_s == pytest.approx(0.03 / 3**0.5, rel=0.1)
    assert "second lag of 3" in found.reason or "second lag of 2" in found.reason


def _twice_lagged(end_s: float) -> tuple[np.ndarray, np.ndarray]:
    """The load through lags of 0.2 and 0.03 s, by time steps of 0.2 ms."""
    times = np.arange(0.0, end_s + 0.1, 2e-4)
    first = PowerCurve.of_load(BUSY).lagged(times, 0.03)
    shown, kept = [0.0], np.exp(-2e-4 / 0.2)
    for power in first[:-1].tolist():
        shown.append(power + (shown[-1] - power) * kept)
    return times, IDLE_W + (BUSY_W - IDLE_W) * np.array(shown)


def test_a_small_difference_is_no_reason() -> None:
    """Time constants that differ by 5 % leave the correction what it is."""
    times = at(0.02)
    values = IDLE_W + (BUSY_W - IDLE_W) * PowerCurve.of_load(BUSY).lagged(times, 0.105, rising_s=0.1)

    found = identify([Sample(*pair) for pair in zip(times, values, strict=True)], STREAM, BUSY, SQUARES)

    assert found.response is not None
    assert found.response.kind == "lag"
    assert 0.1 < found.response.capacitance_s < 0.105
    assert found.reason == ""


@pytest.mark.parametrize(
    ("response", "averages"),
    [
        (Response("boxcar", window_s=0.025), False),
        (Response("boxcar", window_s=0.05), False),
        (Response("lag", capacitance_s=0.015), False),
        (Response(), False),
        (Response("boxcar", window_s=0.1), True),
        (Response("ramp", window_s=1.0), True),
        (Response("lag", capacitance_s=0.1), True),
    ],
)
def test_aliasing_is_told(response: Response, averages: bool) -> None:
    """A reading that sees part of the time between its updates must not be used for energy."""
    found = identify(samples(BUSY, at(0.1), response, noise_w=1.0), STREAM, BUSY, SQUARES)

    assert found.response is not None
    assert found.response.averages == averages
    assert found.usable == averages
    assert found.aliasing is not None
    assert (found.aliasing > 0.25) != averages
    assert ("periodic load" in found.reason) != averages


def test_a_blind_model_is_enough() -> None:
    """Without a square wave to see it by, a window of a quarter of the period still counts as aliasing."""
    response = Response("boxcar", window_s=0.025)

    found = identify(samples(BUSY, at(0.1), response, noise_w=1.0), STREAM, BUSY)

    assert found.aliasing is None
    assert not found.usable


def test_a_counter_does_not_alias() -> None:
    """A counter misses nothing, however its ticks fall on a square wave."""
    found = identify(samples(BUSY, at(0.1), Response(), counter=True, noise_w=0.05), COUNTER, BUSY, SQUARES)

    assert found.usable
    assert found.aliasing == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("squares", [SQUARES, ()])
@pytest.mark.parametrize(
    ("every_s", "part_s", "averages"),
    [
        *((0.1, part_s, part_s > 0.09) for part_s in (0.025, 0.05, 0.06, 0.095)),
        *((0.02, 0.005, False), (0.01, 0.01, True)),  # looks more often than it ticks
    ],
)
def test_a_counter_of_a_part_of_the_time_is_found(
    every_s: float, part_s: float, averages: bool, squares: list[tuple[float, float]]
) -> None:
    """Pulses tell a counter that takes what it sees of some time for all of it, also without square waves."""
    looks = np.arange(0.3 * every_s, END_S, every_s)
    shown = [one.value for one in samples(BUSY, looks, Response("boxcar", window_s=part_s), noise_w=1.0)]
    ticks = slice(None, None, round(0.1 / every_s))
    counted = zip(looks[ticks], np.cumsum(np.array(shown) * every_s)[ticks], strict=True)

    found = identify([Sample(*pair) for pair in counted], COUNTER, BUSY, squares)

    assert found.response is not None
    assert (found.usable, found.response.averages) == (averages, averages)
    if every_s == 0.1 and not averages:
        middle_s = (part_s - every_s) / 2.0  # what is seen stands for what lies around its middle
        assert found.response.mean_age_s + found.response.delay_s == pytest.approx(middle_s, abs=0.003)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("date_s", [0.0, 0.002])
@pytest.mark.parametrize("lag_s", [0.0, 0.0126, 0.05])
def test_a_whole_counter_is_not_taken_for_a_part(lag_s: float, date_s: float, seed: int) -> None:
    """Neither its lag nor ticks that are dated badly look like a time that it does not see."""
    rng = np.random.default_rng(seed)
    response = Response("lag", capacitance_s=lag_s) if lag_s else Response()
    exact = samples(BUSY, at(0.1, rng.random()), response, counter=True, noise_w=0.05)
    dated = [
        replace(s, time_s=s.time_s + 1.7 * date_s * rng.uniform(-1, 1), time_sigma_s=date_s) for s in exact
    ]

    found = identify(dated, COUNTER, BUSY, SQUARES)

    assert found.usable
    assert found.response is not None
    assert found.response.window_s == 0.0


def test_a_counter_may_be_ahead_of_its_lag() -> None:
    """A counter that adds each look at lagging power for the time around it has a negative delay."""
    step_s, lag_s = 0.01, 0.015
    looks = np.arange(0.0, END_S, step_s)
    shown = IDLE_W + (BUSY_W - IDLE_W) * PowerCurve.of_load(BUSY).lagged(looks, lag_s)
    ticks = slice(3, None, 10)
    counted = zip(looks[ticks], np.cumsum(shown * step_s)[ticks], strict=True)

    found = identify([Sample(*pair) for pair in counted], COUNTER, BUSY, SQUARES)

    assert found.response is not None
    assert found.response.kind == "lag"
    assert found.response.delay_s == pytest.approx(-step_s / 2.0, abs=0.002)
    assert found.response.capacitance_s + found.response.delay_s == pytest.approx(
        lag_s - step_s / 2.0, abs=3e-4
    )


def test_a_rhythm_is_all_off_by_the_same() -> None:
    """How well a counter's ticks are dated is part of what is not known of its delay."""
    clean = samples(BUSY, at(0.1), Response(), counter=True, noise_w=0.05)

    found = identify([replace(s, time_sigma_s=0.002) for s in clean], COUNTER, BUSY, SQUARES)

    assert found.response is not None
    assert 0.002 < found.response.delay_sigma_s < 0.0021


def test_warming_does_not_look_like_a_lag() -> None:
    """Power that creeps up by a twentieth with the load, and drifts, changes neither model nor window."""
    times = at(0.1)
    response = Response("ramp", window_s=1.0)
    clean = samples(BUSY, times, response, noise_w=0.5)
    slow = samples(BUSY, times, Response("lag", capacitance_s=5.0))
    warm = [
        replace(sample, value=sample.value + 0.05 * (extra.value - IDLE_W) + 0.2 * sample.time_s)
        for sample, extra in zip(clean, slow, strict=True)
    ]

    found = identify(warm, STREAM, BUSY, SQUARES)

    assert found.response is not None
    assert found.response.kind == "ramp"
    assert found.response.window_s == pytest.approx(1.0, rel=0.02)
    assert found.response.averages


def test_a_rail_without_the_gpu_is_told() -> None:
    """Of a reading that does not follow the load nothing is identified, and it is not used."""
    noise = np.random.default_rng(0).normal(5.0, 0.5, len(at(0.1)))
    rail = [Sample(*pair) for pair in zip(at(0.1), noise, strict=True)]

    found = identify(rail, STREAM, BUSY, SQUARES)

    assert found.response is None
    assert not found.usable
    assert "does not follow the load" in found.reason
    assert found.stored is not None
    assert not found.stored.averages  # so that it is not taken by itself later


def test_the_step_of_a_reading_is_found() -> None:
    """The step is what all values are apart by multiples of, however far neighbours are apart."""
    values = 40.0 + 0.04 * np.array([3, 11, 40, 7, 3, 26])

    found = identify([Sample(0.1 * i, value) for i, value in enumerate(values)], STREAM, BUSY)

    assert found.resolution == pytest.approx(0.04)


@pytest.mark.parametrize("values", [[], [5.0], [5.0] * 20])
def test_too_few_samples_are_told(values: list[float]) -> None:
    """Of a reading that hardly changed nothing is identified."""
    found = identify([Sample(0.1 * i, value) for i, value in enumerate(values)], STREAM, BUSY)

    assert found.response is None
    assert found.stored is None
    assert not found.usable
    assert f"only {len(values)} fresh samples" in found.reason


def test_a_stuck_sensor_is_told() -> None:
    """A sensor that repeats one number as if it were fresh follows nothing."""
    found = identify([Sample(time_s, 42.0) for time_s in at(0.1)], STREAM, BUSY, SQUARES)

    assert found.response is None
    assert not found.usable


def test_nonsense_between_samples_is_left_out() -> None:
    """Numbers that are none or absurd, and times that go backwards, do not spoil what the others say."""
    clean = samples(BUSY, at(0.02), Response("lag", capacitance_s=0.02), noise_w=1.0)
    spoilt = list(clean)
    spoilt[100:100] = [Sample(clean[100].time_s + 0.001, float("nan")), Sample(0.0, 1e9)]
    spoilt[200] = replace(spoilt[200], value=1e6)
    spoilt[300:300] = [Sample(clean[50].time_s, 4.0)]

    found = identify(spoilt, STREAM, BUSY, SQUARES)

    assert found.response is not None
    assert found.response.capacitance_s == pytest.approx(0.02, rel=0.05)
    assert "samples cannot be" in found.reason
    assert found.usable


def test_a_driver_loaded_anew_is_told() -> None:
    """Of a counter that starts again under the load the longer part counts."""
    clean = samples(BUSY, at(0.1), Response(), counter=True, noise_w=0.05)
    again = [replace(s, value=s.value - clean[50].value) if i > 50 else s for i, s in enumerate(clean)]

    found = identify(again, COUNTER, BUSY, SQUARES)

    assert found.response is not None
    assert found.step_w == pytest.approx(BUSY_W - IDLE_W, rel=0.01)
    assert "sensor-reset" in found.reason
