"""Workers on this host: one process for each GPU, under a scheduler that only this host reaches."""

import logging
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tuner.devices.cuda.probe import driver_problem
from tuner.devices.listing import count_gpus
from tuner.model.errors import InputError, PoolError
from tuner.pool.worker_process import SETTINGS, worker_options
from tuner.system.owned_folder import owned_folder

if TYPE_CHECKING:
    from distributed import Client


POOL_PREFIX = "tuner-pool-"
"""Of the temporary folders of drivers, for files of Dask."""

_LOOPBACK = "127.0.0.1"


class _Closable(Protocol):
    """What is started, and must be closed."""

    def close(self) -> object:
        """End it."""


Closable = TypeVar("Closable", bound=_Closable)


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

    Args:
        host: address to listen on.
        devices: of each worker that is started here.
        folder: for files of Dask.

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
            place: {"cls": Nanny, "options": worker_options(folder, spec, common)}
            for place, spec in enumerate(devices)
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
            cluster = start_uninterrupted(start)
        except RuntimeError as error:
            raise PoolError(
                f"the processes of the pool cannot be started: {error.__cause__ or error}; a script that"
                " tunes on them needs `if __name__ == '__main__':` above the call"
            ) from error
        stack.enter_context(cluster)
        client = stack.enter_context(Client(cluster, security=security, set_as_default=False))
        yield client, security, cluster.scheduler_address


def start_uninterrupted(start: Callable[[], Closable]) -> Closable:
    """What ``start`` starts, in a thread that Ctrl-C does not reach.

    Dask leaves processes behind where it is interrupted while it starts them. Ctrl-C waits here until they
    are there, and ends them.

    Raises:
        KeyboardInterrupt: what was started has been closed.
    """
    started: list[Closable] = []
    try:
        with ThreadPoolExecutor(1) as threads:  # whose end waits
            threads.submit(lambda: started.append(start())).result()
    except KeyboardInterrupt:
        for one in started:
            one.close()
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
