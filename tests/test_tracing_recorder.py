"""Samplers polled as rarely as loses nothing."""

import itertools

import pytest
from tuner.power.base import Sample, SensorInfo

from tuner.joules.traces import EDGE_S, Recorder
from tuner.model.errors import PowerError

COUNTER = SensorInfo("counter", "counter", "gpu", 0.1)
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
