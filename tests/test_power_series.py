"""Power over time in few bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.trial import MOST_POINTS, PowerSeries, mean_powers, series_of, unpacked

points = st.lists(st.tuples(st.floats(-10, 1e4), st.floats(0, 2e3)), min_size=1, max_size=40).map(sorted)


@given(points)
def test_series_come_back_to_four_digits(found: list[tuple[float, float]]) -> None:
    """A packed series gives times to 0.1 ms, and power to four digits of the highest, back."""
    series = series_of(found)

    again = unpacked(series.packed())

    highest = max(series.watts)
    assert again.times_s == pytest.approx(series.times_s, abs=5.1e-5)
    assert again.watts == pytest.approx(series.watts, abs=max(0.51e-3 * highest, 1e-4))


def test_series_take_few_bytes() -> None:
    """A sample takes less than six bytes where power moves by tens of watts between samples."""
    series = series_of([(0.1 * i, 600.0 + 30.0 * (i % 3)) for i in range(100)])

    assert len(series.packed()) <= 540


def test_long_series_are_joined() -> None:
    """Of more samples than a series holds, neighbours become their mean."""
    series = series_of([(0.001 * i, float(i % 2)) for i in range(2 * MOST_POINTS)])

    assert len(series.watts) == MOST_POINTS
    assert set(series.watts) == {0.5}


def test_counters_are_mean_powers() -> None:
    """From tick to tick; a counter that restarts leaves a gap."""
    ticks = [(0.0, 100.0), (0.1, 160.0), (0.1, 170.0), (0.2, 5.0), (0.4, 125.0)]

    times_s, watts = zip(*mean_powers(ticks), strict=True)
    assert times_s == (0.0, 0.2)
    assert watts == pytest.approx((600.0, 600.0))


def test_nothing_is_an_empty_text() -> None:
    """Without samples there is no text."""
    assert series_of([]).packed() == ""
    assert unpacked("") == PowerSeries((), ())


@pytest.mark.parametrize("text", ["?", "AA==", "/////w==", "AAIC", "gICAgICAgICAgIAB"])
def test_damaged_series_are_refused(text: str) -> None:
    """A text that no series was packed into is an error, not numbers."""
    with pytest.raises(ValueError, match="a power series"):
        unpacked(text)
