"""A worker that is started ahead of a run: it is taken, tells its errors, and is left nowhere."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.devices import early
from tuner.devices.cuda.opening import make_context
from tuner.devices.early import worker_ahead
from tuner.devices.worker import WorkerDevice
from tuner.model.errors import DeviceUnavailableError

PATIENCE_S = 60.0  # for what must come; never waited for in full unless something is broken

SERVED = '''
import os, time
from tuner.devices.simulated.device import SimulatedDevice
from tuner.model.errors import DeviceUnavailableError

def opened(index):
    """A simulated GPU; number 6 does not open, and number 7 takes its time."""
    with open(os.environ["OPENED"], "a") as file:
        print(os.getpid(), file=file, flush=True)
    if index == 6:
        raise DeviceUnavailableError("cuda:6: no such GPU")
    while index == 7:
        time.sleep(1.0)
    device = SimulatedDevice("h200")
    device.describe = lambda: (device.identity, device.limits)
    return device
'''
PROGRAM = (
    "import sys; from tuner.devices import early;"
    " early.DRIVER_NODES, early.TARGET = (sys.executable,), 'slow_gpu:opened';"
    " from tuner.__main__ import main; main()"
)


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where opened devices write their process ids."""
    (tmp_path / "slow_gpu.py").write_text(SERVED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(early, "TARGET", "slow_gpu:opened")
    monkeypatch.setattr(early, "DRIVER_NODES", (sys.executable,))
    monkeypatch.setenv("OPENED", str(tmp_path / "pids"))
    return tmp_path / "pids"


def started(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def waited_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def tuner(pids: Path, *arguments: str) -> "subprocess.Popen[str]":
    """The command line with a GPU that it can open."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": str(pids.parent)},
        cwd=pids.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_takes_the_worker_that_is_there(pids: Path) -> None:
    """The GPU is opened in the worker that was started before, and in no other."""
    with worker_ahead("cuda:3"):
        waited_for(lambda: started(pids))
        device = WorkerDevice("cuda:3")

    assert started(pids) == [device.pid]
    device.close()


@pytest.mark.parametrize("spec", ["cuda:2", None])
def test_a_worker_that_nobody_takes_is_left_nowhere(pids: Path, spec: str | None) -> None:
    """A command that does not come to open the GPU ends the worker."""
    with worker_ahead(spec):
        waited_for(lambda: started(pids))

    waited_for(lambda: not alive(*started(pids)))


@pytest.mark.parametrize("spec", ["sim:h200", "replay:h200", "cuda:x", "auto"])
def test_what_is_no_gpu_starts_no_worker(pids: Path, spec: str) -> None:
    """Simulated devices and recordings have no worker, and a wrong name is told later."""
    with worker_ahead(spec):
        assert not early._started
    assert started(pids) == []


def test_without_a_driver_no_worker_starts(pids: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that shows no device file of a GPU starts no worker."""
    monkeypatch.setattr(early, "DRIVER_NODES", ("/dev/absent",))
    with worker_ahead("cuda:0"):
        assert not early._started
    assert started(pids) == []


def test_a_gpu_that_does_not_open_is_told_at_once(pids: Path) -> None:
    """The error of a worker that has ended before anyone asked is that of the GPU."""
    with worker_ahead("cuda:6"):
        waited_for(lambda: started(pids) and not alive(*started(pids)))
        with pytest.raises(DeviceUnavailableError, match=r"cuda:6: no such GPU"):
            WorkerDevice("cuda:6")

    assert len(started(pids)) == 1


def test_a_mistyped_kernel_leaves_no_worker(pids: Path) -> None:
    """The message comes though a GPU is being opened, and nothing is left behind."""
    with tuner(pids, "run", "scam-lf:N=1024", "--device", "cuda:7") as process:
        _, told = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 2
    assert "scan-lf" in told
    waited_for(lambda: not any(map(alive, started(pids))))


def test_ctrl_c_before_the_worker_is_up(pids: Path) -> None:
    """Ctrl-C ends a run whose GPU is still being opened, and the worker with it."""
    with tuner(pids, "run", "scan-lf:N=1024", "--device", "cuda:7") as process:
        waited_for(lambda: started(pids))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    waited_for(lambda: not any(map(alive, started(pids))))


def test_a_driver_that_is_not_there_makes_no_context() -> None:
    """What cannot be made ahead is left to CuPy, which says what is missing."""
    assert not make_context(0, "libabsent.so.1")


def test_a_run_starts_one_worker(pids: Path) -> None:
    """A whole run measures in the worker that was started before its imports."""
    arguments = ("run", "scan-lf:N=1024", "--device", "cuda:0", "--budget", "1", "--objective", "time")
    with tuner(pids, *arguments, "--database", str(pids.parent / "runs.db")) as process:
        told, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0, errors
    assert "scan-lf:N=1024" in told
    assert len(started(pids)) == 1
