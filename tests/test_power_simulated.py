"""Simulated sensors show what real ones would of a known power curve, in virtual time."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_source import Source
from tuner.power.sensors.simulated import SimulatedSampler, standard_normals

from tuner.model.errors import InputError

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
