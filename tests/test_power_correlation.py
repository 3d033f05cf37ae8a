"""Scatter of samples: noise, drift, pulses, beats, noise that hangs together, loads in step with a sensor."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import Source
from tuner.power.base import Response, SensorInfo
from tuner.power.energy.counters import SensorHistory
from tuner.power.energy.meter import SamplingMeter
from tuner.power.energy.samples import SampleSeries, Spread, beating_spread, local_spread, noise_floor, pooled
from tuner.power.energy.streams import (
    TIMES,
    correlated,
    correlation_evidence,
    in_step,
    jumps,
    passed,
    power_of_samples,
)
from tuner.power.response.models import Array, PowerCurve, energy_j, shown_watts
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.model.errors import InputError
from tuner.model.trial import Part, contracted, expanded, student_factor

LAG = SensorInfo("lag", "stream", "gpu", 0.02, response=Response("lag", capacitance_s=0.02))
PLAIN = SensorInfo("plain", "stream", "gpu", 1.0)


def noise(count: int, correlation: float, seed: int) -> Array:
    """AR(1) noise of variance 1 as a simulated sensor has it."""
    source = Source()
    sampler = SimulatedSampler(source, "stream", period_s=1.0, noise=1.0, seed=seed, correlation=correlation)
    source.draw(count + 0.5, 1.0)
    return np.array([sample.value - 1.0 for sample in sampler.poll()])[:count]


def series(values: Array, period_s: float = 1.0) -> SampleSeries:
    return SampleSeries(period_s * np.arange(len(values), dtype=np.float64), values, np.zeros(len(values)))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_simulated_noise_has_its_correlation(correlation: float) -> None:
    """Variance 1, and the correlations of an AR(1) process, whatever part of the sequence is asked for."""
    values = noise(20_000, correlation, 1)

    assert values.var() == pytest.approx(1.0, abs=0.15)
    for step in (1, 5):
        found = float(np.mean(values[step:] * values[:-step]) / values.var())
        assert found == pytest.approx(correlation**step, abs=0.06)


def test_a_correlation_is_below_one() -> None:
    """Noise that never changes is none."""
    with pytest.raises(InputError, match="correlation"):
        SimulatedSampler(Source(), "stream", correlation=1.0)


def test_a_jittering_sensor_shows_power_of_another_time() -> None:
    """Samples are dated regularly, and what a counter grows by scatters by the jitter of its two ends."""
    source = Source()
    sampler = SimulatedSampler(source, "counter", period_s=0.1, jitter_s=0.01)
    source.draw(10.0, 100.0)
    samples = sampler.poll()
    steps = np.diff([sample.value for sample in samples]) / 100.0

    assert np.diff([sample.time_s for sample in samples]) == pytest.approx(0.1)
    assert steps.std() == pytest.approx(math.sqrt(2.0) * 0.01, rel=0.25)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_mean_is_as_uncertain_as_its_noise_hangs_together(correlation: float) -> None:
    """Of 200 samples the variance is that of the integrated autocorrelation time, (1 + r) / (1 - r)."""
    stated = []
    for seed in range(20):
        told = correlation_evidence(
            series(noise(200, correlation, seed)), np.full(200, 0.005), Response(), 1.0
        )
        assert told is not None
        stated.append(expanded([correlated(*told)])[0])

    expected = math.sqrt((1.0 + correlation) / (1.0 - correlation) / 200.0)
    assert expected * 0.9 < float(np.median(stated)) < expected * 2.0


@given(st.floats(-1e3, 1e3), st.floats(-10.0, 10.0), st.floats(-1e3, 1e3))
def test_the_known_response_is_no_noise(level: float, slope: float, decay: float) -> None:
    """A mean, a drift and the decay of a lag leave likelihoods and variances as they are."""
    values, response = noise(40, 0.6, 3), Response("lag", capacitance_s=8.0)
    times = np.arange(40.0)
    known = level + slope * times + decay * np.exp(-times / 8.0)

    plain = correlation_evidence(series(values), np.full(40, 0.025), response, 1.0)
    other = correlation_evidence(series(values + known), np.full(40, 0.025), response, 1.0)

    assert plain is not None
    assert other is not None
    assert other[0] == pytest.approx(plain[0], abs=1e-5)
    assert other[1] == pytest.approx(plain[1], rel=1e-5)


def test_few_samples_tell_nothing() -> None:
    """No degrees of freedom, no answer."""
    assert correlation_evidence(series(np.ones(4)), np.full(4, 0.25), Response(), 1.0) is None


def test_short_windows_learn_from_each_other() -> None:
    """Eight samples are taken for white noise; those of many windows tell that it is not."""
    history, stated = SensorHistory(), []
    for seed in range(20):
        found = power_of_samples(series(100.0 + noise(8, 0.9, seed)), PLAIN, None, history)
        stated.append(expanded(found.parts)[0])

    assert float(np.median(stated[:3])) < 0.4
    assert float(np.median(stated[-5:])) > 0.7


def test_one_window_does_not_outvote_the_others() -> None:
    """A window whose load wandered tells of a correlation that it does not have."""
    history = SensorHistory()
    for _ in range(5):
        history.add_correlation(np.linspace(0.0, -20.0, len(TIMES)))
    history.add_correlation(np.linspace(0.0, 1e3, len(TIMES)))
    told, windows = history.correlation

    assert windows == 6
    assert told is not None
    assert told[0] == max(told)


# --- loads in step, and jumps --------------------------------------------------------------------


def locked(times: Array, phase: float, period_s: float, busy: float) -> Array:
    """What a lag shows of a load that is on from 0 to 2 W with a period, settled."""
    starts = np.arange(-60, int(times[-1] / period_s) + 2) * period_s + phase * period_s
    curve = PowerCurve.of_load([(t, t + busy * period_s) for t in starts], 0.0, 1.0 / busy)
    return shown_watts(curve, times, LAG.response)


def test_a_load_in_step_is_as_uncertain_as_its_phase() -> None:
    """Over all phases, errors of a half busy load of 0 and 2 W are those stated for a swing of 2 W."""
    times = 0.02 * np.arange(26.0)
    weights = np.full(26, 1.0 / 26.0)
    errors = [locked(times, phase, 0.02, 0.5).mean() - 1.0 for phase in np.linspace(0.0, 1.0, 50)]
    inside = SampleSeries(times, np.ones(26), np.zeros(26))

    found = in_step(inside, weights, 1.0, 0.02, LAG)

    assert found.variance * 3.0 == pytest.approx(float(np.var(errors)), rel=0.15)


@pytest.mark.parametrize("round_s", [0.0, 0.0193, 0.0031, 0.3])
def test_a_load_out_of_step_is_averaged(round_s: float) -> None:
    """Samples that see all phases, or a load slow enough to be seen, leave nothing of it."""
    inside = SampleSeries(0.02 * np.arange(200.0), np.ones(200), np.zeros(200))

    found = in_step(inside, np.full(200, 0.005), 1.0, round_s, LAG)

    assert math.sqrt(found.variance) < 8e-3  # a tenth of that in step


def test_a_meter_widens_a_window_of_rounds_in_step() -> None:
    """Every sample of a ring shows the same phase; told the period of rounds, the interval holds the mean."""
    source = Source()
    meter = SamplingMeter(
        SimulatedSampler(source, "ring", period_s=0.02, capacitance_s=0.02, noise=0.01), None, source.now_s
    )
    source.draw(0.008, 100.0)
    with meter.recording() as recording:
        for _ in range(40):
            source.draw(0.01, 600.0)
            source.draw(0.01, 100.0)

    untold, told = (recording.reading(0.25, 0.75, round_s) for round_s in (0.0, 0.02))

    assert untold is not None
    assert told is not None
    assert untold.watts == told.watts
    assert abs(untold.watts - 350.0) > 5.0 * untold.uncertainty_w
    assert abs(told.watts - 350.0) < 1.96 * told.uncertainty_w


def test_means_that_tile_have_no_step() -> None:
    """A mean over a period holds all of it."""
    info = SensorInfo("mean", "stream", "gpu", 0.02, response=Response("boxcar", window_s=0.02))
    inside = SampleSeries(0.02 * np.arange(26.0), np.ones(26), np.zeros(26))

    assert in_step(inside, np.full(26, 1.0 / 26.0), 1.0, 0.02, info).variance < 1e-20


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (Response(), 1.0),
        (Response("lag", capacitance_s=1.0), 1.0 / math.hypot(1.0, 2.0 * math.pi)),
        (Response("boxcar", window_s=0.5), 2.0 / math.pi),
    ],
)
def test_what_a_response_lets_through(response: Response, expected: float) -> None:
    """The amplitude of one hertz."""
    assert passed(response, np.array([1.0])) == pytest.approx(expected)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 5.0])
def test_jumps_between_samples(ratio: float) -> None:
    """Jumps at random times make errors of the stated variance where a lag's samples are joined by lines."""
    random, response = np.random.default_rng(5), Response("lag", capacitance_s=ratio)
    info = SensorInfo("lag", "stream", "gpu", 1.0, response=response)
    errors, stated = [], []
    for _ in range(150):
        jumps_s = 20.0 + np.cumsum(random.uniform(3.0, 8.0, 20))
        curve = PowerCurve.of_load(list(zip(jumps_s[::2], jumps_s[1::2], strict=True)))
        times = np.arange(20.0, jumps_s[-1] + 10.0)
        values = shown_watts(curve, times, response)
        truth = float(np.diff(curve.joules(times[[0, -1]]))[0])
        errors.append((energy_j(times, values, response) - truth) / (times[-1] - times[0]))
        stated.append(
            jumps(SampleSeries(times, values, np.zeros(len(times))), Spread(0.0, 10.0), info).variance
        )

    assert float(np.mean(stated)) == pytest.approx(float(np.mean(np.square(errors))), rel=0.4)


@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_noise_makes_no_jumps(ratio: float) -> None:
    """Of a steady load's samples, jumps have only what their noise is more than it is known to be."""
    info = SensorInfo("lag", "stream", "gpu", 1.0, response=Response("lag", capacitance_s=ratio))
    inside = series(np.random.default_rng(6).normal(size=100_000))
    untold, half = (jumps(inside, Spread(variance, 10.0), info).variance for variance in (0.0, 0.5))

    assert half == pytest.approx(untold / 2.0, rel=0.03)


def white_noise(count: int, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal(count)


@given(st.integers(6, 60), st.tuples(*[st.floats(-100, 100)] * 3))
def test_a_smooth_curve_has_no_scatter(count: int, curve: tuple[float, float, float]) -> None:
    """A parabola, as a steady drift makes of a counter, leaves nothing."""
    times_s = np.linspace(0.0, 1.0, count, dtype=np.float64)

    assert local_spread(
        times_s, np.asarray(np.polyval(curve, times_s), dtype=np.float64)
    ).variance < 1e-15 * (1.0 + max(map(abs, curve)) ** 2)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 40, 300])
def test_white_noise_is_found_with_its_degrees(count: int) -> None:
    """Over many runs the variance is right, and scatters as its degrees of freedom say."""
    found = [local_spread(np.arange(count, dtype=float), white_noise(count, seed)) for seed in range(400)]
    variances = np.array([spread.variance for spread in found])

    assert variances.mean() == pytest.approx(1.0, abs=4.0 * math.sqrt(2.0 / found[0].degrees / 400))
    assert variances.var() == pytest.approx(2.0 / found[0].degrees, rel=0.5)


def test_two_ticks_have_no_scatter() -> None:
    """Of a counter two ticks give a power and no degree of freedom; of power two samples give one."""
    ends = np.array([0.0, 1.0])

    assert local_spread(ends, ends, least_degree=1) == Spread(0.0, 0.0)
    both = local_spread(ends, ends)
    assert (both.variance, both.degrees) == pytest.approx((0.5, 1.0))


def test_a_slow_beat_is_scatter() -> None:
    """What neighbours follow together is seen in every second to fourth value."""
    times = np.arange(40.0)
    values = 5.0 * np.sin(2.0 * np.pi * times / 18.0) + 0.1 * white_noise(40)

    assert local_spread(times, values).variance < 5.0 < beating_spread(times, values).variance


def test_the_floor_lies_under_pulses() -> None:
    """The noise under a periodic load is found, though the load scatters five hundred times as much."""
    times = np.arange(200.0)
    values = 30.0 * np.sin(2.0 * np.pi * times * 0.237) + white_noise(200)
    floors = [
        noise_floor(30.0 * np.sin(2.0 * np.pi * times * 0.237) + white_noise(200, seed)) for seed in range(50)
    ]

    assert local_spread(times, values).variance > 400.0
    assert np.mean([floor.variance for floor in floors if floor]) == pytest.approx(1.0, rel=0.1)
    assert noise_floor(values[:10]) is None


def test_earlier_windows_make_a_scatter_surer() -> None:
    """Scatters that may be the same are joined by their degrees; one that surely differs stands alone."""
    known = Spread(1.0, 50.0)

    joined = pooled(Spread(1.5, 5.0), known)
    assert (joined.variance, joined.degrees) == pytest.approx((57.5 / 55.0, 55.0))
    assert pooled(Spread(20.0, 5.0), known) == Spread(20.0, 5.0)
    assert pooled(Spread(0.02, 5.0), known) == Spread(0.02, 5.0)
    assert pooled(Spread(1.0, 5.0), None) == Spread(1.0, 5.0)
    assert pooled(Spread(0.0, 0.0), Spread(2.0, 1.0)) == Spread(2.0, 1.0)
    assert pooled(Spread(0.0, 0.0), Spread(0.0, 0.0)).degrees == 0.0


def test_unsteady_windows_do_not_teach() -> None:
    """Windows of unsteady loads, up to three in four, leave what is known of the noise as it is."""
    learned = SensorHistory()
    assert learned.noise is None
    for load in (1.0, 1e6, 1e4, 1.0, 1e5, 1e6, math.inf, 1e6):
        learned.add_noise(Spread(load, 5.0))

    assert learned.noise == Spread(1.0, 10.0)


# --- uncertainties -------------------------------------------------------------------------------


@pytest.mark.parametrize(("degrees", "half_width"), [(1, 12.706), (2, 4.303), (5, 2.571), (30, 2.042)])
def test_students_factor(degrees: int, half_width: float) -> None:
    """1.96 times the factor is the tabulated half-width of a 95 % interval."""
    assert 1.96 * student_factor(degrees) == pytest.approx(half_width, rel=1e-3)
    assert student_factor(None) == 1.0


def test_parts_join_by_welch_and_satterthwaite() -> None:
    """Equal parts of 4 degrees each have 8 together; a known part adds variance and no doubt."""
    uncertainty, degrees = expanded([Part(1.0, 4), Part(1.0, 4)])

    assert uncertainty == pytest.approx(math.sqrt(2) * student_factor(8))
    assert degrees == pytest.approx(8.0)
    assert expanded([Part(9.0), Part(0.0, 3)]) == (3.0, None)
    assert expanded([]) == (0.0, None)


@given(st.floats(1e-9, 1e9), st.none() | st.floats(0.5, 500.0))
def test_an_uncertainty_can_be_taken_apart_again(variance: float, degrees: float | None) -> None:
    """``contracted`` gives back the variance that ``expanded`` widened."""
    part = contracted(*expanded([Part(variance, degrees)]))

    assert part.variance == pytest.approx(variance)
    assert part.degrees == (degrees if degrees is None else pytest.approx(degrees))
