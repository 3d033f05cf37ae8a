"""Pools over real Dask, with simulated devices: workers that die, schedulers that vanish, allocations."""

import asyncio
import math
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_process import COMMAND

from tuner.config.catalog import Catalog
from tuner.database import Store
from tuner.errors import PoolError, WorkerLostError
from tuner.model import RunStatus
from tuner.pool import worker_process
from tuner.pool.local import start_uninterrupted
from tuner.pool.opening import pool_opener
from tuner.pool.workers import open_workers
from tuner.search.request import Request
from tuner.search.running import run
from tuner.search.trial_event import TrialEvent
from tuner.search.tuning import TuningResult

DEVICE = "sim:jetson-tx1"
REQUEST = Request(("scan-lf:N=4",), policy="exhaustive", objective="energy")
WAIT_S = 60.0


class Listener:
    """Hears a run, and does something at one of its trials."""

    def __init__(self, number: int = 0, action: object = None, *, confirming: bool = False) -> None:
        self.told_: list[str] = []
        self._when = (number, confirming)
        self._action = action

    def measured(self, event: TrialEvent) -> None:
        if self._when == (event.repeat if event.confirming else event.number, event.confirming):
            action, self._action = self._action, None
            if callable(action):
                action()

    def told(self, sentence: str) -> None:
        self.told_.append(sentence)

    def compiled(self, done: int, total: int) -> None:
        """Not of interest."""

    def warming(self, watts: float, seconds: float) -> None:
        """Not of interest."""


def tuned(on: str, database: Path, listener: Listener, *, resume: bool = False) -> TuningResult:
    opener = pool_opener(on, listener.told)
    return run(
        REQUEST, Catalog.load(()), listener, device=DEVICE, database=database, resume=resume, opener=opener
    )


def stored(database: Path) -> list[str]:
    """The trials of the only run of a database, which must be numbered without gaps."""
    with Store(database) as store:
        (one,) = store.history()
        trials = store.stored_trials(one.id, ["scan-lf:N=4"])
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
    return [str(trial.trial) for trial in trials]


def pool_processes(pid: int) -> list[int]:
    """The worker processes below a process, started by any of its threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    found = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def blocks_interrupts(pid: int) -> bool:
    """True where SIGINT does not reach a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    return bool(mask & 1 << (signal.SIGINT - 1))


def test_killed_worker_loses_no_trial(tmp_path: Path) -> None:
    """A worker killed -9 costs no trial: each is stored once, as without a pool. Ctrl-C reaches no worker."""
    interrupted: list[bool] = []

    def kill_one() -> None:
        workers = pool_processes(os.getpid())
        interrupted.extend(not blocks_interrupts(worker) for worker in workers)
        os.kill(workers[0], signal.SIGKILL)

    alone = run(REQUEST, Catalog.load(()), Listener(), device=DEVICE, database=tmp_path / "alone.db")
    listener = Listener(5, kill_one)
    pool = tuned("local:2", tmp_path / "pool.db", listener)
    trials = stored(tmp_path / "pool.db")
    assert len(set(trials)) == len(trials)
    assert set(trials) == set(stored(tmp_path / "alone.db"))
    assert pool.outcome.status is RunStatus.FINISHED
    bests: list[Any] = [one.document["best"] for one in (pool, alone)]
    assert bests[0]["configurations"] == bests[1]["configurations"]
    assert any("is lost" in sentence for sentence in listener.told_)
    assert interrupted == [False, False]
    assert not pool_processes(os.getpid())


@contextmanager
def scheduler(workers: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A scheduler on the loopback and its workers, as a user starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    python = (sys.executable, "-m", "distributed.cli.dask_scheduler")
    command = [*python, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]  # both are numbers
    worker = [*COMMAND, "worker", f"tcp://{address}"]
    crew = [subprocess.Popen(worker, **quiet) for _ in range(workers)]  # type: ignore[call-overload]  # as above
    try:
        yield process, f"dask://{address}"
    finally:
        for one in (*crew, process):
            one.terminate()
        for one in (*crew, process):
            one.wait(WAIT_S)


@pytest.mark.parametrize("confirming", [False, True], ids=["search", "confirmation"])
def test_vanished_scheduler_interrupts_a_run_that_resumes(tmp_path: Path, *, confirming: bool) -> None:
    """A run whose scheduler dies ends as interrupted with all trials; it goes on with another pool."""
    database = tmp_path / "pool.db"
    with scheduler(1) as (process, on):
        listener = Listener(1 if confirming else 4, process.kill, confirming=confirming)
        first = tuned(on, database, listener)
    assert first.outcome.status is RunStatus.INTERRUPTED
    assert any("scheduler of the pool" in notice for notice in first.outcome.notices)
    before = stored(database)
    second = tuned("local:1", database, Listener(), resume=True)
    assert second.outcome.status is RunStatus.FINISHED
    assert second.outcome.resumed == len(before)
    trials = stored(database)
    assert trials[: len(before)] == before
    assert len(set(trials)) == len(trials)


SRUN = """#!/bin/sh
# As srun: starts the command as often as --ntasks says; what it is told to end, it ends.
for word in "$@"; do
  case "$word" in --ntasks=*) tasks=${word#*=} ;; --*) ;; *) break ;; esac
  shift
done
for task in $(seq "$tasks"); do "$@" & pids="$pids $!"; done
trap 'kill $pids' TERM
wait
"""


def test_workers_of_an_allocation_are_started_by_srun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within an allocation srun starts a worker for each GPU, which talks TLS, and ends them."""
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_GPUS", "1")
    monkeypatch.setenv("SLURMD_NODENAME", "localhost")
    with open_workers("slurm") as workers:
        (address,) = workers.present
        assert address.startswith("tls://")
        pid = workers.call(os.getppid, worker=address)
        assert workers.call(os.getenv, "DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY", worker=address) is None
        guard = os.pidfd_open(pid)
    assert select.select([guard], [], [], WAIT_S)[0]
    os.close(guard)


def test_srun_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What srun says when it ends without a worker is in the message."""
    (tmp_path / "srun").write_text("#!/bin/sh\necho 'srun: error: no such partition' >&2\nexit 1\n")
    (tmp_path / "srun").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_GPUS", "1")
    monkeypatch.setenv("SLURMD_NODENAME", "localhost")
    with pytest.raises(PoolError, match="no such partition"), open_workers("slurm"):
        pass


def test_ctrl_c_while_a_pool_starts_closes_it() -> None:
    """What is being started is there, and then closed, before the interrupt goes on."""
    events: list[str] = []

    class Started:
        def close(self) -> None:
            events.append("closed")

    def start() -> Started:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        events.append("started")
        return Started()

    with pytest.raises(KeyboardInterrupt):
        start_uninterrupted(start)
    assert events == ["started", "closed"]


def test_a_stopped_worker_looks_for_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal while nobody answers ends the looking, not its patience."""
    attempts = 0

    async def looked() -> bool:
        stopped = asyncio.Event()

        async def refused(*_: object) -> None:
            nonlocal attempts
            attempts += 1
            stopped.set()
            raise ConnectionRefusedError

        monkeypatch.setattr(asyncio, "open_connection", refused)
        return await worker_process._answers("tcp://127.0.0.1:1", stopped)

    monkeypatch.setattr(worker_process, "_GONE_S", math.inf)
    assert not asyncio.run(asyncio.wait_for(looked(), WAIT_S))
    assert attempts == 1


def test_calls_to_workers_are_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls run in the worker that is meant, its errors come back, and a dead worker's calls fail at once.

    Nobody is lost because the client's timer keeps an identity of the scheduler without its workers.
    """
    with open_workers("local:1", device=DEVICE) as workers:
        (address,) = workers.present
        monkeypatch.setattr("distributed.Client.scheduler_info", lambda *_, **__: {"workers": {}})
        workers.refresh()
        assert list(workers.present) == [address]
        assert workers.submit(divmod, 7, 2).result(WAIT_S) == (3, 1)
        assert workers.call(os.getpid, worker=address) != os.getpid()
        with pytest.raises(PoolError, match="ZeroDivisionError"):
            workers.call(divmod, 1, 0, worker=address)
        pid = workers.call(os.getpid, worker=address)
        waiting = workers.submit(time.sleep, WAIT_S, worker=address)
        os.kill(pid, signal.SIGKILL)
        while not wait((waiting,), 0.05).done:
            workers.refresh()
        with pytest.raises(WorkerLostError):
            waiting.result()
