"""Runs that are tuned while they go on: windows of steps that are marked, or seen in the power."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Response, Sample, SensorInfo
from tuner.power.response.models import Array, PowerCurve, shown_watts

from tuner.devices.choice import open_device
from tuner.devices.sensors import open_clocks
from tuner.joules.traces import Recorder, RunningCommand, running
from tuner.measurement.settle import SettingLock
from tuner.model.errors import InputError
from tuner.model.trial import Energy, Trial
from tuner.programs.beats import BEAT, GIVE_UP_S, check_readings, found_beat
from tuner.programs.measuring import ProgramRun
from tuner.programs.phases import PhaseMeasurer, StepWindows
from tuner.programs.program import Program
from tuner.programs.tuning import tune_program
from tuner.search.answer import Outcome
from tuner.search.option_checks import LimitReachedError
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup

PROGRAM = Program(("train",), phase="step")


class Steps:
    """Windows whose times and joules follow the clock, and grow from window to window as they are told to."""

    least_s = 5.0

    def __init__(
        self, costs: Callable[[int], tuple[float, float]], drift: Callable[[int], float], ends: int | None
    ) -> None:
        self._costs, self._drift, self._ends = costs, drift, ends
        self.clocks_mhz: list[int] = []
        self.kept = False

    @property
    def over(self) -> bool:
        return len(self.clocks_mhz) == self._ends

    def __call__(self, trial: Trial, most_s: float, times: int) -> ProgramRun:
        if self.over:
            raise LimitReachedError("the program has ended")
        grown = self._drift(len(self.clocks_mhz))
        self.clocks_mhz.append(trial.clock_mhz or 0)
        seconds, joules = (grown * cost for cost in self._costs(trial.clock_mhz or 0))
        times = max(1, min(times, int(min(most_s, 1e9) / seconds)))
        energy = Energy(joules, 0.002 * joules, joules / seconds, "scripted", "gpu")
        return ProgramRun(seconds, energy, scatter=0.001, times=times)

    def rest(self) -> tuple[int, float]:
        self.kept = True
        return 1000, 500.0


def tuned(
    folder: Path,
    costs: Callable[[int], tuple[float, float]],
    *,
    drift: Callable[[int], float] = lambda _: 1.0,
    ends: int | None = None,
    resume: bool = False,
    program: Program = PROGRAM,
    **options: Any,
) -> tuple[Outcome, Steps, list[str]]:
    """Tune a run on a modelled H200's clocks; its outcome, its windows, and what was told."""
    steps, told = Steps(costs, drift, ends), list[str]()

    @contextmanager
    def opened(spec: str | None, request: SearchRequest, *_: object) -> Iterator[MeasurementSetup]:
        device, _notice = open_device(spec)
        clocks, _why = open_clocks(device)
        measurer = PhaseMeasurer(program, steps, SettingLock(clocks), request.max_slowdown, tell=told.append)
        yield MeasurementSetup(device, measurer, clocks, "", "scripted", 0.0, ())
        device.close()

    class Listener:
        def compiled(self, *_: object) -> None: ...
        def measured(self, *_: object) -> None: ...
        def warming(self, *_: object) -> None: ...
        def told(self, sentence: str) -> None:
            told.append(sentence)

    request = SearchRequest(**{"objective": "energy", "clocks": "auto", "energy_precision": 0.005, **options})
    outcome = tune_program(
        program, request, Listener(), opened, device="sim:h200", database=folder / "t.db", resume=resume
    )
    return outcome, steps, told


def chosen_mhz(outcome: Outcome) -> int:
    assert outcome.answer is not None
    return outcome.trials[outcome.answer][0].clock_mhz or 0


def parabola(mhz: int) -> tuple[float, float]:
    """Least joules at 1200 MHz."""
    return 0.5, 100.0 + 100.0 * ((mhz - 1200) / 800) ** 2


def test_a_drift_is_in_no_answer(tmp_path: Path) -> None:
    """The work grows by 3 % with each window: each clock is held against the default windows around it."""
    outcome, steps, told = tuned(
        tmp_path, parabola, drift=lambda number: 1.03**number, clocks="1980,1500,1200,900"
    )

    assert chosen_mhz(outcome) == 1200
    joules = [measured.energy.joules for measured in outcome.searched if measured.energy]
    for (trial, _), joule in zip(outcome.trials, joules, strict=True):
        true = parabola(trial.clock_mhz or 0)[1] / parabola(1980)[1]
        assert joule / joules[0] == pytest.approx(true, rel=0.002)
    assert steps.kept
    assert any("1200 MHz" in sentence and "held for the rest" in sentence for sentence in told)
    assert any("1000 steps" in sentence and "were saved" in sentence for sentence in told)


def test_work_that_changes_is_measured_again(tmp_path: Path) -> None:
    """Steps that take twice as long from a window on say nothing of the clock of that window."""
    outcome, _, told = tuned(
        tmp_path, parabola, drift=lambda number: 1.0 + (number >= 4), clocks="1980,1500,1200,900"
    )
    assert chosen_mhz(outcome) == 1200
    assert any("is made again" in sentence for sentence in told)


@pytest.mark.parametrize("ends", [6, 11])
def test_a_program_that_ends_early(tmp_path: Path, ends: int) -> None:
    """The best of what was tried is the answer; nothing is held for a rest that there is not."""
    outcome, steps, _ = tuned(tmp_path, parabola, ends=ends, clocks="1980,1500,1200,900")
    assert chosen_mhz(outcome) in {1980, 1500, 1200, 900}
    assert not steps.kept


def test_a_program_that_ends_at_once(tmp_path: Path) -> None:
    """It is told, and there is no run of it."""
    with pytest.raises(InputError, match=r"--phase step: nothing was measured: .* has ended; run more steps"):
        tuned(tmp_path, parabola, ends=1)


@given(
    share=st.floats(0.0, 1.0),
    knee=st.floats(0.3, 1.0),
    bound=st.sampled_from([0.01, 0.03, 0.05, 0.1]),
)
def test_no_window_is_slower_than_twice_the_bound(
    tmp_path_factory: pytest.TempPathFactory, share: float, knee: float, bound: float
) -> None:
    """Bound by cores as far as one likes, from any clock on: an H200's clocks are near enough for that."""

    def costs(mhz: int) -> tuple[float, float]:
        slower = 1980 / mhz
        return 0.5 * (1.0 - share + share * max(1.0, knee * slower)), 100.0 * (
            0.3 * slower + (mhz / 1980) ** 2
        )

    outcome, steps, _ = tuned(tmp_path_factory.mktemp("run"), costs, max_slowdown=bound, budget=6)
    fastest_s = costs(1980)[0]
    assert max(costs(mhz)[0] for mhz in steps.clocks_mhz) <= (1.0 + 2.0 * bound) * fastest_s
    assert costs(chosen_mhz(outcome))[0] <= (1.0 + bound) * fastest_s * 1.001


@pytest.mark.parametrize("odd", [0.8, 1.4])
def test_a_beat_that_no_step_can_be(tmp_path: Path, odd: float) -> None:
    """Steps that are too short for the sensor look like longer ones, whose time no clock explains."""

    def costs(mhz: int) -> tuple[float, float]:
        return 0.5 * (odd if mhz == 1500 else 1.0), parabola(mhz)[1]

    clocks = "1980,1500,1200,900"
    with pytest.raises(InputError, match=r"--phase beat: what repeats takes .* mark them"):
        tuned(tmp_path, costs, clocks=clocks, program=Program(("train",), phase="beat"))
    tuned(tmp_path, costs, clocks=clocks)
    tuned(tmp_path, parabola, clocks=clocks, program=Program(("train",), phase="beat"))


def test_a_run_that_has_ended_is_not_resumed(tmp_path: Path) -> None:
    """Each run is another."""
    with pytest.raises(InputError, match="--resume"):
        tuned(tmp_path, parabola, resume=True)


@pytest.mark.parametrize(
    "options", [{"metrics": ("a: (.)",)}, {"environment": ("X=1,2",)}, {"tunables": ("x=1,2",)}]
)
def test_what_one_run_cannot_choose(options: dict[str, Any]) -> None:
    """Tunables and metrics are of whole runs."""
    with pytest.raises(InputError, match="it is one run"):
        Program.of_options(("true", "{x}"), phase="step", **options)


# --- Windows of real marks.


class Scripted:
    """A command that sets its marks at given times, on a clock that goes on as it is attended."""

    exit_code = None

    def __init__(self, *marks: tuple[float, str]) -> None:
        self._marks, self.now_s = list(marks), 0.0
        self.recorder = Recorder((), now=lambda: self.now_s)

    def attend(self, until_s: float) -> list[tuple[float, str]]:
        self.now_s = until_s
        due = [mark for mark in self._marks if mark[0] <= until_s]
        self._marks = self._marks[len(due) :]
        return due

    def edge(self) -> None: ...


def marks(*durations_s: float, each: str = "step", between: str = "") -> list[tuple[float, str]]:
    ends_s = itertools.accumulate(durations_s, initial=2.0)
    return [(end_s, label) for end_s in ends_s for label in filter(None, (between, each))]


@pytest.mark.parametrize(
    ("script", "mean_s", "steps"),
    [
        (marks(*9 * [1.0]), 1.0, 4),
        (marks(1.0, 1.0, 1.0, 9.0, *9 * [1.0]), 1.0, 4),  # a pause that nothing says
        (marks(1.0, 1.0, 1.5, *9 * [1.0], between="after step"), 1.125, 4),
        ([*marks(1.0, 1.0), (4.5, "evaluate"), *((5.5 + t, "step") for t in range(9))], 1.0, 4),
        (marks(*9 * [4.0]), 4.0, 3),  # cut after 13 s
    ],
    ids=["steady", "pause", "uneven", "evaluation", "slow"],
)
def test_a_window_holds_whole_steps_alone(script: list[tuple[float, str]], mean_s: float, steps: int) -> None:
    """Time between steps is left out, and a window that takes too long is cut."""
    windows = StepWindows(cast(RunningCommand, Scripted(*script)), "step", 5.0, list[str]().append)
    run = windows(Trial(()), 13.0, 4)
    assert run.times == steps
    assert run.duration_s == pytest.approx(mean_s)


def test_a_program_without_marks_is_told() -> None:
    """Who forgot them hears how to set them, once."""
    told: list[str] = []
    windows = StepWindows(
        cast(RunningCommand, Scripted(*marks(*200 * [1.0])[150:])), "step", 5.0, told.append
    )
    windows(Trial(()), 10.0, 4)
    (sentence,) = told
    assert "with tuner.phase('step'):" in sentence


def marked(command: RunningCommand) -> int:
    """Wait for a mark."""
    while not (marks := command.attend(time.monotonic() + 0.01)):
        pass
    return len(marks)


def test_the_end_of_a_command_is_waited_for(tmp_path: Path) -> None:
    """Whatever went wrong here, the user's program goes on to its end."""
    done, codes, recorder = tmp_path / "done", list[int](), Recorder(())
    script = f"echo step > $TUNER_MARKS; sleep 0.2; touch {done}; exit 4"
    with (
        pytest.raises(ZeroDivisionError),
        running(("sh", "-c", script), recorder, codes.append) as beside,
    ):
        assert marked(beside) / 0
    assert done.exists()
    assert codes == [4]


# --- Beats: the steps of a program that marks none, found in the power that its GPU draws.

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
