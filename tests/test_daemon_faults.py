"""A daemon under faults, in small: benchmarks/daemon_faults.py tries hundreds, and more kinds of them."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import SMALL, tuner
from daemon_breaking import FAULTS, plan
from daemon_hardships import flip
from daemon_scene import MODELLED, Clocks, Scene, preloaded
from daemon_trial import Outcome, Trial
from hypothesis import given
from hypothesis import strategies as st

from tuner.database.files import mirror_of

# What a process sees of time, and how long two waits of a twentieth of a second each take it.
CLOCKS = """
import json, threading, time
begun = time.monotonic()
threading.Event().wait(0.05)
time.sleep(0.05)
print(json.dumps([time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic() - begun]))
"""

# Whether a thread and a process can begin, before and after a line is read.
BEGINS = """
import subprocess, sys, threading
def begun(begin):
    try:
        begin()
    except (RuntimeError, BlockingIOError):
        return False
    return True
for _ in range(2):
    thread = begun(lambda: threading.Thread(target=int).start())
    process = begun(lambda: subprocess.run(["true"], check=True))
    print(thread, process, flush=True)
    sys.stdin.readline()
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
    environment = {**os.environ, "LD_PRELOAD": preloaded("faulty_time"), "FAULTY_TIME": str(clocks.path)}

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


def test_neither_threads_nor_processes_begin_while_they_are_refused(scene: Scene) -> None:
    """A process under the played limit, root's also, is told that there are no more, until it is lifted."""
    scene.refuse_threads(refused=True)
    command = [sys.executable, "-c", BEGINS]
    with subprocess.Popen(
        command, env=scene.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        refused = process.stdout.readline()
        scene.refuse_threads(refused=False)
        process.stdin.write(b"\n\n")
        process.stdin.close()
        assert (refused, process.stdout.readline()) == (b"False False\n", b"True True\n")


@given(st.binary(max_size=40), st.binary(min_size=1, max_size=60), st.binary(max_size=40), st.randoms())
def test_one_bit_of_the_text_is_flipped(before: bytes, text: bytes, after: bytes, rng: random.Random) -> None:
    """The file differs in one bit, in what equals a part of the text; another text is not found."""
    whole = before + text + after
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        file.write_bytes(whole)
        assert flip(file, text, rng)
        changed = [old ^ new for old, new in zip(whole, file.read_bytes(), strict=True) if old != new]
        assert [value.bit_count() for value in changed] == [1]
        assert not flip(file.with_name("none"), text, rng)
