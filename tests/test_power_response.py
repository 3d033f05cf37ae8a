"""Response models forward and back: what a reading, a simulated one too, shows of a power curve."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import Source
from tuner.power.base import Response
from tuner.power.response.models import (
    PowerCurve,
    age_s,
    corrected,
    energy_j,
    energy_weights_s,
    shown_joules,
    shown_watts,
)
from tuner.power.sensors.simulated import SimulatedSampler, standard_normals

from tuner.model.errors import InputError

TRACES = st.lists(
    st.tuples(st.floats(1e-3, 1.0), st.floats(-1e3, 1e3)), min_size=2, max_size=40
)  # (time since the sample before, watts)
CAPACITANCES = st.floats(0.0, 2.0)
POWERS = st.lists(st.floats(0.0, 700.0), min_size=2, max_size=40)
PERIOD_S = 0.1
Floats = npt.NDArray[np.float64]


def arrays(trace: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    gaps, watts = (np.array(column) for column in zip(*trace, strict=True))
    return np.cumsum(gaps), watts


def lag(capacitance: float) -> Response:
    return Response("lag", capacitance_s=capacitance)


def held(powers: list[float], start: float = 0.0) -> PowerCurve:
    """A curve that takes a new value each period, and is at the first before."""
    changes = start + PERIOD_S * np.arange(1.0, len(powers))
    return PowerCurve(changes, np.array(powers))


@given(TRACES, CAPACITANCES)
def test_the_integral_of_a_lag_telescopes(trace: list[tuple[float, float]], capacitance: float) -> None:
    """E = integral(Pm) + C * (Pm(last) - Pm(first)), and is what trapezoids under equation (6) enclose."""
    times, watts = arrays(trace)
    plain = np.sum(np.diff(times) * (watts[1:] + watts[:-1])) / 2.0
    power = corrected(times, watts, lag(capacitance))

    expected = plain + capacitance * (watts[-1] - watts[0])

    assert energy_j(times, watts, lag(capacitance)) == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert np.sum(np.diff(times) * (power[1:] + power[:-1])) / 2.0 == pytest.approx(
        expected, rel=1e-9, abs=1e-6
    )


@given(
    TRACES,
    st.one_of(
        st.just(Response()),
        CAPACITANCES.map(lag),
        st.floats(0.01, 2.0).map(lambda window: Response("boxcar", window_s=window)),
        st.floats(0.01, 2.0).map(lambda window: Response("ramp", window_s=window)),
    ),
    st.floats(1.0, 700.0),
)
def test_constant_power_is_itself(trace: list[tuple[float, float]], response: Response, watts: float) -> None:
    """Of constant power every model gives that power back, and its energy, for any spacing."""
    times, _ = arrays(trace)
    flat = np.full(len(times), watts)

    assert corrected(times, flat, response) == pytest.approx(flat, rel=1e-6)
    assert energy_j(times, flat, response) == pytest.approx(watts * (times[-1] - times[0]), rel=1e-6)


@pytest.mark.parametrize("response", [Response(), Response("boxcar", window_s=0.025)])
def test_what_cannot_be_undone_stays(response: Response) -> None:
    """Identity and boxcar are returned as they are; a boxcar stands for power half a window before."""
    times, watts = np.arange(4.0), np.array([1.0, 5.0, 2.0, 2.0])

    assert np.array_equal(corrected(times, watts, response), watts)
    assert age_s(response) == response.window_s / 2.0


def test_inner_samples_follow_the_paper() -> None:
    """An inner sample takes its neighbours' difference, an end its only neighbour's."""
    times, watts = np.array([0.0, 1.0, 3.0]), np.array([10.0, 20.0, 70.0])

    power = corrected(times, watts, lag(0.5))

    assert power.tolist() == [10.0 + 0.5 * 10.0, 20.0 + 0.5 * 60.0 / 3.0, 70.0 + 0.5 * 25.0]


def test_a_step_seen_through_a_lag_comes_back() -> None:
    """The correction of a first-order lag's answer to a step is the step, to the order of the sampling."""
    times = np.arange(0.0, 3.0, 0.015)
    shown = shown_watts(PowerCurve.of_load([(0.0, 9.0)], 50.0, 150.0), times, lag(0.833))

    assert corrected(times, shown, lag(0.833))[1:-1] == pytest.approx(150.0, rel=1e-4)


@given(POWERS, st.integers(1, 12), st.floats(-0.05, 0.2))
def test_a_mean_over_whole_periods_is_undone_exactly(powers: list[float], periods: int, delay: float) -> None:
    """Where windows tile, every curve that was steady for a window before the trace comes back."""
    response = Response("ramp", window_s=periods * PERIOD_S, delay_s=delay)
    times = PERIOD_S * np.arange(len(powers) + 1.0) + delay
    curve = held(powers)

    shown = shown_watts(curve, times, response)
    power = corrected(times, shown, response)

    assert power[1:] == pytest.approx(powers, abs=1e-6)
    drawn = PERIOD_S * sum(powers)
    assert energy_j(times, shown, response) == pytest.approx(drawn, rel=1e-9, abs=1e-6)


@given(POWERS)
def test_tiling_boxcars_add_up(powers: list[float]) -> None:
    """Means over exactly one update period each miss nothing: their energy is that of the curve."""
    response = Response("boxcar", window_s=PERIOD_S)
    times = PERIOD_S * np.arange(len(powers) + 1.0)

    shown = shown_watts(held(powers), times, response)

    assert energy_j(times, shown, response) == pytest.approx(PERIOD_S * sum(powers), rel=1e-9, abs=1e-6)


def test_a_window_that_is_no_multiple_is_interpolated() -> None:
    """A running mean over 10.3 periods gives a second's pulse back to a few percent, its edges smeared."""
    response = Response("ramp", window_s=1.03)
    times = np.arange(0.0, 6.0, PERIOD_S)
    shown = shown_watts(PowerCurve.of_load([(1.52, 2.52)], 100.0, 600.0), times, response)

    power = corrected(times, shown, response)

    assert power[(times > 1.8) & (times < 2.5)] == pytest.approx(600.0, rel=0.02)
    assert energy_j(times, shown, response) - 100.0 * times[-1] == pytest.approx(500.0, rel=0.03)


@given(TRACES, st.floats(0.01, 3.0), st.sampled_from(["lag", "boxcar", "ramp", "identity"]))
def test_weights_are_the_energy_of_single_samples(
    trace: list[tuple[float, float]], size: float, kind: str
) -> None:
    """Energy is linear in the samples: weights times watts, the weights summing to the trace's duration."""
    times, watts = arrays(trace)
    response = {
        "identity": Response(),
        "lag": lag(size),
        "boxcar": Response("boxcar", window_s=size),
        "ramp": Response("ramp", window_s=size),
    }[kind]
    weights = energy_weights_s(times, response)
    power = corrected(times, watts, response)

    assert weights.sum() == pytest.approx(times[-1] - times[0])
    if kind == "ramp":  # corrected samples are the means since the sample before
        assert weights @ watts == pytest.approx(np.sum(np.diff(times) * power[1:]), rel=1e-6, abs=1e-5)


def test_the_noise_of_a_ramp_is_that_of_one_reading_a_window() -> None:
    """White noise s in samples gives the energy of a running mean s * sqrt(T * W)."""
    times = PERIOD_S * np.arange(101.0)

    weights = energy_weights_s(times, Response("ramp", window_s=1.0))

    assert np.linalg.norm(weights) == pytest.approx(np.sqrt(10.0 * 1.0), rel=0.05)


def test_one_sample_has_no_slope_and_no_energy() -> None:
    """A single sample is returned as it is and encloses no energy."""
    time, watts = np.array([1.0]), np.array([42.0])

    for response in (Response(), lag(0.8), Response("ramp", window_s=1.0)):
        assert corrected(time, watts, response).tolist() == [42.0]
        assert energy_j(time, watts, response) == 0.0


@pytest.mark.parametrize(
    ("response", "options"),
    [
        (Response(), {}),
        (lag(0.03), {"capacitance_s": 0.03}),
        (Response("boxcar", window_s=0.025), {"window_s": 0.025}),
        (Response("ramp", window_s=0.5), {"window_s": 0.5}),
    ],
)
@given(
    curve=st.lists(st.tuples(st.floats(0.01, 0.5), st.floats(0.0, 700.0)), min_size=2, max_size=8),
    delay=st.sampled_from([0.0, 0.0071, 0.3]),
)
def test_forward_models_are_what_simulated_sensors_show(
    response: Response, options: dict[str, Any], curve: list[tuple[float, float]], delay: float
) -> None:
    """The models that are fitted and the sensors that are simulated are the same, late ones too."""
    source = Source()
    response = replace(response, delay_s=delay)
    sampler = SimulatedSampler(source, "stream", period_s=0.0137, delay_s=delay, **options)
    for seconds, watts in curve:
        source.draw(seconds, watts)
    samples = sampler.poll()
    pieces = source.power_segments(-9.0)
    changes = np.array([begin for begin, _, _ in pieces[1:]])
    truth = PowerCurve(changes, np.array([watts for _, _, watts in pieces]))

    shown = shown_watts(truth, np.array([s.time_s for s in samples]), response)

    assert shown == pytest.approx(np.array([s.value for s in samples]), rel=1e-9, abs=1e-6)


def test_a_counter_integrates_what_it_is_fed() -> None:
    """Counted joules are the integral of shown watts, through a lag or without, and delayed alike."""
    curve = PowerCurve.of_load([(0.1, 0.4), (0.55, 0.6)], 10.0, 200.0)
    fine = np.linspace(-0.5, 2.0, 12_501)
    for response in (Response(delay_s=0.03), Response("lag", capacitance_s=0.2, delay_s=0.03)):
        watts = shown_watts(curve, fine, response)
        integral = np.concatenate(([0.0], np.cumsum(np.diff(fine) * (watts[1:] + watts[:-1]) / 2.0)))
        counted = shown_joules(curve, fine, response)

        assert counted - counted[0] == pytest.approx(integral, abs=0.02)


CURVES = st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.0, 700.0)), min_size=1, max_size=12)


@given(CURVES)
def test_a_counter_counts_every_joule(curve: list[tuple[float, float]]) -> None:
    """Between any two ticks a counter grows by the energy drawn between them, to its millijoule."""
    source = Source()
    sampler = SimulatedSampler(source, "counter", period_s=0.1)
    samples = []
    for seconds, watts in curve:
        source.draw(seconds, watts)
        samples += sampler.poll()

    for earlier, later in itertools.pairwise(samples):
        assert later.time_s - earlier.time_s == pytest.approx(0.1)
        drawn = source.joules(earlier.time_s, later.time_s)
        assert later.value - earlier.value == pytest.approx(drawn, abs=2.1e-3)


@given(CURVES)
def test_polling_more_often_shows_the_same(curve: list[tuple[float, float]]) -> None:
    """What a sensor shows does not depend on when it is asked."""
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.8, "noise": 0.01},
        {"kind": "ring", "period_s": 0.02, "window_s": 0.025, "noise": 0.01},
        {"kind": "stream", "period_s": 0.03},
    )
    for options in kinds:
        source = Source()
        often, once = (SimulatedSampler(source, seed=3, **options) for _ in range(2))
        seen = []
        for seconds, watts in curve:
            source.draw(seconds, watts)
            seen += often.poll()
        whole = once.poll()

        assert [s.time_s for s in seen] == [s.time_s for s in whole]
        assert [s.value for s in seen] == pytest.approx([s.value for s in whole], rel=1e-9, abs=1e-9)


def test_a_lag_answers_a_step_exponentially() -> None:
    """A first-order lag shows P1 - (P1 - P0) exp(-t / C) after a step from P0, where it had settled."""
    source = Source()
    sampler = SimulatedSampler(source, "stream", period_s=0.015, capacitance_s=0.833)
    source.draw(1.0, 150.0)

    samples = sampler.poll()

    times = np.array([s.time_s for s in samples])
    assert [s.value for s in samples] == pytest.approx(150.0 - 100.0 * np.exp(-times / 0.833))
    assert sampler.info.response.capacitance_s == 0.833


def test_a_mean_sees_its_window_only() -> None:
    """A boxcar sensor shows the mean power of the window before each sample, and nothing between windows."""
    source = Source()
    sampler = SimulatedSampler(source, "stream", period_s=0.1, window_s=0.025)
    source.draw(0.07, 700.0)
    source.draw(0.015, 100.0)
    source.draw(0.015, 300.0)

    (sample,) = sampler.poll()

    assert sample.value == pytest.approx((0.010 * 100.0 + 0.015 * 300.0) / 0.025)


def test_noise_belongs_to_the_sample() -> None:
    """Seed and sample number fix the noise: a sensor opened later shows the same samples."""
    source = Source()
    early = SimulatedSampler(source, "ring", period_s=0.02, noise=0.01, seed=5)
    source.draw(1.0, 200.0)
    late = SimulatedSampler(source, "ring", period_s=0.02, noise=0.01, seed=5)
    other = SimulatedSampler(source, "ring", period_s=0.02, noise=0.01, seed=6)
    source.draw(1.0, 200.0)

    tail = late.poll()

    assert early.poll()[-len(tail) :] == tail
    assert other.poll() != tail


def test_normals_are_random_access_and_normal() -> None:
    """Any part of the noise equals that part of the whole; its moments are a normal distribution's."""
    whole = standard_normals(7, 0, 20_000)

    assert np.array_equal(whole[137:421], standard_normals(7, 137, 284))
    assert abs(whole.mean()) < 0.03
    assert abs(whole.std() - 1.0) < 0.03
    assert abs(np.mean(whole**4) - 3.0) < 0.2


def test_a_long_pause_keeps_the_latest_samples() -> None:
    """After hours without a poll the sensor holds its last samples, and its state is right."""
    source = Source()
    sampler = SimulatedSampler(source, "stream", period_s=0.015, capacitance_s=0.833)
    source.draw(36_000.0, 100.0)

    samples = sampler.poll()

    assert len(samples) == 8192
    assert samples[-1].value == pytest.approx(100.0)
    assert 0 <= source.time_s - samples[-1].time_s < 0.015


def test_no_time_no_samples() -> None:
    """Where no time has passed nothing is fresh."""
    sampler = SimulatedSampler(Source(), "ring", period_s=0.02)

    assert sampler.poll() == []
    sampler.close()


@pytest.mark.parametrize(
    "options",
    [{"period_s": 0.0}, {"period_s": 0.1, "capacitance_s": 0.8, "window_s": 0.025}, {"delay_s": -0.1}],
)
def test_impossible_sensors_are_refused(options: dict[str, Any]) -> None:
    """A sensor needs a period, and has a lag or a mean."""
    with pytest.raises(InputError):
        SimulatedSampler(Source(), "stream", **options)
