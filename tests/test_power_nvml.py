"""Power readings of NVML, through the real binding and a fake library."""

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_nvml_state import UUID, State, fake_nvml, fill_ring, library, script
from tuner.power.changes import ChangeSource
from tuner.power.meter import SamplingMeter
from tuner.power.nvml import NvmlSampler
from tuner.power.nvml_clocks import NvmlActuator

from tuner.errors import (
    PowerError,
    SensorUnavailableError,
)

NOT_SUPPORTED, LOST = 3, 15


class HandClock:
    """Time that moves when told, and by ``step_s`` at each look."""

    def __init__(self, time_s: float = 1000.0, step_s: float = 0.0) -> None:
        self.time_s = time_s
        self.step_s = step_s

    def __call__(self) -> float:
        self.time_s += self.step_s
        return self.time_s


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    """The state of the fake's one GPU, on which every power reading answers."""
    with fake_nvml(tmp_path) as state:
        state.millijoules = 5_000_000
        state.instant_milliwatts = 400_000
        state.usage_milliwatts = 300_000
        fill_ring(state, [(20_000 * i, 100_000 + i) for i in range(1, 6)])
        yield state


def opened(now: HandClock | None = None, **options: float) -> NvmlSampler:
    return NvmlSampler.open(UUID, now=now or HandClock(), wall=lambda: 1e9, **options)


def test_the_best_reading_that_answers_is_chosen(nvml: State) -> None:
    """Counter before ring before instant power before usage, each when those before it fail a read."""
    seen = []
    for failing in ("energy", "ring", "instant", "usage"):
        sampler = opened()
        seen.append((sampler.info.name, sampler.info.kind))
        sampler.close()
        setattr(nvml, failing, NOT_SUPPORTED)

    assert seen == [
        ("nvml-energy-counter", "counter"),
        ("nvml-power-ring", "ring"),
        ("nvml-power-instant", "stream"),
        ("nvml-power-usage", "stream"),
    ]
    with pytest.raises(SensorUnavailableError, match=r"energy-counter: Not Supported.*usage: Not Supp"):
        opened()


def test_a_counter_that_reads_zero_is_none(nvml: State) -> None:
    """A reading that answers with a constant zero is passed over."""
    nvml.millijoules = 0

    sampler = opened()

    assert sampler.info.kind == "ring"
    sampler.close()


def test_an_empty_ring_is_none(nvml: State) -> None:
    """A ring that holds no samples is passed over."""
    nvml.energy, nvml.ring_count = NOT_SUPPORTED, 0

    sampler = opened()

    assert sampler.info.name == "nvml-power-instant"
    sampler.close()


def test_a_gpu_is_found_by_uuid_or_index(nvml: State) -> None:
    """CUDA's UUID and NVML's index open a GPU; what names none is said."""
    assert nvml.sets == 0
    NvmlSampler.open(0).close()
    with pytest.raises(SensorUnavailableError, match="cannot open GPU GPU-other"):
        NvmlSampler.open("GPU-other")


def test_no_driver_is_said(nvml: State) -> None:
    """NVML without a driver is a sensor that is not available."""
    nvml.init = 9
    with pytest.raises(SensorUnavailableError, match="Driver Not Loaded"):
        opened()


def test_another_library_is_not_mixed_in(nvml: State) -> None:
    """A process has one NVML; a second is refused, as is one that cannot be loaded."""
    assert nvml.uuid
    NvmlSampler.open(0, library()).close()
    with pytest.raises(SensorUnavailableError, match="another NVML"):
        NvmlSampler.open(0, "/nowhere/libnvidia-ml.so.1")


def test_a_tick_is_dated_between_two_reads(nvml: State) -> None:
    """A change lies between the begin of the last old read and the end of the first new one."""
    clock = HandClock()
    sampler = opened(clock)
    before = clock.time_s
    clock.time_s += 0.006
    nvml.millijoules += 7

    (tick,) = sampler.poll()

    assert tick.value == pytest.approx(5000.007)
    assert tick.time_s == pytest.approx(before + 0.003)
    assert tick.time_sigma_s == pytest.approx(0.006 / math.sqrt(12))
    assert sampler.poll() == []
    sampler.close()


def test_a_tick_after_a_pause_is_no_sample(nvml: State) -> None:
    """A change first seen after a long pause cannot be dated; the next one can."""
    clock = HandClock()
    sampler = opened(clock)
    clock.time_s += 10.0
    nvml.millijoules += 7
    assert sampler.poll() == []
    clock.time_s += 0.001
    nvml.millijoules += 7

    assert len(sampler.poll()) == 1
    sampler.close()


def test_the_period_is_measured(nvml: State) -> None:
    """The median gap between samples replaces the expected one."""
    clock = HandClock()
    sampler = opened(clock)
    assert sampler.info.period_s == 0.1
    for _ in range(8):
        clock.time_s += 0.01
        nvml.millijoules += 100
        sampler.poll()

    assert sampler.info.period_s == pytest.approx(0.01)
    sampler.close()


def test_known_rhythm_spares_reads() -> None:
    """Right after an update whose rhythm is known nothing is read; near the next one every poll reads."""
    clock, reads = HandClock(0.0), []

    def read() -> float:
        reads.append(clock.time_s)
        return float(int(clock.time_s / 0.1 + 1e-9))

    source = ChangeSource(read, 1.0, clock)
    ticks = []
    for step in range(1, 2001):
        clock.time_s = step * 0.001
        ticks += source.poll()

    assert [t.value for t in ticks] == list(range(1, 21))
    assert max(t.time_sigma_s for t in ticks) < 0.001
    assert len([time for time in reads if time > 1.0]) < 200


def test_the_ring_is_mapped_from_the_wall_clock(nvml: State) -> None:
    """Stamps of the host's real-time clock become times of the meter's clock, each sample once."""
    nvml.energy = NOT_SUPPORTED
    wall_us = 1_700_000_000_000_000
    fill_ring(nvml, [(wall_us - 40_000, 90_000), (wall_us - 20_000, 91_000)])
    clock = HandClock(50.0)
    sampler = NvmlSampler.open(UUID, now=clock, wall=lambda: wall_us * 1e-6)
    fill_ring(nvml, [(wall_us - 20_000, 91_000), (wall_us, 92_000), (wall_us + 20_000, 93_000)])

    samples = sampler.poll()

    assert [(round(s.time_s, 4), s.value) for s in samples] == [(50.0, 92.0), (50.02, 93.0)]
    assert sampler.poll() == []
    sampler.close()


def test_the_ring_is_mapped_by_its_newest_sample_else(nvml: State) -> None:
    """Stamps since another origin are placed so that the newest of the first poll was just taken."""
    nvml.energy = NOT_SUPPORTED
    sampler = opened(HandClock(50.0))
    fill_ring(nvml, [(20_000 * i, 100_000) for i in range(4, 8)])

    samples = sampler.poll()

    assert [round(s.time_s, 4) for s in samples] == [50.02, 50.04]
    sampler.close()


@pytest.mark.parametrize(
    ("name", "capacitance_s", "window_s"), [(b"Tesla K20c", 0.833, 0.0), (b"Tesla K40m", 0.79, 0.0)]
)
def test_kepler_starts_from_the_papers_capacitance(
    nvml: State, name: bytes, capacitance_s: float, window_s: float
) -> None:
    """K20 and K40 boards have a lag with the C published below equation (6) until one is fitted."""
    nvml.energy = nvml.ring = nvml.instant = NOT_SUPPORTED
    nvml.name, nvml.architecture = name, 2

    sampler, fitted = opened(), opened(capacitance_s=0.8)

    assert (sampler.info.response.capacitance_s, sampler.info.response.window_s) == (capacitance_s, window_s)
    assert sampler.info.response.capacitance_sigma_s > 0
    assert (fitted.info.response.capacitance_s, fitted.info.response.capacitance_sigma_s) == (0.8, 0.0)
    sampler.close()
    fitted.close()


@pytest.mark.parametrize(
    ("name", "architecture", "window_s"),
    [(b"NVIDIA H200", 9, 1.0), (b"NVIDIA A100-SXM4-40GB", 7, 0.1), (b"Tesla P100", 4, 0.1)],
)
def test_power_usage_is_a_mean_over_a_second_since_ampere(
    nvml: State, name: bytes, architecture: int, window_s: float
) -> None:
    """The averaging window of nvmlDeviceGetPowerUsage is known, and no C is assumed where none was fitted."""
    nvml.energy = nvml.ring = nvml.instant = NOT_SUPPORTED
    nvml.name, nvml.architecture = name, architecture

    sampler = opened()

    assert (sampler.info.response.window_s, sampler.info.response.capacitance_s) == (window_s, 0.0)
    sampler.close()


def test_a_lost_gpu_is_a_power_error(nvml: State) -> None:
    """No exception of the binding crosses the border, in use as little as at opening."""
    sampler = opened()
    nvml.energy = LOST

    with pytest.raises(PowerError, match="GPU is lost") as caught:
        sampler.poll()

    assert caught.value.__cause__ is not None
    sampler.close()


def test_meter_and_counter_agree_with_the_gpu(nvml: State) -> None:
    """A polled counter gives the power behind its ticks, within its stated uncertainty."""
    script(nvml, (0.0, 500.0))
    nvml.counter_sensor.period_us = 4000
    clocks = NvmlActuator(UUID)
    meter = SamplingMeter(NvmlSampler.open(UUID), clocks, time.monotonic)
    pause = threading.Event()
    with meter.recording() as recording:
        start_s = time.monotonic()
        while len(recording._samples) < 12:
            pause.wait(0.004)
        end_s = time.monotonic()

    reading = recording.reading(start_s, end_s)

    assert reading is not None
    assert reading.watts == pytest.approx(500.0, abs=6.0 * reading.uncertainty_w)
    assert reading.sensor == "nvml-energy-counter"
    meter.close()
    clocks.close()
