"""Joules of a traced program: total and net of idle, whatever the sensor does to power."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.interfaces import Response, Sample, SensorInfo
from tuner.tracing import Timeline, TracedEnergy, memory_s, traced_energy

IDLE_W = 120.0
START_S = 3.0  # of the program; the recording begins at 0
PERIOD_S = 0.02
IDENTITY = Response()
LAG = Response("lag", capacitance_s=0.05)
KEPLER = Response("lag", capacitance_s=0.84)
BOXCAR = Response("boxcar", window_s=0.02)
RAMP = Response("ramp", window_s=1.0, delay_s=0.03)
RESPONSES = [IDENTITY, LAG, KEPLER, BOXCAR, RAMP]
FINE_S = 0.0005  # resolution of the power behind the sensor


def shown(
    duration_s: float, watts: float, response: Response, noise_w: float, until_s: float
) -> list[Sample]:
    """What a sensor shows of a program that draws constant power above an idle GPU."""
    times = np.arange(0.0, until_s, FINE_S)
    power = np.where((times >= START_S) & (times < START_S + duration_s), watts, IDLE_W)
    if response.kind == "lag":
        kept = math.exp(-FINE_S / response.capacitance_s)
        seen = np.empty_like(power)
        seen[0] = IDLE_W
        for i in range(1, len(power)):
            seen[i] = power[i - 1] + (seen[i - 1] - power[i - 1]) * kept
    elif response.window_s:
        wide = round(response.window_s / FINE_S)
        seen = np.convolve(
            np.concatenate((np.full(wide - 1, IDLE_W), power)), np.full(wide, 1 / wide), "valid"
        )
    else:
        seen = power
    late = round(response.delay_s / FINE_S)
    seen = np.concatenate((np.full(late, IDLE_W), seen))[: len(times)]
    step = round(PERIOD_S / FINE_S)
    noise = np.random.default_rng(7).normal(0.0, noise_w, len(times[::step]))
    return [Sample(float(t), float(w)) for t, w in zip(times[::step], seen[::step] + noise, strict=True)]


def traced(
    duration_s: float, watts: float, response: Response, noise_w: float = 0.0, after_s: float = 0.0
) -> TracedEnergy:
    info = SensorInfo("sensor", "ring", "gpu", PERIOD_S, response=response)
    ended_s = START_S + duration_s
    finished_s = ended_s + memory_s(response) + 0.1 + after_s
    samples = shown(duration_s, watts, response, noise_w, finished_s)
    found = traced_energy(samples, info, Timeline(0.0, START_S, ended_s, finished_s, after_s))
    assert found is not None
    return found


@pytest.mark.parametrize("response", RESPONSES, ids=lambda r: f"{r.kind} {r.capacitance_s or r.window_s}")
@pytest.mark.parametrize("duration_s", [0.2, 3.0])
def test_no_response_changes_the_joules(response: Response, duration_s: float) -> None:
    """Lag, mean and delay of a sensor take nothing and add nothing, for long programs and short ones."""
    found = traced(duration_s, 600.0, response)

    # a step that falls between two samples is known to half a period
    allowed_j = 480.0 * PERIOD_S if response.kind == "identity" else 0.02 * 480.0 * duration_s
    assert found.net_j == pytest.approx(480.0 * duration_s, abs=allowed_j)
    assert found.total_j == pytest.approx(600.0 * duration_s, abs=allowed_j)
    assert found.mean_w == pytest.approx(found.total_j / duration_s)
    assert found.idle_w == pytest.approx(IDLE_W, abs=0.1)
    assert found.notes == ()


@settings(max_examples=30, deadline=None)
@given(
    duration_s=st.floats(0.1, 2.0),
    watts=st.floats(130.0, 700.0),
    response=st.sampled_from([IDENTITY, LAG, BOXCAR, RAMP]),
)
def test_the_truth_lies_within_the_uncertainty(duration_s: float, watts: float, response: Response) -> None:
    """Total and net are within a few of their standard uncertainties, and differ by idle power's joules."""
    found = traced(duration_s, watts, response, noise_w=0.5)

    assert abs(found.net_j - (watts - IDLE_W) * duration_s) < 5.0 * found.net_sigma_j
    assert abs(found.total_j - watts * duration_s) < 5.0 * found.total_sigma_j
    assert found.total_j - found.net_j == pytest.approx(found.idle_w * duration_s)


@pytest.mark.parametrize(("response", "peak_w"), [(IDENTITY, 600.0), (LAG, 600.0), (BOXCAR, 600.0)])
def test_the_peak_is_corrected(response: Response, peak_w: float) -> None:
    """The peak of a program of half a second is its power, and no overshoot of the correction."""
    found = traced(0.5, peak_w, response, noise_w=0.5)

    assert found.peak_w == pytest.approx(peak_w, rel=0.03)
    assert 0.0 < found.peak_window_s <= 0.2


def test_idle_power_after_counts_too() -> None:
    """Idle power that has risen by the end is met half-way, and the rise is uncertainty."""
    info = SensorInfo("sensor", "ring", "gpu", PERIOD_S)
    times = np.arange(0.0, 10.0, PERIOD_S)
    watts = np.where(times < START_S, 100.0, np.where(times < 5.0, 500.0, 110.0))
    samples = [Sample(float(t), float(w)) for t, w in zip(times, watts, strict=True)]
    before = traced_energy(samples, info, Timeline(0.0, START_S, 5.0, 10.0))
    both = traced_energy(samples, info, Timeline(0.0, START_S, 5.0, 10.0, 3.0))

    assert before is not None
    assert both is not None
    assert (before.idle_w, both.idle_w) == (100.0, 105.0)
    assert both.idle_sigma_w > before.idle_sigma_w


COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)


def ticks(*at: float, duration_s: float = 2.0, sigma_s: float = 0.0005) -> list[Sample]:
    """Ticks of a counter of the same program as above."""

    def joules(time_s: float) -> float:
        busy_s = min(max(time_s - START_S, 0.0), duration_s)
        return 5000.0 + IDLE_W * time_s + (600.0 - IDLE_W) * busy_s

    return [Sample(t, joules(t), sigma_s) for t in at]


def test_a_counter_needs_its_edges_only() -> None:
    """Two ticks before the program and one after it give its joules exactly."""
    found = traced_energy(ticks(0.1, 2.9, 5.15), COUNTER, Timeline(0.0, START_S, 5.0, 5.3))

    assert found is not None
    assert found.net_j == pytest.approx(960.0)
    assert found.total_j == pytest.approx(1200.0)
    assert found.idle_w == pytest.approx(IDLE_W)
    assert 0.0 < found.total_sigma_j < 0.2
    assert found.peak_w is None


def test_a_tick_right_after_the_end_is_not_taken() -> None:
    """A counter's tick may have been on its way when the program ended: the next one is waited for."""
    early = [*ticks(0.1, 2.9), Sample(5.01, 0.0), *ticks(5.15)]
    found = traced_energy(early, COUNTER, Timeline(0.0, START_S, 5.0, 5.3))

    assert found is not None
    assert found.net_j == pytest.approx(960.0)


@pytest.mark.parametrize("samples", [[], ticks(0.1), ticks(0.1, 2.9), ticks(2.9, 5.15), ticks(5.15)])
def test_too_little_is_no_answer(samples: list[Sample]) -> None:
    """Without idle power or without an end there are no joules, rather than wrong ones."""
    assert traced_energy(samples, COUNTER, Timeline(0.0, START_S, 5.0, 5.3)) is None


@pytest.mark.parametrize("count", range(4))
def test_few_samples_are_no_answer(count: int) -> None:
    """A sensor that gave almost nothing gives no joules."""
    info = SensorInfo("sensor", "stream", "gpu", PERIOD_S)
    samples = [Sample(2.9 + i, 100.0) for i in range(count)]

    assert traced_energy(samples, info, Timeline(0.0, START_S, 5.0, 6.0)) is None


def test_what_was_not_right_is_noted() -> None:
    """Gaps, a recording that was cut short, aliasing and a counter that started anew are told."""
    info = SensorInfo("sensor", "ring", "gpu", PERIOD_S, response=replace(LAG, averages=False))
    samples = [s for s in shown(2.0, 600.0, LAG, 0.0, 5.1) if not 4.0 < s.time_s < 4.5]
    found = traced_energy(samples, info, Timeline(0.0, START_S, 5.0, 5.1))
    reset = [*ticks(0.1, 2.9), Sample(5.2, 1.0)]
    counted = traced_energy(reset, COUNTER, Timeline(0.0, START_S, 5.0, 5.3))

    assert found is not None
    assert [note.partition(":")[0] for note in found.notes] == ["sensor-gap", "cut-short", "aliasing"]
    assert counted is not None
    assert [note.partition(":")[0] for note in counted.notes] == ["counter-reset"]


def test_time_that_goes_backwards_is_left_out() -> None:
    """A sample that is older than one before it changes nothing."""
    info = SensorInfo("sensor", "ring", "gpu", PERIOD_S)
    samples = shown(1.0, 600.0, IDENTITY, 0.0, 4.2)
    line = Timeline(0.0, START_S, 4.0, 4.2)
    odd = [*samples[:200], Sample(0.5, 9999.0), Sample(samples[199].time_s, 9999.0), *samples[200:]]

    assert traced_energy(odd, info, line) == traced_energy(samples, info, line)
