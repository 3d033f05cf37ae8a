"""Beats: the steps of a program that marks none, found in the power that its GPU draws."""

import itertools
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Response, Sample, SensorInfo
from tuner.power.response.models import Array, PowerCurve, shown_watts

from tuner.joules.traces import Recorder, RunningCommand
from tuner.model.errors import InputError
from tuner.model.trial import Trial
from tuner.programs.beats import BEAT, GIVE_UP_S, check_readings, found_beat
from tuner.programs.phases import StepWindows
from tuner.search.request import LimitReachedError

RING = SensorInfo("ring", "ring", "gpu", 0.02, response=Response("lag", capacitance_s=0.013))
RAIL = SensorInfo("rail", "stream", "gpu", 0.1, response=Response("boxcar", window_s=0.1))
TOP, LOW = Trial((), 1500), Trial((), 1000)


def drawn(steps_s: Sequence[float] | Array, duty: float = 0.7) -> PowerCurve:
    """Power of steps in a row, which end by a pause of the GPU."""
    ends_s = np.cumsum(steps_s)
    begins_s = ends_s - steps_s
    return PowerCurve.of_load(
        list(zip(begins_s, begins_s + duty * np.asarray(steps_s), strict=True)), 120, 400
    )


def shown(curve: PowerCurve, info: SensorInfo, noise: float, seed: int) -> tuple[Array, Array]:
    """Times and watts that a sensor shows of it."""
    times_s = np.arange(1.0, curve.changes_s[-1], info.period_s)
    scatter = np.random.default_rng(seed).standard_normal(len(times_s))
    return times_s, shown_watts(curve, times_s, info.response) * (1.0 + noise * scatter)


@given(
    info=st.sampled_from([RING, RAIL]),
    updates=st.floats(4.5, 60.0),
    duty=st.floats(0.15, 0.85),
    scatters=st.tuples(st.floats(0.0, 0.03), st.floats(0.0005, 0.02)),
    seed=st.integers(0, 2**32),
)
def test_a_beat_is_found_within_its_error(
    info: SensorInfo, updates: float, duty: float, scatters: tuple[float, float], seed: int
) -> None:
    """It is that of the steps, or whole times as long, or there is said to be none."""
    uneven, noise = scatters  # of steps and samples
    period_s = updates * info.period_s
    steps_s = period_s * np.random.default_rng(seed).normal(1.0, uneven, int(60.0 / period_s))
    found = found_beat(*shown(drawn(steps_s, duty), info, noise, seed), 4.0 * info.period_s)
    if found is not None:
        beat_s, sigma_s, _ = found
        steps = round(beat_s / period_s)
        assert steps >= 1
        assert abs(beat_s / steps - period_s) <= 5.0 * sigma_s + 0.001 * period_s


@pytest.mark.parametrize("kept", [0.0, 0.9, 0.99, 1.0], ids=["white", "red", "redder", "walk"])
@pytest.mark.parametrize("period_s", [0.02, 0.1])
def test_noise_has_no_beat(kept: float, period_s: float) -> None:
    """Of forty stretches of noise of any colour, on a power that rises as a GPU gets warm, not one."""
    random = np.random.default_rng(7)
    times_s = period_s * np.arange(1000, dtype=np.float64)
    for _ in range(40):
        fresh = random.standard_normal(len(times_s))
        noise = list(itertools.accumulate(fresh, lambda before, now: kept * before + now))
        assert found_beat(times_s, 400.0 + 0.1 * times_s + np.array(noise), 4.0 * period_s) is None


def test_a_beat_that_the_sensor_does_not_resolve_is_refused() -> None:
    """The message says how long it is, and what the sensor shows."""
    curve = drawn(np.full(300, 0.23))
    with pytest.raises(InputError, match=r"repeats every 2\d\d\.\d ms, and no beat below 400\.0 ms"):
        found_beat(*shown(curve, RAIL, 0.001, 1), 4.0 * RAIL.period_s)


def test_a_counter_shows_no_beat() -> None:
    """It is told before anything runs; steps that are marked need no reading."""
    counter = SensorInfo("counter", "counter", "gpu", 0.1)
    check_readings("step", [counter])
    check_readings(BEAT, [counter, RING])
    with pytest.raises(InputError, match="--phase beat: no reading"):
        check_readings(BEAT, [counter])


class Drawing:
    """A command that marks nothing, and the sensor of its power, on a clock that goes on as it is attended.

    Attributes:
        step_s: time of each further step; 0 for none.
        then: times after which it is another.
    """

    exit_code, due_s = None, 0.0

    def __init__(self, step_s: float, info: SensorInfo = RING) -> None:
        self.step_s, self.info = step_s, info
        self.then: dict[float, float] = {}
        self._now_s = self._drawn_s = 0.0
        self._busy = [(-1.0, -0.9)]
        self._shown = 0
        self.recorder = Recorder([self], now=self.now_s)

    def now_s(self) -> float:
        return self._now_s

    def attend(self, until_s: float) -> list[tuple[float, str]]:
        while self._drawn_s < until_s:
            for after_s in [after_s for after_s in self.then if after_s <= self._drawn_s]:
                self.step_s = self.then.pop(after_s)
            if self.step_s:
                self._busy.append((self._drawn_s, self._drawn_s + 0.7 * self.step_s))
            self._drawn_s += self.step_s or 0.5
        del self._busy[:-200]
        self._now_s = until_s
        self.recorder.poll()
        return []

    def poll(self) -> list[Sample]:
        first, self._shown = self._shown, int(self._now_s / self.info.period_s)
        times_s = self.info.period_s * np.arange(first + 1, self._shown + 1, dtype=np.float64)
        watts = shown_watts(PowerCurve.of_load(self._busy, 120.0, 400.0), times_s, self.info.response)
        watts = watts + 0.3 * np.sin(1e4 * times_s**2)  # what is no beat
        return [Sample(*each) for each in zip(times_s.tolist(), watts.tolist(), strict=True)]

    def edge(self) -> None: ...

    def close(self) -> None: ...


def windows_of(drawing: Drawing) -> tuple[StepWindows, list[str]]:
    told: list[str] = []
    return StepWindows(cast(RunningCommand, drawing), BEAT, 5.0, told.append), told


@pytest.mark.parametrize("slower", [1.0, 1.07, 1.45])
def test_a_window_of_beats_tells_how_long_they_are(slower: float) -> None:
    """At another clock they are longer, by what it is slower, and take the joules of one step."""
    drawing = Drawing(0.4)
    windows, told = windows_of(drawing)
    usual = windows(TOP, 1e9, 12)
    drawing.step_s *= slower
    slowed = windows(LOW, 1e9, 12)

    assert "the power repeats every 400." in told[0]
    for run, step_s in ((usual, 0.4), (slowed, 0.4 * slower)):
        assert run.times == 12
        assert run.duration_s == pytest.approx(step_s, rel=0.003)
        assert run.energy is not None
        assert run.energy.joules == pytest.approx(step_s * (0.7 * 400.0 + 0.3 * 120.0), rel=0.01)


def test_joules_are_as_sure_as_steps_are_alike() -> None:
    """A sensor of few samples a step shows a power that jumps: that is no noise of whole steps."""
    windows, _ = windows_of(Drawing(0.73, RAIL))
    windows(TOP, 1e9, 4)
    energy = windows(TOP, 1e9, 20).energy
    assert energy is not None
    assert energy.uncertainty_j < 0.01 * energy.joules
    assert energy.joules == pytest.approx(0.73 * (0.7 * 400.0 + 0.3 * 120.0), rel=0.01)


def test_a_slow_window_is_cut() -> None:
    """It ends after the time that it may take, and holds whole beats."""
    drawing = Drawing(0.4)
    windows, _ = windows_of(drawing)
    windows(TOP, 1e9, 12)
    drawing.step_s, begun_s = 0.58, drawing.now_s()
    run = windows(LOW, 5.0, 12)
    assert drawing.now_s() - begun_s < 8.0
    assert (run.times or 0) < 12
    assert run.duration_s == pytest.approx(0.58, rel=0.003)


def test_a_pause_between_beats_begins_a_window_anew() -> None:
    """An evaluation between two epochs is in no window."""
    drawing = Drawing(0.4)
    windows, told = windows_of(drawing)
    windows(TOP, 1e9, 12)
    begun_s = drawing.now_s()
    drawing.then = {begun_s + 4.0: 0.0, begun_s + 19.0: 0.4}
    run = windows(TOP, 10.0, 12)
    assert drawing.now_s() > begun_s + 19.0
    assert run.times == 12
    assert run.duration_s == pytest.approx(0.4, rel=0.003)
    assert len(told) == 1


@pytest.mark.parametrize("after_s", [0.0, 4.0])
def test_a_beat_that_changes_is_told(after_s: float) -> None:
    """Another batch size at the same clock, before a window or in it: the beat that there is now counts."""
    drawing = Drawing(0.4)
    windows, told = windows_of(drawing)
    windows(TOP, 1e9, 12)
    drawing.then = {drawing.now_s() + after_s: 0.7}
    run = windows(TOP, 1e9, 12)
    assert run.duration_s == pytest.approx(0.7, rel=0.003)
    assert "the power repeats every 700." in told[-1]
    assert "no more every 400." in told[-1]


def test_a_beat_that_is_lost_ends_the_search() -> None:
    """At another clock it fails a window; where there is none at the usual one either, no more are made."""
    drawing = Drawing(0.4)
    windows, told = windows_of(drawing)
    windows(TOP, 1e9, 12)
    drawing.step_s, begun_s = 0.0, drawing.now_s()
    assert windows(LOW, 1e9, 12).failure is not None
    assert drawing.now_s() - begun_s < 30.0
    with pytest.raises(LimitReachedError):
        windows(TOP, 1e9, 12)
    assert GIVE_UP_S - 5.0 < drawing.now_s() - begun_s < GIVE_UP_S + 5.0
    assert windows.over
    assert "no beat in 5 minutes" in told[-1]


def test_a_program_without_a_beat_is_told() -> None:
    """It says what to do instead."""
    windows, _ = windows_of(Drawing(0.0))
    with pytest.raises(InputError, match=r"has not repeated in 5 minutes; mark steps by tuner\.phase"):
        windows(TOP, 1e9, 12)


def test_a_slow_sensor_shows_slow_beats() -> None:
    """Few samples are enough where beats are long."""
    slow = SensorInfo("slow", "stream", "gpu", 0.3, response=Response("boxcar", window_s=0.3))
    found = found_beat(*shown(drawn(np.full(60, 2.9)), slow, 0.002, 1), 4.0 * slow.period_s)
    assert found is not None
    assert found[0] == pytest.approx(2.9, rel=0.01)
