"""Where a daemon listens when nobody says otherwise; the daemon reads it without loading the client."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from tuner.model.errors import InputError

SOCKET_VARIABLE = "TUNER_SOCKET"
SYSTEM_SOCKET = Path("/run/tuner/tunerd.sock")
_NAME = Path("tuner/tunerd.sock")


def default_sockets(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Sockets where a daemon may listen, in the order in which they are tried.

    ``$TUNER_SOCKET`` alone where it is set; else the user's own below ``$XDG_RUNTIME_DIR``, then the
    system's. A daemon in the foreground takes the first that it may make.

    Raises:
        InputError: another user has made the folder of the user's own socket, or may change what is in it.
    """
    if environment.get(SOCKET_VARIABLE):
        return (Path(environment[SOCKET_VARIABLE]),)
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    if not runtime:
        return (SYSTEM_SOCKET,)
    own = Path(runtime) / _NAME
    _check_owner(own.parent)
    return (own, SYSTEM_SOCKET)


def _check_owner(folder: Path) -> None:
    try:
        status = folder.stat()
    except OSError:  # not made yet
        return
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f"{folder} is another user's, or others may write there, so that its daemon may be anybody's:"
            f" unset XDG_RUNTIME_DIR, or name a socket with --socket or ${SOCKET_VARIABLE}"
        )
