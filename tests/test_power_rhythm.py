"""Samples of a counter by the rhythm of its ticks."""

import bisect
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Sample
from tuner.power.nvml.power_readings import RhythmSource, fitted

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
