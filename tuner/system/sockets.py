"""Where a daemon listens when nobody says otherwise; the daemon reads it without loading the client."""

import os
from collections.abc import Mapping
from pathlib import Path

SOCKET_VARIABLE = "TUNER_SOCKET"
SYSTEM_SOCKET = Path("/run/tuner/tunerd.sock")
_NAME = Path("tuner/tunerd.sock")


def default_sockets(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Sockets where a daemon may listen, in the order in which they are tried.

    ``$TUNER_SOCKET`` alone where it is set; else the user's own below ``$XDG_RUNTIME_DIR``, then the
    system's. A daemon in the foreground takes the first that it may make.
    """
    if environment.get(SOCKET_VARIABLE):
        return (Path(environment[SOCKET_VARIABLE]),)
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    own = (Path(runtime) / _NAME,) if runtime else ()
    return (*own, SYSTEM_SOCKET)
