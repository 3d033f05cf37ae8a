"""Addresses of the daemon: a Unix socket, or a port of this machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from tuner.model.errors import InputError
from tuner.system.sockets import SOCKET_VARIABLE, default_sockets

TOKEN_VARIABLE = "TUNER_TOKEN_FILE"  # noqa: S105 - the name of a file, not what is in it
_RIGHT = "write the path of a socket, or a URL such as http://127.0.0.1:8750"


@dataclass(frozen=True)
class Address:
    """The address of a daemon: a path, or a host and a port.

    Attributes:
        path: Unix socket; None over TCP.
        host: over TCP.
        port: over TCP.
    """

    path: Path | None
    host: str = "localhost"
    port: int = 0

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}" if self.path is None else str(self.path)


def address(socket: str | Path | None, environment: Mapping[str, str] = os.environ) -> Address:
    """The address that was named; the first default socket that exists where none was, else the last.

    Raises:
        InputError: a URL that is none of a port of this machine, or a path that cannot be one.
    """
    if socket == "" or (socket is not None and "\0" in str(socket)):
        raise InputError(f"daemon at {str(socket)!r}: {_RIGHT}")
    named = socket if socket is not None else environment.get(SOCKET_VARIABLE) or None
    if named is not None:
        return _of_url(str(named)) if "://" in str(named) else Address(Path(named))
    choices = default_sockets(environment)
    return Address(next((path for path in choices if path.exists()), choices[-1]))


def _of_url(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"daemon at {url!r}: {error}; {_RIGHT}") from error
    if parts.scheme != "http" or port is None or parts.path not in ("", "/") or parts.query:
        raise InputError(f"daemon at {url!r}: {_RIGHT}")
    if not _is_here(host):
        raise InputError(
            f"daemon at {url!r}: the token would cross the network readable by all; forward a local port"
            f" (ssh -L {port}:127.0.0.1:{port} {host}) and use http://127.0.0.1:{port}"
        )
    return Address(None, host, port)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
