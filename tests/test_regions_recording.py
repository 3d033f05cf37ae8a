"""The recording that regions share: joules of long regions in constant memory, sensors that fail."""

import functools
import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
from power_source import IDLE_W, Source
from tuner.power.base import PowerSampler, Sample, SpanEnergy
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.joules.recording import (
    KEEP_S,
    MOST_STEPS,
    BackgroundRecording,
    RecordedSpan,
    SimulatedLoad,
    simulated_samplers,
)
from tuner.model.errors import PowerError


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
def test_six_minutes_take_no_more_memory_than_two(first: int) -> None:
    """Samples older than a minute are dropped, and a region over them keeps its joules and its peak."""
    source = Source()
    recording = recorded(source, sensors(source)[first:])
    span = begun(recording)
    play(recording, source, 120, 600.0)
    early = sum(len(channel.snapshot()) for channel in recording._channels)
    play(recording, source, 240, 300.0)
    late = sum(len(channel.snapshot()) for channel in recording._channels)
    recording.end(span, source.now_s())
    play(recording, source, 2, IDLE_W)
    recording.wait(span)

    found = span.known()
    assert late <= max(early, (KEEP_S + 10.0) * 60)
    assert found.joules == pytest.approx(120 * 600.0 + 240 * 300.0, rel=1e-3)
    assert found.sigma_j < 0.005 * found.joules
    assert found.peak_w == pytest.approx(600.0, rel=0.02)
    assert MOST_STEPS / 2 < len(found.watts) <= MOST_STEPS
    assert found.edges_s[-1] - found.edges_s[0] == pytest.approx(360.0)
    early_w, late_w = (part.mean() for part in np.split(found.watts, [int(np.sum(found.edges_s < 123.0))]))
    assert (early_w, late_w) == pytest.approx((600.0, 300.0), rel=0.02)


@pytest.mark.parametrize(
    "sensors", ["counter and ring", "counter", "slow counter", "ring", "mean", "running"]
)
def test_power_of_a_region_follows_a_step(sensors: str) -> None:
    """Its steps of power tile the region and hold its joules, and those of a load are at the load's power."""
    source = Source()
    recording = recorded(source, [SimulatedSampler(source, **options) for options in SENSORS[sensors]])
    let_pass(recording, source, 2.0, IDLE_W)
    span = begun(recording)
    for watts in (IDLE_W, 400.0, IDLE_W):
        let_pass(recording, source, 4.003, watts)
    end_s = source.now_s()
    recording.end(span, end_s)
    let_pass(recording, source, 5.0, IDLE_W)
    recording.wait(span)

    found = span.known()
    assert (found.edges_s[0], found.edges_s[-1]) == (span.start_s, end_s)
    lengths_s = np.diff(found.edges_s)
    assert lengths_s @ found.watts == pytest.approx(found.joules, abs=3.0 * found.sigma_j + 1.0)
    since_s = found.edges_s - span.start_s
    loaded = (since_s[:-1] > 4.003) & (since_s[1:] < 8.006)
    assert found.watts[loaded].mean() == pytest.approx(400.0, rel=0.01)
    assert np.abs(found.watts[loaded] - 400.0).max() < 0.1 * 400.0


def test_a_region_that_is_cancelled_is_gone() -> None:
    """The simulated GPU stops computing, and the recording ends as it does after any region."""
    load = SimulatedLoad("h200")
    recording = BackgroundRecording(simulated_samplers(load), load=load, background=False)
    span = begun(recording)
    recording.cancel(span)
    assert load._open == 0
    assert not recording._open


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


SENSORS: dict[str, list[dict[str, Any]]] = {
    "counter and ring": [{"kind": "counter"}, {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.0132}],
    "counter": [{"kind": "counter", "period_s": 0.02}],
    "slow counter": [{"kind": "counter", "period_s": 0.5}],
    "ring": [{"kind": "ring", "period_s": 0.02, "capacitance_s": 0.0132, "delay_s": 0.0033}],
    "mean": [{"kind": "stream", "period_s": 0.1, "window_s": 0.1}],
    "seconds": [{"kind": "stream", "period_s": 1.0, "window_s": 1.0}],
    "running": [{"kind": "stream", "period_s": 0.1, "window_s": 1.0}],
    "late": [{"kind": "stream", "period_s": 0.1, "window_s": 0.1, "delay_s": 1.5}],
}


LATE_S = {"slow counter": 1.51, "seconds": 4.01, "running": 1.0, "late": 1.91}
"""From an end to a sample that tells what was after it, where that is longer than the shortest question."""


class Standing(SimulatedSampler):
    """A sensor that shows nothing after its first second."""

    def poll(self) -> list[Sample]:
        return [sample for sample in super().poll() if sample.time_s < 4.0]


def let_pass(recording: BackgroundRecording, source: Source, seconds: float, watts: float) -> None:
    """Let a load run, and poll when the recording asks for it, as its thread does."""
    end_s = source.now_s() + seconds
    while source.now_s() < end_s:
        due_s = max(recording.step(), source.now_s() + 0.001)
        source.draw(min(due_s, end_s) - source.now_s(), watts)


@functools.cache
def step_of_power(sensors: str, seconds: float, ask_s: float) -> tuple[SpanEnergy, float, float]:
    """Energy of a region in which alone there is a load, how long it was waited for, and the truth."""
    source = Source()
    recording = recorded(source, [SimulatedSampler(source, **options) for options in SENSORS[sensors]])
    with_load = begun(recording)
    let_pass(recording, source, 0.013, IDLE_W)
    source.draw(seconds, 400.0)
    recording.end(with_load, source.now_s())
    truth_j, end_s = source.joules(3.0, source.now_s()), source.now_s()
    let_pass(recording, source, ask_s, IDLE_W)
    until_s = source.now_s() + 10.0
    while not recording.shown(with_load) and source.now_s() < until_s:
        recording._hasten(end_s)  # as ``wait`` does, which has no thread here
        let_pass(recording, source, 0.001, IDLE_W)
    recording.wait(with_load)
    return with_load.known(), source.now_s() - end_s - ask_s, truth_j


@pytest.mark.parametrize("ask_s", [0.6, 2.0, 60.0])
@pytest.mark.parametrize("seconds", [0.05, 0.7])
@pytest.mark.parametrize("sensors", SENSORS)
def test_a_step_is_known_whenever_it_is_asked(sensors: str, seconds: float, ask_s: float) -> None:
    """A region asked for late has the joules it has at once, and what can have been shown is not awaited."""
    at_once, _, truth_j = step_of_power(sensors, seconds, 0.0)
    late, waited_s, _ = step_of_power(sensors, seconds, ask_s)
    assert waited_s <= max(0.05, LATE_S.get(sensors, 0.0) - ask_s)
    assert abs(late.joules - truth_j) <= 2.0 * late.sigma_j
    assert late.joules == pytest.approx(at_once.joules, abs=0.3 * at_once.sigma_j)
    assert late.sigma_j <= 1.01 * at_once.sigma_j
    assert late.notes == at_once.notes


def test_what_was_not_awaited_is_told() -> None:
    """A region that is settled before its sensors have shown its end says so."""
    source = Source()
    recording = recorded(source)
    span = begun(recording)
    source.draw(1.0, IDLE_W)
    recording.step()
    source.draw(0.05, 400.0)
    recording.end(span, source.now_s())
    recording.wait(span, 0.0)
    assert [note.partition(":")[0] for note in span.known().notes] == ["not-shown", "not-shown"]


def test_a_sensor_that_stands_still_is_not_awaited_for_good() -> None:
    """The recording ends some seconds after the last region, whatever its sensors show."""
    source = Source()
    recording = recorded(source, [Standing(source, "ring", period_s=0.02)])
    span = begun(recording)
    let_pass(recording, source, 1.0, 400.0)
    recording.end(span, source.now_s())
    let_pass(recording, source, 5.0, 400.0)
    assert recording.step() == math.inf
    assert recording.shown(span)
    recording.wait(span)
    assert any(note.startswith("not-shown: simulated-ring") for note in span.known().notes)


def test_nobody_waits_for_a_recording_that_is_closed() -> None:
    """A region asked for when the process ends has what was shown until then."""
    source = Source()
    recording = BackgroundRecording([Standing(source, "ring", period_s=0.02)], source.now_s)
    span = begun(recording)
    source.draw(0.5, 400.0)
    recording.end(span, source.now_s())
    assert recording.close()
    assert recording.shown(span)
    recording.wait(span)
    assert span.energy is not None or span.problem


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
    assert recording.step() == math.inf
    assert recording.shown(other)
    before = recording._channels[0].snapshot()
    source.draw(3.0, IDLE_W)
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
    for span, start_s in zip(spans, starts, strict=True):
        recording.wait(span)
        found, joules = span.known(), source.joules(start_s, end_s)
        assert abs(found.joules - joules) < 3.0 * found.sigma_j


@pytest.mark.parametrize("seconds", [0.5, 6.0])
def test_a_counter_that_stands_still_misleads_nobody(seconds: float) -> None:
    """What the ring beside it shows counts, and the region says that the counter has not shown its end."""
    source = Source()
    recording = recorded(
        source, [Standing(source, "counter"), SimulatedSampler(source, "ring", period_s=0.02)]
    )
    warm = begun(recording)
    let_pass(recording, source, 2.0, IDLE_W)
    span = begun(recording)
    let_pass(recording, source, seconds, 400.0)
    recording.end(span, source.now_s())
    let_pass(recording, source, 5.0, IDLE_W)
    recording.wait(span)
    recording.cancel(warm)

    found = span.known()
    assert found.joules == pytest.approx(seconds * 400.0, abs=3.0 * found.sigma_j)
    assert found.sigma_j < 0.2 * found.joules
    assert any(note.startswith("not-shown: simulated-counter") for note in found.notes)


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
