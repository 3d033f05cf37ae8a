"""A daemon under faults, in small: benchmarks/daemon_faults.py tries hundreds, and more kinds of them."""

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import SMALL, tuner
from daemon_breaking import FAULTS, plan
from daemon_scene import MODELLED, Clocks, Scene, faulty_time
from daemon_trial import Outcome, Trial
from hypothesis import given
from hypothesis import strategies as st

from tuner.database.faults import mirror_of

# What a process sees of time, and how long two waits of a twentieth of a second each take it.
CLOCKS = """
import json, threading, time
begun = time.monotonic()
threading.Event().wait(0.05)
time.sleep(0.05)
print(json.dumps([time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic() - begun]))
"""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Scene(tmp_path, devices=(MODELLED,)) as scene:
        yield scene


def test_faults_cost_nothing(scene: Scene) -> None:
    """Its job's process killed, its database emptied, and killed itself, a daemon ends all its jobs."""
    scene.start()
    trial = Trial(scene, random.Random(1))  # noqa: S311 - no secrets
    outcomes = trial.round(["kill-runner", "database-emptied", "kill-daemon"])

    assert [outcome for outcome in outcomes if not outcome.clean] == []
    assert set(outcomes[-1].endings) == {"finished"}
    assert scene.starts == 2
    assert len(scene.trials()) == 60 * outcomes[-1].endings["finished"]
    assert scene.stop() == 0
    assert scene.processes() == []


def test_a_loss_would_be_seen(scene: Scene) -> None:
    """A trial that vanishes, a clock that stays set and a process left behind are found."""
    tuner("run", *SMALL, "--database", scene.database)
    trial = Trial(scene, random.Random(2))  # noqa: S311 - no secrets
    before, after = Outcome("none"), Outcome("none")
    trial.look(before)
    for file in (scene.database, mirror_of(scene.database)):  # from one of them, it would come back
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("DELETE FROM trials WHERE number = 1")
    scene.nvml.locked_max_mhz = 345
    stray = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(stray, env={**os.environ, "PLAYED_FOLDER": str(scene.folder)}) as left:
        trial.look(after, patience_s=0.0)
        left.kill()

    assert before.clean
    assert (after.lost, after.clock_set, len(after.left)) == (1, True, 1)
    assert not after.clean


@given(st.integers(0, 500), st.integers())
def test_every_kind_comes_up_before_one_comes_again(count: int, seed: int) -> None:
    """A plan has as many faults as were asked for, its kinds evenly, and the same ones for the same seed."""
    planned = plan(count, seed)

    assert len(planned) == count
    assert planned == plan(count, seed)
    counts = [planned.count(kind) for kind in FAULTS]
    assert max(counts) - min(counts) <= 1


def test_time_that_jumps_is_seen_and_waits_are_not_changed(tmp_path: Path) -> None:
    """A process under the played clocks sees them, and a wait takes as long as ever."""
    clocks = Clocks(tmp_path / "time")
    environment = {**os.environ, "LD_PRELOAD": faulty_time(), "FAULTY_TIME": str(clocks.path)}

    def seen() -> tuple[float, float, float]:
        command = [sys.executable, "-c", CLOCKS]
        output = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
        system_s, rising_s, waited_s = json.loads(output)
        return system_s, rising_s, waited_s

    before = seen()
    clocks.jump(-86_400.0, 3600.0)
    after = seen()

    assert after[0] - before[0] == pytest.approx(-86_400.0, abs=60.0)
    assert after[1] - before[1] == pytest.approx(3600.0, abs=60.0)
    assert 0.1 <= after[2] < 60.0
