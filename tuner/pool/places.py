"""What ``--on`` names: the GPUs of this host, a scheduler of Dask, or an allocation of SLURM."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal

from tuner.errors import InputError

_LOCAL = re.compile(r"local(?::(\d{1,4}))?")
_SCHEDULER = re.compile(r"dask://(\[[^\]]+\]|[^:/\s]+):(\d{1,5})/?")
_HIGHEST_PORT = 65535
FORMS = "local, local:N, dask://HOST:PORT or slurm"
"""What may stand after ``--on``."""


@dataclass(frozen=True)
class PoolPlace:
    """Where a pool's workers are.

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
        InputError: it is none, or without TLS off this host.
    """
    match = re.fullmatch(r"(tcp|tls)://(\[[^\]]+\]|[^:/\s]+):(\d{1,5})", address)
    if match is None:
        raise InputError(f"{address}: write the scheduler's address, such as tls://10.0.0.7:8786")
    if match[1] != "tls" and not is_loopback(match[2].strip("[]")):
        raise InputError(f"{address}: TLS is required off this host: write tls://{match[2]}:{match[3]}")


def is_loopback(host: str) -> bool:
    """True for an address that only this host reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
