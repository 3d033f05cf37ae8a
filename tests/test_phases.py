"""Runs that are tuned while they go on: windows of their steps, at clocks that are near enough to try."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.devices.choice import open_device
from tuner.devices.sensors import open_clocks
from tuner.joules.traces import Recorder, RunningCommand, running
from tuner.measurement.settle import SettingLock
from tuner.model.errors import InputError
from tuner.model.trial import Energy, Trial
from tuner.programs.measuring import ProgramRun
from tuner.programs.phases import PhaseMeasurer, StepWindows
from tuner.programs.program import Program
from tuner.programs.tuning import tune_program
from tuner.search.answer import Outcome
from tuner.search.request import LimitReachedError, SearchRequest
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
