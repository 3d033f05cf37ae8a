"""Clocks and power limits survive any kill, and a death at every single line of setting and restoring."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import clock_deaths
import pytest
from clock_kills import SIGNALS, Scene, kills, run, state
from helper_kills import SCENES, unavailable

HELD = ("devfreq", "power-limit", "helper-nvml", "helper-clock-and-limit", "container-devfreq")
"""Each way of setting and each of its owners; what is looked at does not depend on both together."""


@pytest.mark.parametrize("name", SCENES)
def test_no_kill_leaves_a_clock_set(name: str, tmp_path: Path) -> None:
    """Whoever is killed, by whatever, at a random instant: after the next start no clock is set."""
    skip_unavailable(name)
    with SCENES[name](tmp_path) as scene:
        for kill in kills(scene.roles, 2, seed=4):
            outcome = run(scene, kill)
            assert (outcome.changed, outcome.journals) == (False, 0), outcome


@pytest.mark.parametrize("name", HELD)
def test_the_harness_sees_a_clock_left_set(name: str, tmp_path: Path) -> None:
    """Killing everybody while a clock is set leaves it set until the next start: the harness sees that."""
    skip_unavailable(name)
    with SCENES[name](tmp_path) as scene:
        scene.start()
        for pid in reversed(stopped_while_set(scene)):  # who would restore goes first
            os.kill(pid, signal.SIGKILL)
        scene.finish()
        assert scene.changed()
        assert scene.journals() >= 1

        scene.restart()
        assert not scene.changed()
        assert scene.journals() == 0


def skip_unavailable(name: str) -> None:
    """Skip a scene that cannot be made here, and say why."""
    if reason := unavailable(name):
        pytest.skip(reason)


def stopped_while_set(scene: Scene) -> list[int]:
    """Stop everybody at a moment when a clock is set, and tell their processes."""
    pause = threading.Event()
    while True:
        everybody = [pid for role in scene.roles if (pid := scene.pid(role)) is not None]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
            while state(pid) != "T":
                pause.wait(0.001)
        if scene.changed():
            return everybody
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        pause.wait(0.003)


def test_every_way_to_die_is_tried() -> None:
    """Kills are random in time, and go through all victims and signals before one is repeated."""
    planned = kills(("owner", "guardian"), 18, seed=1)
    assert len({(kill.victims, kill.signals) for kill in planned}) == 3 * len(SIGNALS)
    assert kills(("owner", "guardian"), 18, seed=1) == planned
    assert kills(("owner", "guardian"), 18, seed=2) != planned


def test_a_death_at_any_line_leaves_no_clock_set(tmp_path: Path) -> None:
    """Wherever a process dies that sets and restores a clock, the next start finds the way back."""
    done = subprocess.run(
        [sys.executable, clock_deaths.__file__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
