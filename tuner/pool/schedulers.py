"""Schedulers that a run starts itself: on this host, or in an allocation of SLURM."""

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from typing import IO, TYPE_CHECKING, Any, TypeVar

from tuner.devices.choice import count_gpus
from tuner.devices.cuda.probe import driver_problem
from tuner.model.errors import InputError, PoolError
from tuner.pool.worker import SETTINGS, certificates_in_environment, worker_options
from tuner.system.ownership import owned_folder

if TYPE_CHECKING:
    from distributed import Client


POOL_PREFIX = "tuner-pool-"
"""Of the temporary folders of drivers, for files of Dask."""

_LOOPBACK = "127.0.0.1"


T = TypeVar("T")


@contextmanager
def open_local(on: str, count: int | None, device: str | None) -> "Iterator[tuple[Client, int]]":
    """Start a scheduler in this process and a worker process for each GPU.

    A worker that is killed is started anew with the same GPU.

    Args:
        on: what messages call it.
        count: workers; None for all GPUs.
        device: what every worker opens, for simulated devices; None for a GPU each.

    Yields:
        A connected client, and the number of workers.

    Raises:
        InputError: there are not so many GPUs.
    """
    devices = local_devices(on, count, device)
    with (
        owned_folder(POOL_PREFIX) as folder,
        own_scheduler(_LOOPBACK, devices, folder) as (client, _, _),
    ):
        yield client, len(devices)


@contextmanager
def own_scheduler(host: str, devices: list[str], folder: str) -> "Iterator[tuple[Client, Any, str]]":
    """A scheduler in this process that listens on one address, and workers on this host.

    All talk TLS with certificates of their own: a scheduler runs what it is sent, and other users of a host
    reach the loopback too.

    Yields:
        A connected client, the certificates (Dask's ``Security``), and the address of the scheduler.

    Raises:
        PoolError: the processes cannot be started.
    """
    import dask  # noqa: PLC0415 - only where --on is used
    from distributed import Client, Nanny, Scheduler, Security  # noqa: PLC0415 - as above
    from distributed.deploy.spec import SpecCluster  # noqa: PLC0415 - as above

    with ExitStack() as stack:
        stack.enter_context(dask.config.set(SETTINGS))
        security = Security.temporary()
        common: dict[str, Any] = {
            "host": host,
            "protocol": "tls",
            "security": security,
            "dashboard": False,
            "dashboard_address": f"{host}:0",
        }
        workers = {
            number: {"cls": Nanny, "options": worker_options(folder, spec, common)}
            for number, spec in enumerate(devices)
        }
        scheduler = {"cls": Scheduler, "options": {**common, "port": 0}}
        loop = stack.enter_context(_loop_without_interrupts())

        def start() -> SpecCluster:
            return SpecCluster(
                workers=workers,
                scheduler=scheduler,
                loop=loop,
                security=security,
                silence_logs=logging.CRITICAL,
            )

        try:
            cluster = start_uninterrupted(start, SpecCluster.close)
        except RuntimeError as error:
            raise PoolError(
                f"the processes of the pool cannot be started: {error.__cause__ or error}; a script that"
                " tunes on them needs `if __name__ == '__main__':` above the call"
            ) from error
        stack.enter_context(cluster)
        client = stack.enter_context(Client(cluster, security=security, set_as_default=False))
        yield client, security, cluster.scheduler_address


def start_uninterrupted(start: Callable[[], T], close: Callable[[T], object]) -> T:
    """Call ``start`` in a thread that Ctrl-C does not reach, and return its result.

    Dask leaves processes behind where it is interrupted while it starts them. Ctrl-C waits here until they
    are there, and ends them.

    Raises:
        KeyboardInterrupt: what was started has been closed.
    """
    started: list[T] = []
    try:
        with ThreadPoolExecutor(1) as threads:  # whose end waits
            threads.submit(lambda: started.append(start())).result()
    except KeyboardInterrupt:
        for processes in started:
            close(processes)
        raise
    return started[0]


@contextmanager
def _loop_without_interrupts() -> "Iterator[Any]":
    """Dask's event loop in a thread that SIGINT does not reach, nor any process that it starts.

    Ctrl-C goes to all processes of a terminal. It is for the driver to end its workers; one that is just
    starting would die of it with a traceback.
    """
    from distributed.utils import LoopRunner  # noqa: PLC0415 - only where --on is used

    resource_tracker.ensure_running()  # whose start unblocks SIGINT in the thread that needs it first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner = LoopRunner()
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


def local_devices(on: str, count: int | None, device: str | None) -> list[str]:
    """The devices of so many workers of this host.

    Raises:
        InputError: there are not so many.
    """
    if device is not None:
        if count is None:
            raise InputError(f"--on {on}: write how many {device} there are to be, as in local:4")
        return [device] * count
    problem = driver_problem()
    if problem is not None:
        raise InputError(
            f"--on {on}: no GPU answers here ({problem}); for modelled numbers add --device sim:NAME"
        )
    found = count_gpus()
    if found < (count or 1):
        raise InputError(f"--on {on}: this host has {found} GPU{'' if found == 1 else 's'}")
    return [f"cuda:{index}" for index in range(count or found)]


# --- Workers in an allocation of SLURM: a scheduler in this process, and one worker for each GPU by ``srun``.

_FIRST_S = 120.0  # until srun has started the first worker: a node may wake up first
_LOOK_S = 0.2
_END_S = 10.0  # until srun has ended by itself


@contextmanager
def open_slurm(on: str) -> "Iterator[tuple[Client, int]]":
    """Start a scheduler on this node's address, and the workers of the allocation.

    The certificates are made anew for every run, and travel in the environment of ``srun``.

    Yields:
        A connected client, and the number of workers.

    Raises:
        InputError: this process is in no allocation, or in one without GPUs.
        PoolError: ``srun`` cannot be started, or ends before a worker is there.
    """
    count = allocated_gpus(on, os.environ)
    with ExitStack() as stack:
        folder = stack.enter_context(owned_folder(POOL_PREFIX))
        client, security, address = stack.enter_context(own_scheduler(node_address(on), [], folder))
        errors = stack.enter_context(tempfile.TemporaryFile())
        process = _started(on, address, security, count, errors)
        stack.callback(_end, process)
        _await_worker(on, client, process, errors)
        yield client, count


def allocated_gpus(on: str, environment: Mapping[str, str]) -> int:
    """Return the number of GPUs of the allocation, by the variables that SLURM sets.

    Raises:
        InputError: this process is in none, or it has none.
    """
    if "SLURM_JOB_ID" not in environment:
        raise InputError(
            f"--on {on}: SLURM_JOB_ID is not set, so this is no allocation; start it by sbatch or salloc"
        )
    total = _number(environment.get("SLURM_GPUS", ""))
    on_node = _number(environment.get("SLURM_GPUS_ON_NODE", ""))
    nodes = _number(environment.get("SLURM_JOB_NUM_NODES", "")) or 1
    tasks = _number(environment.get("SLURM_NTASKS", ""))
    count = total or on_node * nodes or tasks
    if not count:
        raise InputError(f"--on {on}: the allocation has no GPUs; ask for them, as by --gpus=8")
    return count


def _number(text: str) -> int:
    """A count as SLURM writes it: ``8``, or ``h100:8`` with a type."""
    digits = text.rpartition(":")[2]
    return int(digits) if digits.isdecimal() else 0


def node_address(on: str) -> str:
    """The address of this node in its cluster.

    Raises:
        InputError: its name leads nowhere.
    """
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    for host in (name, socket.gethostname()):
        with suppress(OSError):
            return socket.gethostbyname(host)
    raise InputError(f"--on {on}: the name of this node, {name}, has no address")


def _started(
    on: str,
    address: str,
    security: Any,  # noqa: ANN401 - Dask's
    count: int,
    errors: IO[bytes],
) -> "subprocess.Popen[bytes]":
    command = [
        *("srun", f"--ntasks={count}", "--gpus-per-task=1", "--kill-on-bad-exit=0", "--export=ALL"),
        *(sys.executable, "-m", "tuner", "worker", address),
    ]
    try:
        return subprocess.Popen(  # noqa: S603 - the allocation's own program, found by PATH as users do
            command,
            env={**os.environ, **certificates_in_environment(security)},
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,  # a Ctrl-C of the terminal goes to the driver alone
        )
    except OSError as error:
        raise PoolError(f"--on {on}: srun cannot be started: {error.strerror}") from error


def _await_worker(on: str, client: "Client", process: "subprocess.Popen[bytes]", errors: IO[bytes]) -> None:
    until = time.monotonic() + _FIRST_S
    while not client.nthreads():
        if process.poll() is not None or time.monotonic() > until:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()[-3:]
            ended = "ended" if process.poll() is not None else f"started none within {_FIRST_S:g} s"
            raise PoolError(f"--on {on}: srun {ended} before a worker was there: {' '.join(said)}")
        time.sleep(_LOOK_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Workers end with their scheduler's word; srun is asked, and then made to."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
