"""Joules of a traced program: those it drew from its start to its end, whatever the sensor does to power."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import ProgramEnergy, ProgramTimeline, Response, Sample, SensorInfo
from tuner.power.energy.counters import EnergyCurve
from tuner.power.energy.programs import program_energy
from tuner.power.energy.samples import SampleSeries, plausible

Array = npt.NDArray[np.float64]

FINE_S = 0.0005  # resolution of the power behind the sensors
TICK_S = 0.1
TICK_SIGMA_S = 0.0013  # as an H200's counter is dated by polling
COUNTER = SensorInfo(
    *("counter", "counter", "gpu", TICK_S),
    resolution=0.001,
    response=Response("lag", capacitance_s=0.0146, delay_s=-0.0058, origin="calibrated"),
)
_TICK_BEFORE_S = 0.005  # the program starts so long after a tick was seen


@dataclass(frozen=True)
class Power:
    """True power: steps of (time, watts) from time 0 on; a program from ``start_s`` to ``end_s``."""

    steps: Sequence[tuple[float, float]]
    start_s: float
    end_s: float
    until_s: float

    def line(self, idle_s: float) -> ProgramTimeline:
        """The timeline of its recording."""
        return ProgramTimeline(self.start_s - idle_s, self.start_s, self.end_s, self.until_s)

    def times(self) -> Array:
        """Points of time, ``FINE_S`` apart, of the middles of which the power is known."""
        return np.arange(0.0, self.until_s + 1.0, FINE_S)

    def watts(self) -> Array:
        """Power from each point of time on."""
        at, watts = np.array(self.steps, dtype=np.float64).T
        return np.asarray(watts[np.searchsorted(at, self.times() + FINE_S / 2.0) - 1])

    def joules(self) -> float:
        """True energy of the program."""
        return self.energy(self.end_s) - self.energy(self.start_s)

    def energy(self, time_s: float) -> float:
        """True energy from time 0 on."""
        edges = [at for at, _ in self.steps] + [np.inf]
        return float(
            sum(max(0.0, min(time_s, b) - a) * w for (a, w), b in zip(self.steps, edges[1:], strict=True))
        )

    def shown(self, response: Response) -> Array:
        """What a sensor without noise shows at each point of time."""
        power = self.watts()
        if response.capacitance_s:
            from scipy.signal import lfilter  # noqa: PLC0415 - takes half a second, of one process

            kept = float(np.exp(-FINE_S / response.capacitance_s))
            power = lfilter([0.0, 1.0 - kept], [1.0, -kept], power, zi=[power[0]])[0]
        elif response.window_s:
            wide = round(response.window_s / FINE_S)
            energy = np.cumsum(np.concatenate((np.full(wide + 1, power[0]), power)))
            power = (energy[wide:] - energy[:-wide])[:-1] / wide
        return np.asarray(np.interp(self.times() - response.delay_s, self.times(), power))


def after_s(info: SensorInfo) -> float:
    """How long a recording goes on after a program."""
    return info.response.memory_s + 6.0 * info.period_s + 0.3


def samples_of(power: Power, info: SensorInfo, noise_w: float = 0.0, seed: int = 7) -> list[Sample]:
    """Samples of a power reading from 0 on, every period."""
    rng = np.random.default_rng(seed)
    times = np.arange(rng.uniform(0.0, info.period_s), power.until_s, info.period_s)
    watts = np.interp(times, power.times(), power.shown(info.response))
    watts += rng.normal(0.0, noise_w, len(times)) if noise_w else 0.0
    return [Sample(float(t), float(w)) for t, w in zip(times, watts, strict=True)]


def ticks_of(power: Power, idle_s: float, info: SensorInfo = COUNTER, seed: int = 7) -> list[Sample]:
    """Ticks of a counter as a recorder takes them: two while idle, two before and two after, and one."""
    rng = np.random.default_rng(seed)
    first_s = power.start_s - _TICK_BEFORE_S
    times = np.arange(first_s % TICK_S, power.until_s, TICK_S)
    energy = np.concatenate(([0.0], np.cumsum(power.shown(info.response)) * FINE_S))[:-1]
    joules = np.interp(times, power.times(), energy)
    before = int(np.argmin(np.abs(times - first_s)))
    early = [int(np.searchsorted(times, power.start_s - share * idle_s)) for share in (1.0, 0.5)]
    after = int(np.searchsorted(times, power.end_s))
    taken = sorted({*early, before - 1, before, after, after + 1, len(times) - 1})
    half_s = TICK_SIGMA_S * 3.0**0.5
    return [
        Sample(float(times[i] + rng.uniform(-half_s, half_s)), float(joules[i]), TICK_SIGMA_S) for i in taken
    ]


IDLE_W = 120.0
START_S = 9.0  # of the program; every sensor has settled by then
IDLE_S = 7.0
RING = SensorInfo("ring", "ring", "gpu", 0.02, resolution=0.001)
H200 = replace(RING, response=Response("lag", capacitance_s=0.0131, delay_s=0.0035, origin="calibrated"))
KEPLER = replace(RING, response=Response("lag", capacitance_s=0.84, capacitance_sigma_s=0.01))
BOXCAR = replace(RING, period_s=0.1, response=Response("boxcar", window_s=0.1))
RAMP = replace(RING, period_s=0.1, response=Response("ramp", window_s=1.0, delay_s=0.03))
READINGS = {"identity": RING, "h200": H200, "kepler": KEPLER, "boxcar": BOXCAR, "ramp": RAMP}
KINDS = ("plain", "whole", "ends high", "starts high", "goes on a while", "beside another")


def power_of(kind: str, duration_s: float, watts: float, info: SensorInfo) -> Power:
    """Power of a program that ends, and starts, in one of the ways that programs do."""
    end_s = START_S + duration_s
    busy_s, calm_s = START_S + 0.2 * duration_s, end_s - 0.1 * duration_s
    steps = {
        "plain": [(0.0, IDLE_W), (busy_s, watts), (calm_s, IDLE_W)],
        "whole": [(0.0, IDLE_W), (START_S, watts), (end_s, IDLE_W)],
        "ends high": [(0.0, IDLE_W), (busy_s, watts)],
        "starts high": [(0.0, watts), (calm_s, IDLE_W)],
        "goes on a while": [(0.0, IDLE_W), (busy_s, watts), (end_s + 0.15, IDLE_W)],
        "beside another": [(0.0, 300.0), (START_S, 300.0 + watts), (end_s, 300.0)],
    }[kind]
    return Power(steps, START_S, end_s, end_s + after_s(info))


def traced(
    power: Power, info: SensorInfo, *, noise_w: float = 0.0, seed: int = 7, counted: bool = False
) -> ProgramEnergy:
    """What a reading says of a program; or a counter beside it."""
    line = power.line(IDLE_S)
    samples = [s for s in samples_of(power, info, noise_w, seed) if s.time_s >= line.began_s]
    curve = EnergyCurve(SampleSeries.of(samples), info)
    found: ProgramEnergy | None = (
        program_energy(ticks_of(power, IDLE_S, seed=seed), COUNTER, line, curve)
        if counted
        else program_energy(samples, info, line)
    )
    assert found is not None
    return found


@pytest.mark.parametrize("info", READINGS.values(), ids=READINGS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duration_s", [0.2, 3.0])
def test_the_joules_are_those_from_start_to_end(info: SensorInfo, kind: str, duration_s: float) -> None:
    """Neither lag, mean and delay of a sensor nor what the GPU draws before and after changes the joules."""
    power = power_of(kind, duration_s, 600.0, info)
    found = traced(power, info)

    allowed_j = 0.6 * 480.0 * info.period_s  # a step that falls between two samples is known to half a period
    if (kind, info) != ("goes on a while", KEPLER):  # which might as well be a lag that is 20 % longer
        assert found.total_j == pytest.approx(power.joules(), abs=allowed_j)
    assert abs(found.total_j - power.joules()) < 3.0 * found.total_sigma_j
    assert found.total_j - found.net_j == pytest.approx(found.idle_w * duration_s)
    assert found.idle_w == pytest.approx(power.steps[0][1], rel=0.01)
    assert found.mean_w == pytest.approx(found.total_j / duration_s)
    assert found.notes == ()


@given(
    kind=st.sampled_from(KINDS),
    duration_s=st.floats(0.2, 2.0),
    watts=st.floats(130.0, 700.0),
    name=st.sampled_from(sorted(READINGS)),
    seed=st.integers(0, 1000),
    counted=st.booleans(),
)
def test_the_truth_lies_within_the_uncertainty(
    kind: str, duration_s: float, watts: float, name: str, *, seed: int, counted: bool
) -> None:
    """With noise the total is within a few of its standard uncertainties, by ring, stream and counter."""
    power = power_of(kind, duration_s, watts, READINGS[name])
    found = traced(power, READINGS[name], noise_w=0.5, seed=seed, counted=counted)

    assert abs(found.total_j - power.joules()) < 4.0 * found.total_sigma_j
    assert abs(found.net_j - (power.joules() - power.steps[0][1] * duration_s)) < 4.0 * found.net_sigma_j


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duration_s", [0.2, 3.0])
def test_a_counter_beside_a_ring_is_exact(kind: str, duration_s: float) -> None:
    """What lies between ticks and the program's ends is taken from the ring: 2 ms of a load are left."""
    power = power_of(kind, duration_s, 600.0, H200)
    found = traced(power, H200, noise_w=0.3, counted=True)

    assert found.total_j == pytest.approx(power.joules(), abs=480.0 * 0.004)
    assert abs(found.total_j - power.joules()) < 3.0 * found.total_sigma_j


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_what_they_say_and_are_not_idle(kind: str) -> None:
    """Of commands at random phases at least 90 % lie in their 95 % intervals, which are 1 % wide at most."""
    rng, inside, widths = np.random.default_rng(3), 0, []
    for seed in range(30):
        power = power_of(kind, float(rng.uniform(2.0, 3.0)), float(rng.uniform(200.0, 700.0)), H200)
        for counted in (False, True):
            found = traced(power, H200, noise_w=0.4, seed=seed, counted=counted)
            inside += abs(found.total_j - power.joules()) < 1.96 * found.total_sigma_j
            widths.append(1.96 * found.total_sigma_j / power.joules())

    assert inside >= 0.9 * 60
    assert np.median(widths) < 0.01


def test_a_real_ring_and_counter_agree() -> None:
    """Any part of a recording of an H200 has the same joules by ring and by counter, as well as they say."""
    results = Path(__file__).parent.parent / "benchmarks" / "results"
    recorded = json.loads((results / "h200-known-load.json").read_text())
    first_s = next(start_s for name, start_s, _ in recorded["sections"] if name == "steps")
    ring, ticks = (
        [Sample(t - first_s, *rest) for t, *rest in recorded[what] if 0.0 < t - first_s < 16.0]
        for what in ("ring", "ticks")
    )
    times, rng, apart = np.array([tick.time_s for tick in ticks]), np.random.default_rng(5), []
    for _ in range(60):
        duration_s = float(np.exp(rng.uniform(np.log(0.2), np.log(10.0))))
        before = int(np.searchsorted(times, rng.uniform(2.0, 14.0 - duration_s)))
        start_s = times[before] + 0.005  # as the recorder has it
        after, last = np.searchsorted(times, start_s + duration_s + np.array([0.0, 0.5]))
        chosen = [ticks[i] for i in (before - 18, before - 9, before - 1, before, after, after + 1, last)]
        line = ProgramTimeline(chosen[0].time_s - 0.1, start_s, start_s + duration_s, chosen[-1].time_s)
        shown = [s for s in ring if line.began_s <= s.time_s <= line.finished_s]
        by_ring = program_energy(shown, H200, line)
        by_counter = program_energy(chosen, COUNTER, line, EnergyCurve(SampleSeries.of(shown), H200))
        assert by_ring is not None
        assert by_counter is not None
        sigma_j = math.hypot(by_ring.total_sigma_j, by_counter.total_sigma_j)
        apart.append((by_ring.total_j - by_counter.total_j) / sigma_j)

    assert np.mean(np.abs(apart) < 1.96) >= 0.9
    assert np.max(np.abs(apart)) < 4.0


def test_power_that_stays_up_is_not_idle() -> None:
    """Ring and counter have the joules of a command after which the GPU stays up, and say that it does."""
    power = Power([(0.0, 80.0), (START_S + 2.5, 130.0)], START_S, START_S + 5.94, START_S + 6.7)
    ring, counter = (traced(power, H200, noise_w=0.4, counted=counted) for counted in (False, True))

    assert power.joules() == pytest.approx(647.2)
    for found in (ring, counter):
        assert found.total_j == pytest.approx(power.joules(), abs=1.0)
        assert found.total_sigma_j < 0.5
        assert found.after is not None
        assert abs(found.after.watts - 130.0) < 4.0 * found.after.sigma_w < 4.0


def test_a_counter_alone_says_what_it_does_not_know() -> None:
    """Without a curve, power from the end to the next tick is that of later ticks, or else is uncertain."""
    high, calm = (power_of(kind, 3.0, 600.0, H200) for kind in ("ends high", "plain"))
    ended_high, ended_calm = (
        program_energy(ticks_of(power, IDLE_S), COUNTER, power.line(IDLE_S)) for power in (high, calm)
    )
    one_left = program_energy(ticks_of(high, IDLE_S)[:-2], COUNTER, high.line(IDLE_S))

    assert ended_high is not None
    assert ended_calm is not None
    assert one_left is not None
    assert abs(ended_high.total_j - high.joules()) < 3.0 * ended_high.total_sigma_j
    assert ended_high.total_sigma_j < 4.0
    assert abs(ended_calm.total_j - calm.joules()) < 3.0 * ended_calm.total_sigma_j
    assert one_left.total_sigma_j > 2.0 * ended_high.total_sigma_j
    assert one_left.after is None


@pytest.mark.parametrize("info", [H200, KEPLER], ids=["h200", "kepler"])
@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_a_lag_that_is_wrong_changes_no_joules(info: SensorInfo, factor: float) -> None:
    """The joules of a command of 0.2 s are right with a lag that is 20 % off, and less certain."""
    lag_s = info.response.capacitance_s
    wrong = replace(info, response=replace(info.response, capacitance_s=factor * lag_s))
    power = replace(power_of("whole", 0.2, 600.0, info), until_s=START_S + 0.2 + 10.0 * lag_s + 0.3)
    line = power.line(IDLE_S)
    samples = [s for s in samples_of(power, info, noise_w=0.3) if s.time_s >= line.began_s]
    right, found = (program_energy(samples, which, line) for which in (info, wrong))

    assert right is not None
    assert found is not None
    assert found.net_j == pytest.approx(480.0 * 0.2, rel=0.02)
    assert found.total_sigma_j > right.total_sigma_j


@pytest.mark.parametrize(("name", "peak_w"), [("identity", 600.0), ("kepler", 600.0), ("boxcar", 600.0)])
def test_the_peak_is_corrected(name: str, peak_w: float) -> None:
    """The peak of a program is its power, and no overshoot of the correction."""
    found = traced(power_of("whole", 4.0, peak_w, READINGS[name]), READINGS[name], noise_w=0.5)

    assert found.peak_w == pytest.approx(peak_w, rel=0.03)
    assert 0.0 < found.peak_window_s <= 2.0


def at(*times: float) -> list[Sample]:
    """Exact ticks of a counter of a program of 2 s from 3 s on."""

    def joules(time_s: float) -> float:
        return 5000.0 + IDLE_W * time_s + 480.0 * min(max(time_s - 3.0, 0.0), 2.0)

    return [Sample(time_s, joules(time_s), 0.0005) for time_s in times]


PLAIN = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)
LINE = ProgramTimeline(0.0, 3.0, 5.0, 5.5)


def test_a_counter_needs_its_edges_only() -> None:
    """Ticks around the program give its joules exactly."""
    found = program_energy(at(0.1, 1.5, 2.9, 3.0, 5.05, 5.15, 5.45), PLAIN, LINE)

    assert found is not None
    assert found.total_j == pytest.approx(1200.0)
    assert found.net_j == pytest.approx(960.0)
    assert found.idle_w == pytest.approx(IDLE_W)
    assert found.peak_w is None


def test_a_tick_right_after_the_end_is_not_taken() -> None:
    """A tick may be on its way when the program ends: of a counter nobody calibrated the next one counts."""
    late = replace(at(5.005)[0], value=at(4.99)[0].value)
    found = program_energy([*at(0.1, 1.5, 2.9, 3.0), late, *at(5.105, 5.205)], PLAIN, LINE)

    assert found is not None
    assert found.total_j == pytest.approx(1200.0)


@pytest.mark.parametrize("samples", [[], at(0.1), at(0.1, 2.9), at(2.9, 5.15), at(5.15), at(0.1, 1.0, 4.9)])
def test_too_little_is_no_answer(samples: list[Sample]) -> None:
    """Without idle power or without an end there are no joules, rather than wrong ones."""
    assert program_energy(samples, PLAIN, LINE) is None


@pytest.mark.parametrize("count", range(4))
def test_few_samples_are_no_answer(count: int) -> None:
    """A sensor that gave almost nothing gives no joules."""
    samples = [Sample(2.9 + i, 100.0) for i in range(count)]

    assert program_energy(samples, RING, LINE) is None


def test_a_curve_that_ends_too_early_is_left_alone() -> None:
    """A counter goes by its own ticks where the curve beside it does not reach its last one."""
    ticks = at(0.1, 1.5, 2.9, 3.0, 5.05, 5.15, 5.45)
    curve = EnergyCurve(SampleSeries.of([Sample(0.02 * i, 9999.0) for i in range(200)]), RING)

    assert program_energy(ticks, PLAIN, LINE, curve) == program_energy(ticks, PLAIN, LINE)


def test_what_was_not_right_is_noted() -> None:
    """Gaps, a recording that was cut short, aliasing and a counter that started anew are told."""
    info = replace(H200, response=replace(H200.response, capacitance_s=0.05, averages=False))
    power = Power([(0.0, IDLE_W), (3.0, 600.0), (5.0, IDLE_W)], 3.0, 5.0, 5.1)
    samples = [s for s in samples_of(power, info) if not 4.0 < s.time_s < 4.5]
    found = program_energy(samples, info, replace(LINE, finished_s=5.1))
    counted = program_energy([*at(0.1, 1.5, 2.9), Sample(5.2, 1.0)], PLAIN, LINE)

    assert found is not None
    assert [note.partition(":")[0] for note in found.notes] == ["aliasing", "sensor-gap", "cut-short"]
    assert counted is not None
    assert [note.partition(":")[0] for note in counted.notes] == ["sensor-reset"]


VALUES = st.floats(-1e4, 1e5) | st.sampled_from([0.0, 100.0, math.inf, math.nan])
ROWS = st.lists(st.tuples(st.floats(0.0, 10.0), VALUES, st.floats(0.0, 0.1)), max_size=60)
RESPONSES = st.builds(
    Response, st.just("lag"), capacitance_s=st.floats(0.0, 1.0), delay_s=st.floats(-0.1, 0.1)
) | st.builds(Response, st.sampled_from(["boxcar", "ramp"]), window_s=st.floats(0.001, 1.5))


@given(
    rows=ROWS.map(sorted) | ROWS,
    beside=ROWS.map(sorted),
    response=RESPONSES,
    kind=st.sampled_from(["ring", "stream", "counter"]),
    period_s=st.floats(0.0, 1.0),
)
def test_no_samples_break_it(
    rows: list[tuple[float, float, float]],
    beside: list[tuple[float, float, float]],
    response: Response,
    kind: Literal["ring", "stream", "counter"],
    period_s: float,
) -> None:
    """Whatever a sensor gave, there are joules that are numbers, or none."""
    info = SensorInfo("odd", kind, "gpu", period_s, response=response)
    ring = replace(info, kind="ring")
    curve = EnergyCurve(plausible([Sample(*row) for row in beside], ring)[0], ring)
    found = program_energy(
        [Sample(*row) for row in rows], info, ProgramTimeline(0.0, 2.0, 3.0, 7.0, 2.0), curve
    )

    if found is not None:
        assert math.isfinite(found.total_j)
        assert math.isfinite(found.net_j)
        assert found.net_sigma_j >= found.total_sigma_j >= 0.0


def test_time_that_goes_backwards_is_left_out() -> None:
    """A sample that is older than one before it, or no number, changes nothing."""
    power = power_of("plain", 1.0, 600.0, RING)
    samples, line = samples_of(power, RING), power.line(IDLE_S)
    odd = [*samples[:200], Sample(0.5, 9999.0), Sample(samples[199].time_s, 9999.0), *samples[200:]]
    odd.insert(300, Sample((samples[297].time_s + samples[298].time_s) / 2.0, math.nan))

    assert program_energy(odd, RING, line) == program_energy(samples, RING, line)
