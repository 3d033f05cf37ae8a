"""Steady power around a traced program; samplers polled as rarely as loses nothing."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tuner.power.base import PowerLevel, ProgramTimeline, Response, Sample, SensorInfo
from tuner.power.energy.programs import idle_level, joined, level
from tuner.power.energy.samples import SampleSeries

from tuner.joules.traces import EDGE_S, Recorder
from tuner.model.errors import PowerError

RING = SensorInfo("ring", "ring", "gpu", 0.02)
COUNTER = SensorInfo("counter", "counter", "gpu", 0.1)
LINE = ProgramTimeline(0.0, 3.0, 5.0, 10.0)


def series(watts: np.ndarray, period_s: float = 0.02) -> SampleSeries:
    return SampleSeries.of([Sample(i * period_s, float(w)) for i, w in enumerate(watts)])


def test_a_level_is_as_uncertain_as_its_noise() -> None:
    """The mean of noisy samples covers the power with its standard uncertainty, whatever the sensor's lag."""
    for response, least in ((Response(), 0.7), (Response("lag", capacitance_s=0.84), 0.2)):
        info, off = replace(RING, response=response), []
        for seed in range(100):
            watts = 100.0 + np.random.default_rng(seed).normal(0.0, 0.5, 150)
            found = level(series(watts), info, 0.0, 3.0)
            assert found is not None
            off.append((found.watts - 100.0) / found.sigma_w)

        assert least < np.sqrt(np.mean(np.square(off))) < 1.3


def test_power_that_drifts_is_told() -> None:
    """A GPU that was still cooling down while idle power was measured is told from an idle one."""
    noise = np.random.default_rng(1).normal(0.0, 0.3, 150)
    falling = level(series(np.linspace(130.0, 80.0, 150) + noise), RING, 0.0, 3.0)
    steady = level(series(100.0 + noise), RING, 0.0, 3.0)
    warming = level(series(np.linspace(100.0, 100.5, 150) + noise / 10.0), RING, 0.0, 3.0)

    assert falling is not None
    assert falling.unsteady
    assert falling.drift_w == pytest.approx(-25.0, abs=1.0)
    assert abs(falling.watts - 80.0) < falling.sigma_w
    assert steady is not None
    assert (steady.drift_w, steady.unsteady) == (0.0, False)
    assert warming is not None
    assert warming.drift_w > 0.0
    assert not warming.unsteady


def test_a_counter_tells_a_drift_too() -> None:
    """Three ticks say whether power was the same in both halves of the time."""
    steady, falling = (
        level(
            SampleSeries.of([Sample(t, j, 0.001) for t, j in zip((0.1, 1.5, 2.8, 2.9), joules, strict=True)]),
            COUNTER,
            *(0.0, 3.0),
        )
        for joules in ((0.0, 140.0, 270.0, 280.0), (0.0, 182.0, 286.0, 294.0))
    )

    assert steady is not None
    assert steady.watts == pytest.approx(100.0)
    assert steady.drift_w == 0.0
    assert falling is not None
    assert falling.drift_w == pytest.approx(-50.0)
    assert falling.unsteady


def test_idle_power_after_counts_too() -> None:
    """Idle power that has risen by the end is met half-way, and the rise is uncertainty."""
    times = np.arange(0.0, 10.0, 0.02)
    watts = series(np.where(times < 3.0, 100.0, np.where(times < 5.0, 500.0, 110.0)))
    before, both = (idle_level(watts, RING, replace(LINE, idle_after_s=after_s)) for after_s in (0.0, 3.0))

    assert before is not None
    assert both is not None
    assert (before.watts, both.watts) == pytest.approx((100.0, 105.0))
    assert both.sigma_w > before.sigma_w


def test_two_levels_are_joined_if_they_are_one() -> None:
    """Levels that agree make a better known one, others do not."""
    both = joined(PowerLevel(100.0, 0.2), PowerLevel(100.3, 0.2))

    assert both is not None
    assert both.watts == pytest.approx(100.15)
    assert both.sigma_w == pytest.approx(0.2 / 2**0.5)
    assert joined(PowerLevel(100.0, 0.2), PowerLevel(101.0, 0.2)) is None


STREAM = SensorInfo("stream", "stream", "gpu", 0.02, poll_interval_s=0.01)


class Time:
    """A clock that goes on when someone waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, duration_s: float) -> None:
        self.now_s += duration_s


class Ticking:
    """A sensor with a fresh sample every period, of which a late poll sees the last."""

    due_s = 0.0

    def __init__(self, info: SensorInfo, now: Time, *, stands: bool = False, fails: bool = False) -> None:
        self.info = info
        self._now, self._stands, self._fails = now, stands, fails
        self._seen = int(now() / info.period_s)

    def poll(self) -> list[Sample]:
        if self._fails:
            raise PowerError("gone")
        tick = int(self._now() / self.info.period_s)
        if tick == self._seen or self._stands:
            return []
        self._seen = tick
        return [Sample(tick * self.info.period_s, 1.0 * tick)]

    def close(self) -> None:
        """Nothing to release."""


@pytest.mark.parametrize("ticks", [1, 2])
def test_an_edge_waits_for_ticks(ticks: int) -> None:
    """A counter's next ticks are waited for, and a stream loses no sample meanwhile."""
    now = Time()
    recorder = Recorder([Ticking(COUNTER, now), Ticking(STREAM, now)], now=now)
    recorder.edge(now.wait, ticks)
    counter, stream = (channel.samples for channel in recorder.channels)

    assert len(counter) == ticks
    assert now() - counter[-1].time_s < 0.01
    assert len(stream) >= 4 * ticks
    gaps = [b.time_s - a.time_s for a, b in itertools.pairwise(stream)]
    assert max(gaps) < 1.5 * STREAM.period_s


def test_an_edge_is_not_waited_for_without_end() -> None:
    """A counter that stands still, or is gone, holds nothing up."""
    now = Time()
    recorder = Recorder([Ticking(COUNTER, now, stands=True)], now=now)
    recorder.edge(now.wait, 2)

    assert 2.0 * EDGE_S <= now() - 100.0 < 2.0 * EDGE_S + 0.01
    assert recorder.channels[0].samples == []
    gone = Recorder([Ticking(COUNTER, now, fails=True)], now=now)
    began_s = now()
    gone.edge(now.wait, 2)

    assert now() - began_s < 0.01
    assert gone.channels[0].failure == "counter stopped answering: gone"
