"""A daemon for which the system has no threads and no processes left: it waits, answers, and goes on."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import COMMAND, PATIENCE_S
from daemon_machine import Machine

from tuner.model.errors import ResourceError
from tuner.system.threads import StartedThreads, is_shortage

NOBODY = 65534
AS_NOBODY: tuple[str, ...] = ()
if os.geteuid() == 0:  # whose own number of processes has no limit; who may read the interpreter all the same
    may_read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    AS_NOBODY = ("setpriv", *ids, *may_read, "--bounding-set=-sys_resource,-sys_admin")
pytestmark = pytest.mark.skipif(
    bool(AS_NOBODY) and shutil.which("setpriv") is None, reason="root needs setpriv to be somebody else"
)


class PoorMachine(Machine):
    """A daemon of a user who may be given no further thread or process."""

    def begin(self, command: tuple[str, ...] = COMMAND) -> "subprocess.Popen[str]":
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [*AS_NOBODY, *command, *self.words],
                stderr=log,
                text=True,
                env={**os.environ, "NOTIFY_SOCKET": self.manager},
            )
        self.processes.append(process)
        return process

    def limit(self, most: int | None) -> None:
        """Let the daemon's user have so many processes and threads; None for as many as may be."""
        code = (
            "import resource, sys; pid, most = map(int, sys.argv[1:]); kind = resource.RLIMIT_NPROC;"
            " hard = resource.prlimit(pid, kind)[1]; resource.prlimit(pid, kind, (most or hard, hard))"
        )
        pid = self.processes[-1].pid
        subprocess.run([*AS_NOBODY, sys.executable, "-c", code, str(pid), str(most or 0)], check=True)


@pytest.fixture
def poor(monkeypatch: pytest.MonkeyPatch) -> Iterator[PoorMachine]:
    folder = Path(tempfile.mkdtemp(prefix="tuner-shortage-"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.delenv("TUNER_SOCKET", raising=False)
    machine = PoorMachine(folder)
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    yield machine
    machine.close()
    shutil.rmtree(folder)


def test_without_threads_and_processes_the_daemon_stays(poor: PoorMachine) -> None:
    """It answers, reads files again and says why a job waits; with room the job begins."""
    process = poor.start()
    client = poor.client()
    poor.limit(1)
    assert client.best("scan-lf:N=4").workloads
    process.send_signal(signal.SIGHUP)
    poor.hear("RELOADING=1")
    poor.hear("READY=1")
    job = client.submit("scan-lf:N=4", policy="random", budget=1)
    while "cannot be started" not in client.job(job.id).reason:
        poor.give_a_moment()
    assert "taken to be as they were" in "; ".join(client.status()["troubles"])
    assert client.job(job.id).state == "queued"

    poor.limit(None)
    while client.job(job.id).state not in ("running", "finished"):
        poor.give_a_moment()
    assert "Traceback" not in poor.log.read_text()
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_a_start_without_threads_waits(poor: PoorMachine) -> None:
    """Where not even the first threads can be made, the start waits until they can."""
    if not AS_NOBODY:
        pytest.skip("only root gives another user a limit from the beginning")
    limits = (
        "import resource; kind = resource.RLIMIT_NPROC;"
        " resource.setrlimit(kind, (1, resource.getrlimit(kind)[1])); "
    )
    poor.begin((*COMMAND[:2], limits + COMMAND[2]))
    assert "no thread can be made" in poor.hear("STATUS=waits")
    poor.limit(None)
    poor.await_ready()
    assert poor.client().status()["troubles"] == []


def test_threads_are_there_or_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool has all its threads from the start; what cannot be had is told at once, and nothing is left."""
    pool = StartedThreads(3, "pool")
    monkeypatch.setattr(threading.Thread, "start", _no_thread)
    assert pool.submit(lambda: 1).result() == 1
    pool.shutdown()
    with pytest.raises(ResourceError, match="can't start new thread"):
        StartedThreads(1, "pool")


def _no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (BlockingIOError(11, "Resource temporarily unavailable"), True),
        (OSError(24, "Too many open files"), True),
        (OSError(2, "No such file"), False),
        (MemoryError(), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("Event loop is closed"), False),
        (ValueError(), False),
    ],
)
def test_a_shortage_is_told_from_a_mistake(error: Exception, *, short: bool) -> None:
    """Only what passes when others give something back is waited for."""
    assert is_shortage(error) == short
