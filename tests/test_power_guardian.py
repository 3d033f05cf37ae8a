"""Clocks are restored whatever ends the process that set them, or its guardian."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from cli_process import begun
from clock_kills import guarding, state
from fake_nvml_state import UUID, State, fail, library
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.clockd import main
from tuner.power.clocks.control import LeasedClocks, choose_actuator, open_control, restore_stale
from tuner.power.clocks.guardian import hire
from tuner.power.clocks.journal import JournalEntry, RestoreOutcome, SettingJournal

from tuner.model.errors import ClockError
from tuner.system.ownership import this_process

LOST, UNKNOWN = 15, 999
UNLOCKED = {"setting": "locked", "baseline_mhz": None}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OWNER = """
import signal, sys
from pathlib import Path
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import open_control

nothing = Path(sys.argv[3]) / "nothing"
paths = ClockPaths(sys.argv[2], nothing, nothing, Path(sys.argv[3]), nothing)
with open_control(sys.argv[1], paths).locked(900):
    print("set", flush=True)
    signal.pause()
"""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def clocks(nvml: State, run_dir: Path) -> Iterator[LeasedClocks]:
    assert nvml.sets == 0
    with closing(opened(run_dir)) as control:
        yield control


def where(run_dir: Path) -> ClockPaths:
    nothing = run_dir.with_name("nothing")
    return ClockPaths(library(), devfreq=nothing, config=nothing, directory=run_dir, socket=nothing)


def opened(run_dir: Path) -> LeasedClocks:
    control = open_control(UUID, where(run_dir))
    assert isinstance(control, LeasedClocks)
    return control


def hiring(
    run_dir: Path, *, patience_s: float = 60.0, ttl_s: float | None = None, renewals: float = 4.0
) -> LeasedClocks:
    """A control that hires a guardian with options of its own."""
    paths = where(run_dir)
    hired = partial(hire, paths, patience_s=patience_s, ttl_s=ttl_s)
    return LeasedClocks(choose_actuator(UUID, paths), hired, patience_s=patience_s, renewals=renewals)


def guardian_of(pid: int) -> int:
    """The guardian of a process that holds a clock."""
    return next(guarding(pid))


def place_in(run_dir: Path) -> SettingJournal:
    return SettingJournal(run_dir, "nvml", UUID)


def journals(run_dir: Path) -> list[Path]:
    return [path for path in run_dir.glob("*") if path.suffix != ".lock"]


@contextmanager
def owner(run_dir: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process that holds the clock at 900 MHz, and the pid of its guardian."""
    with begun(UUID, library(), run_dir, code=OWNER) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        yield process, guardian_of(process.pid)
        process.kill()


def wait_for_release(run_dir: Path) -> None:
    """Block until the guardian is done: it holds the lock."""
    with place_in(run_dir).lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def test_a_clock_is_held_and_given_back(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """Inside the block the clock is locked and announced, in this process's name; after it neither."""
    with clocks.locked(900):
        assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (900, 900)
        assert clocks.read().mhz == 900.0
        assert place_in(run_dir).read() == JournalEntry("nvml", UUID, this_process(), UNLOCKED, 900)

    assert (nvml.locked_max_mhz, nvml.sets, nvml.resets) == (0, 1, 1)
    assert journals(run_dir) == []


def test_reading_starts_nobody(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """Opening, reading and listing start no guardian, make no journal and set nothing."""
    before = list(guarding(os.getpid()))
    clocks.read()
    clocks.supported_mhz()

    assert list(guarding(os.getpid())) == before
    assert not run_dir.exists()
    assert nvml.sets == nvml.resets == 0


def test_an_exception_restores(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """Whatever leaves the block, Ctrl-C included, finds the clock reset on the way and is passed on."""
    for error in (ValueError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error), clocks.locked(900):
            raise error
        assert nvml.locked_max_mhz == 0
        assert journals(run_dir) == []


@pytest.mark.parametrize("number", [*ENDS, signal.SIGKILL])
def test_a_killed_owner_leaves_no_lock(nvml: State, run_dir: Path, number: signal.Signals) -> None:
    """A signal that ends the owner, SIGKILL too, leaves the clock reset and no journal."""
    with owner(run_dir) as (process, _):
        assert nvml.locked_max_mhz == 900
        process.send_signal(number)
        process.wait()
        wait_for_release(run_dir)

        assert nvml.locked_max_mhz == 0
        assert journals(run_dir) == []


def test_the_guardian_outlives_what_ends_a_service(nvml: State, run_dir: Path) -> None:
    """Signals that reach owner and guardian alike leave the guardian at work."""
    with owner(run_dir) as (process, guardian):
        for number in ENDS:
            os.kill(guardian, number)
        process.kill()
        process.wait()
        wait_for_release(run_dir)

        assert nvml.locked_max_mhz == 0


def test_a_stopped_owner_loses_the_clock(nvml: State, run_dir: Path) -> None:
    """Who is not heard of for too long, as after Ctrl-Z, keeps no clock, and is told when it goes on."""
    with (  # noqa: PT012 - the block is the point
        closing(hiring(run_dir, ttl_s=0.2, renewals=1e-6)) as clocks,  # this process sleeps
        pytest.raises(ClockError, match=r"not held: .*ended"),
        clocks.locked(900),
    ):
        wait_for_release(run_dir)
        assert nvml.locked_max_mhz == 0


def test_an_owner_without_its_directory_is_restored_for(nvml: State, run_dir: Path) -> None:
    """A logout removes $XDG_RUNTIME_DIR with the journal: the guardian knows what is set all the same."""
    with owner(run_dir) as (process, _), place_in(run_dir).lock.open("r+") as lock:
        shutil.rmtree(run_dir)
        process.kill()
        process.wait()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert nvml.locked_max_mhz == 0


def test_a_killed_guardian_is_seen_off(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """What a guardian left that was killed alone is restored by its owner, and the next one serves."""
    with pytest.raises(ClockError, match="not held"), clocks.locked(900):  # noqa: PT012 - the block is the point
        os.kill(guardian_of(os.getpid()), signal.SIGKILL)
        wait_for_release(run_dir)
        assert nvml.locked_max_mhz == 900
    with clocks.locked(1500):
        assert (nvml.locked_max_mhz, nvml.resets) == (1500, 1)
    clocks.close()
    assert (nvml.locked_max_mhz, journals(run_dir)) == (0, [])


def test_owner_and_guardian_killed_together(nvml: State, run_dir: Path) -> None:
    """The journal outlives both, and the next start restores, once."""
    with owner(run_dir) as (process, guardian):
        os.kill(guardian, signal.SIGKILL)
        process.kill()
        process.wait()
        wait_for_release(run_dir)
        assert nvml.locked_max_mhz == 900

        assert restore_stale(where(run_dir)) == [RestoreOutcome("nvml", UUID, "restored")]
        assert restore_stale(where(run_dir)) == []
        assert (nvml.locked_max_mhz, nvml.resets) == (0, 1)


def test_a_gpu_has_one_owner(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """A second process is told who holds the clocks, and changes nothing; nor does a start restore them."""
    with owner(run_dir) as (process, _):
        with pytest.raises(ClockError, match=f"held by process {process.pid}:"), clocks.locked(1500):
            pass
        assert restore_stale(where(run_dir)) == [
            RestoreOutcome("nvml", UUID, "owned", (f"process {process.pid}",))
        ]

        assert (nvml.locked_max_mhz, nvml.sets, nvml.resets) == (900, 1, 0)


def test_the_next_owner_waits_for_the_guardian_of_a_dead_one(
    nvml: State, clocks: LeasedClocks, run_dir: Path
) -> None:
    """A guardian that restores never undoes what a next owner has set."""
    with owner(run_dir) as (process, _):
        nvml.reset_failures_left = 2  # the guardian needs a third attempt
        process.kill()
        process.wait()
        with clocks.locked(1500):
            assert (nvml.locked_max_mhz, nvml.resets) == (1500, 3)


def test_ownership_is_given_up(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """After close another control can lock the same GPU, and not before."""
    with clocks.locked(900):
        pass
    with closing(opened(run_dir)) as second:
        with pytest.raises(ClockError, match=f"held by process {os.getpid()}:"), second.locked(1500):
            pass
        clocks.close()
        with second.locked(1500):
            assert nvml.locked_max_mhz == 1500


def test_a_failed_lock_is_reset(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """When the driver fails in the middle of setting, the lock is reset all the same."""
    nvml.set = UNKNOWN
    with pytest.raises(ClockError, match="cannot be set to 900 MHz"), clocks.locked(900):
        pass

    assert nvml.resets == 1
    assert journals(run_dir) == []


def test_a_failed_reset_is_tried_again(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """A reset that fails keeps the journal, is an error, and is repeated when the control closes."""
    fail(nvml, "reset", UNKNOWN, times=3)
    with pytest.raises(ClockError, match="could not be reset"), clocks.locked(900):
        pass
    assert len(journals(run_dir)) == 1

    clocks.close()

    assert nvml.locked_max_mhz == 0
    assert journals(run_dir) == []


def test_what_cannot_be_restored_stays_in_the_journal(
    nvml: State, clocks: LeasedClocks, run_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A lost GPU ends no guardian's patience but its own: the entry waits for the next start."""
    with pytest.raises(ClockError, match="GPU is lost"), clocks.locked(900):
        nvml.reset = LOST
    clocks.close()

    assert "GPU is lost" in capfd.readouterr().err
    assert len(journals(run_dir)) == 1
    assert not list(guarding(os.getpid()))
    nvml.reset = 0
    assert restore_stale(where(run_dir)) == [RestoreOutcome("nvml", UUID, "restored")]


def test_a_guardian_that_cannot_start_changes_nothing(
    clocks: LeasedClocks, nvml: State, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a guardian no clock is set, and the message says what happened to it."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ClockError, match="guardian of the clocks cannot be started"), clocks.locked(900):
        pass
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ClockError, match="guardian of the clocks does not answer"), clocks.locked(900):
        pass
    assert nvml.sets == 0
    assert not capfd.readouterr().out


def test_a_guardian_that_hangs_is_left(
    nvml: State,
    tmp_path: Path,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that does not answer is not waited for for ever; it is told, and left to restore when it can."""
    script = tmp_path / "hung"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    with (
        closing(hiring(run_dir, patience_s=0.05)) as clocks,
        pytest.raises(ClockError, match="guardian of the clocks does not answer"),
        clocks.locked(900),
    ):
        pass
    told = re.search(r"process (\d+), has not ended within 0\.05 s", caplog.text)
    assert told is not None
    assert state(int(told[1])) not in "ZX"
    assert nvml.sets == 0
    os.kill(int(told[1]), signal.SIGKILL)
    os.waitpid(int(told[1]), 0)


def test_a_driver_that_hangs_is_not_waited_for(nvml: State, clocks: LeasedClocks, run_dir: Path) -> None:
    """A driver call that hangs costs the owner its patience and no more; the clock goes back when it ends."""
    with clocks.locked(345):
        pass
    assert clocks._lease is not None
    clocks._lease._connection._socket.settimeout(0.1)
    guardian = guardian_of(os.getpid())
    os.kill(guardian, signal.SIGSTOP)  # as if it were in the driver
    with (
        pytest.raises(ClockError, match=r"guardian of the clocks does not answer \(timed out\)"),
        clocks.locked(900),
    ):
        pass
    os.kill(guardian, signal.SIGCONT)
    clocks.close()
    assert (nvml.locked_max_mhz, journals(run_dir)) == (0, [])
    assert nvml.sets == nvml.resets == 2


def test_guardians_do_not_hold_each_other(nvml: State, tmp_path: Path) -> None:
    """A guardian inherits nothing of another: each ends as soon as its own owner lets go."""
    with closing(opened(tmp_path / "one")) as first, closing(opened(tmp_path / "two")) as second:
        with first.locked(900):
            pass
        with second.locked(1500):
            assert len(list(guarding(os.getpid()))) == 2
            first.close()
            assert len(list(guarding(os.getpid()))) == 1
            assert nvml.locked_max_mhz == 1500


def test_a_guardian_needs_its_owner(nvml: State, run_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The command that starts a guardian does nothing by itself."""
    assert main(["restore", "--directory", str(run_dir), "--library", library()]) == 0
    with pytest.raises(SystemExit) as ended:
        main(["guard"])
    assert ended.value.code == 2
    assert "fd, owner" in capfd.readouterr().err
    assert nvml.sets == 0
