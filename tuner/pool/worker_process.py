"""A worker process of a pool: how it is started, whoever starts it."""

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

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

_GONE_S = 20  # without a scheduler, until a worker ends
_SECRETS = "DASK_DISTRIBUTED__COMM__TLS__"


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


def serve(address: str, device: str = "") -> None:
    """Be a worker of a scheduler until that has gone; a broken connection is made again.

    Args:
        address: ``tls://HOST:PORT`` or, on the loopback, ``tcp://HOST:PORT``. Certificates are those of
            Dask's configuration.
        device: see ``worker_options``.
    """
    import dask  # noqa: PLC0415 - only where a pool is used
    from distributed import Security  # noqa: PLC0415 - as above

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = Security()
    for name in [name for name in os.environ if name.startswith(_SECRETS)]:
        del os.environ[name]  # programs that are tuned need no keys
    with dask.config.set(SETTINGS), tempfile.TemporaryDirectory(prefix="tuner-worker-") as folder:
        asyncio.run(_serve(address, worker_options(folder, device, _listening(address, security))))


def _listening(address: str, security: Any) -> dict[str, Any]:  # noqa: ANN401 - Dask's
    """Where a worker listens: on the interface that leads to its scheduler."""
    from distributed.comm import get_address_host  # noqa: PLC0415 - only where a pool is used
    from distributed.utils import get_ip  # noqa: PLC0415 - as above

    host = get_ip(get_address_host(address))
    protocol = address.partition("://")[0]
    return {
        "host": host,
        "protocol": protocol,
        "security": security,
        "dashboard": False,
        "dashboard_address": f"{host}:0",
    }


async def _serve(address: str, options: dict[str, Any]) -> None:
    from distributed import Nanny  # noqa: PLC0415 - only where a pool is used

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with suppress(OSError, TimeoutError, asyncio.TimeoutError):  # the scheduler has gone
        while not stopped.is_set():
            async with Nanny(address, death_timeout=_GONE_S, **options) as nanny:
                ends = [asyncio.ensure_future(nanny.finished()), asyncio.ensure_future(stopped.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
