"""Dating the ticks of a counter: intervals between reads, the rhythm that explains them, samples by it."""

import bisect
import importlib
import itertools
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pynvml
import pytest
from fake_nvml_state import UUID, fake_nvml, library, script, sensors_of_h200
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Sample, SensorInfo
from tuner.power.energy.counters import Period, SensorHistory, on_rhythm
from tuner.power.energy.mean_power import mean_power
from tuner.power.energy.samples import SampleSeries
from tuner.power.nvml.power_readings import RhythmSource, fitted
from tuner.power.sensors.changes import ChangeSource

COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, resolution=0.001)
SQRT_12 = math.sqrt(12.0)

# Five seconds of an H200's energy counter under a steady load: (ms, J, width of the tick's interval in ms).
# The 15th tick was dated early and the 49th in a read that took four times as long as usual.
# fmt: off
H200 = (
    (0.0, 0.000, 6.5), (100.2, 64.136, 6.3), (200.3, 128.539, 6.3), (300.1, 193.031, 6.4),
    (400.3, 257.440, 6.1), (500.1, 321.883, 6.5), (600.0, 386.303, 6.6), (700.0, 450.798, 6.5),
    (800.1, 515.296, 6.4), (900.0, 579.686, 6.7), (1000.0, 644.097, 6.8), (1100.0, 708.459, 6.6),
    (1200.0, 772.820, 6.7), (1300.1, 837.178, 6.4), (1403.6, 902.130, 4.8), (1500.0, 965.947, 6.7),
    (1600.0, 1030.517, 6.6), (1700.0, 1094.871, 6.6), (1800.1, 1159.300, 6.4), (1900.2, 1223.791, 6.6),
    (2000.0, 1288.134, 6.5), (2100.1, 1352.540, 6.4), (2200.1, 1416.938, 6.2), (2300.0, 1481.362, 6.5),
    (2400.0, 1545.816, 6.7), (2499.9, 1610.192, 6.6), (2600.1, 1674.541, 6.3), (2700.0, 1738.929, 6.6),
    (2800.0, 1803.354, 6.6), (2900.1, 1867.688, 6.2), (3000.1, 1932.147, 6.4), (3100.0, 1996.524, 6.6),
    (3200.0, 2060.979, 6.6), (3300.0, 2125.463, 6.5), (3400.1, 2189.934, 6.4), (3500.0, 2254.368, 6.6),
    (3600.2, 2318.766, 6.1), (3700.4, 2383.134, 6.0), (3799.9, 2447.557, 6.7), (3900.2, 2511.951, 6.4),
    (4000.0, 2576.360, 6.6), (4100.0, 2640.817, 6.4), (4200.1, 2705.244, 6.3), (4300.2, 2769.697, 6.1),
    (4400.0, 2834.209, 6.6), (4500.3, 2898.671, 5.9), (4600.1, 2963.127, 6.6), (4700.1, 3027.496, 6.3),
    (4810.2, 3092.641, 17.3), (4900.9, 3156.302, 5.9),
)
# fmt: on


def h200() -> SampleSeries:
    return SampleSeries.of([Sample(ms * 1e-3, joules, width * 1e-3 / SQRT_12) for ms, joules, width in H200])


class Polled:
    """A counter of 500 W that ticks every 0.1 s, read by slow calls that take the number early on."""

    def __init__(self, seed: int, slow: float) -> None:
        self.time_s = 100.0
        self.random = np.random.default_rng(seed)
        self.phase_s = 0.1 * self.random.random()
        self.slow = slow
        self.reads_s: list[float] = []

    def now(self) -> float:
        return self.time_s

    def read(self) -> float:
        self.reads_s.append(self.time_s)
        self.wait()
        self.time_s += 0.001
        number = math.floor((self.time_s - self.phase_s) / 0.1)
        self.time_s += 0.0035
        self.wait()
        return 50_000.0 * number

    def wait(self) -> None:
        if self.random.random() < self.slow:
            self.time_s += self.random.exponential(0.008)

    def ticks(self, seconds: float) -> list[Sample]:
        """What polling for so long finds."""
        source, found = ChangeSource(self.read, 1e-3, self.now), []
        end_s = self.time_s + seconds
        while self.time_s < end_s:
            found += source.poll()
            self.time_s = max(self.time_s + 0.001, source.due_s)
        return found


def scores(slow: float, seconds: float) -> npt.NDArray[np.float64]:
    """Errors of the power of 0.8 s, in standard uncertainties."""
    found = []
    for seed in range(60):
        polled = Polled(seed, slow)
        trace = SampleSeries.of(polled.ticks(seconds))
        mean = mean_power(trace, polled.time_s - 0.8, polled.time_s, COUNTER)
        assert mean.uncertainty_w < 5.0
        found.append((mean.watts - 500.0) / mean.uncertainty_w)
    return np.array(found)


@pytest.mark.parametrize("slow", [0.0, 0.03, 0.2])
@pytest.mark.parametrize("seconds", [1.0, 1.5])
def test_the_uncertainty_of_polled_ticks_is_believable(slow: float, seconds: float) -> None:
    """Where in a read the number is taken, and reads that wait, cost no more than the uncertainty says."""
    found = scores(slow, seconds)

    assert 0.3 < math.sqrt(np.mean(found**2)) < 1.3
    assert np.mean(np.abs(found) < 1.0) > 0.6


def on_a_busy_host(seed: int, window_s: float) -> float:
    """Error, in standard uncertainties, of 500 W from a counter of 1 ms read every 1.1 ms, or 5 ms later."""
    random = np.random.default_rng(seed)
    time_s = 100.0 + random.random()
    source = ChangeSource(lambda: 500.0 * math.floor(time_s * 1e3), 1e-3, lambda: time_s)
    found: list[Sample] = []
    start_s = time_s + 0.02
    while time_s < start_s + window_s + 0.02:
        found += source.poll()
        time_s += 0.0011 + 0.005 * (random.random() < 0.02)
    mean = mean_power(SampleSeries.of(found), start_s, start_s + window_s, replace(COUNTER, period_s=0.001))
    return (mean.watts - 500.0) / mean.uncertainty_w


@pytest.mark.parametrize("window_s", [0.05, 0.1])
def test_ends_that_a_busy_host_reads_late_count_as_they_are_dated(window_s: float) -> None:
    """Where ticks have no rhythm, late ones and those that beat with the reads stay within what is said."""
    found = np.array([on_a_busy_host(seed, window_s) for seed in range(80)])

    assert np.max(np.abs(found)) < 3.0
    assert math.sqrt(np.mean(found**2)) < 1.0


@pytest.mark.parametrize("slow", [0.0, 0.03])
def test_a_tick_lies_in_its_interval(slow: float) -> None:
    """But for one constant offset, the true times lie in the stated intervals."""
    polled = Polled(3, slow)
    ticks = polled.ticks(5.0)
    offset_s = 0.00125  # from where the number is taken to the middle of a read

    assert len(ticks) >= 45
    for tick in ticks:
        true_s = round((tick.time_s - polled.phase_s - offset_s) / 0.1) * 0.1 + polled.phase_s + offset_s
        assert abs(true_s - tick.time_s) <= tick.time_sigma_s * math.sqrt(3.0) + 1e-9


def test_few_reads_serve() -> None:
    """Once the rhythm is known a tick of 100 ms takes five reads of 4.5 ms, not eighteen."""
    polled = Polled(1, 0.0)
    polled.ticks(5.0)

    assert len([time_s for time_s in polled.reads_s if time_s > 101.0]) / 40 < 6.0


def test_one_rhythm_of_a_recording_dates_better_than_the_sensor() -> None:
    """The times that a sensor has for planning its reads are fitted anew, all of a recording together."""
    by_sensor, by_engine = [], []
    for seed in range(8):
        polled, history = Polled(seed, 0.0), SensorHistory()
        source = RhythmSource(polled.read, 1e-3, polled.now)
        for _ in range(20):
            end_s, found = polled.time_s + 1.2, []
            while polled.time_s < end_s:
                found += source.poll()
                polled.time_s = max(polled.time_s + 0.001, source.due_s)
            inside = SampleSeries.of(found).between(end_s - 0.85, end_s - 0.02)
            own_w = (inside.values[-1] - inside.values[0]) / inside.duration_s
            mean = mean_power(SampleSeries.of(found), end_s - 0.85, end_s - 0.02, COUNTER, history)
            by_sensor.append(own_w / 500.0 - 1.0)
            by_engine.append(mean.watts / 500.0 - 1.0)
            polled.time_s += 0.7

    assert np.sqrt(np.mean(np.square(by_engine))) < 0.8 * np.sqrt(np.mean(np.square(by_sensor)))


@given(
    st.floats(0.02, 1.0),
    st.floats(0.001, 0.05),
    st.lists(st.floats(-0.5, 0.5), min_size=20, max_size=20),
    st.sets(st.integers(0, 19), max_size=6),
)
def test_a_rhythm_is_found(period_s: float, width: float, shifts: list[float], missed: set[int]) -> None:
    """Regular ticks dated anywhere in intervals that hold them come out regular, with the true period."""
    numbers = [number for number in range(20) if number not in missed]
    width_s = width * period_s
    samples = [
        Sample(number * period_s + shifts[number] * width_s, 7.0 * number, width_s / SQRT_12)
        for number in numbers
    ]

    fitted, period = on_rhythm(SampleSeries.of(samples))

    found_s = np.diff(fitted.times_s) / np.diff(numbers)
    assert found_s == pytest.approx(np.full(len(found_s), found_s[0]))
    assert abs(found_s[0] / period_s - 1.0) < 4.0 * fitted.scale_sigma
    assert period is not None
    assert period.seconds == pytest.approx(found_s[0])


@pytest.mark.parametrize("window_s", [0.8, 1.2])
def test_windows_of_a_steady_load_agree(window_s: float) -> None:
    """On an H200 every window shows the power of the whole to 0.2 %, and nearly all within their interval."""
    trace = h200()
    whole = mean_power(trace, 0.0, 5.0, COUNTER)
    errors, stated = [], []
    for start_s in np.arange(0.0, 4.9 - window_s, 0.0437):
        mean = mean_power(trace, start_s, start_s + window_s, COUNTER)
        errors.append(abs(mean.watts / whole.watts - 1.0))
        stated.append(mean.uncertainty_w / whole.watts)

    assert max(errors) < 0.002
    assert np.mean(np.array(errors) < 1.96 * np.array(stated)) > 0.9
    assert np.median(stated) < 0.001


def test_a_delayed_tick_is_no_edge() -> None:
    """A tick of twice the usual interval shows no energy, as the counter may have been late too."""
    late_s = H200[48][0] * 1e-3

    fitted, _ = on_rhythm(h200())

    assert len(fitted) == len(H200) - 1
    assert np.min(np.abs(fitted.times_s - late_s)) > 0.08


def test_an_irregular_sensor_keeps_its_dates() -> None:
    """Where no period explains all intervals the dated ticks stay as they are."""
    steps = [0.1, 0.1, 0.13, 0.1, 0.07, 0.1, 0.1]
    times = list(itertools.accumulate(steps))
    trace = SampleSeries.of([Sample(time, 100.0 * time, 0.001) for time in times])

    assert on_rhythm(trace) == (trace, None)


def test_exact_times_are_left_alone() -> None:
    """Ticks whose times are known, as those of a simulated counter, are not fitted."""
    trace = replace(h200(), time_sigmas_s=np.zeros(len(H200)))

    assert on_rhythm(trace) == (trace, None)


def test_a_tick_after_a_pause_does_not_count() -> None:
    """A first tick that is known to a quarter of a second only does not spoil the rhythm of the others."""
    ticks = h200()
    paused = SampleSeries(
        np.concatenate(([-0.23], ticks.times_s)),
        np.concatenate(([-64.4], ticks.values)),
        np.concatenate(([0.07], ticks.time_sigmas_s)),
    )

    assert on_rhythm(paused)[0].times_s.tolist() == on_rhythm(ticks)[0].times_s.tolist()


def recordings(count: int, ticks: int, pause: float, seed: int) -> list[SampleSeries]:
    """Recordings of so many ticks of 0.1 s, each dated anywhere in 6 ms, with pauses between."""
    random = np.random.default_rng(seed)
    made, begin = [], 0
    for _ in range(count):
        numbers = begin + np.arange(float(ticks))
        dated_s = numbers * 0.1 + random.uniform(-0.003, 0.003, ticks)
        made.append(SampleSeries(dated_s, 50.0 * numbers, np.full(ticks, 0.006 / SQRT_12)))
        begin += ticks + math.ceil(random.uniform(0.0, pause) / 0.1)
    return made


@pytest.mark.parametrize("seed", range(5))
def test_the_period_is_learnt_over_recordings(seed: int) -> None:
    """Ticks counted over pauses tell the period far better than any one recording of 0.8 s."""
    learned = SensorHistory()
    alone = []
    for trace in recordings(20, 8, 0.6, seed):
        fitted, own = on_rhythm(trace, learned.period)
        assert own is not None
        alone.append(own.sigma_s)
        learned.add_ticks(fitted.times_s[0], fitted.times_s[-1], 0.0017, own)

    assert learned.period is not None
    assert learned.period.sigma_s < min(alone) / 5.0
    assert abs(learned.period.seconds - 0.1) < 4.0 * learned.period.sigma_s


def test_a_recording_is_told_of_once() -> None:
    """Several windows of one recording count its ticks once, and leave the count over pauses as it is."""
    learned = SensorHistory()
    own = Period(0.1, 0.0002)
    for begin_s in (0.0, 1.0, 1.0, 2.0):
        learned.add_ticks(begin_s, begin_s + 0.7, 0.0017, own)

    assert learned.period is not None
    assert learned.period.sigma_s == pytest.approx(math.sqrt(2.0) * 0.0017 / 27)


def test_a_known_period_makes_a_window_surer() -> None:
    """The same ticks carry a smaller common uncertainty once the period is known, and the known period."""
    (trace,) = recordings(1, 8, 0.0, 1)
    alone, _ = on_rhythm(trace)
    known, _ = on_rhythm(trace, Period(0.1, 1e-6))

    assert known.scale_sigma < alone.scale_sigma / 10.0
    assert np.diff(known.times_s) == pytest.approx(0.1, rel=1e-4)


def test_a_period_that_does_not_fit_is_not_forced_on_ticks() -> None:
    """A sensor whose ticks have changed is fitted by its own recording."""
    (trace,) = recordings(1, 8, 0.0, 1)

    fitted, own = on_rhythm(trace, Period(0.12, 1e-6))

    assert own is not None
    assert np.diff(fitted.times_s) == pytest.approx(own.seconds)


def test_ticks_are_not_counted_over_a_pause_that_is_too_long() -> None:
    """Where a pause leaves the count of ticks in doubt, or a driver has begun anew, the count begins anew."""
    learned = SensorHistory()
    own = Period(0.1, 0.0002)
    learned.add_ticks(0.0, 0.7, 0.0017, own)
    learned.add_ticks(100.0, 100.7, 0.0017, own)
    assert learned.period == own
    learned.add_ticks(101.05, 101.75, 0.0017, own)
    assert learned.period == own
    learned.add_ticks(102.05, 102.75, 0.0017, own)
    assert learned.period.sigma_s < own.sigma_s


PERIOD_S = 0.1


class Counter:
    """A counter that steps by one at given times, and whose every read takes a while."""

    def __init__(self, ticks_s: Sequence[float], read_s: float = 0.003) -> None:
        self.ticks_s = ticks_s
        self.read_s = read_s
        self.time_s = 0.0
        self.reads: list[float] = []

    def now(self) -> float:
        return self.time_s

    def read(self) -> float:
        self.time_s += self.read_s / 2.0
        self.reads.append(self.time_s)
        value = bisect.bisect(self.ticks_s, self.time_s)
        self.time_s += self.read_s / 2.0
        return float(value)

    def source(self, interval_s: float = 0.0) -> RhythmSource:
        return RhythmSource(self.read, 1.0, self.now, interval_s=interval_s)

    def watch(self, source: RhythmSource, until_s: float, pause_s: float = 0.001) -> list[Sample]:
        """Poll as a meter does, until a time."""
        samples = []
        while self.time_s < until_s:
            self.time_s += max(pause_s, min(source.due_s, until_s) - self.time_s)
            samples += source.poll()
        return samples


def regular(duration_s: float, period_s: float = PERIOD_S, phase_s: float = 0.037) -> list[float]:
    return [float(time_s) for time_s in np.arange(phase_s, duration_s, period_s)]


def errors_s(samples: list[Sample], counter: Counter) -> list[float]:
    """How far each sample is from the tick that made its value."""
    return [sample.time_s - counter.ticks_s[int(sample.value) - 1] for sample in samples]


@pytest.mark.parametrize("read_s", [0.0001, 0.003])
def test_one_read_a_tick(read_s: float) -> None:
    """Once the rhythm is known every tick is a sample and costs about one read, whatever that takes."""
    counter = Counter(regular(20.0), read_s)
    source = counter.source()
    counter.watch(source, 10.0)
    reads = len(counter.reads)
    samples = counter.watch(source, 20.0)

    assert [sample.value for sample in samples] == list(range(101, 201))
    assert len(counter.reads) - reads < 115
    assert max(map(abs, errors_s(samples, counter))) < 0.005


def test_an_interval_skips_ticks() -> None:
    """Of a counter wanted once a second a tick of each second is read, and the period stays known."""
    counter = Counter(regular(200.0))
    source = counter.source(interval_s=1.0)
    counter.watch(source, 60.0)
    reads = len(counter.reads)
    samples = counter.watch(source, 200.0)

    assert np.diff([sample.value for sample in samples]) == pytest.approx(10, abs=9)
    assert len(samples) == pytest.approx(140, abs=10)
    assert len(counter.reads) - reads < 1.3 * len(samples)
    assert source.rhythm is not None
    assert source.rhythm.period_s == pytest.approx(PERIOD_S, rel=1e-4)


def test_without_rhythm_every_tick_is_dated() -> None:
    """Ticks at random times are samples all the same, each dated between two reads."""
    random = np.random.default_rng(1)
    counter = Counter([float(t) for t in np.cumsum(random.uniform(0.05, 0.15, 150))], 0.001)
    source = counter.source()
    samples = counter.watch(source, 14.0)

    assert source.rhythm is None
    assert len(samples) > 130
    for sample, error_s in zip(samples, errors_s(samples, counter), strict=True):
        assert abs(error_s) < 3.0**0.5 * sample.time_sigma_s + counter.read_s
    assert np.median([sample.time_sigma_s for sample in samples]) < 0.001


def test_ticks_as_fast_as_reads_have_no_rhythm() -> None:
    """Ticks that come about as fast as reads are not taken for a slower rhythm."""
    counter = Counter(regular(10.0, period_s=0.01), 0.003)
    source = counter.source()
    samples = counter.watch(source, 5.0)

    for sample, error_s in zip(samples, errors_s(samples, counter), strict=True):
        assert abs(error_s) < 6.0 * sample.time_sigma_s + 0.003


def test_ticks_that_stop_give_no_samples() -> None:
    """A rhythm is no reason to report ticks that do not come."""
    counter = Counter(regular(5.0))
    source = counter.source()
    counter.watch(source, 5.1)

    assert counter.watch(source, 8.0) == []
    assert source.rhythm is None


@pytest.mark.parametrize("shift_s", [0.03, 0.05, 0.09])
def test_a_shifted_rhythm_is_found_again(shift_s: float) -> None:
    """Ticks that go on at another phase are dated anew."""
    first = regular(5.0)
    second = regular(15.0, phase_s=first[-1] + PERIOD_S + shift_s)
    counter = Counter(first + second)
    source = counter.source()
    counter.watch(source, 12.0)
    samples = counter.watch(source, 15.0)

    assert len(samples) >= 28
    assert max(map(abs, errors_s(samples, counter))) < 0.005


def test_a_long_pause_ends_what_is_known() -> None:
    """After so long a pause that ticks cannot be counted any more, the rhythm is learnt anew."""
    counter = Counter([*regular(3.0), *regular(1010.0, phase_s=1000.05)])
    source = counter.source()
    counter.watch(source, 3.0)
    counter.time_s = 1003.0
    samples = counter.watch(source, 1008.0)

    assert len(samples) > 45
    assert max(map(abs, errors_s(samples, counter))) < 0.005


@given(
    period_s=st.floats(0.02, 0.2),
    phase=st.floats(0.0, 1.0),
    jitter=st.floats(0.0, 0.03),
    read_s=st.floats(1e-5, 0.004),
    interval_s=st.sampled_from([0.0, 0.25]),
    pauses_s=st.lists(st.floats(0.001, 3.0), max_size=4),
    seed=st.integers(0, 2**20),
)
def test_samples_are_true_and_in_order(  # noqa: PLR0917 - the counters there may be
    period_s: float,
    phase: float,
    jitter: float,
    read_s: float,
    interval_s: float,
    pauses_s: list[float],
    seed: int,
) -> None:
    """Whatever period, phase, jitter, cost of a read and pauses: times increase and fit their values."""
    random = np.random.default_rng(seed)
    duration_s = 6.0 + sum(pauses_s)
    ticks = np.arange(phase * period_s, duration_s, period_s)
    counter = Counter(
        [float(t) for t in ticks + jitter * period_s * random.uniform(-1, 1, len(ticks))], read_s
    )
    source = counter.source(interval_s)
    samples = counter.watch(source, 2.0)
    for pause_s in pauses_s:
        counter.time_s += pause_s
        samples += counter.watch(source, counter.time_s + 1.0)

    times = [sample.time_s for sample in samples]
    assert times == sorted(set(times))
    assert len(samples) >= 5
    for sample, error_s in zip(samples, errors_s(samples, counter), strict=True):
        assert abs(error_s) < 6.0 * sample.time_sigma_s + 2.0 * jitter * period_s + read_s


def test_a_line_tells_its_uncertainty() -> None:
    """A rhythm's ticks lie where the dated ones lay, the less certainly the further from them."""
    random = np.random.default_rng(3)
    ticks = [
        (5.0 + PERIOD_S * n + 0.001 * random.standard_normal(), 0.001) for n in (0, 1, 2, 3, 4, 6, 7, 8, 9)
    ]

    rhythm = fitted(ticks, 0.09)

    assert rhythm is not None
    assert rhythm.period_s == pytest.approx(PERIOD_S, rel=0.01)
    for time_s in (5.01, 5.95, 10.03, 14.97):
        error_s = rhythm.tick_s(rhythm.number(time_s)) - (time_s // PERIOD_S) * PERIOD_S
        assert abs(error_s) < 4.0 * rhythm.uncertainty_s(time_s)
    assert rhythm.uncertainty_s(15.0) > 5.0 * rhythm.uncertainty_s(5.5)
    assert fitted(ticks[:7], PERIOD_S) is None
    assert fitted([(time_s + 0.02 * random.standard_normal(), 0.0) for time_s, _ in ticks], PERIOD_S) is None


# --- The referee's log of NVML's energy counter, on the fake NVML.

WATTS = 300.0
TICKS = 6


def test_the_log_reads_the_power_of_a_steady_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks of the counter, dated by the reads around them, give the power between them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(Path(library()).parent))
    log = importlib.import_module("referee")

    with fake_nvml(tmp_path) as state:
        sensors_of_h200(state)
        script(state, (0.0, WATTS))
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with log.counter_log(UUID) as end:
            start_s = time.monotonic()
            for _ in range(TICKS):
                last = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                while pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == last:
                    pass
            ticks = end()
        pynvml.nvmlShutdown()
    watts, sigma_w = log.power_of(ticks, start_s, time.monotonic())

    assert len(ticks) >= TICKS - 1
    assert 0.0 < sigma_w < 0.05 * WATTS
    assert watts == pytest.approx(WATTS, abs=4.0 * sigma_w)
    sys.modules.pop("referee")
