"""What every power sampler keeps, whatever it reads."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sampler_rigs import RIGS, Rig
from tuner.power.base import PowerSampler, Response
from tuner.power.energy.samples import screened

from tuner.model import registry
from tuner.model.errors import PowerError, SensorUnavailableError

CALIBRATED = Response("boxcar", window_s=0.0123, origin="calibrated")


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Each sampler in its world, where nobody can sleep."""

    def sleep(seconds: float) -> None:
        raise AssertionError(f"a sampler slept for {seconds} s")

    with RIGS[request.param](tmp_path) as world:
        monkeypatch.setattr(time, "sleep", sleep)
        world.advance(world.step_s)
        yield world


@pytest.fixture
def sampler(rig: Rig) -> Iterator[PowerSampler]:
    """An open sampler."""
    with closing(rig.reading().open()) as opened:
        yield opened


def test_every_sampler_of_the_registry_is_here() -> None:
    """No module of readings is left out of this suite."""
    here = {name.partition("-")[0] for name in RIGS}

    assert here >= {*registry.names("readings"), "simulated"}


def test_each_sample_comes_once_and_in_order(rig: Rig, sampler: PowerSampler) -> None:
    """Times increase strictly, none lies in the future, and the number of samples is that of the updates."""
    start_s = rig.now()
    samples = rig.watch(sampler, 20 * rig.period_s)

    times = [sample.time_s for sample in samples]
    assert all(a < b for a, b in itertools.pairwise(times))
    assert start_s - 3 * rig.period_s <= times[0]
    assert times[-1] <= rig.now()
    assert times[-1] > rig.now() - 3 * rig.period_s
    assert 14 <= len(samples) <= 25
    assert all(0.0 <= sample.time_sigma_s < rig.period_s for sample in samples)


def test_nothing_is_told_twice(rig: Rig, sampler: PowerSampler) -> None:
    """Right after a poll there is nothing new."""
    for _ in range(40):
        rig.advance(rig.period_s / 7.0)
        sampler.poll()
        assert sampler.poll() == []


def test_it_shows_the_power(rig: Rig, sampler: PowerSampler) -> None:
    """Watts, or the slope of the joules, are those that are drawn."""
    samples = rig.watch(sampler, 20 * rig.period_s)

    if sampler.info.kind == "counter":
        first, last = samples[0], samples[-1]
        watts = (last.value - first.value) / (last.time_s - first.time_s)
    else:
        watts = float(np.mean([sample.value for sample in samples]))
    assert watts == pytest.approx(rig.watts, rel=0.01)


def test_before_it_is_due_there_is_nothing(rig: Rig, sampler: PowerSampler) -> None:
    """``due_s`` promises that no sample comes earlier, and leaves none waiting."""
    found = 0
    end_s = rig.now() + 20 * rig.period_s
    while rig.now() < end_s:
        rig.advance(rig.step_s)
        early = rig.now() < sampler.due_s
        samples = sampler.poll()
        assert not (early and samples)
        found += len(samples)
    assert found >= 14


def test_polling_as_seldom_as_asked_misses_nothing(rig: Rig, sampler: PowerSampler) -> None:
    """Who polls every ``poll_interval_s``, or once afterwards where that is 0, gets every update."""
    interval_s = sampler.info.poll_interval_s or 10 * rig.period_s
    samples = rig.watch(sampler, 2.0 * max(10 * rig.period_s, interval_s), interval_s)

    gaps = np.diff([sample.time_s for sample in samples])
    assert np.median(gaps) == pytest.approx(rig.period_s, rel=0.2)
    assert max(gaps) < 2.5 * rig.period_s


def test_what_is_known_of_it_is_true(rig: Rig, sampler: PowerSampler) -> None:
    """Name, kind, scope and numbers are in order, and the period is that of the samples."""
    rig.watch(sampler, 12 * rig.period_s)
    info = sampler.info

    assert info.name == rig.name or info.name.startswith(f"{rig.name}:")
    assert info.kind in ("counter", "ring", "stream")
    assert info.scope
    assert info.period_s == pytest.approx(rig.period_s, rel=0.1)
    assert info.resolution >= 0.0
    assert (info.response.capacitance_s > 0) == (info.response.kind == "lag")
    assert (info.response.window_s > 0) == (info.response.kind in ("boxcar", "ramp"))
    assert info.response.origin in ("assumed", "published")


def test_a_calibrated_response_is_used(rig: Rig) -> None:
    """What was found on this board replaces what is assumed of the reading, asked for by its name."""
    asked = []

    def responses(name: str) -> Response | None:
        asked.append(name)
        return CALIBRATED if name == rig.name else None

    with closing(rig.reading(responses).open()) as sampler:
        assert sampler.info.response == CALIBRATED
    others = [reading for reading in rig.list_readings(responses) if reading.name != rig.name]
    for reading in others:
        with closing(reading.open()) as sampler:
            assert sampler.info.response != CALIBRATED
    assert rig.name in asked


def test_nothing_is_held_open_after_closing(rig: Rig) -> None:
    """Whatever readings a sensor has, opening and closing them, twice too, leaves no file open."""
    rig.reading().open().close()  # what a driver keeps for the process
    before = sorted(Path("/proc/self/fd").iterdir())
    for reading in rig.list_readings(lambda _: None):
        sampler = reading.open()
        sampler.close()
        sampler.close()

    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_closing_twice_is_harmless(rig: Rig) -> None:
    """Closing again changes nothing, neither for this sampler nor for another of the same sensor."""
    first, second = rig.reading().open(), rig.reading().open()
    first.close()
    first.close()

    assert len(rig.watch(second, 10 * rig.period_s)) >= 5
    second.close()
    with closing(rig.reading().open()) as third:
        assert len(rig.watch(third, 10 * rig.period_s)) >= 5


def test_a_dead_sensor_is_a_power_error(rig: Rig, sampler: PowerSampler) -> None:
    """A sensor that dies is told by a PowerError with its name or file, again and again."""
    rig.watch(sampler, 5 * rig.period_s)
    if rig.kill is None:
        pytest.skip("cannot die")
    rig.kill()

    for _ in range(2):
        with pytest.raises(PowerError, match=f"{rig.name.partition(':')[0]}|/sys/"):
            rig.watch(sampler, 10.0)
    sampler.close()


def test_zero_is_no_reading(rig: Rig, sampler: PowerSampler) -> None:
    """A sensor that answers with zeros, or counts nothing, shows no power, and cannot be opened."""
    rig.watch(sampler, 5 * rig.period_s)
    if rig.empty is None:
        pytest.skip("cannot show zeros")
    rig.empty()
    rig.watch(sampler, 2 * rig.period_s)
    samples = []
    with contextlib.suppress(PowerError):
        for _ in range(100):
            samples += rig.watch(sampler, 0.06)

    assert len(screened(samples, sampler.info)[0]) == 0 or min(sample.value for sample in samples) > 0
    if sampler.info.kind != "counter":  # which may have counted before
        with pytest.raises(SensorUnavailableError, match="reads 0"):
            rig.reading().open()


def test_a_dead_sensor_cannot_be_opened(rig: Rig) -> None:
    """What does not answer a read is unavailable, with a reason."""
    if rig.kill is None or rig.name == "replay":
        pytest.skip("cannot die before it is opened")
    reading = rig.reading()
    rig.kill()

    with pytest.raises(SensorUnavailableError, match=r"\w"):
        reading.open()
