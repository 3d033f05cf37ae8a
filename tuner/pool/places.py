"""The places that ``--on`` names, and the workers of a scheduler that somebody else has started."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.model.errors import InputError, PoolError

if TYPE_CHECKING:
    from distributed import Client


_LOCAL = re.compile(r"local(?::(\d{1,4}))?")
_SCHEDULER = re.compile(r"dask://(\[[^\]]+\]|[^:/\s]+):(\d{1,5})/?")
_HIGHEST_PORT = 65535
FORMS = "local, local:N, dask://HOST:PORT or slurm"
"""Valid forms of the value of ``--on``."""


@dataclass(frozen=True)
class PoolPlace:
    """Location of a pool's workers.

    Attributes:
        kind: ``local`` for this host, ``dask`` for a scheduler that runs already, ``slurm`` for the
            allocation that this process is in.
        workers: how many; None for as many as there are GPUs.
        host: of the scheduler.
        port: of the scheduler.
    """

    kind: Literal["local", "dask", "slurm"]
    workers: int | None = None
    host: str = ""
    port: int = 0


def parse_place(text: str) -> PoolPlace:
    """The place that ``--on`` names.

    Raises:
        InputError: it is none of the forms.
    """
    local = _LOCAL.fullmatch(text)
    if local is not None:
        count = None if local[1] is None else int(local[1])
        if count == 0:
            raise InputError(f"--on {text}: no worker measures nothing; write local:1 or more")
        return PoolPlace("local", count)
    scheduler = _SCHEDULER.fullmatch(text)
    if scheduler is not None and 0 < int(scheduler[2]) <= _HIGHEST_PORT:
        return PoolPlace("dask", host=scheduler[1].strip("[]"), port=int(scheduler[2]))
    if text == "slurm":
        return PoolPlace("slurm")
    raise InputError(f"--on {text}: write {FORMS}")


def check_scheduler_address(address: str) -> None:
    """Refuse an address that a worker must not connect to.

    Raises:
        InputError: it is none, or without TLS.
    """
    match = re.fullmatch(r"(tcp|tls)://(\[[^\]]+\]|[^:/\s]+):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) <= _HIGHEST_PORT:
        raise InputError(f"{address}: write the scheduler's address, such as tls://10.0.0.7:8786")
    if match[1] != "tls":
        raise InputError(
            f"{address}: TLS is required, also on this host, whose other users reach it: write"
            f" tls://{match[2]}:{match[3]}"
        )


def require_certificates(what: str, role: str) -> None:
    """Refuse to talk without TLS: a scheduler and its workers run whatever they are sent.

    Args:
        what: messages name.
        role: ``client`` or ``worker``.

    Raises:
        InputError: Dask's configuration names no certificates.
    """
    import dask  # noqa: PLC0415 - only where a pool is used

    for key in ("ca-file", f"{role}.cert"):
        if not dask.config.get(f"distributed.comm.tls.{key}", None):
            raise InputError(
                f"{what}: TLS is required, also on this host, whose other users reach the scheduler too: set"
                f" distributed.comm.tls.{key} in Dask's configuration, see docs/howto/several-gpus.md"
                " (--on local and --on slurm make certificates by themselves)"
            )


_CONNECT_S = 20.0


@contextmanager
def open_remote(on: str, place: PoolPlace) -> "Iterator[tuple[Client, int]]":
    """Connect to a scheduler; it and its workers stay when this ends.

    Yields:
        A connected client, and the least number of workers.

    Raises:
        InputError: there are no certificates.
        PoolError: it does not answer.
    """
    from distributed import Client  # noqa: PLC0415 - only where --on is used

    require_certificates(f"--on {on}", "client")
    host = f"[{place.host}]" if ":" in place.host else place.host
    address = f"tls://{host}:{place.port}"
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise PoolError(f"--on {on}: no scheduler answers at {address}: {error}") from error
    with client:
        yield client, 1
