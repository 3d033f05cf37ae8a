"""Intervals of joules that cover: the benchmark of that, smaller."""

from typing import Any

import pytest
from benchmark_scripts import benchmark

energy_intervals = benchmark("energy_intervals")

RUNS = {"steady": 50, "drift": 50, "rounds": 24, "pulses": 40, "irregular": 40, "in step": 40}
LEAST = 0.87  # 95 % of 40 runs scatters by 3.4 %
LAGS = [name for name in energy_intervals.SENSORS if name.startswith("lag") and "100 ms" not in name]
FEW = "lag 0.1 s, every 100 ms"
BLIND = "mean of 25 ms, every 100"  # of a load in step it may show either power all the time
JOINED_RUNS = 30
LEAST_JOINED = 0.85  # three repeats that differ a little are covered in 94 %; of 30 runs that scatters by 4 %


def joins() -> list[Any]:
    """Each sensor with one of the loads, the loads in turn; with the other one where all is tried."""
    return [
        pytest.param(sensor, load, marks=[pytest.mark.exhaustive] if (i + j) % 2 else [])
        for i, sensor in enumerate(energy_intervals.SENSORS)
        for j, load in enumerate(energy_intervals.JOINED)
    ]


@pytest.mark.parametrize("sensor", energy_intervals.SENSORS)
@pytest.mark.parametrize("load", energy_intervals.LOADS)
def test_an_interval_covers_what_it_says(sensor: str, load: str) -> None:
    """Of many windows about 95 % have the truth in their interval, which is not far wider than the error."""
    row = energy_intervals.case(sensor, "single", load, RUNS[load])

    assert row["covered"] >= (0.6 if (sensor, load) == (BLIND, "in step") else LEAST)
    if load in ("steady", "drift"):
        assert row["stated_median"] < 2.0 * row["error_rms"]


@pytest.mark.parametrize(("sensor", "load"), joins())
def test_joined_repeats_cover_what_they_say(sensor: str, load: str) -> None:
    """So do the intervals of three repeats, of the same load and of loads that differ by half a percent."""
    row = energy_intervals.case(sensor, "joined", load, JOINED_RUNS)

    assert row["covered"] >= LEAST_JOINED
    assert row["stated_median"] < 3.0 * row["error_rms"]


@pytest.mark.parametrize("sensor", LAGS)
@pytest.mark.parametrize("load", energy_intervals.SMOOTH)
def test_correlated_noise_is_covered(sensor: str, load: str) -> None:
    """Noise with a correlation of 0.9 from sample to sample widens the very first interval."""
    row = energy_intervals.case(sensor, "single", load, 16 if load == "rounds" else 50, "AR(1) 0.9")

    assert row["covered"] >= 0.75


def test_correlated_noise_is_learnt() -> None:
    """Where one window has eight samples, several tell how its noise hangs together."""
    row = energy_intervals.case(FEW, "known", "steady", 24, "AR(1) 0.9")

    assert row["covered"] >= 0.75


@pytest.mark.parametrize("sensor", energy_intervals.SENSORS)
def test_dates_that_jitter_are_covered(sensor: str) -> None:
    """So are samples taken 2 ms from where they are dated to, under power that rises or falls."""
    row = energy_intervals.case(sensor, "single", "drift", 40, "2 ms")

    assert row["covered"] >= LEAST


@pytest.mark.parametrize(
    ("sensor", "most"), [("lag 0.02 s, every 20 ms", 6.0), ("lag 0.1 s, every 20 ms", 4.0)]
)
def test_pulses_that_a_lag_shows_do_not_widen_it(sensor: str, most: float) -> None:
    """Irregular pulses that the samples show are no noise; they had made the interval 30 times too wide."""
    row = energy_intervals.case(sensor, "single", "irregular", 40)

    assert row["stated_median"] < most * row["error_rms"]
