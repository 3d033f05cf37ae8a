"""Pools over real Dask, with simulated devices: workers that die, schedulers that vanish, allocations."""

import asyncio
import math
import os
import select
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest
from cli_process import COMMAND
from distributed import Security, get_worker

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import PoolError, WorkerLostError
from tuner.model.records import RunStatus
from tuner.pool import worker
from tuner.pool.opening import opener_on
from tuner.pool.schedulers import start_uninterrupted
from tuner.pool.worker import certificates_in_environment
from tuner.pool.worker_calls import Workers, open_workers
from tuner.search.answer import Outcome
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.tuning import run_request

DEVICE = "sim:jetson-tx1"
REQUEST = SearchRequest(("scan-lf:N=4",), policy="exhaustive", objective="energy")
WAIT_S = 300.0  # for what must come on a busy machine; waited for in full only where something is broken


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


def tuned(
    on: str, database: Path, listener: Listener, *, resume: bool = False, request: SearchRequest = REQUEST
) -> Outcome:
    opener = opener_on(on, listener.told, None, resume=False)
    return run_request(
        request, Catalog.load(()), listener, device=DEVICE, database=database, resume=resume, opener=opener
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
    return [child for child in found if b"spawn_main" in words_of(child)]


def words_of(pid: int) -> bytes:
    """The command line of a process; nothing where it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


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

    request = replace(REQUEST, objective="time")  # of joules several trials are a tie, which chance decides
    alone = run_request(request, Catalog.load(()), Listener(), device=DEVICE, database=tmp_path / "alone.db")
    listener = Listener(5, kill_one)
    pool = tuned("local:2", tmp_path / "pool.db", listener, request=request)
    trials = stored(tmp_path / "pool.db")
    assert len(set(trials)) == len(trials)
    assert set(trials) == set(stored(tmp_path / "alone.db"))
    assert pool.status is RunStatus.FINISHED, (listener.told_, pool.notices)
    bests: list[Any] = [one.document["best"] for one in (pool, alone)]
    assert bests[0]["configurations"] == bests[1]["configurations"]
    assert any("is lost" in sentence for sentence in listener.told_)
    assert interrupted == [False, False]
    assert not pool_processes(os.getpid())


@contextmanager
def scheduler(workers: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A scheduler on the loopback and its workers, as a user starts them, with certificates for all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    variables = certificates_in_environment(Security.temporary())
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, **variables}}
    python = (sys.executable, "-m", "distributed.cli.dask_scheduler")
    command = [*python, "--host", "127.0.0.1", "--port", str(port), "--protocol", "tls", "--no-dashboard"]
    process = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]  # of several types
    worker = [*COMMAND, "worker", f"tls://{address}"]
    crew = [subprocess.Popen(worker, **quiet) for _ in range(workers)]  # type: ignore[call-overload]  # as above
    try:
        known = dask.config.merge(dask.config.config, dask.config.collect_env(variables))
        with dask.config.set(known):
            yield process, f"dask://{address}"
    finally:
        for one in (*crew, process):
            one.terminate()
        for one in (*crew, process):
            one.wait(WAIT_S)


def test_strangers_of_this_host_run_nothing() -> None:
    """Whoever has no certificate of the pool is told nothing by its scheduler, a worker or its guard."""

    def others() -> tuple[Any, Any]:  # sent by value: workers do not have this file
        worker = get_worker()
        return worker.scheduler.address, worker.nanny

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with open_workers("local:1", device=DEVICE) as workers:
        (worker,) = workers.present
        for address in (worker, *workers.submit(others).result(WAIT_S)):
            host, _, port = address.removeprefix("tls://").rpartition(":")
            with (
                socket.create_connection((host, int(port)), WAIT_S) as plain,
                context.wrap_socket(plain) as encrypted,
                pytest.raises(ssl.SSLError, match="certificate required"),
            ):
                encrypted.recv(1)


@pytest.mark.parametrize("confirming", [False, True], ids=["search", "confirmation"])
def test_vanished_scheduler_interrupts_a_run_that_resumes(tmp_path: Path, *, confirming: bool) -> None:
    """A run whose scheduler dies ends as interrupted with all trials; it goes on with another pool."""
    database = tmp_path / "pool.db"
    with scheduler(1) as (process, on):
        listener = Listener(1 if confirming else 4, process.kill, confirming=confirming)
        first = tuned(on, database, listener)
    assert first.status is RunStatus.INTERRUPTED
    assert any("scheduler of the pool" in notice for notice in first.notices)
    before = stored(database)
    second = tuned("local:1", database, Listener(), resume=True)
    assert second.status is RunStatus.FINISHED
    assert second.resumed == len(before)
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
        pid = workers.submit(os.getppid, worker=address).result(WAIT_S)
        assert (
            workers.submit(os.getenv, "DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY", worker=address).result(
                WAIT_S
            )
            is None
        )
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
        start_uninterrupted(start, Started.close)
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
        return await worker._answers("tcp://127.0.0.1:1", stopped)

    monkeypatch.setattr(worker, "_GONE_S", math.inf)
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
        assert workers.submit(os.getpid, worker=address).result(WAIT_S) != os.getpid()
        with pytest.raises(PoolError, match="ZeroDivisionError"):
            workers.submit(divmod, 1, 0, worker=address).result(WAIT_S)
        pid = workers.submit(os.getpid, worker=address).result(WAIT_S)
        waiting = workers.submit(time.sleep, WAIT_S, worker=address)
        os.kill(pid, signal.SIGKILL)
        while not wait((waiting,), 0.05).done:
            workers.refresh()
        with pytest.raises(WorkerLostError):
            waiting.result()


def test_frozen_worker_is_killed_and_started_anew() -> None:
    """A process that is stopped is lost, and another takes its place; closing waits for none."""
    with open_workers("local:1", device=DEVICE, silent_s=10.0) as workers:
        first = frozen(workers)
        with pytest.raises(WorkerLostError):
            workers.wait(workers.submit(os.getpid, worker=min(workers.present)))
        workers.wait_for(1, WAIT_S)
        second = frozen(workers)
    for guard in (first, second):
        assert select.select([guard], [], [], WAIT_S)[0]
        os.close(guard)


def frozen(workers: Workers) -> int:
    """Stop the only worker for ever; returns a descriptor that is readable when its process has ended."""
    pid = workers.wait(workers.submit(os.getpid, worker=min(workers.present)))
    guard = os.pidfd_open(pid)
    os.kill(pid, signal.SIGSTOP)
    return guard
