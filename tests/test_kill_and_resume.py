"""A run that is killed or stopped: what is stored, what is left behind, and how it goes on."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND, PATIENCE_S, TX1, await_rows, begun, document, rows, tuner

from tuner.database.runs import Store

DEVICE = ("--device", "sim:k40c", "--clocks", "all")
TWO = ("scan-lf:N=4", "fft:N=4", *DEVICE)  # thousands of trials of few configurations
COUNT = 20
WHOLE = ("--policy", "random", "--budget", str(COUNT))

KEPT = 12  # trials that are stored when a run is killed
STANDS_STILL = f"""
from tuner.database.runs import Store
add = Store.add
Store.add = lambda self, run, number, *rest: (
    signal.pause() if number > {KEPT} else add(self, run, number, *rest)
)
"""
LOST = """
import weakref
from tuner.database.runs import Store
add = Store.add
class Thing: pass
def adding(self, run, number, *rest):
    add(self, run, number, *rest)
    if number == 5:
        thing = Thing()
        watch = weakref.ref(thing, lambda _: signal.raise_signal({number}))
        del thing
        signal.pause()
Store.add = adding
"""
HANGS_UP = """
from tuner.database.runs import Store
signal.signal(signal.SIGHUP, signal.SIG_IGN)
add = Store.add
def adding(self, run, number, *rest):
    add(self, run, number, *rest)
    if number == 5:
        signal.raise_signal(signal.SIGHUP)
Store.add = adding
"""
IN_SQLITE = """
from tuner.database.integrity import checksums
checksum, calls = checksums.row_checksum, []
def interrupted(*values):
    calls.append(values)
    if len(calls) == 20:
        signal.raise_signal({number})
    return checksum(*values)
checksums.row_checksum = interrupted
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """Start `tuner` with the signals of a terminal, and end it if a test did not."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path, setup: str = "") -> subprocess.Popen[str]:
        # a shell that runs tests in the background has Ctrl-C ignored for all below it
        code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {setup}"
        process = begun(*words, code=f"{code}\n{COMMAND[2]}")
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def children_of(process: "subprocess.Popen[str]") -> list[int]:
    """Handles that become readable when each of the present child processes has ended."""
    handles = []
    for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # they come and go
            handles += [os.pidfd_open(int(pid)) for pid in path.read_text().split()]
    return handles


def await_children(process: "subprocess.Popen[str]") -> list[int]:
    """Handles of the compilers of a process, as soon as there are any."""
    while not (handles := children_of(process)):
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"it ended with {process.returncode}: {process.communicate()}")
    return handles


def all_end(handles: list[int]) -> bool:
    watch = select.poll()
    for handle in handles:
        watch.register(handle, select.POLLIN)
    left = len(handles)
    while left:
        ended = watch.poll(PATIENCE_S * 1000)
        if not ended:
            return False
        for handle, _ in ended:
            watch.unregister(handle)
            os.close(handle)
            left -= 1
    return True


def trials_of(found: dict[str, Any]) -> list[str]:
    names = ("configurations", "clock_mhz")
    return [json.dumps([trial[name] for name in names], sort_keys=True) for trial in found["trials"]]


@pytest.mark.parametrize("objective", ["time", "energy"])
def test_killed_run_resumes_to_the_same_answer(objective: str, start: Start, tmp_path: Path) -> None:
    """SIGKILL in the middle, then --resume: the answer of an uninterrupted run, no trial twice."""
    words = ("run", *TWO, *WHOLE, "--objective", objective)
    whole = document(*words, "--database", tmp_path / "whole.db")
    db = tmp_path / "cut.db"
    process = start(*words, "--database", db, setup=STANDS_STILL)
    await_rows(process, db, KEPT)
    process.kill()
    process.communicate()

    assert process.returncode == -signal.SIGKILL
    assert rows(db) == KEPT
    resumed = document(*words, "--database", db, "--resume")

    assert resumed["resumed"] == KEPT
    assert trials_of(resumed) == trials_of(whole)
    assert len(set(trials_of(resumed))) == COUNT == rows(db)
    assert rows(db, "runs") == 1
    for key in ("configurations", "clock_mhz", "time_s", "status"):
        assert resumed["best"][key] == whole["best"][key]
    if objective == "energy":  # what the sensor remembers of the seconds before the kill is lost
        assert resumed["best"]["energy_j"] == pytest.approx(whole["best"]["energy_j"], rel=1e-3)
    last, same = (found["trials"][KEPT - 1] for found in (resumed, whole))
    if objective == "energy":  # a GPU may have cooled in between: the resumed run knows less of its drift
        assert last.pop("energy_j_uncertainty") >= same.pop("energy_j_uncertainty") * (1.0 - 1e-9)
    assert last == same


def test_finished_run_is_not_resumed(tmp_path: Path) -> None:
    """--resume after a run that ended by itself is refused: no run begins unasked."""
    words = ("run", "scan-lf:N=4", *TX1, "--database", tmp_path / "tuner.db")
    tuner(*words)
    again = tuner(*words, "--resume")

    assert again.exit_code == 2
    assert "--resume: there is nothing to resume: run 1 has finished" in again.stderr
    assert rows(tmp_path / "tuner.db", "runs") == 1


def test_limited_run_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    """A budget that ended a run is raised by resuming it: only the missing trials are measured."""
    words = (*("run", "scan-lf:N=4", *TX1, "--policy", "random"), *("--database", tmp_path / "tuner.db"))
    tuner(*words, "--budget", "3")
    found = document(*words, "--budget", "5", "--resume")

    assert (found["resumed"], found["space"]["measured"], found["status"]) == (3, 5, "limited")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_run_stores_and_prints_what_is_known(
    number: signal.Signals, start: Start, tmp_path: Path
) -> None:
    """Ctrl-C, SIGTERM and SIGHUP: exit code 130, an answer, all trials stored, and a run to resume."""
    db, path = tmp_path / "tuner.db", tmp_path / "run.json"
    process = start("run", *TWO, "--policy", "exhaustive", "--database", db, "--json", path)
    await_rows(process, db, 5)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130, err
    assert "· least time · run 1\n" in out
    assert re.search(r"^interrupted: [\d,]+ of [\d,]+ tried in ", out, re.MULTILINE)
    assert "interrupted: this is what was known; --resume goes on from here" in out
    assert "Traceback" not in err
    found = json.loads(path.read_text())
    assert found["status"] == "interrupted"
    assert found["space"]["measured"] == rows(db) < found["space"]["pruned"]
    with Store(db) as store:
        (run,) = store.history()
    assert run.status == "interrupted"
    assert run.answer is not None
    assert run.answer["best"] == found["best"]


@pytest.mark.parametrize(("setup", "number"), [(LOST, signal.SIGTERM), (IN_SQLITE, signal.SIGINT)])
def test_interrupt_lost_in_a_callback_stops_the_run(
    number: signal.Signals, setup: str, start: Start, tmp_path: Path
) -> None:
    """Python forgets what a weak reference's callback raises, SQLite what a function of a statement does."""
    db = tmp_path / "tuner.db"
    process = start("run", *TWO, "--database", db, setup=setup.format(number=int(number)))
    out, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130, err
    assert "interrupted: this is what was known" in out
    assert "ignored" not in err
    assert 0 < rows(db) <= 20


def test_ignored_hangup_stays_ignored(start: Start, tmp_path: Path) -> None:
    """Under nohup a run goes on when its terminal is closed."""
    db = tmp_path / "tuner.db"
    words = ("run", *TWO, *WHOLE, "--objective", "time", "--database", db)
    process = start(*words, setup=HANGS_UP)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, err
    assert rows(db) == COUNT


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130), (signal.SIGTERM, 130)]
)
def test_no_compiler_outlives_a_stopped_run(
    number: signal.Signals, code: int, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while it compiles, a run leaves no process behind and no run in the database."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    db = tmp_path / "tuner.db"
    process = start("run", "scan-lf:N=256", "fft:N=256", *DEVICE, "--database", db)
    compilers = await_children(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == code, err
    assert all_end(compilers)
    assert rows(db, "runs") == 0
    assert "Traceback" not in err
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".tmp"]


def test_run_in_progress_is_left_alone(start: Start, tmp_path: Path) -> None:
    """--resume of a run that another process measures is refused, and that run goes on."""
    db = tmp_path / "tuner.db"
    words = ("run", *TWO, "--policy", "exhaustive", "--database", db)
    process = start(*words)
    await_rows(process, db, 5)
    refused = tuner(*words, "--resume")
    process.terminate()
    process.communicate(timeout=PATIENCE_S)

    assert refused.exit_code == 2
    assert f"being measured by process {process.pid}" in refused.stderr
    assert process.returncode == 130
