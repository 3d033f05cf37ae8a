"""Samples that cannot be: left out and told, never taken for power."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Sample, SensorInfo
from tuner.power.energy.mean_power import mean_power
from tuner.power.energy.samples import gaps, screened

from tuner.model.errors import PowerError

COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)
STREAM = SensorInfo("stream", "stream", "gpu", 0.1)
RAIL = SensorInfo("rail", "stream", "VDD_GPU (gpu)", 0.1, may_be_zero=True)

anything = st.floats(allow_nan=True, allow_infinity=True)


def kinds(notes: tuple[str, ...]) -> list[str]:
    return [note.partition(":")[0] for note in notes]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -50.0, 1e7])
def test_impossible_watts_are_left_out(odd: float) -> None:
    """Not a number, infinity, watts given back or drawn by no board: left out, and counted."""
    trace, notes = screened([Sample(0.0, 100.0), Sample(0.1, odd), Sample(0.2, 100.0)], STREAM)

    assert trace.values.tolist() == [100.0, 100.0]
    assert notes == ("sensor-values: 1 of 3 samples cannot be",)


def test_small_negative_watts_are_an_offset() -> None:
    """A rail without load may show -0.4 W: that is kept, and nothing is told."""
    trace, notes = screened([Sample(0.1 * i, -0.4) for i in range(5)], RAIL)

    assert len(trace) == 5
    assert notes == ()


def test_zero_is_no_reading_but_of_a_part() -> None:
    """A GPU that is read draws power, a counter grows, and only a part of a board may be off."""
    zeros = [Sample(0.1 * i, 0.0) for i in range(5)]
    assert len(screened(zeros, RAIL)[0]) == 5
    for info in (STREAM, COUNTER):
        trace, notes = screened(zeros, info)
        assert len(trace) == 0
        assert kinds(notes) == ["sensor-values"]
    with pytest.raises(PowerError, match="gave too little"):
        mean_power(screened(zeros, STREAM)[0], 0.0, 0.4, STREAM)


def test_samples_out_of_order_are_left_out() -> None:
    """A sample that is not later than all before it, as after a stepped clock, is dropped and told."""
    samples = [Sample(t, v) for t, v in ((1.0, 1.0), (2.0, 2.0), (1.5, 9.0), (2.0, 9.0), (3.0, 3.0))]

    trace, notes = screened(samples, STREAM)

    assert trace.times_s.tolist() == [1.0, 2.0, 3.0]
    assert trace.values.tolist() == [1.0, 2.0, 3.0]
    assert notes == ("sensor-time: 2 of 5 samples are not later than the one before",)


@pytest.mark.parametrize("origin", [-1e5, 0.0, 1e9])
def test_a_counter_that_begins_anew_is_used_on_one_side(origin: float) -> None:
    """A driver that is loaded anew moves the counter: no joules are taken across that, and it is told."""
    before = [Sample(0.1 * i, 1e5 + 30.0 * i) for i in range(5)]
    after = [Sample(0.1 * i, 1e5 + origin + 30.0 * i - 150.0) for i in range(5, 25)]
    samples = [*before, *after] if origin else [*before, *(Sample(s.time_s, s.value - 1e5) for s in after)]

    trace, notes = screened(samples, COUNTER)

    assert kinds(notes) == ["sensor-reset"]
    assert mean_power(trace, 0.4, 2.4, COUNTER).watts == pytest.approx(300.0)
    with pytest.raises(PowerError, match="no sample for"):
        mean_power(trace, 0.0, 0.5, COUNTER)


def test_a_late_tick_is_no_reset() -> None:
    """A tick that polling saw 60 ms late leaves 40 ms to the next: that is no impossible power."""
    times = [0.0, 0.1, 0.2, 0.36, 0.4, 0.5]
    ticks = [Sample(t, 70.0 * i, 0.02) for i, t in enumerate(times)]

    assert screened(ticks, COUNTER)[1] == ()


@given(
    st.lists(st.builds(Sample, anything, anything, anything), max_size=30), st.sampled_from((COUNTER, STREAM))
)
def test_whatever_a_sensor_says(samples: list[Sample], info: SensorInfo) -> None:
    """Any numbers at all give a trace in order, a finite mean, or a refusal."""
    trace, notes = screened(samples, info)

    assert (len(trace) == len(samples)) == (notes == ())
    assert all(later > earlier for earlier, later in zip(trace.times_s, trace.times_s[1:], strict=False))
    try:
        mean = mean_power(trace, 0.0, 1.0, info)
    except PowerError:
        return
    assert math.isfinite(mean.watts)
    assert mean.uncertainty_w >= 0.0


def test_pauses_are_those_of_more_than_three_periods() -> None:
    """A missed sample is none; four are, and so is a window that goes on after the last."""
    times = [0.1 * i for i in range(30) if i not in (5, *range(10, 14))]
    trace, _ = screened([Sample(t, 100.0) for t in times], STREAM)

    assert [pytest.approx(gap) for gap in gaps(trace, 0.0, 3.5, STREAM)] == [(0.9, 1.4), (2.9, 3.5)]


def test_ticks_on_one_place_of_the_rhythm_give_no_power_of_their_own() -> None:
    """Where both ticks of a window are put on one place, those around it answer."""
    trace, _ = screened([Sample(0.1 * i, 30.0 * i) for i in range(20)], COUNTER)
    trace.times_s[6] = trace.times_s[5]

    assert mean_power(trace, 0.45, 0.65, COUNTER).watts == pytest.approx(300.0, rel=0.5)


@pytest.mark.parametrize(("place", "ticks"), [(5, slice(5, 8)), (9, slice(7, 10))])
def test_half_a_window_on_one_place_of_the_rhythm_shows_no_slope(place: int, ticks: slice) -> None:
    """Where the ticks of a half are put on one place, the power of the window is that of all its ticks."""
    trace, _ = screened([Sample(0.1 * i, 30.0 * i) for i in range(20)], COUNTER)
    trace.times_s[ticks] = trace.times_s[place]

    assert mean_power(trace, 0.45, 0.95, COUNTER).watts == pytest.approx(300.0)
