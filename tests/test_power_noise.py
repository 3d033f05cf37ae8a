"""Scatter of samples told apart: noise, drift, pulses, beats; and uncertainties of few degrees of freedom."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.energy.counters import SensorHistory
from tuner.power.energy.samples import Spread, beating_spread, local_spread, noise_floor, pooled

from tuner.model.trial import Part, contracted, expanded, student_factor


def noise(count: int, seed: int = 0) -> npt.NDArray[np.float64]:
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
    found = [local_spread(np.arange(count, dtype=float), noise(count, seed)) for seed in range(400)]
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
    values = 5.0 * np.sin(2.0 * np.pi * times / 18.0) + 0.1 * noise(40)

    assert local_spread(times, values).variance < 5.0 < beating_spread(times, values).variance


def test_the_floor_lies_under_pulses() -> None:
    """The noise under a periodic load is found, though the load scatters five hundred times as much."""
    times = np.arange(200.0)
    values = 30.0 * np.sin(2.0 * np.pi * times * 0.237) + noise(200)
    floors = [
        noise_floor(30.0 * np.sin(2.0 * np.pi * times * 0.237) + noise(200, seed)) for seed in range(50)
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
