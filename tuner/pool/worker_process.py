"""A worker process of a pool: how it is started, whoever starts it."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tuner.model.errors import PoolError
from tuner.pool.places import require_certificates
from tuner.system.owned_folder import owned_folder

DEVICE_VARIABLE = "TUNER_WORKER_DEVICE"
"""Environment variable of a worker process: the device that it owns; unset for the first GPU that it sees."""

SETTINGS: dict[str, Any] = {
    "distributed.nanny.pre-spawn-environ": {},  # Dask's own would give stages on the CPU one thread
    "distributed.worker.memory.terminate": False,  # a worker is not killed for a workload's arrays
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Configuration of Dask while a pool's processes are started."""

_GONE_S = 20.0  # without a scheduler, until a worker ends
_AGAIN_S = 0.5
START_S = 180.0
"""How long a worker process may take to start on a busy host."""

_MOST_FAILURES = 3  # in a row
_SECRETS = "DASK_DISTRIBUTED__COMM__TLS__"
_ROLES = ("WORKER", "SCHEDULER", "CLIENT")


def own_device(asked: str = "") -> str:
    """The device that this worker process owns.

    Args:
        asked: by the run, for simulated devices; empty where it asks for none.
    """
    return asked or os.environ.get(DEVICE_VARIABLE) or "cuda:0"


def worker_options(folder: str, device: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a worker's guard process (Dask's nanny), which starts it anew when it dies.

    Args:
        folder: for files of Dask.
        device: that it owns; empty for the first GPU that it sees.
        common: options that schedulers have too: addresses, and TLS.
    """
    import dask  # noqa: PLC0415 - only where a pool is used

    return {
        **common,
        "nthreads": 1,
        "resources": {"GPU": 1},
        "memory_limit": 0,
        "local_directory": folder,
        "silence_logs": logging.CRITICAL,
        "preload": [*dask.config.get("distributed.worker.preload", []), "tuner.pool.preload"],
        "env": {DEVICE_VARIABLE: device} if device else {},
    }


def certificates_in_environment(security: Any) -> dict[str, str]:  # noqa: ANN401 - Dask's
    """Environment variables by which Dask's processes get certificates; other users cannot read them.

    Args:
        security: ``Security.temporary()``.
    """
    cert, key = security.tls_worker_cert, security.tls_worker_key
    of_roles = {f"{role}__{what}": text for role in _ROLES for what, text in (("CERT", cert), ("KEY", key))}
    return {f"{_SECRETS}{name}": text for name, text in {"CA_FILE": security.tls_ca_file, **of_roles}.items()}


def serve(address: str, device: str = "") -> None:
    """Be a worker of a scheduler until that has gone; a broken connection is made again.

    Args:
        address: ``tls://HOST:PORT``. Certificates are those of Dask's configuration.
        device: see ``worker_options``.

    Raises:
        InputError: there are no certificates.
        PoolError: no worker can be started.
    """
    import dask  # noqa: PLC0415 - only where a pool is used
    from distributed import Security  # noqa: PLC0415 - as above

    require_certificates("tuner worker", "worker")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = Security()
    for name in [name for name in os.environ if name.startswith(_SECRETS)]:
        del os.environ[name]  # programs that are tuned need no keys
    with dask.config.set(SETTINGS), owned_folder("tuner-worker-") as folder:
        asyncio.run(_serve(address, worker_options(folder, device, _listening(address, security))))


def _listening(address: str, security: Any) -> dict[str, Any]:  # noqa: ANN401 - Dask's
    """Where a worker listens: on the interface that leads to its scheduler."""
    from distributed.comm.addressing import get_address_host  # noqa: PLC0415 - only where a pool is used
    from distributed.utils import get_ip  # noqa: PLC0415 - as above

    host = get_ip(get_address_host(address))
    return {
        "host": host,
        "protocol": "tls",
        "security": security,
        "dashboard": False,
        "dashboard_address": f"{host}:0",
    }


async def _serve(address: str, options: dict[str, Any]) -> None:
    """Keep a worker process alive as long as the scheduler answers, or until a signal comes."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    failures = 0
    while await _answers(address, stopped):
        problem = await _worker(address, options, stopped)
        failures = 0 if problem is None else failures + 1
        if failures == _MOST_FAILURES:
            raise PoolError(f"no worker of {address} can be started: {problem!r}") from problem


async def _worker(address: str, options: dict[str, Any], stopped: asyncio.Event) -> Exception | None:
    """One worker process, started anew when it dies, until it loses its scheduler or is stopped.

    Returns:
        Why it could not be started; None where it was.
    """
    from distributed import Nanny  # noqa: PLC0415 - only where a pool is used

    try:
        async with Nanny(address, death_timeout=START_S, **options) as nanny:
            ends = [asyncio.ensure_future(nanny.finished()), asyncio.ensure_future(stopped.wait())]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
    except Exception as error:  # noqa: BLE001 - Dask's way out of a start that failed has many forms
        return error
    return None


async def _answers(address: str, stopped: asyncio.Event) -> bool:
    """Whether anybody listens at an address, within some seconds; no more is asked when it is stopped."""
    host, _, port = address.partition("://")[2].rpartition(":")
    until = time.monotonic() + _GONE_S
    while not stopped.is_set() and (left_s := until - time.monotonic()) > 0:
        with suppress(OSError, asyncio.TimeoutError):
            connecting = asyncio.open_connection(host.strip("[]"), int(port))
            _, writer = await asyncio.wait_for(connecting, left_s)
            writer.close()
            return True
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stopped.wait(), _AGAIN_S)
    return False
