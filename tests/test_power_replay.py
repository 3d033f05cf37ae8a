"""Replayed traces: the samples of a file, at the pace they were recorded at."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampler_rigs import HandClock
from tuner.power.base import Reading, Response, Sample, SensorInfo
from tuner.power.sensors.recorded import ReplaySampler, TraceFile, reading

from tuner.model.errors import InputError, PowerError, SensorUnavailableError

INFO = SensorInfo(
    "nvml-power-ring",
    "ring",
    "gpu",
    0.02,
    poll_interval_s=0.25,
    response=Response("lag", capacitance_s=0.017),
)


def trace(*times_s: float) -> TraceFile:
    return TraceFile(
        INFO, tuple(Sample(time_s, 100.0 + number, 0.001) for number, time_s in enumerate(times_s))
    )


def found(file: Path, clock: HandClock, **options: Any) -> Reading:
    offered: Reading = reading(file, now=clock, **options)
    return offered


def test_samples_come_when_their_time_has_come(tmp_path: Path) -> None:
    """The first sample is due at once, the others as long after it as they were recorded, each once."""
    path, clock = tmp_path / "trace.json", HandClock(50.0)
    trace(7.0, 7.02, 7.05).write(path)
    sampler = found(path, clock).open()

    assert sampler.due_s == 50.0
    assert sampler.poll() == [Sample(50.0, 100.0, 0.001)]
    assert sampler.poll() == []
    assert sampler.due_s == pytest.approx(50.02)
    clock.time_s = 51.0
    assert [(round(s.time_s, 6), s.value) for s in sampler.poll()] == [(50.02, 101.0), (50.05, 102.0)]
    sampler.close()


def test_a_replay_says_that_it_is_one(tmp_path: Path) -> None:
    """Name and scope tell what was recorded; the response is the recorded one."""
    path = tmp_path / "trace.csv"
    trace(0.0, 0.02).write(path)

    info = found(path, HandClock(0.0)).open().info

    assert (info.name, info.scope, info.kind) == ("replay:nvml-power-ring", "gpu", "ring")
    assert info.response == INFO.response
    assert (info.period_s, info.poll_interval_s) == (0.02, 0.005)


def test_the_end_is_told_after_the_last_sample() -> None:
    """A trace that is over is a sensor that stopped answering, once nothing is left to tell."""
    clock = HandClock(0.0)
    sampler = ReplaySampler(trace(3.0, 3.02), clock)
    clock.time_s = 10.0
    assert len(sampler.poll()) == 2

    with pytest.raises(PowerError, match="replay:nvml-power-ring: the trace has ended"):
        sampler.poll()


def test_the_last_period_is_no_end() -> None:
    """Between the last sample and the next that would be due nothing is wrong."""
    clock = HandClock(0.0)
    sampler = ReplaySampler(trace(3.0, 3.02), clock)
    clock.time_s = 0.03
    sampler.poll()
    clock.time_s = 0.06

    assert sampler.poll() == []
    assert sampler.due_s == pytest.approx(0.1)


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=20), st.lists(st.floats(0.0, 12.0), max_size=10))
def test_every_sample_comes_once_and_in_order(times_s: list[float], polls_s: list[float]) -> None:
    """However often it is polled, and though time ran backwards in the trace, nothing is lost or changed."""
    clock = HandClock(5.0)
    sampler = ReplaySampler(trace(*times_s), clock)
    values: list[float] = []
    for poll_s in [*sorted(polls_s), 10.0, 30.0]:
        clock.time_s = 5.0 + poll_s
        if len(values) < len(times_s):
            values += [sample.value for sample in sampler.poll()]

    assert values == [100.0 + number for number in range(len(times_s))]


def test_reasons_for_no_replay(tmp_path: Path) -> None:
    """An empty trace and a file that is none are told apart, each with what it is about."""
    clock, empty, broken = HandClock(0.0), tmp_path / "empty.json", tmp_path / "broken.json"
    trace().write(empty)
    broken.write_text("{")

    with pytest.raises(
        SensorUnavailableError, match=r"empty\.json: the trace of nvml-power-ring holds no samples"
    ):
        found(empty, clock).open()
    with pytest.raises(InputError, match=r"broken\.json: .*truncated"):
        found(broken, clock).open()
