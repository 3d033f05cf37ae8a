"""GPUs of one host take turns where load on one disturbs the joules of another."""

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_process import document
from fake_setup import PLANS, FakeMeter, Watched, trial_of

from tuner.devices.base import RunRecord
from tuner.devices.simulated.device import Faults
from tuner.measurement.base import TurnGate
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import ClockError, StoreError
from tuner.model.jobs import JobSpec
from tuner.model.plan import Plan
from tuner.search.job_messages import AttemptSpec, EventWriter, parse_line, parse_spec, spec_json
from tuner.search.job_process import Attempt
from tuner.system.ownership import BoardTurns
from tuner.system.signals import StopRequest


class GaveUpError(Exception):
    """A turn is not to be had now."""


def give_up(_seconds: float) -> None:
    raise GaveUpError


def free(folder: Path, *, alone: bool) -> bool:
    """Whether another process could take a turn now; locks of files are per open file, as are those here."""
    with BoardTurns(folder, give_up) as other:
        try:
            with other.turn(alone=alone):
                return True
        except GaveUpError:
            return False


def test_joules_are_measured_alone_and_times_together(tmp_path: Path) -> None:
    """A turn alone keeps out everybody; turns for times only those that want to be alone."""
    with BoardTurns(tmp_path) as turns:
        with turns.turn(alone=True):
            assert not free(tmp_path, alone=True)
            assert not free(tmp_path, alone=False)
        with turns.turn(alone=False):
            assert not free(tmp_path, alone=True)
            assert free(tmp_path, alone=False)
        assert free(tmp_path, alone=True)


def test_who_waits_comes_before_who_was_just_there(tmp_path: Path) -> None:
    """While one waits, the one whose turn it is cannot take the turn after it too."""
    tried: list[bool] = []

    def while_waiting(_seconds: float) -> None:
        tried.append(free(tmp_path, alone=False))  # a turn for times would be free, if nobody waited
        raise GaveUpError

    with BoardTurns(tmp_path) as first, BoardTurns(tmp_path, while_waiting) as second:
        with first.turn(alone=False), pytest.raises(GaveUpError), second.turn(alone=True):
            pass
        assert tried == [False]
        assert free(tmp_path, alone=True), "who gave up waits no more"


def _take_and_die(folder: Path) -> None:
    turns = BoardTurns(folder)
    turns.turn(alone=True).__enter__()
    os._exit(1)


def test_a_dead_process_keeps_no_turn(tmp_path: Path) -> None:
    """The kernel releases what a killed attempt held."""
    process = multiprocessing.get_context("fork").Process(target=_take_and_die, args=(tmp_path,))
    process.start()
    process.join(20.0)
    assert process.exitcode == 1
    assert free(tmp_path, alone=True)


class PlayedDevice(Watched):
    """Notes whether others could use the board while it ran or idled."""

    def __init__(self, folder: Path, faults: Faults | None = None) -> None:
        super().__init__(faults)
        self._folder = folder
        self.shared: list[bool] = []

    def run(self, plans: Sequence[Plan], window_s: float) -> RunRecord:
        self.shared.append(free(self._folder, alone=False))
        return super().run(plans, window_s)

    def sleep(self, seconds: float) -> None:
        self.shared.append(free(self._folder, alone=False))
        super().sleep(seconds)


@pytest.mark.parametrize("alone", [True, False])
def test_whatever_runs_on_the_gpu_runs_in_a_turn(tmp_path: Path, alone: bool) -> None:
    """Trials and idle readings have the board alone where joules are measured, and else share it."""
    device = PlayedDevice(tmp_path)
    with BoardTurns(tmp_path) as turns:
        measurer = TrialMeasurer(device, FakeMeter(), gates=[TurnGate(turns, alone=alone)])
        assert measurer.measure(trial_of(PLANS), PLANS).ok
        trials = len(device.shared)
        assert free(tmp_path, alone=True)
        assert measurer.measure_idle(None) == 7.0
        assert free(tmp_path, alone=True)
    assert 0 < trials < len(device.shared)
    assert set(device.shared) == {not alone}


def test_a_turn_ends_with_what_fails_in_it(tmp_path: Path) -> None:
    """A trial that raises gives its turn back."""
    with BoardTurns(tmp_path) as turns:
        measurer = TrialMeasurer(Watched(), gates=[TurnGate(turns, alone=True)])
        with pytest.raises(ClockError, match="cannot be set here"):
            measurer.measure(trial_of(PLANS, 810), PLANS)
        assert free(tmp_path, alone=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The message names the folder."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=f"{file}/in: GPUs cannot take turns"):
        BoardTurns(file / "in")


def test_a_run_may_take_turns(tmp_path: Path) -> None:
    """`tuner run --exclusive-board` locks files beside its database, and measures as without."""
    words = ("run", "scan-lf:N=4", "--device", "sim:k40c", "--policy", "random", "--budget", "2")
    found = document(*words, "--exclusive-board", "--database", tmp_path / "tuner.db")
    assert found["space"]["measured"] == 2
    assert (tmp_path / "board.lock").exists()
    assert free(tmp_path, alone=True)


def test_an_attempt_gives_signs_of_life_while_it_waits(tmp_path: Path) -> None:
    """The daemon kills what is silent; a GPU that waits for its turn is not."""
    read, write = os.pipe()
    spec = AttemptSpec(1, JobSpec(("scan-lf:N=4",)), tmp_path / "tuner.db", exclusive_board=True)
    assert parse_spec(spec_json(spec)).exclusive_board
    made = Attempt(spec, EventWriter(write, "energy"), StopRequest())
    made._guard = Spent()  # type: ignore[assignment]  # played
    made._wait_for_turn(0.0)
    made._wait_for_turn(0.0)
    os.close(write)
    with os.fdopen(read) as lines:
        assert [parse_line(line.encode()) for line in lines] == [("spent", {"seconds": 2.0, "joules": 7.0})]


class Spent:
    """What an attempt has taken so far."""

    windows_s, joules = 2.0, 7.0
