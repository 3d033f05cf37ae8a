"""The recording that regions share: joules of long regions in constant memory, sensors that fail."""

import gc
import math
import weakref

import numpy as np
import pytest
from power_source import IDLE_W, Source
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.errors import PowerError
from tuner.interfaces import PowerSampler, Sample
from tuner.regions.recording import KEEP_S, BackgroundRecording
from tuner.regions.span import RecordedSpan


def sensors(source: Source) -> list[PowerSampler]:
    """The counter and the ring of an H200."""
    return [
        SimulatedSampler(source, "counter", noise=0.0005),
        SimulatedSampler(source, "ring", period_s=0.02, capacitance_s=0.0132, noise=0.003),
    ]


def recorded(source: Source, samplers: list[PowerSampler] | None = None) -> BackgroundRecording:
    """A recording that is polled by hand, of a GPU that was idle for some seconds."""
    made = samplers or sensors(source)
    source.draw(3.0, IDLE_W)
    return BackgroundRecording(made, source.now_s, background=False)


def play(recording: BackgroundRecording, source: Source, seconds: float, watts: float) -> None:
    """Let a load run, and poll every second."""
    for _ in range(round(seconds)):
        source.draw(1.0, watts)
        recording.step()
        del source.pieces[:-10]


def begun(recording: BackgroundRecording) -> RecordedSpan:
    span = RecordedSpan(recording.now())
    recording.begin(span)
    return span


@pytest.mark.parametrize("first", [0, 1], ids=["counter and ring", "ring"])
def test_a_quarter_of_an_hour_takes_no_more_memory_than_a_minute(first: int) -> None:
    """Samples older than a minute are dropped, and a region over them keeps its joules and its peak."""
    source = Source()
    recording = recorded(source, sensors(source)[first:])
    span = begun(recording)
    play(recording, source, 120, 600.0)
    early = sum(len(channel.snapshot()) for channel in recording._channels)
    play(recording, source, 900, 300.0)
    late = sum(len(channel.snapshot()) for channel in recording._channels)
    recording.end(span, source.now_s())
    play(recording, source, 2, IDLE_W)
    recording.wait(span)

    found = span.known()
    assert late <= max(early, (KEEP_S + 10.0) * 60)
    assert found.joules == pytest.approx(120 * 600.0 + 900 * 300.0, rel=1e-3)
    assert found.sigma_j < 0.005 * found.joules
    assert found.peak_w == pytest.approx(600.0, rel=0.02)


def test_regions_that_are_asked_late_are_known() -> None:
    """A region that ended minutes ago has the joules that it had; one that nobody holds costs nothing."""
    source = Source()
    recording = recorded(source)
    play(recording, source, 1, IDLE_W)
    outer, kept, dropped = begun(recording), begun(recording), begun(recording)
    play(recording, source, 3, 500.0)
    for span in (kept, dropped):
        recording.end(span, source.now_s())
    gone = weakref.ref(dropped)
    del span, dropped
    gc.collect()
    assert gone() is None
    play(recording, source, 200, 100.0)
    recording.wait(kept)
    assert kept.known().joules == pytest.approx(1500.0, rel=0.01)
    recording.end(outer, source.now_s())
    play(recording, source, 2, 100.0)
    recording.wait(outer)
    assert outer.known().joules == pytest.approx(1500.0 + 20_000.0, rel=0.01)


def test_the_recording_ends_with_the_last_region() -> None:
    """Nothing is polled before the first region, nor once the sensors have shown the end of the last."""
    source = Source()
    recording = recorded(source)
    assert recording.step() == math.inf
    one, other = begun(recording), begun(recording)
    source.draw(1.0, 400.0)
    assert recording.step() < math.inf
    recording.end(one, source.now_s())
    source.draw(5.0, 400.0)
    assert recording.step() < math.inf
    recording.end(other, source.now_s())
    source.draw(0.1, IDLE_W)
    assert recording.step() < math.inf
    assert not recording.shown(other)
    source.draw(3.0, IDLE_W)
    before = recording._channels[0].snapshot()
    assert recording.step() == math.inf
    assert recording._channels[0].snapshot() == before


def test_overlapping_regions_have_their_own_joules() -> None:
    """Regions that begin and end in any order share the samples."""
    source, random = Source(), np.random.default_rng(8)
    recording = recorded(source)
    spans, starts = [], []
    for watts in random.uniform(100.0, 600.0, 6):
        spans.append(begun(recording))
        starts.append(source.now_s())
        source.draw(2.0, float(watts))
        recording.step()
    end_s = source.now_s()
    for span in reversed(spans):
        recording.end(span, end_s)
    source.draw(1.0, IDLE_W)
    recording._until_s = math.inf
    for channel in recording._channels:
        channel.due_s = 0.0
    recording.step()
    for span, start_s in zip(spans, starts, strict=True):
        recording.wait(span)
        found, joules = span.known(), source.joules(start_s, end_s)
        assert abs(found.joules - joules) < 3.0 * found.sigma_j


class Failing(SimulatedSampler):
    """A sensor that fails when told."""

    broken = False

    def poll(self) -> list[Sample]:
        if self.broken:
            raise PowerError(f"{self.info.name}: GPU is lost")
        samples: list[Sample] = super().poll()
        return samples


def test_one_sensor_may_fail() -> None:
    """Where the counter is lost the ring goes on, and the region says so; without both nothing does."""
    source = Source()
    counter, ring = Failing(source, "counter"), Failing(source, "ring", period_s=0.02)
    recording = recorded(source, [counter, ring])
    span = begun(recording)
    play(recording, source, 2, 400.0)
    counter.broken = True
    play(recording, source, 20, 400.0)
    recording.end(span, source.now_s())
    play(recording, source, 2, IDLE_W)
    recording.wait(span)
    assert "simulated-counter stopped answering: GPU is lost" in span.known().notes
    assert span.known().joules == pytest.approx(22 * 400.0, rel=0.02)

    ring.broken = True
    lost = begun(recording)
    play(recording, source, 300, 400.0)
    assert all(len(channel.snapshot()) < KEEP_S * 60 for channel in recording._channels)
    recording.end(lost, source.now_s())
    recording.wait(lost)
    with pytest.raises(PowerError, match=r"simulated-counter stopped.*; simulated-ring stopped answering"):
        lost.known()


def test_an_open_region_has_no_energy() -> None:
    """Waiting for it returns at once."""
    recording = recorded(Source())
    span = begun(recording)
    recording.wait(span)
    assert not recording.shown(span)
    with pytest.raises(PowerError, match="has not ended"):
        span.known()
