"""Readings watched as they go: joules and mean in constant memory, and rows at regular times."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import ClockReading, Response, Sample, SensorInfo
from tuner.power.energy.meter import RunningEnergy

from tuner.joules.watching import PowerSnapshot, WatchedReading, snapshots
from tuner.model.errors import ClockError, PowerError

STREAM = SensorInfo("stream", "stream", "gpu", 0.1, poll_interval_s=0.01)
COUNTER = SensorInfo("counter", "counter", "gpu", 0.1, poll_interval_s=0.01, resolution=0.001)
LAG = SensorInfo("lag", "ring", "gpu", 0.1, response=Response("lag", capacitance_s=0.5))


@given(
    values=st.lists(st.floats(0.0, 700.0), min_size=2, max_size=50),
    cuts=st.lists(st.integers(0, 50), max_size=5),
)
def test_a_tally_is_the_integral(values: list[float], cuts: list[int]) -> None:
    """However the samples arrive, joules are those under the trace, plus C times the rise for a lag."""
    samples = [Sample(0.1 * i, value) for i, value in enumerate(values)]
    tally = RunningEnergy()
    bounds = sorted({0, len(samples), *(cut for cut in cuts if cut <= len(samples))})
    for start, end in itertools.pairwise(bounds):
        tally.add(samples[start:end])
    area = 0.1 * (sum(values) - (values[0] + values[-1]) / 2.0)
    plain, lagging = tally.joules(STREAM), tally.joules(LAG)

    assert plain is not None
    assert lagging is not None
    assert plain[0] == pytest.approx(area, abs=1e-6)
    assert lagging[0] == pytest.approx(area + 0.5 * (values[-1] - values[0]), abs=1e-6)
    assert lagging[1] >= plain[1] >= 0.0


@given(seed=st.integers(0, 1000), watts=st.floats(10.0, 700.0))
def test_the_truth_lies_within_the_tallys_uncertainty(seed: int, watts: float) -> None:
    """Joules of a noisy steady power are within five standard uncertainties of the truth."""
    noise = np.random.default_rng(seed).normal(0.0, 2.0, 200)
    for info in (STREAM, LAG):
        tally = RunningEnergy()
        tally.add(Sample(0.1 * i, watts + float(n)) for i, n in enumerate(noise))
        found = tally.joules(info)

        assert found is not None
        assert abs(found[0] - watts * tally.duration_s) < 5.0 * found[1]


def test_a_counter_is_its_difference() -> None:
    """Joules of a counter are last less first, as uncertain as the times of both are."""
    tally = RunningEnergy()
    assert tally.joules(COUNTER) is None
    tally.add([Sample(1.0, 5000.0, 0.001)])
    assert tally.joules(COUNTER) is None
    tally.add([Sample(2.0, 5100.0, 0.001), Sample(5.0, 5400.0, 0.001)])
    found = tally.joules(COUNTER)

    assert found is not None
    assert found[0] == 400.0
    assert found[1] == pytest.approx(100.0 * 0.001 * 2**0.5, rel=0.01)


def test_time_going_back_is_left_out() -> None:
    """A sample not later than the last adds nothing."""
    tally = RunningEnergy()
    tally.add([Sample(1.0, 100.0), Sample(2.0, 100.0), Sample(1.5, 9999.0), Sample(2.0, 9999.0)])

    assert tally.count == 2
    found = tally.joules(STREAM)
    assert found is not None
    assert found == pytest.approx((100.0, 0.0))


class Played:
    """A sensor and its clock: one sample a period; fails after some polls."""

    def __init__(self, info: SensorInfo, clock: "HandClock", fails_at: int = -1) -> None:
        self.info = info
        self.due_s = 0.0
        self.polls = 0
        self._clock = clock
        self._next_s = -5.0  # it has history
        self._fails_at = fails_at

    def poll(self) -> list[Sample]:
        self.polls += 1
        if self.polls == self._fails_at:
            raise PowerError("lost")
        fresh = []
        while self._next_s <= self._clock.time_s:
            joules = 50.0 * self._next_s
            fresh.append(Sample(self._next_s, joules if self.info.kind == "counter" else 50.0))
            self._next_s += self.info.period_s
        return fresh

    def close(self) -> None:
        pass


class HandClock:
    """Time that passes in pauses."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.stops_at_s = float("inf")

    def __call__(self) -> float:
        return self.time_s

    def pause(self, duration_s: float) -> bool:
        self.time_s += max(duration_s, 0.001)
        return self.time_s < self.stops_at_s


class Clocks:
    """A clock that is lost at the third reading."""

    reads = 0

    def read(self) -> ClockReading:
        self.reads += 1
        if self.reads > 2:
            raise ClockError("lost")
        return ClockReading(900.0, ("sw-power-cap",) if self.reads == 1 else ())


def taken(
    count: int, clock: HandClock, *samplers: Played, clocks: Clocks | None = None
) -> list[PowerSnapshot]:
    watched = [WatchedReading(sampler, clock) for sampler in samplers]
    rows = snapshots(watched, clocks, None, pause=clock.pause, interval_s=1.0, now=clock)  # type: ignore[arg-type]  # as much of a control as is used
    return [snapshot for snapshot, _ in zip(rows, range(count), strict=False)]


@pytest.mark.parametrize("info", [STREAM, COUNTER, LAG])
def test_rows_come_at_regular_times(info: SensorInfo) -> None:
    """One row a second, each with the mean of that second, and joules from the start on."""
    clock = HandClock()
    found = taken(5, clock, Played(info, clock))

    assert [round(snapshot.time_s) for snapshot in found] == [1, 2, 3, 4, 5]
    for number, snapshot in enumerate(found, start=1):
        (row,) = snapshot.rows
        assert row.watts == pytest.approx(50.0)
        assert row.mean_w == pytest.approx(50.0)
        assert row.joules == pytest.approx(50.0 * number, abs=10.1)
        assert row.shown_w == (None if info.kind == "counter" else 50.0)


def test_rings_are_polled_seldom() -> None:
    """A ring is polled about once a row, a stream twice a period."""
    clock = HandClock()
    ring, stream = Played(LAG, clock), Played(STREAM, clock)
    taken(5, clock, ring, stream)

    assert ring.polls <= 12
    assert 80 <= stream.polls <= 150


def test_a_sensor_that_fails_leaves_the_others() -> None:
    """The failed reading keeps what it had and says why; the other goes on."""
    clock = HandClock()
    found = taken(4, clock, Played(STREAM, clock, fails_at=15), Played(COUNTER, clock))
    failed, other = found[-1].rows

    assert failed.failure == "lost"
    assert failed.watts is None
    assert failed.joules is not None
    assert other.watts == pytest.approx(50.0)


def test_it_ends_when_no_reading_is_left() -> None:
    """The row in which the last reading failed is the last, and comes at once."""
    clock = HandClock()
    found = taken(99, clock, Played(STREAM, clock, fails_at=15), Played(STREAM, clock, fails_at=50))

    assert all(row.failure == "lost" for row in found[-1].rows)
    assert not all(row.failure for row in found[-2].rows)
    assert found[-1].time_s < 1.0 + found[-2].time_s


def test_the_state_of_the_gpu_goes_along() -> None:
    """Clock and throttle reasons come with each row and are remembered; a lost clock is none."""
    clock = HandClock()
    first, second, third = taken(3, clock, Played(STREAM, clock), clocks=Clocks())

    assert first.clock == ClockReading(900.0, ("sw-power-cap",))
    assert second.clock == ClockReading(900.0)
    assert third.clock == ClockReading(None)
    assert third.throttled == ("sw-power-cap",)


def test_an_interruption_ends_with_a_row() -> None:
    """When the pause is interrupted, what there is comes as the last row."""
    clock = HandClock()
    clock.stops_at_s = 1.5
    found = taken(9, clock, Played(STREAM, clock))

    assert [round(snapshot.time_s, 1) for snapshot in found] == [1.0, 1.5]
