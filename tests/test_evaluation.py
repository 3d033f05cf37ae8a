"""Policies played against known measurements: what odd policies do to a play, and who ends the processes."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_process import PATIENCE_S
from small_spaces import space

from tuner.model import registry
from tuner.model.objective import Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import Search
from tuner.studies.comparison import EvaluationJob, PolicyChoice, Rules, play, play_all, play_one, policies

Asks = Generator[list[Trial], list[Measurement], Trial | None]

PARENT = """
from small_spaces import space
from tuner.studies.comparison import policies
from tuner.studies.comparison import Rules, play_all

if __name__ == "__main__":
    for _ in play_all([space(["a"], [1.0, 2.0])], Rules(policies("exhaustive"), 2, "time", None), 2):
        print("played", flush=True)
    input()
"""


@pytest.fixture
def small() -> RecordedSpace:
    """A space of three trials."""
    return space(["a"], [3.0, 1.0, 2.0])


def asks_for_nothing(search: Search) -> Asks:
    """Never ends, and never asks for a trial."""
    del search
    while True:
        yield []


def goes_in_circles(search: Search) -> Asks:
    """Never ends, and asks for what it knows."""
    while True:
        yield [Trial((search.defaults[0],))]


def asks_for_the_unknown(search: Search) -> Asks:
    """Asks for what is in no space, and then for the default."""
    found = yield [Trial((Configuration({"nobody": "knows"}),)), Trial((search.defaults[0],), 77), Trial(())]
    assert not any(measurement.ok for measurement in found)
    return None


def ends_at_once(search: Search) -> Asks:
    """Asks for nothing, and ends."""
    del search
    return None
    yield []


@pytest.mark.parametrize(
    ("policy", "budget"), [(asks_for_nothing, None), (goes_in_circles, None), (goes_in_circles, 1)]
)
def test_a_policy_that_would_never_end_is_ended(small: RecordedSpace, policy: object, budget: object) -> None:
    """A policy that goes in circles is told from one that searches; no budget would stop it."""
    with pytest.raises(RuntimeError, match="no new trial"):
        play(policy, search_of(small, Objective("time").cost), small.look, budget)  # type: ignore[arg-type]


def test_unknown_trials_fail(small: RecordedSpace) -> None:
    """What is not in a recording is a failed trial, whatever it is."""
    found = play(asks_for_the_unknown, search_of(small, Objective("time").cost), small.look)

    assert [measurement.ok for _, measurement in found] == [False, False, False]


def test_a_policy_that_ends_at_once_has_no_answer(small: RecordedSpace) -> None:
    """No trial is no error."""
    assert play(ends_at_once, search_of(small, Objective("time").cost), small.look) == []


def test_an_odd_policy_loses_its_plays_only(small: RecordedSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a comparison a policy that never ends is one that raised, and says why."""
    monkeypatch.setattr(registry, "load", lambda _, __: goes_in_circles)
    found = play_one(EvaluationJob(0, 0, 0), [small], Rules((PolicyChoice("auto", "auto"),), 1, "time", 5))

    assert "no new trial" in found.error
    assert found.answer is None


def test_ctrl_c_waits_while_processes_begin(small: RecordedSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-started process could not be ended and would complain: all begin, and then all end."""
    submit, begun = ProcessPoolExecutor.submit, []

    def stopped(pool: ProcessPoolExecutor, *words: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        begun.append(submit(pool, *words))
        return begun[-1]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", stopped)
    before = set(multiprocessing.active_children())
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            closing(play_all([small], Rules(policies("random"), 3, "time", None), 1)) as playing,
        ):
            next(playing)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, handler)

    assert len(begun) == 3
    assert set(multiprocessing.active_children()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="kills a process group")
def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """A killed comparison leaves no process behind that waits for its next play."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "played\n"
        parent.kill()
        told, _ = parent.communicate(timeout=PATIENCE_S)  # until no process holds the pipe any more
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)  # a group's number outlives its leader
    assert set(told.split()) <= {"played"}
