"""Equation (6) and the energy under a corrected trace."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.response import corrected_watts, energy_j

TRACES = st.lists(
    st.tuples(st.floats(1e-3, 1.0), st.floats(-1e3, 1e3)), min_size=2, max_size=40
)  # (time since the sample before, watts)
CAPACITANCES = st.floats(0.0, 2.0)


@given(TRACES, CAPACITANCES)
def test_the_integral_telescopes(trace: list[tuple[float, float]], capacitance: float) -> None:
    """E = integral(Pm) + C * (Pm(last) - Pm(first)), whatever the spacing of the samples."""
    gaps, watts = (np.array(column) for column in zip(*trace, strict=True))
    times = np.cumsum(gaps)
    plain = np.sum(np.diff(times) * (watts[1:] + watts[:-1])) / 2.0

    expected = plain + capacitance * (watts[-1] - watts[0])

    assert energy_j(times, watts, capacitance) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@given(TRACES)
def test_no_capacitance_changes_nothing(trace: list[tuple[float, float]]) -> None:
    """With C = 0 the samples stay as they are."""
    gaps, watts = (np.array(column) for column in zip(*trace, strict=True))

    assert np.array_equal(corrected_watts(np.cumsum(gaps), watts, 0.0), watts)


def test_inner_samples_follow_the_paper() -> None:
    """An inner sample takes its neighbours' difference, an end its only neighbour's."""
    times, watts = np.array([0.0, 1.0, 3.0]), np.array([10.0, 20.0, 70.0])

    corrected = corrected_watts(times, watts, 0.5)

    assert corrected.tolist() == [10.0 + 0.5 * 10.0, 20.0 + 0.5 * 60.0 / 3.0, 70.0 + 0.5 * 25.0]


def test_a_step_seen_through_a_lag_comes_back() -> None:
    """The correction of a first-order lag's answer to a step is the step, to the order of the sampling."""
    capacitance, times = 0.833, np.arange(0.0, 3.0, 0.015)
    shown = 150.0 - 100.0 * np.exp(-times / capacitance)

    corrected = corrected_watts(times, shown, capacitance)

    assert corrected[1:-1] == pytest.approx(150.0, rel=1e-4)


def test_one_sample_has_no_slope() -> None:
    """A single sample is returned as it is and encloses no energy."""
    time, watts = np.array([1.0]), np.array([42.0])

    assert corrected_watts(time, watts, 0.8).tolist() == [42.0]
    assert energy_j(time, watts, 0.8) == 0.0
