import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from modelled import NoNvrtc, device, makespan, scan
from tuner.power.base import ClockReading, PowerSource
from tuner.power.energy.meter import SamplingMeter
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.devices.base import Device
from tuner.devices.gpu_models import gpu_model, gpu_names
from tuner.devices.simulated.device import Faults, SimulatedClocks, SimulatedDevice
from tuner.devices.simulated.time_model import Warming
from tuner.model.errors import ClockError, CompileError, UnknownNameError
from tuner.model.plan import Plan, Resources
from tuner.model.trial import Status


def test_session_walk() -> None:
    """Resources, check and run in a session's order give times and a window, marked as modelled."""
    sim = device("jetson-tx1")
    as_device: Device = sim
    as_source: PowerSource = sim
    plans = [scan(4, 256), scan(8, 128, kernel="other")]
    assert all(isinstance(found, tuple) for found in as_device.resources(plans))
    assert all(as_device.check(plan, seed=1).status is Status.OK for plan in plans)
    record = as_device.run(plans, 0.5)
    assert [result.status for result in record.results] == [Status.OK, Status.OK]
    assert record.makespan_s == max(result.time_s or 0 for result in record.results)
    assert record.end_s - record.start_s == pytest.approx(record.rounds * record.makespan_s)
    assert record.end_s - record.start_s == pytest.approx(0.5, abs=record.makespan_s)
    assert as_source.now_s() == record.end_s
    assert as_device.identity.modelled
    assert as_device.identity.spec == "sim:jetson-tx1"
    assert "modelled" in as_device.identity.name
    assert as_device.free_memory_bytes() == 4 * 2**30
    as_device.close()


def test_short_windows() -> None:
    """A window of 3 ms holds five rounds or more after a short warm-up; times are those of a long one."""
    plans = [scan(4, 256), scan(8, 128, kernel="other")]
    for name in ("h200", "gtx580"):
        sim = device(name, noise=0.003)
        whole = sim.run(plans, 1.0)
        begun_s = sim.now_s()
        record = sim.run(plans, 0.003)
        assert record.makespan_s == whole.makespan_s
        assert record.results == whole.results
        assert record.rounds >= 5
        assert record.start_s - begun_s < 0.006 + 2 * (record.makespan_s or 0.0)


def test_unknown_gpu() -> None:
    """A GPU that is not in the table is refused by name."""
    with pytest.raises(UnknownNameError, match="did you mean 'h200'"):
        SimulatedDevice("sim:h20")


def test_clock_setting() -> None:
    """Only clocks of the table can be set; None is the highest."""
    sim = device("k40c")
    assert sim.clock_mhz == 875
    sim.set_clock_mhz(666)
    assert sim.clock_mhz == 666
    with pytest.raises(ClockError, match=r"no clock of 700 MHz; it has 875, 810, 745, 666"):
        sim.set_clock_mhz(700)
    sim.set_clock_mhz(None)
    assert sim.clock_mhz == 875


def test_sensor_description() -> None:
    """A device says how its power reading lags and averages, or that there is none."""
    (sensor,) = device("k20c").gpu.sensors
    assert (sensor.kind, sensor.capacitance_s) == ("stream", 0.833)
    assert device("gtx580").gpu.sensors == ()


# --- noise, virtual time, power ------------------------------------------------------------------


def test_noise_depends_on_seed_and_trial_only() -> None:
    """A trial gives the same numbers whatever ran before it, and others under another seed or trial."""
    fresh, used = device(noise=0.003, seed=7), device(noise=0.003, seed=7)
    used.run([scan(8, 256)], 0.3)
    used.check(scan(4, 128), 0)
    assert fresh.run([scan(4, 128)], 0.3).results == used.run([scan(4, 128)], 0.3).results
    other = device(noise=0.003, seed=8)
    assert other.run([scan(4, 128)], 0.3).results != fresh.run([scan(4, 128)], 0.3).results


def test_noise_is_a_few_per_mille() -> None:
    """Over many seeds times scatter around the exact model by the noise asked for, and say so."""
    exact = makespan(device(), scan(4, 128))
    records = [device(noise=0.003, seed=seed).run([scan(4, 128)], 0.1) for seed in range(200)]
    ratios = [(record.makespan_s or 0.0) / exact for record in records]
    mean = sum(ratios) / len(ratios)
    deviation = math.sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / len(ratios))
    assert mean == pytest.approx(1.0, abs=0.001)
    assert 0.002 < deviation < 0.004
    assert all(0 < record.makespan_spread_s < 0.01 * exact for record in records)
    off = [abs((r.makespan_s or 0.0) - exact) / r.makespan_uncertainty_s for r in records]
    assert 0.6 < sum(one < 1.0 for one in off) / len(off) < 0.76  # one sigma
    assert device(noise=0.0).run([scan(4, 128)], 0.1).makespan_uncertainty_s == 0.0


def test_power_pieces_have_no_gaps() -> None:
    """Truth pieces cover any past without gaps: idle before the start, loads and idle gaps after it."""
    sim = device("k20c")
    sim.check(scan(4, 128), 0)
    sim.run([scan(4, 128)], 0.2)
    sim.sleep(1.0)
    pieces = sim.power_segments(-2.0)
    assert pieces[0][0] == -2.0
    assert pieces[-1][1] == sim.now_s()
    assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    idle, load = pieces[0][2], max(watts for _, _, watts in pieces)
    assert pieces[-1][2] == idle
    assert load > 1.5 * idle
    later = sim.power_segments(sim.now_s() - 0.5)
    assert later == [(sim.now_s() - 0.5, sim.now_s(), idle)]
    assert sim.power_segments(sim.now_s()) == []


@pytest.mark.parametrize("name", [name for name in gpu_names() if gpu_model(name).sensors])
def test_every_sensor_of_the_table_finds_the_power(name: str) -> None:
    """Sampled through the GPU's own lag, mean and noise, the meter finds the true power to 1 %."""
    sim = device(name, noise=0.003)
    sampler = SimulatedSampler(sim, **asdict(sim.gpu.sensors[0]))
    meter = SamplingMeter(sampler, None, sim.now_s)
    sim.sleep(1.0)
    with meter.recording() as recording:
        record = sim.run([scan(8, 128)], 4.0)
    (piece,) = sim.power_segments(record.start_s)
    reading = recording.reading(record.start_s, record.end_s)
    assert reading is not None
    assert reading.watts == pytest.approx(piece[2], rel=0.01)


def test_idle_power_falls_with_the_clock() -> None:
    """An idle GPU at a lower clock draws less, and the H200 at its top clock what was measured."""
    sim = device()
    sim.sleep(1.0)
    assert sim.power_segments(0.0)[0][2] == pytest.approx(122.0)
    sim.set_clock_mhz(345)
    sim.sleep(1.0)
    assert sim.power_segments(1.0)[0][2] < 80.0


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.LAUNCH_ERROR, Status.TIMEOUT, Status.CRASHED])
def test_told_to_fail(status: Status) -> None:
    """A kernel told to fail does so in checks and runs, a time-out lasts its time, and nothing raises."""
    sim = device(faults=Faults({"bad": status}))
    bad, good = scan(4, 128, kernel="bad"), scan(8, 128, kernel="good")
    begin = sim.now_s()
    check = sim.check(bad, 0)
    assert check.status is status
    lasted = 60.0 if status is Status.TIMEOUT else 0.0
    assert check.seconds == lasted
    assert sim.now_s() - begin == pytest.approx(lasted, abs=0.1)
    record = sim.run([good, bad], 0.1)
    assert record.makespan_s is None
    assert record.results[1].status is status
    assert record.results[1].time_s is None
    assert sim.run([good], 0.1).results[0].status is Status.OK


def test_told_to_answer_wrongly() -> None:
    """A wrong answer is seen by the check, by a function of the plan, and not by a run."""

    def odd(plan: Plan) -> Status:
        return Status.WRONG_ANSWER if plan.configuration["P"] == 4 else Status.OK

    sim = device(faults=Faults(odd))
    assert sim.check(scan(4, 128), 0).status is Status.WRONG_ANSWER
    assert sim.check(scan(8, 128), 0).status is Status.OK
    assert sim.run([scan(4, 128)], 0.1).results[0].status is Status.OK


def test_told_not_to_compile() -> None:
    """A compile error told for a kernel appears where resources are asked for."""
    found = device(faults=Faults({"bad": Status.COMPILE_ERROR})).resources([scan(4, 128, kernel="bad")])
    assert isinstance(found[0], CompileError)


def test_told_to_fail_together() -> None:
    """A failure of co-running appears only when the plans run together; a crash takes the others with it."""

    def together(plans: Sequence[Plan]) -> list[Status]:
        crash = Status.CRASHED if len(plans) > 1 else Status.OK
        return [crash, *[Status.OK] * (len(plans) - 1)]

    sim = device(faults=Faults(joint=together))
    assert sim.run([scan(4, 128)], 0.1).results[0].status is Status.OK
    statuses = [r.status for r in sim.run([scan(4, 128), scan(8, 128, kernel="other")], 0.1).results]
    assert statuses == [Status.CRASHED, Status.CRASHED]


def staged(**fields: Any) -> Plan:
    """A scan whose stage has other fields."""
    plan = scan(4, 128)
    return replace(plan, stages=(replace(plan.stages[0], **fields),))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (scan(4, 2048), "2048 threads per block; the device takes 1 … 1024"),
        (scan(4, 128, shared_bytes=300_000), "300128 bytes of shared memory"),
        (scan(4, 1024, declared=Resources(128)), "registers"),
        (staged(grid=(0, 1, 1)), "grid (0, 1, 1) is not within"),
        (staged(grid=(8, 65536, 1)), "grid (8, 65536, 1) is not within"),
        (staged(grid=(6, 1, 1), cluster=4), "not made of clusters of 4"),
        (staged(cooperative=True), "more than the 2112 that the device holds at a time"),
    ],
    ids=["threads", "shared", "registers", "empty", "grid", "clusters", "cooperative"],
)
def test_what_does_not_fit_is_a_launch_error(plan: Plan, words: str) -> None:
    """A launch the GPU cannot hold fails its check and its run with what binds."""
    sim = device()
    check = sim.check(plan, 0)
    assert check.status is Status.LAUNCH_ERROR
    assert words in check.detail
    assert sim.run([plan], 0.1).results[0].status is Status.LAUNCH_ERROR


def test_pulses_of_load() -> None:
    """A pulse draws more than idle power for as long as asked, and is reported in virtual time."""
    device = SimulatedDevice("h200")

    (first, second) = device.pulse([(0.05, 0.1), (0.2, 0.3)])

    assert first == pytest.approx((0.0, 0.05))
    assert second == pytest.approx((0.15, 0.35))
    busy_w, idle_w = (device.power_segments(0.0)[place][2] for place in (0, 1))
    assert device.gpu.power.limit_w >= busy_w > 2.0 * idle_w
    assert device.now_s() == pytest.approx(0.65)


def test_a_gpu_that_warms_draws_more() -> None:
    """From idle the temperature nears that of its load, and power follows by so much per kelvin."""
    warming = Warming(idle_c=30.0, kelvin_per_watt=0.05, time_s=20.0, per_kelvin=0.001)
    warm = SimulatedDevice("h200", 0, NoNvrtc(), noise=0.0, warming=warming)
    steady = SimulatedDevice("h200", 0, NoNvrtc(), noise=0.0)
    warm.sleep(60.0)
    assert warm.temperature_c == 30.0
    for one in (warm, steady):
        one.run([scan(4, 256)], 200.0)

    watts, warm_w = (one.power_segments(one.now_s() - 0.1)[-1][2] for one in (steady, warm))
    idle_w = SimulatedDevice("h200", 0, NoNvrtc()).power_segments(-1.0)[0][2]
    warmer = 0.05 * (watts - idle_w)
    assert warm.temperature_c == pytest.approx(30.0 + warmer, rel=0.01)
    assert warm_w == pytest.approx(watts * (1.0 + 0.001 * warmer), rel=1e-4)
    assert steady.temperature_c is None


def test_a_simulated_clock_is_held_and_restored() -> None:
    """The clock is set inside the block and the default outside, also after an exception."""
    sim = SimulatedDevice("k40c", 0, NoNvrtc())
    clocks = SimulatedClocks(sim)

    assert clocks.supported_mhz() == (875, 810, 745, 666)
    with clocks.locked(666):
        assert clocks.read() == ClockReading(666.0, (), 235.0)
    assert sim.clock_mhz == 875
    with pytest.raises(KeyboardInterrupt), clocks.locked(666):
        raise KeyboardInterrupt
    assert sim.clock_mhz == 875
    with pytest.raises(ClockError, match="choose from 875, 810, 745, 666"), clocks.locked(700):
        pass
    clocks.close()
