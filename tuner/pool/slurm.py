"""Workers in an allocation of SLURM: a scheduler in this process, and one worker for each GPU by ``srun``."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from tuner.model.errors import InputError, PoolError
from tuner.pool.schedulers import POOL_PREFIX, own_scheduler
from tuner.pool.worker_process import certificates_in_environment
from tuner.system.owned_folder import owned_folder

if TYPE_CHECKING:
    from distributed import Client


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
    """How many GPUs the allocation has, by the variables that SLURM sets.

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
    for one in (name, socket.gethostname()):
        with suppress(OSError):
            return socket.gethostbyname(one)
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
