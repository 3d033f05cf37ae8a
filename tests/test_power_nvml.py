"""Readings of NVML, health and temperature among them, through the real binding and a fake library."""

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_nvml_state import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UUID,
    PlayedClock,
    State,
    count,
    fail,
    fill_ring,
    h200_at,
    library,
    lose,
    script,
    sensors_of_h200,
)
from hypothesis import given
from hypothesis import strategies as st
from jetson_trees import write
from tuner.power.base import PowerSampler, Response, Sample
from tuner.power.energy.meter import SampledRecording
from tuner.power.nvml.library import Thermometer, health, in_rhythm
from tuner.power.nvml.power_readings import NvmlSampler, readings
from tuner.power.sensors.changes import ChangeSource

from tuner.model.errors import PowerError, SensorUnavailableError

COUNTER, RING, INSTANT, AVERAGE, USAGE = (
    *("nvml-energy-counter", "nvml-power-ring", "nvml-power-instant"),
    *("nvml-power-average", "nvml-power-usage"),
)


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with h200_at(tmp_path, 500.0) as state:
        yield state


@pytest.fixture
def clock(nvml: State) -> PlayedClock:
    """The time of that GPU."""
    return PlayedClock(nvml)


def listed(clock: PlayedClock, **responses: Response) -> dict[str, PowerSampler | str]:
    """What opening every reading gives, in order: a sampler, or why there is none."""
    found: dict[str, PowerSampler | str] = {}
    calibrated = {name.replace("_", "-"): response for name, response in responses.items()}
    for reading in readings(UUID, responses=calibrated.get, now=clock, wall=clock.wall):
        try:
            found[reading.name] = reading.open()
        except SensorUnavailableError as error:  # noqa: PERF203 - five readings
            found[reading.name] = str(error)
    return found


def opened(name: str, clock: PlayedClock, **options: Any) -> PowerSampler:
    """The sampler of one reading."""
    ways = readings(UUID, responses=lambda _: None, now=clock, wall=clock.wall, **options)
    sampler: PowerSampler = next(reading for reading in ways if reading.name == name).open()
    return sampler


def watch(
    sampler: PowerSampler, clock: PlayedClock, duration_s: float, step_s: float = 0.002
) -> list[Sample]:
    """Poll for a while."""
    samples = []
    end_s = clock() + duration_s
    while clock() < end_s:
        clock.advance(max(step_s, min(sampler.due_s, end_s) - clock()))
        samples += sampler.poll()
    return samples


def test_every_reading_opens(nvml: State, clock: PlayedClock) -> None:
    """All five readings of an H200, best first, are of the GPU; nothing is set."""
    found = listed(clock)

    assert list(found) == [COUNTER, RING, AVERAGE, USAGE, INSTANT]
    for name, sampler in found.items():
        assert not isinstance(sampler, str), sampler
        assert (sampler.info.name, sampler.info.scope) == (name, "gpu")
        sampler.close()
    assert (nvml.sets, nvml.resets) == (0, 0)


def test_each_reading_stands_for_itself(nvml: State, clock: PlayedClock) -> None:
    """A reading that fails a read is unavailable with NVML's reason; the others are not touched by it."""
    nvml.energy, nvml.usage = NOT_SUPPORTED, NO_PERMISSION

    found = listed(clock)

    assert found[COUNTER] == "nvml-energy-counter: Not Supported"
    assert found[USAGE] == "nvml-power-usage: Insufficient Permissions"
    samplers = [found[name] for name in (RING, AVERAGE, INSTANT)]
    assert not any(isinstance(sampler, str) for sampler in samplers)


def test_a_board_without_readings_has_none(nvml: State, clock: PlayedClock) -> None:
    """NVML that initialises where no power call answers, as on an Orin, leaves no reading to open."""
    nvml.energy = nvml.ring = nvml.instant = nvml.average = nvml.usage = NOT_SUPPORTED

    assert set(listed(clock).values()) == {
        f"{name}: Not Supported" for name in (COUNTER, RING, INSTANT, AVERAGE, USAGE)
    }


def test_a_reading_of_zero_is_none(nvml: State, clock: PlayedClock) -> None:
    """A reading that answers with a constant zero is unavailable, as a ring without samples."""
    for name in ("counter", "ring", "instant", "average", "usage"):
        getattr(nvml, f"{name}_sensor").period_us = 0

    found = listed(clock)

    assert found.pop(RING) == "nvml-power-ring: holds no samples"
    assert found == {name: f"{name}: reads 0" for name in (COUNTER, INSTANT, AVERAGE, USAGE)}


@pytest.mark.parametrize("mute", ["fails", "zero"])
def test_module_scope_stands_in(nvml: State, clock: PlayedClock, mute: str) -> None:
    """Where power fields fail for the GPU, as on a GH200, or are 0, the module's are read and called so."""
    if mute == "fails":
        nvml.instant = NOT_SUPPORTED
    else:
        script(nvml, (0.0, 0.0))
        nvml.instant_sensor.noise_milliwatts = 0
    nvml.module, nvml.rest_milliwatts = 0, 100_000

    sampler = opened(INSTANT, clock)

    assert sampler.info.scope == "module"
    if mute == "zero":
        script(nvml, (0.0, 500.0))
    assert watch(sampler, clock, 0.5)[-1].value == pytest.approx(600.0, rel=0.01)
    sampler.close()


def test_a_gpu_is_found_by_uuid_or_index(nvml: State) -> None:
    """CUDA's UUID and NVML's index open a GPU; what names none is a reading that says so."""
    nvml.gpu_count = 2
    script(nvml.second, (0.0, 300.0))
    sensors_of_h200(nvml.second)
    for gpu, watts in ((0, 500.0), (1, 300.0)):
        sampler = readings(gpu, responses=lambda _: None)[-1].open()
        assert isinstance(sampler, NvmlSampler)
        assert isinstance(sampler._source, ChangeSource)
        assert sampler._source._last * 1e-3 == pytest.approx(watts, rel=0.01)
        sampler.close()

    (reading,) = readings("GPU-other", responses=lambda _: None)
    assert reading.name == "nvml"
    with pytest.raises(SensorUnavailableError, match="cannot open GPU GPU-other"):
        reading.open()


def test_no_driver_is_said(nvml: State) -> None:
    """NVML without a driver is a reading that is not available."""
    nvml.init = 9
    (reading,) = readings(UUID, responses=lambda _: None)
    with pytest.raises(SensorUnavailableError, match="Driver Not Loaded"):
        reading.open()


def test_another_library_is_not_mixed_in(nvml: State) -> None:
    """A process has one NVML; a second is refused."""
    assert nvml.uuid
    readings(0, responses=lambda _: None, library=library())[0].open().close()
    (reading,) = readings(0, responses=lambda _: None, library="/nowhere/libnvidia-ml.so.1")
    with pytest.raises(SensorUnavailableError, match="another NVML"):
        reading.open()


def test_a_calibrated_response_replaces_the_expected(nvml: State, clock: PlayedClock) -> None:
    """What was found on this very board comes first, and a reading found to alias goes last."""
    assert nvml.uuid
    ring = Response("lag", capacitance_s=0.02, capacitance_sigma_s=0.001, origin="calibrated")
    blind = Response("boxcar", window_s=0.03, origin="calibrated", averages=False)
    whole = Response("boxcar", window_s=0.1, origin="calibrated")

    found = listed(clock, nvml_power_ring=ring, nvml_power_usage=blind, nvml_power_instant=whole)

    assert list(found) == [COUNTER, RING, INSTANT, AVERAGE, USAGE]
    responses = [sampler.info.response for sampler in found.values() if not isinstance(sampler, str)]
    assert (responses[1], responses[2], responses[4]) == (ring, whole, blind)


@pytest.mark.parametrize(("name", "capacitance_s"), [(b"Tesla K20c", 0.833), (b"NVIDIA Tesla K40m", 0.79)])
def test_kepler_starts_from_the_papers_capacitance(
    nvml: State, clock: PlayedClock, name: bytes, capacitance_s: float
) -> None:
    """K20 and K40 boards have a lag with the C published below equation (6) until one is fitted."""
    nvml.name, nvml.architecture = name, 2

    response = opened(USAGE, clock).info.response

    assert (response.kind, response.capacitance_s, response.window_s) == ("lag", capacitance_s, 0.0)
    assert response.origin == "published"
    assert response.capacitance_sigma_s > 0


@pytest.mark.parametrize(
    ("product", "architecture", "reading", "kind", "window_s", "averages"),
    [
        (b"NVIDIA H200", 9, USAGE, "ramp", 1.0, True),
        (b"NVIDIA A100-SXM4-40GB", 7, USAGE, "boxcar", 0.025, False),
        (b"NVIDIA A30", 7, AVERAGE, "boxcar", 0.025, False),
        (b"NVIDIA RTX A3000 Laptop GPU", 7, USAGE, "ramp", 1.0, True),
        (b"NVIDIA GeForce RTX 3090", 7, AVERAGE, "ramp", 1.0, True),
        (b"NVIDIA GeForce RTX 3090", 7, INSTANT, "boxcar", 0.1, True),
        (b"NVIDIA GeForce RTX 4090", 8, INSTANT, "boxcar", 0.1, True),
        (b"NVIDIA GeForce RTX 2080 Ti", 6, USAGE, "boxcar", 0.1, True),
        (b"Tesla P100", 4, USAGE, "boxcar", 0.01, False),
        (b"Tesla M40", 3, USAGE, "boxcar", 0.014, False),
        (b"Quadro M4000", 3, USAGE, "identity", 0.0, True),
        (b"Quadro K2000", 2, USAGE, "identity", 0.0, True),
        (b"NVIDIA GeForce GTX 980", 3, USAGE, "identity", 0.0, True),
    ],
)
def test_published_windows(  # noqa: PLR0917 - a table's columns
    nvml: State,
    clock: PlayedClock,
    product: bytes,
    architecture: int,
    reading: str,
    kind: str,
    window_s: float,
    averages: bool,
) -> None:
    """Window and coverage of polled power are those published of its generation, and no C is made up."""
    nvml.name, nvml.architecture = product, architecture

    response = opened(reading, clock).info.response

    assert (response.kind, response.window_s, response.averages) == (kind, window_s, averages)
    assert response.capacitance_s == 0.0
    assert response.origin == ("assumed" if kind == "identity" else "published")


@pytest.mark.parametrize(("reading", "averages"), [(RING, True), (INSTANT, False)])
def test_hopper_looks_through_one_lag(nvml: State, clock: PlayedClock, reading: str, averages: bool) -> None:
    """C and delay assumed of a Hopper hold what two H200s showed, and only the ring looks often enough."""
    assert nvml.architecture == 9
    response = opened(reading, clock).info.response

    assert (response.kind, response.origin, response.averages) == ("lag", "assumed", averages)
    for seen_s in (0.0131, 0.0133):
        assert abs(seen_s - response.capacitance_s) < 1.96 * response.capacitance_sigma_s
    for seen_s in {RING: (0.0035, 0.0031), INSTANT: (0.0106, 0.0184)}[reading]:
        assert abs(seen_s - response.delay_s) < 1.96 * response.delay_sigma_s


@pytest.mark.parametrize(
    ("product", "architecture", "known"),
    [
        (b"NVIDIA H100 PCIe", 9, True),
        (b"NVIDIA A100-SXM4-40GB", 7, False),
        (b"NVIDIA B200", 10, False),
        (b"Tesla V100-SXM2-16GB", 5, False),
    ],
)
def test_a_counter_is_to_be_checked(
    nvml: State, clock: PlayedClock, product: bytes, architecture: int, known: bool
) -> None:
    """Beyond Hopper a counter comes first with a note, until a calibration has found what it sees."""
    nvml.name, nvml.architecture = product, architecture
    note = "aliasing: whether nvml-energy-counter sees all of the time here is for tuner power calibrate"
    checked = replace(Response(), origin="calibrated")

    for found, notes in ((listed(clock), not known), (listed(clock, nvml_energy_counter=checked), False)):
        sampler = found[next(iter(found))]
        assert not isinstance(sampler, str)
        assert sampler.info.name == COUNTER
        assert [told.startswith(note) for told in sampler.info.aliasing] == [True] * notes
        for other in found.values():
            assert not isinstance(other, str)
            other.close()


def polled(sampler: PowerSampler, clock: PlayedClock, beside: SampledRecording | None) -> SampledRecording:
    """A recording that a test polls."""
    recording = SampledRecording(sampler, None, clock, beside=beside)
    recording.begin()
    return recording


@pytest.mark.parametrize(
    ("lag_us", "pulses", "told"),
    [(13_000, (0.0, 500.0), False), (0, (0.0, 600.0, 100.0, 0.01, 0.02), True)],  # the ring sees one phase
)
def test_the_counter_is_held_against_the_ring(
    nvml: State, clock: PlayedClock, lag_us: int, pulses: tuple[float, float], told: bool
) -> None:
    """Both as NVML gives them: where they differ the interval of the counter's watts holds the ring's too."""
    nvml.ring_sensor.lag_us = lag_us
    script(nvml, pulses)
    samplers = [opened(name, clock) for name in (RING, COUNTER)]
    once = threading.Event()
    once.set()
    ring = polled(samplers[0], clock, None)
    recording = polled(samplers[1], clock, ring)
    start_s = clock()
    while clock() < start_s + 3.0:
        clock.advance(0.001)
        for one in (ring, recording):
            one.collect(once, 0.05)

    reading, shown = recording.reading(start_s, start_s + 3.0), ring.reading(start_s, start_s + 3.0)
    for sampler in samplers:
        sampler.close()

    assert reading is not None
    assert shown is not None
    assert [note for note in reading.notes if note.startswith("sensors-differ: nvml-energy-counter ")] == [
        note for note in reading.notes if "nvml-power-ring" in note
    ]
    assert any("sensors-differ" in note for note in reading.notes) is told
    assert (abs(reading.watts - shown.watts) > 100.0) is told
    assert abs(reading.watts - shown.watts) < max(5.0, 1.96 * reading.uncertainty_w)
    assert (reading.uncertainty_w > 5.0) is told


def test_what_is_not_published_is_assumed(nvml: State, clock: PlayedClock) -> None:
    """A generation after Hopper is taken for a Hopper, and says that this is an assumption."""
    nvml.name, nvml.architecture = b"NVIDIA B200", 10

    response = opened(USAGE, clock).info.response

    assert (response.kind, response.window_s, response.origin) == ("ramp", 1.0, "assumed")


def test_the_period_is_measured(nvml: State, clock: PlayedClock) -> None:
    """The median gap between samples replaces the expected one."""
    nvml.usage_sensor.period_us = 40_000
    sampler = opened(USAGE, clock)
    assert sampler.info.period_s == 0.1
    watch(sampler, clock, 0.5)

    assert sampler.info.period_s == pytest.approx(0.04, rel=0.1)
    sampler.close()


def test_the_ring_is_mapped_from_the_wall_clock(nvml: State, clock: PlayedClock) -> None:
    """Stamps of the host's real-time clock become times of the meter's clock, each sample once."""
    nvml.stamp_offset_us = 1_700_000_000_000_000
    sampler = opened(RING, clock)
    clock.advance(0.1)

    samples = sampler.poll()

    assert [sample.time_s for sample in samples] == pytest.approx(
        [1000.007, 1000.027, 1000.047, 1000.067, 1000.087], abs=1e-5
    )
    assert sampler.poll() == []
    sampler.close()


def test_the_ring_is_mapped_by_its_newest_sample_else(nvml: State, clock: PlayedClock) -> None:
    """Stamps since another origin are placed so that the newest of the first poll was just taken."""
    nvml.ring_sensor.period_us = 0
    fill_ring(nvml, [(20_000 * i, 100_000 + i) for i in range(1, 4)])
    sampler = opened(RING, clock)
    fill_ring(nvml, [(20_000 * i, 100_000) for i in range(2, 6)])
    clock.advance(0.04)

    assert [round(sample.time_s, 4) for sample in sampler.poll()] == [1000.02, 1000.04]
    sampler.close()


@given(
    st.lists(st.sampled_from([0.0, 0.003, 0.01]), min_size=4, max_size=30),
    st.integers(0, 2**20),
)
def test_a_late_stamp_is_put_in_its_place(late_s: list[float], seed: int) -> None:
    """Stamps that are late by some or half a period now and then come back into the rhythm."""
    late_s = [late if number % 2 else 0.0 for number, late in enumerate(late_s)]
    rhythm_s = 0.02 * np.arange(len(late_s)) + np.random.default_rng(seed).uniform(-3e-4, 3e-4, len(late_s))

    times_s = in_rhythm((rhythm_s + late_s).tolist(), 0.02)

    assert times_s[:-1] == pytest.approx(rhythm_s[:-1], abs=1e-3)
    assert times_s[-1] == rhythm_s[-1] + late_s[-1]  # nothing after it says that it is late
    assert in_rhythm(times_s[:-1], 0.02) == pytest.approx(times_s[:-1])


@pytest.mark.parametrize("gaps_ms", [(20, 40, 20, 20), (20, 20, 60, 20), (20, 30, 30, 20), (20, 10, 30, 20)])
def test_other_stamps_stay(gaps_ms: tuple[int, ...]) -> None:
    """Samples that are missing, and a rhythm that shifts, are left as they are stamped."""
    stamps_s = np.cumsum([0.0, *gaps_ms]) * 1e-3

    assert in_rhythm(stamps_s.tolist(), 0.02) == stamps_s.tolist()


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_a_late_stamp_may_end_a_poll(nvml: State, clock: PlayedClock, step: int) -> None:
    """However the ring is polled, every sample comes once and late stamps are put right."""
    nvml.ring_sensor.period_us = 0
    stamps = [20_000 * i + (10_000 if i % 6 == 3 else 0) for i in range(1, 43)]
    fill_ring(nvml, [(stamp, 100_000 + stamp) for stamp in stamps[:7]])
    sampler = opened(RING, clock)
    samples = []
    for seen in (*range(7, len(stamps), step), len(stamps)):
        fill_ring(nvml, [(stamp, 100_000 + stamp) for stamp in stamps[:seen]])
        clock.advance(0.02 * step)
        samples += sampler.poll()

    assert [round(sample.value * 1e3) - 100_000 for sample in samples] == stamps[7:]
    assert np.diff([sample.time_s for sample in samples]) == pytest.approx(0.02)
    sampler.close()


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_stepped_clock_moves_no_sample(nvml: State, clock: PlayedClock, step_s: float) -> None:
    """Samples keep their times and their order when the clock that stamps them is set, at a gap at most."""
    nvml.stamp_offset_us = 1_700_000_000_000_000
    sampler = opened(RING, clock)
    script(nvml, (0.0, 500.0), (1004.0, 200.0))
    samples = watch(sampler, clock, 2.0, 0.25)
    nvml.stamp_offset_us += round(step_s * 1e6)
    samples += watch(sampler, clock, 6.0, 0.25)

    times = [sample.time_s for sample in samples]
    assert times == sorted(set(times))
    assert clock() - times[-1] < 0.25 + 0.02
    late = [sample.value for sample in samples if sample.time_s > 1004.5]
    assert len(late) > 150
    assert late == pytest.approx([200.0] * len(late), abs=1.0)
    sampler.close()


@pytest.mark.parametrize("name", [COUNTER, RING, INSTANT, AVERAGE, USAGE])
def test_a_lost_gpu_is_a_power_error(nvml: State, clock: PlayedClock, name: str) -> None:
    """No exception of the binding crosses the border, in use as little as at opening."""
    sampler = opened(name, clock)
    lose(nvml)

    with pytest.raises(PowerError, match=f"{name} of {UUID}: GPU is lost") as caught:
        watch(sampler, clock, 2.0)

    assert caught.value.__cause__ is not None
    sampler.close()
    sampler.close()


def test_one_failed_read_is_said_and_the_next_one_works(nvml: State, clock: PlayedClock) -> None:
    """A read that fails once is an error of that poll alone."""
    sampler = opened(USAGE, clock)
    fail(nvml, "usage", GPU_IS_LOST, nth=3)
    with pytest.raises(PowerError):
        watch(sampler, clock, 1.0)

    assert watch(sampler, clock, 1.0)
    sampler.close()


@pytest.mark.parametrize("name", [COUNTER, RING])
def test_a_sensor_that_stops_is_said(nvml: State, clock: PlayedClock, name: str) -> None:
    """A counter or ring that no longer moves while it is polled is a sensor that stopped."""
    sampler = opened(name, clock)
    assert watch(sampler, clock, 1.0)
    nvml.counter_sensor.stopped_us = nvml.ring_sensor.stopped_us = nvml.time_us

    with pytest.raises(PowerError, match="stopped updating"):
        watch(sampler, clock, 8.0, 0.01)
    sampler.close()


@pytest.mark.parametrize("name", [COUNTER, RING, INSTANT, AVERAGE, USAGE])
def test_a_pause_is_no_stop(nvml: State, clock: PlayedClock, name: str) -> None:
    """A reading that nobody looked at for a minute is not taken for one that stopped, and goes on."""
    assert nvml.uuid
    sampler = opened(name, clock)
    before = watch(sampler, clock, 1.5)
    clock.advance(60.0)
    after = watch(sampler, clock, 3.0)

    times = [sample.time_s for sample in before + after]
    assert times == sorted(set(times))
    assert after[-1].time_s > clock() - 0.3
    sampler.close()


def test_a_counter_looked_at_seldom_has_not_stopped(nvml: State, clock: PlayedClock) -> None:
    """Polls too far apart to date a tick give no samples, and are no reason to take the sensor for dead."""
    assert nvml.uuid
    sampler = opened(COUNTER, clock)
    for _ in range(30):
        clock.advance(1.0)
        assert sampler.poll() == []
    sampler.close()


def test_a_counter_that_goes_back_was_reset(nvml: State, clock: PlayedClock) -> None:
    """A counter lower than before, as after a reload of the driver, ends the measurement with the reason."""
    sampler = opened(COUNTER, clock)
    watch(sampler, clock, 0.5)
    script(nvml, (1000.5, 500.0))

    with pytest.raises(PowerError, match=r"went back from 500\d\d\d\.\d+ J to .*loaded anew"):
        watch(sampler, clock, 1.0)
    sampler.close()


def test_absurd_power_is_left_out(nvml: State, clock: PlayedClock, caplog: pytest.LogCaptureFixture) -> None:
    """A number no board can draw is no sample, and is told."""
    sampler = opened(RING, clock)
    nvml.ring_sensor.period_us = 0
    stamp = nvml.time_us
    fill_ring(nvml, [(stamp + 1000, 400_000), (stamp + 2000, 0xFFFFFFFF), (stamp + 3000, 410_000)])
    clock.advance(0.1)

    assert [sample.value for sample in sampler.poll()] == [400.0, 410.0]
    assert "left out" in caplog.text
    sampler.close()


def test_the_counter_is_read_no_more_often_than_wanted(nvml: State, clock: PlayedClock) -> None:
    """With an interval the counter costs little more than a read for each sample, and is right."""
    nvml.call_us = 3300
    sampler = opened(COUNTER, clock, interval_s=1.0)
    watch(sampler, clock, 60.0, 0.001)
    reads = count(nvml, "energy")
    samples = watch(sampler, clock, 60.0, 0.001)

    assert 58 <= len(samples) <= 70
    assert count(nvml, "energy") - reads < 90
    assert sampler.info.period_s == 1.0
    counted = (samples[-1].value - samples[0].value) / (samples[-1].time_s - samples[0].time_s)
    assert counted == pytest.approx(500.0, rel=3.0 * math.sqrt(2) * samples[0].time_sigma_s / 58)
    sampler.close()


def test_facts_of_a_gpu(nvml: State) -> None:
    """Every fact that NVML tells is there, under its UUID and its index alike; nothing is set."""
    nvml.process_count, nvml.pids[0] = 1, 77
    facts = health(UUID)

    assert (facts.uuid, facts.name, facts.index, facts.driver) == (UUID, "NVIDIA H200", 0, "580.159")
    assert (facts.persistence, facts.mig, facts.temperature_c) == (True, False, 40.0)
    assert facts.processes == (77,)
    assert health(0) == facts
    assert (nvml.sets, nvml.resets) == (0, 0)


def test_what_is_withheld_is_none(nvml: State) -> None:
    """A fact that the board or the permissions withhold is None, not a failure."""
    nvml.processes = nvml.persistence = nvml.mig = nvml.temperature = NO_PERMISSION
    facts = health(UUID)

    assert (facts.processes, facts.persistence, facts.mig, facts.temperature_c) == (None, None, None, None)
    assert facts.name == "NVIDIA H200"


def test_a_gpu_that_is_not_there(nvml: State) -> None:
    """Neither a wrong UUID nor a lost GPU crosses the border as an exception of the binding."""
    with pytest.raises(SensorUnavailableError, match="GPU-other"):
        health("GPU-other")
    lose(nvml)
    with pytest.raises(SensorUnavailableError, match="lost"):
        health(UUID)


def test_temperature_of_a_card(nvml: State, tmp_path: Path) -> None:
    """A card's temperature is NVML's; one that it withholds is None."""
    thermometer = Thermometer(UUID, thermal=tmp_path)
    assert thermometer.read() == 40.0
    nvml.temperature = NO_PERMISSION
    assert thermometer.read() is None
    thermometer.close()


@pytest.mark.parametrize(
    ("kind", "millidegrees", "celsius"),
    [("GPU-therm", "46500", 46.5), ("gpu-thermal", "51000", 51.0), ("gpu-thermal", "-256000", None)],
)
def test_temperature_of_a_board(
    nvml: State, tmp_path: Path, kind: str, millidegrees: str, celsius: float | None
) -> None:
    """Where NVML does not answer, it is that of the kernel's zone of the GPU; a gated one is None."""
    nvml.init = 9
    write(tmp_path / "thermal_zone0/type", "CPU-therm")
    write(tmp_path / "thermal_zone0/temp", "99000")
    write(tmp_path / "thermal_zone1/type", kind)
    write(tmp_path / "thermal_zone1/temp", millidegrees)
    thermometer = Thermometer(0, thermal=tmp_path)

    assert thermometer.read() == celsius
    (tmp_path / "thermal_zone1/temp").unlink()
    assert thermometer.read() is None
    thermometer.close()
