"""Clocks are restored whatever ends the process that set them."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_nvml_state import UUID, State, fake_nvml, library
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tuner.power import guard as guarding
from tuner.power.actuator import Where
from tuner.power.clocks import GuardedClocks
from tuner.power.controls import open_control, restore_stale
from tuner.power.guard import ClockGuard
from tuner.power.journal import Entry, Place, runtime_directory
from tuner.power.ownership import Outcome, Ownership

from tuner.errors import ClockError
from tuner.owner import this_process

LOST, UNKNOWN = 15, 999
UNLOCKED = {"setting": "locked", "baseline_mhz": None}
OWNER = """
import signal, sys
from pathlib import Path
from tuner.power.actuator import Where
from tuner.power.controls import open_control

clocks = open_control(sys.argv[1], Where(library=sys.argv[2], directory=Path(sys.argv[3])))
with clocks.locked(900):
    print(clocks._guard.guardian_pid, flush=True)
    signal.pause()
"""


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[State]:
    with fake_nvml(tmp_path) as state:
        yield state


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def clocks(nvml: State, run_dir: Path) -> Iterator[GuardedClocks]:
    assert nvml.sets == 0
    control = opened(run_dir)
    yield control
    control.close()


def where(run_dir: Path) -> Where:
    nothing = run_dir.with_name("nothing")
    return Where(library(), devfreq=nothing, config=nothing, directory=run_dir, socket=nothing)


def opened(run_dir: Path) -> GuardedClocks:
    control = open_control(UUID, where(run_dir))
    assert isinstance(control, GuardedClocks)
    return control


def stale(run_dir: Path) -> list[tuple[str, str]]:
    """GPUs that the journal names at a start, and what becomes of them."""
    return [(outcome.gpu, outcome.state) for outcome in restore_stale(where(run_dir))]


def place_in(run_dir: Path) -> Place:
    return Place(run_dir, "nvml", UUID)


def journals(run_dir: Path) -> list[Path]:
    return list(run_dir.glob("*.json"))


@contextmanager
def owner(run_dir: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds the clock at 900 MHz, and the pid of its guardian."""
    command = [sys.executable, "-c", OWNER, UUID, library(), str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def wait_for_release(run_dir: Path) -> None:
    """Block until neither owner nor guardian lives: both hold the lock."""
    with place_in(run_dir).lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def write_stale(run_dir: Path, entry: Entry | None = None) -> Entry:
    """Leave the journal entry of a process that is dead."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        boot, _, start = this_process().split(":")
    entry = entry or Entry("nvml", UUID, f"{boot}:{process.pid}:{start}", UNLOCKED, 900)
    run_dir.mkdir(exist_ok=True)
    place_in(run_dir).journal.write_text(json.dumps(vars(entry)))
    return entry


def test_a_lock_is_held_and_reset(nvml: State, clocks: GuardedClocks, run_dir: Path) -> None:
    """Inside the block the clock is locked and announced; after it neither is left."""
    with clocks.locked(900):
        assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (900, 900)
        entry = place_in(run_dir).read()
        assert entry == Entry("nvml", UUID, this_process(), UNLOCKED, 900)

    assert (nvml.locked_max_mhz, nvml.sets, nvml.resets) == (0, 1, 1)
    assert journals(run_dir) == []


def test_the_journal_is_written_before_the_change(nvml: State, run_dir: Path) -> None:
    """Where the journal cannot be kept, the clock stays as it is."""
    run_dir.write_text("a file where the directory should be")
    clocks = opened(run_dir)

    with pytest.raises(ClockError, match="cannot be kept in"), clocks.locked(900):
        pass

    clocks.close()
    assert nvml.sets == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_resets(
    nvml: State, clocks: GuardedClocks, run_dir: Path, error: type[BaseException]
) -> None:
    """Whatever leaves the block, Ctrl-C included, finds the clock reset on the way and is passed on."""
    with pytest.raises(error), clocks.locked(900):
        raise error

    assert nvml.locked_max_mhz == 0
    assert journals(run_dir) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
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
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guardian, number)
        process.kill()
        process.wait()
        wait_for_release(run_dir)

        assert nvml.locked_max_mhz == 0


def test_a_gpu_has_one_owner(nvml: State, clocks: GuardedClocks, run_dir: Path) -> None:
    """A second process is told who holds the clocks, and changes nothing."""
    with owner(run_dir) as (process, _):
        with pytest.raises(ClockError, match=f"held by process {process.pid}"), clocks.locked(1500):
            pass

        assert (nvml.locked_max_mhz, nvml.sets) == (900, 1)


def test_the_next_owner_waits_for_the_guardian_of_a_dead_one(
    nvml: State, clocks: GuardedClocks, run_dir: Path
) -> None:
    """A guardian that restores never undoes what a next owner has set."""
    with owner(run_dir) as (process, _):
        nvml.reset_failures_left = 1  # the guardian needs a second attempt
        process.kill()
        process.wait()
        with clocks.locked(1500):
            assert nvml.locked_max_mhz == 1500
            assert nvml.resets == 2


def test_ownership_is_given_up(nvml: State, clocks: GuardedClocks, run_dir: Path) -> None:
    """After close another control can lock the same GPU."""
    with clocks.locked(900):
        pass
    clocks.close()
    second = opened(run_dir)
    with second.locked(1500):
        assert nvml.locked_max_mhz == 1500
    second.close()


def test_locks_do_not_nest(nvml: State, clocks: GuardedClocks) -> None:
    """A lock inside a lock is refused: its end would undo the outer one."""
    with clocks.locked(900):
        with pytest.raises(ClockError, match="locked at 900 MHz already"), clocks.locked(1500):
            pass
        assert nvml.locked_max_mhz == 900


def test_a_failed_lock_is_reset(nvml: State, clocks: GuardedClocks, run_dir: Path) -> None:
    """When the driver fails in the middle of setting, the lock is reset all the same."""
    nvml.set = UNKNOWN

    with pytest.raises(ClockError, match="cannot be set to 900 MHz"), clocks.locked(900):
        pass

    assert nvml.resets == 1
    assert journals(run_dir) == []


def test_a_failed_reset_is_tried_again(nvml: State, clocks: GuardedClocks, run_dir: Path) -> None:
    """A reset that fails is an error, keeps the journal, and is repeated when the control closes."""
    nvml.reset_failures_left = 1
    with pytest.raises(ClockError, match="could not be reset"), clocks.locked(900):
        pass
    assert len(journals(run_dir)) == 1

    clocks.close()

    assert nvml.locked_max_mhz == 0
    assert journals(run_dir) == []


def test_the_blocks_own_error_comes_first(nvml: State, clocks: GuardedClocks) -> None:
    """A reset that fails does not hide what went wrong in the block."""
    nvml.reset_failures_left = 1
    with pytest.raises(ValueError, match="the real trouble"), clocks.locked(900):
        raise ValueError("the real trouble")


def test_a_dead_guardian_is_replaced(nvml: State, clocks: GuardedClocks) -> None:
    """No clock is changed without a living guardian."""
    with clocks.locked(900):
        assert clocks._guard is not None
        first = clocks._guard.guardian_pid
    assert first is not None
    guardian = clocks._guard._guardian
    assert guardian is not None
    guardian.kill()
    guardian.wait()

    with clocks.locked(1500):
        assert clocks._guard.guardian_pid not in (None, first)
        assert nvml.locked_max_mhz == 1500


def test_no_guardian_no_change(nvml: State, run_dir: Path) -> None:
    """A guardian that cannot reach the GPU keeps the clock from being changed."""
    guard = ClockGuard(Place(run_dir, "nvml", "GPU-other"), lambda _: [], ("--library", library()))

    with pytest.raises(ClockError, match="guardian of the clocks ended with 1"):
        guard.prepare(dict, 900)

    guard.close()
    assert nvml.sets == 0
    assert journals(run_dir) == []


def hung(folder: Path, monkeypatch: pytest.MonkeyPatch, *, ready: bool) -> None:
    """Let guardians be processes that say or do not say that they could restore, and never end."""
    script = folder / "hung"
    script.write_text(f"#!/bin/sh\n{'printf +' if ready else ':'}\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(guarding, "_PATIENCE_S", 60.0 if ready else 0.05)


def test_a_guardian_that_hangs_at_its_start_is_killed(
    nvml: State, clocks: GuardedClocks, tmp_path: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that does not answer the guardian keeps the clock as it is, and the run goes on."""
    hung(tmp_path, monkeypatch, ready=False)
    with pytest.raises(ClockError, match=r"did not reach .* no clock was changed"), clocks.locked(900):
        pass

    assert nvml.sets == 0
    assert journals(run_dir) == []
    clocks.close()
    wait_for_release(run_dir)


def test_a_guardian_that_hangs_at_the_end_is_left(
    nvml: State,
    tmp_path: Path,
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The end of a run does not wait for ever: that is said, and the journal stays for the next start."""
    hung(tmp_path, monkeypatch, ready=True)
    guard = ClockGuard(place_in(run_dir), lambda _: [])
    guard.prepare(dict, 900)
    guardian = guard._guardian
    assert guardian is not None
    monkeypatch.setattr(guarding, "_PATIENCE_S", 0.05)

    guard.close()

    assert f"process {guardian.pid}, has not ended" in caplog.text
    with pytest.raises(ClockError, match=f"held by process {os.getpid()}"):
        Ownership(place_in(run_dir), lambda _: []).take()
    assert guardian.poll() is None
    assert len(journals(run_dir)) == 1
    assert nvml.resets == 0
    guardian.kill()
    guardian.wait()


def test_a_stale_journal_is_restored_at_the_start(nvml: State, run_dir: Path) -> None:
    """What owner and guardian left when both were killed is undone once."""
    write_stale(run_dir)
    nvml.locked_max_mhz = 900

    assert stale(run_dir) == [(UUID, "restored")]
    assert stale(run_dir) == []
    assert (nvml.locked_max_mhz, nvml.resets) == (0, 1)


def test_owner_and_guardian_killed_together(nvml: State, run_dir: Path) -> None:
    """The journal outlives both, and the next start restores."""
    with owner(run_dir) as (process, guardian):
        os.kill(guardian, signal.SIGKILL)
        process.kill()
        process.wait()
        wait_for_release(run_dir)
        assert nvml.locked_max_mhz == 900

        assert stale(run_dir) == [(UUID, "restored")]
        assert nvml.locked_max_mhz == 0


def test_a_living_owner_is_left_alone(nvml: State, run_dir: Path) -> None:
    """Restoring at a start touches no GPU whose owner lives, and says who that is."""
    with owner(run_dir) as (process, _):
        assert restore_stale(where(run_dir)) == [Outcome("nvml", UUID, "owned", (f"process {process.pid}",))]
        assert nvml.locked_max_mhz == 900


def test_an_owner_restores_what_a_dead_one_left(nvml: State, clocks: GuardedClocks, run_dir: Path) -> None:
    """Taking a GPU over from a killed owner resets it before anything is set."""
    write_stale(run_dir)

    with clocks.locked(900):
        assert nvml.resets == 1
    assert nvml.resets == 2


def test_a_reboot_has_restored(nvml: State, run_dir: Path) -> None:
    """An entry of an earlier boot is removed and nothing is reset."""
    write_stale(run_dir, replace(write_stale(run_dir), owner="another:1:1"))

    assert stale(run_dir) == [(UUID, "undone")]
    assert nvml.resets == 0
    assert journals(run_dir) == []


def test_restoring_goes_on_past_errors(nvml: State, run_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that cannot be read or restored is logged and kept, and the others are restored."""
    write_stale(run_dir)
    broken, lost = run_dir / "nvml-GPU-a.json", run_dir / "nvml-GPU-b.json"
    broken.write_text("{")
    lost.write_text(place_in(run_dir).journal.read_text().replace(UUID, "GPU-b"))

    assert stale(run_dir) == [(UUID, "restored"), ("GPU-a", "failed"), ("GPU-b", "failed")]
    assert sorted(journals(run_dir)) == [broken, lost]
    assert "tuner clocks restore --reset GPU-a" in caplog.text
    assert "GPU-b" in caplog.text
    assert nvml.locked_max_mhz == 0


def test_the_guardian_keeps_what_it_cannot_restore(nvml: State, run_dir: Path) -> None:
    """A lost GPU leaves the entry for the next start, and the guardian's exit status says so."""
    write_stale(run_dir)
    nvml.reset = LOST
    result = subprocess.run(
        [sys.executable, "-m", "tuner.power.guardian", "nvml", UUID, run_dir, "--library", library()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )

    assert (result.returncode, result.stdout) == (1, b"+")
    assert b"GPU is lost" in result.stderr
    assert len(journals(run_dir)) == 1


def test_entries_are_written_whole(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves no half entry where one is looked for."""
    run_dir.mkdir()
    place = place_in(run_dir)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClockError, match="No space left"):
        place.write({}, 900)

    assert journals(run_dir) == []


def test_no_runtime_directory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root keeps journals in /run; others where their session does, and are told if they have none."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert runtime_directory() == Path("/run/tuner")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert runtime_directory() == Path("/run/user/1000/tuner")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(ClockError, match="set XDG_RUNTIME_DIR"):
        runtime_directory()
    assert restore_stale() == []


def test_restoring_where_nothing_was_kept(tmp_path: Path) -> None:
    """A missing directory holds no entries."""
    assert stale(tmp_path / "none") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {"control": st.just("nvml") | JSON, "gpu": st.just(UUID) | JSON, "owner": st.just(this_process()) | JSON},
    optional={
        "old": JSON | st.fixed_dictionaries({"setting": st.just("locked") | JSON, "baseline_mhz": JSON}),
        "new_mhz": st.integers() | JSON,
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=60) | NEARLY.map(lambda record: json.dumps(record).encode()))
@example(b"[" * 100_000)
@example(b"")
def test_no_journal_is_too_broken_to_be_told(nvml: State, run_dir: Path, content: bytes) -> None:
    """Whatever stands in a journal is told, kept and not acted on, unless it is an entry of this GPU."""
    run_dir.mkdir(exist_ok=True)
    place_in(run_dir).journal.write_bytes(content)
    resets, sets = nvml.resets, nvml.sets
    (outcome,) = restore_stale(where(run_dir))

    assert outcome.state in {"failed", "restored", "undone"}
    assert place_in(run_dir).journal.exists() == (outcome.state == "failed")
    assert nvml.resets - resets == (outcome.state == "restored")
    assert nvml.sets == sets or outcome.state == "restored"
